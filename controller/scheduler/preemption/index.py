"""The holders of quota in the order in which they are candidates, so that a search visits few of them.

For each ClusterQueue and flavor-resource the holders are in ranks (already evicted first, then by priority), inside a
rank in kinds (holders that differ only in their time), inside a kind newest first. The sum of what a rank holds is
kept: whether a request could fit at all costs one comparison for each rank.

Most questions end with that. So a holder is sorted into its rank only when a search walks the rank for the first time
since the holder came; a holder that has left by then is never sorted.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from controller.objects.meta import epoch_s, find_condition
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.model.config import EngineConfig, VictimOrder
from controller.scheduler.model.resources import (
    CPU,
    Amount,
    ClusterQueueName,
    FlavorResource,
    LocalQueueKey,
    WorkloadKey,
    is_gpu,
)
from controller.scheduler.preemption.chunks import Chunks
from controller.scheduler.preemption.price import Checkpoints, checkpoints_of
from controller.scheduler.quota.queuestate import Holder

_FEW: Final = 64

ANY_QUEUE: Final = LocalQueueKey("")


class RankEntry(NamedTuple):
    """One holder in one rank; entries compare newest first, then by UID."""

    newest_s: float
    """Minus the time that decides on the order, in seconds since 1970."""
    uid: str
    key: WorkloadKey
    holder: Holder


class HolderKind(NamedTuple):
    """What holders of one list in a rank have in common.

    ``gpus`` and ``milli_cpus`` weigh lost time and are 0 where it is not asked for; ``runs_as`` is the priority class
    whose minimum runtime protects the holders, None where none does; ``usage`` differs only under fair sharing, where
    it decides whether a holder may be evicted. A holder that tells of ``checkpoints`` is ``alone`` in its list, by its
    key: the newest of them need not lose least.
    """

    gpus: Amount = 0
    milli_cpus: Amount = 0
    runs_as: str | None = None
    usage: tuple[tuple[FlavorResource, Amount], ...] = ()
    checkpoints: Checkpoints | None = None
    alone: WorkloadKey | None = None


_ALL_ALIKE: Final = HolderKind()

_Timed = tuple[float, WorkloadKey]


class Rank:
    """Holders of one ClusterQueue (and maybe LocalQueue), flavor-resource, eviction state and priority.

    ``sorts`` returns the kind of a holder and its entry. Invariants: each holder is either in ``_unsorted`` or in one
    list of ``_kinds``; ``_by_queue_time``, once it is made, holds just those of ``_kinds``, and ``_starts`` those of
    them that are protected. No list of ``_kinds`` or ``_starts`` is empty.
    """

    def __init__(self, order: tuple[bool, int], sorts: Callable[[Holder], tuple[HolderKind, RankEntry]]) -> None:
        self.order = order
        """The sort key of ranks: (not evicted, priority)."""
        self.total: Amount = 0
        """How much of the flavor-resource the rank's holders hold."""
        self._sorts = sorts
        self._unsorted: dict[WorkloadKey, Holder] = {}
        """Holders that came since the rank was last walked."""
        self._kinds: dict[HolderKind, Chunks[RankEntry]] = {}
        self._by_queue_time: Chunks[_Timed] | None = None
        self._starts: dict[str, Chunks[_Timed]] = {}
        """Admission times of holders that a minimum runtime protects, by priority class."""

    def __lt__(self, other: "Rank") -> bool:
        return self.order < other.order

    @property
    def evicted(self) -> bool:
        return not self.order[0]

    @property
    def priority(self) -> int:
        return self.order[1]

    def __len__(self) -> int:
        return len(self._unsorted) + sum(map(len, self._kinds.values()))

    def __bool__(self) -> bool:
        return bool(self._unsorted or self._kinds)

    def holders(self) -> Iterator[Holder]:
        """The holders in no particular order; the call sorts nothing."""
        yield from self._unsorted.values()
        for entries in self._kinds.values():
            yield from (entry.holder for entry in entries)

    @property
    def kinds(self) -> Mapping[HolderKind, Chunks[RankEntry]]:
        """All holders of the rank, sorted now if they were not."""
        if self._unsorted:
            unsorted, self._unsorted = self._unsorted, {}
            for holder in unsorted.values():
                self._insert(*self._sorts(holder))
        return self._kinds

    def queued_after(self, time_s: float) -> list[WorkloadKey] | None:
        """The holders that queued after ``time_s``; None when they are so many that walking the rank is as good."""
        kinds, times = self.kinds, self._by_queue_time
        if times is None:
            # Few policies need the list: it is made at the first question, and kept up to date from then on.
            times = self._by_queue_time = Chunks()
            for entries in kinds.values():
                for entry in entries:
                    times.add((entry.holder.queued_at_s, entry.key))
        count = times.count_after(time_s, _time)
        if count > _FEW and count * 8 > len(times):
            return None
        return [key for _, key in times.after(time_s, _time)]

    def started_after(self, runs_as: str, time_s: float) -> float | None:
        """The time at which the first holder of that priority class was admitted after ``time_s``; None without one."""
        starts = self._started().get(runs_as)
        return None if starts is None else next((at_s for at_s, _ in starts.after(time_s, _time)), None)

    def runs_as(self) -> Iterator[str]:
        """The priority classes of holders that a minimum runtime protects."""
        yield from self._started()

    def add(self, holder: Holder, amount: Amount) -> None:
        self._unsorted[holder.info.key] = holder
        self.total += amount

    def remove(self, holder: Holder, amount: Amount) -> None:
        """Remove the holder. KeyError or ValueError where it is not in the rank."""
        if self._unsorted.pop(holder.info.key, None) is None:
            self._take_out(*self._sorts(holder))
        self.total -= amount

    def exchange(self, known: Holder, holder: Holder) -> None:
        """Replace a holder by another of the same workload and the same place in the order."""
        if known.info.key in self._unsorted:
            self._unsorted[known.info.key] = holder
        else:
            kind, entry = self._sorts(holder)
            self._kinds[kind].exchange(self._sorts(known)[1], entry)

    def _started(self) -> Mapping[str, Chunks[_Timed]]:
        return self._starts if self.kinds else {}

    def _insert(self, kind: HolderKind, entry: RankEntry) -> None:
        entries = self._kinds.get(kind)
        if entries is None:
            entries = self._kinds[kind] = Chunks()
        entries.add(entry)
        if self._by_queue_time is not None:
            self._by_queue_time.add((entry.holder.queued_at_s, entry.key))
        if kind.runs_as is not None and (started_s := started_at_s(entry.holder)) is not None:
            self._starts.setdefault(kind.runs_as, Chunks()).add((started_s, entry.key))

    def _take_out(self, kind: HolderKind, entry: RankEntry) -> None:
        entries = self._kinds[kind]
        entries.remove(entry)
        if not entries:
            del self._kinds[kind]
        if self._by_queue_time is not None:
            self._by_queue_time.remove((entry.holder.queued_at_s, entry.key))
        if kind.runs_as is not None and (started_s := started_at_s(entry.holder)) is not None:
            self._starts[kind.runs_as].remove((started_s, entry.key))
            if not self._starts[kind.runs_as]:
                del self._starts[kind.runs_as]


Ranks = list[Rank]
_Place = tuple[ClusterQueueName, FlavorResource]
_RankKey = tuple[ClusterQueueName, FlavorResource, LocalQueueKey, tuple[bool, int]]


class HolderIndex:
    """Observes a ``Cluster``: it is called for every holder that comes or goes, undone trials included.

    Invariants, which ``validate`` checks: ``_ranks`` and ``_rank_of`` hold the same ranks, none of them empty, and
    ``_ranks`` keeps each list sorted; a holder is in one rank for each flavor-resource that it uses.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._by_local_queue = config.admission_fair_sharing is not None and config.gates.on("AdmissionFairSharing")
        self._by_usage = config.fair_sharing is not None
        self._least_lost = config.extensions.victim_order is VictimOrder.LEAST_LOST
        self._max_grace_s = config.extensions.max_grace_s
        self._protects = config.extensions.minimum_runtime is not None
        self._all_alike = not (self._least_lost or self._protects or self._by_usage)
        self._ranks: dict[_Place, dict[LocalQueueKey, Ranks]] = {}
        self._rank_of: dict[_RankKey, Rank] = {}
        """The ranks of ``_ranks`` by their full key, to be found in one step."""
        self.evicted = 0
        """The number of evicted holders: usually 0, and then no search walks for them."""

    def added(self, holder: Holder) -> None:
        self.evicted += holder.evicted
        order, place, queue = _order(holder), self._list_of(holder), holder.cluster_queue
        for fr, amount in holder.usage.items():
            key = (queue, fr, place, order)
            rank = self._rank_of.get(key)
            if rank is None:
                rank = self._new_rank(key)
            rank.add(holder, amount)

    def removed(self, holder: Holder) -> None:
        self.evicted -= holder.evicted
        order, place, queue = _order(holder), self._list_of(holder), holder.cluster_queue
        for fr, amount in holder.usage.items():
            key = (queue, fr, place, order)
            rank = self._rank_of[key]
            rank.remove(holder, amount)
            if not rank:
                self._drop_rank(key)

    def changed(self, known: Holder, holder: Holder) -> None:
        """Called when a holder is replaced, usually after the echo of a decision: a holder whose order stays is
        exchanged in place.
        """
        order, place = _order(holder), self._list_of(holder)
        stays = _order(known) == order and self._list_of(known) == place and self._sorts_alike(known, holder)
        if not stays:
            self.removed(known)
            self.added(holder)
            return
        for fr in holder.usage:
            self._rank_of[holder.cluster_queue, fr, place, order].exchange(known, holder)

    def ranks(self, queue: ClusterQueueName, fr: FlavorResource) -> Mapping[LocalQueueKey, Sequence[Rank]]:
        """The ranks of one flavor-resource, by LocalQueue where the order depends on it, else under ``ANY_QUEUE``."""
        return self._ranks.get((queue, fr), {})

    def entry(self, holder: Holder) -> tuple[HolderKind, RankEntry]:
        """The kind and entry by which a holder is sorted within its rank."""
        return self._kind(holder), self._entry(holder)

    @property
    def size(self) -> int:
        """The number of holders in all ranks: one that uses two flavor-resources counts twice."""
        return sum(map(len, self._all()))

    def validate(self, holders: Mapping[WorkloadKey, Holder]) -> None:
        """DriftError where the ranks differ from the existing holders."""
        totals: dict[tuple[ClusterQueueName, FlavorResource], Amount] = {}
        for holder in holders.values():
            for fr, amount in holder.usage.items():
                place = (holder.cluster_queue, fr)
                totals[place] = totals.get(place, 0) + amount
        ranked = {
            place: sum(rank.total for ranks in by_queue.values() for rank in ranks)
            for place, by_queue in self._ranks.items()
        }
        places = sum(len(holder.usage) for holder in holders.values())
        evicted = sum(holder.evicted for holder in holders.values())
        if ranked != totals or self.size != places or self.evicted != evicted:
            raise DriftError(f"candidates are kept as {ranked}, the holders make {totals}")
        if sorted(map(id, self._rank_of.values())) != sorted(map(id, self._all())):
            raise DriftError("ranks are found that are not walked, or walked that are not found")
        for key, rank in self._rank_of.items():
            fr = key[1]
            for holder in rank.holders():
                here = (holder.cluster_queue, fr, self._list_of(holder), _order(holder)) == key
                if holders.get(holder.key) is not holder or not here or fr not in holder.usage:
                    raise DriftError(f"{holder.key} is a candidate in rank {rank.order} and holds nothing there")

    def _new_rank(self, key: _RankKey) -> Rank:
        queue, fr, place, order = key
        rank = self._rank_of[key] = Rank(order, self.entry)
        insort(self._ranks.setdefault((queue, fr), {}).setdefault(place, []), rank)
        return rank

    def _drop_rank(self, key: _RankKey) -> None:
        queue, fr, place, _ = key
        by_queue = self._ranks[queue, fr]
        by_queue[place].remove(self._rank_of.pop(key))
        if not by_queue[place]:
            del by_queue[place]
        if not by_queue:
            del self._ranks[queue, fr]

    def _all(self) -> Iterator[Rank]:
        for by_queue in self._ranks.values():
            for ranks in by_queue.values():
                yield from ranks

    def _sorts_alike(self, known: Holder, holder: Holder) -> bool:
        """Whether one holder may take the place of the other in a sorted list."""
        if known.queued_at_s != holder.queued_at_s:
            return False
        before, after = self._entry(known), self._entry(holder)
        if before[:3] != after[:3]:
            return False
        kind = self._kind(holder)
        if kind != self._kind(known):
            return False
        return kind.runs_as is None or started_at_s(known) == started_at_s(holder)

    def _entry(self, holder: Holder) -> RankEntry:
        since_s = started_at_s(holder) if self._least_lost else None
        info = holder.info
        at_s = holder.reserved_at_s if since_s is None else since_s
        return tuple.__new__(RankEntry, (-at_s, info.workload.metadata.uid, info.key, holder))

    def _kind(self, holder: Holder) -> HolderKind:
        if self._all_alike:
            return _ALL_ALIKE
        started = started_at_s(holder) is not None
        gpus, milli_cpus = lost_weight(holder) if self._least_lost and started else (0, 0)
        runs_as = None
        if self._protects and started and not holder.evicted:
            reference = holder.info.workload.spec.priority_class_ref
            runs_as = "" if reference is None else reference.name
        usage = tuple(sorted(holder.usage.items())) if self._by_usage else ()
        told = checkpoints_held(holder, self._max_grace_s) if gpus or milli_cpus else None
        return HolderKind(gpus, milli_cpus, runs_as, usage, told, None if told is None else holder.key)

    def _list_of(self, holder: Holder) -> LocalQueueKey:
        return holder.local_queue if self._by_local_queue else ANY_QUEUE


def started_at_s(holder: Holder) -> float | None:
    """The time at which the holder was admitted; None while it only holds quota, when it has nothing to lose yet."""
    if not holder.admitted:
        return None
    condition = find_condition(holder.info.workload.status.conditions, "Admitted")
    if condition is None or condition.status != "True" or condition.last_transition_time is None:
        return holder.reserved_at_s
    return max(holder.reserved_at_s, epoch_s(condition.last_transition_time))


def checkpoints_held(holder: Holder, max_grace_s: float) -> Checkpoints | None:
    """What a holder says of its checkpoints; None where it says nothing. ``max_grace_s``: as in ``checkpoints_of``."""
    workload = holder.info.workload
    return checkpoints_of(workload.metadata.annotations, workload.spec.pod_sets, max_grace_s)


def lost_weight(holder: Holder) -> tuple[Amount, Amount]:
    """The weight of one second of a holder's run: its GPUs, or its milli-CPUs if it has no GPUs."""
    gpus = sum(amount for fr, amount in holder.usage.items() if is_gpu(fr.resource))
    if gpus:
        return gpus, 0
    return 0, sum(amount for fr, amount in holder.usage.items() if fr.resource == CPU)


def _order(holder: Holder) -> tuple[bool, int]:
    return (not holder.evicted, holder.priority)


def _time(entry: _Timed) -> float:
    return entry[0]
