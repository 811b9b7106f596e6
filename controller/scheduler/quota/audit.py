"""Recomputes the cohort forest from objects and the charges of ClusterQueues, and compares. Written apart from the
incremental arithmetic on purpose: recursive, from the leaves, on plain numbers.
"""

from collections.abc import Mapping

from controller.scheduler.model.resources import UNLIMITED, Amount, ClusterQueueName, CohortName, FlavorResource
from controller.scheduler.quota.cells import INFINITE
from controller.scheduler.quota.quotanode import QuotaNode


class QuotaDriftError(RuntimeError):
    """Sums and their parts differ: a bug, never a user's mistake."""


def drift(queues: Mapping[ClusterQueueName, QuotaNode], cohorts: Mapping[CohortName, QuotaNode]) -> list[str]:
    """One sentence for each number or link that is wrong; empty when all are right."""
    nodes = [*queues.values(), *cohorts.values()]
    problems = [problem for node in nodes for problem in _links(node, cohorts)]
    for root in nodes:
        if root.parent is None:
            problems += _subtree(root, {})
    return problems


def _links(node: QuotaNode, cohorts: Mapping[CohortName, QuotaNode]) -> list[str]:
    problems = []
    parent = None if node.spec is None else node.spec.parent
    holds = None if node.parent is None else node.parent.name
    if node.broken:
        if node.parent is not None or parent is None or cohorts[parent].root() is not node:
            problems.append(f"{node}: marked as the root of a circle, but is none")
    elif parent != holds:
        problems.append(f"{node}: hangs below {holds}, its object says {parent}")
    children = [*node.queues.values(), *node.cohorts.values()]
    if any(child.parent is not node for child in children):
        problems.append(f"{node}: has a child that hangs elsewhere")
    if node.height != max((child.height + 1 for child in children), default=0):
        problems.append(f"{node}: height {node.height}")
    if [*node.measured()] != [(fr, node.cells.get(fr)) for fr in _declared(node)]:
        problems.append(f"{node}: shares are measured on {node.measured()}")
    if node.spec is None and not children:
        problems.append(f"{node}: nothing names it")
    return problems


def _declared(node: QuotaNode) -> frozenset[FlavorResource]:
    own = frozenset[FlavorResource]() if node.spec is None else frozenset(node.spec.quotas)
    return own.union(*map(_declared, (*node.cohorts.values(), *node.queues.values())))


def _borrowers(node: QuotaNode, fr: FlavorResource) -> int:
    cells = [child.cells.get(fr) for child in (*node.queues.values(), *node.cohorts.values())]
    return sum(1 for cell in cells if cell is not None and cell.usage > cell.subtree_quota)


def _subtree(node: QuotaNode, sums: dict[FlavorResource, tuple[Amount, Amount]]) -> list[str]:
    """Check a subtree and leave in ``sums`` its quota and usage for each flavor-resource, as its parent counts them."""
    problems: list[str] = []
    below: dict[FlavorResource, list[tuple[Amount, Amount]]] = {}
    for child in (*node.queues.values(), *node.cohorts.values()):
        theirs: dict[FlavorResource, tuple[Amount, Amount]] = {}
        problems += _subtree(child, theirs)
        for fr, pair in theirs.items():
            below.setdefault(fr, []).append(pair)
    quotas = {} if node.spec is None else node.spec.quotas
    for fr in {*quotas, *below, *node.cells}:
        quota = quotas.get(fr)
        nominal = 0 if quota is None else quota.nominal
        total = (INFINITE if nominal >= UNLIMITED else nominal) + sum(lent for lent, _ in below.get(fr, []))
        used = node.usage(fr) if node.is_queue else sum(spilled for _, spilled in below.get(fr, []))
        lending = None if quota is None else quota.lending_limit
        local = 0 if lending is None else max(0, total - lending)
        cell = node.cells.get(fr)
        if cell is None:
            problems.append(f"{node}: knows nothing of {fr}")
        elif (cell.subtree_quota, cell.local_quota, cell.usage) != (total, local, used) or used < 0:
            sums_kept = (cell.subtree_quota, cell.local_quota, cell.usage)
            problems.append(
                f"{node}: {fr}: quota, local quota, usage are kept as {sums_kept}, should be {(total, local, used)}"
            )
        elif cell.borrowers != _borrowers(node, fr):
            problems.append(f"{node}: {fr}: {cell.borrowers} children are kept to borrow, {_borrowers(node, fr)} do")
        elif cell.parent is not (None if node.parent is None else node.parent.cells.get(fr)):
            problems.append(f"{node}: {fr}: linked to another cell than its parent's")
        sums[fr] = (total - local, max(0, used - local))
    return problems
