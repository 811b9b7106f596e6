"""Writes the conditions of JobKinds, and the finalizer that keeps one while its objects hold quota.

Rights are reviewed by the API server itself (SelfSubjectAccessReview): the controller writes no roles, so the JobKind's
status tells which rights on a foreign kind are missing until a ClusterRole grants them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import DECLARATIONS
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.stampedwrites import stamped_write
from controller.jobs.framework.kind import api_version
from controller.jobs.framework.names import RESOURCE_IN_USE
from controller.jobs.framework.raw import Json
from controller.jobs.kinds.declared.accepting import Verdict, verdicts
from controller.jobs.kinds.declared.conditions import Seen, conditions
from controller.jobs.kinds.declared.kind import DeclaredKind
from controller.objects.meta import is_true
from controller.reconcile.jobshell.watched import KNOWN_KINDS, JobKinds, resource_of
from failpoints.names import Failpoint
from kube.client import Client
from kube.clock import Clock
from kube.errors import KubeError
from kube.objects import timestamp
from kube.resources import Resource
from kube.writing.writes import Outcome, Verb, Write

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
"""Seconds between two rounds while there are JobKinds: CRDs and roles change without an event here."""
_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
_VERBS: Final = ("get", "list", "watch", "patch")
_OWNED_VERBS: Final = ("list", "watch")


class JobKindController:
    """Keeps JobKinds. ``hear`` takes changes; ``run`` works until cancelled. ``kinds``: those of this term.

    ``_granted``: JobKinds, by uid and generation, for which no right is missing.
    """

    def __init__(
        self,
        config: ControllerConfig,
        client: Client,
        feeds: Feeds,
        ledger: Ledger,
        put: Callable[[Write[Any]], Awaitable[Outcome[Any]]],
        kinds: JobKinds,
        *,
        clock: Clock,
    ) -> None:
        self._externals = config.integrations.external_frameworks
        self._client = client
        self._feeds = feeds
        self._ledger = ledger
        self._put = put
        self._kinds = kinds
        self._clock = clock
        self._due = asyncio.Event()
        self._granted: set[tuple[str, int]] = set()

    def hear(self, observed: ObjectChange) -> None:
        if observed.resource == DECLARATIONS:
            self._due.set()

    async def run(self) -> None:
        while True:
            self._due.clear()
            declarations = list(self._feeds[DECLARATIONS].objects())
            found = verdicts(declarations, KNOWN_KINDS, self._externals)
            for each in declarations:
                await self._tend(each, found[str(each["metadata"]["name"])])
            await self._clock.wait(self._due, LOOK_S if declarations else None)

    async def _tend(self, given: Json, verdict: Verdict) -> None:
        holders = self._holders(verdict.kind) if verdict.kind is not None else 0
        if await self._keep(given, verdict, holders):
            return  # the watch brings what was written
        if verdict.kind is not None and self._kinds.get(resource_of(verdict.kind)) != verdict.kind:
            return  # the next term has it, and says so
        seen = Seen(
            followed=verdict.kind is not None and self._follows(verdict.kind),
            missing=await self._missing(given, verdict.kind),
            holders=holders,
        )
        wanted = conditions(given, verdict, seen, timestamp(self._clock.wall()))
        if (given.get("status") or {}).get("conditions") != wanted:
            await self._write(given, {"status": {"conditions": wanted}}, subresource="status")

    def _follows(self, kind: DeclaredKind) -> bool:
        resource = resource_of(kind)
        return resource in self._feeds and self._feeds[resource].synced

    def _holders(self, kind: DeclaredKind) -> int:
        """The number of the kind's objects that hold quota."""
        about = (api_version(kind), kind.kind)
        return sum(
            workload.status.admission is not None and not is_true(workload.status.conditions, "Finished")
            for workload in (entry.workload for entry in self._ledger.values())
            if any((owner.api_version, owner.kind) == about for owner in workload.metadata.owner_references)
        )

    async def _keep(self, given: Json, verdict: Verdict, holders: int) -> bool:
        """Adds or removes the finalizer; returns whether either was to be done."""
        has = given["metadata"].get("finalizers") or []
        if not given["metadata"].get("deletionTimestamp"):
            wanted = RESOURCE_IN_USE in has or verdict.kind is None
            finalizers = has if wanted else [*has, RESOURCE_IN_USE]
        else:
            finalizers = has if holders else [each for each in has if each != RESOURCE_IN_USE]
        if finalizers == has:
            return False
        await self._write(given, {"metadata": {"finalizers": finalizers or None}})
        return True

    async def _write(self, given: Json, body: Json, *, subresource: str | None = None) -> None:
        meta = given["metadata"]
        tied = {"uid": meta.get("uid", ""), "resourceVersion": meta.get("resourceVersion", "")}
        patch = {**body, "metadata": {**body.get("metadata", {}), **tied}}
        await self._put(
            stamped_write(Verb.MERGE_PATCH, DECLARATIONS, meta, patch, Failpoint.JOB_KIND, subresource=subresource)
        )

    async def _missing(self, given: Json, kind: DeclaredKind | None) -> tuple[str, ...]:
        """The rights that the controller lacks; empty if the API server does not tell."""
        key = (str(given["metadata"].get("uid", "")), int(given["metadata"].get("generation", 0)))
        if kind is None or key in self._granted:
            return ()
        try:
            asked = [(said, await self._may(attributes)) for said, attributes in _rights(kind)]
        except KubeError as error:
            log.info("rights for JobKind %s are not known: %s", given["metadata"]["name"], error)
            return ()
        found = tuple(said for said, may in asked if not may)
        if not found:
            self._granted.add(key)
        return found

    async def _may(self, attributes: Json) -> bool:
        body = {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._client.create(_REVIEWS, body, dict[str, Any])
        return bool((answer.get("status") or {}).get("allowed"))


def _rights(kind: DeclaredKind) -> Iterator[tuple[str, Json]]:
    spec = kind.spec
    for verb in _VERBS:
        yield f"{verb} {spec.plural}.{spec.group}", {"verb": verb, "group": spec.group, "resource": spec.plural}
    # A Workload's owner reference blocks the owner's deletion.
    finalizers = {"verb": "update", "group": spec.group, "resource": spec.plural, "subresource": "finalizers"}
    yield f"update {spec.plural}/finalizers.{spec.group}", finalizers
    for owned in spec.owns:
        for verb in _OWNED_VERBS:
            yield f"{verb} {owned.plural}.{owned.group}", {"verb": verb, "group": owned.group, "resource": owned.plural}
