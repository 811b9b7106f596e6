"""What decisions about gangs cost: ``python -m hack.bench gangs``.

1,000 sibling queues divide three resources. 2,000 nodes are each three quarters full of preemptible gangs, so that a
gang of a whole node finds none: another node's gangs must move for it, and every one of them must have a place.
"""

import random
import time
from collections.abc import Sequence

from controller.scheduler.kai.gangs.actions import consolidation
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
from controller.scheduler.kai.gangs.session import GangSession, running
from controller.scheduler.kai.gangs.shares import GangQueue, fair_shares
from controller.scheduler.kai.proportion.division import QueueName
from hack.bench.table import Row, show

QUEUES, NODES, GPUS = 1000, 2000, 8
DIVISION_MS, PLAN_MS = 20.0, 100.0
"""What is aimed at."""

_TWO, _EIGHT = TaskRequest(gpus=2), TaskRequest(gpus=8)


def division_ms(queues: int = QUEUES, seed: int = 1) -> float:
    rng = random.Random(seed)
    resources = (CPU, MEMORY, GPU)
    made = [
        GangQueue(
            name=QueueName(f"q{number}"),
            parent=None,
            quota=dict.fromkeys(resources, float(rng.randint(0, 8))),
            limit={},
            weight=dict.fromkeys(resources, float(rng.randint(0, 3))),
            priority=rng.choice((100, 200)),
            created=float(number),
        )
        for number in range(queues)
    ]
    asked = {queue.name: dict.fromkeys(resources, float(rng.randint(0, 32))) for queue in made}
    total = dict.fromkeys(resources, float(queues * 10))
    begun = time.process_time()
    fair_shares(made, total, asked)
    return (time.process_time() - begun) * 1e3


def plan_ms(nodes: int = NODES) -> float:
    """One gang of a whole node, three gangs of two GPUs on each node."""
    by_name = {
        name: KaiNode(name, {CPU: 1e6, MEMORY: 1e12, GPU: float(GPUS), PODS: 110.0}, 80_000)
        for name in (NodeName(f"node-{number}") for number in range(nodes))
    }
    gangs = [_gang(f"{node}-{index}", _TWO, number, node) for number, node in enumerate(by_name) for index in range(3)]
    wide = _gang("wide", _EIGHT, nodes, None)
    gangs.append(wide)
    running(by_name, gangs)
    unlimited = {CPU: float("inf"), MEMORY: float("inf"), GPU: float("inf")}
    queue = GangQueue(QueueName("q"), None, quota=unlimited, limit=unlimited, weight={})
    session = GangSession(by_name.values(), gangs, [queue])
    begun = time.process_time()
    consolidation(session)
    took_ms = (time.process_time() - begun) * 1e3
    if any(task.phase is not Phase.PIPELINED for task in wide.tasks()):
        raise SystemExit("gangs: the gang of a whole node found no place; the benchmark measures nothing")
    return took_ms


def _gang(name: str, request: TaskRequest, created: int, node: NodeName | None) -> Gang:
    task = Task(TaskName(f"{name}-0"), GangName(name), "main", request)
    if node is not None:
        task.phase, task.node = Phase.RUNNING, node
    root = Group(pod_sets=[PodSet("main", 1, [task])])
    return Gang(GangName(name), QueueName("q"), 50, preemptible=True, created=float(created), root=root)


def main(words: Sequence[str] = ()) -> None:
    factor = 0.1 if "--quick" in words else 1.0
    division = min(division_ms(int(QUEUES * factor)) for _ in range(5))
    plan = min(plan_ms(int(NODES * factor)) for _ in range(3))
    show(
        "gangs: CPU time, the best of several runs",
        [
            Row(f"division of {int(QUEUES * factor):,} queues, ms", f"{division:.1f}", f"{DIVISION_MS:.0f}"),
            Row(f"consolidation plan over {int(NODES * factor):,} nodes, ms", f"{plan:.0f}", f"{PLAN_MS:.0f}"),
        ],
    )
