"""What happens in the queues: each scene has a namespace, a LocalQueue and a ClusterQueue of its name. Times are
seconds of the wall clock since the beginning.
"""

import time
from typing import Any, Final

from cli.playground.cluster import stamp
from hack.planted.nets.queueworld import (
    CHECKS,
    CLUSTER_QUEUES,
    FLAVORS,
    GPU,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITIES,
    QueueWorld,
    Timed,
)
from kube.errors import KubeError

Json = dict[str, Any]
QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
CPUS: Final = "planted-cpus"
GPUS: Final = "planted-gpus"
ENDLESS_S: Final = 600
CHECK: Final = "provisioned"

Act = Timed


def quota(flavor: str, amounts: dict[str, int], *, borrowing: int | None = None) -> Json:
    more = {} if borrowing is None else {"borrowingLimit": str(borrowing)}
    rows = [{"name": name, "nominalQuota": str(amount), **more} for name, amount in amounts.items()]
    return {"coveredResources": list(amounts), "flavors": [{"name": flavor, "resources": rows}]}


def queue(name: str, gpus: int, *, cohort: str = "", borrowing: int | None = None, **more: Any) -> list[Act]:
    """The queue of a scene. All have enough CPUs, in a flavor of their own."""
    cpus = quota(CPUS, {"cpu": 64, "memory": 64})

    def made(world: QueueWorld) -> None:
        groups = [cpus, quota(GPUS, {GPU: gpus}, borrowing=borrowing)]
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec: Json = {"resourceGroups": groups, "namespaceSelector": {}, "preemption": preemption, **more}
        if cohort:
            spec["cohortName"] = cohort
        world.create(NAMESPACES, {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
        world.create(CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": spec})
        world.create(LOCAL_QUEUES, {"metadata": {"name": "jobs", "namespace": name}, "spec": {"clusterQueue": name}})

    return [(0.0, made)]


def job(
    at_s: float, space: str, name: str, *, pods: int = 1, gpus: int = 1, runs_s: int = ENDLESS_S, **more: Any
) -> Act:
    """``sidecar``: GPUs of a sidecar of each pod; ``priority``: its class; ``owner``: of what it is a part."""

    def made(world: QueueWorld) -> None:
        meta: Json = {"namespace": space, "name": name, "annotations": {"tessera.dev/runtime": f"{runs_s}s"}}
        meta["labels"] = {QUEUE: "jobs"}
        if more.get("priority"):
            meta["labels"][PRIORITY] = more["priority"]
        if more.get("owner"):
            meta["ownerReferences"] = [owner_of(world, more["owner"])]
        spec = {
            "suspend": more.get("suspend", True),
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": pod_spec(gpus, more.get("sidecar", 0))},
        }
        world.create(JOBS, {"metadata": meta, "spec": spec, "status": {}})

    return at_s, made


def owner_of(world: QueueWorld, owner: Json) -> Json:
    """A reference to an object as the API server has it."""
    meta = world.server.get(JOB_SETS, owner["name"], namespace=owner["namespace"])["metadata"]
    kind = {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", "controller": True}
    return {**kind, "name": meta["name"], "uid": meta["uid"]}


def pod_spec(gpus: int, sidecar: int = 0) -> Json:
    def container(name: str, count: int, **more: str) -> Json:
        asked = {"cpu": "1", GPU: str(count)}
        return {"name": name, "image": "i", "resources": {"limits": asked, "requests": asked}, **more}

    spec: Json = {"restartPolicy": "Never", "containers": [container("main", gpus)]}
    if sidecar:
        spec["initContainers"] = [container("sidecar", sidecar, restartPolicy="Always")]
    return spec


def job_set(at_s: float, space: str, name: str, pods: int) -> Act:
    def made(world: QueueWorld) -> None:
        template = {"spec": {"parallelism": pods, "completions": pods, "template": {"spec": pod_spec(1)}}}
        spec = {"suspend": True, "replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]}
        meta = {"namespace": space, "name": name, "labels": {QUEUE: "jobs"}}
        world.create(JOB_SETS, {"metadata": meta, "spec": spec, "status": {}})

    return at_s, made


def labelled(at_s: float, space: str, name: str, queue_name: str | None) -> Act:
    """Somebody takes the queue's label off a job, or puts it on."""
    patch = {"metadata": {"labels": {QUEUE: queue_name}}}
    return at_s, lambda world: world.server.merge(JOBS, name, patch, namespace=space)


def started(at_s: float, space: str, name: str) -> Act:
    return at_s, lambda world: world.server.merge(JOBS, name, {"spec": {"suspend": False}}, namespace=space)


def gone(at_s: float, space: str, name: str) -> Act:
    return at_s, lambda world: world.server.delete(JOBS, name, namespace=space)


def refused(at_s: float, space: str, name: str, until_s: float) -> Act:
    """The API server refuses to write that a job's Workload has quota, as a policy of a site may."""

    def begun(world: QueueWorld) -> None:
        world.server.refuse = answer

    began_s = time.monotonic()

    def answer(method: str, path: str) -> int | KubeError | None:
        is_it = method in ("PATCH", "PUT") and f"/namespaces/{space}/workloads/" in path and f"-{name}-" in path
        return 422 if is_it and path.endswith("/status") and time.monotonic() - began_s < until_s else None

    return at_s, begun


def base() -> list[Act]:
    def made(world: QueueWorld) -> None:
        for name in (CPUS, GPUS):
            world.create(FLAVORS, {"metadata": {"name": name}, "spec": {}})
        world.create(PRIORITIES, {"metadata": {"name": "urgent"}, "value": 1000})
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": stamp(0)}
        spec = {"controllerName": "somebody.example/provisioner"}
        world.create(CHECKS, {"metadata": {"name": CHECK}, "spec": spec, "status": {"conditions": [active]}})

    return [(0.0, made)]


def evictions() -> list[Act]:
    """Who was evicted runs again once the urgent one has gone."""
    return [
        *queue("evictions", 8),
        job(0.2, "evictions", "first", gpus=4),
        job(1.8, "evictions", "second", gpus=4),
        job(3.4, "evictions", "urgent", gpus=4, priority="urgent"),
        gone(6.0, "evictions", "urgent"),
    ]


def order() -> list[Act]:
    """One GPU, three who ask for the same, one after the other."""
    return [
        *queue("order", 1),
        job(0.2, "order", "first", runs_s=6),
        job(1.5, "order", "second", runs_s=6),
        job(3.2, "order", "third", runs_s=6),
    ]


def several(space: str, quota_: int, jobs: int, **each: Any) -> list[Act]:
    return [
        *queue(space, quota_),
        *(job(0.3 + number * 0.05, space, f"job-{number}", **each) for number in range(jobs)),
    ]


def borrowing() -> list[Act]:
    """Two own, one borrowed at most, four that somebody else leaves."""
    jobs = [job(0.3 + number * 0.05, "borrower", f"job-{number}") for number in range(6)]
    return [*queue("borrower", 2, cohort="borrowing", borrowing=1), *queue("lender", 4, cohort="borrowing"), *jobs]


def checks() -> list[Act]:
    """Nobody says that the check is ready."""
    strategy = {"admissionChecks": [{"name": CHECK}]}
    return [*queue("checks", 4, admissionChecksStrategy=strategy), job(0.3, "checks", "checked")]


def labels() -> list[Act]:
    """A job that waits leaves its queue, is started by its owner, and comes back."""
    return [
        *queue("labels", 1),
        job(0.3, "labels", "holder"),
        job(0.8, "labels", "leaves"),
        labelled(2.0, "labels", "leaves", None),
        started(2.6, "labels", "leaves"),
        labelled(3.6, "labels", "leaves", "jobs"),
    ]


def children() -> list[Act]:
    """A part of a JobSet that waits, with the queue's label from its template: somebody made it to run."""
    owner = {"namespace": "children", "name": "whole"}
    return [
        *queue("children", 1),
        job(0.2, "children", "holder"),
        job_set(0.8, "children", "whole", 1),
        job(2.0, "children", "part", owner=owner, suspend=False),
    ]


def departures() -> list[Act]:
    """One that waits is woken by whatever ends: by itself, by deletion."""
    return [
        *queue("departures", 2),
        job(0.3, "departures", "ends", runs_s=3),
        job(0.4, "departures", "deleted"),
        job(1.0, "departures", "waits", gpus=2),
        gone(5.0, "departures", "deleted"),
    ]


def refusals() -> list[Act]:
    """What could not be written for a while is written then."""
    return [
        *queue("refusals", 2),
        refused(0.0, "refusals", "refused", 3.0),
        job(0.5, "refusals", "refused", gpus=2),
    ]


SCENES: Final = (
    base,
    evictions,
    order,
    lambda: several("sidecars", 4, 3, gpus=1, sidecar=1),
    lambda: several("gangs", 4, 3, pods=2),
    lambda: several("many", 6, 6),
    borrowing,
    checks,
    labels,
    children,
    departures,
    refusals,
)


def acts() -> list[Act]:
    """Those of all scenes in the order of their times."""
    return sorted((act for scene in SCENES for act in scene()), key=lambda each: each[0])
