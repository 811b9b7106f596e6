"""Delegated decisions: the API server tells whose a token is and what a user may do. Its answers count for seconds."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from controller.people.visibility.identity import User, reviewed, spoken
from controller.people.visibility.limits import Recent
from controller.people.visibility.routes import Attributes, workloads_of
from kube.client import Client
from kube.clock import Clock
from kube.resources import Resource

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview")
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")

LIFE_S: Final = 10.0
"""The life of an answer: a token or right that was withdrawn counts no longer than this."""
KNOWN_S: Final = 3_600.0
"""The time for which a token that was known is reviewed before tokens that never were."""
_TOKENS: Final = 4_096
_ANSWERS: Final = 65_536
_AT_ONCE: Final = 8
"""Reviews at the API server under way."""
MOST_NAMESPACES: Final = 500
"""Namespaces of one answer whose rights are reviewed; names of any further one are hidden."""
MOST_LISTED: Final = 2_000
"""Namespaces of all rows of a page whose rights are reviewed."""
LISTED_S: Final = (60.0, 300.0)
"""The least and the most time for which the namespaces that a page may name are not reviewed again."""
_LISTED_EACH_S: Final = 0.6
"""Seconds by which that time grows for each namespace: 200 users cost the API server 330 reviews a second, not
10,000."""
_LISTS_AT_ONCE: Final = 2
_LISTERS: Final = 512

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Asked:
    """Cached answers by key, with one review at a time for each key."""

    def __init__(self, most: int, clock: Clock, *, at_once: int = _AT_ONCE) -> None:
        self._recent: Recent[Any, Any] = Recent(most=most, life_s=LIFE_S)
        self._under_way: dict[Any, asyncio.Task[Any]] = {}
        self._turns = asyncio.Semaphore(at_once)
        self._clock = clock

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer for the key. Raises what ``ask`` raises; a failure is not cached."""
        found = self._recent.get(key, self._clock.monotonic())
        if found is not None:
            value: V = found[0]
            return value
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(_looked_at)
        # A client that goes away must not end the review that another one waits for.
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
    """Retrieves the task's failure, so that asyncio does not log one that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


class Reviews:
    """Reviews of users and rights. Methods raise KubeError if the API server does not answer: nobody is let in then,
    and nothing is shown.
    """

    def __init__(self, client: Client, clock: Clock, random: Callable[[], float] = random.random) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._tokens = _Asked(_TOKENS, clock)
        self._rights = _Asked(_ANSWERS, clock)
        self._were_known: Recent[bytes, bool] = Recent(most=_TOKENS, life_s=KNOWN_S)
        self._lists = _Asked(_TOKENS, clock, at_once=_LISTS_AT_ONCE)
        self._listed: Recent[User, _Listed] = Recent(most=_LISTERS, life_s=LISTED_S[1])

    async def user(self, token: str) -> User | None:
        """The user whose token it is; None if the API server does not know it. Only a digest of the token is kept."""
        digest = _digest(token)
        found = await self._tokens.get(digest, lambda: self._review(token))
        self._were_known.put(digest, found is not None, self._clock.monotonic())
        return found

    def was_known(self, token: str) -> bool:
        """Whether the API server knew the token when it was asked last. The token may be withdrawn since."""
        return self._were_known.get(_digest(token), self._clock.monotonic()) == (True,)

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
        """The ones of ``namespaces`` whose workloads the user may not list; ``granted`` is shown without a review."""
        asked = [namespace for namespace in namespaces if namespace != granted]
        if not asked or await self.may(user, workloads_of("")):
            return frozenset()
        first = asked[:MOST_NAMESPACES]
        allowed = await asyncio.gather(*(self.may(user, workloads_of(namespace)) for namespace in first))
        seen = {namespace for namespace, may in zip(first, allowed, strict=True) if may}
        return frozenset(asked) - seen

    async def lists(self, user: User, namespaces: Sequence[str]) -> frozenset[str]:
        """The ones of ``namespaces`` whose workloads the user may list. Reviews of one page wait for each other, and
        ``may`` never waits for them; each answer counts for minutes.
        """
        now_s, names = self._clock.monotonic(), namespaces[:MOST_LISTED]
        kept = self._listed.get(user, now_s)
        if kept is not None and now_s < kept[0].until_s:
            listed = kept[0]
        else:
            least_s, most_s = LISTED_S
            life_s = min(most_s, max(least_s, _LISTED_EACH_S * len(names)))
            # The times differ at random: streams that a change of leaders began together must not all be reviewed again
            # at once.
            listed = _Listed(now_s + life_s * (1 - self._random() / 4), {})
            self._listed.put(user, listed, now_s)
        lacking = [name for name in names if name not in listed.allowed]
        for start in range(0, len(lacking), _AT_ONCE):
            some = lacking[start : start + _AT_ONCE]
            allowed = await asyncio.gather(*(self._may_list(user, name) for name in some))
            listed.allowed.update(zip(some, allowed, strict=True))
        return frozenset(name for name in names if listed.allowed[name])

    async def _may_list(self, user: User, namespace: str) -> bool:
        right = workloads_of(namespace)
        return await self._lists.get((user, right), lambda: self._access(user, right))


class _Listed(NamedTuple):
    """Rights of one user: ``allowed`` by namespace, until ``until_s``."""

    until_s: float
    allowed: dict[str, bool]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
