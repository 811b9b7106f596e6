"""A turn of a tree of KAI's Queues: the decisions of gangs, as entries of the engine.

A starting job gets its places from the engine, which knows devices and links; the gangs' decision says which job
starts, and which jobs leave for it. If the engine finds no places although the gang fits, the job waits
for the next turn.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.gangplaces import minimums_of
from controller.scheduler.cluster.incoming import PreemptionReason, Target
from controller.scheduler.decisions.records import Rule
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Mode
from controller.scheduler.kai.gangs.actions import allocate, consolidation, free_gpus, preempt, reclaim
from controller.scheduler.kai.gangs.gang import ACTIVE, Gang, Phase, Task
from controller.scheduler.kai.gangs.session import CycleLimits, GangSession, GangSolution, running
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.kai.turn.gangmodel import GangModel, gang_queues
from controller.scheduler.mirror.specs import GPU
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.preemption.index import started_at_s
from controller.scheduler.preemption.trialstarts import as_incoming, assigned_without, charge_assignment, moved_to
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.volcano.rules import Kai
from controller.scheduler.volcano.session import Occasion, RefusalOf
from controller.scheduler.volcano.tree import FairTree, needs

_REASONS: Final = {
    "consolidation": PreemptionReason.CONSOLIDATION,
    "reclaim": PreemptionReason.IN_COHORT_RECLAMATION,
    "preempt": PreemptionReason.IN_CLUSTER_QUEUE,
}


class GangTurn:
    """One turn. ``run`` decides once on all pending jobs. The cluster is left as it was."""

    def __init__(
        self,
        cluster: Cluster,
        assigner: FlavorAssigner,
        tree: FairTree,
        refusal: RefusalOf,
        occasion: Occasion,
    ) -> None:
        """Takes a snapshot. KAI's order needs no preemptors: Queues below their quota go before all others."""
        self._cluster = cluster
        self._assigner = assigner
        self._tree = tree
        self._refusal = refusal
        self._now_s = occasion.now_s
        self._rules = Kai()
        self._moves = occasion.moves
        self._left = self._moves.left(self._now_s)
        """How many workloads may still move: those above a gang's minimum move with it, and each counts."""
        self._consolidation = cluster.config.extensions.consolidation
        self._holders: dict[WorkloadKey, Holder] = {}
        self._free_gpus = 0.0
        """GPUs that are free after all decisions: no moves could free more for one job."""
        self._gone: set[WorkloadKey] = set()
        """Victims of the solutions so far: two solutions may name workloads of one gang, and each is evicted once."""
        self.due_s: float | None = None

    def run(self, pending: Iterable[PendingWorkload]) -> list[Entry]:
        model = GangModel(self._cluster, self._tree)
        self._hold(model)
        entries, gangs, refused = self._entries(pending, model)
        running(model.nodes, model.gangs.values())
        usage = self._cluster.config.queue_usage
        session = GangSession(
            model.nodes.values(),
            model.gangs.values(),
            gang_queues(self._tree),
            CycleLimits(moves=self._left, usage_weight=usage.weight if usage is not None else 0.0),
            spares=self._spares,
            moves_for=partial(self._moves_for, model),
        )
        self._rules.settle(self._tree)
        for action in (allocate, consolidation, reclaim, preempt):
            action(session)
        self._free_gpus = free_gpus(session)
        decided = self._decided(entries, _Answers(session, model, gangs))
        decided_keys = {entry.key for entry in decided}
        if len(decided_keys) == len(entries):
            self.due_s = None
        elif self._consolidation is not None:
            self._due_at(self._moves.next_s(self._now_s))
        return [*decided, *(entry for entry in entries.values() if entry.key not in decided_keys), *refused]

    # -- in ----------------------------------------------------------------------------------------------------------

    def _entries(
        self, pending: Iterable[PendingWorkload], model: GangModel
    ) -> tuple[dict[WorkloadKey, Entry], dict[WorkloadKey, Gang], list[Entry]]:
        """The entries and gangs of workloads that are tried, and the entries of those that are not tried at all."""
        entries: dict[WorkloadKey, Entry] = {}
        gangs: dict[WorkloadKey, Gang] = {}
        refused: list[Entry] = []
        for waiting in pending:
            if waiting.at is None:
                continue
            leaf = QueueName(waiting.at.name)
            entry = Entry(waiting.incoming(self._cluster.queues[waiting.at.name]), pending=waiting, mirrored=True)
            why = self._refusal(waiting, entry.incoming)
            if why is not None:
                entry.decide(*why)
                refused.append(entry)
                continue
            gangs[entry.key] = model.add(waiting.info, leaf, waiting.priority, entry.incoming.queued_at_s)
            entries[entry.key] = entry
        return entries, gangs, refused

    def _hold(self, model: GangModel) -> None:
        tree, system = self._tree, self._tree.system
        for leaf in sorted(tree.leaves):
            queue = self._cluster.queues.get(ClusterQueueName(leaf))
            holders = queue.holders.values() if queue is not None else ()
            for holder in sorted(holders, key=lambda each: len([*minimums_of(self._cluster, each.info.workload)])):
                gang = model.hold(holder, leaf)
                self._holders[holder.key] = holder
                if self._consolidation is not None:
                    gang.movable = gang.movable and self._has_run(holder, self._consolidation.minimum_runtime_s)
                if not holder.evicted:
                    need = needs(holder.info, system)
                    tree.charge(leaf, need, preemptible=gang.preemptible)

    def _has_run(self, holder: Holder, minimum_s: float) -> bool:
        """Whether the holder has run for ``minimum_s``; if not, ``due_s`` includes the time at which it will have."""
        started_s = started_at_s(holder)
        if minimum_s <= 0.0 or started_s is None or started_s + minimum_s <= self._now_s:
            return True
        self._due_at(started_s + minimum_s)
        return False

    def _due_at(self, at_s: float | None) -> None:
        if at_s is not None:
            self.due_s = at_s if self.due_s is None else min(self.due_s, at_s)

    def _moves_for(self, model: GangModel, gang: Gang) -> Callable[[Gang], bool]:
        """A function that says whether a gang may move for this one: no workload of it has moved for one of this gang
        before. Each workload of an elastic gang waits and moves by itself, so any pair of them counts.
        """
        waiting = model.keys(gang.next_tasks())

        def may_move(moved: Gang) -> bool:
            return moved.movable and not any(
                self._moves.moved_for(key, by) for key in model.keys(moved.in_phase(ACTIVE)) for by in waiting
            )

        return may_move

    def _spares(self, victim: Gang, gang: Gang, within: bool) -> bool:
        holder = self._holders.get(WorkloadKey(victim.name))
        return holder is not None and not self._has_run(
            holder, self._minimum_s(victim.queue, gang.queue, within=within)
        )

    def _minimum_s(self, victim: QueueName, taker: QueueName, *, within: bool) -> float:
        """The minimum run time in seconds that protects a victim. For preemption it is the nearest value upwards from
        the victim's Queue; for reclaim the nearest one from where the paths of the two Queues part, upwards.
        """
        names = self._tree.names(victim)
        if not within:
            ours = set(self._tree.names(taker))
            below = [at for at, name in enumerate(names) if name not in ours]
            names = names[below[-1] if below else 0 :]
        for name in names:
            spec = self._tree.specs[name]
            said = spec.preempt_min_runtime_s if within else spec.reclaim_min_runtime_s
            if said is not None:
                return said
        return 0.0

    # -- out ---------------------------------------------------------------------------------------------------------

    def _decided(self, entries: dict[WorkloadKey, Entry], answers: "_Answers") -> list[Entry]:
        """The decided entries: first those that start, then those that others leave for, each in the order in which
        they wait.
        """
        decided: list[Entry] = []
        with self._cluster.trial():
            for key, entry in entries.items():
                if answers.starts(key) and self._start(entry, answers.gangs[key]):
                    decided.append(entry)
            for key, entry in entries.items():
                solution = answers.solutions.get(key)
                if solution is not None and self._evicts(entry, solution, answers.victims(solution)):
                    decided.append(entry)
                elif entry.rule is not Rule.FITS:
                    self._wait(entry, answers.gangs[key], unsolved=solution is None)
        return decided

    def _evicts(self, entry: Entry, solution: GangSolution, leaving: Iterable[WorkloadKey]) -> bool:
        """Evicts the victims, if the engine itself then has places for the job: devices may not suit where counts do.
        Each victim that moves must get a place too, in the order in which they will be started, and no later job gets
        that place. Returns whether the entry was decided.
        """
        victims = [self._holders[key] for key in leaving if key in self._holders and key not in self._gone]
        moves = solution.action == "consolidation"
        if moves and len(victims) > self._left:
            return False
        starting = [entry.incoming, *(as_incoming(self._cluster, holder) for holder in victims if moves)]
        starting.sort(key=lambda incoming: (-incoming.priority, incoming.queued_at_s, incoming.key))
        assignments = assigned_without(self._cluster, self._assigner, victims, starting)
        if assignments is None:
            return False
        entry.assignment = assignments[entry.key]
        for holder in victims:
            self._cluster.release(holder)
            self._gone.add(holder.key)
        for incoming in starting:
            charge_assignment(self._cluster, incoming, assignments[incoming.key])
        reason, grace_s = _REASONS[solution.action], self._cluster.config.extensions.max_grace_s
        entry.targets = tuple(
            Target(holder, reason, moved_to(holder, assignments[holder.key], self._now_s, grace_s) if moves else None)
            for holder in victims
            if not holder.evicted
        )
        self._left -= len(entry.targets) if moves else 0
        entry.decide(Rule.PREEMPTS if entry.targets else Rule.FITS_AFTER_PREEMPTION)
        return True

    def _start(self, entry: Entry, gang: Gang) -> bool:
        assignment = self._assigner.assign(entry.incoming)
        entry.assignment = assignment
        if assignment.mode is not Mode.FIT:
            return False
        charge_assignment(self._cluster, entry.incoming, assignment)
        leaf = QueueName(entry.incoming.queue.name)
        info = entry.incoming.info
        self._tree.charge(leaf, needs(info, self._tree.system), preemptible=gang.preemptible)
        entry.decide(Rule.FITS)
        return True

    def _wait(self, entry: Entry, gang: Gang, *, unsolved: bool) -> None:
        """Decide why the job waits: for jobs that are leaving, by its Queue's bounds, or because nothing fits."""
        if unsolved and gang.in_phase(frozenset({Phase.PIPELINED})):
            entry.decide(Rule.FITS_AFTER_PREEMPTION)
            return
        leaf, info = QueueName(entry.incoming.queue.name), entry.incoming.info
        need = needs(info, self._tree.system)
        why = self._rules.refusal(self._tree, leaf, need, preemptible=gang.preemptible)
        if why and (never := self._rules.never(self._tree, leaf, need, preemptible=gang.preemptible)):
            entry.decide(Rule.NEVER, never)
        else:
            entry.decide(Rule.OVER_SHARE if why else Rule.NO_FIT, why or self._lacks_moves(gang, need))
        if not why and entry.assignment.mode is Mode.NO_FIT and not entry.assignment.pod_sets:
            entry.assignment = self._assigner.assign(entry.incoming)

    def _lacks_moves(self, gang: Gang, need: Amounts) -> str:
        """The reason that no moves are left for now, where moves could help; empty otherwise."""
        if not gang.preemptible or need.get(GPU, 0.0) > self._free_gpus:
            return ""
        return self._moves.spent(self._now_s)


class _Answers:
    """The decisions of a session, by workload."""

    def __init__(self, session: GangSession, model: GangModel, gangs: Mapping[WorkloadKey, Gang]) -> None:
        """``gangs``: the gangs of the workloads that wait."""
        self.gangs = gangs
        self._model = model
        self._tasks: dict[WorkloadKey, list[Task]] = {}
        for gang in session.gangs.values():
            for task in gang.tasks():
                self._tasks.setdefault(model.workloads[task.name], []).append(task)
        self.solutions = {
            model.workloads[task.name]: solution for solution in session.solutions for task in solution.tasks
        }

    def starts(self, key: WorkloadKey) -> bool:
        return {task.phase for task in self._tasks.get(key, ())} <= {Phase.ALLOCATED}

    def victims(self, solution: GangSolution) -> list[WorkloadKey]:
        """The victims of a solution. What is above the minimum of a gang leaves with it."""
        return self._model.with_above(self._model.keys(solution.victims))
