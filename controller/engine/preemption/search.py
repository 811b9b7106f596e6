"""Preemption as the scheduling cycle and the flavor assigner ask for it."""

from collections.abc import Callable

from controller.engine.assignment import Assignment, Possibility
from controller.engine.cluster import Cluster
from controller.engine.incoming import Incoming, Target
from controller.engine.preemption.candidates import Search
from controller.engine.preemption.classical import Classical
from controller.engine.preemption.fair import Fair
from controller.engine.preemption.history import EvictionHistory
from controller.engine.preemption.index import HolderIndex
from controller.engine.preemption.room import Room, room_for
from controller.engine.resources import Amount, FlavorResource, LocalQueueKey


class Preemption:
    """One for a cluster, as long as it lives. Questions change nothing.

    ``local_queue_usage`` is the decayed usage of a LocalQueue, asked for only where admission fair sharing is on.
    """

    def __init__(self, cluster: Cluster, local_queue_usage: Callable[[LocalQueueKey], float]) -> None:
        self._cluster = cluster
        self._local_queue_usage = local_queue_usage
        self.index = HolderIndex(cluster.config)
        for holder in cluster.holders.values():
            self.index.added(holder)
        cluster.observers.append(self.index)
        self.history = EvictionHistory(cluster)
        """Told of evictions and of changes from outside by whoever makes or sees them."""
        self.oracle = Oracle(self)

    def targets(self, incoming: Incoming, assignment: Assignment, now_s: float) -> tuple[Target, ...]:
        """Who would have to go so that the assignment fits; empty when nobody's going makes it fit."""
        frs = tuple(sorted(assignment.preempting()))
        return self.targets_in(incoming, frs, room_for(self._cluster, incoming, assignment), now_s)

    def validate(self) -> None:
        """The index against the holders; DriftError where they differ."""
        self.index.validate(self._cluster.holders)

    def targets_alone(self, incoming: Incoming, fr: FlavorResource, amount: Amount, now_s: float) -> tuple[Target, ...]:
        """Who would have to go if this flavor-resource were all that is asked for, wherever its pods may run."""
        room = Room(self._cluster, incoming.queue.node, {fr: amount})
        return self.targets_in(incoming, (fr,), room, now_s)

    def borrow_level_without(
        self, targets: tuple[Target, ...], incoming: Incoming, fr: FlavorResource, amount: Amount
    ) -> int:
        """The height of the smallest subtree whose own quota holds the request once the targets are gone."""
        with self._cluster.trial():
            for target in targets:
                self._cluster.quota.remove_usage(target.holder.cluster_queue, target.holder.usage)
            return incoming.queue.node.borrow_level(fr, amount).height

    def targets_in(
        self, incoming: Incoming, frs: tuple[FlavorResource, ...], room: Room, now_s: float
    ) -> tuple[Target, ...]:
        if not frs:
            return ()
        config = self._cluster.config
        barred = self.history.barred(incoming) if config.beyond.no_eviction_cycles else frozenset()
        search = Search(self._cluster, self.index, incoming, frs, now_s, self._local_queue_usage, barred)
        if config.fair_sharing is not None:
            return Fair(search, room, config.fair_sharing).targets()
        return Classical(search, room).targets()


class Oracle:
    """What the flavor assigner asks before it settles on a flavor (fact 10 of the corpus)."""

    def __init__(self, preemption: Preemption) -> None:
        self._preemption = preemption
        self.now_s = 0.0
        """The time of the scheduling cycle: whoever runs cycles sets it first."""

    def simulate(self, incoming: Incoming, fr: FlavorResource, amount: Amount) -> tuple[Possibility, int]:
        """What preemption could do for this flavor-resource alone, and the borrow level it would leave."""
        targets = self._preemption.targets_alone(incoming, fr, amount, self.now_s)
        level = self._preemption.borrow_level_without(targets, incoming, fr, amount)
        if not targets:
            return Possibility.NO_CANDIDATES, level
        own = any(target.holder.cluster_queue == incoming.queue.name for target in targets)
        return Possibility.PREEMPT if own else Possibility.RECLAIM, level
