"""The condition of an admitted workload that says what kube-scheduler makes of its gang: see ``GANG_SCHEDULED``."""

from collections.abc import Iterator
from typing import Final

import msgspec

from controller.objects.meta import Condition, epoch_s, find_condition, is_true, with_condition
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.status import MESSAGE_LIMIT, moment
from inventory.api.names import GANG_SCHEDULED

PATIENCE_S: Final = 60.0
"""The time for which kube-scheduler may start none of a gang whose nodes were chosen for it: where it preempts for the
gang itself, the usual grace period of its victims is half of that."""


def gang_verdict(workload: Workload) -> Condition | None:
    """The condition, if it is of the workload's present admission."""
    conditions = workload.status.conditions
    admitted, told = find_condition(conditions, reasons.ADMITTED), find_condition(conditions, GANG_SCHEDULED)
    if told is None or admitted is None or admitted.status != "True":
        return None
    return None if epoch_s(told.last_transition_time) < epoch_s(admitted.last_transition_time) else told


def with_gang_verdict(workload: Workload, status: str, reason: str, message: str, now_s: float) -> Workload:
    """The workload with the condition. Its transition time is that of the present admission's verdict."""
    conditions = workload.status.conditions
    if gang_verdict(workload) is None:
        conditions = tuple(each for each in conditions if each.type != GANG_SCHEDULED)
    condition = Condition(
        type=GANG_SCHEDULED,
        status=status,
        reason=reason,
        message=message[:MESSAGE_LIMIT],
        last_transition_time=moment(now_s),
        observed_generation=workload.metadata.generation,
    )
    after = msgspec.structs.replace(workload.status, conditions=with_condition(conditions, condition))
    return msgspec.structs.replace(workload, status=after)


def verdict_deadlines(workload: Workload) -> Iterator[float]:
    """The time at which the workload is evicted for the verdict, in seconds since 1970.

    At once if kube-scheduler has preempted its pods. One whose PodGroup is refused starts nothing, and no node
    helps. A gang whose nodes were not chosen here may wait for nodes that an
    autoscaler adds: it has no such time.
    """
    verdict = gang_verdict(workload)
    if verdict is None or verdict.status != "False" or is_true(workload.status.conditions, reasons.EVICTED):
        return
    admission = workload.status.admission
    placed = admission is not None and any(each.topology_assignment for each in admission.pod_set_assignments)
    if verdict.reason == reasons.PREEMPTED_BY_SCHEDULER:
        yield epoch_s(verdict.last_transition_time)
    elif placed or verdict.reason == reasons.POD_GROUP_NOT_MADE:
        yield epoch_s(verdict.last_transition_time) + PATIENCE_S
