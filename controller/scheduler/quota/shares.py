"""Dominant resource shares: how much of what others could lend each node borrows, by the resource that it borrows most
of.

    borrowed  = per resource, usage beyond the subtree's quota, summed over flavors
    ratio     = the largest borrowed * 1000 / lendable over resources, lendable being what the parent could use at most
    share     = ratio / weight; with weight 0 it is infinite as soon as the ratio is not 0

Numbers are IEEE doubles as in Kueue, whose orderings these must reproduce; each step rounds correctly, so a share never
falls while usage grows. A root cannot borrow: its share is 0.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from controller.scheduler.model.config import PreemptionStrategy
from controller.scheduler.model.resources import UNLIMITED, Amount, ResourceName, Usage
from controller.scheduler.quota.quotanode import QuotaNode


class Share(NamedTuple):
    """The share of one node. ``ratio`` is in thousandths of what is lendable, before the weight. ``dominant`` is None
    where the ratio is 0.
    """

    ratio: float
    weight: float
    dominant: ResourceName | None
    borrowing: bool

    @property
    def precise(self) -> float:
        """The share itself: ratio over weight, maybe ``inf``."""
        if self.ratio == 0.0:
            return 0.0
        return math.inf if self.weight == 0.0 else self.ratio / self.weight

    @property
    def weighted(self) -> int:
        """``status.fairSharing.weightedShare``: rounded up, the largest int64 for an infinite share."""
        share = self.precise
        return UNLIMITED if share >= UNLIMITED else math.ceil(share)

    @property
    def rank(self) -> tuple[float, float]:
        """The key by which shares are compared, lower first: two infinite ones by their ratios."""
        if self.ratio == 0.0:
            return (0.0, 0.0)
        share = self.precise
        return (share, self.ratio if math.isinf(share) else 0.0)


def share(node: QuotaNode, extra: Usage | None = None) -> Share:
    """The node's share now, or with ``extra`` (amounts may be negative) on top of its own usage."""
    borrowed: dict[ResourceName, Amount] = {}
    for fr, cell in node.measured() if node.parent is not None else ():
        beyond = cell.usage - cell.subtree_quota
        if extra:
            beyond += extra.get(fr, 0)
        if beyond > 0:
            borrowed[fr.resource] = borrowed.get(fr.resource, 0) + beyond
    if not borrowed or node.parent is None:
        return Share(0.0, node.weight, None, borrowing=False)
    ratio, dominant = _largest(borrowed.items(), node.parent)
    return Share(ratio, node.weight, dominant, borrowing=True)


def may_preempt(
    strategy: PreemptionStrategy, *, preemptor_with: Share, target_before: Share, target_after: Share
) -> bool:
    """Whether the strategy allows a victim. ``preemptor_with`` includes the incoming workload; the target's shares are
    with and without the victim.
    """
    if strategy is PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE:
        return preemptor_with.rank <= target_after.rank
    return preemptor_with.rank < target_before.rank


def below_common_ancestor(preemptor: QuotaNode, target: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """The two nodes whose shares decide between two ClusterQueues of one tree: just below their lowest common ancestor.
    ValueError for nodes of different trees, or when one is an ancestor of the other.
    """
    below: dict[QuotaNode, QuotaNode] = {}
    last = preemptor
    for node in preemptor.path():
        below[node] = last
        last = node
    last = target
    for node in target.path():
        if node in below:
            ours = below[node]
            if node in (preemptor, target):
                break
            return ours, last
        last = node
    raise ValueError(f"{preemptor} and {target} do not meet below a common cohort")


def _largest(borrowed: Iterable[tuple[ResourceName, Amount]], parent: QuotaNode) -> tuple[float, ResourceName | None]:
    """The largest ratio and its resource; of equal ones the first by name. Resources that no queue lends have
    no ratio.
    """
    lendable = parent.lendable()
    largest, dominant = 0.0, None
    for resource, amount in borrowed:
        lent = lendable.get(resource, 0)
        if lent <= 0:
            continue
        ratio = amount * 1000.0 / lent
        if dominant is None or ratio > largest or (ratio == largest and resource < dominant):
            largest, dominant = ratio, resource
    return largest, dominant
