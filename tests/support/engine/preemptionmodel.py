"""Preemption written plainly: lists of everybody, sorted, walked one by one. What the engine does with its index must
come to the same victims.
"""

from collections.abc import Callable, Iterator
from typing import Any

from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.model.config import EngineConfig, PreemptionStrategy
from controller.scheduler.model.resources import ClusterQueueName, FlavorResource
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.shares import below_common_ancestor, may_preempt, share
from tests.support.engine.preemptionlab import FLAVOR, Lab

Found = list[tuple[str, str]]


class Model:
    def __init__(self, lab: Lab, incoming: Incoming) -> None:
        self.cluster = lab.cluster
        self.quota = lab.cluster.quota
        self.config: EngineConfig = lab.cluster.config
        self.incoming = incoming
        self.node = incoming.queue.node
        self.policies = incoming.queue.policies
        self.fr = FlavorResource(FLAVOR, lab.resource)
        self.amount = incoming.info.pod_sets[0].requests[lab.resource]

    def victims(self) -> set[tuple[str, str]]:
        with self.cluster.trial():
            return set(self.classical() if self.config.fair_sharing is None else self.fair())

    # -- shared ------------------------------------------------------------------------------------------------------

    def allowed(self, holder: Holder, policy: Any) -> bool:
        ours, theirs = self.incoming.priority, holder.priority
        newer = theirs == ours and holder.queued_at_s > self.incoming.queued_at_s
        return bool(
            {
                "LowerPriority": theirs < ours,
                "LowerOrNewerEqualPriority": theirs < ours or newer,
                "Any": True,
            }.get(policy)
        )

    def order(self, holder: Holder) -> tuple[Any, ...]:
        own = holder.cluster_queue == self.incoming.queue.name
        return (not holder.evicted, own, holder.priority, -holder.reserved_at_s, holder.uid)

    def over(self, node: QuotaNode) -> bool:
        return node.usage(self.fr) > node.quota(self.fr)

    def holders(self, node: QuotaNode, policy: Any) -> list[Holder]:
        held = self.cluster.queue(ClusterQueueName(node.name)).holders.values()
        return [holder for holder in held if self.allowed(holder, policy)]

    def fits(self, *, borrowing: bool = True) -> bool:
        if not borrowing and self.node.borrowing_with(self.fr, self.amount):
            return False
        return self.amount <= self.node.available(self.fr)

    def fill_back(self, victims: list[tuple[Holder, str]], fits: Callable[[], bool]) -> Found:
        for place in reversed(range(len(victims) - 1)):
            self.cluster.charge(victims[place][0])
            if fits():
                victims[place] = victims[-1]
                del victims[-1]
            else:
                self.cluster.release(victims[place][0])
        return [(str(holder.key), reason) for holder, reason in victims]

    # -- classical ---------------------------------------------------------------------------------------------------

    def classical(self) -> Found:
        others = list(self.other_queues())
        candidates: list[tuple[int, Holder, list[QuotaNode]]] = [
            (0 if advantage else 1, holder, path)
            for advantage, path in others
            for holder in self.holders(path[0], self.policies.reclaim_within_cohort)
        ]
        groups = {group for group, _, _ in candidates}
        candidates += [(2, holder, []) for holder in self.holders(self.node, self.policies.within_cluster_queue)]
        candidates.sort(key=lambda one: (not one[1].evicted, one[0], self.order(one[1])))
        forbidden = self.policies.borrow_within_cohort == "Never"
        if not groups or (forbidden and self.node.usage(self.fr) >= self.node.quota(self.fr)):
            attempts = [True]
        elif forbidden and 0 not in groups:
            attempts = [False, True]
        else:
            attempts = [True, False]
        for borrowing in attempts:
            with self.cluster.trial():
                victims: list[tuple[Holder, str]] = []
                for group, holder, path in candidates:
                    while_borrowing = group == 1 and self.while_borrowing(holder)
                    if group == 1 and borrowing and not while_borrowing:
                        continue
                    if not all(self.over(node) for node in path):
                        continue
                    reason = "InCohortReclaimWhileBorrowing" if while_borrowing else "InCohortReclamation"
                    victims.append((holder, "InClusterQueue" if group == 2 else reason))
                    self.cluster.release(holder)
                    if self.fits(borrowing=borrowing):
                        return self.fill_back(victims, lambda: self.fits(borrowing=borrowing))  # noqa: B023
        return []

    def while_borrowing(self, holder: Holder) -> bool:
        threshold = self.policies.borrow_threshold
        return (
            self.policies.borrow_within_cohort != "Never"
            and holder.priority < self.incoming.priority
            and (threshold is None or holder.priority <= threshold)
        )

    def other_queues(self) -> Iterator[tuple[bool, list[QuotaNode]]]:
        if self.policies.reclaim_within_cohort in (None, "Never"):
            return
        rest, below, advantage = self.amount, self.node, False
        while below.parent is not None:
            advantage = advantage or below.usage(self.fr) + rest <= below.quota(self.fr)
            cell = below.cells.get(self.fr)
            rest = max(0, rest - (0 if cell is None else cell.local_available()))
            for path in paths(below.parent, below):
                if all(self.over(node) for node in path):
                    yield advantage, path
            below = below.parent

    # -- fair --------------------------------------------------------------------------------------------------------

    def fair(self) -> Found:
        strategies = self.config.fair_sharing.strategies if self.config.fair_sharing else ()
        queues: dict[QuotaNode, list[Holder]] = {self.node: self.holders(self.node, self.policies.within_cluster_queue)}
        if self.node.parent is not None and self.policies.reclaim_within_cohort is not None:
            for path in paths(self.node.root(), None):
                if path[0] is not self.node and path[0].borrowed(self.fr):
                    queues[path[0]] = self.holders(path[0], self.policies.reclaim_within_cohort)
        for held in queues.values():
            held.sort(key=self.order)
        self.quota.add_usage(self.incoming.queue.name, {self.fr: self.amount})
        within = self.config.gates.on("FairSharingPreemptWithinNominal") and not self.over(self.node)
        victims: list[tuple[Holder, str]] = []
        retry: dict[QuotaNode, list[Holder]] = {}
        if self.first(queues, victims, retry, strategies[0], within=within) or (
            len(strategies) > 1 and self.second(retry, victims, strategies[1])
        ):
            return self.fill_back(victims, self.fair_fits)
        return []

    def first(
        self,
        queues: dict[QuotaNode, list[Holder]],
        victims: list[tuple[Holder, str]],
        retry: dict[QuotaNode, list[Holder]],
        strategy: PreemptionStrategy,
        *,
        within: bool,
    ) -> bool:
        out: set[QuotaNode] = set()
        while (node := self.turn(queues, out)) is not None:
            if node is self.node or within:
                reason = "InClusterQueue" if node is self.node else "InCohortReclamation"
                if self.take(queues[node].pop(0), reason, victims):
                    return True
                continue
            ours, theirs = below_common_ancestor(self.node, node)
            with_incoming, before = share(ours), share(theirs)
            while queues[node]:
                holder = queues[node].pop(0)
                with self.cluster.trial():
                    self.quota.remove_usage(holder.cluster_queue, holder.usage)
                    after = share(theirs)
                if may_preempt(strategy, preemptor_with=with_incoming, target_before=before, target_after=after):
                    if self.take(holder, "InCohortFairSharing", victims):
                        return True
                    break
                retry.setdefault(node, []).append(holder)
        return False

    def second(
        self, retry: dict[QuotaNode, list[Holder]], victims: list[tuple[Holder, str]], strategy: PreemptionStrategy
    ) -> bool:
        out: set[QuotaNode] = set()
        while (node := self.turn(retry, out)) is not None:
            ours, theirs = below_common_ancestor(self.node, node)
            before = share(theirs)
            holder = retry.pop(node)[0]
            if may_preempt(
                strategy, preemptor_with=share(ours), target_before=before, target_after=before
            ) and self.take(holder, "InCohortFairSharing", victims):
                return True
        return False

    def take(self, holder: Holder, reason: str, victims: list[tuple[Holder, str]]) -> bool:
        self.cluster.release(holder)
        victims.append((holder, reason))
        return self.fair_fits()

    def fair_fits(self) -> bool:
        with self.cluster.trial():
            self.quota.remove_usage(self.incoming.queue.name, {self.fr: self.amount})
            return self.fits()

    def turn(self, queues: dict[QuotaNode, list[Holder]], out: set[QuotaNode]) -> QuotaNode | None:
        """The queue that gives next. ``out`` keeps who was found to have nothing to give."""
        root = self.node.root()
        if root is self.node:
            return root if queues.get(root) else None
        while root not in out:
            node = root
            while not node.is_queue:
                best = None
                for child in sorted((*node.queues.values(), *node.cohorts.values()), key=lambda one: one.name):
                    if child in out:
                        continue
                    borrows = share(child).rank > (0.0, 0.0) or child in self.node.path()
                    if not borrows or (child.is_queue and not queues.get(child)):
                        out.add(child)
                        continue
                    best = child if best is None else self.gives_first(best, child, queues)
                if best is None:
                    out.add(node)
                    break
                node = best
            else:
                return node
        return None

    def gives_first(self, one: QuotaNode, other: QuotaNode, queues: dict[QuotaNode, list[Holder]]) -> QuotaNode:
        ranks = share(one).rank, share(other).rank
        if ranks[0] != ranks[1]:
            return one if ranks[0] > ranks[1] else other
        if one.is_queue != other.is_queue:
            return other if one.is_queue else one
        if not one.is_queue:
            return one
        return min(one, other, key=lambda node: self.order(queues[node][0]))


def paths(cohort: QuotaNode, without: QuotaNode | None) -> Iterator[list[QuotaNode]]:
    """Each ClusterQueue below the cohort with the cohorts between the two, but for one child's."""
    for queue in cohort.queues.values():
        if queue is not without:
            yield [queue]
    for child in cohort.cohorts.values():
        if child is not without:
            for path in paths(child, None):
                yield [*path, child]
