"""The search for victims: which running tasks leave so that a gang gets places, and where those that left go.

Source: the job solver of KAI Scheduler. The gang's tasks are solved for one after another; each time victims are added
step by step, a surplus task or the rest of a gang, in the reverse order of queues and gangs, and what was added is
tried node by node. The first solution that the action allows is taken.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from controller.engine.gangs.gang import ACTIVE, Gang, GangName, Phase, Task, TaskName
from controller.engine.gangs.ordering import GangOrder, gang_key
from controller.engine.gangs.placing import place_gang
from controller.engine.gangs.session import Session


@dataclass(frozen=True, slots=True)
class Step:
    """Tasks of one gang that leave together."""

    gang: Gang
    tasks: tuple[Task, ...]


Steps = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Search:
    """``victims`` may leave; ``allows`` looks at a trial that found places for the gang, its victims being evicted."""

    session: Session
    victims: Callable[[], Iterable[Gang]]
    allows: Callable[[Steps], bool]
    victim_count: int | None = None
    """How many gangs may leave; None: any number."""
    _ahead: dict[GangName, Mapping[GangName, Gang]] = field(default_factory=dict)
    """Of a gang, those before it: found once, with no victim evicted."""

    def solve(self, gang: Gang) -> Steps | None:
        """The victims, the session changed as the solution says; None where there is none, the session unchanged."""
        self._ahead_of(gang)
        start = self.session.mark()
        tasks = gang.next_tasks()
        recorded: Steps = []
        for count in range(1, len(tasks) + 1):
            found = self._solve_for(gang, tasks[:count], recorded)
            if found is None:
                self.session.undo(start)
                return None
            recorded = found
            if count < len(tasks):
                self.session.undo(start)
        return recorded if tasks else None

    def _solve_for(self, gang: Gang, tasks: Sequence[Task], recorded: Steps) -> Steps | None:
        found = self._trial(gang, tasks, recorded)
        if found is not None:
            return found
        known = {task.name for step in recorded for task in step.tasks}
        gone: set[TaskName] = set()
        order = GangOrder(self.session, self.victims(), reverse=True)
        potential: list[Step] = []
        while (victim := order.pop()) is not None:
            leaving = tuple(victim.next_victims(gone))
            gone |= {task.name for task in leaving}
            order.took(victim.queue, self.session.charged_together(leaving))
            if victim.next_victims(gone):
                order.push(victim, gone)
            leaving = tuple(task for task in leaving if task.name not in known)
            if not leaving:
                continue
            potential.append(Step(victim, leaving))
            if self.victim_count is not None and len({step.gang.name for step in potential}) > self.victim_count:
                return None
            for node in dict.fromkeys(task.node for task in leaving):
                steps = [step for step in potential if any(task.node == node for task in step.tasks)]
                found = self._trial(gang, tasks, [*recorded, *steps])
                if found is not None:
                    return found
        return None

    def _trial(self, gang: Gang, tasks: Sequence[Task], steps: Steps) -> Steps | None:
        """The steps that remain victims; None where it is no solution, everything undone."""
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
        """The gang gets places. Victims get others, or their own again, as far as there is room. The order is that in
        which the next cycle starts them, gangs of the queue that come before this one among them: a victim that would
        be started again first is none, or the same would be decided for ever.
        """
        session = self.session
        machines = list(session.machines.values())
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
            has_places = place_gang(session, other, next_tasks(other), machines, waits=True)
            if other is gang:
                if not has_places:
                    return False
                placed = True
            elif has_places and next_tasks(other):
                order.push(other)
        return placed

    def _ahead_of(self, gang: Gang) -> Mapping[GangName, Gang]:
        """Pending gangs that come before it in its queue."""
        if gang.name not in self._ahead:
            self._ahead[gang.name] = {
                other.name: other
                for other in self.session.gangs.values()
                if other.queue == gang.queue and other.next_tasks() and other.is_ready
                if gang_key(other) < gang_key(gang)
            }
        return self._ahead[gang.name]
