"""The PodGroups of starts in the API: made, lowered and removed, and followed for what kube-scheduler says of them.

Only PodGroups with the label ``START_OF`` are followed, and nothing before the first job whose pods could be a group.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from controller.cluster.watching.workqueue import ActionFailedError
from controller.jobs.framework.actions import GroupAction, LowerGroup, MakeGroup, RemoveGroup
from controller.jobs.framework.raw import Json
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import OwnerReference
from controller.objects.nativegroups import NativeGroup
from controller.reconcile.jobshell.followed_shell import GROUP_KINDS, Followed
from controller.reconcile.jobshell.watched import note
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from inventory.api.names import START_OF
from kube.client import Client, Selection
from kube.clock import Clock
from kube.reading.entries import ObjectKey
from kube.resources import Resource
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Outcome, Verb, Write, Written

MADE_KINDS: Final = GROUP_KINDS[:2]
"""The versions in which groups are made: those of Kubernetes 1.37."""
_SETTLES_WITHIN_S: Final = 10.0
"""The longest time for which starts wait until it is known whether the API is there."""


def _nobody(_workload: WorkloadKey) -> None:
    pass


class StartGroups:
    """``of`` returns known groups, ``carry_out`` writes them; ``run`` follows them until cancelled.

    ``_made`` has the groups by the uid of their Workload, and ``_known`` each group by its key: ``_hear`` alone writes
    both.
    """

    def __init__(self, client: Client, writer: Writer, *, clock: Clock, random: Callable[[], float]) -> None:
        self._writer = writer
        ours = Selection(label_selector=START_OF)
        self._followed = Followed(client, MADE_KINDS, self._hear, clock=clock, random=random, selection=ours)
        self._changed: Callable[[WorkloadKey], None] = _nobody
        self._made: dict[str, set[ObjectKey]] = {}
        self._known: dict[ObjectKey, NativeGroup] = {}

    def tell(self, changed: Callable[[WorkloadKey], None]) -> None:
        """``changed`` gets the key of the Workload of each group that changes."""
        self._changed = changed

    async def run(self) -> None:
        await self._followed.run()

    async def of(self, uids: Collection[str]) -> tuple[NativeGroup, ...] | None:
        """The groups of the Workloads with these uids; None where the API is not there."""
        await self._followed.settle(_SETTLES_WITHIN_S)
        if self._followed.served is None:
            return None
        return tuple(self._known[key] for uid in uids for key in sorted(self._made.get(uid, ())))

    async def carry_out(self, action: GroupAction, namespace: str) -> None:
        """Raises ActionFailedError."""
        served = self._followed.served
        if served is None:
            raise ActionFailedError("PodGroups of scheduling.k8s.io are not there any more")
        outcome = await self._writer.put(_write(action, served, namespace))
        if not _is_done(action, outcome):
            raise ActionFailedError(str(getattr(outcome, "error", outcome)))

    def _hear(self, key: ObjectKey | None) -> None:
        if key is None:
            return  # each object was told by itself
        before, given = self._known.pop(key, None), self._followed.get(key)
        if before is not None:
            note(self._made, before.metadata.labels[START_OF], key, gone=True)
        now = None if given is None else _read(given)
        if now is not None:
            self._known[key] = now
            note(self._made, now.metadata.labels[START_OF], key, gone=False)
        for each in (before, now):
            owner = None if each is None else _workload(each)
            if owner is not None:
                self._changed(WorkloadKey(f"{key.namespace}/{owner.name}"))


def _write(action: GroupAction, served: Resource, namespace: str) -> Write[dict[str, Any]]:
    body: Any
    match action:
        case MakeGroup(body=made):
            name, body = made["metadata"]["name"], {"apiVersion": served.api_version, **made}
            verb, failpoint = Verb.CREATE, Failpoint.START_GROUP
        case LowerGroup(name=name, patch=body):
            verb, failpoint = Verb.MERGE_PATCH, Failpoint.START_GROUP_LOWERED
        case RemoveGroup(name=name, uid=body):
            verb, failpoint = Verb.DELETE, Failpoint.START_GROUP_REMOVED
    return Write(
        verb=verb,
        resource=served,
        namespace=namespace,
        name=name,
        body=body,
        kind=dict[str, Any],
        failpoint=failpoint,
    )


def _is_done(action: GroupAction, outcome: Outcome[Any]) -> bool:
    """Whether the action need not be tried again: what has changed since, the watch brings."""
    if isinstance(outcome, Written):
        return True
    if isinstance(action, MakeGroup):
        return isinstance(outcome, Conflicted) and outcome.error.reason == "AlreadyExists"
    return isinstance(outcome, Conflicted | Missing)


def _read(given: Json) -> NativeGroup | None:
    """The group; None for one that is nobody's start: a person may write such a label."""
    try:
        found = decode({key: given[key] for key in ("metadata", "spec", "status") if key in given}, NativeGroup)
    except DecodeError:
        return None
    return found if found.metadata.labels.get(START_OF) else None


def _workload(group: NativeGroup) -> OwnerReference | None:
    return next((each for each in group.metadata.owner_references if each.kind == "Workload"), None)
