"""What the engine's benchmarks are made of: queues and workloads as the API server would send them."""

import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from controller.cluster.watching.kinds import reader
from controller.objects.core import Namespace
from controller.objects.decode import decode
from controller.objects.meta import to_json
from controller.objects.queues import ClusterQueue, LocalQueue, ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import BackfillPolicy as BackfillMode
from controller.scheduler.model.config import (
    EngineConfig,
    Extensions,
    FairSharing,
    InterruptionRules,
    MinimumRuntime,
    VictimOrder,
)

NOW_S: Final = 1_800_000_000.0

CLASSES: Final = (("small", 0.7, 1, 50), ("medium", 0.2, 5, 100), ("large", 0.1, 20, 200))
"""The published load of a queue: class, share of the workloads, CPUs, priority."""

POLICIES: Final = {
    "kueue": EngineConfig(),
    "tessera": EngineConfig(
        extensions=Extensions(
            reserve_for_preemptor=True,
            no_eviction_cycles=True,
            minimum_runtime=MinimumRuntime(),
            backfill=BackfillMode.CONSERVATIVE,
            victim_order=VictimOrder.LEAST_LOST,
            quota_from_capacity=True,
            interruptions=InterruptionRules(),
        )
    ),
    "kueue, fair sharing": EngineConfig(fair_sharing=FairSharing()),
}
"""``tessera`` is what ``policy: tessera`` alone switches on."""

read_workload: Final = reader(Workload)


def queue(name: str, cohort: str, *, nominal: int = 20, borrowing: int | None = 100) -> ClusterQueue:
    quota: dict[str, Any] = {"name": "cpu", "nominalQuota": str(nominal)}
    if borrowing is not None:
        quota["borrowingLimit"] = str(borrowing)
    spec = {
        "cohortName": cohort,
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}],
    }
    return decode({"metadata": {"name": name}, "spec": spec}, ClusterQueue)


def local_queue(name: str) -> LocalQueue:
    return decode({"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": name}}, LocalQueue)


def engine_of(config: EngineConfig, queues: int, cohorts: int, **quota: Any) -> Engine:
    """ClusterQueues ``cq-0`` to ``cq-<queues - 1>``, a LocalQueue of the same name for each."""
    engine = Engine(config)
    engine.put(decode({"metadata": {"name": "team"}}, Namespace), NOW_S)
    engine.put(decode({"metadata": {"name": "default"}}, ResourceFlavor), NOW_S)
    for index in range(queues):
        engine.put(queue(f"cq-{index}", f"cohort-{index % cohorts}", **quota), NOW_S)
        engine.put(local_queue(f"cq-{index}"), NOW_S)
    return engine


def _digest(text: str, digits: int) -> str:
    """Hexadecimal digits that are the same in every process; Python's ``hash`` of a text is not."""
    return sha256(text.encode()).hexdigest()[:digits]


def workload(name: str, queue_name: str, cpus: int, priority: int, *, at: int = 0) -> bytes:
    """A Workload as the job integration makes it of a Job, as JSON: labels, owner, finalizer, a pod template."""
    uid = f"5f0c3a52-91d4-4a7e-{_digest(queue_name, 4)}-{_digest(name, 12)}"
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW_S - 1_000_000 + at))
    requests = {"cpu": str(cpus), "memory": "200Mi"}
    container = {
        "name": "main",
        "image": "registry.example/team/trainer:1.4.2",
        "command": ["python", "-m", "train"],
        "env": [{"name": "EPOCHS", "value": "10"}, {"name": "SEED", "value": "7"}],
        "resources": {"requests": {"cpu": requests["cpu"]}},
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    template = {
        "metadata": {"labels": {"app": "trainer", "team": "vision"}},
        "spec": {
            "containers": [container],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
        },
    }
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": uid,
        "resourceVersion": str(1_000_000 + at),
        "generation": 1,
        "creationTimestamp": created,
        "labels": {"kueue.x-k8s.io/job-uid": uid[::-1], "kueue.x-k8s.io/queue-name": queue_name},
        "annotations": {"example.com/submitted-by": "pipeline"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "uid": uid[::-1],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
    }
    spec = {
        "queueName": queue_name,
        "priority": priority,
        "active": True,
        "podSets": [{"name": "main", "count": 1, "template": template}],
    }
    given = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec}
    return msgspec.json.encode(given)


def load(queue_name: str, count: int) -> Iterator[bytes]:
    for kind, share, cpus, priority in CLASSES:
        for index in range(round(count * share)):
            yield workload(f"job-{queue_name}-{kind}-{index}", queue_name, cpus, priority, at=index)


def echoed(written: Workload) -> Workload:
    """The object as the watch brings it back: equal to what was written, and another object throughout."""
    return read_workload(msgspec.json.encode(to_json(written)))


def finished(given: Workload) -> Workload:
    condition = {
        "type": "Finished",
        "status": "True",
        "reason": "Succeeded",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }
    data = to_json(given)
    data["status"]["conditions"].append(condition)
    return read_workload(msgspec.json.encode(data))
