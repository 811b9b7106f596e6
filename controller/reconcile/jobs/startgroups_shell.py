"""The PodGroups of starts in the API: made, lowered and removed, and followed for what kube-scheduler says of them.

Followed with them are the PodGroups of others: those that the Job controller makes, and those that a pod template
names. Nothing is followed before the first job whose pods could be a group.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from controller.cluster.watching.workqueue import ActionFailedError
from controller.cluster.writing.stampedwrites import failure, is_taken
from controller.jobs.framework.actions import GroupAction, LowerGroup, MakeGroup, RemoveGroup
from controller.jobs.framework.raw import Json
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import OwnerReference
from controller.objects.nativegroups import NativeGroup
from controller.reconcile.jobshell.followed_shell import GROUP_KINDS, Followed
from controller.reconcile.jobshell.indexes import note
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from inventory.api.names import START_OF
from kube.client import Client
from kube.clock import Clock
from kube.reading.entries import ObjectKey
from kube.resources import Resource
from kube.writing.writer import Writer
from kube.writing.writes import Conflicted, Missing, Outcome, Refused, Verb, Write, Written

MADE_KINDS: Final = GROUP_KINDS[:2]
"""The versions in which groups are made: those of Kubernetes 1.37."""
_SETTLES_WITHIN_S: Final = 10.0
"""The longest time for which starts wait until it is known whether the API is there."""


class GroupRefusedError(ActionFailedError):
    """The API server refuses the group: the message is what it says."""


def _nobody(_workload: WorkloadKey) -> None:
    pass


def _no_owner(_uid: str) -> None:
    pass


class StartGroups:
    """``of`` returns known groups, ``carry_out`` writes them; ``run`` follows them until cancelled.

    ``_made`` has the groups by the uid of their Workload, ``_theirs`` those of others by the uid of the object that
    controls them, and ``_known`` each group by its key: ``_hear`` alone writes the three. ``_named`` has the jobs whose
    templates name a group, by that: ``named`` alone adds to it, and ``_hear`` takes them out.
    """

    def __init__(self, client: Client, writer: Writer, *, clock: Clock, random: Callable[[], float]) -> None:
        self._writer = writer
        self._followed = Followed(client, MADE_KINDS, self._hear, clock=clock, random=random)
        self._changed: Callable[[WorkloadKey], None] = _nobody
        self._of_job: Callable[[str], None] = _no_owner
        self._theirs: dict[str, set[ObjectKey]] = {}
        self._named: dict[ObjectKey, set[str]] = {}
        self._made: dict[str, set[ObjectKey]] = {}
        self._known: dict[ObjectKey, NativeGroup] = {}

    def tell(self, changed: Callable[[WorkloadKey], None], of_job: Callable[[str], None]) -> None:
        """``changed`` gets the key of the Workload of each group that changes, ``of_job`` the uid of a job whose pods
        are in a group of others that changes.
        """
        self._changed, self._of_job = changed, of_job

    async def run(self) -> None:
        await self._followed.run()

    async def of(self, uids: Collection[str]) -> tuple[NativeGroup, ...] | None:
        """The groups of the Workloads with these uids; None where the API is not there."""
        await self._followed.settle(_SETTLES_WITHIN_S)
        if self._followed.served is None:
            return None
        return tuple(self._known[key] for uid in uids for key in sorted(self._made.get(uid, ())))

    def theirs(self, uid: str) -> tuple[NativeGroup, ...]:
        """The groups that the object with this uid controls, of those that are known."""
        return tuple(self._known[key] for key in sorted(self._theirs.get(uid, ())))

    async def named(self, namespace: str, names: Collection[str], uid: str) -> dict[str, NativeGroup | None]:
        """The groups of these names, which the pods of the job with this uid are in: None for one that is not there.
        Empty where the API is not there.
        """
        await self._followed.settle(_SETTLES_WITHIN_S)
        if self._followed.served is None:
            return {}
        keys = {name: ObjectKey(namespace, name) for name in names}
        for key in keys.values():
            self._named.setdefault(key, set()).add(uid)
        return {name: self._known.get(key) for name, key in keys.items()}

    async def carry_out(self, action: GroupAction, namespace: str) -> None:
        """Raises ActionFailedError, GroupRefusedError for what the API server refuses unchanged."""
        served = self._followed.served
        if served is None:
            raise ActionFailedError("PodGroups of scheduling.k8s.io are not there any more")
        outcome = await self._writer.put(_write(action, served, namespace))
        if isinstance(action, MakeGroup) and _wants_never(outcome):
            body = {**action.body, "spec": {**action.body["spec"], "preemptionPolicy": "Never"}}
            again = msgspec.structs.replace(action, body=body)
            outcome = await self._writer.put(_write(again, served, namespace))
        if isinstance(outcome, Refused):
            raise GroupRefusedError(str(outcome.error))
        if not _is_done(action, outcome):
            raise failure(outcome)

    def _hear(self, key: ObjectKey | None) -> None:
        if key is None:
            return  # each object was told by itself
        before, given = self._known.pop(key, None), self._followed.get(key)
        now = None if given is None else _read(given)
        if before is not None:
            self._note(before, key, gone=True)
        if now is not None:
            self._known[key] = now
            self._note(now, key, gone=False)
        for group in (before, now):
            owner = None if group is None else _workload(group)
            if owner is not None:
                self._changed(WorkloadKey(f"{key.namespace}/{owner.name}"))
            elif group is not None and (uid := _controller(group)):
                self._of_job(uid)
        for uid in self._named.pop(key, ()):
            self._of_job(uid)

    def _note(self, group: NativeGroup, key: ObjectKey, *, gone: bool) -> None:
        if start := group.metadata.labels.get(START_OF):
            note(self._made, start, key, gone=gone)
        elif uid := _controller(group):
            note(self._theirs, uid, key, gone=gone)


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


def _wants_never(outcome: Outcome[Any]) -> bool:
    """Whether the API server asks for the ``preemptionPolicy`` of the group's class.

    It defaults the field before it compares the group with its class (admission plugin Priority of Kubernetes 1.37), so
    a class that says Never wants it written. Where its gate PodGroupPreemptionPolicy is off, the field is not served.
    """
    said = str(outcome.error) if isinstance(outcome, Refused) else ""
    return "PreemptionPolicy" in said and "computed Never" in said


def _is_done(action: GroupAction, outcome: Outcome[Any]) -> bool:
    """Whether the action need not be tried again: what has changed since, the watch brings."""
    if isinstance(outcome, Written):
        return True
    if isinstance(action, MakeGroup):
        return is_taken(outcome)
    return isinstance(outcome, Conflicted | Missing)


def _read(given: Json) -> NativeGroup | None:
    """The group; None for one that cannot be read."""
    try:
        return decode({key: given[key] for key in ("metadata", "spec", "status") if key in given}, NativeGroup)
    except DecodeError:
        return None


def _controller(group: NativeGroup) -> str:
    """The uid of the object that controls the group; empty for none."""
    return next((each.uid for each in group.metadata.owner_references if each.controller), "")


def _workload(group: NativeGroup) -> OwnerReference | None:
    ours = START_OF in group.metadata.labels
    return next((each for each in group.metadata.owner_references if ours and each.kind == "Workload"), None)
