"""The load of the drain benchmark: a published one, so that its numbers can be compared. Pure.

5 cohorts of 6 ClusterQueues, each with 20 cpus of its own and up to 100 borrowed; three classes of workloads arrive at
their intervals in every queue. A factor below 1 scales the counts; sizes, run times and intervals stay.

With a topology the same cpus are asked for by 2, 4 and 8 pods, on 10 racks of 64 nodes with 96 cpus each: a third of
the workloads must be in one rack, a third would rather be, a third in slices of two pods to a rack.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

COHORTS, QUEUES = 5, 6
NOMINAL_CPUS, BORROWING_CPUS = 20, 100
FLAVOR = "default"
API = "kueue.x-k8s.io/v1beta2"
TOPOLOGY = "racks"
RACKS, NODES_IN_RACK, NODE_CPUS = 10, 64, 96
RACK, HOST, POOL = "bench.example/rack", "kubernetes.io/hostname", "bench.example/pool"
ASKS: tuple[dict[str, Any], ...] = (
    {"required": RACK},
    {"preferred": RACK},
    {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
)


class Class(NamedTuple):
    name: str
    amount: int
    cpus: int
    runtime_s: float
    priority: int
    interval_s: float
    pods: int = 1


PUBLISHED = (
    Class("large", 50, 20, 1.0, 200, 1.2, 8),
    Class("medium", 100, 5, 0.5, 100, 0.5, 4),
    Class("small", 350, 1, 0.2, 50, 0.1, 2),
)


class Arrival(NamedTuple):
    at_s: float
    queue: str
    name: str
    kind: Class
    asks: dict[str, Any] | None = None
    """Its topology request; None: one pod, anywhere."""


class Shape(NamedTuple):
    queues: tuple[str, ...]
    classes: tuple[Class, ...]
    topology: bool = False

    @property
    def workloads(self) -> int:
        return len(self.queues) * sum(kind.amount for kind in self.classes)

    @property
    def floor_s(self) -> float:
        """No scheduler is faster: each queue's cpu seconds over its nominal quota (all queues are alike)."""
        return sum(kind.amount * kind.cpus * kind.runtime_s for kind in self.classes) / NOMINAL_CPUS

    def arrivals(self) -> list[Arrival]:
        """In order of time."""
        arrivals = [
            Arrival(
                number * kind.interval_s,
                queue,
                f"{kind.name}-{number}",
                kind,
                ASKS[number % len(ASKS)] if self.topology else None,
            )
            for kind in self.classes
            for number in range(kind.amount)
            for queue in self.queues
        ]
        return sorted(arrivals, key=lambda each: each.at_s)


def shape(factor: float, *, topology: bool = False, cohorts: int = COHORTS) -> Shape:
    """The published shape with its counts times ``factor``, at least one of each class; with fewer ``cohorts`` less
    arrives at a time.
    """
    queues = tuple(f"cq-{cohort}-{queue}" for cohort in range(cohorts) for queue in range(QUEUES))
    classes = tuple(kind._replace(amount=max(1, round(kind.amount * factor))) for kind in PUBLISHED)
    return Shape(queues, classes, topology)


def nodes() -> Iterator[dict[str, Any]]:
    """Nodes without a kubelet: Ready, and never updated again."""
    for number in range(RACKS * NODES_IN_RACK):
        name = f"node-{number:03}"
        labels = {POOL: "racks", RACK: f"rack-{number // NODES_IN_RACK}", HOST: name}
        room = {"cpu": str(NODE_CPUS), "memory": "1Ti", "pods": "110"}
        status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def setting(load: Shape, *, memory: bool = False) -> Iterator[dict[str, Any]]:
    """What must be there before the first workload: the flavor, then for each queue a namespace with a LocalQueue.

    A queue's namespace, LocalQueue and ClusterQueue share its name. ``memory``: quota on it too, more than is asked
    for, because controllers of jobs add containers that want some.
    """
    flavor: dict[str, Any] = {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
    if load.topology:
        levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
        yield {"apiVersion": API, "kind": "Topology", "metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}}
        flavor["spec"] = {"nodeLabels": {POOL: "racks"}, "topologyName": TOPOLOGY}
    yield flavor
    for name in load.queues:
        quota = {"name": "cpu", "nominalQuota": str(NOMINAL_CPUS), "borrowingLimit": str(BORROWING_CPUS)}
        quotas = [quota, {"name": "memory", "nominalQuota": "1Pi"}] if memory else [quota]
        covered = [each["name"] for each in quotas]
        group = {"coveredResources": covered, "flavors": [{"name": FLAVOR, "resources": quotas}]}
        spec = {
            "cohortName": f"cohort-{name.split('-')[1]}",
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": [group],
        }
        yield {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        meta = {"name": name, "namespace": name}
        yield {"apiVersion": API, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": name}}


def workload(arrival: Arrival) -> dict[str, Any]:
    pods = arrival.kind.pods if arrival.asks is not None else 1
    request = f"{arrival.kind.cpus * 1000 // pods}m"
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": request}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set: dict[str, Any] = {"name": "main", "count": pods, "template": template}
    if arrival.asks is not None:
        pod_set["topologyRequest"] = arrival.asks
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {"name": arrival.name, "namespace": arrival.queue},
        "spec": {"queueName": arrival.queue, "priority": arrival.kind.priority, "podSets": [pod_set]},
    }
