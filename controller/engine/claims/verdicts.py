"""What was found for preemptors that wait for their victims, so that it need not be found again in every cycle.

A search for victims is the dearest thing a cycle does, and while those found are still on their way out it would find
them again. A verdict stands until something is freed or changed in its preemptor's tree: all that may bring a better
one wakes the tree. Victims that leave one by one bring none before the last: all of them were needed. What others take
meanwhile wakes nobody; the cycle holds a verdict against it as it does against everything that was taken since
nomination, and a verdict that no longer leads to a preemption is forgotten.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from controller.engine.cluster.incoming import Target
from controller.engine.conditions.records import Rule
from controller.engine.flavors.assignment import Assignment
from controller.engine.model.resources import WorkloadKey
from controller.engine.queues.clusterqueue import ClusterQueueOrder
from controller.engine.queues.entry import Entry
from controller.engine.queues.pending import PendingWorkload
from controller.engine.quota.queuestate import Holder


class _Verdict(NamedTuple):
    pending: PendingWorkload
    order: ClusterQueueOrder
    epoch: int
    """The order's, when it was found."""
    assignment: Assignment
    targets: tuple[Target, ...]
    by_right: bool


class Verdicts:
    """One at most for a workload. ``recall`` before it is decided on, ``note`` afterwards."""

    def __init__(self) -> None:
        self._verdicts: dict[WorkloadKey, _Verdict] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def recall(self, entry: Entry, holders: Mapping[WorkloadKey, Holder]) -> bool:
        """Whether a verdict stands; the entry is nominated by it then."""
        found, pending = self._verdicts.get(entry.key), entry.pending
        if found is None or pending is None:
            return False
        order = pending.at
        if found.pending is not pending or order is not found.order or order.epoch != found.epoch:
            return False
        targets: list[Target] = []
        for target in found.targets:
            holder = holders.get(target.holder.key)
            if holder is None:
                return False
            # Told to go, it is another object of the same holder.
            targets.append(target if holder is target.holder else target._replace(holder=holder))
        entry.assignment, entry.targets, entry.by_right = found.assignment, tuple(targets), found.by_right
        pending.bookmark = found.assignment.bookmark
        return True

    def note(self, entry: Entry) -> bool:
        """The entry is decided on. False where a verdict on it has turned out not to hold."""
        pending = entry.pending
        order = pending.at if pending is not None else None
        if entry.rule is not Rule.PREEMPTS or entry.incoming.replaces is not None or pending is None or order is None:
            return self._verdicts.pop(entry.key, None) is None
        self._verdicts[entry.key] = _Verdict(
            pending, order, order.epoch, entry.assignment, entry.targets, entry.by_right
        )
        return True

    def departed(self, keys: AbstractSet[WorkloadKey]) -> None:
        """A tree was woken, just now and only because these have left."""
        for key, found in tuple(self._verdicts.items()):
            # A verdict whose tree was woken before as well is outdated for good: its epoch is further behind.
            if found.epoch + 1 != found.order.epoch:
                continue
            left = tuple(target for target in found.targets if target.holder.key not in keys)
            if left and len(found.targets) - len(left) == len(keys):
                self._verdicts[key] = found._replace(epoch=found.order.epoch, targets=left)

    def forget(self, key: WorkloadKey) -> None:
        self._verdicts.pop(key, None)
