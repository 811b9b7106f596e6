"""The load of the drain benchmark: a published one, so that its numbers can be compared. Pure.

5 cohorts of 6 ClusterQueues, each with 20 cpus of its own and up to 100 borrowed; three classes of workloads arrive at
their intervals in every queue. A factor below 1 scales the counts; sizes, run times and intervals stay.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

COHORTS, QUEUES = 5, 6
NOMINAL_CPUS, BORROWING_CPUS = 20, 100
FLAVOR = "default"
API = "kueue.x-k8s.io/v1beta2"


class Class(NamedTuple):
    name: str
    amount: int
    cpus: int
    runtime_s: float
    priority: int
    interval_s: float


PUBLISHED = (
    Class("large", 50, 20, 1.0, 200, 1.2),
    Class("medium", 100, 5, 0.5, 100, 0.5),
    Class("small", 350, 1, 0.2, 50, 0.1),
)


class Arrival(NamedTuple):
    at_s: float
    queue: str
    name: str
    kind: Class


class Shape(NamedTuple):
    queues: tuple[str, ...]
    classes: tuple[Class, ...]

    @property
    def workloads(self) -> int:
        return len(self.queues) * sum(kind.amount for kind in self.classes)

    @property
    def floor_s(self) -> float:
        """No scheduler is faster: each queue's cpu seconds over its nominal quota (all queues are alike)."""
        return sum(kind.amount * kind.cpus * kind.runtime_s for kind in self.classes) / NOMINAL_CPUS

    def arrivals(self) -> list[Arrival]:
        """In order of time."""
        found = [
            Arrival(number * kind.interval_s, queue, f"{kind.name}-{number}", kind)
            for kind in self.classes
            for number in range(kind.amount)
            for queue in self.queues
        ]
        return sorted(found, key=lambda one: one.at_s)


def shape(factor: float) -> Shape:
    """The published shape with its counts times ``factor``, at least one of each class."""
    queues = tuple(f"cq-{cohort}-{queue}" for cohort in range(COHORTS) for queue in range(QUEUES))
    return Shape(queues, tuple(kind._replace(amount=max(1, round(kind.amount * factor))) for kind in PUBLISHED))


def setting(queues: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """What must be there before the first workload: the flavor, then for each queue a namespace with a LocalQueue.

    A queue's namespace, LocalQueue and ClusterQueue share its name.
    """
    yield {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
    for name in queues:
        quota = {"name": "cpu", "nominalQuota": str(NOMINAL_CPUS), "borrowingLimit": str(BORROWING_CPUS)}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [quota]}]}
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
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(arrival.kind.cpus)}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {"name": arrival.name, "namespace": arrival.queue},
        "spec": {
            "queueName": arrival.queue,
            "priority": arrival.kind.priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }
