"""Preemption as the scheduling cycle and the flavor assigner ask for it: which victims make an assignment fit.

Source: Kueue's preemption (GetTargets, PreemptionOracle); the rules are in ``classical`` and ``fair``. A question
leaves the cluster as it was, and ``index`` follows every change of a holder. A search costs its victims, not those who
hold quota: a decision with three victims takes 230 us, beside 100 holders and beside 10,000. Under ``leastLost`` the
victims are exchanged for cheaper ones (``cheapest``) and compared with Kueue's, at the cost of a second search.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from controller.messages import pending
from controller.messages.spans import moment, second
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming, Price, Target
from controller.scheduler.flavors.assignment import Assignment, Possibility
from controller.scheduler.model.config import EngineConfig, VictimOrder
from controller.scheduler.model.resources import Amount, ClusterQueueName, FlavorResource, LocalQueueKey, WorkloadKey
from controller.scheduler.preemption.candidates import VictimSearch, limits_reclaim, limits_within
from controller.scheduler.preemption.cheapest import Loss, TargetRank, loss_of
from controller.scheduler.preemption.checkpointwaits import CheckpointWait, CheckpointWaits
from controller.scheduler.preemption.classical import Classical
from controller.scheduler.preemption.fair import Fair
from controller.scheduler.preemption.history import EvictionHistory
from controller.scheduler.preemption.index import HolderIndex
from controller.scheduler.preemption.moves import price_of
from controller.scheduler.preemption.neededcapacity import NeededCapacity, needed_capacity
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.quota.quotanode import borrowers_below

_AT_ONCE_S: Final = 1.0
_FEW_MINUTES_S: Final = 600.0
"""A wait of at most so long is said to the second."""
"""A time that has passed; 0 would be none."""


class Preemption:
    """The preemption of one cluster. Questions change nothing but what ``next_due_s`` returns.

    ``local_queue_usage`` returns the decayed usage of a LocalQueue; it is called only where admission fair sharing is
    on. ``is_open``: whether a ClusterQueue is active; workloads of an inactive one are no candidates. The cluster keeps
    ``index`` current, in trials as well; only the engine writes ``history``.
    """

    def __init__(
        self,
        cluster: Cluster,
        local_queue_usage: Callable[[LocalQueueKey], float],
        is_open: Callable[[ClusterQueueName], bool] = lambda _: True,
    ) -> None:
        self._cluster = cluster
        self._local_queue_usage = local_queue_usage
        self._is_open = is_open
        self.index = HolderIndex(cluster.config)
        self._newest = _newest_first(cluster.config)
        """The holders in Kueue's order, where ``index`` has another one."""
        for index in filter(None, (self.index, self._newest)):
            for holder in cluster.holders.values():
                index.added(holder)
            cluster.observe(index)
        self.history = EvictionHistory(cluster)
        """The evictions that the engine decided; it also reports changes from outside here."""
        self.oracle = Oracle(self)
        self._due: dict[ClusterQueueName, float] = {}
        """The soonest end of a minimum runtime after which a search may find victims, or of a wait for checkpoints, by
        ClusterQueue that searches.
        """
        self._waits = CheckpointWaits(cluster)
        if self._newest is not None:
            cluster.observe(self)

    def targets(self, incoming: Incoming, assignment: Assignment, now_s: float) -> tuple[Target, ...]:
        """The victims that make the assignment fit; empty where none do."""
        frs = tuple(sorted(assignment.preempting()))
        needed = needed_capacity(self._cluster, incoming, assignment)
        if self._newest is None or not frs:
            return self.targets_in(incoming, frs, needed, now_s)
        victims = self._least_lost(self._search(incoming, frs, now_s), needed, self._newest)
        again_s = self._waits.hold(incoming.key, incoming.queue.name, victims, now_s) if victims else None
        if again_s is not None:
            self._due[incoming.queue.name] = min(again_s, self._due.get(incoming.queue.name, math.inf))
            return ()
        return tuple(target._replace(price=self._price(target, now_s)) for target in victims)

    def spared(
        self, incoming: Incoming, assignment: Assignment, targets: Sequence[Target], now_s: float
    ) -> tuple[Target, ...]:
        """The candidates beside these victims, with what each would lose: those that the search looked at, in its
        order. None where prices decide nothing, and with fair sharing, where each queue has candidates of its own.
        """
        frs = tuple(sorted(assignment.preempting()))
        if self._newest is None or not targets or not frs:
            return ()
        rules = self._rules(self._search(incoming, frs, now_s), needed_capacity(self._cluster, incoming, assignment))
        if not isinstance(rules, Classical):
            return ()
        taken = {target.holder.key for target in targets}
        others = (each for each in rules.candidates() if each.holder.key not in taken and not each.holder.evicted)
        return tuple(each._replace(price=self._price(each, now_s)) for each in others)

    def awaited(self, incoming: Incoming, assignment: Assignment, now_s: float) -> tuple[Target, ...]:
        """The victims of a preemptor that waits for checkpoints now, with what each would lose at this moment."""
        frs = tuple(sorted(assignment.preempting()))
        if self._newest is None or not frs or self._waits.of(incoming.key, now_s) is None:
            return ()
        needed = needed_capacity(self._cluster, incoming, assignment)
        found = self._least_lost(self._search(incoming, frs, now_s), needed, self._newest)
        return tuple(target._replace(price=self._price(target, now_s)) for target in found)

    def _price(self, target: Target, now_s: float) -> Price:
        return price_of(target.holder, now_s, self._cluster.config.extensions.max_grace_s)

    def _least_lost(self, search: VictimSearch, needed: NeededCapacity, newest: HolderIndex) -> tuple[Target, ...]:
        """The victims that lose least, or Kueue's where these lose less. Of two sets the one is better whose highest
        rank is lower, and among these the one that loses less.
        """
        rules = self._rules(search, needed)
        victims = self._found(search, rules)
        if victims:
            victims = rules.cheapest(victims)
            if rules.is_first(victims):
                return victims
        kueues = self._rules(msgspec.structs.replace(search, index=newest, _told={}), needed).targets()
        if kueues and (not victims or _cost(rules, search, kueues) < _cost(rules, search, victims)):
            return kueues
        return victims

    def waits(self, incoming: Incoming, now_s: float) -> str:
        """Why a workload has no victims though there are some: checkpoints of them are due. Empty where that is not the
        reason.
        """
        wait = self._waits.of(incoming.key, now_s) if self._waits else None
        if wait is None:
            return ""
        told = second if wait.until_s - wait.since_s <= _FEW_MINUTES_S else moment
        return pending.checkpoint_due(wait.victims, told(wait.until_s))

    def checkpoint_waits(self, now_s: float) -> dict[WorkloadKey, CheckpointWait]:
        """The preemptors that wait for checkpoints of their victims now, and how long each does."""
        return self._waits.all(now_s)

    def added(self, holder: Holder) -> None:
        """Does nothing: a holder that has just come is waited for by nobody."""

    def removed(self, holder: Holder) -> None:
        self._waits.gone(holder.key)

    def changed(self, known: Holder, holder: Holder) -> None:
        """A victim that tells its next checkpoint is waited for no longer."""
        if self._waits and (queue := self._waits.told(known, holder)) is not None:
            self._due[queue] = _AT_ONCE_S

    def quota_gives(self, incoming: Incoming, assignment: Assignment, now_s: float) -> bool:
        """Whether there would be victims if the pods could run anywhere; if not, no change of nodes helps."""
        frs = tuple(sorted(assignment.preempting()))
        return bool(self.targets_in(incoming, frs, NeededCapacity(incoming.queue.node, assignment.usage), now_s))

    @property
    def is_classical(self) -> bool:
        return self._cluster.config.fair_sharing is None

    def next_due_s(self) -> float | None:
        """The time at which a search that found no victims is to be repeated, because a minimum runtime or a wait ends
        then; None for never.
        """
        return min(self._due.values(), default=None)

    def due(self, now_s: float) -> tuple[ClusterQueueName, ...]:
        """The ClusterQueues whose workloads are to be tried again now; each end of a runtime is reported once."""
        found = tuple(sorted(name for name, due_s in self._due.items() if due_s <= now_s))
        for name in found:
            del self._due[name]
        return found

    def _note_protection(self, search: VictimSearch) -> None:
        """Remember, after a search without victims, when the next candidate has run for its minimum, as no event may
        come before.
        """
        incoming = search.incoming
        policies, node = incoming.queue.policies, incoming.queue.node
        own = limits_within(policies.within_cluster_queue, incoming)
        reclaim = limits_reclaim(policies.reclaim_within_cohort, incoming)
        first_s = math.inf if own is None else search.protection_ends_s(incoming.queue, own)
        if reclaim is not None and node.parent is not None:
            for other in borrowers_below(node.root(), search.frs):
                if other is not node:
                    queue = self._cluster.queue(ClusterQueueName(other.name))
                    first_s = min(first_s, search.protection_ends_s(queue, reclaim))
        if first_s < self._due.get(incoming.queue.name, math.inf):
            self._due[incoming.queue.name] = first_s

    def _search(self, incoming: Incoming, frs: tuple[FlavorResource, ...], now_s: float) -> VictimSearch:
        barred = self.history.barred(incoming) if self._cluster.config.extensions.no_eviction_cycles else ()
        return VictimSearch(
            self._cluster, self.index, incoming, frs, now_s, self._local_queue_usage, barred, self._is_open
        )

    def validate(self) -> None:
        """DriftError where the index differs from the holders."""
        for index in filter(None, (self.index, self._newest)):
            index.validate(self._cluster.holders)

    def targets_alone(self, incoming: Incoming, fr: FlavorResource, amount: Amount, now_s: float) -> tuple[Target, ...]:
        """The victims if this flavor-resource were the whole request, wherever its pods may run."""
        needed = NeededCapacity(incoming.queue.node, {fr: amount})
        return self.targets_in(incoming, (fr,), needed, now_s)

    def borrow_level_without(
        self, targets: tuple[Target, ...], incoming: Incoming, fr: FlavorResource, amount: Amount
    ) -> int:
        """The height of the smallest subtree whose own quota holds the request without the targets."""
        if not targets:
            return incoming.queue.node.borrow_level(fr, amount).height
        with self._cluster.trial():
            for target in targets:
                self._cluster.quota.remove_usage(target.holder.cluster_queue, target.holder.usage)
            return incoming.queue.node.borrow_level(fr, amount).height

    def targets_in(
        self, incoming: Incoming, frs: tuple[FlavorResource, ...], needed: NeededCapacity, now_s: float
    ) -> tuple[Target, ...]:
        if not frs:
            return ()
        search = self._search(incoming, frs, now_s)
        return self._found(search, self._rules(search, needed))

    def _rules(self, search: VictimSearch, needed: NeededCapacity) -> Classical | Fair:
        fair = self._cluster.config.fair_sharing
        return Classical(search, needed) if fair is None else Fair(search, needed, fair)

    def _found(self, search: VictimSearch, rules: Classical | Fair) -> tuple[Target, ...]:
        found = rules.targets()
        if not found and self._cluster.config.extensions.minimum_runtime is not None:
            self._note_protection(search)
        return found


def _newest_first(config: EngineConfig) -> HolderIndex | None:
    """An index in Kueue's order; None where the configuration has that order already."""
    if config.extensions.victim_order is not VictimOrder.LEAST_LOST:
        return None
    extensions = msgspec.structs.replace(config.extensions, victim_order=VictimOrder.NEWEST)
    return HolderIndex(msgspec.structs.replace(config, extensions=extensions))


def _cost(rules: Classical | Fair, search: VictimSearch, targets: tuple[Target, ...]) -> tuple[TargetRank, Loss]:
    """The highest rank among the targets, and what they lose together."""
    return max(map(rules.rank, targets)), loss_of(search.loss, targets)


class Oracle:
    """What the flavor assigner asks before it settles on a flavor (Kueue: PreemptionOracle.SimulatePreemption)."""

    def __init__(self, preemption: Preemption) -> None:
        self._preemption = preemption
        self.now_s = 0.0
        """The time of the scheduling cycle; the engine sets it before each cycle."""

    @property
    def is_monotonic(self) -> bool:
        """Whether an amount for which no workload can be evicted implies the same for every larger amount.

        Classical preemption: a larger request has fewer advantages and so no more candidates, and fits no sooner. With
        fair sharing it changes the preemptor's share, and with that the workloads that may be evicted.
        """
        return self._preemption.is_classical

    def simulate(self, incoming: Incoming, fr: FlavorResource, amount: Amount) -> tuple[Possibility, int]:
        """What preemption could do for this flavor-resource alone, and the borrow level it would leave."""
        targets = self._preemption.targets_alone(incoming, fr, amount, self.now_s)
        level = self._preemption.borrow_level_without(targets, incoming, fr, amount)
        if not targets:
            return Possibility.NO_CANDIDATES, level
        own = any(target.holder.cluster_queue == incoming.queue.name for target in targets)
        return Possibility.PREEMPT if own else Possibility.RECLAIM, level
