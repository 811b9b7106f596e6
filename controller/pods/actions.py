"""Actions about pods, beside those of ``controller.jobframework.actions``, and the steps that end pods.

Actions are carried out in order until one fails; then the pods are reconciled again.
"""

from controller.jobframework.actions import EmitEvent, Refuse, WorkloadAction
from controller.jobframework.podsets import SeenWorkload
from controller.jobframework.podview import SeenPod
from controller.jobframework.raw import Json
from controller.jobframework.steps import finish_orphans, release_quota, remove_finalizers
from controller.objects.meta import Struct
from controller.pods.start import unfinalized


class PatchPod(Struct, frozen=True, kw_only=True):
    """``body`` is a merge patch (RFC 7386), conditional by the uid and resourceVersion in it."""

    name: str
    body: Json


class DeletePod(Struct, frozen=True, kw_only=True):
    """Set the condition TerminationTarget (``reason``, ``message``) on the pod's status, then delete it by its uid.

    In this order: the condition tells later that the queue deleted the pod, and not a user.
    """

    name: str
    uid: str
    reason: str
    message: str


PodAction = WorkloadAction | EmitEvent | PatchPod | DeletePod | Refuse


def is_of_pods(workload: SeenWorkload, pods: tuple[SeenPod, ...]) -> bool:
    """Whether the workload is one of pods, these or earlier ones: no other object controls it."""
    owners = workload.typed.metadata.owner_references
    uids = {pod.uid for pod in pods}
    return not any(owner.controller and owner.uid not in uids for owner in owners)


def orphaned(workload: SeenWorkload | None) -> list[PodAction]:
    """The pods are gone."""
    if workload is None or any(owner.kind != "Pod" for owner in workload.typed.metadata.owner_references):
        return []
    return [*finish_orphans([workload], "The pods do not exist any more")]


def closing(workload: SeenWorkload, pods: tuple[SeenPod, ...]) -> list[PodAction]:
    """The workload is finished or being deleted: pods end, then nothing of it holds anything."""
    actions: list[PodAction] = []
    if workload.is_terminating and not workload.is_finished:
        actions += deletions(pods, "WorkloadDeleted", f"Workload {workload.name} was deleted")
        if any(pod.may_run for pod in pods):
            return actions
    actions += finalizers_removed(pods)
    return [*actions, *remove_finalizers([workload])] if workload.is_terminating else actions


def evicted(workload: SeenWorkload, pods: tuple[SeenPod, ...], *, fast: bool) -> list[PodAction]:
    """Every pod without the queue's gate is deleted. The quota is free when none can run, or (``fast``) at once."""
    condition = workload.eviction
    if condition is None:
        return []
    reason = condition.reason
    actions = deletions(pods, f"WorkloadEvictedDueTo{reason}", condition.message or f"Evicted: {reason}")
    busy = any(pod.may_run and not (fast and pod.is_terminating) for pod in pods)
    return actions if busy or not workload.is_reserved else [*actions, release_quota(workload, condition)]


def deletions(pods: tuple[SeenPod, ...], reason: str, message: str) -> list[PodAction]:
    """Of those that may run."""
    return [
        DeletePod(name=pod.name, uid=pod.uid, reason=reason, message=message)
        for pod in pods
        if pod.may_run and not pod.is_terminating
    ]


def finalizers_removed(pods: tuple[SeenPod, ...]) -> list[PodAction]:
    """Of those that are over."""
    return [finalizer_removed(pod) for pod in pods if pod.is_over and pod.has_finalizer]


def finalizer_removed(pod: SeenPod) -> PatchPod:
    return PatchPod(name=pod.name, body=unfinalized(pod))
