"""Steps that jobs and plain pods share: actions about a workload, built from the state of it that was seen."""

from collections.abc import Iterable
from typing import Any, Final

from controller.jobs.framework.actions import (
    DeleteWorkload,
    EmitEvent,
    FinishReason,
    FinishWorkload,
    HoldWorkload,
    Refuse,
    ReleaseQuota,
    RemoveFinalizer,
    UpdateWorkload,
)
from controller.jobs.framework.marks import NestingTooDeepError
from controller.jobs.framework.podsets import FlavorMissingError, SeenWorkload
from controller.jobs.framework.raw import JobError, PriorityClassMissingError
from controller.objects.meta import Condition
from controller.scheduler.decisions.reasons import BELOW_MINIMUM, QUOTA_TAKEN, STALE_GANG
from controller.scheduler.model.gates import FeatureGates

_REQUEUED_AT_ONCE: Final = ("Preempted", "NodeFailures", BELOW_MINIMUM, STALE_GANG, QUOTA_TAKEN)
"""Reasons of evictions after which a workload is queued again without a delay."""


def event(reason: str, message: str, *, warning: bool = False) -> EmitEvent:
    return EmitEvent(type="Warning" if warning else "Normal", reason=reason, message=message)


def finish(workload: SeenWorkload, reason: FinishReason, message: str) -> FinishWorkload:
    return FinishWorkload(name=workload.name, uid=workload.uid, reason=reason, message=message)


def delete(workload: SeenWorkload) -> DeleteWorkload:
    return DeleteWorkload(name=workload.name, uid=workload.uid)


def update(workload: SeenWorkload, patch: dict[str, Any]) -> UpdateWorkload:
    """The update with ``patch``, which applies only to the workload as it was seen."""
    version = workload.typed.metadata.resource_version
    metadata = {**patch.get("metadata", {}), "uid": workload.uid, "resourceVersion": version}
    return UpdateWorkload(name=workload.name, patch={**patch, "metadata": metadata})


def remove_finalizers(workloads: Iterable[SeenWorkload]) -> list[RemoveFinalizer]:
    """Actions that remove the finalizer of each workload that has one."""
    return [RemoveFinalizer(name=workload.name, uid=workload.uid) for workload in workloads if workload.has_finalizer]


def finish_orphans(
    workloads: Iterable[SeenWorkload], message: str, gates: FeatureGates
) -> list[FinishWorkload | RemoveFinalizer]:
    """Actions that finish workloads whose job or pods are gone: they hold quota for nothing. With the gate
    FinishOrphanedWorkloads off only their finalizers are removed, and the garbage collector deletes them.
    """
    if not gates.on("FinishOrphanedWorkloads"):
        return [*remove_finalizers(workloads)]
    actions: list[FinishWorkload | RemoveFinalizer] = []
    for workload in workloads:
        if not workload.is_finished:
            actions.append(finish(workload, "OwnerNotFound", message))
        actions += remove_finalizers([workload])
    return actions


def release_quota(workload: SeenWorkload, evicted: Condition) -> ReleaseQuota:
    """The action that releases the quota of a workload that was evicted and whose pods are gone."""
    return ReleaseQuota(
        name=workload.name,
        uid=workload.uid,
        reason=evicted.reason,
        message=evicted.message,
        requeue=evicted.reason in _REQUEUED_AT_ONCE,
    )


def hold(workload: SeenWorkload, message: str, *, on: bool) -> HoldWorkload:
    return HoldWorkload(name=workload.name, uid=workload.uid, on=on, message=message)


def not_startable(name: str, uid: str, sentence: str) -> list[FinishWorkload | EmitEvent]:
    """Actions about a workload with which no start can ever succeed."""
    finished = FinishWorkload(name=name, uid=uid, reason="FailedToStart", message=sentence)
    return [finished, event("FailedToStart", sentence, warning=True)]


def flavor_missing(what: str, missing: FlavorMissingError) -> EmitEvent:
    return event("FlavorNotFound", f"{what} cannot start: {missing}", warning=True)


def refuse(error: JobError | NestingTooDeepError) -> Refuse:
    """The refusal under Kueue's reason for the error."""
    reason = "ErrWorkloadCompose"
    if isinstance(error, PriorityClassMissingError):
        reason = "WorkloadPriorityClassNotFound"
    elif isinstance(error, NestingTooDeepError):
        reason = "JobNestingTooDeep"
    return Refuse(reason=reason, sentence=" ".join(str(error).split()))
