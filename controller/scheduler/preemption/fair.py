"""Fair-sharing preemption: the ClusterQueue or cohort with the largest dominant resource share is preempted first.

Source: KEP-1714. The incoming workload counts as running while shares are compared. A ClusterQueue within its own quota
reclaims what others borrowed whatever the shares are. One beyond its quota preempts only where the strategy finds that
it keeps the smaller share of the two.

``Extensions.exact_fair_sharing`` goes beyond Kueue in three points. The own quota of a cohort above the preemptor is
taken back like that of its ClusterQueue, and kept, whatever else the cohort borrows. Queues that refused are asked
again once victims on the preemptor's side have lowered its share. Of cohorts with equal shares the one with the lower
victim gives way.

Shares are computed anew only above a victim (``Shares``), and the cluster is left as it was found. A search costs a
share of each child of the cohorts on its way, and a check of quota and places for each victim.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from controller.scheduler.cluster.incoming import PreemptionReason, Target
from controller.scheduler.model.config import FairSharing, PreemptionStrategy
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.preemption.candidates import Candidate, VictimSearch, Walker, limits_reclaim, limits_within
from controller.scheduler.preemption.cheapest import CANDIDATES, TargetRank, VictimChoice, cheapest
from controller.scheduler.preemption.neededcapacity import NeededCapacity, fill_back
from controller.scheduler.preemption.tournament import Shares, Tournament
from controller.scheduler.quota.quotanode import QuotaNode, borrowers_below, within_quota
from controller.scheduler.quota.shares import Share, below_common_ancestor, may_preempt


class NoVictim(NamedTuple):
    """Why a ClusterQueue gave no victim: the node of its side that was compared, and the highest share that the loss of
    any one candidate would have left it.
    """

    theirs: QuotaNode
    after: Share


class Fair:
    """One search. ``targets()`` leaves the cluster as it found it.

    ``_shares`` remembers shares while candidates are released: ``_take`` reports each change of usage to it. It must
    not be asked while a nested trial has changed usage that is undone afterwards.
    """

    def __init__(self, search: VictimSearch, needed: NeededCapacity, config: FairSharing) -> None:
        self._search = search
        self._cluster = search.cluster
        self._needed = needed
        self._strategies = config.strategies
        self._queue = search.incoming.queue
        self._node = search.incoming.queue.node
        self._shares = Shares()
        self._targets: list[Target] = []
        self._taken: set[WorkloadKey] = set()
        """The keys of ``_targets``."""
        self._reclaims_own = self._cluster.config.gates.on("FairSharingPreemptWithinNominal")
        self._exact = self._cluster.config.extensions.exact_fair_sharing
        self._refused: dict[QuotaNode, dict[QuotaNode, NoVictim]] = {}
        """The ClusterQueues that gave nothing, or nothing more, by the node whose share was compared with them."""
        policies = self._queue.policies
        self._own = limits_within(policies.within_cluster_queue, search.incoming)
        self._reclaim = limits_reclaim(policies.reclaim_within_cohort, search.incoming)

    def targets(self) -> tuple[Target, ...]:
        borrowers = list(self._borrowers()) if self._reclaim is not None else []
        if not borrowers and (self._own is None or not self._search.has_candidates(self._queue, self._own)):
            return ()
        if not self._could_fit(borrowers):
            return ()
        walkers = {node.name: self._walker(node) for node in borrowers}
        if self._own is not None:
            walkers[self._node.name] = Walker(self._search, self._queue, self._own)
        with self._cluster.trial():
            self._cluster.quota.add_usage(self._queue.name, self._needed.usage)
            retry: dict[str, Candidate] = {}
            if not (self._first(walkers, retry) or (len(self._strategies) > 1 and self._second(retry))):
                return ()
            fill_back(self._cluster, self._targets, self._fits)
            return tuple(self._targets)

    def rank(self, target: Target) -> TargetRank:
        """What of the search order all queues have in common: shares decide on the rest."""
        holder = target.holder
        return (not holder.evicted, 0, self._search.usage_rank(holder), holder.priority)

    def cheapest(self, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        """The victims that lose least in place of ``targets``, which ``targets()`` returned. Where another queue loses
        any, shares have decided on each of them, and they stand.
        """
        if self._own is None or any(target.holder.cluster_queue != self._queue.name for target in targets):
            return targets
        walker, pool = Walker(self._search, self._queue, self._own), list[Target]()
        while len(pool) < CANDIDATES and (candidate := walker.pop()) is not None:
            pool.append(Target(candidate.holder, PreemptionReason.IN_CLUSTER_QUEUE))
        known = {target.holder.key for target in pool}
        pool += [target for target in targets if target.holder.key not in known]
        lacking = self._search.lacking(self._needed.usage)
        return cheapest(VictimChoice(pool, self.rank, self._search.loss, lacking, self._holds), targets)

    def is_first(self, _targets: tuple[Target, ...]) -> bool:
        """Whether no other search need be asked: unknown, since shares decide on each victim."""
        return False

    def _holds(self, targets: Sequence[Target]) -> bool:
        with self._cluster.trial():
            for target in targets:
                self._cluster.release(target.holder)
            return self._needed.fits()

    def _borrowers(self) -> Iterator[QuotaNode]:
        """The other active ClusterQueues of the tree that borrow any of the contested flavor-resources."""
        if self._node.parent is not None:
            for node in borrowers_below(self._node.root(), self._search.frs):
                if node is not self._node and self._search.is_open(ClusterQueueName(node.name)):
                    yield node

    def _walker(self, node: QuotaNode) -> Walker:
        assert self._reclaim is not None
        queue = self._cluster.queue(ClusterQueueName(node.name))
        return Walker(self._search, queue, self._reclaim, without=self._taken if self._exact else ())

    def _could_fit(self, borrowers: list[QuotaNode]) -> bool:
        """Whether the contested part would fit without any candidate: compares sums before a candidate is tried."""
        with self._cluster.trial():
            if self._reclaim is not None:
                for node in borrowers:
                    queue = self._cluster.queue(ClusterQueueName(node.name))
                    self._cluster.quota.remove_usage(queue.name, self._search.total(queue, self._reclaim))
            if self._own is not None:
                self._cluster.quota.remove_usage(self._queue.name, self._search.total(self._queue, self._own))
            return self._needed.quota_fits(self._search.frs)

    # -- strategies --------------------------------------------------------------------------------------------------

    def _first(self, walkers: dict[str, Walker], retry: dict[str, Candidate]) -> bool:
        """Take victims by the first strategy. Returns whether the request fits then. ``retry`` gets the first candidate
        of each queue that the strategy refused.
        """
        within = self._reclaims_own and all(self._node.usage(fr) <= self._node.quota(fr) for fr in self._search.frs)
        peeks = {name: walker.peek for name, walker in walkers.items()}
        tournament = Tournament(self._shares, self._node, peeks, by_victims=self._exact)
        for node in tournament:
            walker = walkers[node.name]
            if self._exact and self._keeps_its_own(node, walker.peek()):
                tournament.close(node)
                continue
            if node is self._node or within or (self._exact and self._takes_back(node)):
                candidate = walker.pop()
                assert candidate is not None
                own = node is self._node
                reason = PreemptionReason.IN_CLUSTER_QUEUE if own else PreemptionReason.IN_COHORT_RECLAMATION
            else:
                candidate = self._allowed(node, walker, retry)
                reason = PreemptionReason.IN_COHORT_FAIR_SHARING
            if candidate is None:
                continue
            if self._take(candidate, reason):
                return True
            if self._exact:
                first = retry.get(node.name)
                if first is not None and first.holder.key == candidate.holder.key:
                    del retry[node.name]
                self._ask_again(node, tournament, walkers)
        return False

    def _keeps_its_own(self, node: QuotaNode, candidate: Candidate | None) -> bool:
        """Whether another queue, or a cohort between it and the common one, has no more than its own quota of what is
        contested. It would take back what it lost, and the preemptor would be evicted in its turn. A candidate that is
        evicted already leaves in any case.
        """
        if node is self._node or (candidate is not None and candidate.holder.evicted):
            return False
        _, theirs = below_common_ancestor(self._node, node)
        for each in node.path():
            if within_quota(each, self._search.frs):
                return True
            if each is theirs:
                return False
        return False

    def _takes_back(self, node: QuotaNode) -> bool:
        """Whether the preemptor's ClusterQueue, or a cohort between it and the common one, stays within its own quota
        with the request: then others have that quota.
        """
        if not self._reclaims_own:
            return False
        ours, _ = below_common_ancestor(self._node, node)
        for own in self._node.path():
            if within_quota(own, self._search.frs):
                return True
            if own is ours:
                return False
        return False

    def _ask_again(self, victim: QuotaNode, tournament: Tournament, walkers: dict[str, Walker]) -> None:
        """Ask queues that refused again after a victim left ``victim``: they may give something now, since the share
        that they were compared with is lower. Each that is asked again gives at least one victim, other shares being as
        they were.
        """
        for ours in victim.path():
            refused = self._refused.get(ours)
            for node, best in list(refused.items()) if refused else ():
                before = self._shares.of(best.theirs)
                if self._takes_back(node) or may_preempt(
                    self._strategies[0],
                    preemptor_with=self._shares.of(ours),
                    target_before=before,
                    target_after=best.after,
                ):
                    del self._refused[ours][node]
                    walker = walkers[node.name] = self._walker(node)
                    tournament.reopen(node, walker.peek)

    def _allowed(self, node: QuotaNode, walker: Walker, retry: dict[str, Candidate]) -> Candidate | None:
        """The first candidate of the queue that the first strategy allows; None if it allows none."""
        ours, theirs = below_common_ancestor(self._node, node)
        with_incoming, before = self._shares.of(ours), self._shares.of(theirs)
        while (candidate := walker.pop()) is not None:
            with self._cluster.trial():
                self._cluster.quota.remove_usage(candidate.holder.cluster_queue, candidate.holder.usage)
                after = Shares().of(theirs)
            if may_preempt(self._strategies[0], preemptor_with=with_incoming, target_before=before, target_after=after):
                walker.resume(candidate)
                return candidate
            retry.setdefault(node.name, candidate)
            if self._exact:
                self._note_refusal(ours, node, NoVictim(theirs, after))
            # The answer depends on nothing but what a candidate holds.
            walker.pass_over(candidate.kind)
        return None

    def _note_refusal(self, ours: QuotaNode, node: QuotaNode, refused: NoVictim) -> None:
        known = self._refused.setdefault(ours, {}).get(node)
        if known is None or known.after.rank < refused.after.rank:
            self._refused[ours][node] = refused

    def _second(self, retry: Mapping[str, Candidate]) -> bool:
        """Take victims by the second strategy, with at most one more candidate of each ClusterQueue. Returns whether
        the request fits then.
        """
        left = dict(retry)
        tournament = Tournament(self._shares, self._node, {name: partial(left.get, name) for name in retry})
        for node in tournament:
            candidate = left.pop(node.name)
            if self._exact and self._keeps_its_own(node, candidate):
                continue
            ours, theirs = below_common_ancestor(self._node, node)
            before = self._shares.of(theirs)
            strategy: PreemptionStrategy = self._strategies[1]
            if may_preempt(
                strategy, preemptor_with=self._shares.of(ours), target_before=before, target_after=before
            ) and (self._take(candidate, PreemptionReason.IN_COHORT_FAIR_SHARING)):
                return True
        return False

    def _take(self, candidate: Candidate, reason: PreemptionReason) -> bool:
        """Release the candidate. Returns whether the request fits then."""
        self._cluster.release(candidate.holder)
        self._shares.changed(self._cluster.quota.cluster_queue(candidate.holder.cluster_queue))
        self._targets.append(Target(candidate.holder, reason))
        self._taken.add(candidate.holder.key)
        return self._fits()

    def _fits(self) -> bool:
        with self._cluster.trial():
            self._cluster.quota.remove_usage(self._queue.name, self._needed.usage)
            return self._needed.fits()
