"""The order of sibling queues: whose next job is tried first and, in reverse, whose job is preempted first. Source: the
queue order of KAI Scheduler's proportion plugin; the first difference decides.
"""

import math

from controller.scheduler.kai.proportion.queues import Amounts, QueueShare, added, dominant, subtracted, within

OrderKey = tuple[bool, bool, int, bool, float, float, float, float, str]
"""The sort key of a queue: smaller keys come first."""

_NONE: Amounts = {}


def order_key(
    queue: QueueShare,
    total: Amounts,
    *,
    next_job: Amounts = _NONE,
    victims: Amounts = _NONE,
    priority: int = 0,
    created: float = 0.0,
    uid: str = "",
) -> OrderKey:
    """The key by which siblings are sorted. ``next_job`` is what the first pending job of the queue needs, ``victims``
    what the current search has already taken from the queue, ``total`` what the whole cluster has.
    """
    has = subtracted(queue.allocated, victims)
    then = added(has, next_job)
    over_share = all(has.get(resource, 0.0) > share for resource, share in queue.fair_share.items())
    uses_without_share = any(amount > 0.0 and queue.allocatable(resource) == 0.0 for resource, amount in then.items())
    shares = ((queue.allocatable(resource), amount) for resource, amount in total.items())
    parts = [share / amount for share, amount in shares if amount > 0.0 and not math.isinf(share)]
    return (
        over_share,
        not within(then, queue.quota),
        -priority,
        uses_without_share,
        dominant(then, queue, total),
        dominant(has, queue, total),
        max(parts, default=0.0),
        created,
        uid,
    )
