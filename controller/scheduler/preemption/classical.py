"""Classical preemption: by priority inside the ClusterQueue, by reclaiming what others of the tree have borrowed.

Source: KEP-83, KEP-79 (hierarchical cohorts), KEP-1337 (borrowWithinCohort). Candidates come in three groups: those of
other ClusterQueues that the preemptor has a hierarchical advantage over (its request fits into the quota of a subtree
that they are not in), those of the remaining ones, and those of its own ClusterQueue. Already evicted candidates of all
three come first.

Usage only falls while victims are released, so a ClusterQueue within its quota stays within it; the cluster is left as
it was found. A search costs a check of quota and places for each victim, and one more to charge it back.
"""

import heapq
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from controller.scheduler.cluster.incoming import PreemptionReason, Target
from controller.scheduler.model.resources import ClusterQueueName, FlavorResource, Usage
from controller.scheduler.preemption.candidates import (
    Candidate,
    CandidateLimits,
    Order,
    VictimSearch,
    Walker,
    limits_reclaim,
    limits_within,
)
from controller.scheduler.preemption.cheapest import CANDIDATES, TargetRank, VictimChoice, cheapest
from controller.scheduler.preemption.neededcapacity import NeededCapacity, fill_back
from controller.scheduler.quota.queuestate import QueueState
from controller.scheduler.quota.quotanode import QuotaNode, any_borrows, within_quota


class BorrowingQueue(NamedTuple):
    """A ClusterQueue beyond its own quota. ``path``: it and its cohorts below the lowest common ancestor."""

    queue: QueueState
    path: tuple[QuotaNode, ...]
    advantage: bool

    def reclaimable(self, frs: tuple[FlavorResource, ...]) -> bool:
        """Whether the queue and every cohort on its path use more than their own quota."""
        return not any(within_quota(node, frs) for node in self.path)


class Classical:
    """One search. ``targets()`` leaves the cluster as it found it."""

    def __init__(self, search: VictimSearch, needed: NeededCapacity) -> None:
        self._search = search
        self._needed = needed
        self._incoming = search.incoming
        self._policies = search.incoming.queue.policies
        self._own = limits_within(self._policies.within_cluster_queue, search.incoming)
        self._reclaim = limits_reclaim(self._policies.reclaim_within_cohort, search.incoming)
        self._sources = tuple(self._find_sources()) if self._reclaim is not None else ()
        self._borrowing = True
        """Whether the attempt that found victims may borrow."""

    def targets(self) -> tuple[Target, ...]:
        if not self._sources and (
            self._own is None or not self._search.has_candidates(self._incoming.queue, self._own)
        ):
            return ()
        for borrowing in self._attempts():
            if self._could_fit(borrowing=borrowing):
                found = self._attempt(borrowing=borrowing)
                if found:
                    self._borrowing = borrowing
                    return found
        return ()

    def candidates(self) -> list[Target]:
        """The first candidates of the attempt that finds victims, in the order of the search; empty where none does."""
        return list(islice(self._walk(borrowing=self._borrowing), CANDIDATES)) if self.targets() else []

    def rank(self, target: Target) -> TargetRank:
        """The place of a candidate in the search order, without what it loses."""
        holder = target.holder
        group = 2
        if holder.cluster_queue != self._incoming.queue.name:
            group = int(not self._by_name[holder.cluster_queue].advantage)
        return (not holder.evicted, group, self._search.usage_rank(holder), holder.priority)

    def cheapest(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """The victims that lose least in place of ``targets``, which ``targets()`` returned."""
        if self.is_first(targets):
            return targets
        pool = list(islice(self._walk(borrowing=self._borrowing), CANDIDATES))
        known = {target.holder.key for target in pool}
        pool += [target for target in targets if target.holder.key not in known]
        lacking = self._search.lacking(self._needed.usage)
        return cheapest(VictimChoice(pool, self.rank, self._search.loss, lacking, self._holds), targets)

    def is_first(self, targets: tuple[Target, ...]) -> bool:
        """Whether the first candidate of all is the only victim: nobody of its rank loses less."""
        first = next(self._walk(borrowing=self._borrowing))
        return len(targets) == 1 and first.holder.key == targets[0].holder.key

    def _holds(self, targets: Sequence[Target]) -> bool:
        """Whether each queue gives up these holders, one after the other, and the request fits then."""
        cluster, own = self._search.cluster, self._incoming.queue.name
        with cluster.trial():
            for target in targets:
                queue = target.holder.cluster_queue
                if queue != own and not self._by_name[queue].reclaimable(self._search.frs):
                    return False
                cluster.release(target.holder)
            return self._needed.fits(borrowing=self._borrowing)

    @cached_property
    def _by_name(self) -> dict[ClusterQueueName, BorrowingQueue]:
        return {source.queue.name: source for source in self._sources}

    def _own_total(self) -> Usage:
        """What all candidates of the preemptor's own ClusterQueue hold."""
        return {} if self._own is None else self._search.total(self._incoming.queue, self._own)

    # -- which attempts ----------------------------------------------------------------------------------------------

    @property
    def _may_borrow(self) -> bool:
        """Whether borrowWithinCohort lets a workload that borrows evict others. An absent policy is not Never."""
        return self._policies.borrow_within_cohort != "Never"

    def _attempts(self) -> tuple[bool, ...]:
        if not any(map(self._has_candidates, self._sources)) or (not self._may_borrow and not self._below_nominal()):
            return (True,)
        if self._may_borrow or any(source.advantage and self._has_candidates(source) for source in self._sources):
            return (True, False)
        return (False, True)

    def _has_candidates(self, source: BorrowingQueue) -> bool:
        assert self._reclaim is not None
        return Walker(self._search, source.queue, self._reclaim).peek() is not None

    def _below_nominal(self) -> bool:
        node = self._incoming.queue.node
        return all(node.usage(fr) < node.quota(fr) for fr in self._search.frs)

    # -- candidates --------------------------------------------------------------------------------------------------

    def _find_sources(self) -> Iterator[BorrowingQueue]:
        """Other ClusterQueues that use more than their own quota, from the nearest cohort up to the root."""
        unchecked: list[QuotaNode] = []
        advantage, rest = False, self._needed.usage
        below = self._incoming.queue.node
        while (parent := below.parent) is not None:
            unchecked.append(below)
            for path in self._borrowing_below(parent, below, ()):
                # Usually no queue borrows, so advantages are computed only when the first borrowing queue is found.
                while unchecked:
                    fits, rest = _fits_own(unchecked.pop(0), rest)
                    advantage = advantage or fits
                yield BorrowingQueue(self._search.cluster.queue(ClusterQueueName(path[0].name)), path, advantage)
            below = parent

    def _borrowing_below(
        self, cohort: QuotaNode, without: QuotaNode, path: tuple[QuotaNode, ...]
    ) -> Iterator[tuple[QuotaNode, ...]]:
        frs = self._search.frs
        if not any_borrows(cohort, frs):
            return
        for child in cohort.cohorts.values():
            if child is not without and not within_quota(child, frs):
                yield from self._borrowing_below(child, without, (child, *path))
        for child in cohort.queues.values():
            if child is without or within_quota(child, frs) or not self._search.is_open(ClusterQueueName(child.name)):
                continue
            yield (child, *path)

    def _limits(self, source: BorrowingQueue, *, borrowing: bool) -> CandidateLimits | None:
        """The holders of this ClusterQueue that the attempt may evict; None: no holder."""
        if not borrowing or source.advantage or self._reclaim is None:
            return self._reclaim
        if not self._may_borrow:
            return None
        below = self._incoming.priority
        threshold = self._policies.borrow_threshold
        if threshold is not None:
            below = min(below, threshold + 1)
        return CandidateLimits(below)

    def _reason(self, source: BorrowingQueue, priority: int) -> PreemptionReason:
        threshold = self._policies.borrow_threshold
        if source.advantage or not self._may_borrow or priority >= self._incoming.priority:
            return PreemptionReason.IN_COHORT_RECLAMATION
        if threshold is not None and priority > threshold:
            return PreemptionReason.IN_COHORT_RECLAMATION
        return PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING

    def _walk(self, *, borrowing: bool) -> Iterator[Target]:
        """The candidates in order; a ClusterQueue yields none once it uses no more than its own quota."""
        for evicted in (True, False) if self._search.index.evicted else (False,):
            for advantage in (True, False):
                yield from self._walk_others(evicted=evicted, advantage=advantage, borrowing=borrowing)
            if self._own is not None:
                own = Walker(self._search, self._incoming.queue, self._own, evicted=evicted)
                while (candidate := own.pop()) is not None:
                    yield Target(candidate.holder, PreemptionReason.IN_CLUSTER_QUEUE)

    def _walk_others(self, *, evicted: bool, advantage: bool, borrowing: bool) -> Iterator[Target]:
        heap: list[tuple[Order, int, Candidate, BorrowingQueue, Walker]] = []
        for place, source in enumerate(self._sources):
            limits = self._limits(source, borrowing=borrowing)
            if source.advantage != advantage or limits is None:
                continue
            walker = Walker(self._search, source.queue, limits, evicted=evicted)
            candidate = walker.pop()
            if candidate is not None:
                heap.append((candidate.order, place, candidate, source, walker))
        heapq.heapify(heap)
        while heap:
            _, place, candidate, source, walker = heap[0]
            # Usage only falls while victims are released: a queue within its quota stays within it.
            following = None
            if source.reclaimable(self._search.frs):
                yield Target(candidate.holder, self._reason(source, candidate.holder.priority))
                following = walker.pop()
            if following is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (following.order, place, following, source, walker))

    # -- trying ------------------------------------------------------------------------------------------------------

    def _could_fit(self, *, borrowing: bool) -> bool:
        """Whether the contested part would fit without any candidate: compares sums before a candidate is tried."""
        quota = self._search.cluster.quota
        with self._search.cluster.trial():
            for source in self._sources:
                limits = self._limits(source, borrowing=borrowing)
                if limits is not None:
                    quota.remove_usage(source.queue.name, self._search.total(source.queue, limits))
            quota.remove_usage(self._incoming.queue.name, self._own_total())
            return self._needed.quota_fits(self._search.frs, borrowing=borrowing)

    def _attempt(self, *, borrowing: bool) -> tuple[Target, ...]:
        cluster, needed = self._search.cluster, self._needed
        targets: list[Target] = []
        with cluster.trial():
            for target in self._walk(borrowing=borrowing):
                cluster.release(target.holder)
                targets.append(target)
                if needed.fits(borrowing=borrowing):
                    fill_back(cluster, targets, lambda: needed.fits(borrowing=borrowing))
                    return tuple(targets)
        return ()


def _fits_own(node: QuotaNode, requests: Usage) -> tuple[bool, Usage]:
    """Whether the requests fit into the subtree's own quota, and the part of them that is left to request from its
    parent.
    """
    fits, rest = True, {}
    for fr, amount in requests.items():
        cell = node.cells.get(fr)
        usage, quota, local = (0, 0, 0) if cell is None else (cell.usage, cell.subtree_quota, cell.local_available())
        fits = fits and usage + amount <= quota
        rest[fr] = max(0, amount - local)
    return fits, rest
