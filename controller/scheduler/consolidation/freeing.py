"""When workloads move so that a whole node is free: while none waits, one node at a time.

The rule is our own (``tessera.packing.freeNodes``), within the bounds of all moves (``tessera.consolidation``): so many
an hour, and none of a workload that has not run for its minimum. An evicted workload must find its quota and its places
again, so nothing is moved while any other workload waits that could take them, and no second node is freed before those
of the first run. A search costs what ``emptying`` says, and there is one a minute at most.
"""

from collections.abc import Callable
from typing import Final

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.consolidation.emptying import Emptied, first_emptied
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.model.config import Consolidation
from controller.scheduler.model.resources import ClusterQueueName
from controller.scheduler.preemption.index import started_at_s
from controller.scheduler.preemption.moves import Moves
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.reservations.reservations import Reservations

INTERVAL_S: Final = 60.0
"""Minimum seconds between two searches."""


class FreeTurn:
    """The turns in which a node is freed. ``_seen``: the count of changes at the last search, which found nothing more
    to move. ``_due_s``: when more may move only because time has passed.
    """

    def __init__(
        self,
        cluster: Cluster,
        assigner: FlavorAssigner,
        reservations: Reservations,
        moves: Moves,
        limits: Consolidation,
    ) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._reservations = reservations
        self._moves = moves
        self._limits = limits
        self._seen = -1
        self._not_before_s = 0.0
        self._due_s: float | None = None

    def due(self, changes: int, now_s: float) -> bool:
        """Whether a node to be freed is looked for now; not while promised nodes come."""
        due_s = self.next_due_s(changes)
        return due_s is not None and due_s <= now_s

    def next_due_s(self, changes: int) -> float | None:
        if self._cluster.awaits_nodes or not self._cluster.holders:
            return None
        if self._seen != changes:
            return self._not_before_s
        return None if self._due_s is None else max(self._due_s, self._not_before_s)

    def take(
        self, changes: int, now_s: float, is_open: Callable[[ClusterQueueName], bool], *, waits: bool
    ) -> Emptied | None:
        """The node that is freed now, with the moves; None where there is none. ``waits``: whether any workload could
        take what one that moves leaves.
        """
        self._seen, self._due_s, self._not_before_s = changes, None, now_s + INTERVAL_S
        if waits or any(holder.evicted for holder in self._cluster.holders.values()):
            return None
        left = self._moves.left(now_s)
        if left == 0:
            self._due_s = self._moves.next_s(now_s)
            return None

        def may_move(holder: Holder) -> bool:
            started_s = started_at_s(holder)
            if started_s is None or not is_open(holder.cluster_queue):
                return False
            rested_s = started_s + self._limits.minimum_runtime_s
            if rested_s > now_s:
                self._due_s = rested_s if self._due_s is None else min(self._due_s, rested_s)
                return False
            return True

        return first_emptied(self._cluster, self._assigner, self._reservations, now_s, may_move, left)
