"""One session of a tree of Volcano's Queues: it decides on every waiting job of the tree.

    allocate   each job in its turn takes what is free, or what leaving workloads will free
    reclaim    a job whose Queue is below its share takes from Queues that are above theirs
    preempt    a job takes from others of its Queue with a lower priority

The Queues take turns by the order of their rules, anew after each job; in a Queue higher priority goes first, then
earlier time. All charges are made in one trial. Nothing is reserved between sessions: the next one decides anew on what
there is then. Jobs that others were evicted for go before all turns: without that, if a victim is larger than what was
needed, its own Queue would come first in the order, and the victim would be started there again, and evicted again, for
ever.

Source: the actions of these names of Volcano's scheduler, and its plugins proportion and capacity. A session looks at
every waiting job of the tree; jobs of one Queue that would be decided alike are tried once, and one search for victims
looks at 512 candidates at most.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming, PreemptionReason, Target
from controller.scheduler.decisions.records import Rule
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Assignment, Mode
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.preemption.moves import Moves
from controller.scheduler.preemption.trialstarts import charge_assignment, placed
from controller.scheduler.queues.entry import Entry
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.volcano.candidates import Candidates
from controller.scheduler.volcano.rules import Key, QueueRules, rules_for
from controller.scheduler.volcano.tree import FairTree, is_preemptible, needs
from controller.scheduler.volcano.victims import Solver
from controller.scheduler.volcano.walk import Walk

RefusalOf = Callable[[PendingWorkload, "Incoming"], tuple[Rule, str] | None]
"""Returns why a job is not tried at all (its checks, its namespace, its requests), or None."""


class Occasion(NamedTuple):
    """The circumstances of a turn beside the cluster. ``preemptors``: the jobs that wait for what workloads leave that
    were evicted for them.
    """

    now_s: float
    moves: Moves
    preemptors: Collection[WorkloadKey] = ()


class Job:
    """A job on its way through the session."""

    def __init__(self, entry: Entry, leaf: QueueName, need: Amounts, *, preemptible: bool) -> None:
        self.entry = entry
        self.leaf = leaf
        self.need = need
        self.preemptible = preemptible

    @property
    def alike(self) -> tuple[object, ...]:
        """A key that is equal for jobs of one Queue that are decided alike."""
        return self.leaf, self.entry.incoming.shape, self.preemptible


class Turns(Walk[Key]):
    """Jobs in the order in which they are tried: the best job of the best Queue, by what has been charged so far."""

    def __init__(self, tree: FairTree, rules: QueueRules, jobs: Mapping[QueueName, Sequence[Job]]) -> None:
        super().__init__(tree)
        self._rules = rules
        self._waiting = {leaf: list(reversed(some)) for leaf, some in jobs.items()}
        tree.take_changed()
        self.build()

    def next(self) -> Job | None:
        self.refresh(self._tree.take_changed())
        leaf = self.best()
        if leaf is None:
            return None
        job = self._waiting[leaf].pop()
        self.refresh((leaf,))
        return job

    def drop(self, leaf: QueueName) -> list[Job]:
        """Take out the Queue's other jobs, which are not tried any more. Returns them, the first one first."""
        dropped, self._waiting[leaf] = self._waiting.get(leaf, []), []
        self.refresh((leaf,))
        return dropped[::-1]

    def _has(self, leaf: QueueName) -> bool:
        return bool(self._waiting.get(leaf))

    def _key(self, name: QueueName, leaf: QueueName) -> Key:
        return self._rules.key(self._tree, name, next_job=self._waiting[leaf][-1].need)


class FairnessSession:
    """One session. ``run`` decides on every job that it was given and returns the entries in the order of decisions;
    nothing stays charged.
    """

    def __init__(
        self,
        cluster: Cluster,
        assigner: FlavorAssigner,
        tree: FairTree,
        refusal: RefusalOf,
        occasion: Occasion,
    ) -> None:
        """Uses only the preemptors of ``occasion``: Volcano moves no workloads, and its rules do not depend on time."""
        self._preemptors = occasion.preemptors
        self._cluster = cluster
        self._assigner = assigner
        self._tree = tree
        self._refusal = refusal
        self._rules = rules_for(tree)
        self._decided: list[Entry] = []
        self._leaving: list[Holder] = []
        """Holders that were evicted earlier: what they hold will be free."""
        self._pipelined: list[Job] = []
        """Jobs that fit once the leaving holders have left."""
        self._solver = Solver(cluster, assigner, tree, self._rules)
        self.due_s: float | None = None
        """Always None: Volcano's rules have no time-based condition. ``GangTurn`` has one."""

    def run(self, pending: Iterable[PendingWorkload]) -> list[Entry]:
        jobs = self._jobs(pending)
        with self._cluster.trial():
            left = self._allocate(jobs)
            for holder in self._leaving:
                self._cluster.release(holder)
            for job in self._pipelined:
                charge_assignment(self._cluster, job.entry.incoming, job.entry.assignment)
            left = self._each(left, self._reclaims)
            left = self._each(left, self._preempts)
        return [*self._decided, *(job.entry for job in left)]

    # -- what there is -----------------------------------------------------------------------------------------------

    def _jobs(self, pending: Iterable[PendingWorkload]) -> dict[QueueName, list[Job]]:
        """The jobs by Queue, in their order. Also makes the tree count what runs and what waits."""
        tree, system = self._tree, self._tree.system
        for leaf in sorted(tree.leaves):
            queue = self._cluster.queues.get(ClusterQueueName(leaf))
            for holder in queue.holders.values() if queue is not None else ():
                if holder.evicted:
                    self._leaving.append(holder)
                    continue
                need = needs(holder.info, system)
                preemptible = is_preemptible(holder.info, holder.priority, system)
                tree.ask(leaf, need)
                tree.charge(leaf, need, preemptible=preemptible)
        jobs: dict[QueueName, list[Job]] = {}
        for waiting in pending:
            if waiting.at is None:
                continue
            leaf = QueueName(waiting.at.name)
            entry = Entry(waiting.incoming(self._cluster.queues[waiting.at.name]), pending=waiting, mirrored=True)
            job = Job(
                entry,
                leaf,
                needs(waiting.info, system),
                preemptible=is_preemptible(waiting.info, waiting.priority, system),
            )
            tree.ask(leaf, job.need)
            jobs.setdefault(leaf, []).append(job)
        self._rules.settle(tree)
        return jobs

    # -- actions -----------------------------------------------------------------------------------------------------

    def _allocate(self, jobs: Mapping[QueueName, Sequence[Job]]) -> list[Job]:
        """Decides on jobs that start. Returns those that did not fit, in their order."""
        jobs = {leaf: [job for job in some if not self._takes_what_victims_left(job)] for leaf, some in jobs.items()}
        left: list[Job] = []
        failed: set[tuple[object, ...]] = set()
        turns = Turns(self._tree, self._rules, jobs)
        while (job := turns.next()) is not None:
            alike = job.alike
            # Jobs of several namespaces are alike, and a refusal for one of them says nothing about the others.
            refused = self._refused(job)
            if not refused and alike in failed:
                left.append(job)
            elif refused or not self._start(job):
                left.append(job)
                if not refused:
                    failed.add(alike)
                if self._tree.specs[job.leaf].strict_fifo:
                    left += turns.drop(job.leaf)
        return left

    def _takes_what_victims_left(self, job: Job) -> bool:
        return job.entry.key in self._preemptors and not self._refused(job) and self._start(job)

    def _refused(self, job: Job) -> bool:
        """Whether the job may not be tried, because it is not valid or its namespace may not use the queue."""
        entry = job.entry
        refused = self._refusal(entry.pending, entry.incoming) if entry.pending is not None else None
        if refused is not None:
            entry.decide(*refused)
        return refused is not None

    def _start(self, job: Job) -> bool:
        """Whether the job starts now, or once those that are leaving have left."""
        entry, incoming = job.entry, job.entry.incoming
        why = self._rules.refusal(self._tree, job.leaf, job.need, preemptible=job.preemptible)
        if why:
            never = self._rules.never(self._tree, job.leaf, job.need, preemptible=job.preemptible)
            entry.decide(Rule.NEVER if never else Rule.OVER_SHARE, never or why)
            return False
        entry.assignment = self._assigner.assign(incoming)
        if entry.assignment.mode is Mode.FIT and self._beside_pipelined(incoming, entry.assignment):
            charge_assignment(self._cluster, incoming, entry.assignment)
            entry.decide(Rule.FITS)
        elif not self._wait_for_leaving(job):
            entry.decide(Rule.NO_FIT)
            return False
        self._tree.charge(job.leaf, job.need, preemptible=job.preemptible)
        self._decided.append(entry)
        return True

    def _future(self) -> None:
        """Charges the future state, in a trial: as if leaving holders had left, and the jobs that wait for that had
        started.
        """
        for holder in self._leaving:
            self._cluster.release(holder)
        for job in self._pipelined:
            charge_assignment(self._cluster, job.entry.incoming, job.entry.assignment)

    def _beside_pipelined(self, incoming: Incoming, assignment: Assignment) -> bool:
        if not self._pipelined:
            return True
        with self._cluster.trial():
            self._future()
            places = [place for place, _ in placed(self._cluster, incoming, assignment)]
            return incoming.queue.node.fits(assignment.usage) and self._cluster.placement.fits(places)

    def _wait_for_leaving(self, job: Job) -> bool:
        if not self._leaving:
            return False
        with self._cluster.trial():
            self._future()
            found = self._assigner.assign(job.entry.incoming)
        if found.mode is not Mode.FIT:
            return False
        job.entry.assignment = found
        job.entry.decide(Rule.FITS_AFTER_PREEMPTION)
        self._pipelined.append(job)
        return True

    def _each(self, jobs: Sequence[Job], action: Callable[[Job], bool]) -> list[Job]:
        """Runs the action for each job, the Queues taking turns. Returns the jobs for which it did nothing."""
        by_leaf: dict[QueueName, list[Job]] = {}
        for each in jobs:
            by_leaf.setdefault(each.leaf, []).append(each)
        for some in by_leaf.values():
            some.sort(key=lambda job: job.entry.pending.order() if job.entry.pending is not None else ())
        left: list[Job] = []
        failed: set[tuple[object, ...]] = set()
        turns = Turns(self._tree, self._rules, by_leaf)
        while (job := turns.next()) is not None:
            alike = job.alike
            tried = job.entry.rule in (Rule.NO_FIT, Rule.OVER_SHARE) and alike not in failed
            if tried and action(job):
                continue
            failed.add(alike)
            left.append(job)
        return left

    def _reclaims(self, job: Job) -> bool:
        tree, rules = self._tree, self._rules
        if len(tree.leaves) == 1 or not rules.may_reclaim(tree, job.leaf, job.need):
            return False
        full = rules.full(tree, job.leaf, job.need)
        leaves = [leaf for leaf in sorted(tree.leaves - {job.leaf}) if full is None or full[0] in tree.names(leaf)]
        if self._takes_back(job, leaves):
            return True
        if full is None:
            return False
        return self._takes_back(job, sorted(tree.leaves - {job.leaf}), below_full=True)

    def _takes_back(self, job: Job, leaves: Sequence[QueueName], *, below_full: bool = False) -> bool:
        """Evict holders in these leaves for the job. ``below_full``: first enough of them below those Queues above the
        job that are full; the rest may be anywhere.
        """
        candidates = Candidates(self._cluster, self._tree, self._rules, leaves, job.entry.incoming, within=False)
        first = self._solver.frees_enough(job.leaf, job.need, candidates) if below_full else []
        return first is not None and self._evicts(job, candidates, PreemptionReason.IN_COHORT_RECLAMATION, first)

    def _preempts(self, job: Job) -> bool:
        candidates = Candidates(self._cluster, self._tree, self._rules, (job.leaf,), job.entry.incoming, within=True)
        return self._evicts(job, candidates, PreemptionReason.IN_CLUSTER_QUEUE)

    def _evicts(self, job: Job, candidates: Candidates, reason: PreemptionReason, first: Sequence[Holder] = ()) -> bool:
        entry = job.entry
        solution = self._solver.solve(
            entry.incoming, job.leaf, job.need, candidates, preemptible=job.preemptible, first=first
        )
        if solution is None:
            return False
        entry.assignment = solution.assignment
        entry.targets = tuple(Target(holder, reason) for holder in solution.victims)
        entry.decide(Rule.PREEMPTS)
        for holder in solution.victims:
            self._cluster.release(holder)
            leaf, system = QueueName(holder.cluster_queue), self._tree.system
            self._solver.taken.add(holder.key)
            self._tree.charge(
                leaf,
                needs(holder.info, system),
                preemptible=is_preemptible(holder.info, holder.priority, system),
                sign=-1,
            )
        charge_assignment(self._cluster, entry.incoming, entry.assignment)
        self._tree.charge(job.leaf, job.need, preemptible=job.preemptible)
        self._decided.append(entry)
        return True
