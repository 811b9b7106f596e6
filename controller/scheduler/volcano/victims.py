"""Finds the victims that a job of a mirrored tree needs: they are taken worst first until the job fits, and put back
where they still fit.

Source: KAI Scheduler's solver, with whole jobs. A victim that finds its place beside the job stays; one that finds
another place is moved, which is a restart, and does not count as taken from its Queue. The first set that the rules
allow is the answer: it need not be the smallest. Candidates that the rules never let go are left out of the sets: one
of them would spoil every set that contains it (Volcano's own reclaim filters them victim by victim).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from typing import Final, NamedTuple

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Assignment, Mode
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.model.resources import ResourceName, WorkloadKey
from controller.scheduler.preemption.trialstarts import as_incoming, charge_assignment, placed_holder
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.volcano.candidates import Candidates
from controller.scheduler.volcano.rules import QueueRules
from controller.scheduler.volcano.tree import FairTree, needs

_MOST: Final = 512
"""The number of candidates that are looked at for one job."""


class VictimSolution(NamedTuple):
    """``victims`` leave for the assignment; ``moved`` are those of them that find another place at once."""

    assignment: Assignment
    victims: tuple[Holder, ...]
    moved: tuple[Holder, ...]


@dataclass(frozen=True)
class Question:
    """The search for victims of one job of Queue ``leaf``. ``within``: victims are of its own Queue, else of others."""

    incoming: Incoming
    leaf: QueueName
    need: Amounts
    _: KW_ONLY
    preemptible: bool
    within: bool


class Solver:
    """The search for victims in one session. ``taken``: the victims of this session so far; none is taken twice."""

    def __init__(self, cluster: Cluster, assigner: FlavorAssigner, tree: FairTree, rules: QueueRules) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._tree = tree
        self._rules = rules
        self.taken: set[WorkloadKey] = set()

    def solve(
        self,
        incoming: Incoming,
        leaf: QueueName,
        need: Amounts,
        candidates: Candidates,
        *,
        preemptible: bool,
        first: Sequence[Holder] = (),
    ) -> VictimSolution | None:
        """The victims and the assignment for a job; None if there are none. ``first`` leave in any case, before the
        candidates.

        The first try takes all candidates that may go at all. The next ones, with candidates everywhere and then node
        by node, take those that may go beside the ones before them: each of two Queues gives what it has too much.
        """
        question = Question(incoming, leaf, need, preemptible=preemptible, within=candidates.within)
        leaving = {holder.key for holder in first}
        every = list(islice(candidates.worst_first(self._may_go(question), self.taken | leaving), _MOST))
        if not (first or every) or not self._fits_without(incoming, [*first, *every]):
            return None
        solution = self._first_of(question, first, every)
        if solution is not None or question.within:
            return solution
        for some in self._sets(every):
            beside = self._beside(question, first, some)
            if len(beside) < len(every) and self._fits_without(incoming, [*first, *beside]):
                solution = self._first_of(question, first, beside)
                if solution is not None:
                    return solution
        return None

    def _may_go(self, question: Question) -> Callable[[Holder], bool]:
        """A function that says whether the rules would let a holder go now; what other holders lose before it makes
        that no easier.
        """
        if question.within:
            return lambda _: True
        tree, rules = self._tree, self._rules

        def goes(holder: Holder) -> bool:
            lost = {QueueName(holder.cluster_queue): [needs(holder.info, tree.system)]}
            return rules.allows(tree, question.leaf, question.need, lost, preemptible=question.preemptible)

        return goes

    def _sets(self, every: Sequence[Holder]) -> Iterator[Sequence[Holder]]:
        """All candidates, then those of each node, ordered by the worst one on it: what a Queue gives on one node, it
        does not give elsewhere.
        """
        yield every
        by_node: dict[tuple[str, ...], list[Holder]] = {}
        for holder in every:
            places = [place for (_, place), _ in placed_holder(self._cluster, holder)]
            for node in dict.fromkeys(domain.values for place in places for domain in place.domains):
                by_node.setdefault(node, []).append(holder)
        yield from by_node.values()

    def _beside(self, question: Question, first: Sequence[Holder], every: Sequence[Holder]) -> list[Holder]:
        """The candidates, in their order, that may go once ``first`` and the candidates before them have gone."""
        goes, gone = self._may_go(question), list(first)
        for holder in first:
            self._charge(holder, sign=-1)
        for holder in every:
            if goes(holder):
                self._charge(holder, sign=-1)
                gone.append(holder)
        for holder in gone:
            self._charge(holder, sign=1)
        return gone[len(first) :]

    def _first_of(self, question: Question, first: Sequence[Holder], every: Sequence[Holder]) -> VictimSolution | None:
        """The first set that the rules allow: ``first`` and the worst candidates, as few as needed."""
        incoming, leaving = question.incoming, {holder.key for holder in first}
        all_ = [*first, *every]
        with self._cluster.trial():
            for at, holder in enumerate(all_):
                self._cluster.release(holder)
                if at + 1 < len(first):
                    continue
                assignment = self._assigner.assign(incoming)
                if assignment.mode is not Mode.FIT:
                    continue
                lost, moved = self._put_back(incoming, assignment, all_[: at + 1], leaving)
                if self._allowed(question, lost):
                    return VictimSolution(assignment, (*lost, *moved), moved)
        return None

    def frees_enough(self, leaf: QueueName, need: Amounts, candidates: Candidates) -> list[Holder] | None:
        """Victims without which Queues above the job's own cannot take the job, the worst first; None where there are
        not enough. Each of them may be taken: a holder that its Queue keeps is skipped.
        """
        question = Question(candidates.incoming, leaf, need, preemptible=True, within=False)
        tree = self._tree
        every = list(islice(candidates.worst_first(self._may_go(question), self.taken), _MOST))
        leaving: list[Holder] = []
        try:
            while (full := self._rules.full(tree, leaf, need)) is not None:
                holder = next((each for each in every if self._helps(each, full, leaf, need)), None)
                if holder is None:
                    return None
                every.remove(holder)
                leaving.append(holder)
                self._charge(holder, sign=-1)
            return leaving
        finally:
            for holder in leaving:
                self._charge(holder, sign=1)

    def _helps(self, holder: Holder, full: tuple[QueueName, ResourceName], leaf: QueueName, need: Amounts) -> bool:
        """Whether the holder holds, below the full Queue, the resource of which that has too much, and may be taken."""
        queue, held = QueueName(holder.cluster_queue), needs(holder.info, self._tree.system)
        if full[0] not in self._tree.names(queue) or held.get(full[1], 0.0) <= 0.0:
            return False
        return self._rules.allows(self._tree, leaf, need, {queue: [held]}, preemptible=True)

    def _charge(self, holder: Holder, *, sign: int) -> None:
        tree = self._tree
        tree.charge(QueueName(holder.cluster_queue), needs(holder.info, tree.system), preemptible=True, sign=sign)

    def _fits_without(self, incoming: Incoming, every: Sequence[Holder]) -> bool:
        with self._cluster.trial():
            for holder in every:
                self._cluster.release(holder)
            return self._assigner.assign(incoming).mode is Mode.FIT

    def _put_back(
        self, incoming: Incoming, assignment: Assignment, gone: Sequence[Holder], leaving: Collection[WorkloadKey]
    ) -> tuple[tuple[Holder, ...], tuple[Holder, ...]]:
        """The victims that find no place beside the assignment, in the order of eviction, and those that find another
        place. Victims in ``leaving`` are not put back.
        """
        lost: list[Holder] = []
        moved: list[Holder] = []
        with self._cluster.trial():
            charge_assignment(self._cluster, incoming, assignment)
            away: list[Holder] = []
            for holder in reversed(gone):
                if holder.key not in leaving and self._stays(holder):
                    self._cluster.charge(holder)
                else:
                    away.append(holder)
            for holder in away:
                if holder.key in leaving:
                    lost.append(holder)
                    continue
                again = as_incoming(self._cluster, holder)
                found = self._assigner.assign(again)
                if found.mode is Mode.FIT:
                    charge_assignment(self._cluster, again, found)
                    moved.append(holder)
                else:
                    lost.append(holder)
        return tuple(reversed(lost)), tuple(reversed(moved))

    def _stays(self, holder: Holder) -> bool:
        places = [place for place, _ in placed_holder(self._cluster, holder)]
        node = self._cluster.queue(holder.cluster_queue).node
        return node.fits(holder.usage) and self._cluster.placement.fits(places)

    def _allowed(self, question: Question, lost: Sequence[Holder]) -> bool:
        tree, leaf, need, preemptible = self._tree, question.leaf, question.need, question.preemptible
        taken: dict[QueueName, list[Amounts]] = {}
        for holder in lost:
            taken.setdefault(QueueName(holder.cluster_queue), []).append(needs(holder.info, tree.system))
        if not question.within and not self._rules.allows(tree, leaf, need, taken, preemptible=preemptible):
            return False
        for name, some in taken.items():
            for amounts in some:
                tree.charge(name, amounts, preemptible=True, sign=-1)
        refused = self._rules.refusal(tree, leaf, need, preemptible=preemptible)
        for name, some in taken.items():
            for amounts in some:
                tree.charge(name, amounts, preemptible=True)
        return not refused
