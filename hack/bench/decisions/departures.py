"""What victims cost that leave one by one: ``python -m hack.bench departures``.

2,000 nodes are full of workloads of one node each; a gang of 700 evicts as many. Each that leaves may let others run,
so the engine looks again; the gang must not be worked out anew each time, for 700 times that is minutes.
"""

import statistics
import time
from collections.abc import Sequence

import msgspec

from controller.objects.core import Namespace, Node
from controller.objects.decode import decode
from controller.objects.meta import is_true
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.queues import ClusterQueue
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons, status
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.engine import Engine
from hack.bench.decisions.engineload import NOW_S, POLICIES, local_queue
from hack.bench.decisions.topology import FLAVOR, FULL_FANS, GPU, GPUS, VICTIMS, nodes, topology
from hack.bench.table import Row, show


class Cluster:
    """An engine, and the Workloads as the API server would keep them."""

    def __init__(self, fans: Sequence[int] = FULL_FANS) -> None:
        self.engine = Engine(POLICIES["tessera"])
        self.workloads: dict[str, Workload] = {}
        for each in topology():
            self.engine.put(each, NOW_S)
        hosts = nodes(self, fans)
        self.engine.put(decode({"metadata": {"name": "team"}}, Namespace), NOW_S)
        quota = {"name": GPU, "nominalQuota": str(GPUS * len(hosts))}
        spec = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": FLAVOR, "resources": [quota]}]}],
        }
        self.engine.put(decode({"metadata": {"name": "q"}, "spec": spec}, ClusterQueue), NOW_S)
        self.engine.put(local_queue("q"), NOW_S)
        for number in range(len(hosts)):
            self.arrive(f"w{number}", 1, 0, HOSTNAME_LABEL)
        self.settle()

    def set_node(self, node: Node) -> None:
        self.engine.put(node, NOW_S)

    def arrive(self, name: str, pods: int, priority: int, required: str) -> None:
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {GPU: str(GPUS)}}}]}}
        asked = {"name": "main", "count": pods, "topologyRequest": {"required": required}, "template": template}
        metadata = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        spec = {"queueName": "q", "priority": priority, "podSets": [asked]}
        self._write(decode({"metadata": metadata, "spec": spec}, Workload))

    def settle(self) -> float:
        """Cycles until there is nothing to decide, and the seconds that they took, writes apart."""
        spent_s = 0.0
        while not self.engine.settled(NOW_S):
            began_s = time.thread_time()
            decisions = self.engine.cycle(NOW_S)
            spent_s += time.thread_time() - began_s
            for decision in decisions.made:
                known = self.workloads[decision.key]
                self._write(msgspec.structs.replace(known, status=decision.status().status))
        return spent_s

    def leaving(self) -> list[Workload]:
        return [
            workload
            for workload in self.workloads.values()
            if workload.status.admission is not None and is_true(workload.status.conditions, reasons.EVICTED)
        ]

    def leave(self, workload: Workload) -> float:
        """The victim stops, and what the engine makes of it in seconds."""
        gates = self.engine.state.config.gates
        why = PendingReason.PENDING_EVALUATION
        freed = status.unreserved(workload, why, "stopped", now_s=NOW_S, gates=gates)
        began_s = time.thread_time()
        self._write(status.requeued(freed, reasons.PREEMPTED, "again", NOW_S))
        return time.thread_time() - began_s + self.settle()

    def _write(self, workload: Workload) -> None:
        self.workloads[workload.key] = workload
        self.engine.put(workload, NOW_S)


def measured(cluster: Cluster, gang: int) -> tuple[float, list[float]]:
    """Seconds until a gang of so many nodes has told its victims to go, and what each that leaves costs."""
    cluster.arrive("gang", gang, 100, "dc/zone")
    told_s = cluster.settle()
    spent_s = [cluster.leave(victim) for victim in cluster.leaving()]
    if cluster.workloads["team/gang"].status.admission is None:
        raise SystemExit("departures: the gang does not run though all its victims have gone")
    return told_s, spent_s


def main(_options: Sequence[str] = ()) -> None:
    told_s, spent_s = measured(Cluster(), VICTIMS)
    each = f"median {statistics.median(spent_s) * 1000:.1f} ms, worst {max(spent_s) * 1000:.0f} ms"
    rows = [
        Row(f"gang of {VICTIMS} decided on, {len(spent_s)} evicted", f"{told_s:.2f} s", ""),
        Row("one of them leaves", each, ""),
        Row("all of them, one by one", f"{sum(spent_s):.2f} s", "3 s"),
    ]
    show("a gang that waits for its victims, on 2,000 nodes", rows)


if __name__ == "__main__":
    main()
