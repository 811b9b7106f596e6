"""Actions about pods, beside those of ``controller.jobs.framework.actions``, and the steps that end pods.

Actions are carried out in order until one fails; then the pods are reconciled again.
"""

from typing import Final

from controller.jobs.framework.actions import AwaitOwner, EmitEvent, Refuse, WorkloadAction
from controller.jobs.framework.marks import prebuilt_mark
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import IS_GROUP_WORKLOAD, SeenPod
from controller.jobs.framework.raw import Json, sequence
from controller.jobs.framework.steps import delete, finish_orphans, release_quota, remove_finalizers
from controller.messages import jobs as words
from controller.objects.meta import Struct, find_condition
from controller.reconcile.pods.start import unfinalized
from controller.scheduler.decisions.reasons import WORKLOAD_SLICE_REPLACED
from controller.scheduler.model.gates import FeatureGates

_JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
_TRAINING_JOB: Final = "training.kubeflow.org/job-name"


class PatchPod(Struct, frozen=True, kw_only=True):
    """Patch a pod. ``body`` is a merge patch (RFC 7386), conditional by the uid and resourceVersion in it."""

    name: str
    body: Json


class DeletePod(Struct, frozen=True, kw_only=True):
    """Set the condition TerminationTarget (``reason``, ``message``) on the pod's status, then delete it by its uid.

    The condition is set first: it tells later that the queue deleted the pod, and not a user. ``uncounted``: the JSON
    patch (RFC 6902) between the two, see the function.
    """

    name: str
    uid: str
    reason: str
    message: str
    uncounted: tuple[Json, ...] = ()


PodAction = WorkloadAction | EmitEvent | PatchPod | DeletePod | AwaitOwner | Refuse


def is_of_pods(workload: SeenWorkload, pods: tuple[SeenPod, ...]) -> bool:
    """Whether the workload is one of pods, these or earlier ones: no other object controls it.

    The workload is marked as a group's, the pods name it as prebuilt, or pods alone own it. A workload that only has
    the name of a group may belong to any object.
    """
    meta = workload.typed.metadata
    owners, uids = meta.owner_references, {pod.uid for pod in pods}
    marked = meta.annotations.get(IS_GROUP_WORKLOAD) == "true"
    if any(owner.controller and owner.uid not in uids and not (marked and owner.kind == "Pod") for owner in owners):
        return False
    named = any(prebuilt_mark(pod.raw)[1] == workload.name for pod in pods)
    return marked or named or (bool(owners) and all(owner.kind == "Pod" for owner in owners))


def orphaned(workload: SeenWorkload | None, gates: FeatureGates) -> list[PodAction]:
    """Actions that finish a workload whose pods are gone."""
    owners = () if workload is None else workload.typed.metadata.owner_references
    if workload is None or not owners or any(owner.kind != "Pod" for owner in owners):
        return []
    return [*finish_orphans([workload], "The pods do not exist any more", gates)]


def dropped(workload: SeenWorkload) -> list[PodAction]:
    """Actions that delete a workload that does not match its pods, and remove its finalizer at once: a workload that is
    seen being deleted ends its pods.
    """
    return [*remove_finalizers([workload]), delete(workload)]


def closing(workload: SeenWorkload, pods: tuple[SeenPod, ...]) -> list[PodAction]:
    """Actions for a workload that is finished or being deleted: its pods end, then its finalizers are removed.

    A user who deletes a workload deletes its pods, waiting and ended ones among them; of a serving object, whose
    workloads come and go with its size, only running ones.
    """
    finished = find_condition(workload.typed.status.conditions, "Finished")
    if finished is not None and finished.reason == WORKLOAD_SLICE_REPLACED:
        return _replaced(workload, pods, finished.message)
    actions: list[PodAction] = []
    if workload.is_terminating and not workload.is_finished:
        why = words.workload_was_deleted(workload.name)
        leaving = [pod for pod in pods if pod.may_run or not pod.has_parent]
        actions += [deleted(pod, "WorkloadDeleted", why) for pod in leaving if not pod.is_terminating]
        if any(pod.may_run for pod in pods):
            return actions
    actions += finalizers_removed(pods)
    return [*actions, *remove_finalizers([workload])] if workload.is_terminating else actions


def _replaced(workload: SeenWorkload, pods: tuple[SeenPod, ...], message: str) -> list[PodAction]:
    """Actions that delete the pods of a workload whose quota another pod has taken over, gated pods too, as they would
    wait for ever.

    The workload stays until its pods have ended: the other pod knows by it whom it waits for.
    """
    left = [pod for pod in pods if not pod.is_over]
    actions: list[PodAction] = [
        DeletePod(name=pod.name, uid=pod.uid, reason="QuotaTakenOver", message=message)
        for pod in left
        if not pod.is_terminating
    ]
    if any(pod.may_run for pod in left):
        return actions
    actions += finalizers_removed(pods)
    return [*actions, *remove_finalizers([workload])] if workload.is_terminating else actions


def evicted(workload: SeenWorkload, pods: tuple[SeenPod, ...], *, fast: bool) -> list[PodAction]:
    """Actions that delete every pod without the queue's gate. The quota is released when none can run, or (``fast``) at
    once.
    """
    condition = workload.eviction
    if condition is None:
        return []
    reason = condition.reason
    actions = deletions(pods, f"WorkloadEvictedDueTo{reason}", condition.message or f"Evicted: {reason}")
    busy = any(holds_quota(pod, fast=fast) for pod in pods)
    return actions if busy or not workload.is_reserved else [*actions, release_quota(workload, condition)]


def holds_quota(pod: SeenPod, *, fast: bool) -> bool:
    """Whether the pod keeps the quota of an evicted workload. ``fast``: the gate FastQuotaReleaseInPodIntegration."""
    return pod.may_run and not (fast and pod.is_terminating)


def deletions(pods: tuple[SeenPod, ...], reason: str, message: str) -> list[PodAction]:
    """Deletions of the pods that may run."""
    return [deleted(pod, reason, message) for pod in pods if pod.may_run and not pod.is_terminating]


def deleted(pod: SeenPod, reason: str, message: str) -> DeletePod:
    """The deletion of a pod. A pod above the minimum of a job is taken out of the job's count first."""
    return DeletePod(name=pod.name, uid=pod.uid, reason=reason, message=message, uncounted=uncounted(pod))


def uncounted(pod: SeenPod) -> tuple[Json, ...]:
    """The patch by which a pod above the minimum of a job stops being the job's: it may be deleted at any time.

    Without it the job's controller would count the deletion as a failure. The Job controller itself takes its finalizer
    off before it deletes a pod of a suspended Job; the training operator finds its pods by their label.
    """
    if not pod.above_minimum_of:
        return ()
    listed = sequence(pod.raw, "metadata", "finalizers")
    operations: list[Json] = []
    if _JOB_TRACKING in listed:
        kept = [finalizer for finalizer in listed if finalizer != _JOB_TRACKING]
        operations += [
            {"op": "test", "path": "/metadata/finalizers", "value": listed},
            {"op": "replace", "path": "/metadata/finalizers", "value": kept},
        ]
    if _TRAINING_JOB in pod.labels:
        operations.append({"op": "remove", "path": f"/metadata/labels/{_TRAINING_JOB.replace('/', '~1')}"})
    return ({"op": "test", "path": "/metadata/uid", "value": pod.uid}, *operations) if operations else ()


def finalizers_removed(pods: tuple[SeenPod, ...]) -> list[PodAction]:
    """Patches that remove the finalizer of pods that have ended."""
    return [finalizer_removed(pod) for pod in pods if pod.is_over and pod.has_finalizer]


def finalizer_removed(pod: SeenPod) -> PatchPod:
    return PatchPod(name=pod.name, body=unfinalized(pod))
