"""Places a gang's next tasks on nodes: all of them, or none.

Source: the allocation of gangs in KAI Scheduler: groups, then pod sets, then tasks, each within the nodes that its
topology allows; a set of nodes that does not hold all tasks is undone and the next one is tried.
"""

from collections.abc import Iterable, Sequence

from controller.scheduler.kai.gangs.domains import NodeSet, node_sets
from controller.scheduler.kai.gangs.fitting import fitting
from controller.scheduler.kai.gangs.gang import Gang, Group, PodSet, Task
from controller.scheduler.kai.gangs.kainode import KaiNode
from controller.scheduler.kai.gangs.session import GangSession
from controller.scheduler.kai.proportion.limits import over


def place_gang(
    session: GangSession, gang: Gang, tasks: Sequence[Task], nodes: Sequence[KaiNode], *, waits: bool
) -> bool:
    """Whether the tasks got places. ``waits``: a simulation, in which nothing is bound before its victims are gone."""
    if not tasks:
        return False
    need = session.charged_together(tasks)
    if over(session.path(gang.queue), need, preemptible=gang.preemptible) is not None:
        return False
    return _place_group(session, gang.root, list(tasks), NodeSet(nodes, {}), waits=waits)


def _place_group(session: GangSession, group: Group, tasks: Sequence[Task], nodes: NodeSet, *, waits: bool) -> bool:
    pod_sets = list(group.all_pod_sets())
    here = _of(tasks, pod_sets)
    placed = [task for pod_set in pod_sets for task in pod_set.tasks]
    for chosen in node_sets(session, nodes, group.constraint, here, placed):
        mark = session.mark()
        if all(
            _place_group(session, below, here, chosen, waits=waits)
            for below in group.groups
            if _of(here, below.all_pod_sets())
        ) and all(
            _place_pod_set(session, pod_set, _of(here, [pod_set]), chosen, waits=waits) for pod_set in group.pod_sets
        ):
            return True
        session.undo(mark)
    return False


def _place_pod_set(
    session: GangSession, pod_set: PodSet, tasks: Sequence[Task], nodes: NodeSet, *, waits: bool
) -> bool:
    for chosen in node_sets(session, nodes, pod_set.constraint, tasks, pod_set.tasks):
        mark = session.mark()
        if all(_place_task(session, task, chosen, waits=waits) for task in tasks):
            return True
        session.undo(mark)
    return False


def _place_task(session: GangSession, task: Task, nodes: NodeSet, *, waits: bool) -> bool:
    best = fitting(task, nodes, session.limits)
    if not best:
        return False
    if waits:
        session.pipeline(task, best[0])
    else:
        session.place(task, best[0])
    return True


def _of(tasks: Sequence[Task], pod_sets: Iterable[PodSet]) -> list[Task]:
    names = {pod_set.name for pod_set in pod_sets}
    return [task for task in tasks if task.pod_set in names]
