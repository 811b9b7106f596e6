"""The shell around the pure reconciler of plain pods: one pod on its own, or one group, at a time.

    pods of the queue, Workloads, PodGroups -> a queue of groups -> reconcile.pods.reconcile -> actions -> API server

Only pods with the label that the admission policy puts on them are followed here.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import PODS, QUEUED_PODS, RawWorkloads
from controller.cluster.watching.ledger import Ledger
from controller.cluster.watching.workqueue import WorkQueue
from controller.foreign.podgroups.native import beside
from controller.jobs.framework import names
from controller.jobs.framework.charge import Charge
from controller.jobs.framework.marks import controller_of, prebuilt_mark
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import IS_GROUP_WORKLOAD, SUSPENDING_PARENT, GroupName, SeenPod, key_of
from controller.jobs.framework.raw import JobError, Json, annotations
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.messages import jobs as words
from controller.objects.decode import KUEUE
from controller.objects.meta import OwnerReference, is_true
from controller.objects.workload import Workload
from controller.reconcile.jobshell.charges_shell import ChargeReader
from controller.reconcile.jobshell.indexes import Index, note
from controller.reconcile.jobshell.owners_shell import Owners
from controller.reconcile.jobshell.reconciler_shell import Reconciler
from controller.reconcile.jobshell.watched import seen_workload
from controller.reconcile.pods.actions import PodAction
from controller.reconcile.pods.actions_shell import PodActions
from controller.reconcile.pods.compose import own_workload, workload_name
from controller.reconcile.pods.group import Group, SeenPods, Sister
from controller.reconcile.pods.groupobjects_shell import GroupObjects
from controller.reconcile.pods.reconcile import reconcile_pods
from controller.reconcile.pods.sisters import Sisters, queue_of
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ABOVE_MINIMUM_OF
from kube.client import Client, Selection
from kube.objects import ObjectReference
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Changed, Removed
from kube.resources import Resource

_LARGE: Final = 64
_PACE_S: Final = 0.0005
"""The pause between two reconciliations for each pod: a reconciliation costs about a tenth of it."""
_LONGEST_S: Final = 1.0


class GroupKey(NamedTuple):
    """A group, or a pod on its own: ``pod`` is empty for a group, ``group`` for a pod on its own."""

    namespace: str
    group: str
    pod: str


class QueuedPod(msgspec.Struct, frozen=True):
    """A pod in the cache: as JSON text, which takes a quarter of the memory of objects. ``owner``: the uid of its
    controller, empty for none; ``group`` is empty for a pod on its own, ``parent`` for one of no serving kind,
    ``minimum`` for one that is not above the minimum of a group: it names that group's Workload. ``entry``: see
    ``queue_of``.
    """

    raw: bytes
    group: str
    owner: str
    parent: str = ""
    minimum: str = ""
    entry: str = ""

    def seen(self) -> SeenPod:
        return SeenPod(msgspec.json.decode(self.raw))


def read_pod(raw: bytes) -> QueuedPod:
    """A pod, less the parts that are not read here."""
    pod: Json = msgspec.json.decode(raw)
    pod.get("metadata", {}).pop("managedFields", None)
    if isinstance(status := pod.get("status"), dict):
        pod["status"] = {key: status[key] for key in ("phase", "conditions") if key in status}
    owner = controller_of(pod)
    return QueuedPod(
        msgspec.json.encode(pod),
        _group_name(pod),
        "" if owner is None else owner.uid,
        _annotation(pod, SUSPENDING_PARENT),
        _annotation(pod, ABOVE_MINIMUM_OF),
        _entry(pod),
    )


class AboveJobs(Protocol):
    """What the controller of jobs knows about a pod below one."""

    owners: Owners
    charges: ChargeReader

    def is_below(self, child: Json, cluster: ClusterObjects) -> bool: ...
    async def charge_above(self, child: Json, cluster: ClusterObjects) -> Charge | None: ...


class PodController(Reconciler[GroupKey]):
    """``hear`` and ``workload`` take changes; ``run`` works on them until cancelled, beside what ``pod_groups`` runs.

    The indexes of pods follow the watch: ``_groups`` has them by group, ``_children`` by the uid of their controller
    (perhaps the job whose start releases them), and ``_above`` has the pods above the minimum of a group by its
    Workload. Only ``_see`` and ``_leave`` write the three, and their sets are never empty.
    """

    def __init__(  # noqa: PLR0913
        self,
        client: Client,
        feeds: Feeds,
        ledger: Ledger,
        raws: RawWorkloads,
        actions: PodActions,
        settings: JobSettings,
        cluster: ClusterObjects,
        job_resources: Collection[Resource],
        *,
        pod_groups: GroupObjects,
        above_jobs: AboveJobs | None = None,
    ) -> None:
        super().__init__(client, feeds, ledger, raws)
        self._queue: WorkQueue[GroupKey] = WorkQueue("pods", self._reconcile)
        self._actions = actions
        self._settings = settings
        self._cluster = cluster
        self._job_resources = frozenset(job_resources)
        self._pod_groups = pod_groups
        self._above_jobs = above_jobs
        pod_groups.changed = self.pod_group
        self._groups = Index[GroupKey, ObjectKey]()
        self._children: dict[str, set[ObjectKey]] = {}
        self._above = Index[WorkloadKey, ObjectKey]()
        self._after: dict[GroupKey, set[GroupKey]] = {}
        """Pods that start once another has ended, by that other. Each entry is removed when the other changes."""
        self._sisters = Sisters[ObjectKey, GroupKey]()
        """What ``_see`` and ``_leave`` tell it, and which groups look at their sisters."""
        self._owned: dict[GroupKey, set[WorkloadKey]] = {}
        """Workloads by the pod on its own that controls them, or did: a name may come again with another uid."""
        self._prebuilt: dict[WorkloadKey, GroupKey] = {}
        """Workloads that existing pods name as prebuilt. Only ``_workload_of`` adds to it, only ``_leave`` removes from
        it."""

    # -- what changes ------------------------------------------------------------------------------------------------

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key, new=entry) | Changed(key=key, new=entry) if observed.resource == QUEUED_PODS:
                self._see(key, entry.object)
            case Removed(key=key, old=entry) if observed.resource == QUEUED_PODS:
                self._leave(key, entry.object)
                self._actions.forget(entry.uid)
                self._actions.written.forget(key)
            case Added(new=entry) | Changed(new=entry) | Removed(old=entry) if observed.resource in self._job_resources:
                self._touch_children(entry.uid)
                for each in self._pod_groups.of_owner(entry.uid):
                    self.pod_group(each)
            case _:
                self._hear_surroundings(observed)

    def _keys(self) -> Iterable[tuple[str, GroupKey]]:
        return ((group.namespace, group) for group in self._groups)

    def workload(self, workload: Workload, gone: bool) -> None:
        """A Workload was created, changed or deleted: its pods are reconciled."""
        meta, key = workload.metadata, WorkloadKey(workload.key)
        if gone:
            self._actions.forget(meta.uid)
            self._queue.put(GroupKey(meta.namespace, meta.name, ""))  # a group of its name may have waited for that
        self._queue_above(key)
        if meta.annotations.get(IS_GROUP_WORKLOAD) == "true":
            group = GroupKey(meta.namespace, meta.name, "")
            self._queue.put(group)
            self._touch_sisters(next(iter(self._groups.of(group)), ObjectKey("", "")))
            return
        if key in self._prebuilt:
            self._queue.put(self._prebuilt[key])
        elif _is_orphaned(workload, set()) and _controlling_pod(workload) is None:
            self._queue.put(GroupKey(meta.namespace, meta.name, ""))
        pod = _controlling_pod(workload)
        if pod is not None:
            group = GroupKey(meta.namespace, "", pod.name)
            note(self._owned, group, key, gone=gone)
            self._queue.put(group)
            self._touch_sisters(ObjectKey(meta.namespace, pod.name))

    def pod_group(self, key: ObjectKey | None) -> None:
        """Notes that a PodGroup changed; None: any may have."""
        if key is not None:
            self._queue.put(GroupKey(key.namespace, key.name, ""))
            self._put_pods(self._sisters.of(key.namespace, key.name))
            self._queue_above(WorkloadKey(f"{key.namespace}/{key.name}"))
            return
        for group in self._groups:
            if group.group:
                self._queue.put(group)
        self._put_pods(self._sisters.every())

    def _queue_above(self, minimum: WorkloadKey) -> None:
        self._put_pods(self._all_above(minimum))

    def _put_pods(self, keys: Iterable[ObjectKey]) -> None:
        """Enqueues the groups of these pods."""
        for key in keys:
            if (group := self._groups.key(key)) is not None:
                self._queue.put(group)

    def _all_above(self, minimum: WorkloadKey) -> set[ObjectKey]:
        """Pods above the minimum, and pods above the minimums of the subgroups among these."""
        above: set[ObjectKey] = set()
        left = [minimum]
        while left:
            more = set(self._above.of(left.pop())) - above
            above |= more
            groups = {self._groups.key(key) for key in more}
            left += [WorkloadKey(f"{group.namespace}/{group.group}") for group in groups if group and group.group]
        return above

    def _see(self, key: ObjectKey, pod: QueuedPod) -> None:
        group = _group_of(key, pod.group)
        if self._groups.key(key) not in (None, group):
            self._leave(key, pod)
        self._groups.put(key, group)
        if pod.owner:
            note(self._children, pod.owner, key, gone=False)
        if pod.minimum:
            self._above.put(key, _minimum_of(key, pod))
        if pod.entry:
            self._sisters.see(key, key.namespace, pod.entry)
            self._touch_sisters(key)
        self._touch_minimum(key, pod)
        self._touch(group)

    def _leave(self, key: ObjectKey, pod: QueuedPod) -> None:
        group = self._groups.drop(key)
        if group is None:
            return
        if not self._groups.of(group):
            for named in [key for key, whose in self._prebuilt.items() if whose == group]:
                del self._prebuilt[named]
        note(self._children, pod.owner, key, gone=True)
        self._above.drop(key)
        self._touch_sisters(key)
        self._sisters.leave(key)
        self._touch_minimum(key, pod)
        self._touch(group)

    def _touch_sisters(self, key: ObjectKey) -> None:
        for group in self._sisters.looking(key):
            self._queue.put(group)

    def _sisters_of(self, group: GroupKey, pods: Sequence[SeenPod]) -> tuple[Sister, ...]:
        """Pods of the same entry of kube-scheduler's queue that wait in other groups. From now on the group is
        reconciled when one of them, or its Workload, changes.
        """
        if not pods[0].native_group or not any(pod.is_gated and pod.stays for pod in pods):
            return ()
        sisters = []
        for key in self._sisters.look(group, ObjectKey(group.namespace, pods[0].name)):
            entry, other = self._feeds[QUEUED_PODS].get(key), self._groups.key(key) or group
            pod = None if entry is None or other == group else entry.object.seen()
            if pod is not None and pod.is_gated and pod.stays:
                sisters.append(Sister(pod=pod, workload=self._workload_of(other, (pod,))))
        return tuple(sisters)

    def _touch_minimum(self, key: ObjectKey, pod: QueuedPod) -> None:
        """Reconciles the group whose status counts the pod: that of its minimum, and of what that minimum is above."""
        name, seen = pod.minimum, set[str]()
        while name and name not in seen:
            seen.add(name)
            group = GroupKey(key.namespace, name, "")
            self._queue.put(group)
            entries = (self._feeds[QUEUED_PODS].get(each) for each in self._groups.of(group))
            name = next((entry.object.minimum for entry in entries if entry is not None), "")

    def _touch(self, group: GroupKey) -> None:
        """Reconciles the group at once, or a moment later if it is large: its pods are created and change one by
        one.
        """
        for waiting in self._after.pop(group, ()):
            self._queue.put(waiting)
        pods = len(self._groups.of(group))
        if pods < _LARGE:
            self._queue.put(group)
        else:
            self._queue.put_soon(group, min(pods * _PACE_S, _LONGEST_S))

    def _touch_children(self, uid: str) -> None:
        self._put_pods(self._children.get(uid, ()))

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, group: GroupKey) -> None:
        pods = []
        for key in self._groups.of(group):
            entry = self._feeds[QUEUED_PODS].get(key)
            if entry is None:
                continue  # its removal is under way to ``hear``
            if self._actions.written.behind(key, entry.uid, entry.resource_version):
                return  # the watch brings what was written, and with it the next reconciliation
            pods.append(entry.object.seen())
        await self._finish_orphans(group, {pod.raw["metadata"]["uid"] for pod in pods})
        if not pods:
            await self._pod_groups.tell_alone(group.namespace, group.group)
            return
        foreign = next((pod.foreign_group for pod in pods if pod.foreign_group), None)
        seen = self._observed(group, tuple(pods), foreign)
        if seen is not None:
            if self._above_jobs is not None and any(pod.is_gated and pod.stays for pod in pods):
                await self._beside_a_job(self._above_jobs, group, seen)
            else:
                await self._carry_out(group, seen, reconcile_pods(seen, self._settings, self._cluster))
            if foreign is not None and not pods[0].part:
                await self._pod_groups.tell(group.namespace, foreign, seen, self._pods_above(group))

    async def _beside_a_job(self, jobs: AboveJobs, group: GroupKey, seen: SeenPods) -> None:
        """Reconciles pods that wait, perhaps below a queued job: they start by its charge, one group after another."""
        first = min(seen.pods, key=lambda pod: pod.age_key)
        above = await jobs.owners.above(first.raw, self._cluster)
        if not jobs.is_below(first.raw, above.cluster):
            seen = replace(seen, unread=above.unread)
            await self._carry_out(group, seen, reconcile_pods(seen, self._settings, above.cluster))
            return
        async with jobs.charges.alone(group.namespace):
            charge = await jobs.charge_above(first.raw, above.cluster)
            seen = replace(seen, charge=charge, unread="" if charge is not None else words.owner_not_admitted())
            await self._carry_out(group, seen, reconcile_pods(seen, self._settings, above.cluster))

    def _pods_above(self, group: GroupKey) -> list[SeenPod]:
        """The pods above the minimum of the group."""
        keys = self._all_above(WorkloadKey(f"{group.namespace}/{group.group}"))
        entries = (self._feeds[QUEUED_PODS].get(key) for key in keys)
        return [entry.object.seen() for entry in entries if entry is not None]

    def _observed(self, group: GroupKey, pods: tuple[SeenPod, ...], foreign: GroupName | None) -> SeenPods | None:
        """The pods with what belongs to them; None while it is not known yet whether there is a PodGroup of that
        name.
        """
        pod_group = None
        if foreign is not None:
            if not self._pod_groups.known(group.namespace, foreign):
                return None
            pod_group = self._pod_groups.get(group.namespace, foreign)
        elif (of := beside(pods[0])) and not self._pod_groups.known(group.namespace, of):
            return None
        namespace = self._namespace(group.namespace)
        workload = self._workload_of(group, pods)
        return SeenPods(
            pods=pods,
            workload=workload,
            predecessor_runs=not group.group and workload is not None and self._predecessor_runs(group, workload),
            pod_group=pod_group,
            find=self._pod_groups.find(group.namespace),
            minimum=self._minimum(group, pods[0]),
            sisters=self._sisters_of(group, pods),
            namespace_labels=namespace.labels,
            namespace_terminating=namespace.deletion_timestamp is not None,
        )

    def _workload_of(self, group: GroupKey, pods: tuple[SeenPod, ...]) -> SeenWorkload | None:
        named = {group.group, workload_name(Group(name=group.group, total=1, minimum=1), pods[0], self._settings.gates)}
        keys = set(self._owned.get(group, ()))
        for pod in pods:
            if name := prebuilt_mark(pod.raw)[1]:
                named.add(name)
                self._prebuilt[WorkloadKey(f"{group.namespace}/{name}")] = group
        keys |= {WorkloadKey(f"{group.namespace}/{name}") for name in named if name}
        return own_workload(group.group, pods, self._seen(keys), self._settings.gates)

    def _minimum(self, group: GroupKey, pod: SeenPod) -> SeenWorkload | None:
        """The Workload with the minimum of the pod's group, if the pod is above it; else None."""
        name = pod.above_minimum_of if pod.part or not group.group else ""
        return seen_workload(self._ledger, self._raws, WorkloadKey(f"{group.namespace}/{name}")) if name else None

    def _predecessor_runs(self, group: GroupKey, workload: SeenWorkload) -> bool:
        """Whether the pod whose quota it takes over may run. That pod's Workload exists for as long as it may."""
        named = workload.typed.metadata.annotations.get(names.REPLACEMENT_FOR)
        kept = None if named is None else self._ledger.get(WorkloadKey(named))
        pod = None if kept is None else _controlling_pod(kept.workload)
        entry = None if pod is None else self._feeds[QUEUED_PODS].get(ObjectKey(group.namespace, pod.name))
        if pod is None or entry is None or entry.uid != pod.uid or not entry.object.seen().may_run:
            return False
        self._after.setdefault(GroupKey(group.namespace, "", pod.name), set()).add(group)
        return True

    async def _carry_out(self, group: GroupKey, seen: SeenPods, actions: tuple[PodAction, ...]) -> None:
        def still() -> bool:
            if seen.workload is None:
                return True
            entry = self._ledger.get(WorkloadKey(seen.workload.typed.key))
            return entry is not None and _decided_by(entry.workload) == _decided_by(seen.workload.typed)

        about = _about(group, seen)
        known = {pod.name: pod.raw for pod in (*seen.pods, *(each.pod for each in seen.sisters))}
        await self._actions.carry_out(about, known, actions, still)

    async def _finish_orphans(self, group: GroupKey, uids: set[str]) -> None:
        """Finishes workloads whose pods are gone, once the API server confirms it: the watch may lag."""
        if group.group:
            keys = set() if uids else {WorkloadKey(f"{group.namespace}/{group.group}")}
        else:
            keys = set(self._owned.get(group, ()))
        for key in keys:
            workload = seen_workload(self._ledger, self._raws, key)
            if workload is None or not _is_orphaned(workload.typed, uids):
                continue
            seen = SeenPods(pods=(), workload=workload)
            actions = reconcile_pods(seen, self._settings, self._cluster)
            if actions and not await self._is_there(group, workload):
                await self._carry_out(group, seen, actions)

    async def _is_there(self, group: GroupKey, workload: SeenWorkload) -> bool:
        """Whether one of the workload's pods exists that the watch does not show yet."""
        chosen = Selection(namespace=group.namespace, label_selector=QUEUED_PODS.selector)
        owners = {owner.uid for owner in workload.typed.metadata.owner_references}
        listing = await self._client.list_all(PODS, dict[str, Any], chosen)
        for pod in listing.items:
            meta = pod["metadata"]
            if meta["uid"] in owners:
                return True
            if group.group and _group_name(pod) == group.group:
                return True
        return False


def _decided_by(workload: Workload) -> tuple[object, ...]:
    """The parts of a workload by which pods are started and stopped."""
    status = workload.status
    ends = tuple(is_true(status.conditions, type_) for type_ in ("Admitted", "Evicted", "Finished"))
    return (workload.metadata.uid, workload.metadata.deletion_timestamp, ends, status.unhealthy_nodes, status.admission)


def _group_name(pod: Json) -> str:
    try:
        return key_of(SeenPod(pod))[1]
    except JobError:
        return ""


def _entry(pod: Json) -> str:
    try:
        return queue_of(SeenPod(pod))
    except JobError:
        return ""


def _annotation(pod: Json, key: str) -> str:
    try:
        return annotations(pod).get(key, "")
    except JobError:
        return ""


def _minimum_of(key: ObjectKey, pod: QueuedPod) -> WorkloadKey:
    return WorkloadKey(f"{key.namespace}/{pod.minimum}")


def _group_of(key: ObjectKey, name: str) -> GroupKey:
    return GroupKey(key.namespace, name, "" if name else key.name)


def _controlling_pod(workload: Workload) -> OwnerReference | None:
    controllers: Iterator[OwnerReference] = (
        owner
        for owner in workload.metadata.owner_references
        if owner.controller and (owner.api_version, owner.kind) == ("v1", "Pod")
    )
    return next(controllers, None)


def _is_orphaned(workload: Workload, uids: set[str]) -> bool:
    """Whether none of the pods ``uids`` owns the workload, and pods alone did."""
    owners = workload.metadata.owner_references
    return bool(owners) and all(owner.kind == "Pod" and owner.uid not in uids for owner in owners)


def _about(group: GroupKey, seen: SeenPods) -> ObjectReference:
    """The object of a group's Events: its Workload, if it has one; else a pod."""
    if seen.workload is not None and (group.group or not seen.pods):
        meta = seen.workload.typed.metadata
        return ObjectReference(KUEUE, "Workload", meta.name, meta.uid, meta.namespace)
    pod = min(seen.pods, key=lambda member: member.age_key)
    return ObjectReference("v1", "Pod", pod.name, pod.uid, group.namespace)
