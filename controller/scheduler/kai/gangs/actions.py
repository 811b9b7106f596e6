"""The actions of a cycle, in this order: allocate, consolidation, reclaim, preempt, staleness. Source: the actions of
KAI Scheduler, ordered by how much they disturb.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from controller.scheduler.kai.gangs.gang import ACTIVE, GPU, Gang, GangName, Phase
from controller.scheduler.kai.gangs.kainode import When, gpus_among
from controller.scheduler.kai.gangs.ordering import GangOrder
from controller.scheduler.kai.gangs.placing import place_gang
from controller.scheduler.kai.gangs.search import Choice, GangSearch, Step, Steps, all_in
from controller.scheduler.kai.gangs.session import GangSession, GangSolution
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.limits import OverReason, over
from controller.scheduler.kai.proportion.queues import Amounts, Tree
from controller.scheduler.kai.proportion.reclaim import Exchange, is_reclaimable, may_reclaim

Action = Callable[[GangSession], None]


def allocate(session: GangSession) -> None:
    """Gangs get what is free or being released: their minimums first, then one task in each turn."""
    order = GangOrder(session, _pending(session))
    nodes = list(session.nodes.values())
    while (gang := order.pop()) is not None:
        if not place_gang(session, gang, gang.next_tasks(), nodes, waits=False):
            continue
        if gang.waits_for_release():
            session.wait_for_release(gang)
        elif gang.next_tasks():
            order.push(gang)


def consolidation(session: GangSession) -> None:
    """Running gangs move, each to a place found in the same trial, so that a pending gang fits."""
    left = session.limits.moves
    if left == 0:
        return
    free = free_gpus(session)
    for gang in _in_order(session, (gang for gang in _pending(session) if gang.preemptible)):
        if session.charged_together(gang.next_tasks()).get(GPU, 0.0) > free:
            continue
        others = _all_but(session, gang)
        search = GangSearch(session, others, all_moved(left), session.limits.consolidation_victims)
        moved = _solve(session, "consolidation", search, gang)
        if moved is None:
            continue
        free = free_gpus(session)
        left = left if left is None else left - moved
        if left == 0:
            return


def reclaim(session: GangSession) -> None:
    """A queue below its fair share takes back from others."""
    for gang in _in_order(session, _pending(session)):
        need = session.charged_together(gang.next_tasks())
        if not may_reclaim(session.tree[gang.queue], need, preemptible=gang.preemptible):
            continue
        before = session.before()
        search = GangSearch(
            session,
            _of_other_queues(session, gang),
            _reclaims(session, before, gang, need),
            rounds=_rounds(session, before, gang, need),
        )
        _solve(session, "reclaim", search, gang)


def preempt(session: GangSession) -> None:
    """A gang takes from gangs of lower priority in its own queue."""
    for gang in _in_order(session, _pending(session)):
        need = session.charged_together(gang.next_tasks())
        refused = over(session.path(gang.queue), need, preemptible=gang.preemptible)
        if refused is not None and refused[0] is OverReason.NON_PREEMPTIBLE_OVER_QUOTA:
            continue
        search = GangSearch(session, _of_lower_priority(session, gang), lambda _steps: True)
        _solve(session, "preempt", search, gang)


def staleness(session: GangSession) -> None:
    """A gang that has run below a minimum for too long is evicted as a whole."""
    if session.limits.staleness_s < 0.0:
        return
    for gang in session.gangs.values():
        active = gang.in_phase(ACTIVE)
        if active and not gang.is_satisfied and gang.stale_s >= session.limits.staleness_s and not _has_succeeded(gang):
            for task in active:
                session.evict(task)


ACTIONS: Mapping[str, Action] = {
    "allocate": allocate,
    "consolidation": consolidation,
    "reclaim": reclaim,
    "preempt": preempt,
    "stalegangeviction": staleness,
}


def free_gpus(session: GangSession) -> float:
    """The number of free GPUs: whole ones, those that are given in parts, and what is left of shared ones."""
    frees = [(node.free(When.LATER), node.gpu_memory_mib) for node in session.nodes.values()]
    whole = sum(gpus_among(free.amounts) for free, _ in frees)
    return whole + sum(mib / memory_mib for free, memory_mib in frees for mib in free.groups.values())


def _solve(session: GangSession, action: str, search: GangSearch, gang: Gang) -> int | None:
    """Apply a solution for the gang. Returns the number of gangs that lose tasks by it; None where there is no
    solution.
    """
    tasks = tuple(gang.next_tasks())
    steps = search.solve(gang)
    if steps is None:
        return None
    victims = tuple(task for step in steps for task in step.tasks)
    session.solutions.append(GangSolution(action, gang, tasks, victims))
    return len({step.gang.name for step in steps})


def _pending(session: GangSession) -> list[Gang]:
    return [gang for gang in session.gangs.values() if gang.is_ready and gang.next_tasks()]


def _in_order(session: GangSession, gangs: Iterable[Gang]) -> Iterable[Gang]:
    order = GangOrder(session, gangs)
    while (gang := order.pop()) is not None:
        yield gang


def _victims(session: GangSession) -> list[Gang]:
    return [gang for gang in session.gangs.values() if gang.preemptible and gang.in_phase(ACTIVE)]


def _of_other_queues(session: GangSession, reclaimer: Gang) -> Callable[[], Iterable[Gang]]:
    return lambda: (
        gang
        for gang in _victims(session)
        if gang.queue != reclaimer.queue and not session.spares(gang, reclaimer, False)
    )


def _of_lower_priority(session: GangSession, preemptor: Gang) -> Callable[[], Iterable[Gang]]:
    return lambda: (
        gang
        for gang in _victims(session)
        if gang.queue == preemptor.queue and gang.priority < preemptor.priority
        if not session.spares(gang, preemptor, True)
    )


def _rounds(session: GangSession, before: Tree, gang: Gang, need: Amounts) -> Sequence[Callable[[], Choice]]:
    """The choices of victims for successive rounds. First victims that no exchange could take are left out; then those
    that may not be taken beside the ones before them, so that each of two queues gives what it has too much. In the
    last round none is left out: a gang that gets another place is no victim.
    """
    untouched = Exchange(before, gang.queue, need)
    spared = {queue for queue in session.queues if untouched.untouchable(queue)}

    def touchable() -> Choice:
        return lambda step: step.gang.queue not in spared

    def one_by_one() -> Choice:
        exchange = Exchange(before, gang.queue, need)
        stays: set[GangName] = set()

        def joins(step: Step) -> bool:
            """Whether the step may be taken. A gang that keeps some tasks gives nothing more: what is above its minimum
            goes first.
            """
            if step.gang.name in stays or not exchange.take(step.gang.queue, session.charged_together(step.tasks)):
                stays.add(step.gang.name)
                return False
            return True

        return joins

    return touchable, one_by_one, all_in


def _reclaims(session: GangSession, before: Tree, gang: Gang, need: Amounts) -> Callable[[Steps], bool]:
    """A function that says whether the rules allow the steps. Victims that got other places do not count."""

    def allows(steps: Steps) -> bool:
        victims: dict[QueueName, list[Amounts]] = {}
        for step in steps:
            lost = [task for task in step.tasks if task.phase is Phase.RELEASING]
            if lost:
                victims.setdefault(step.gang.queue, []).append(session.charged_together(lost))
        return is_reclaimable(
            before, gang.queue, need, victims, preemptible=gang.preemptible, saturation=session.limits.saturation
        )

    return allows


def all_moved(most: int | None) -> Callable[[Steps], bool]:
    """A function that says whether every victim got a place, and no more than ``most`` gangs got a place other than
    their own.
    """

    def allows(steps: Steps) -> bool:
        if any(task.phase is Phase.RELEASING for step in steps for task in step.tasks):
            return False
        moved = {step.gang.name for step in steps if any(task.phase not in ACTIVE for task in step.tasks)}
        return most is None or len(moved) <= most

    return allows


def _all_but(session: GangSession, gang: Gang) -> Callable[[], Iterable[Gang]]:
    may_move = session.moves_for(gang)
    return lambda: (other for other in _victims(session) if other.name != gang.name and may_move(other))


def _has_succeeded(gang: Gang) -> bool:
    return any(task.phase is Phase.SUCCEEDED for task in gang.tasks())
