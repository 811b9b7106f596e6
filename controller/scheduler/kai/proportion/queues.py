"""Queues of a tree with their fair shares, as the rules of limits, order and reclaim see them.

Source: the queue attributes of KAI Scheduler's proportion plugin. Amounts are floats in a resource's own unit, by
resource; what is absent is 0. In a limit, a quota and a fair share ``math.inf`` is unlimited, and an absent resource
allows nothing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.model.resources import ResourceName

Amounts = Mapping[ResourceName, float]

_WITHOUT_SHARE: Final = 1000.0
"""A queue without a share of a resource that it uses counts as this many times over its share, for each unit."""
_ROUNDING: Final = 1e-6


@dataclass(frozen=True)
class QueueShare:
    """One queue. ``parent`` is empty at the top. ``non_preemptible`` is the part of ``allocated`` that cannot be a
    victim.
    """

    name: QueueName
    parent: QueueName | None
    quota: Amounts
    limit: Amounts
    fair_share: Amounts
    allocated: Amounts
    non_preemptible: Amounts

    def allocatable(self, resource: ResourceName) -> float:
        """What the queue may have before others may take from it: its quota or fair share, within its limit."""
        larger = max(self.quota.get(resource, 0.0), self.fair_share.get(resource, 0.0))
        return min(self.limit.get(resource, 0.0), larger)


Tree = Mapping[QueueName, QueueShare]


def path(tree: Tree, name: QueueName) -> list[QueueShare]:
    """The queue and those above it, the topmost first. A parent that is not in the tree ends the path."""
    return list(_upwards(tree, name))[::-1]


def _upwards(tree: Tree, name: QueueName) -> Iterator[QueueShare]:
    above: QueueName | None = name
    while above is not None and above in tree:
        yield tree[above]
        above = tree[above].parent


def added(left: Amounts, right: Amounts) -> dict[ResourceName, float]:
    return {resource: left.get(resource, 0.0) + right.get(resource, 0.0) for resource in {*left, *right}}


def subtracted(left: Amounts, right: Amounts) -> dict[ResourceName, float]:
    return {resource: left.get(resource, 0.0) - right.get(resource, 0.0) for resource in {*left, *right}}


def within(amounts: Amounts, bound: Amounts) -> bool:
    """Whether no resource of ``amounts`` is above the bound; a resource without a bound may have nothing. Tenths of a
    GPU do not add up exactly in floats: an amount above the bound by less than any request counts as within it.
    """
    return all(amount <= bound.get(resource, 0.0) + _ROUNDING for resource, amount in amounts.items())


def dominant(amounts: Amounts, queue: QueueShare, total: Amounts) -> float:
    """The largest fraction of its allocatable share that ``amounts`` would be, over all resources. Where the queue's
    share is unlimited, the fraction of ``total``, which is what the whole cluster has.
    """
    largest = 0.0
    for resource, amount in amounts.items():
        share = queue.allocatable(resource)
        bound = total.get(resource, 0.0) if math.isinf(share) else share
        largest = max(largest, amount / bound if bound > 0.0 else amount * _WITHOUT_SHARE)
    return largest
