"""A node of the cohort forest, a ClusterQueue or a Cohort, and the questions that it answers: how much may be used
here, how much is borrowed, and how far up the forest a request must borrow (KEP-79). Only ``QuotaTree`` writes nodes,
and the sums of each ``Cell`` hold after every change. Every answer costs one step for each level.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from controller.scheduler.model.resources import (
    Amount,
    ClusterQueueName,
    CohortName,
    FlavorResource,
    ResourceName,
    Usage,
)
from controller.scheduler.quota.cells import Cell, Quota, bounded


class QuotaNodeSpec(Struct, frozen=True, kw_only=True):
    """The settings of a ClusterQueue or Cohort object. ``parent`` is ``cohortName`` or ``parentName``."""

    parent: CohortName | None = None
    quotas: Mapping[FlavorResource, Quota] = {}
    weight: float = 1.0
    """``fairSharing.weight``, 0 or more."""


class BorrowLevel(NamedTuple):
    """The level at which a request fits. ``height`` is that of the smallest subtree whose own quota holds it, 0
    being the ClusterQueue alone; ``below_root`` says whether that subtree is less than the whole tree.
    """

    height: int
    below_root: bool


class QuotaNode:
    """A ClusterQueue or a Cohort. Compared by identity: a node serves as its own key, a root as the key of its tree.

    ``QuotaTree`` alone writes it, but for the caches; every other module reads. Invariants between its methods:

    - ``cohorts`` and ``queues`` are the members, by name: a node is in one of them of its ``parent``, or has no parent.
    - ``height`` is 0 for a ClusterQueue and for a Cohort without members, else one more than that of the highest
      member.
    - ``broken`` marks the root of a tree whose Cohorts name each other in a circle; no node is above it.
    - ``cells`` has every flavor-resource that ``spec`` has quota for or that is charged here or below: where a node has
      a cell its ancestors have one, and the cells name each other as the nodes do. A cell is never removed.
    - ``generation`` of a root is that of the forest when this tree changed last; it never returns to an old value.
    - ``_lendable``, ``_declared`` and ``_measured`` are caches, each valid for the root's ``generation`` that is stored
      beside it: 6, 2.5 and 0.6 us of every share, for six flavor-resources of ten queues.
    """

    def __init__(self, name: str, spec: QuotaNodeSpec | None, *, is_queue: bool) -> None:
        self.name = name
        self.is_queue = is_queue
        self.spec = spec
        """None for a Cohort without an object, which only others name."""
        self.parent: QuotaNode | None = None
        self.cohorts: dict[CohortName, QuotaNode] = {}
        self.queues: dict[ClusterQueueName, QuotaNode] = {}
        self.cells: dict[FlavorResource, Cell] = {}
        self.height = 0
        self.broken = False
        self.generation = 0
        """The number of the last change to this tree's shape or quotas; only at a root."""
        self._lendable: dict[ResourceName, Amount] = {}
        self._lendable_of = -1
        self._declared: frozenset[FlavorResource] = frozenset()
        self._declared_of = -1
        self._measured: tuple[tuple[FlavorResource, Cell], ...] = ()
        self._measured_of = -1

    def __repr__(self) -> str:
        return f"<{'ClusterQueue' if self.is_queue else 'Cohort'} {self.name}>"

    @property
    def weight(self) -> float:
        return 1.0 if self.spec is None else self.spec.weight

    def path(self) -> "Iterator[QuotaNode]":
        """The node, its parent, and so on to the root."""
        node: QuotaNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def root(self) -> "QuotaNode":
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def queue_names(self) -> Iterator[ClusterQueueName]:
        """All ClusterQueues at or below the node."""
        if self.is_queue:
            yield ClusterQueueName(self.name)
        yield from self.queues
        for cohort in self.cohorts.values():
            yield from cohort.queue_names()

    def in_cycle(self) -> bool:
        """Whether this tree is out of use because its Cohorts name each other in a circle."""
        return self.root().broken

    def quota_generation(self) -> int:
        """A number that changes with everything that this node's limits depend on; it never returns to an old value."""
        return self.root().generation

    def usage(self, fr: FlavorResource) -> Amount:
        cell = self.cells.get(fr)
        return 0 if cell is None else cell.usage

    def used(self) -> dict[FlavorResource, Amount]:
        """All usage that is not 0."""
        return {fr: cell.usage for fr, cell in self.cells.items() if cell.usage}

    def quota(self, fr: FlavorResource) -> Amount:
        """The nominal quota of the subtree, less what its members keep to themselves."""
        cell = self.cells.get(fr)
        return 0 if cell is None else bounded(cell.subtree_quota)

    def available(self, fr: FlavorResource) -> Amount:
        """How much more can be used here now, borrowing included; never negative."""
        cell = self.cells.get(fr) or self._nearest(fr)
        return 0 if cell is None else bounded(max(0, cell.available()))

    def potential_available(self, fr: FlavorResource) -> Amount:
        """How much could be used here on an empty cluster: a request for more can never be admitted."""
        cell = self._nearest(fr)
        return 0 if cell is None else bounded(cell.potential())

    def fits(self, requests: Usage) -> bool:
        for fr, amount in requests.items():
            cell = self.cells.get(fr)
            free = self.available(fr) if cell is None else cell.available()
            if amount > free and amount > 0:
                return False
        return True

    def is_exceeded(self, usage: Usage) -> bool:
        """Whether more of what ``usage`` has is used here than there is, here or above; ``usage`` is charged."""
        return any(amount > 0 and fr in self.cells and self.cells[fr].available() < 0 for fr, amount in usage.items())

    def borrowed(self, fr: FlavorResource) -> Amount:
        """Usage beyond own quota, 0 for a root."""
        cell = self.cells.get(fr)
        return 0 if cell is None else cell.borrowed()

    def borrowing(self) -> bool:
        return any(cell.borrowed() for cell in self.cells.values())

    def borrowing_with(self, fr: FlavorResource, amount: Amount) -> bool:
        """Whether ``amount`` more would take this node beyond its own quota."""
        cell = self.cells.get(fr)
        return amount > 0 if cell is None else cell.usage + amount > cell.subtree_quota

    def borrow_level(self, fr: FlavorResource, amount: Amount) -> BorrowLevel:
        """How far up the tree a ClusterQueue must borrow for ``amount``; the whole height where no subtree has it."""
        if self.parent is None or not self.borrowing_with(fr, amount):
            return BorrowLevel(0, self.parent is not None)
        node: QuotaNode = self
        while (parent := node.parent) is not None:
            cell = node.cells.get(fr)
            if cell is not None and cell.local_quota:
                amount -= cell.local_available()
            node = parent
            cell = node.cells.get(fr)
            if (amount <= 0) if cell is None else (cell.usage + amount <= cell.subtree_quota):
                break
        return BorrowLevel(node.height, node.parent is not None)

    def lendable(self) -> Mapping[ResourceName, Amount]:
        """The most that could be used here of each resource, over all flavors of the tree: the measure of shares."""
        root = self.root()
        if self._lendable_of != root.generation:
            sums: dict[ResourceName, Amount] = {}
            for fr in root.declared():
                sums[fr.resource] = sums.get(fr.resource, 0) + self.potential_available(fr)
            self._lendable = {resource: bounded(amount) for resource, amount in sums.items()}
            self._lendable_of = root.generation
        return self._lendable

    def declared(self) -> frozenset[FlavorResource]:
        """The flavor-resources for which the node or anything below it has a quota, 0 included: shares are measured
        only on these.
        """
        root = self.root()
        if self._declared_of != root.generation:
            own = frozenset(self.spec.quotas) if self.spec is not None else frozenset[FlavorResource]()
            below = (node.declared() for node in (*self.cohorts.values(), *self.queues.values()))
            self._declared = own.union(*below)
            self._declared_of = root.generation
        return self._declared

    def measured(self) -> tuple[tuple[FlavorResource, Cell], ...]:
        """``declared`` with the cells here: shares are computed from them in every try of a fair cohort."""
        generation = self.root().generation
        if self._measured_of != generation:
            self._measured = tuple([(fr, self.cells[fr]) for fr in self.declared()])
            self._measured_of = generation
        return self._measured

    def _nearest(self, fr: FlavorResource) -> Cell | None:
        """The cell that decides for this node: a node without one on this flavor-resource has no limits of its own."""
        for node in self.path():
            cell = node.cells.get(fr)
            if cell is not None:
                return cell
        return None


def within_quota(node: QuotaNode, frs: tuple[FlavorResource, ...]) -> bool:
    """Whether no more of these is used than the subtree's own quota."""
    for fr in frs:
        cell = node.cells.get(fr)
        if cell is not None and cell.usage > cell.subtree_quota:
            return False
    return True


def any_borrows(cohort: QuotaNode, frs: tuple[FlavorResource, ...]) -> bool:
    """Whether some child uses more of one of these than its own quota. Called often, so it reads one counter for each
    flavor-resource.
    """
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
