"""The reconciler of plain pods: it turns pods and their workload into actions. Pure: same input, same actions.

A single pod is a group of one that is never replaced. The order of the questions is that of
``controller.reconcile.jobs.reconcile``: is the workload finished, or being deleted? have the pods ended? is there a
workload, and does it match the pods? are there too many pods? was it evicted? which pods are to be ungated?

Unlike a job, pods cannot be suspended. A pod without its gate is stopped by deleting it, and its owner creates another;
so a group's workload remains without running pods, held by the finalizer on its last failed pod.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from controller.foreign.podgroups.group import (
    MIN_MEMBER,
    ForeignGroup,
    as_member,
    in_part,
    subgroup_of,
)
from controller.foreign.podgroups.native import OwnerOf, as_admitted, marks_of, read, sharing
from controller.foreign.podgroups.podsabove import beginning_together, begins_with, is_kept, problem_of, whole
from controller.jobs.framework import compose, names
from controller.jobs.framework.actions import (
    AwaitOwner,
    CreateWorkload,
    DeleteWorkload,
    FinishReason,
    Refuse,
    SetReclaimable,
)
from controller.jobs.framework.marks import NestingTooDeepError, managed_ancestor, prebuilt_workload, queue_name
from controller.jobs.framework.podsets import (
    FlavorMissingError,
    JobPodSet,
    PodSetInfo,
    SeenWorkload,
    StartConflictError,
)
from controller.jobs.framework.podview import GroupName, SeenPod, key_of
from controller.jobs.framework.raw import JobError, Json, shown, text
from controller.jobs.framework.settings import ClusterObjects, JobSettings, kept_off_spot
from controller.jobs.framework.steps import event, finish, flavor_missing, not_startable, refuse, update
from controller.messages import jobs as words
from controller.objects.meta import find_condition, is_true
from controller.objects.placeencoding import HOSTNAME_LABEL, TopologyEncodingError
from controller.objects.workload import WorkloadStatus, admitted_pods
from controller.reconcile.lifecycle import schedulerverdict
from controller.reconcile.lifecycle.readiness import pods_ready
from controller.reconcile.placing.devicedealer import DeviceDealer
from controller.reconcile.placing.ungating import PodPlace
from controller.reconcile.pods import compose as podcompose
from controller.reconcile.pods import group as podgroup
from controller.reconcile.pods.above import is_whole, left_behind, marked, returned, subgroups_of
from controller.reconcile.pods.actions import (
    DeletePod,
    PatchPod,
    PodAction,
    closing,
    deletions,
    dropped,
    evicted,
    finalizer_removed,
    finalizers_removed,
    is_of_pods,
    orphaned,
)
from controller.reconcile.pods.children import within_the_charge
from controller.reconcile.pods.group import MAIN, Group, SeenPods
from controller.reconcile.pods.replacing import is_stale, spare_finalizers, waiting
from controller.reconcile.pods.sisters import Way, entry_of, way
from controller.reconcile.pods.start import infos_by_set, places, released, role_in, start_patch, tied
from controller.scheduler.decisions import reasons
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ABOVE_MINIMUM_OF, ABOVE_MINIMUM_SUBGROUP, DEVICES
from inventory.words.catalog import plural


def reconcile_pods(seen: SeenPods, settings: JobSettings, cluster: ClusterObjects) -> tuple[PodAction, ...]:
    """The actions of the next step, in order; empty when nothing is to be done, or not before something changes."""
    try:
        pods = tuple(sorted((pod for pod in seen.pods if pod.is_managed), key=lambda pod: pod.age_key))
    except JobError as error:
        return (refuse(error),)
    if not pods:
        return tuple(orphaned(seen.workload, settings.gates))
    if not settings.managed_jobs_namespace_selector.matches(seen.namespace_labels):
        return tuple(PatchPod(name=pod.name, body=released(pod)) for pod in pods)
    try:
        return tuple(_owned(seen, pods, settings, cluster))
    except (JobError, NestingTooDeepError) as error:
        return (*_held_back(seen, pods), refuse(error))


def _held_back(seen: SeenPods, pods: tuple[SeenPod, ...]) -> list[PodAction]:
    """Actions for pods that are refused: a pending workload is deleted, an admitted one goes on unless it is
    evicted.
    """
    workload = seen.workload
    try:
        if workload is None or not is_of_pods(workload, pods):
            return finalizers_removed(pods)
        if workload.is_finished or workload.is_terminating:
            return closing(workload, pods)
        if workload.eviction is not None:
            return evicted(workload, pods, fast=False)
        if workload.is_reserved or any(pod.may_run for pod in pods):
            return []
        return dropped(workload)
    except JobError:
        return []


def _owned(
    seen: SeenPods, pods: tuple[SeenPod, ...], settings: JobSettings, cluster: ClusterObjects
) -> list[PodAction]:
    """Actions for pods of a job that is queued as a whole: they belong to that job, and are released once it is
    admitted.

    A pod that was above the job's minimum, and is taken back into it, had a workload of its own.
    """
    if seen.unread and any(pod.is_gated and pod.stays for pod in pods):
        return [AwaitOwner(message=seen.unread)]
    ancestor = managed_ancestor(pods[0].raw, settings, cluster)
    if ancestor is not None and not pods[0].above_minimum_of:
        free = cluster.is_admitted(ancestor)
        own = seen.workload
        was_above = own is not None and ABOVE_MINIMUM_OF in own.typed.metadata.annotations and is_of_pods(own, pods)
        left = dropped(own) if own is not None and was_above else []
        if free and seen.charge is not None:
            return [*left, *within_the_charge(pods, seen.charge, cluster, settings)]
        return [*left, *(PatchPod(name=pod.name, body=released(pod)) for pod in pods if free or pod.is_over)]
    if left := left_behind(pods, seen.workload, seen.minimum, cluster):
        return left
    if regrouped := _regrouped(seen, pods, cluster):
        return regrouped
    foreign, pods = _of_pod_group(seen, pods, cluster)
    if not queue_name(pods[0].raw) and not settings.manage_jobs_without_queue_name:
        raise JobError(
            f"metadata.labels[{names.QUEUE_NAME}]: expected the queue that the pod was created for, found none"
        )
    if back := returned(pods, seen.workload, seen.minimum):
        return back
    group = podgroup.group_of(pods, foreign)
    actions = _Reconciliation(seen=seen, pods=pods, group=group, settings=settings, cluster=cluster).next()
    return [*actions, *_misread(seen, pods)]


def _misread(seen: SeenPods, pods: tuple[SeenPod, ...]) -> list[PodAction]:
    """The Event about a wrong value of the annotation of pods above, which the oldest pod that waits tells."""
    waiting = [pod for pod in pods if pod.native_group and pod.is_gated and pod.stays]
    if not waiting or any(each.pod.age_key < waiting[0].age_key for each in seen.sisters):
        return []
    told = problem_of(waiting[0], seen.find(waiting[0].native_group, False))
    return [event("PodsAboveMisread", told, warning=True)] if told else []


def _regrouped(seen: SeenPods, pods: tuple[SeenPod, ...], cluster: ClusterObjects) -> list[PodAction]:
    """Actions that mark waiting pods of a PodGroup of Kubernetes' own with what they are queued with, if that is not
    their PodGroup.
    """
    name = pods[0].foreign_group
    if name is None or name.system is not None or name.composite or pods[0].part:
        return []
    marks = marks_of(pods[0], seen.find)
    if not marks:
        return []
    group = read(name, seen.pod_group, owner_of=_owner_of(pods[0], cluster))
    waiting = [as_member(pod, group) for pod in pods if pod.is_gated and pod.stays]
    return [PatchPod(name=pod.name, body=_regroup(pod, marks)) for pod in waiting]


def _regroup(pod: SeenPod, marks: Mapping[str, str]) -> Json:
    """The patch that writes the marks, with what the pod has from its PodGroup: that is not read for it again."""
    queue = {key: pod.labels[key] for key in (names.QUEUE_NAME, names.PRIORITY_CLASS) if pod.labels.get(key)}
    return {"metadata": {**tied(pod), "annotations": dict(marks), "labels": queue}}


def _owner_of(pod: SeenPod, cluster: ClusterObjects) -> OwnerOf:
    namespace = text(pod.raw, "metadata", "namespace")
    return lambda reference: cluster.owner(namespace, reference)


def _of_pod_group(
    seen: SeenPods, pods: tuple[SeenPod, ...], cluster: ClusterObjects
) -> tuple[ForeignGroup | None, tuple[SeenPod, ...]]:
    """The PodGroup that the pods are in, and the pods as it completes them.

    A PodGroup that was deleted while its workload exists is read from the workload: its pods may still run, or wait for
    their end.
    """
    name, part = pods[0].foreign_group, pods[0].part
    if part and name is None:
        raise JobError(
            f"metadata.annotations[{ABOVE_MINIMUM_SUBGROUP}]: expected a pod of a PodGroup beside {shown(part)}"
        )
    if name is None:
        return None, tuple(beginning_together(sharing(pod, seen.find), seen.find) for pod in pods)
    minimum, gone = pods[-1].annotations.get(MIN_MEMBER, ""), seen.pod_group is None
    own = key_of(pods[0])[1]
    if gone and not minimum and seen.workload is not None and is_of_pods(seen.workload, pods):
        foreign = as_admitted(GroupName(name.system, own, composite=name.composite), seen.workload)
    else:
        foreign = read(name, seen.pod_group, minimum, _owner_of(pods[0], cluster))
        foreign = in_part(foreign, own, pods) if part else foreign
        if seen.workload is None or not seen.workload.is_reserved:
            foreign = whole(foreign, pods, seen.pod_group)
    return foreign, tuple(as_member(pod, foreign) for pod in pods)


@dataclass(frozen=True, kw_only=True)
class _Reconciliation:
    """One reconciliation. ``pods``: the managed ones, from the oldest on; at least one."""

    seen: SeenPods
    pods: tuple[SeenPod, ...]
    group: Group
    settings: JobSettings
    cluster: ClusterObjects

    @property
    def single(self) -> bool:
        return not self.group.name

    @cached_property
    def prebuilt(self) -> str:
        """The name of the workload that was created for the pods beforehand; empty if they get one of their own."""
        return "" if self.group.of_object else prebuilt_workload(self.pods[0].raw)

    @cached_property
    def counted(self) -> list[SeenPod]:
        """The pods that fill the group: they stay, or have succeeded and need no replacement.

        If a PodGroup has more pods than it asks for, ungated pods come first, then the oldest; once quota is reserved,
        as many of each role as the workload has.
        """
        filling = [pod for pod in self.pods if pod.stays or (pod.has_succeeded and not self.group.serving)]
        if self.group.declared:
            return filling
        filling.sort(key=lambda pod: (pod.is_gated, pod.age_key))
        workload = self.seen.workload
        if workload is None or not workload.is_reserved:
            return podgroup.filling(self.group, filling)
        left = compose.counts_of(workload.typed.spec.pod_sets)
        members = []
        for pod in filling:
            name = role_in(pod, single=False)
            if left.get(name, 0) > 0:
                left[name] -= 1
                members.append(pod)
        return members

    @cached_property
    def failed(self) -> list[SeenPod]:
        return [pod for pod in self.pods if pod.has_failed or (pod.has_succeeded and self.group.serving)]

    def next(self) -> list[PodAction]:
        workload = self.seen.workload
        if workload is not None and not is_of_pods(workload, self.pods):
            sentence = f"workload {workload.name} is there already, and is none of these pods: expected a free name"
            return [*finalizers_removed(self.pods), Refuse(reason="WorkloadNameConflict", sentence=sentence)]
        if workload is not None and (workload.is_finished or workload.is_terminating):
            return [*closing(workload, self.pods), *self._refused_late(workload)]
        if self.group.of_object and workload is None:
            return []  # it is made of the object
        mismatch = None if workload is None else self._mismatch(workload)
        if mismatch is not None:
            return mismatch
        outcome = self._outcome()
        if outcome is not None:
            finished = [] if workload is None else [finish(workload, *outcome)]
            return [*finished, *finalizers_removed(self.pods)]
        if workload is None:
            return self._without_workload()
        if workload.eviction is not None:
            fast = self.settings.gates.on("FastQuotaReleaseInPodIntegration")
            stopping = evicted(workload, self.pods, fast=fast)
            if stopping or workload.is_reserved or any(pod.may_run for pod in self.pods):
                return [*self._waiting(workload), *stopping, *self._spare_finalizers(workload)]
        return self._with_workload(workload)

    def _refused_late(self, workload: SeenWorkload) -> list[PodAction]:
        """The refusal of pods that were created after the group finished: its name is taken until the old pods are
        deleted.
        """
        late = [pod for pod in self.pods if pod.is_gated and pod.stays]
        if self.single or self.group.of_object or not late or not workload.is_finished:
            return []
        sentence = f"group {self.group.name} has finished: delete its pods before its name is used again"
        return [Refuse(reason="GroupFinished", sentence=sentence)]

    def _outcome(self) -> tuple[FinishReason, str] | None:
        """How the pods ended; None while they may go on."""
        if self.group.of_object:
            return None
        if any(pod.stays or pod.may_run for pod in self.pods):
            succeeded = sum(pod.has_succeeded for pod in self.pods)
            whole = not self.group.serving and succeeded >= self._total
            return ("Succeeded", f"{plural(succeeded, 'pod')} succeeded") if whole else None
        succeeded = sum(pod.has_succeeded for pod in self.pods)
        message = f"{succeeded} of {plural(self._total, 'pod')} succeeded"
        if self.single:
            return ("Succeeded", "The pod succeeded") if succeeded else ("Failed", _how_it_failed(self.pods[0]))
        if succeeded >= self._total and not self.group.serving:
            return "Succeeded", message
        if not all(pod.is_retriable for pod in self.pods):
            return "Failed", f"{message}; the group is not retriable"
        if self.seen.workload is not None and is_stale(self.seen.workload):
            return "Failed", f"{message}; it had run below its minimum for too long"
        # A pod that succeeded while the queue was deleting it needs no replacement: users may have deleted all others.
        evicted_pods = [pod for pod in self.pods if pod.is_deleted_by_queue]
        deleted = all(pod.is_terminating for pod in self.pods) and all(pod.has_succeeded for pod in evicted_pods)
        if self.seen.namespace_terminating or (deleted and len(evicted_pods) < len(self.pods) and not self._is_evicted):
            return "Failed", f"{message}; {reasons.ALL_PODS_DELETED}"
        return None

    @property
    def _is_evicted(self) -> bool:
        """Whether the workload is evicted and still holds quota: that its pods are gone is then the effect of the
        eviction.
        """
        workload = self.seen.workload
        return workload is not None and workload.eviction is not None and workload.is_reserved

    # -- without a workload

    def _without_workload(self) -> list[PodAction]:
        if self.prebuilt:
            why = words.no_prebuilt_workload(self.prebuilt)
            return [*deletions(self.pods, "NoMatchingWorkload", why), event("ErrWorkloadCompose", why, warning=True)]
        excess = self._excess(None)
        if excess:
            return excess
        over: list[PodAction] = [finalizer_removed(pod) for pod in self.failed if pod.has_finalizer]
        if not self.counted:
            return over
        sets = self._sets()
        if not sets:
            return [*over, event("WaitingForPods", podgroup.short(self.group, self.counted))]
        holding = [pod for pod in self.counted if pod.has_finalizer or pod.has_parent or pod.waits_with_its_job]
        if not holding:
            raise JobError("metadata.finalizers: the pod was created without the queue's finalizer; create it anew")
        body = podcompose.workload_body(self.group, holding, sets, self.settings, self.cluster)
        name = body["metadata"]["name"]
        return [*over, CreateWorkload(body=body), event("CreatedWorkload", words.created_workload(name))]

    def _sets(self) -> tuple[JobPodSet, ...]:
        return compose.gated(podgroup.pod_sets(self.group, self.counted, self.settings.tiers), self.settings.gates)

    # -- with one

    def _with_workload(self, workload: SeenWorkload) -> list[PodAction]:
        reserved = workload.is_reserved
        if not reserved:
            early = deletions(self.pods, "NotAdmitted", f"Workload {workload.name} is not admitted by a cluster queue")
            if early:
                return early
        excess = self._excess(workload if reserved else None)
        if excess:
            return excess
        actions = self._synchronized(workload)
        if any(isinstance(action, DeleteWorkload) for action in actions):
            return actions
        # The verdict comes before finalizers are removed: it is seen in pods that go with them, and its write may fail.
        actions += self._verdict(workload) + self._spare_finalizers(workload)
        actions += self._reclaimed(workload) + self._waiting(workload)
        ready = pods_ready(workload, self.settings, lambda: podgroup.all_ready(self.counted, self._needed(workload)))
        actions += [] if ready is None else [ready]
        return actions + self._started(workload) + self._above(workload)

    def _verdict(self, workload: SeenWorkload) -> list[PodAction]:
        """The action that tells what kube-scheduler makes of a gang in a PodGroup of Kubernetes' own."""
        foreign = self.group.foreign
        if foreign is None or foreign.system is not None:
            return []
        needed = self._needed(workload)
        return [*schedulerverdict.of_pods(workload, self.seen.pod_group, self.pods, self.counted, needed)]

    def _above(self, workload: SeenWorkload) -> list[PodAction]:
        """Actions that queue the pods beyond a PodGroup's minimum by themselves while the minimum runs."""
        if self.group.declared or not is_whole(workload):
            return []
        counted = {pod.uid for pod in self.counted}
        spare = [pod for pod in self.pods if pod.is_gated and pod.stays and pod.uid not in counted]
        if self.group.foreign is None or not spare:
            return []
        there = subgroups_of(workload) | {subgroup_of(pod) for pod in self.counted}
        parts = self.group.foreign.above((subgroup_of(pod) for pod in spare), there)
        return [marked(pod, workload, parts[subgroup_of(pod)]) for pod in spare]

    def _mismatch(self, workload: SeenWorkload) -> list[PodAction] | None:
        """Actions if the workload is not one for these pods; None if it is, or can be changed to be.

        A prebuilt workload is not changed for pods, nor is one that holds quota. Roles of the workload that no pod has
        are awaited.
        """
        if self.group.of_object:
            return None
        counts = compose.counts_of(workload.typed.spec.pod_sets)
        if self.prebuilt:
            sets = self._sets()
            if not sets or podcompose.asks_for(sets, workload):
                return None
        elif not workload.is_reserved or self._is_served_by(counts):
            return None
        why = words.not_of_these_pods(workload.name)
        stopping = deletions(self.pods, "NoMatchingWorkload", why)
        if self.prebuilt:
            return [*stopping, finish(workload, "OutOfSync", words.pods_other_than_prebuilt(workload.name))]
        if stopping or any(pod.may_run for pod in self.pods):
            return stopping
        return [*dropped(workload), event("DeletedWorkload", words.deleted_workload(workload.name))]

    def _is_served_by(self, counts: Mapping[str, int]) -> bool:
        if self.single:
            return counts == {MAIN: 1}
        return any(role_in(pod, single=False) in counts for pod in self.pods)

    @property
    def _total(self) -> int:
        """The number of pods that have to succeed: whole subgroups may have more than their group asks for."""
        workload = self.seen.workload
        if workload is None or self.group.declared or not workload.is_reserved:
            return self.group.total
        return max(self.group.total, sum(compose.counts_of(workload.typed.spec.pod_sets).values()))

    def _needed(self, workload: SeenWorkload) -> int:
        """The number of pods that the workload runs with: the admitted pods; before admission, the minimum."""
        admission = workload.typed.status.admission
        given = () if admission is None else admission.pod_set_assignments
        sets = {pod_set.name: pod_set for pod_set in workload.typed.spec.pod_sets}
        admitted = sum(admitted_pods(sets[one.name], one) for one in given if one.name in sets)
        return admitted or self.group.minimum

    def _excess(self, workload: SeenWorkload | None) -> list[PodAction]:
        if self.single or self.group.of_object or not self.group.declared:
            return []
        counts = None if workload is None else compose.counts_of(workload.typed.spec.pod_sets)
        found = podgroup.excess(self.group, self.counted, counts)
        why = words.excess_pod(self.group.name, self.group.total)
        return [DeletePod(name=pod.name, uid=pod.uid, reason="ExcessPodDeleted", message=why) for pod in found]

    def _synchronized(self, workload: SeenWorkload) -> list[PodAction]:
        if self.group.of_object:
            return []
        if self.prebuilt:
            patch = podcompose.owners_patch(self.group, self.pods, workload)
            return [update(workload, {"metadata": patch})] if patch else []
        moved = queue_name(self.pods[0].raw) != workload.typed.spec.queue_name
        if moved and workload.is_reserved and not any(pod.may_run for pod in self.pods):
            return dropped(workload)
        # An ungated pod's start has changed it: only gated pods tell what is requested, else the workload does.
        asks = not workload.is_reserved and any(pod.is_gated for pod in self.counted)
        sets = self._sets() if asks else ()
        spec = podcompose.spec_patch(self.pods[0], sets, workload, self.cluster)
        gone = {pod.uid for pod in self.pods if pod.is_terminating and pod.is_over}
        holding = [pod for pod in self.pods if pod.uid not in gone and (pod.has_finalizer or pod.has_parent)]
        metadata = (
            podcompose.metadata_patch(self.group, holding, workload, self.settings, self.counted) if holding else {}
        )
        if not spec and not metadata:
            return []
        return [update(workload, {"metadata": metadata, **({"spec": spec} if spec else {})})]

    def _spare_finalizers(self, workload: SeenWorkload) -> list[PodAction]:
        return [] if self.single else spare_finalizers(workload, self.pods, self.failed, self.counted)

    def _reclaimed(self, workload: SeenWorkload) -> list[PodAction]:
        on = self.settings.gates.on("ReclaimablePods")
        if not on or self.single or self.group.serving or not workload.is_reserved:
            return []
        had = {
            reclaimable_pod.name: reclaimable_pod.count for reclaimable_pod in workload.typed.status.reclaimable_pods
        }
        limits = compose.counts_of(workload.typed.spec.pod_sets)
        done = Counter(role_in(pod, single=False) for pod in self.pods if pod.has_succeeded)
        # The number never shrinks: quota that was given back may be used by another workload by now.
        grown = {name: min(max(done[name], had.get(name, 0)), limit) for name, limit in limits.items()}
        grown = {name: count for name, count in grown.items() if count}
        return [] if grown == had else [SetReclaimable(name=workload.name, uid=workload.uid, pods=grown)]

    def _waiting(self, workload: SeenWorkload) -> list[PodAction]:
        if self.single:
            return []
        failing = bool(self.failed) or not self.group.fast
        return waiting(workload, needed=self._needed(workload), there=len(self.counted), failing=failing)

    def _started(self, workload: SeenWorkload) -> list[PodAction]:
        status = workload.typed.status
        held = {pod.uid: pod for pod in self.counted if pod.is_gated}
        if not held or status.admission is None or not is_true(status.conditions, "Admitted"):
            return self._told(status)
        if self.seen.predecessor_runs:
            return [event("WaitsForPredecessor", words.waits_for_predecessor())]
        # A pod that is being deleted keeps its place until it has ended: no place is for two.
        leaving = [pod for pod in self.pods if pod.is_terminating and pod.may_run]
        minimum = self.group.minimum if self.group.minimum < self.group.total else None
        devices = self._devices(workload)
        try:
            off = kept_off_spot(self.settings, self.cluster, workload.typed)
            starts = infos_by_set(workload, self.cluster, self.settings.gates, off)
            found = places(
                workload, [*self.counted, *leaving], single=self.single, gang=not self.group.fast, minimum=minimum
            )
            patches = [self._ungated(held[place.uid], starts, place, devices) for place in found]
        except StartConflictError as conflict:
            return [*not_startable(workload.name, workload.uid, f"The pods cannot start: {conflict}")]
        except FlavorMissingError as missing:
            return [flavor_missing("The pods", missing)]
        except TopologyEncodingError as error:
            return [event("TopologyUnreadable", words.unreadable_topology(str(error)), warning=True)]
        if not patches:
            return []
        before = self._way()
        started = event("Started", words.started(status.admission.cluster_queue))
        start: list[PodAction] = [*patches, started] if before.is_free else []
        return [*before.actions, *start]

    def _way(self) -> Way:
        """What stands between the pods and their start, if they are of a PodGroup of Kubernetes' own."""
        entry = entry_of(self.pods[0])
        if not entry:
            return Way(is_free=True)
        counted = set() if self.single else {pod.uid for pod in self.counted}
        unmarked = [] if self.single else [pod for pod in self.pods if pod.is_gated and pod.stays]
        beyond = (pod for pod in unmarked if pod.uid not in counted)
        own = self.seen.workload if begins_with(self.pods[0]) else None
        return way(entry, beyond, self.seen.sisters, self._is_kept, own)

    def _is_kept(self, pod: SeenPod) -> bool:
        return is_kept(pod, self.seen.find(pod.native_group, False))

    def _told(self, status: WorkloadStatus) -> list[PodAction]:
        """Events that say why a serving pod waits, or a pod above a minimum: their users read pods, and not
        Workloads.
        """
        waits = find_condition(status.conditions, "QuotaReserved")
        of_others = self.pods[0].has_parent or self.pods[0].above_minimum_of or self._tells_for_sisters
        gated = self.single and of_others and any(pod.is_gated for pod in self.counted)
        if not gated or status.admission is not None or waits is None or waits.status != "False" or not waits.message:
            return []
        return [event("WaitsForQuota", waits.message)]

    @property
    def _tells_for_sisters(self) -> bool:
        """Whether the pod is the oldest of those that wait for quota together: one of them tells for all."""
        pod = self.pods[0]
        return bool(begins_with(pod)) and all(pod.age_key <= each.pod.age_key for each in self.seen.sisters)

    def _devices(self, workload: SeenWorkload) -> DeviceDealer:
        live = [pod for pod in self.pods if pod.may_run]
        carried = [(pod.node_selector.get(HOSTNAME_LABEL, ""), pod.annotations.get(DEVICES, "")) for pod in live]
        return DeviceDealer(self.cluster.device_plan, WorkloadKey(workload.typed.key), carried)

    def _ungated(
        self, pod: SeenPod, infos: Mapping[str, PodSetInfo], place: PodPlace, dealer: DeviceDealer
    ) -> PatchPod:
        name = role_in(pod, single=self.single)
        planned = dealer.take(name, place.node_selector.get(HOSTNAME_LABEL, ""))
        return PatchPod(name=pod.name, body=start_patch(pod, infos[name], place.node_selector, planned))


def _how_it_failed(pod: SeenPod) -> str:
    return "The pod was deleted" if pod.is_terminating and pod.phase != "Failed" else "The pod failed"
