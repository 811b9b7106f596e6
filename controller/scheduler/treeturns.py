"""Decides when the trees of other systems take their turn: after every change that may let a job in, each tree as a
whole.

The system that a tree's Queues come from selects its policy in ``POLICIES``. A queue without a policy here is decided
by Kueue's rules, like any ClusterQueue.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.decisions.records import Rule
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.history import QueueHistory
from controller.scheduler.kai.proportion.measured import MeasuredUsage
from controller.scheduler.kai.proportion.queues import Amounts, added
from controller.scheduler.kai.turn.gangturn import GangTurn
from controller.scheduler.mirror.mirror import Mirror
from controller.scheduler.mirror.specs import MirroredName, System
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.preemption.moves import Moves
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingWorkload, RequeueReason
from controller.scheduler.queues.pendingqueues import PendingQueues
from controller.scheduler.volcano.futurecapacity import TreeBounds
from controller.scheduler.volcano.rules import bounds_for
from controller.scheduler.volcano.session import FairnessSession, Occasion, RefusalOf
from controller.scheduler.volcano.tree import FairTree, is_preemptible, needs


class TreePolicy(Protocol):
    """A policy that decides once on all pending jobs of a tree."""

    due_s: float | None
    """The time at which the answer may change without any other event; None for never."""

    def run(self, pending: Iterable[PendingWorkload]) -> list[Entry]:
        """The entries of jobs that it decided on, in that order. The cluster is left as it was."""


OpenFor = Callable[[ClusterQueueName], bool]
"""Returns whether a ClusterQueue is active."""
MakePolicy = Callable[[Cluster, FlavorAssigner, FairTree, RefusalOf, Occasion], TreePolicy]
POLICIES: Final[Mapping[System, MakePolicy]] = {System.VOLCANO: FairnessSession, System.KAI: GangTurn}


class FairTurns:
    """The turns of all trees. ``_seen``: the engine's count of changes at which each tree was decided; a later count
    makes the tree due again. ``_preemptors`` are the jobs that wait for what others leave that were evicted for them;
    a new leader knows none, and learns them when it evicts.
    """

    def __init__(
        self,
        cluster: Cluster,
        assigner: FlavorAssigner,
        queues: PendingQueues,
        mirror: Mirror,
        moves: Moves,
        history: QueueHistory | None,
        measured: MeasuredUsage | None,
    ) -> None:
        """``measured`` takes precedence over ``history`` while it is fresh."""
        self._cluster = cluster
        self._assigner = assigner
        self._queues = queues
        self._mirror = mirror
        self._moves = moves
        self._history = history
        self._measured = measured
        self._seen: dict[System, int] = {}
        self._due: dict[System, float] = {}
        self._preemptors: dict[System, frozenset[WorkloadKey]] = {}

    def due(self, changes: int, now_s: float, open_for: OpenFor) -> bool:
        """Whether any tree must be decided now."""
        return any(self._is_due(system, changes, now_s, open_for) for system in self._systems())

    def next_due_s(self) -> float | None:
        return min(self._due.values(), default=None)

    def take(self, changes: int, now_s: float, refusal: RefusalOf, open_for: OpenFor) -> list[Entry]:
        """The decisions on all trees that are due, which the caller carries out."""
        decided: list[Entry] = []
        for system in self._systems():
            if self._is_due(system, changes, now_s, open_for):
                self._seen[system] = changes
                self._due.pop(system, None)
                decided += self._turn(system, now_s, refusal, open_for)
        return decided

    def _turn(self, system: System, now_s: float, refusal: RefusalOf, open_for: OpenFor) -> list[Entry]:
        pending = [
            each for name in self._leaves(system) if open_for(name) for each in self._queues.take_all(name, now_s)
        ]
        policy = self._policy(system, now_s, refusal)
        decided = policy.run(pending)
        self._preemptors[system] = self._still_waiting(system, pending, decided)
        if policy.due_s is not None:
            self._due[system] = policy.due_s
        said = {entry.key for entry in decided}
        for each in pending:
            if each.key not in said:
                self._queues.requeue(each, RequeueReason.GENERIC, now_s)
        return decided

    def asked(
        self, job: PendingWorkload, queue: ClusterQueueName, now_s: float, refusal: RefusalOf, open_for: OpenFor
    ) -> Entry | None:
        """What the next turn would decide on a job that is queued nowhere, if it waited in this queue beside all
        pending jobs of the tree. The state is left as it was. None where the queue admits nothing.
        """
        system = self._mirror.queues.queues[MirroredName(queue)].system
        names = [name for name in self._leaves(system) if open_for(name)]
        try:
            pending = [each for name in names for each in self._queues.waiting_with(job, name, queue, now_s)]
            decided = self._policy(system, now_s, refusal).run(pending)
        finally:
            job.at = None
        return next((entry for entry in decided if entry.key == job.key), None)

    def bounds(self, queue: ClusterQueueName, now_s: float) -> TreeBounds:
        """The tree of a leaf with what is held and requested in it, and the limits of its Queues."""
        system = self._mirror.queues.queues[MirroredName(queue)].system
        tree = self._tree(system, now_s)
        for leaf in tree.leaves:
            state = self._cluster.queues.get(ClusterQueueName(leaf))
            for holder in state.holders.values() if state is not None else ():
                if not holder.evicted:
                    need = needs(holder.info, system)
                    tree.ask(leaf, need)
                    tree.charge(leaf, need, preemptible=is_preemptible(holder.info, holder.priority, system))
        for each in self._queues:
            if each.at is not None and QueueName(each.at.name) in tree.leaves:
                tree.ask(QueueName(each.at.name), needs(each.info, system))
        rules = bounds_for(tree)
        rules.settle(tree)
        return TreeBounds(tree, rules)

    def _leaves(self, system: System) -> list[ClusterQueueName]:
        return [ClusterQueueName(spec.name) for spec in self._mirror.queues.leaves(system)]

    def _policy(self, system: System, now_s: float, refusal: RefusalOf) -> TreePolicy:
        occasion = Occasion(now_s, self._moves, self._preemptors.get(system, frozenset()))
        tree = self._tree(system, now_s)
        return POLICIES[system](self._cluster, self._assigner, tree, refusal, occasion)

    def _still_waiting(
        self, system: System, pending: Iterable[PendingWorkload], decided: Iterable[Entry]
    ) -> frozenset[WorkloadKey]:
        """The preemptors, of before and of this turn, that still wait."""
        before = self._preemptors.get(system, frozenset[WorkloadKey]())
        new = {entry.key for entry in decided if entry.rule is Rule.PREEMPTS}
        started = {entry.key for entry in decided if entry.rule is Rule.FITS}
        return frozenset(each.key for each in pending if each.key in before | new) - started

    def sample(self, now_s: float) -> dict[QueueName, str]:
        """Count what each of KAI's Queues has had since the last sample. Returns the records of Queues that have a
        history.
        """
        if self._history is None:
            return {}
        taken, total = self.allocated()
        self._history.sample(taken, total, now_s)
        return {name: self._history.record(name) for name in self._history.names() if name in taken}

    def allocated(self) -> tuple[dict[QueueName, Amounts], Amounts]:
        """What each of KAI's Queues has, including those below it; and the total of the cluster."""
        tree = FairTree(self._mirror.queues, System.KAI, self._mirror.capacity)
        taken = dict[QueueName, Amounts]((name, {}) for name in tree.specs)
        for leaf in tree.leaves:
            queue = self._cluster.queues.get(ClusterQueueName(leaf))
            for holder in queue.holders.values() if queue is not None else ():
                need = needs(holder.info, System.KAI)
                for name in tree.names(leaf):
                    taken[name] = added(taken[name], need)
        return taken, tree.total

    def _tree(self, system: System, now_s: float) -> FairTree:
        usage = self._usage(now_s) if system is System.KAI else {}
        places = self._mirror.places(system)
        return FairTree(self._mirror.queues, system, self._mirror.capacity, places=places, usage=usage)

    def _usage(self, now_s: float) -> Mapping[QueueName, Amounts]:
        measured = self._measured.usage(now_s) if self._measured is not None else None
        if measured is not None:
            return measured
        return self._history.usage() if self._history is not None else {}

    def _systems(self) -> list[System]:
        return sorted({spec.system for spec in self._mirror.queues.leaves()})

    def _is_due(self, system: System, changes: int, now_s: float, open_for: OpenFor) -> bool:
        due_s = self._due.get(system)
        if self._seen.get(system) != changes or (due_s is not None and due_s <= now_s):
            return True
        # The end of a back-off is not counted as a change.
        return any(open_for(name) and self._queues.counts(name)[0] for name in self._leaves(system))
