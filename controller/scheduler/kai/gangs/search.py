"""The search for victims: which running tasks leave so that a gang gets places, and which places those tasks get
instead.

Source: the job solver of KAI Scheduler. The search solves for the gang's first task, then for its first two, and so on;
each time victims are added step by step, a surplus task or the rest of a gang, in the reverse order of queues and
gangs, and what was added is tried node by node. The first solution that the action allows is taken. Unlike KAI's
solver, an action may leave candidates out of the sets (``GangSearch.rounds``): one that may never be taken would spoil
every set that contains it.

Where no solution is found the session is as it was before. A gang of n tasks is solved for up to n times, and each time
a trial costs the placing of its tasks and of the victims that move; ``CycleLimits`` bounds how many gangs a
consolidation moves.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.scheduler.kai.gangs.gang import ACTIVE, Gang, GangName, NodeName, Phase, Task, TaskName
from controller.scheduler.kai.gangs.ordering import GangOrder, gang_key
from controller.scheduler.kai.gangs.placing import place_gang
from controller.scheduler.kai.gangs.session import GangSession


@dataclass(frozen=True)
class Step:
    """Tasks of one gang that leave together."""

    gang: Gang
    tasks: tuple[Task, ...]


Steps = Sequence[Step]
Choice = Callable[[Step], bool]
"""Returns whether the step joins a set of victims, given the steps that it chose for the set before; called once for
each step.
"""


def any_step(_step: Step) -> bool:
    return True


def all_in() -> Choice:
    return any_step


@dataclass(frozen=True)
class GangSearch:
    """One search. ``victims`` returns the gangs that may leave; ``allows`` judges a trial in which the gang found
    places and its victims are evicted.
    """

    session: GangSession
    victims: Callable[[], Iterable[Gang]]
    allows: Callable[[Steps], bool]
    victim_count: int | None = None
    """How many gangs may leave; None: any number."""
    rounds: Sequence[Callable[[], Choice]] = (all_in,)
    """Which candidates are in the sets: the next round is tried where the one before finds no solution. Each function
    makes the choice for one set, which grows step by step.
    """
    _ahead: dict[GangName, Mapping[GangName, Gang]] = field(default_factory=dict)
    """The pending gangs before each gang, found once, while no victim is evicted."""

    def solve(self, gang: Gang) -> Steps | None:
        """The victims, with the session changed as the solution says; None where there is none, with the session
        unchanged.
        """
        self._ahead_of(gang)
        start = self.session.mark()
        tasks = gang.next_tasks()
        recorded: Steps = []
        for count in range(1, len(tasks) + 1):
            steps = self._solve_for(gang, tasks[:count], recorded)
            if steps is None:
                self.session.undo(start)
                return None
            recorded = steps
            if count < len(tasks):
                self.session.undo(start)
        return recorded if tasks else None

    def _solve_for(self, gang: Gang, tasks: Sequence[Task], recorded: Steps) -> Steps | None:
        steps = self._trial(gang, tasks, recorded)
        if steps is not None:
            return steps
        tried: Tried = {}
        everything_was_in = False
        for choose in self.rounds:
            if choose is all_in and everything_was_in:
                continue
            candidates = _Candidates(choose, recorded, tried)
            steps = self._solve_among(gang, tasks, recorded, candidates)
            if steps is not None:
                return steps
            everything_was_in = everything_was_in or not candidates.left_out
        return None

    def _solve_among(
        self, gang: Gang, tasks: Sequence[Task], recorded: Steps, candidates: "_Candidates"
    ) -> Steps | None:
        known = {task.name for step in recorded for task in step.tasks}
        gone: set[TaskName] = set()
        order = GangOrder(self.session, self.victims(), reverse=True)
        while (victim := order.pop()) is not None:
            leaving = tuple(victim.next_victims(gone))
            gone |= {task.name for task in leaving}
            if victim.next_victims(gone):
                order.push(victim, gone)
            new = tuple(task for task in leaving if task.name not in known)
            joins, grown = candidates.add(Step(victim, new)) if new else (True, [])
            if joins:
                order.took(victim.queue, self.session.charged_together(leaving))
            if self.victim_count is not None and len(candidates.gangs) > self.victim_count:
                return None
            for steps in grown:
                found = self._trial(gang, tasks, [*recorded, *steps])
                if found is not None:
                    return found
        return None

    def _trial(self, gang: Gang, tasks: Sequence[Task], steps: Steps) -> Steps | None:
        """The steps that remain victims; None where the trial is no solution, with everything undone."""
        session, mark = self.session, self.session.mark()
        leaving = [task for step in steps for task in step.tasks]
        for task in leaving:
            session.evict(task)
        if self._place_all(gang, tasks, steps) and self.allows(steps):
            return [
                Step(step.gang, left)
                for step in steps
                if (left := tuple(task for task in step.tasks if task.phase not in ACTIVE))
            ]
        session.undo(mark)
        return None

    def _place_all(self, gang: Gang, tasks: Sequence[Task], steps: Steps) -> bool:
        """Whether the gang gets places. Victims get other places, or their own again, as far as they fit. The
        order is that in which the next cycle starts them, including gangs of the queue that come before this one: a
        victim that would be started again first is no victim, or the same decision would be made for ever.
        """
        session = self.session
        nodes = list(session.nodes.values())
        evicted: set[TaskName] = {task.name for step in steps for task in step.tasks}

        def homeless(task: Task) -> bool:
            return task.phase is Phase.RELEASING and task.name in evicted

        def next_tasks(other: Gang) -> list[Task]:
            if other is gang:
                return list(tasks)
            return other.next_tasks() if other.name in ahead else other.next_moved(homeless)

        gangs = {gang.name: gang} | {step.gang.name: step.gang for step in steps}
        ahead = {name: other for name, other in self._ahead_of(gang).items() if name not in gangs}
        gangs |= ahead
        order = GangOrder(session, gangs.values(), next_tasks=next_tasks)
        placed = False
        while (other := order.pop()) is not None:
            has_places = place_gang(session, other, next_tasks(other), nodes, waits=True)
            if other is gang:
                if not has_places:
                    return False
                placed = True
            elif has_places and next_tasks(other):
                order.push(other)
        return placed

    def _ahead_of(self, gang: Gang) -> Mapping[GangName, Gang]:
        """The pending gangs that come before this one in its queue."""
        if gang.name not in self._ahead:
            self._ahead[gang.name] = {
                other.name: other
                for other in self.session.gangs.values()
                if other.queue == gang.queue and other.next_tasks() and other.is_ready
                if gang_key(other) < gang_key(gang)
            }
        return self._ahead[gang.name]


Tried = dict[tuple[int, tuple[TaskName, ...]], int]
"""Sets that were tried, as a tree: (the number of a set without its last step, that step's task names) -> the set's
number. The empty set is 0.
"""


class _Candidates:
    """The sets of one round: for each node the steps that have tasks there, in their order."""

    def __init__(self, choose: Callable[[], Choice], recorded: Steps, tried: Tried) -> None:
        """``recorded``: steps that are in every set. ``tried`` is shared by all rounds."""
        self._choose = choose
        self._recorded = recorded
        self._tried = tried
        self._sets: dict[NodeName | None, _Set] = {}
        self.gangs: set[GangName] = set()
        """The gangs that have a step in any set."""
        self.left_out = False
        """Whether any step was left out of any set."""

    def add(self, step: Step) -> tuple[bool, list[Steps]]:
        """Add a step. Returns whether it is in any set, and the sets that have grown by it and were not tried
        before.
        """
        joins, grown = False, list[Steps]()
        for node in dict.fromkeys(task.node for task in step.tasks):
            grown_set = self._set(node)
            if not grown_set.choice(step):
                self.left_out = True
                continue
            joins = True
            grown_set.steps.append(step)
            new = len(self._tried) + 1
            grown_set.number = self._tried.setdefault((grown_set.number, tuple(task.name for task in step.tasks)), new)
            if grown_set.number == new:
                grown.append(grown_set.steps)
        if joins:
            self.gangs.add(step.gang.name)
        return joins, grown

    def _set(self, node: NodeName | None) -> "_Set":
        if node not in self._sets:
            choice = self._choose()
            for step in self._recorded:
                choice(step)
            self._sets[node] = _Set(choice)
        return self._sets[node]


@dataclass
class _Set:
    choice: Choice
    steps: list[Step] = field(default_factory=list)
    number: int = 0
