"""The status of a Workload after an eviction; see ``controller.scheduler.decisions.status`` for other changes."""

from typing import Final

import msgspec

from controller.messages import statuses
from controller.objects.meta import Condition, find_condition, with_condition
from controller.objects.workload import AdmissionCheckState, EvictionCount, SchedulingStats, Workload
from controller.scheduler.cluster.incoming import PreemptionReason
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.status import MESSAGE_LIMIT, moment
from inventory.api.names import MOVED

_DEACTIVATED_DUE_TO: Final = "DeactivatedDueTo"
_PODS_READY_TIMEOUT: Final = "PodsReadyTimeout"
_WAIT_FOR_START: Final = "WaitForStart"
_WAIT_FOR_RECOVERY: Final = "WaitForRecovery"


def evicted(
    workload: Workload, reason: str, message: str, *, now_s: float, preemption: PreemptionReason | None = None
) -> Workload:
    """The workload is evicted: it keeps its quota until its job has stopped.

    Its admission checks start over, nominations end, and the eviction is counted. ``preemption``: the rule by which it
    gives way to another workload; the condition Preempted has it as its reason.
    """
    status = workload.status
    conditions = with_condition(status.conditions, _true(workload, reasons.EVICTED, reason, message, now_s))
    if preemption is not None:
        conditions = with_condition(conditions, _true(workload, reasons.PREEMPTED, preemption.value, message, now_s))
    if preemption is PreemptionReason.CONSOLIDATION:
        # The condition stays True from the first move on; its transition time is that of the last move.
        others = tuple(condition for condition in conditions if condition.type != MOVED)
        conditions = (*others, _true(workload, MOVED, preemption.value, message, now_s))
    after = msgspec.structs.replace(
        status,
        conditions=conditions,
        admission_checks=tuple(restarted(state, now_s) for state in status.admission_checks),
        scheduling_stats=_counted(status.scheduling_stats, *cause_of(workload, reason)),
        nominated_cluster_names=(),
        cluster_name=None,
        unhealthy_nodes=(),
    )
    return msgspec.structs.replace(workload, status=after)


def deactivation_target(workload: Workload, reason: str, message: str, now_s: float) -> Workload:
    """The workload with the condition that it becomes inactive next, for this reason."""
    marked = _true(workload, reasons.DEACTIVATION_TARGET, reason, message, now_s)
    conditions = with_condition(workload.status.conditions, marked)
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, conditions=conditions))


def _true(of: Workload, type_: str, reason: str, message: str, now_s: float) -> Condition:
    return Condition(
        type=type_,
        status="True",
        reason=reason,
        message=message[:MESSAGE_LIMIT],
        last_transition_time=moment(now_s),
        observed_generation=of.metadata.generation,
    )


def restarted(state: AdmissionCheckState, now_s: float) -> AdmissionCheckState:
    """The check's state, asked again. Its number of retries is kept. A check that is Pending stays as it is."""
    if state.state == "Pending":
        return state
    return AdmissionCheckState(
        name=state.name,
        state="Pending",
        message=statuses.check_starts_over(),
        last_transition_time=moment(now_s),
        retry_count=state.retry_count,
    )


def cause_of(workload: Workload, reason: str) -> tuple[str, str]:
    """The reason of an eviction without its cause, and the cause: why a workload was deactivated, or what its pods
    failed to do in time. ``workload`` is as it was before the eviction.
    """
    if reason.startswith(_DEACTIVATED_DUE_TO):
        return "Deactivated", reason.removeprefix(_DEACTIVATED_DUE_TO)
    if reason == _PODS_READY_TIMEOUT:
        ready = find_condition(workload.status.conditions, reasons.PODS_READY)
        return (
            reason,
            _WAIT_FOR_RECOVERY if ready is not None and ready.reason == _WAIT_FOR_RECOVERY else _WAIT_FOR_START,
        )
    return reason, ""


def _counted(stats: SchedulingStats | None, reason: str, cause: str) -> SchedulingStats:
    """The statistics with one more eviction for this reason and cause."""
    known = stats.evictions if stats is not None else ()
    if not any((count.reason, count.underlying_cause) == (reason, cause) for count in known):
        known = (*known, EvictionCount(reason=reason, underlying_cause=cause))
    return SchedulingStats(
        evictions=tuple(
            msgspec.structs.replace(count, count=count.count + 1)
            if (count.reason, count.underlying_cause) == (reason, cause)
            else count
            for count in known
        )
    )
