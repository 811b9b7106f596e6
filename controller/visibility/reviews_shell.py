"""Delegated decisions: the API server says whose a token is and what a user may. Its answers count for seconds."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, Final, TypeVar

from controller.visibility.identity import User, reviewed, spoken
from controller.visibility.limits import Recent
from controller.visibility.routes import Attributes, workloads_of
from kube.client import Client
from kube.clock import Clock
from kube.resources import Resource

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview")
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")

LIFE_S: Final = 10.0
"""A token that was withdrawn, or a right, counts no longer than this."""
_TOKENS: Final = 4_096
_ANSWERS: Final = 65_536
_AT_ONCE: Final = 8
"""Questions to the API server under way."""
MOST_NAMESPACES: Final = 500
"""So many namespaces of one answer are asked about; what is in any further one is not named."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Asked:
    """Answers by key, one question at a time for each key."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._recent: Recent[Any, Any] = Recent(most=most, life_s=LIFE_S)
        self._under_way: dict[Any, asyncio.Task[Any]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._clock = clock

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Raises what ``ask`` raises; a failure is not kept."""
        found = self._recent.get(key, self._clock.monotonic())
        if found is not None:
            value: V = found[0]
            return value
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(_looked_at)
        # A client that goes away must not end the question that another one waits for.
        answer: V = await asyncio.shield(task)
        return answer

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            async with self._turns:
                answer = await ask()
            self._recent.put(key, answer, self._clock.monotonic())
            return answer
        finally:
            del self._under_way[key]


def _looked_at(task: asyncio.Task[Any]) -> None:
    """A failure that nobody waits for any more is no news."""
    if not task.cancelled():
        task.exception()


class Reviews:
    """Raises KubeError where the API server does not answer: nobody is let in then, and nothing is shown."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._tokens = _Asked(_TOKENS, clock)
        self._rights = _Asked(_ANSWERS, clock)

    async def user(self, token: str) -> User | None:
        """The user whose token it is; None where the API server does not know it. Only a digest of it is kept."""
        return await self._tokens.get(hashlib.sha256(token.encode()).digest(), lambda: self._review(token))

    async def _review(self, token: str) -> User | None:
        body = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": {"token": token}}
        found = await self._client.create(TOKEN_REVIEWS, body, dict)
        return reviewed(found.get("status"))

    async def may(self, user: User, right: Attributes) -> bool:
        return await self._rights.get((user, right), lambda: self._access(user, right))

    async def _access(self, user: User, right: Attributes) -> bool:
        spec = spoken(user)
        if right.path:
            spec["nonResourceAttributes"] = {"verb": right.verb, "path": right.path}
        else:
            parts = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
            spec["resourceAttributes"] = {part: value for part in parts if (value := getattr(right, part))}
        body = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": spec}
        status = (await self._client.create(ACCESS_REVIEWS, body, dict)).get("status")
        return isinstance(status, dict) and status.get("allowed") is True and status.get("denied") is not True

    async def hidden(self, user: User, namespaces: Iterable[str], *, granted: str = "") -> frozenset[str]:
        """Those of ``namespaces`` whose workloads the user may not list; ``granted`` is shown without a question."""
        asked = [namespace for namespace in namespaces if namespace != granted]
        if not asked or await self.may(user, workloads_of("")):
            return frozenset()
        first = asked[:MOST_NAMESPACES]
        allowed = await asyncio.gather(*(self.may(user, workloads_of(namespace)) for namespace in first))
        seen = {namespace for namespace, may in zip(first, allowed, strict=True) if may}
        return frozenset(asked) - seen
