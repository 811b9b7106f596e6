"""Whether a job may be allocated at all: limits for every job, quotas for those that are never preempted.

Source: the capacity policy of KAI Scheduler's proportion plugin. Both are checked in the queue and in all above it. A
job that cannot be preempted must stay within quota, so that a guarantee is never given twice; a preemptible one may go
beyond it, up to the limit.
"""

from collections.abc import Sequence
from enum import StrEnum

from controller.scheduler.kai.proportion.queues import Amounts, QueueShare, added, within


class OverReason(StrEnum):
    """Reasons of a PodGroup's condition, as KAI writes them."""

    OVER_LIMIT = "OverLimit"
    NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"


def over(queues: Sequence[QueueShare], need: Amounts, *, preemptible: bool) -> tuple[OverReason, QueueShare] | None:
    """Why ``need`` may not be allocated in the queues, a path of a tree, and in which of them; None where it may.
    Resources that ``need`` does not name are not looked at: a queue that is over in memory may start a job without
    memory.
    """
    for queue in queues:
        if not within(added_to(need, queue.allocated), queue.limit):
            return OverReason.OVER_LIMIT, queue
    for queue in queues if not preemptible else ():
        if not within(added_to(need, queue.non_preemptible), queue.quota):
            return OverReason.NON_PREEMPTIBLE_OVER_QUOTA, queue
    return None


def added_to(need: Amounts, allocated: Amounts) -> Amounts:
    """What would be allocated of the resources for which ``need`` has an amount."""
    after = added(allocated, need)
    return {resource: after[resource] for resource, amount in need.items() if amount > 0.0}
