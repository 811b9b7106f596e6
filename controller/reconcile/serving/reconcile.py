"""The reconciler of serving objects: it turns an object, its Workloads and its pods into actions. Pure.

Each group of pods has a Workload, made of the object. Pods join it as they come; ``controller.pods`` decides when they
start and stop, as for all other groups of pods. This module decides besides what no pod is left to tell: the quota of a
group without pods, and the end of its Workload.

Quota is given back when no pod of the group can run any more, and not before: a group that is scaled away keeps its
Workload until its pods have ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.jobs.framework import compose as jobcompose
from controller.jobs.framework import names
from controller.jobs.framework.actions import CreateWorkload
from controller.jobs.framework.marks import NestingTooDeepError, is_managed, managed_ancestor, queue_name
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import JobError, Json, labels, text
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.jobs.framework.steps import (
    delete,
    event,
    finish_orphans,
    hold,
    refuse,
    release_quota,
    remove_finalizers,
    update,
)
from controller.jobs.serving.kind import ServingGroup, ServingKind
from controller.messages import jobs as words
from controller.objects.meta import find_condition
from controller.reconcile.pods.actions import PatchPod, PodAction
from controller.reconcile.serving import compose
from controller.reconcile.serving.adoption import adoption, queue_patch

_ON_HOLD = "OnHold"


@dataclass(frozen=True, kw_only=True)
class SeenServing:
    """A serving object with what belongs to it. ``owner`` is None once the object is gone. ``workloads`` name it as an
    owner, or have the name of one of its groups; ``pods`` carry its kind's mark, in groups already or not.
    """

    kind: ServingKind
    owner: Json | None
    workloads: tuple[SeenWorkload, ...] = ()
    pods: tuple[SeenPod, ...] = ()
    namespace_labels: Mapping[str, str] = field(default_factory=dict)


def reconcile_serving(seen: SeenServing, settings: JobSettings, cluster: ClusterObjects) -> tuple[PodAction, ...]:
    """The actions of the next step, in order; empty when nothing is to be done, or not before something changes."""
    owner = seen.owner
    if owner is None:
        return tuple(_left_behind(seen, settings))
    try:
        if text(owner, "metadata", "deletionTimestamp") or seen.kind.is_anothers(owner):
            return tuple(_ended(seen, seen.workloads))
        if not is_managed(owner, seen.namespace_labels, settings):
            return ()
        if managed_ancestor(owner, settings, cluster) is not None:
            return ()
        return tuple(_Reconciliation(seen=seen, owner=owner, settings=settings, cluster=cluster).next())
    except (JobError, NestingTooDeepError) as error:
        return (refuse(error),)


def _left_behind(seen: SeenServing, settings: JobSettings) -> list[PodAction]:
    """Actions once the object is gone: its Workloads are deleted as soon as none of their pods can run."""
    idle = [workload for workload in seen.workloads if not _running(seen, workload)]
    return [*finish_orphans(idle, "The object that the pods belonged to does not exist any more", settings.gates)]


def _ended(seen: SeenServing, workloads: tuple[SeenWorkload, ...]) -> list[PodAction]:
    """Actions that remove the finalizers of Workloads that are being deleted and have no running pods."""
    idle = [workload for workload in workloads if workload.is_terminating and not _running(seen, workload)]
    return [*remove_finalizers(idle)]


def _running(seen: SeenServing, workload: SeenWorkload) -> bool:
    return any(pod.may_run and pod.group == workload.name for pod in seen.pods)


@dataclass(frozen=True, kw_only=True)
class _Reconciliation:
    seen: SeenServing
    owner: Json
    settings: JobSettings
    cluster: ClusterObjects

    def next(self) -> list[PodAction]:
        groups = {self._name(group.name): group for group in self.seen.kind.groups(self.owner)}
        actions: list[PodAction] = []
        for name, group in groups.items():
            workload = next((each for each in self.seen.workloads if each.name == name), None)
            try:
                actions += self._created(group) if workload is None else self._kept(group, workload)
            except JobError as error:  # its pods join all the same, and the other groups go on
                actions.append(refuse(error))
        for workload in self.seen.workloads:
            if workload.name not in groups:
                actions += self._spare(workload)
        return [*actions, *self._adopted(groups)]

    def _name(self, group: str) -> str:
        """The name of the group's Workload; that of an older version, made without the object's uid, if it exists."""
        name = compose.workload_name(self.seen.kind, self.owner, group, self.settings)
        older = names.workload_name(self.seen.kind.kind, self.seen.kind.group, group, "")
        there = {workload.name for workload in self.seen.workloads}
        return older if older in there and name not in there else name

    def _created(self, group: ServingGroup) -> list[PodAction]:
        if names.MULTIKUEUE_ORIGIN in labels(self.owner):
            return []  # the cluster that sent it sends its Workloads too
        body = compose.workload_body(self.seen.kind, self.owner, group, self.settings, self.cluster)
        return [CreateWorkload(body=body), event("CreatedWorkload", words.created_workload(body["metadata"]["name"]))]

    def _kept(self, group: ServingGroup, workload: SeenWorkload) -> list[PodAction]:
        if workload.is_terminating:
            return _ended(self.seen, (workload,))
        if workload.is_finished:
            return [] if compose.asks_for(group, workload) else [delete(workload)]
        if not compose.asks_for(group, workload) and workload.is_reserved:
            return [delete(workload)]  # its pods stop, and it is made anew
        return [*self._synchronized(group, workload), *self._released(workload), *self._off_hold(workload)]

    def _synchronized(self, group: ServingGroup, workload: SeenWorkload) -> list[PodAction]:
        spec = jobcompose.mark_patch(self.owner, workload, self.cluster)
        if self._moves(workload):
            spec["queueName"] = queue_name(self.owner)
        if not compose.asks_for(group, workload):
            spec["podSets"] = [each.as_json() for each in compose.pod_sets(group, self.settings)]
        metadata = compose.metadata_patch(self.seen.kind, self.owner, group, workload, self.settings)
        if not spec and not metadata:
            return []
        actions: list[PodAction] = [update(workload, {"metadata": metadata, **({"spec": spec} if spec else {})})]
        if names.ADMISSION_GATED_BY in metadata.get("annotations", {}):
            gates = metadata["annotations"][names.ADMISSION_GATED_BY] or "nothing"
            actions.append(event("UpdatedWorkload", words.admission_gated_now(gates)))
        return actions

    def _moves(self, workload: SeenWorkload) -> bool:
        """Whether the workload is to be charged to another queue: with its pods gone, or none of them running yet."""
        queue = queue_name(self.owner)
        return bool(queue) and queue != workload.typed.spec.queue_name and not _running(self.seen, workload)

    def _released(self, workload: SeenWorkload) -> list[PodAction]:
        """Actions that release the quota of an evicted group without pods. If there are pods, they tell when it is
        free.
        """
        if workload.eviction is None or not workload.is_reserved or self._pods_of(workload):
            return []
        return [release_quota(workload, workload.eviction)]

    def _off_hold(self, workload: SeenWorkload) -> list[PodAction]:
        return [hold(workload, "It has pods again and waits for quota", on=False)] if is_on_hold(workload) else []

    def _spare(self, workload: SeenWorkload) -> list[PodAction]:
        """Actions for the Workload of a group that the object does not have now."""
        idle = not _running(self.seen, workload)
        if workload.is_terminating:
            return _ended(self.seen, (workload,))
        if self.seen.kind.keeps_workload(self.owner):
            return self._on_hold(workload) if idle else []
        return [delete(workload), *(remove_finalizers([workload]) if idle else [])]

    def _on_hold(self, workload: SeenWorkload) -> list[PodAction]:
        if find_condition(workload.typed.status.conditions, "QuotaReserved") is None:
            return []  # it was not considered yet
        if workload.is_finished or not workload.typed.spec.active or is_on_hold(workload):
            return []
        return [hold(workload, "It is scaled to zero", on=True)]

    # -- pods

    def _pods_of(self, workload: SeenWorkload) -> list[SeenPod]:
        return [pod for pod in self.seen.pods if pod.group == workload.name]

    def _adopted(self, groups: Mapping[str, ServingGroup]) -> list[PodAction]:
        actions: list[PodAction] = []
        for pod in self.seen.pods:
            if pod.is_over or pod.is_terminating:
                continue
            try:
                patch = self._joined(groups, pod)
            except JobError as error:
                actions.append(refuse(error))
                continue
            if patch is not None:
                actions.append(PatchPod(name=pod.name, body=patch))
        return actions

    def _joined(self, groups: Mapping[str, ServingGroup], pod: SeenPod) -> Json | None:
        """The merge patch that the pod needs; None for nothing."""
        name = self._name(self.seen.kind.group_name(self.owner, pod.raw))
        group = groups.get(name)
        if pod.group:
            follows = pod.is_gated or self.seen.kind.running_pods_follow_queue
            return queue_patch(self.owner, pod) if pod.group == name and follows else None
        if pod.is_managed or group is None:
            return None
        return adoption(self.seen.kind, self.owner, group, pod, workload=name, gates=self.settings.gates)


def is_on_hold(workload: SeenWorkload) -> bool:
    """Whether the workload waits without quota until it has pods again."""
    conditions = (find_condition(workload.typed.status.conditions, type_) for type_ in ("Requeued", "QuotaReserved"))
    return any(found is not None and found.status == "False" and found.reason == _ON_HOLD for found in conditions)
