"""How long the choice of victims takes, with few holders of quota and with many: ``python -m hack.bench preemption``.

Each scene needs the same few victims whatever the number of holders, so the time must not grow with it.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from controller.objects.decode import decode
from controller.objects.meta import ObjectMeta
from controller.objects.queues import ClusterQueue
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing, MinimumRuntime, VictimOrder
from controller.scheduler.model.resources import (
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
)
from controller.scheduler.model.workload import PodSetRequests, WorkloadInfo
from controller.scheduler.preemption.neededcapacity import NeededCapacity
from controller.scheduler.preemption.search import Preemption
from controller.scheduler.quota.queuestate import Holder
from hack.bench.table import Row, show

FEW, MANY = 100, 100_000
RUNS = 100
QUEUES = 30
SIZE = 2
BORROWED = SIZE * (QUEUES - 1)
NOW_S = 1_000_000.0
GPU = FlavorResource(FlavorName("h200"), ResourceName("nvidia.com/gpu"))
EVERYBODY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
EQUALS = {"withinClusterQueue": "LowerOrNewerEqualPriority"}


def scene(
    holders: int,
    config: EngineConfig,
    *,
    policy: dict[str, Any],
    ask: int,
    own: bool,
    asker_quota: int = BORROWED,
    priority: int = 1000,
    ran_s: float = 0.0,
) -> Callable[[], int]:
    """All quota is used. ``own``: by the asking queue alone; else the others have borrowed what is its."""
    cluster = Cluster(config)
    preemption = Preemption(cluster, lambda _: 0.0)
    used = [0] * QUEUES
    for place in range(holders):
        used[0 if own else 1 + place % (QUEUES - 1)] += SIZE
    lent = 0 if own else ask // (QUEUES - 1)
    for place in range(1 if own else QUEUES):
        quota = asker_quota if place == 0 and not own else used[place] - lent
        cluster.set_cluster_queue(_queue(f"q{place}", quota, policy))
    for place in range(holders):
        cluster.add_holder(
            Holder(
                info=_info(f"w{place}", SIZE),
                cluster_queue=ClusterQueueName("q0" if own else f"q{1 + place % (QUEUES - 1)}"),
                local_queue=LocalQueueKey("/lq"),
                usage={GPU: SIZE},
                priority=place % 5,
                reserved_at_s=NOW_S - ran_s - place,
                queued_at_s=NOW_S - ran_s - place,
                admitted=True,
            )
        )
    incoming = Incoming(
        info=_info("in", ask),
        queue=cluster.queue(ClusterQueueName("q0")),
        local_queue=LocalQueueKey("/lq"),
        priority=priority,
        queued_at_s=NOW_S,
    )
    needed = NeededCapacity(incoming.queue.node, {GPU: ask})
    return lambda: len(preemption.targets_in(incoming, (GPU,), needed, NOW_S))


def _queue(name: str, nominal: int, policy: dict[str, Any]) -> ClusterQueue:
    flavor = {"name": GPU.flavor, "resources": [{"name": GPU.resource, "nominalQuota": str(nominal)}]}
    groups = [{"coveredResources": [GPU.resource], "flavors": [flavor]}]
    spec = {"cohortName": "all", "preemption": policy, "resourceGroups": groups}
    return decode({"metadata": {"name": name}, "spec": spec}, ClusterQueue)


def _info(name: str, amount: int) -> WorkloadInfo:
    pod_set = PodSetRequests(name="main", count=1, requests={GPU.resource: amount}, flavors={GPU.resource: GPU.flavor})
    workload = Workload(metadata=ObjectMeta(name=name, uid=name))
    return WorkloadInfo(workload=workload, cluster_queue=ClusterQueueName(""), pod_sets=(pod_set,))


def scenes() -> dict[str, Callable[[int], Callable[[], int]]]:
    plain = EngineConfig()
    fair = EngineConfig(fair_sharing=FairSharing())
    ours = EngineConfig(
        extensions=Extensions(
            no_eviction_cycles=True,
            minimum_runtime=MinimumRuntime(default_s=600.0),
            victim_order=VictimOrder.LEAST_LOST,
        )
    )
    young = EngineConfig(extensions=Extensions(minimum_runtime=MinimumRuntime(default_s=1e9)))
    return {
        "own queue, by priority": lambda n: scene(n, plain, policy=EVERYBODY, ask=8, own=True),
        "own queue, equal priority, all older": lambda n: scene(n, plain, policy=EQUALS, ask=8, own=True, priority=0),
        "own queue, nobody low enough": lambda n: scene(n, plain, policy=EVERYBODY, ask=8, own=True, priority=0),
        "own queue, nobody has run long enough": lambda n: scene(n, young, policy=EVERYBODY, ask=8, own=True),
        "own queue, all of ours on": lambda n: scene(n, ours, policy=EVERYBODY, ask=8, own=True, ran_s=1000.0),
        "reclaim from 29 queues": lambda n: scene(n, plain, policy=EVERYBODY, ask=BORROWED, own=False),
        "reclaim from 29 queues, all of ours on": lambda n: scene(
            n, ours, policy=EVERYBODY, ask=BORROWED, own=False, ran_s=1000.0
        ),
        "fair sharing, 29 queues": lambda n: scene(n, fair, policy=EVERYBODY, ask=BORROWED, own=False),
        "fair sharing, the asker has most": lambda n: scene(
            n, fair, policy=EVERYBODY, ask=BORROWED, own=False, asker_quota=0
        ),
        "more than all candidates hold": lambda n: scene(n, plain, policy=EVERYBODY, ask=10**7, own=True),
    }


def measured(questions: Sequence[Callable[[], int]]) -> list[tuple[int, float]]:
    """For each, asked in turn: victims, and the least time in microseconds (others on the machine only add to it)."""
    victims = [0 for _ in questions]
    least_s = [math.inf for _ in questions]
    for _ in range(RUNS):
        for at, question in enumerate(questions):
            start = time.thread_time()
            victims[at] = question()
            least_s[at] = min(least_s[at], time.thread_time() - start)
    return [(count, spent_s * 1e6) for count, spent_s in zip(victims, least_s, strict=True)]


def main(_options: Sequence[str] = ()) -> None:
    rows = []
    for name, make in scenes().items():
        (few, few_us), (many, many_us) = measured([make(FEW), make(MANY)])
        rows.append(
            Row(
                name,
                f"{few} victims {few_us:8.1f} us, {many} victims {many_us:8.1f} us, factor {many_us / few_us:.2f}",
                "factor 1.5",
            )
        )
    show(f"choice of victims with {FEW} and with {MANY} holders of quota", rows)


if __name__ == "__main__":
    main()
