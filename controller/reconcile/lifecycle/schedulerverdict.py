"""What kube-scheduler says of the PodGroup of an admitted gang, as a condition of its Workload. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

from controller.jobs.framework.actions import SetGangScheduled, WorkloadAction
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import SeenPod
from controller.jobs.framework.raw import Json, condition
from controller.messages import statuses
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import epoch_s, find_condition
from controller.objects.nativegroups import NativeGroup
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.gangverdict import gang_verdict

INITIALLY_SCHEDULED: Final = "PodGroupInitiallyScheduled"
TREE_INITIALLY_SCHEDULED: Final = "CompositePodGroupInitiallyScheduled"
DISRUPTION_TARGET: Final = "DisruptionTarget"
_BY_SCHEDULER: Final = "PreemptionByScheduler"
_MADE: Final = "PodGroupMade"
_SCHEDULED: Final = "Scheduled"
_UNSCHEDULABLE: Final = "Unschedulable"
_SCHEDULER_ERROR: Final = "SchedulerError"
_Status = Literal["True", "False", "Unknown"]


def verdict(workload: SeenWorkload, group: NativeGroup) -> list[WorkloadAction]:
    """The action that tells what kube-scheduler says of the group; a good verdict only after a bad one, and that the
    group is there after the API server refused it. A group that
    was there before the admission may have been preempted before it.
    """
    known = gang_verdict(workload.typed)
    scheduled = find_condition(group.status.conditions, INITIALLY_SCHEDULED) or find_condition(
        group.status.conditions, TREE_INITIALLY_SCHEDULED
    )
    status: _Status = "False"
    taken, admitted = (
        find_condition(group.status.conditions, DISRUPTION_TARGET),
        find_condition(workload.typed.status.conditions, reasons.ADMITTED),
    )
    since_s = 0.0 if admitted is None else epoch_s(admitted.last_transition_time)
    if taken is not None and taken.status == "True" and epoch_s(taken.last_transition_time) >= since_s:
        reason, message = reasons.PREEMPTED_BY_SCHEDULER, statuses.gang_preempted_by_scheduler()
    elif scheduled is not None and scheduled.status == "False":
        reason = _SCHEDULER_ERROR if scheduled.reason == _SCHEDULER_ERROR else _UNSCHEDULABLE
        message = statuses.gang_not_scheduled(" ".join(scheduled.message.split()))
    elif scheduled is not None and scheduled.status == "True" and known is not None:
        status, reason, message = "True", _SCHEDULED, statuses.gang_scheduled()
    elif known is not None and known.reason == reasons.POD_GROUP_NOT_MADE:
        status, reason, message = "Unknown", _MADE, statuses.gang_has_group()
    else:
        return []
    return _told(workload, status, reason, message)


def _told(workload: SeenWorkload, status: _Status, reason: str, message: str) -> list[WorkloadAction]:
    told = gang_verdict(workload.typed)
    if told is not None and (told.status, told.reason) == (status, reason):
        return []  # kube-scheduler counts nodes anew with each try: only the first count is told
    return [SetGangScheduled(name=workload.name, uid=workload.uid, status=status, reason=reason, message=message)]


def of_pods(
    workload: SeenWorkload, given: Json | None, pods: Iterable[SeenPod], counted: Sequence[SeenPod], needed: int
) -> list[WorkloadAction]:
    """The verdict on a gang of plain pods in a PodGroup of their user's. ``counted``: those of ``pods`` that fill the
    gang, ``needed`` are to be.

    A gang of which kube-scheduler has preempted some is evicted, whatever the group's disruption mode. The group stays
    from one start to the next: its verdict counts while none of the pods has a node.
    """
    if not workload.is_admitted or workload.eviction is not None:
        return []
    if len(counted) < needed and any(_was_preempted(pod, workload) for pod in pods):
        return _told(workload, "False", reasons.PREEMPTED_BY_SCHEDULER, statuses.gang_preempted_by_scheduler())
    if any(pod.node_name for pod in counted):
        bad = gang_verdict(workload.typed)
        if bad is None or bad.reason == reasons.PREEMPTED_BY_SCHEDULER:
            return []
        return _told(workload, "True", _SCHEDULED, statuses.gang_scheduled())
    if given is None or any(pod.is_gated for pod in counted):
        return []
    try:
        group = decode({key: given[key] for key in ("metadata", "spec", "status") if key in given}, NativeGroup)
    except DecodeError:
        return []
    return verdict(workload, group)


def halved(workload: SeenWorkload, pods: int) -> list[WorkloadAction]:
    """The verdict on a gang of which so many pods have no node any more while others run."""
    return _told(workload, "False", reasons.PREEMPTED_BY_SCHEDULER, statuses.gang_halved(pods))


def admitted_s(workload: SeenWorkload) -> float:
    """The second since 1970 of the admission; 0 for a workload that is not admitted."""
    admitted = find_condition(workload.typed.status.conditions, reasons.ADMITTED)
    return 0.0 if admitted is None else epoch_s(admitted.last_transition_time)


def was_preempted(pod: Json, since_s: float) -> bool:
    """Whether kube-scheduler has taken the pod's node, at ``since_s`` or later."""
    said = condition(pod, DISRUPTION_TARGET)
    return said.get("status") == "True" and said.get("reason") == _BY_SCHEDULER and _at_s(said) >= since_s


def _was_preempted(pod: SeenPod, workload: SeenWorkload) -> bool:
    """Whether kube-scheduler has taken the pod's node, and the pod is of the present admission: those of earlier ones
    were deleted by the queue.
    """
    taken = was_preempted(pod.raw, admitted_s(workload))
    return taken and not pod.stays and not pod.is_deleted_by_queue


def _at_s(said: Json) -> float:
    try:
        return datetime.fromisoformat(str(said.get("lastTransitionTime", ""))).timestamp()
    except (ValueError, OverflowError):
        return 0.0
