"""The nodes for a task, best first. Source: the node order plugins of KAI Scheduler. Each line of the table outweighs
all lines below it.

      rank  of its topology
      1000  shares a GPU that others share already
       100  fits now, without waiting for what is released
        10  a node without GPUs for a task that needs none
      0..9  the fullest node (pack), or the emptiest (spread)
"""

from controller.scheduler.kai.gangs.domains import NodeSet
from controller.scheduler.kai.gangs.gang import CPU, GPU, Task
from controller.scheduler.kai.gangs.kainode import KaiNode, When
from controller.scheduler.kai.gangs.session import CycleLimits


def fitting(task: Task, nodes: NodeSet, limits: CycleLimits) -> list[KaiNode]:
    """The nodes on which the task fits, now or later, best first. Among equals the first of the set comes first."""
    suitable = [node for node in nodes.members if _may_run(task, node) and node.fits(task.request, When.LATER)]
    free = [_free(task, node) for node in suitable]
    least, most = min(free, default=0.0), max(free, default=0.0)
    spread = limits.spread_gpus if task.request.on_gpu else limits.spread_cpu

    def score(index: int) -> float:
        part = (free[index] - least) / (most - least) if most > least else 0.0
        return _base(task, suitable[index], limits) + (part if spread else 9.0 * (1.0 - part))

    order = sorted(range(len(suitable)), key=lambda index: (nodes.rank.get(suitable[index].name, 0), -score(index)))
    return [suitable[index] for index in order]


def _may_run(task: Task, node: KaiNode) -> bool:
    return task.node_kinds is None or node.name in task.node_kinds


def _base(task: Task, node: KaiNode, limits: CycleLimits) -> float:
    score = 0.0
    if limits.fills_shared and task.request.is_shared and node.shares_fitting(task.request):
        score += 1000.0
    if node.fits(task.request, When.NOW):
        score += 100.0
    if not task.request.on_gpu and not node.has_gpus:
        score += 10.0
    return score


def _free(task: Task, node: KaiNode) -> float:
    return node.free(When.LATER).amounts.get(GPU if task.request.on_gpu else CPU, 0.0)
