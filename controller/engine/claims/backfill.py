"""Conservative backfill (kept under ``tessera.backfill: conservative``): who may pass a blocked head of a queue.

The first workload of a ClusterQueue that cannot run now gets a reservation: the earliest time at which it fits, if all
that runs in its tree ends when it is expected to, and the room it will take then. Whoever is behind it in its queue, or
would borrow from its tree, passes only if the reservation still holds with it: it ends before that time, or leaves
enough room at that time. A workload of another queue that stays within that queue's own quota always passes: it takes
what is its own. A head whose start cannot be known reserves nothing.

Lifka, "The ANL/IBM SP scheduling system" (1995), and Mu'alem and Feitelson (2001) describe the method on one pool; here
the pool is a quota tree with flavors, and the test is the engine's own assignment inside a trial.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Protocol

import msgspec

from controller.engine.claims.runtimes import ends_at_s, runtime_s, would_end_s
from controller.engine.cluster.cluster import Cluster, DriftError
from controller.engine.cluster.incoming import Incoming
from controller.engine.flavors.assignment import Assignment, Mode
from controller.engine.model.resources import Amount, ClusterQueueName, FlavorResource, WorkloadKey
from controller.engine.queues.pending import OrderKey
from controller.engine.quota.queuestate import Holder
from controller.engine.quota.quotanode import QuotaNode

Sums = dict[ClusterQueueName, dict[FlavorResource, Amount]]


class Assigner(Protocol):
    """``controller.engine.flavors.assigner.FlavorAssigner``, as far as it is asked here."""

    def assign(self, incoming: Incoming) -> Assignment: ...


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """``usage`` is kept for ``key`` from ``start_s`` (seconds since 1970) on."""

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    order: OrderKey
    start_s: float
    usage: dict[FlavorResource, Amount]


class ExpectedEnds:
    """Holders whose end is known, the soonest first; observes the cluster, trials included."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, WorkloadKey]] = []
        self._holders: dict[WorkloadKey, Holder] = {}
        self.version = 0
        """Moves on with every holder that comes or goes and counts here."""

    def added(self, holder: Holder) -> None:
        end_s = self._end_s(holder)
        if end_s is not None:
            insort(self._ends, (end_s, holder.key))
            self._holders[holder.key] = holder
            self.version += 1

    def removed(self, holder: Holder) -> None:
        if self._holders.pop(holder.key, None) is not None:
            end_s = self._end_s(holder)
            del self._ends[bisect_left(self._ends, (end_s or 0.0, holder.key))]
            self.version += 1

    def changed(self, known: Holder, holder: Holder) -> None:
        if self._end_s(known) != self._end_s(holder):
            self.removed(known)
            self.added(holder)
        elif holder.key in self._holders:
            self._holders[holder.key] = holder

    def __len__(self) -> int:
        return len(self._ends)

    def until(self, until_s: float, now_s: float) -> Iterator[tuple[float, Holder]]:
        """Those that go by then, with the time: the overdue first, taken to go a little after now."""
        for end_s, key in self._ends:
            if end_s > until_s:
                return
            holder = self._holders[key]
            yield end_s if end_s > now_s else ends_at_s(holder, now_s) or now_s, holder

    @staticmethod
    def _end_s(holder: Holder) -> float | None:
        lasts_s = runtime_s(holder.info.workload)
        return None if lasts_s is None else holder.reserved_at_s + lasts_s


class Backfill:
    """One reservation at most for a ClusterQueue. Nothing here is written anywhere: a restart makes them anew."""

    def __init__(self, cluster: Cluster, assigner: Assigner) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._ends = ExpectedEnds()
        for holder in cluster.holders.values():
            self._ends.added(holder)
        cluster.observers.append(self._ends)
        self._reservations: dict[ClusterQueueName, Reservation] = {}
        self._queue_of: dict[WorkloadKey, ClusterQueueName] = {}
        """Where each workload that has a reservation has it."""
        self._trees: dict[int, list[ClusterQueueName]] = {}
        """By its root's identity the ClusterQueues of a tree that have reservations, by name; see ``_in_tree``."""
        self._trees_of: int | None = None
        self._left: tuple[tuple[object, ...], Sums] | None = None
        """What had gone at the last time that was asked for: many who wait are asked about one reservation."""

    def __len__(self) -> int:
        return len(self._reservations)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._reservations.values())

    def of(self, name: ClusterQueueName) -> Reservation | None:
        return self._reservations.get(name)

    def block(self, incoming: Incoming, order: OrderKey, now_s: float) -> Reservation | None:
        """The workload cannot run now. The first of its queue gets a reservation, renewed each time it is tried."""
        name = incoming.queue.name
        known = self._reservations.get(name)
        if known is not None and known.key != incoming.key and known.order <= order:
            return known
        made = self._earliest(incoming, order, now_s)
        if made is None:
            if known is not None:
                self._forget(known)
            return None
        if known is None or known.key != made.key:
            if known is not None:
                self._forget(known)
            self.drop(made.key)
            self._queue_of[made.key] = name
            self._trees_of = None
        self._reservations[name] = made
        return made

    def drop(self, key: WorkloadKey) -> ClusterQueueName | None:
        """The workload was admitted or went away: its ClusterQueue, if it had a reservation there."""
        name = self._queue_of.get(key)
        if name is not None:
            self._forget(self._reservations[name])
        return name

    def held_back_by(
        self, incoming: Incoming, order: OrderKey, assignment: Assignment, now_s: float
    ) -> Reservation | None:
        """The first reservation that admitting this workload now would break; None when it may pass."""
        if not self._reservations:
            return None
        for name in self._in_tree(incoming.queue.node.root()):
            one, queue = self._reservations[name], self._cluster.queues[name]
            if one.key == incoming.key:
                continue
            if name == incoming.queue.name:
                if order < one.order:
                    continue  # it goes first by right
            elif assignment.borrowing == 0:
                continue
            if self._breaks(one, queue.node, incoming, assignment, now_s):
                return one
        return None

    def validate(self) -> None:
        """DriftError where a workload's reservation is not where it is looked for."""
        kept = {one.key: name for name, one in self._reservations.items()}
        if kept != self._queue_of:
            raise DriftError(f"reservations are kept for {kept} and known as {self._queue_of}")
        listed = {name for names in self._trees.values() for name in names}
        held = self._reservations.keys() & self._cluster.queues.keys()
        if self._trees_of == self._cluster.quota.generation and listed != held:
            raise DriftError(f"reservations are kept in {sorted(held)}, and listed by tree in {sorted(listed)}")

    def _forget(self, one: Reservation) -> None:
        del self._reservations[one.cluster_queue], self._queue_of[one.key]
        self._trees_of = None

    def _in_tree(self, root: QuotaNode) -> list[ClusterQueueName]:
        """The ClusterQueues of this tree that have reservations; many are asked about in one cycle."""
        generation = self._cluster.quota.generation
        if self._trees_of != generation:
            self._trees = {}
            for name in sorted(self._reservations):
                queue = self._cluster.queues.get(name)
                if queue is not None:
                    self._trees.setdefault(id(queue.node.root()), []).append(name)
            self._trees_of = generation
        return self._trees.get(id(root), [])

    def _breaks(
        self, reservation: Reservation, node: QuotaNode, incoming: Incoming, assignment: Assignment, now_s: float
    ) -> bool:
        end_s = would_end_s(incoming.info, now_s)
        if (math.inf if end_s is None else end_s) <= reservation.start_s:
            return False
        with self._cluster.trial():
            for name, gone in self._gone_by(node, now_s, reservation.start_s).items():
                self._cluster.quota.remove_usage(name, gone)
            if not node.fits(reservation.usage):
                # Something stayed longer or came by right: the reservation is void until its owner is tried again.
                return False
            self._cluster.quota.add_usage(incoming.queue.name, assignment.usage)
            return not node.fits(reservation.usage)

    def _earliest(self, incoming: Incoming, order: OrderKey, now_s: float) -> Reservation | None:
        """Let those that run go in the order of their ends until the workload fits: by doubling steps, then halving."""
        node = incoming.queue.node
        leaving = self._leaving(node, now_s, math.inf) if self._ends else []
        low, high, fits = 0, 1, None
        while fits is None and low < len(leaving):
            high = min(max(high, low + 1), len(leaving))
            fits = self._fit_without(incoming, leaving[:high])
            if fits is None:
                low, high = high, 2 * high
        if fits is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            found = self._fit_without(incoming, leaving[:middle])
            if found is None:
                low = middle
            else:
                high, fits = middle, found
        return Reservation(
            key=incoming.key,
            cluster_queue=incoming.queue.name,
            order=order,
            start_s=leaving[high - 1][0],
            usage=dict(fits.usage),
        )

    def _fit_without(self, incoming: Incoming, gone: list[tuple[float, Holder]]) -> Assignment | None:
        with self._cluster.trial():
            for _, holder in gone:
                # Their sums alone would not do: the assigner asks who may be made to go, and these have gone.
                self._cluster.remove_holder(holder.key)
            found = self._assigner.assign(incoming)
        return found if found.mode is Mode.FIT else None

    def _gone_by(self, node: QuotaNode, now_s: float, at_s: float) -> Sums:
        """What those who leave this tree by then hold now, by ClusterQueue."""
        asked = (self._ends.version, id(node.root()), node.quota_generation(), now_s, at_s)
        if self._left is None or self._left[0] != asked:
            sums: Sums = {}
            for _, holder in self._leaving(node, now_s, at_s):
                total = sums.setdefault(holder.cluster_queue, {})
                for fr, amount in holder.usage.items():
                    total[fr] = total.get(fr, 0) + amount
            self._left = (asked, sums)
        return self._left[1]

    def _leaving(self, node: QuotaNode, now_s: float, until_s: float) -> list[tuple[float, Holder]]:
        root, queues = node.root(), self._cluster.queues
        found = [one for one in self._ends.until(until_s, now_s) if queues[one[1].cluster_queue].node.root() is root]
        return sorted((one for one in found if one[0] <= until_s), key=lambda one: (one[0], one[1].key))
