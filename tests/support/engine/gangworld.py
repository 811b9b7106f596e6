"""A small world of gangs: nodes of whole GPUs, queues under one root, gangs of one pod set."""

import math
from collections.abc import Iterable, Mapping

from controller.scheduler.kai.gangs.actions import ACTIONS
from controller.scheduler.kai.gangs.gang import (
    CPU,
    GPU,
    MEMORY,
    PODS,
    Gang,
    GangName,
    Group,
    NodeName,
    Phase,
    PodSet,
    Task,
    TaskName,
    TaskRequest,
)
from controller.scheduler.kai.gangs.kainode import KaiNode
from controller.scheduler.kai.gangs.session import CycleLimits, GangSession, running
from controller.scheduler.kai.gangs.shares import GangQueue
from controller.scheduler.kai.proportion.division import QueueName

ROOT = QueueName("root")
UNLIMITED = {CPU: math.inf, MEMORY: math.inf, GPU: math.inf}


def node(name: str, gpus: int = 8, **labels: str) -> KaiNode:
    return KaiNode(NodeName(name), {CPU: 1e6, MEMORY: 1e12, GPU: float(gpus), PODS: 110.0}, 80_000, labels)


def queue(
    name: str, quota: float = 0.0, weight: float = 1.0, limit: float = math.inf, priority: int = 100
) -> GangQueue:
    return GangQueue(
        name=QueueName(name),
        parent=ROOT,
        quota=UNLIMITED | {GPU: quota},
        limit=UNLIMITED | {GPU: limit},
        weight={CPU: 1.0, MEMORY: 1.0, GPU: weight},
        priority=priority,
    )


def root() -> GangQueue:
    return GangQueue(name=ROOT, parent=None, quota=UNLIMITED, limit=UNLIMITED, weight=UNLIMITED)


def gang(  # noqa: PLR0913 - what a test says about a gang, by name
    name: str,
    queue: str,
    tasks: int = 1,
    *,
    request: TaskRequest | None = None,
    minimum: int | None = None,
    on: Iterable[str] = (),
    priority: int = 50,
    preemptible: bool = True,
    created: float = 0.0,
) -> Gang:
    """``on``: the nodes of its first tasks, which run there."""
    nodes = [*map(NodeName, on)]
    pod_set = PodSet("main", tasks if minimum is None else minimum)
    for index in range(tasks):
        task = Task(TaskName(f"{name}-{index}"), GangName(name), "main", request or TaskRequest(gpus=1))
        if index < len(nodes):
            task.phase, task.node = Phase.RUNNING, nodes[index]
        pod_set.tasks.append(task)
    return Gang(GangName(name), QueueName(queue), priority, preemptible, created, Group(pod_sets=[pod_set]))


def session(
    nodes: Iterable[KaiNode], queues: Iterable[GangQueue], gangs: Iterable[Gang], limits: CycleLimits | None = None
) -> GangSession:
    by_name = {each.name: each for each in nodes}
    gangs = list(gangs)
    running(by_name, gangs)
    return GangSession(by_name.values(), gangs, [root(), *queues], limits)


def act(world: GangSession, *actions: str) -> None:
    """The actions, or all of a cycle; the session's invariants hold after each."""
    for action in actions or ACTIONS:
        ACTIONS[action](world)
        world.validate()


def phases(world: GangSession) -> Mapping[str, str]:
    """The phase of each task, by its name."""
    return {task.name: task.phase.value for one in world.gangs.values() for task in one.tasks()}


def places(world: GangSession) -> Mapping[str, str | None]:
    return {task.name: task.node for one in world.gangs.values() for task in one.tasks()}
