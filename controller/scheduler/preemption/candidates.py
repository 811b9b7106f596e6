"""Candidates for preemption, best victim first, found without visiting more of them than are taken.

``VictimSearch`` says what is contested and for which workload, ``CandidateLimits`` which priorities a policy gives up,
``Walker`` goes through the holders of one ClusterQueue in the order

    already evicted, [LocalQueue usage, highest first], lowest priority, [least lost time], newest, UID

where the brackets mark keys of admission fair sharing and of ``victimOrder: leastLost``.

A question's structs have ``gc=False``: they are made for every try, in 42 ns in place of 76.

Sources: KEP-83, KEP-1337, KEP-4136. No candidate comes twice, and none that a policy keeps. A search costs a step of a
heap for each candidate that it takes, one comparison for each rank that it passes over, and under ``leastLost`` a look
at each holder that tells of its checkpoints in the ranks that it walks.
"""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec

from controller.objects.queues import ReclaimWithinCohortPolicy, WithinClusterQueuePolicy
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.model.resources import Amount, ClusterQueueName, FlavorResource, LocalQueueKey, WorkloadKey
from controller.scheduler.preemption.index import HolderIndex, HolderKind, Rank, RankEntry, started_at_s
from controller.scheduler.preemption.price import lost_s, restart_s
from controller.scheduler.quota.queuestate import Holder, QueueState

Order = tuple[bool, int, float, float, float, str, WorkloadKey]
"""(not evicted, priority, lost GPU-time, lost CPU-time, newest, UID, key): the sort key across the candidates of
several queues.
"""


class CandidateLimits(msgspec.Struct, frozen=True, gc=False):
    """The holders that a policy gives up: priorities below ``below`` (None: all), and at ``below`` those that queued
    later than ``newer_than_s``.
    """

    below: int | None
    newer_than_s: float | None = None

    def admits(self, priority: int) -> bool:
        return self.below is None or priority < self.below or (priority == self.below and self.newer_than_s is not None)


def limits_within(policy: WithinClusterQueuePolicy | None, incoming: Incoming) -> CandidateLimits | None:
    """The holders that ``withinClusterQueue`` gives up to the incoming workload; None: no holder."""
    if policy == "LowerPriority":
        return CandidateLimits(incoming.priority)
    if policy == "LowerOrNewerEqualPriority":
        return CandidateLimits(incoming.priority, incoming.queued_at_s)
    return None


def limits_reclaim(policy: ReclaimWithinCohortPolicy | None, incoming: Incoming) -> CandidateLimits | None:
    """The holders that ``reclaimWithinCohort`` gives up to the incoming workload; None: no holder."""
    if policy == "LowerPriority":
        return CandidateLimits(incoming.priority)
    return CandidateLimits(None) if policy == "Any" else None


class Candidate(NamedTuple):
    order: Order
    holder: Holder
    kind: HolderKind


class Told(NamedTuple):
    """A holder that tells of its checkpoints, with its place in the order."""

    order: Order
    kind: HolderKind
    entry: RankEntry


class VictimSearch(msgspec.Struct, frozen=True, gc=False):
    """One question: the victims that ``incoming`` needs to get ``frs``. ``barred`` may not be evicted, whatever policy
    says; see ``EvictionHistory``.
    """

    cluster: Cluster
    index: HolderIndex
    incoming: Incoming
    frs: tuple[FlavorResource, ...]
    now_s: float
    local_queue_usage: Callable[[LocalQueueKey], float]
    barred: Collection[WorkloadKey] = ()
    is_open: Callable[[ClusterQueueName], bool] = lambda _: True
    """Whether a ClusterQueue is active: workloads of an inactive one are no candidates."""
    _told: dict[int, list[list[Told]]] = {}
    """The results of ``told`` by the rank's identity: every walk of this question asks for the same."""

    def told(self, rank: Rank) -> list[list[Told]]:
        """The holders of the rank that tell of their checkpoints, sorted, a list for each usage."""
        lists = self._told.get(id(rank))
        if lists is None:
            by_usage: dict[object, list[Told]] = {}
            for kind, entries in rank.kinds.items():
                if kind.alone is not None:
                    some = by_usage.setdefault(kind.usage, [])
                    some += (Told(self.order(rank, kind, entry), kind, entry) for entry in entries)
            lists = self._told[id(rank)] = [sorted(some) for some in by_usage.values()]
        return lists

    def has_candidates(self, queue: QueueState, limits: CandidateLimits) -> bool:
        """Whether the queue has a holder within the limits."""
        for fr in self.frs:
            for ranks in self.index.ranks(queue.name, fr).values():
                for rank in ranks:
                    if limits.admits(rank.order[1]):
                        return True
        return False

    def total(self, queue: QueueState, limits: CandidateLimits) -> dict[FlavorResource, Amount]:
        """What the queue's holders within the limits hold of the contested flavor-resources: an upper bound of what can
        be freed.
        """
        totals: dict[FlavorResource, Amount] = {}
        for fr in self.frs:
            ranks = (rank for some in self.index.ranks(queue.name, fr).values() for rank in some)
            total = sum(rank.total for rank in ranks if limits.admits(rank.priority))
            if total:
                totals[fr] = total
        return totals

    def ranks(self, queue: QueueState, limits: CandidateLimits, evicted: bool | None) -> Iterator[list[Rank]]:
        """The ranks within the limits, best victims first; ranks of equal place come together."""
        config = self.cluster.config
        by_usage = config.admission_fair_sharing is not None and queue.policies.usage_based_admission
        lists = []
        for fr in self.frs:
            for local_queue, ranks in self.index.ranks(queue.name, fr).items():
                usage = self.local_queue_usage(local_queue) if by_usage and local_queue else 0.0
                lists.append(_within(ranks, limits, evicted, -usage))
        merged = lists[0] if len(lists) == 1 else heapq.merge(*lists, key=itemgetter(0))
        for _, group in groupby(merged, key=itemgetter(0)):
            yield [rank for _, rank in group]

    def protected_until_s(self, entry: RankEntry, kind: HolderKind, queue: QueueState) -> float:
        """The end of the holder's minimum runtime, in seconds since 1970; minus infinity for a holder that has none."""
        minimum = self.cluster.config.extensions.minimum_runtime
        if minimum is None or kind.runs_as is None or (started_s := started_at_s(entry.holder)) is None:
            return -math.inf
        minimum_s = minimum.of(kind.runs_as, queue_s=queue.policies.minimum_runtime_s)
        return started_s + minimum_s if minimum_s > 0 else -math.inf

    def protection_ends_s(self, queue: QueueState, limits: CandidateLimits) -> float:
        """The time at which the first of the queue's holders within the limits will have run for its minimum; infinity
        for none.
        """
        minimum, first_s = self.cluster.config.extensions.minimum_runtime, math.inf
        if minimum is not None and minimum.protects(queue_s=queue.policies.minimum_runtime_s):
            for rank in chain.from_iterable(self.ranks(queue, limits, evicted=False)):
                for name in rank.runs_as():
                    minimum_s = minimum.of(name, queue_s=queue.policies.minimum_runtime_s)
                    started_s = rank.started_after(name, self.now_s - minimum_s) if minimum_s > 0 else None
                    if started_s is not None:
                        first_s = min(first_s, started_s + minimum_s)
        return first_s

    def order(self, rank: Rank, kind: HolderKind, entry: RankEntry) -> Order:
        return (*rank.order, *self._loss(kind, entry), entry.newest_s, entry.uid, entry.key)

    def loss(self, holder: Holder) -> tuple[float, float]:
        """What the holder loses if it stops now: GPU-seconds, or without GPUs milli-CPU-seconds."""
        return self._loss(*self.index.entry(holder))

    def _loss(self, kind: HolderKind, entry: RankEntry) -> tuple[float, float]:
        if kind.checkpoints is None:
            for_s = max(0.0, self.now_s + entry.newest_s)
        else:
            for_s = lost_s(kind.checkpoints, -entry.newest_s, self.now_s) + restart_s(kind.checkpoints)
        return kind.gpus * for_s, kind.milli_cpus * for_s

    def usage_rank(self, holder: Holder) -> float:
        """Minus the usage of the holder's LocalQueue where that decides on the order, else 0."""
        queue = self.cluster.queue(holder.cluster_queue)
        if self.cluster.config.admission_fair_sharing is None or not queue.policies.usage_based_admission:
            return 0.0
        return -self.local_queue_usage(holder.local_queue)

    def lacking(self, usage: Mapping[FlavorResource, Amount]) -> dict[FlavorResource, Amount]:
        """How much of the contested flavor-resources has to be freed at least for this usage to fit."""
        node = self.incoming.queue.node
        missing = {fr: usage.get(fr, 0) - node.available(fr) for fr in self.frs}
        return {fr: amount for fr, amount in missing.items() if amount > 0}


def _within(
    ranks: Iterable[Rank], limits: CandidateLimits, evicted: bool | None, usage: float
) -> Iterator[tuple[tuple[bool, float, int], Rank]]:
    for rank in ranks:
        if evicted is True and not rank.evicted:
            return
        if evicted is False and rank.evicted:
            continue
        if limits.admits(rank.priority):
            yield (rank.order[0], usage, rank.priority), rank
        elif not rank.evicted:
            return


class _Cursor:
    """The next candidate in one list of a rank. ``after(order)`` starts anew behind that order."""

    def __init__(self, rank: Rank, kind: HolderKind, start: Callable[[Order | None], Iterator[RankEntry]]) -> None:
        self.rank = rank
        self.kind = kind
        self._open = start
        self._rest = start(None)

    def next(self) -> RankEntry | None:
        return next(self._rest, None)

    def after(self, order: Order) -> None:
        self._rest = self._open(order)


class _ToldCursor(_Cursor):
    """Holders that tell of their checkpoints and hold the same: each has a kind of its own, ``kind`` is the last
    one's.
    """

    def __init__(self, rank: Rank, told: list[Told]) -> None:
        self._told = told
        super().__init__(rank, told[0].kind, lambda _: iter(()))
        self._left = iter(told)

    def next(self) -> RankEntry | None:
        candidate = next(self._left, None)
        if candidate is None:
            return None
        self.kind = candidate.kind
        return candidate.entry

    def after(self, order: Order) -> None:
        self._left = iter([each for each in self._told if each.order > order])


class Walker:
    """The candidates of one ClusterQueue, each once.

    Invariants: the cluster's holders and the index stay as they are while it walks; trials may change only sums. Each
    cursor of the current ranks is in ``_heap``, in ``_aside``, or exhausted. ``_ranks`` yields the later ranks.
    """

    def __init__(
        self,
        search: VictimSearch,
        queue: QueueState,
        limits: CandidateLimits,
        *,
        evicted: bool | None = None,
        without: Collection[WorkloadKey] = (),
    ) -> None:
        """``without``: holders that are no candidates; the collection itself is kept, not copied."""
        self.queue = queue
        self._without = without
        self._search = search
        self._limits = limits
        self._ranks = search.ranks(queue, limits, evicted)
        self._heap: list[tuple[Order, int, RankEntry, _Cursor]] = []
        self._aside: list[_Cursor] = []
        self._opened = 0

    def peek(self) -> Candidate | None:
        while not self._heap:
            ranks = next(self._ranks, None)
            if ranks is None:
                return None
            self._aside.clear()
            for rank in ranks:
                for cursor in self._cursors(rank):
                    self._push(cursor)
        order, _, entry, cursor = self._heap[0]
        return Candidate(order, entry.holder, cursor.kind)

    def pop(self) -> Candidate | None:
        candidate = self.peek()
        # A holder of two contested flavor-resources is in a list of each, with the same order in both.
        while self._heap and candidate is not None and self._heap[0][0] == candidate.order:
            cursor = heapq.heappop(self._heap)[3]
            self._push(cursor)
        return candidate

    def pass_over(self, kind: HolderKind) -> None:
        """Leave out candidates of the current rank that hold what this kind holds, until ``resume``."""
        stay = [item for item in self._heap if item[3].kind.usage != kind.usage]
        if len(stay) < len(self._heap):
            self._aside += [item[3] for item in self._heap if item[3].kind.usage == kind.usage]
            heapq.heapify(stay)
            self._heap = stay

    def resume(self, taken: Candidate) -> None:
        """Make skipped candidates that come after ``taken`` candidates again; those before it stay out."""
        aside, self._aside = self._aside, []
        for cursor in aside:
            cursor.after(taken.order)
            self._push(cursor)

    def _push(self, cursor: _Cursor) -> None:
        while (entry := cursor.next()) is not None:
            if self._may_be_evicted(entry, cursor.rank, cursor.kind):
                self._opened += 1
                order = self._search.order(cursor.rank, cursor.kind, entry)
                heapq.heappush(self._heap, (order, self._opened, entry, cursor))
                return

    def _may_be_evicted(self, entry: RankEntry, rank: Rank, kind: HolderKind) -> bool:
        limits = self._limits
        if self._without and entry.key in self._without:
            return False
        if rank.priority == limits.below and (
            limits.newer_than_s is None or entry.holder.queued_at_s <= limits.newer_than_s
        ):
            return False
        replaced = self._search.incoming.replaces
        if replaced is not None and replaced.key == entry.key:
            return False
        if entry.holder.evicted:
            return True
        return (
            entry.key not in self._search.barred
            and self._search.protected_until_s(entry, kind, self.queue) <= self._search.now_s
        )

    def _cursors(self, rank: Rank) -> Iterator[_Cursor]:
        search, limits = self._search, self._limits
        newer: list[WorkloadKey] | None = None
        if rank.priority == limits.below and limits.newer_than_s is not None:
            newer = rank.queued_after(limits.newer_than_s)
        if newer is not None:
            for kind, entries in self._sorted(newer).items():
                yield _Cursor(rank, kind, _from_list(entries, _key(search, rank, kind)))
            return
        for kind in rank.kinds:
            if kind.alone is None:
                yield _Cursor(rank, kind, self._from_chunks(rank, kind))
        for told in search.told(rank):
            yield _ToldCursor(rank, told)

    def _sorted(self, keys: Iterable[WorkloadKey]) -> Mapping[HolderKind, list[RankEntry]]:
        kinds: dict[HolderKind, list[RankEntry]] = {}
        for key in keys:
            kind, entry = self._search.index.entry(self._search.cluster.holders[key])
            kinds.setdefault(kind, []).append(entry)
        for entries in kinds.values():
            entries.sort()
        return kinds

    def _from_chunks(self, rank: Rank, kind: HolderKind) -> Callable[[Order | None], Iterator[RankEntry]]:
        search, chunks = self._search, rank.kinds[kind]
        minimum = search.cluster.config.extensions.minimum_runtime
        oldest_s = -math.inf
        if kind.runs_as is not None and minimum is not None:
            # No earlier entry has run long enough: admission never comes before reservation.
            minimum_s = minimum.of(kind.runs_as, queue_s=self.queue.policies.minimum_runtime_s)
            if minimum_s > 0:
                oldest_s = math.nextafter(minimum_s - search.now_s, -math.inf)

        def start(order: Order | None) -> Iterator[RankEntry]:
            if order is not None:
                return chunks.after(order, _key(search, rank, kind))
            return iter(chunks) if oldest_s == -math.inf else chunks.after(oldest_s, itemgetter(0))

        return start


def _key(search: VictimSearch, rank: Rank, kind: HolderKind) -> Callable[[RankEntry], Order]:
    return lambda entry: search.order(rank, kind, entry)


def _from_list(
    entries: list[RankEntry], key: Callable[[RankEntry], Order]
) -> Callable[[Order | None], Iterator[RankEntry]]:
    return lambda order: iter(entries if order is None else [entry for entry in entries if key(entry) > order])
