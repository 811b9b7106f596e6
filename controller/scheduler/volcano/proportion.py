"""Volcano's two rules of fairness: the proportion plugin's, by weight, and the capacity plugin's, by ``deserved``.

proportion: the total is divided among the queues that have jobs, round by round, by weight; no queue gets more than its
requests or its capability, nor less than its guarantee. A job starts where its queue stays within its part, and takes
from queues that are above theirs.

capacity: each queue deserves what its object says. A job starts where its queue and all above stay within their
capability. It takes from others where its queue stays within ``deserved`` for some resource that the job requests. A
queue is a victim while it has more than it deserves of such a resource; its guarantee is never taken. A queue without
``deserved`` runs on what others leave.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts, QueueShare
from controller.scheduler.model.resources import ResourceName


@dataclass(frozen=True)
class VolcanoQueueRequest:
    """What one queue requests of one resource. ``limit`` bounds it; the guarantee belongs to the queue whatever it
    requests.
    """

    queue: QueueName
    weight: float
    request: float
    limit: float = math.inf
    guarantee: float = 0.0


def by_weight(total: float, askers: Sequence[VolcanoQueueRequest]) -> dict[QueueName, float]:
    """The part of each queue. The sum is no more than the total, unless the guarantees alone exceed it."""
    parts = {asker.queue: min(asker.guarantee, asker.limit) for asker in askers}
    rest = total - sum(parts.values())
    open_ = [asker for asker in askers if parts[asker.queue] < _wanted(asker)]
    while open_ and rest > 0.0:
        weights = sum(asker.weight for asker in open_)
        if weights <= 0.0:
            break
        round_ = {asker.queue: rest * asker.weight / weights for asker in open_}
        full = [asker for asker in open_ if parts[asker.queue] + round_[asker.queue] >= _wanted(asker)]
        if not full:
            for asker in open_:
                parts[asker.queue] += round_[asker.queue]
            break
        for asker in full:
            rest -= _wanted(asker) - parts[asker.queue]
            parts[asker.queue] = _wanted(asker)
        open_ = [asker for asker in open_ if asker not in full]
    return parts


def _wanted(asker: VolcanoQueueRequest) -> float:
    return min(asker.request, asker.limit)


def real_limit(total: Amounts, limit: Amounts, own: Amounts, guaranteed: Amounts) -> dict[ResourceName, float]:
    """The most that a queue may have: its capability, and what the guarantees of all leave for it."""
    return {
        resource: min(limit.get(resource, math.inf), amount - guaranteed.get(resource, 0.0) + own.get(resource, 0.0))
        for resource, amount in total.items()
    }


def beyond(queue: QueueShare, need: Amounts, bound: Amounts) -> ResourceName | None:
    """A resource that the job requests and of which its queue would exceed the bound; None if there is none. An absent
    resource has no bound.
    """
    for resource, amount in sorted(need.items()):
        if amount > 0.0 and queue.allocated.get(resource, 0.0) + amount > bound.get(resource, math.inf):
            return resource
    return None


def deserves(queue: QueueShare, need: Amounts) -> bool:
    """Whether by the capacity plugin the queue stays within ``deserved`` for some resource that the job requests."""
    return any(
        queue.allocated.get(resource, 0.0) + amount <= queue.quota.get(resource, 0.0)
        for resource, amount in need.items()
        if amount > 0.0
    )


def is_victim(has: Amounts, taken: Amounts, need: Amounts, share: Amounts, guarantee: Amounts) -> bool:
    """Whether ``taken`` may be reclaimed from a queue that has ``has``: it has more than its share of some needed
    resource, and its guarantee is left untouched.
    """
    if any(has.get(each, 0.0) - amount < guarantee.get(each, 0.0) for each, amount in taken.items() if amount > 0.0):
        return False
    asked = (resource for resource, amount in need.items() if amount > 0.0)
    return any(has.get(resource, 0.0) > share.get(resource, 0.0) for resource in asked)


def order_share(queue: QueueShare, share: Mapping[ResourceName, float]) -> float:
    """The largest fraction of its share that the queue has; 1 for a queue that has no share at all."""
    parts = [queue.allocated.get(resource, 0.0) / amount for resource, amount in share.items() if amount > 0.0]
    return max(parts, default=1.0)
