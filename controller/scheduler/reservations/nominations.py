"""Nominations of preemptors that wait for their victims, kept so that no cycle searches for the same victims again.

A search for victims is the most expensive part of a cycle, and it would find the same ones while they are leaving. A
nomination stands until something is freed or changed in the preemptor's tree: whatever could lead to a better one wakes
the tree. Victims that leave one by one lead to none before the last, because all of them were needed. What others take
meanwhile wakes no tree; the cycle checks a standing nomination against it as against everything that was taken since
nomination, and a nomination that no longer leads to a preemption is forgotten. Where nothing was taken and only its own
victims have left since that check, it need not be made again: the same is free once they all have left.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from controller.scheduler.cluster.incoming import Target
from controller.scheduler.flavors.assignment import Assignment
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingWorkload, QueueOrder
from controller.scheduler.quota.queuestate import Holder


class Nomination(NamedTuple):
    """A remembered nomination. ``pending`` and ``order`` are compared by identity: each is replaced by a new object
    when the thing that it stands for changes.
    """

    pending: PendingWorkload
    order: QueueOrder
    epoch: int
    """The epoch of ``order`` when this was found, or after a wake-up by nothing but departures of ``targets``."""
    assignment: Assignment
    targets: tuple[Target, ...]
    ignores_reservations: bool
    checked_at: int | None = None
    """The entry's ``checked_at``; None once other workloads than its targets have departed."""

    @classmethod
    def of(cls, entry: Entry) -> "Nomination | None":
        """The nomination of an entry that preempts. None for an elastic slice: the slice that it replaces may
        change.
        """
        pending = entry.pending
        order = pending.at if pending is not None else None
        if pending is None or order is None or entry.incoming.replaces is not None:
            return None
        return cls(
            pending, order, order.epoch, entry.assignment, entry.targets, entry.ignores_reservations, entry.checked_at
        )

    def stands(self, pending: PendingWorkload) -> bool:
        """Whether the tree of this workload has not been woken since."""
        return self.pending is pending and pending.at is self.order and self.order.epoch == self.epoch

    def targets_now(self, holders: Mapping[WorkloadKey, Holder]) -> tuple[Target, ...] | None:
        """The victims with their present holders; None when one of them has left."""
        targets: list[Target] = []
        for target in self.targets:
            holder = holders.get(target.holder.key)
            if holder is None:
                return None
            # An eviction replaces the object of the same holder.
            targets.append(target if holder is target.holder else target._replace(holder=holder))
        return tuple(targets)

    def without(self, departed: AbstractSet[WorkloadKey]) -> "Nomination | None":
        """The nomination after a wake-up for only these departures; None when it no longer stands, or never did."""
        # An epoch further behind means that the tree was woken for another reason before.
        if self.epoch + 1 != self.order.epoch:
            return None
        left = tuple(target for target in self.targets if target.holder.key not in departed)
        if not left or len(self.targets) - len(left) != len(departed):
            return None
        return self._replace(epoch=self.order.epoch, targets=left)
