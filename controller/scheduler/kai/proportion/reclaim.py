"""Reclaim between queues: whether a job may try to take from other queues, and whether it may take a given set of
victims.

Source: the reclaimable rules of KAI Scheduler's proportion plugin. They compare what each queue has after the exchange
with its fair share, at the level of the tree where the two queues part and below it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts, QueueShare, Tree, added, path, subtracted, within
from controller.scheduler.model.resources import ResourceName

Victims = Mapping[QueueName, Sequence[Amounts]]
"""The amounts taken from each queue, in the order of eviction: a surplus pod by itself, the core of a gang as one."""


def may_reclaim(queue: QueueShare, need: Amounts, *, preemptible: bool) -> bool:
    """Whether the job's queue stays within its fair share and, for a job that is never preempted, also within its
    quota.
    """
    if not within(added(queue.allocated, need), queue.fair_share):
        return False
    return preemptible or within(added(queue.non_preemptible, need), queue.quota)


def is_reclaimable(
    tree: Tree, name: QueueName, need: Amounts, victims: Victims, *, preemptible: bool, saturation: float = 1.0
) -> bool:
    """Whether a job of queue ``name`` may take the victims. ``saturation`` (KAI's saturation multiplier, at least 1) is
    how much further above its fair share another queue must be where the reclaiming one ends above its own.
    """
    exchange = Exchange(tree, name, need)
    if not all(exchange.take(victim, amounts) for victim, taken in victims.items() for amounts in taken):
        return False
    left = exchange.left
    involved = {resource for amounts in (need, *_all(victims)) for resource, amount in amounts.items() if amount > 0.0}
    for queue in path(tree, name):
        after = added(left.get(queue.name, queue.allocated), need)
        siblings = [tree[other] for other in left if tree[other].parent == queue.parent and other != queue.name]
        if any(_overtakes(queue, after, other, left[other.name], involved, saturation) for other in siblings):
            return False
        if not preemptible and not within(added(queue.non_preemptible, need), queue.quota):
            return False
    return True


class Exchange:
    """What queues have left while victims leave for a job of queue ``name``. ``left`` has the queues that were touched;
    ``tree`` must not change meanwhile.
    """

    def __init__(self, tree: Tree, name: QueueName, need: Amounts) -> None:
        self._tree = tree
        self._reclaimer = path(tree, name)
        self._need = need
        self.left: dict[QueueName, Amounts] = {}

    def take(self, name: QueueName, amounts: Amounts) -> bool:
        """Take a victim of queue ``name``. Returns False, and takes nothing, where that queue is not over what it may
        have once those before it have left.
        """
        victim = path(self._tree, name)
        ours, theirs = _where_they_part(self._reclaimer, victim)
        after = added(self._has(ours), self._need)
        if not _is_over(theirs, self._has(theirs), in_quota=within(after, ours.quota)):
            return False
        for queue in victim:
            self.left[queue.name] = subtracted(self._has(queue), amounts)
        return True

    def untouchable(self, name: QueueName) -> bool:
        """Whether no victim of queue ``name`` may be taken, whatever else leaves: what the queue has only falls."""
        _, theirs = _where_they_part(self._reclaimer, path(self._tree, name))
        return not _is_over(theirs, theirs.allocated, in_quota=True)

    def _has(self, queue: QueueShare) -> Amounts:
        return self.left.get(queue.name, queue.allocated)


def _is_over(queue: QueueShare, has: Amounts, *, in_quota: bool) -> bool:
    """Whether the queue is above its allocatable share in some resource; for a reclaimer within its own quota it is
    enough that the queue is above its quota.
    """
    if any(amount > queue.allocatable(resource) for resource, amount in has.items()):
        return True
    return in_quota and any(amount > queue.quota.get(resource, 0.0) for resource, amount in has.items())


def _where_they_part(left: Sequence[QueueShare], right: Sequence[QueueShare]) -> tuple[QueueShare, QueueShare]:
    """The first queues of two paths that differ, or the last of both where one path contains the other."""
    level = 0
    while level < min(len(left), len(right)) - 1 and left[level].name == right[level].name:
        level += 1
    return left[level], right[level]


def _overtakes(
    queue: QueueShare, after: Amounts, other: QueueShare, left: Amounts, involved: set[ResourceName], saturation: float
) -> bool:
    """Whether the queue would end above its fair share, and as far above it as the other queue, or further."""
    for resource in involved:
        share = other.fair_share.get(resource, 0.0)
        if not 0.0 < share < math.inf:
            continue
        own = _ratio(after.get(resource, 0.0), queue.fair_share.get(resource, 0.0))
        if own > 1.0 and own * saturation >= _ratio(left.get(resource, 0.0), share):
            return True
    return False


def _ratio(amount: float, share: float) -> float:
    if share == 0.0:
        return math.inf if amount > 0.0 else 0.0
    return amount / share


def _all(victims: Victims) -> Iterator[Amounts]:
    for taken in victims.values():
        yield from taken
