"""Quota arithmetic: one cell for each node of the cohort forest and each flavor-resource that the node has.

A cell holds what was configured at its node and two sums over everything below: the quota of the subtree and its usage.
A lending limit keeps part of a subtree's quota local; usage fills that part first and only what spills over it reaches
the parent, just as only the quota beyond it does (KEP-79, hierarchical cohorts). So a change costs one step for each
level and stops where it no longer has an effect.

    subtree_quota = nominal + sum over children (subtree_quota - local_quota)
    local_quota   = max(0, subtree_quota - lending_limit), 0 without a limit
    usage         = sum over children max(0, usage - local_quota); a ClusterQueue's is what is charged to it

The sums are exact: an unlimited nominal enters them as ``INFINITE``, which no sum of real amounts comes near, so that
it survives subtraction and is gone again with the node that brought it. Read a sum through ``bounded``.
"""

from typing import Final

from msgspec import Struct

from controller.scheduler.model.resources import UNLIMITED, Amount

INFINITE: Final[Amount] = 1 << 100


class Quota(Struct, frozen=True):
    """One flavor-resource of a ClusterQueue's or Cohort's ``resourceGroups``; None is no limit."""

    nominal: Amount
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None


NO_QUOTA: Final = Quota(0)
_NO_BOUND: Final = INFINITE * 2


def bounded(amount: Amount) -> Amount:
    """A sum as it is shown outside: an infinite sum, or one beyond the largest amount, is ``UNLIMITED``."""
    return min(amount, UNLIMITED)


class Cell:
    """The numbers of one node on one flavor-resource. ``parent`` is the same flavor-resource one level up.

    ``subtree_quota`` is ``nominal`` plus what the children lend, ``local_quota`` the part of it that is not lent on;
    ``usage`` of a Cohort's cell is the sum of its children's ``spill``. Each method leaves this so at every level
    above; only ``QuotaTree`` calls the methods that write. ``__slots__`` save 48 bytes of each, 1.4 MiB of 1,000
    ClusterQueues with 30 flavor-resources.
    """

    __slots__ = (
        "borrowers",
        "borrowing_limit",
        "lending_limit",
        "local_quota",
        "nominal",
        "parent",
        "subtree_quota",
        "usage",
    )

    def __init__(self) -> None:
        self.parent: Cell | None = None
        self.nominal: Amount = 0
        self.borrowing_limit: Amount | None = None
        self.lending_limit: Amount | None = None
        self.subtree_quota: Amount = 0
        self.local_quota: Amount = 0
        self.usage: Amount = 0
        self.borrowers = 0
        """The number of child cells that have more usage than quota."""

    def lent(self) -> Amount:
        """The quota that the parent counts as its own."""
        return self.subtree_quota - self.local_quota

    def spill(self) -> Amount:
        """The usage that the parent counts."""
        return self.usage - self.local_quota if self.usage > self.local_quota else 0

    @property
    def quota(self) -> Quota:
        """The quota that is configured at the node itself."""
        nominal = UNLIMITED if self.nominal >= INFINITE else self.nominal
        return Quota(nominal, self.borrowing_limit, self.lending_limit)

    def local_available(self) -> Amount:
        return self.local_quota - self.usage if self.local_quota > self.usage else 0

    def configure(self, quota: Quota) -> None:
        """Replace the quota that is configured at the node itself; O(depth)."""
        lent, spill, over = self.lent(), self.spill(), self.usage > self.subtree_quota
        nominal = INFINITE if quota.nominal >= UNLIMITED else quota.nominal
        self.subtree_quota += nominal - self.nominal
        self.nominal = nominal
        self.borrowing_limit = quota.borrowing_limit
        self.lending_limit = quota.lending_limit
        self._keep_local()
        self._tell(over)
        _shift(self.parent, self.lent() - lent, self.spill() - spill)

    def charge(self, amount: Amount) -> None:
        """Add ``amount`` (negative: return it) to the usage here and, as far as it spills, above; O(depth)."""
        cell: Cell | None = self
        while cell is not None and amount:
            used = cell.usage
            cell.usage = now = used + amount
            parent = cell.parent
            if parent is None:
                return
            quota, local = cell.subtree_quota, cell.local_quota
            if now > quota >= used:
                parent.borrowers += 1
            elif used > quota >= now:
                parent.borrowers -= 1
            if local:
                amount = max(0, now - local) - max(0, used - local)
            cell = parent

    def attach(self, parent: "Cell") -> None:
        self.parent = parent
        self._tell(False)
        _shift(parent, self.lent(), self.spill())

    def detach(self) -> None:
        _shift(self.parent, -self.lent(), -self.spill())
        if self.parent is not None and self.usage > self.subtree_quota:
            self.parent.borrowers -= 1
        self.parent = None

    def available(self) -> Amount:
        """What may still be used here: own local quota, then whatever each level above has left, within every limit.
        Negative where more is used than there is. A borrowing limit has no effect without a parent to borrow from.
        """
        # A try calls this several times, so ``local_available`` and ``min`` are inlined.
        cell, local, least = self, 0, _NO_BOUND
        while (parent := cell.parent) is not None:
            usage, limit = cell.usage, cell.borrowing_limit
            if limit is not None:
                bound = local + cell.subtree_quota - usage + limit
                if bound < least:  # noqa: PLR1730
                    least = bound
            free = cell.local_quota - usage
            if free > 0:
                local += free
            cell = parent
        left = local + cell.subtree_quota - cell.usage
        return left if left < least else least  # noqa: FURB136

    def potential(self) -> Amount:
        """What could be used here if no queue used anything."""
        cell, local, least = self, 0, _NO_BOUND
        while (parent := cell.parent) is not None:
            if cell.borrowing_limit is not None:
                least = min(least, local + cell.subtree_quota + cell.borrowing_limit)
            local += cell.local_quota
            cell = parent
        return min(least, local + cell.subtree_quota)

    def borrowed(self) -> Amount:
        """Usage beyond the subtree's own quota; 0 at a root, which cannot borrow."""
        return 0 if self.parent is None else max(0, self.usage - self.subtree_quota)

    def _tell(self, before: bool) -> None:
        """Update the parent's count of borrowers after a change. ``before``: whether the parent has counted
        this cell.
        """
        if self.parent is not None:
            self.parent.borrowers += (self.usage > self.subtree_quota) - before

    def _keep_local(self) -> None:
        limit = self.lending_limit
        self.local_quota = 0 if limit is None else max(0, self.subtree_quota - limit)


def _shift(cell: Cell | None, quota: Amount, usage: Amount) -> None:
    """Pass a child's change of lent quota and of spilled usage upwards."""
    while cell is not None and (quota or usage):
        lent, spill, over = cell.lent(), cell.spill(), cell.usage > cell.subtree_quota
        cell.subtree_quota += quota
        cell.usage += usage
        cell._keep_local()  # noqa: SLF001 - the module is one unit
        cell._tell(over)  # noqa: SLF001
        quota, usage = cell.lent() - lent, cell.spill() - spill
        cell = cell.parent
