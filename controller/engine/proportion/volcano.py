"""Volcano's two rules of fairness: the proportion plugin's, by weight, and the capacity plugin's, by what is deserved.

proportion: what there is is divided among the queues that have jobs, round by round, by weight; no queue gets more than
it asks for or is capable of, nor less than its guarantee. A job starts where its queue stays within its part, and takes
from queues that are above theirs.

capacity: each queue deserves what its object says. A job starts where its queue and all above stay within what they are
capable of; it takes from others where its queue stays within what it deserves of something that the job asks for, and a
queue is a victim while it has more than it deserves of such a resource, but for its guarantee. A queue that deserves
nothing runs on what others leave.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.engine.model.resources import ResourceName
from controller.engine.proportion.division import QueueName
from controller.engine.proportion.queues import Amounts, QueueShare


@dataclass(frozen=True, slots=True)
class Asker:
    """What one queue asks for of one resource. ``limit`` bounds it; the guarantee is its own whatever it asks for."""

    queue: QueueName
    weight: float
    request: float
    limit: float = math.inf
    guarantee: float = 0.0


def by_weight(total: float, askers: Sequence[Asker]) -> dict[QueueName, float]:
    """The part of each. Together they are no more than there is, unless the guarantees alone are."""
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


def _wanted(asker: Asker) -> float:
    return min(asker.request, asker.limit)


def real_limit(total: Amounts, limit: Amounts, own: Amounts, guaranteed: Amounts) -> dict[ResourceName, float]:
    """What a queue may have at most: what it is capable of, and what the guarantees of all leave it."""
    return {
        resource: min(limit.get(resource, math.inf), amount - guaranteed.get(resource, 0.0) + own.get(resource, 0.0))
        for resource, amount in total.items()
    }


def beyond(queue: QueueShare, need: Amounts, bound: Amounts) -> ResourceName | None:
    """A resource that the job asks for and of which its queue would have more than the bound; absent is no bound."""
    for resource, amount in sorted(need.items()):
        if amount > 0.0 and queue.allocated.get(resource, 0.0) + amount > bound.get(resource, math.inf):
            return resource
    return None


def deserves(queue: QueueShare, need: Amounts) -> bool:
    """By the capacity plugin: of something that the job asks for the queue stays within what it deserves."""
    return any(
        queue.allocated.get(resource, 0.0) + amount <= queue.quota.get(resource, 0.0)
        for resource, amount in need.items()
        if amount > 0.0
    )


def is_victim(has: Amounts, taken: Amounts, need: Amounts, share: Amounts, guarantee: Amounts) -> bool:
    """Whether ``taken`` may be reclaimed from a queue that has ``has``: it has more than its share of something that is
    needed, and its guarantee survives.
    """
    if any(has.get(each, 0.0) - amount < guarantee.get(each, 0.0) for each, amount in taken.items() if amount > 0.0):
        return False
    asked = (resource for resource, amount in need.items() if amount > 0.0)
    return any(has.get(resource, 0.0) > share.get(resource, 0.0) for resource in asked)


def order_share(queue: QueueShare, share: Mapping[ResourceName, float]) -> float:
    """The largest part of its share that the queue has; 1 for one that has no share at all."""
    parts = [queue.allocated.get(resource, 0.0) / amount for resource, amount in share.items() if amount > 0.0]
    return max(parts, default=1.0)
