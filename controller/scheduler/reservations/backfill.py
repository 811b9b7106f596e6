"""Conservative backfill (``tessera.backfill: conservative``): which workloads may pass a blocked head of a queue.

The first workload of a ClusterQueue that cannot run now gets a reservation: the earliest time at which it fits, if all
that runs in its tree ends when it is expected to, and the quota that it will take then. A workload behind it in its
queue, or one that would borrow in its tree, passes only if the reservation still holds with it: it ends before that
time, or leaves enough quota at that time. A workload of another queue that stays within that queue's own quota always
passes: it could reclaim that quota anyway. A head whose start cannot be known reserves nothing.

Lifka, "The ANL/IBM SP scheduling system" (1995), and Mu'alem and Feitelson (2001) describe the method on one pool; here
the pool is a quota tree with flavors, and the test is the engine's own assignment inside a trial.

Invariant: no workload that passes delays the start that the head's reservation says, as far as run times are known. A
reservation costs a sort of the expected ends of its tree and an assignment for each doubling and halving of their
number; a workload that would pass costs one trial of quota.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

import msgspec

from controller.scheduler.cluster.cluster import Cluster, DriftError
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Assignment, Mode
from controller.scheduler.model.config import BackfillPolicy
from controller.scheduler.model.resources import Amount, ClusterQueueName, FlavorResource, WorkloadKey
from controller.scheduler.model.toldtimes import runtime_s
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import OrderKey
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.reservations.runtimes import ends_at_s, would_end_s

Sums = dict[ClusterQueueName, dict[FlavorResource, Amount]]


class BackfillReservation(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation: ``usage`` is kept for ``key`` from ``start_s`` (seconds since 1970) on."""

    key: WorkloadKey
    cluster_queue: ClusterQueueName
    order: OrderKey
    start_s: float
    usage: dict[FlavorResource, Amount]


class ExpectedEnds:
    """Holders whose end is known, the soonest first. Observes the cluster, trials included. ``_ends`` is sorted and
    names just the keys of ``_holders``; holders of unknown length are in neither.
    """

    def __init__(self) -> None:
        self._ends: list[tuple[float, WorkloadKey]] = []
        self._holders: dict[WorkloadKey, Holder] = {}
        self.version = 0
        """A number that grows with every holder of known end that comes or goes."""

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
        """The holders that end by ``until_s``, each with its end. Overdue ones come first, and are taken to end a
        little after now.
        """
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
    """The reservations, at most one for a ClusterQueue and one for a workload. None is written to an object: after a
    restart they are made anew.

    Invariants, which ``validate`` checks:

    - ``_queue_of`` is the inverse of ``_reservations``: both change together.
    - ``_by_tree`` lists the keys of ``_reservations`` while ``_by_tree_at`` is the generation of the quota tree, and is
      outdated otherwise: each change of the keys of ``_reservations`` sets that to None.
    """

    def __init__(self, cluster: Cluster, assigner: FlavorAssigner) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._ends = ExpectedEnds()
        for holder in cluster.holders.values():
            self._ends.added(holder)
        cluster.observe(self._ends)
        self._reservations: dict[ClusterQueueName, BackfillReservation] = {}
        self._queue_of: dict[WorkloadKey, ClusterQueueName] = {}
        self._by_tree: dict[int, list[ClusterQueueName]] = {}
        """The ClusterQueues with reservations in each tree, sorted by name, by the identity of the tree's root; see
        ``_in_tree``.
        """
        self._by_tree_at: int | None = None
        self._left: tuple[tuple[object, ...], Sums] | None = None
        """The last answer of ``_gone_by`` with its question: one reservation is asked about for many heads."""

    def __iter__(self) -> Iterator[BackfillReservation]:
        return iter(self._reservations.values())

    def of(self, name: ClusterQueueName) -> BackfillReservation | None:
        return self._reservations.get(name)

    def reserve(self, entries: Iterable[Entry], now_s: float) -> None:
        """Give reservations to those heads nominated in a cycle that cannot run now and have no victims."""
        for entry in entries:
            if entry.assignment.mode is not Mode.FIT and not entry.targets and entry.pending is not None:
                self.block(entry.incoming, entry.pending.order(), now_s)

    def block(self, incoming: Incoming, order: OrderKey, now_s: float) -> BackfillReservation | None:
        """Take in that the workload cannot run now. The first such workload of its queue gets a reservation, renewed
        each time it is tried. Returns the queue's reservation.
        """
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
            self._by_tree_at = None
        self._reservations[name] = made
        return made

    def drop(self, key: WorkloadKey) -> ClusterQueueName | None:
        """Drop the reservation of a workload that was admitted or went away. Returns its ClusterQueue if it had one."""
        name = self._queue_of.get(key)
        if name is not None:
            self._forget(self._reservations[name])
        return name

    def broken_by(self, entry: Entry, now_s: float) -> BackfillReservation | None:
        """The first reservation that admitting the entry now would break. A preemptor's admission is held against none:
        policy entitles it to what it takes.
        """
        if not self._reservations or entry.pending is None or entry.targets:
            return None
        return self.held_back_by(entry.incoming, entry.pending.order(), entry.assignment, now_s)

    def held_back_by(
        self, incoming: Incoming, order: OrderKey, assignment: Assignment, now_s: float
    ) -> BackfillReservation | None:
        """The first reservation that admitting this workload now would break; None when it may pass."""
        for name in self._in_tree(incoming.queue.node.root()):
            reservation, queue = self._reservations[name], self._cluster.queues[name]
            if reservation.key == incoming.key:
                continue
            if name == incoming.queue.name:
                if order < reservation.order:
                    continue  # the workload comes before the reservation's owner
            elif assignment.borrowing == 0:
                continue
            if self._breaks(reservation, queue.node, incoming, assignment, now_s):
                return reservation
        return None

    def validate(self) -> None:
        """DriftError where the indexes of reservations do not agree."""
        kept = {reservation.key: name for name, reservation in self._reservations.items()}
        if kept != self._queue_of:
            raise DriftError(f"reservations are kept for {kept} and known as {self._queue_of}")
        listed = {name for names in self._by_tree.values() for name in names}
        held = self._reservations.keys() & self._cluster.queues.keys()
        if self._by_tree_at == self._cluster.quota.generation and listed != held:
            raise DriftError(f"reservations are kept in {sorted(held)}, and listed by tree in {sorted(listed)}")

    def _forget(self, reservation: BackfillReservation) -> None:
        del self._reservations[reservation.cluster_queue], self._queue_of[reservation.key]
        self._by_tree_at = None

    def _in_tree(self, root: QuotaNode) -> list[ClusterQueueName]:
        """The ClusterQueues of this tree that have reservations; a cycle asks for each of its heads."""
        if not self._reservations:
            return []
        generation = self._cluster.quota.generation
        if self._by_tree_at != generation:
            self._by_tree = {}
            for name in sorted(self._reservations):
                queue = self._cluster.queues.get(name)
                if queue is not None:
                    self._by_tree.setdefault(id(queue.node.root()), []).append(name)
            self._by_tree_at = generation
        return self._by_tree.get(id(root), [])

    def _breaks(
        self,
        reservation: BackfillReservation,
        node: QuotaNode,
        incoming: Incoming,
        assignment: Assignment,
        now_s: float,
    ) -> bool:
        end_s = would_end_s(incoming.info, now_s)
        if (math.inf if end_s is None else end_s) <= reservation.start_s:
            return False
        with self._cluster.trial():
            for name, gone in self._gone_by(node, now_s, reservation.start_s).items():
                self._cluster.quota.remove_usage(name, gone)
            if not node.fits(reservation.usage):
                # A holder stayed longer, or one was admitted that may pass: the reservation is void until its owner is
                # tried again.
                return False
            self._cluster.quota.add_usage(incoming.queue.name, assignment.usage)
            return not node.fits(reservation.usage)

    def _earliest(self, incoming: Incoming, order: OrderKey, now_s: float) -> BackfillReservation | None:
        """The reservation for the first expected end after which the workload fits, all earlier ends included. It is
        found by doubling the number of ends, then by halving. None where it never fits.
        """
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
            reservation = self._fit_without(incoming, leaving[:middle])
            if reservation is None:
                low = middle
            else:
                high, fits = middle, reservation
        return BackfillReservation(
            key=incoming.key,
            cluster_queue=incoming.queue.name,
            order=order,
            start_s=leaving[high - 1][0],
            usage=dict(fits.usage),
        )

    def _fit_without(self, incoming: Incoming, gone: list[tuple[float, Holder]]) -> Assignment | None:
        with self._cluster.trial():
            for _, holder in gone:
                # It is not enough to subtract their usage: the assigner would find them as candidates for preemption.
                self._cluster.remove_holder(holder.key)
            found = self._assigner.assign(incoming)
        return found if found.mode is Mode.FIT else None

    def _gone_by(self, node: QuotaNode, now_s: float, at_s: float) -> Sums:
        """What holders of this tree that are expected to end by ``at_s`` hold now, by ClusterQueue."""
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
        expected = [
            (end_s, holder)
            for end_s, holder in self._ends.until(until_s, now_s)
            if end_s <= until_s and queues[holder.cluster_queue].node.root() is root
        ]
        return sorted(expected, key=lambda leaving: (leaving[0], leaving[1].key))


class NoBackfill:
    """The policy ``backfill: none``, which is Kueue's: no head gets a reservation."""

    def __iter__(self) -> Iterator[BackfillReservation]:
        return iter(())

    def reserve(self, entries: Iterable[Entry], now_s: float) -> None: ...

    def broken_by(self, entry: Entry, now_s: float) -> None: ...

    def drop(self, key: WorkloadKey) -> None: ...

    def validate(self) -> None: ...


def backfill_for(cluster: Cluster, assigner: FlavorAssigner) -> Backfill | NoBackfill:
    on = cluster.config.extensions.backfill is BackfillPolicy.CONSERVATIVE
    return Backfill(cluster, assigner) if on else NoBackfill()
