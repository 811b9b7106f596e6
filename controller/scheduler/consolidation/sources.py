"""The order in which running gangs are looked at as victims: node by node, by the cost of freeing enough there.

The rule is our own: the least lost work (``lost_gpu_seconds``) for the largest task of the gang that waits. The order
is a permutation of the gangs given. It costs a sort of the gangs of each node, and one of all gangs.
"""

import math
from collections.abc import Iterator, Mapping

from controller.scheduler.kai.gangs.gang import USED, Gang, GangName, NodeName, Task, TaskRequest
from controller.scheduler.kai.gangs.kainode import KaiNode, When
from controller.scheduler.kai.turn.gangmodel import GangModel
from controller.scheduler.model.resources import ResourceName


def ranked(model: GangModel, gang: Gang, lost: Mapping[GangName, float]) -> list[GangName]:
    """The gangs of ``lost``, which maps each to the work that it would lose (GPU-seconds). Gangs come first whose node
    is the cheapest to free for the largest task of ``gang``; on one node the gang that loses least. A gang on several
    nodes counts for the cheapest of them.
    """
    wanted = max(gang.tasks(), key=_size)
    on: dict[NodeName, set[GangName]] = {}
    for name in lost:
        for task in model.gangs[name].in_phase(USED):
            if task.node is not None:
                on.setdefault(task.node, set()).add(name)
    ranks: dict[GangName, tuple[float, str, float, GangName]] = {}
    for at, names in on.items():
        node = model.nodes[at]
        order = sorted(names, key=lambda name: (lost[name], name))
        cost = _cost(node, wanted, [(model.gangs[name], lost[name]) for name in order])
        for name in order:
            ranks[name] = min(ranks.get(name, (math.inf, "", 0.0, name)), (cost, at, lost[name], name))
    return sorted(ranks, key=ranks.__getitem__)


def _cost(node: KaiNode, wanted: Task, victims: list[tuple[Gang, float]]) -> float:
    """The work that is lost until the task fits; infinite where it does not fit even on the empty node."""
    if wanted.node_kinds is not None and node.name not in wanted.node_kinds:
        return math.inf
    free = dict(node.free(When.LATER).amounts)
    cost = 0.0
    for gang, lost in victims:
        if _fits(wanted.request, free):
            return cost
        cost += lost
        for request in _held(gang, node):
            for name, amount in request.asked.items():
                free[name] = free.get(name, 0.0) + amount
    return cost if _fits(wanted.request, free) else math.inf


def _fits(request: TaskRequest, free: Mapping[ResourceName, float]) -> bool:
    return all(amount <= free.get(name, 0.0) for name, amount in request.asked.items())


def _held(gang: Gang, node: KaiNode) -> Iterator[TaskRequest]:
    return (task.request for task in gang.in_phase(USED) if task.node == node.name)


def _size(task: Task) -> tuple[float, float, float]:
    request = task.request
    return request.gpus + request.portion + sum(request.counted.values()), request.cpu_milli, request.memory_bytes
