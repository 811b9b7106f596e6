"""Plain pods and their workload, as they are, into what is to be done about them. Pure: same input, same actions.

A pod on its own is a group of one that nobody replaces. The order of the questions is that of
``controller.jobs.reconcile``: is the workload finished, or going? are the pods done? is there a workload, does it say
what the pods ask for? who is one too many? was it evicted? who may go?

What differs from a job: nothing can be suspended. A pod that was let go is stopped by deleting it, and somebody else
makes another; so a group's workload lives on without running pods, held by the finalizer on its last failed one.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from controller.engine.model.encoding import HOSTNAME_LABEL, TopologyEncodingError
from controller.engine.model.resources import WorkloadKey
from controller.jobframework import compose, elastic, names
from controller.jobframework.actions import (
    CreateWorkload,
    DeleteWorkload,
    EmitEvent,
    FinishReason,
    FinishWorkload,
    Refuse,
    ReleaseQuota,
    RemoveFinalizer,
    SetReclaimable,
    SetWaitingForPods,
)
from controller.jobframework.context import is_finished, is_going
from controller.jobframework.deviceplan import Devices
from controller.jobframework.marks import queue_name
from controller.jobframework.owners import NestingTooDeepError, managed_ancestor
from controller.jobframework.podsets import FlavorMissingError, JobPodSet, PodSetInfo, SeenWorkload, StartConflictError
from controller.jobframework.podview import SeenPod
from controller.jobframework.raw import JobError, Json, shown
from controller.jobframework.readiness import pods_ready
from controller.jobframework.settings import JobSettings, Lookups
from controller.objects.meta import find_condition, is_true
from controller.placing.ungating import Place
from controller.pods import compose as podcompose
from controller.pods import group as podgroup
from controller.pods.actions import DeletePod, PatchPod, PodAction
from controller.pods.group import Group
from controller.pods.start import infos_by_set, places, released, role_in, start_patch, unfinalized
from inventory.api.names import DEVICES

_REQUEUED_AT_ONCE = ("Preempted", "NodeFailures")
_EXCESS = "ExcessPodDeleted"


@dataclass(frozen=True, kw_only=True)
class SeenPods:
    """All pods of one group, or one pod on its own, with what belongs to them.

    ``workload``: the one of the name that ``podcompose.workload_name`` gives, whoever owns it. ``pod_group``: Volcano's
    object of the group's name. ``namespace_going``: the namespace is being deleted, nobody will come after these.
    """

    pods: tuple[SeenPod, ...]
    workload: SeenWorkload | None = None
    pod_group: Json | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    namespace_going: bool = False


def reconcile_pods(seen: SeenPods, settings: JobSettings, lookups: Lookups) -> tuple[PodAction, ...]:
    """The actions of the next step, in order; empty when all is as it should be, or somebody else has to act first."""
    try:
        pods = tuple(sorted((pod for pod in seen.pods if pod.is_managed), key=lambda one: one.age_key))
    except JobError as error:
        return (_refused(error),)
    if not pods:
        return tuple(_orphaned(seen.workload))
    if not settings.managed_jobs_namespace_selector.matches(seen.namespace_labels):
        return tuple(PatchPod(name=pod.name, body=released(pod)) for pod in pods)
    try:
        return tuple(_owned(seen, pods, settings, lookups))
    except (JobError, NestingTooDeepError) as error:
        return (*_held_back(seen, pods), _refused(error))


def _refused(error: Exception) -> Refuse:
    reason = "ErrWorkloadCompose"
    if isinstance(error, compose.PriorityClassMissingError):
        reason = "WorkloadPriorityClassNotFound"
    elif isinstance(error, NestingTooDeepError):
        reason = "JobNestingTooDeep"
    return Refuse(reason=reason, sentence=" ".join(str(error).split()))


def _held_back(seen: SeenPods, pods: tuple[SeenPod, ...]) -> list[PodAction]:
    """For pods that are refused: what waits is withdrawn, what was let in goes on, what was evicted or is over goes."""
    workload = seen.workload
    try:
        if workload is None or not _ours(workload, pods):
            return [_patched(pod) for pod in pods if pod.is_over and pod.has_finalizer]
        if is_finished(workload) or is_going(workload):
            return _closing(workload, pods)
        if is_true(workload.typed.status.conditions, "Evicted"):
            return _stopped(workload, pods, fast=False)
        if compose.is_reserved(workload.typed) or any(pod.may_run for pod in pods):
            return []
        return [DeleteWorkload(name=workload.name, uid=workload.typed.metadata.uid)]
    except JobError:
        return []


def _owned(seen: SeenPods, pods: tuple[SeenPod, ...], settings: JobSettings, lookups: Lookups) -> list[PodAction]:
    """Pods of a job that is queued as a whole are that job's, and are let go once it is admitted."""
    ancestor = managed_ancestor(pods[0].raw, settings, lookups)
    if ancestor is not None:
        free = lookups.is_admitted(ancestor)
        return [PatchPod(name=pod.name, body=released(pod)) for pod in pods if free or pod.is_over]
    if not queue_name(pods[0].raw) and not settings.manage_jobs_without_queue_name:
        raise JobError(
            f"metadata.labels[{names.QUEUE_NAME}]: expected the queue that the pod was created for, found none"
        )
    group = podgroup.group_of(pods, seen.pod_group)
    return _Life(seen=seen, pods=pods, group=group, settings=settings, lookups=lookups).next()


@dataclass(frozen=True, kw_only=True)
class _Life:
    """``pods``: the managed ones, from the oldest on; at least one."""

    seen: SeenPods
    pods: tuple[SeenPod, ...]
    group: Group
    settings: JobSettings
    lookups: Lookups

    @property
    def alone(self) -> bool:
        return not self.group.name

    @cached_property
    def counted(self) -> list[SeenPod]:
        """Those that fill the group: they stay, or have succeeded and need nobody after them.

        Of a Volcano group that is fuller than asked for, those that were let go, then the oldest; once quota is
        reserved, as many of each role as the workload has.
        """
        found = [pod for pod in self.pods if pod.stays or (pod.has_succeeded and not self.group.serving)]
        if self.group.declared:
            return found
        found.sort(key=lambda pod: (pod.is_held, pod.age_key))
        workload = self.seen.workload
        if workload is None or not compose.is_reserved(workload.typed):
            return found[: self.group.total]
        left = compose.counts_of(workload.typed.spec.pod_sets)
        members = []
        for pod in found:
            name = role_in(pod, alone=False)
            if left.get(name, 0) > 0:
                left[name] -= 1
                members.append(pod)
        return members

    @cached_property
    def failed(self) -> list[SeenPod]:
        return [pod for pod in self.pods if pod.has_failed or (pod.has_succeeded and self.group.serving)]

    def next(self) -> list[PodAction]:
        workload = self.seen.workload
        if workload is not None and not self.alone and not _ours(workload, self.pods):
            raise JobError(f"group {shown(self.group.name)}: workload {workload.name} belongs to a job")
        if workload is not None and (is_finished(workload) or is_going(workload)):
            return [*_closing(workload, self.pods), *self._late(workload)]
        outcome = self._outcome()
        if outcome is not None:
            finished = [] if workload is None else [_finish(workload, *outcome)]
            return [*finished, *(_patched(pod) for pod in self.pods if pod.is_over and pod.has_finalizer)]
        if workload is None:
            return self._without()
        evicted = find_condition(workload.typed.status.conditions, "Evicted")
        if evicted is not None and evicted.status == "True":
            fast = self.settings.gates.on("FastQuotaReleaseInPodIntegration")
            stopping = _stopped(workload, self.pods, fast=fast)
            if stopping or compose.is_reserved(workload.typed) or any(pod.may_run for pod in self.pods):
                return [*stopping, *self._let_go()]
        return self._with(workload)

    def _late(self, workload: SeenWorkload) -> list[PodAction]:
        """Pods that came after the end: their group's name is taken until the old ones have gone."""
        late = [pod for pod in self.pods if pod.is_held and pod.stays]
        if self.alone or not late or not is_finished(workload):
            return []
        sentence = f"group {self.group.name} has finished: delete its pods before its name is used again"
        return [Refuse(reason="GroupFinished", sentence=sentence)]

    def _outcome(self) -> tuple[FinishReason, str] | None:
        """How it ended, for good."""
        if any(pod.stays or pod.may_run for pod in self.pods):
            succeeded = sum(pod.has_succeeded for pod in self.pods)
            whole = not self.group.serving and succeeded >= self.group.total
            return ("Succeeded", f"{succeeded} pods succeeded") if whole else None
        succeeded = sum(pod.has_succeeded for pod in self.pods)
        told = f"{succeeded} of {self.group.total} pods succeeded"
        if self.alone:
            return ("Succeeded", "The pod succeeded") if succeeded else ("Failed", _how_it_failed(self.pods[0]))
        if succeeded >= self.group.total and not self.group.serving:
            return "Succeeded", told
        if not all(pod.is_retriable for pod in self.pods):
            return "Failed", f"{told}, and the group is not to be retried"
        deleted = all(pod.is_going and not pod.was_told_to_go for pod in self.pods)
        if deleted or self.seen.namespace_going:
            return "Failed", f"{told}, and all were deleted"
        return None

    # Before there is a workload.

    def _without(self) -> list[PodAction]:
        excess = self._excess(None)
        if excess:
            return excess
        over: list[PodAction] = [_patched(pod) for pod in self.failed if pod.has_finalizer]
        if not self.counted:
            return over
        sets = self._sets()
        if not sets:
            short = f"group {self.group.name} has {len(self.counted)} of {self.group.total} pods"
            return [*over, _event("WaitingForPods", short)]
        holding = [pod for pod in self.counted if pod.has_finalizer]
        if not holding:
            raise JobError("metadata.finalizers: the pod was not marked when it was created; create it anew")
        body = podcompose.workload_body(self.group, holding, sets, self.settings, self.lookups)
        name = body["metadata"]["name"]
        return [*over, CreateWorkload(body=body), _event("CreatedWorkload", f"Created workload {name}")]

    def _sets(self) -> tuple[JobPodSet, ...]:
        sets = podgroup.pod_sets(self.group, self.counted)
        if self.settings.gates.on("PartialAdmission"):
            return sets
        return tuple(msgspec.structs.replace(one, min_count=None) for one in sets)

    # With one.

    def _with(self, workload: SeenWorkload) -> list[PodAction]:
        reserved = compose.is_reserved(workload.typed)
        if not reserved:
            early = _deletions(self.pods, "NotAdmitted", f"Workload {workload.name} is not admitted by a cluster queue")
            if early:
                return early
        excess = self._excess(workload if reserved else None)
        if excess:
            return excess
        actions = self._synchronized(workload)
        if any(isinstance(action, DeleteWorkload) for action in actions):
            return actions
        actions += self._let_go() + self._reclaimed(workload) + self._waiting(workload)
        here = [pod for pod in self.counted if not pod.is_held]

        def all_ready() -> bool:
            return len(here) >= self._needed(workload) and all(pod.is_ready for pod in here)

        ready = pods_ready(workload, self.settings, all_ready)
        actions += [] if ready is None else [ready]
        return actions + self._started(workload)

    def _needed(self, workload: SeenWorkload) -> int:
        """Pods that the workload runs with: those that were admitted, before that those that it takes at least."""
        admission = workload.typed.status.admission
        given = () if admission is None else admission.pod_set_assignments
        counts = compose.counts_of(workload.typed.spec.pod_sets)
        admitted = sum(counts.get(one.name, 0) if one.count is None else one.count for one in given)
        return admitted or self.group.minimum

    def _excess(self, workload: SeenWorkload | None) -> list[PodAction]:
        counts = None
        if workload is not None:
            counts = compose.counts_of(workload.typed.spec.pod_sets)
        if self.alone:
            return []
        found = podgroup.excess(self.group, self.counted, counts)
        why = f"group {self.group.name} has all {self.group.total} pods that were asked for"
        return [DeletePod(name=pod.name, uid=pod.uid, reason=_EXCESS, message=why) for pod in found]

    def _synchronized(self, workload: SeenWorkload) -> list[PodAction]:
        moved = queue_name(self.pods[0].raw) != workload.typed.spec.queue_name
        if moved and compose.is_reserved(workload.typed) and not any(pod.may_run for pod in self.pods):
            return [DeleteWorkload(name=workload.name, uid=workload.typed.metadata.uid)]
        # Those that were let go tell no more what was asked for: the workload itself does, until one comes that waits.
        asks = not compose.is_reserved(workload.typed) and any(pod.is_held for pod in self.counted)
        sets = self._sets() if asks else ()
        spec = podcompose.spec_patch(self.pods[0], sets, workload, self.lookups)
        holding = [pod for pod in self.pods if pod.has_finalizer]
        metadata = podcompose.metadata_patch(self.group, holding, workload, self.settings) if holding else {}
        if not spec and not metadata:
            return []
        return [elastic.update(workload, {"metadata": metadata, **({"spec": spec} if spec else {})})]

    def _let_go(self) -> list[PodAction]:
        """Finalizers that nothing needs any more: of failed pods, except the one that holds the group together."""
        if self.alone:
            return []
        spare = [pod for pod in self.failed if pod.has_finalizer and pod.is_retriable]
        others = [pod for pod in self.pods if pod not in spare and pod.has_finalizer]
        return [_patched(pod) for pod in (spare if others else spare[:-1])]

    def _reclaimed(self, workload: SeenWorkload) -> list[PodAction]:
        if self.alone or self.group.serving or not compose.is_reserved(workload.typed):
            return []
        if not self.settings.gates.on("ReclaimablePods"):
            return []
        had = {one.name: one.count for one in workload.typed.status.reclaimable_pods}
        limits = compose.counts_of(workload.typed.spec.pod_sets)
        done = Counter(role_in(pod, alone=False) for pod in self.pods if pod.has_succeeded)
        # It never shrinks: what was given back may be somebody else's by now.
        grown = {name: min(max(done[name], had.get(name, 0)), limit) for name, limit in limits.items()}
        grown = {name: count for name, count in grown.items() if count}
        return [] if grown == had else [SetReclaimable(name=workload.name, uid=workload.typed.metadata.uid, pods=grown)]

    def _waiting(self, workload: SeenWorkload) -> list[PodAction]:
        if self.alone:
            return []
        needed = self._needed(workload)
        missing = max(needed - len(self.counted), 0)
        waits = missing > 0 and (bool(self.failed) or not self.group.fast)
        now = find_condition(workload.typed.status.conditions, "WaitingForReplacementPods")
        if waits == (now is not None and now.status == "True"):
            return []
        uid = workload.typed.metadata.uid
        if waits:
            told = f"{missing} of {needed} pods have failed or were deleted, and nobody came in their place"
            return [SetWaitingForPods(name=workload.name, uid=uid, status="True", reason="PodsMissing", message=told)]
        told = f"All {needed} pods are there"
        return [SetWaitingForPods(name=workload.name, uid=uid, status="False", reason="PodsComplete", message=told)]

    def _started(self, workload: SeenWorkload) -> list[PodAction]:
        status = workload.typed.status
        held = {pod.uid: pod for pod in self.counted if pod.is_held}
        if not held or status.admission is None or not is_true(status.conditions, "Admitted"):
            return []
        # One that is going keeps its place until it has gone: two on one place is one too many.
        leaving = [pod for pod in self.pods if pod.is_going and pod.may_run]
        minimum = self.group.minimum if self.group.minimum < self.group.total else None
        devices = self._devices(workload)
        try:
            given = infos_by_set(workload, self.lookups)
            found = places(
                workload, [*self.counted, *leaving], alone=self.alone, gang=not self.group.fast, minimum=minimum
            )
            patches = [self._started_pod(held[one.uid], given, one, devices) for one in found]
        except StartConflictError as conflict:
            sentence = f"The pods cannot start: {conflict}"
            return [_finish(workload, "FailedToStart", sentence), _event("FailedToStart", sentence, warning=True)]
        except FlavorMissingError as missing:
            return [_event("FlavorNotFound", f"The pods cannot start: {missing}", warning=True)]
        except TopologyEncodingError as error:
            return [_event("TopologyUnreadable", f"The pods cannot start: {error}", warning=True)]
        queue = status.admission.cluster_queue
        return [*patches, _event("Started", f"Admitted by cluster queue {queue}")] if patches else []

    def _devices(self, workload: SeenWorkload) -> Devices:
        live = [pod for pod in self.pods if pod.may_run]
        carried = [(pod.node_selector.get(HOSTNAME_LABEL, ""), pod.annotations.get(DEVICES, "")) for pod in live]
        return Devices(self.lookups.device_plan, WorkloadKey(workload.typed.key), carried)

    def _started_pod(self, pod: SeenPod, given: Mapping[str, PodSetInfo], place: Place, devices: Devices) -> PatchPod:
        name = role_in(pod, alone=self.alone)
        planned = devices.take(name, place.node_selector.get(HOSTNAME_LABEL, ""))
        return PatchPod(name=pod.name, body=start_patch(pod, given[name], place.node_selector, planned))


def _ours(workload: SeenWorkload, pods: tuple[SeenPod, ...]) -> bool:
    """Whether the workload is one of pods: those that own it may all have gone."""
    owners = workload.typed.metadata.owner_references
    uids = {pod.uid for pod in pods}
    return not any(owner.controller and owner.uid not in uids for owner in owners)


def _orphaned(workload: SeenWorkload | None) -> list[PodAction]:
    """The pods are gone. Their workload holds quota for nobody."""
    if workload is None:
        return []
    owners = workload.typed.metadata.owner_references
    if any(owner.kind != "Pod" for owner in owners):
        return []
    actions: list[PodAction] = []
    if not is_finished(workload):
        actions.append(_finish(workload, "OwnerNotFound", "The pods do not exist any more"))
    if names.RESOURCE_IN_USE in workload.typed.metadata.finalizers:
        actions.append(RemoveFinalizer(name=workload.name, uid=workload.typed.metadata.uid))
    return actions


def _closing(workload: SeenWorkload, pods: tuple[SeenPod, ...]) -> list[PodAction]:
    """The workload is finished or being deleted: pods end, then nothing of it holds anything."""
    actions: list[PodAction] = []
    if is_going(workload) and not is_finished(workload):
        actions += _deletions(pods, "WorkloadDeleted", f"Workload {workload.name} was deleted")
        if any(pod.may_run for pod in pods):
            return actions
    actions += [_patched(pod) for pod in pods if pod.is_over and pod.has_finalizer]
    if is_going(workload) and names.RESOURCE_IN_USE in workload.typed.metadata.finalizers:
        actions.append(RemoveFinalizer(name=workload.name, uid=workload.typed.metadata.uid))
    return actions


def _stopped(workload: SeenWorkload, pods: tuple[SeenPod, ...], *, fast: bool) -> list[PodAction]:
    """Evicted: every pod that was let go is deleted; the quota is free when none can run, or (``fast``) at once."""
    evicted = find_condition(workload.typed.status.conditions, "Evicted")
    reason, message = ("", "") if evicted is None else (evicted.reason, evicted.message)
    actions = _deletions(pods, f"WorkloadEvictedDueTo{reason}", message or f"Evicted: {reason}")
    busy = any(pod.may_run and not (fast and pod.is_going) for pod in pods)
    if not busy and compose.is_reserved(workload.typed):
        requeue = reason in _REQUEUED_AT_ONCE
        uid = workload.typed.metadata.uid
        actions.append(ReleaseQuota(name=workload.name, uid=uid, reason=reason, message=message, requeue=requeue))
    return actions


def _deletions(pods: tuple[SeenPod, ...], reason: str, message: str) -> list[PodAction]:
    return [
        DeletePod(name=pod.name, uid=pod.uid, reason=reason, message=message)
        for pod in pods
        if pod.may_run and not pod.is_going
    ]


def _how_it_failed(pod: SeenPod) -> str:
    return "The pod was deleted" if pod.is_going and pod.phase != "Failed" else "The pod failed"


def _patched(pod: SeenPod) -> PatchPod:
    return PatchPod(name=pod.name, body=unfinalized(pod))


def _finish(workload: SeenWorkload, reason: FinishReason, message: str) -> FinishWorkload:
    return FinishWorkload(name=workload.name, uid=workload.typed.metadata.uid, reason=reason, message=message)


def _event(reason: str, message: str, *, warning: bool = False) -> EmitEvent:
    return EmitEvent(type="Warning" if warning else "Normal", reason=reason, message=message)
