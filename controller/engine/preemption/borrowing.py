"""ClusterQueues and cohorts that use more than their own quota: from those it can be reclaimed."""

from collections.abc import Iterator

from controller.engine.model.resources import FlavorResource
from controller.engine.quota.quotanode import QuotaNode


def within_quota(node: QuotaNode, frs: tuple[FlavorResource, ...]) -> bool:
    """Whether nothing of this is used beyond the subtree's own quota."""
    for fr in frs:
        cell = node.cells.get(fr)
        if cell is not None and cell.usage > cell.subtree_quota:
            return False
    return True


def any_borrows(cohort: QuotaNode, frs: tuple[FlavorResource, ...]) -> bool:
    """Whether some child uses more of something than its own quota. One look a flavor-resource: it is asked often."""
    for fr in frs:
        cell = cohort.cells.get(fr)
        if cell is not None and cell.borrowers:
            return True
    return False


def borrowers_below(node: QuotaNode, frs: tuple[FlavorResource, ...]) -> Iterator[QuotaNode]:
    """The ClusterQueues of a tree that use more of something than their own quota."""
    if any_borrows(node, frs):
        for queue in node.queues.values():
            if not within_quota(queue, frs):
                yield queue
    # A cohort that stays within its quota may have members that do not.
    for cohort in node.cohorts.values():
        yield from borrowers_below(cohort, frs)
