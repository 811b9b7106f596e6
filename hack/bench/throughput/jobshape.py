"""Jobs of several kinds as the load of a benchmark, and what their own controllers would write of them. Pure.

Each asks for the cpus of its arrival in as many pod sets as people give it: a batch Job one, a PyTorchJob a master and
workers, a JobSet a leader and workers, a RayJob a head, workers and what submits it. The plain ones have one pod set.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hack.bench.throughput.drainshape import API, PUBLISHED, Arrival
from kube.resources import Resource

Json = dict[str, Any]

QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY: Final = "kueue.x-k8s.io/priority-class"
WARM_UP: Final = "warm-up"
PRIORITIES: Final = {WARM_UP: 1000, **{each.name: each.priority for each in PUBLISHED}}
_NOW: Final = "2026-01-01T00:00:00Z"
_SUBMITTER_MILLIS: Final = 500
_PODS: Final = 2
"""Of the pod set with the workers."""


class Played(NamedTuple):
    """A kind. ``spec``: of a suspended job by its cpus; the rest: ``status`` while it runs, is stopped, has ended."""

    resource: Resource
    spec: Callable[[int], Json]
    running: Json
    stopped: Json
    ended: Json


def _template(millis: int) -> Json:
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "command": ["python", "train.py", "--epochs", "10"],
        "env": [{"name": "DATA", "value": "/data"}],
        "resources": {"requests": {"cpu": f"{millis}m"}},
    }
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _condition(*types: str) -> list[Json]:
    return [
        {"type": type_, "status": "True", "reason": "Played", "message": "played", "lastTransitionTime": _NOW}
        for type_ in types
    ]


def _batch_job(cpus: int) -> Json:
    return {"suspend": True, "parallelism": _PODS, "completions": _PODS, "template": _template(cpus * 1000 // _PODS)}


def _pytorch_job(cpus: int) -> Json:
    master, worker = _halves(cpus)
    specs = {
        "Master": {"replicas": 1, "restartPolicy": "Never", "template": _template(master)},
        "Worker": {"replicas": _PODS, "restartPolicy": "Never", "template": _template(worker)},
    }
    return {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": specs}


def _job_set(cpus: int) -> Json:
    leader, worker = _halves(cpus)
    jobs = [
        {"name": "leader", "replicas": 1, "template": {"spec": {"template": _template(leader)}}},
        {
            "name": "workers",
            "replicas": 1,
            "template": {"spec": {"parallelism": _PODS, "completions": _PODS, "template": _template(worker)}},
        },
    ]
    return {"suspend": True, "replicatedJobs": jobs}


def _ray_job(cpus: int) -> Json:
    """The submitter is part of the cpus."""
    head, worker = _halves(cpus, less=_SUBMITTER_MILLIS)
    workers = {"groupName": "workers", "replicas": _PODS, "minReplicas": _PODS, "maxReplicas": _PODS}
    cluster = {
        "headGroupSpec": {"rayStartParams": {}, "template": _template(head)},
        "workerGroupSpecs": [{**workers, "rayStartParams": {}, "template": _template(worker)}],
    }
    return {
        "suspend": True,
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": _template(_SUBMITTER_MILLIS),
        "rayClusterSpec": cluster,
    }


def _pytorch_workers(cpus: int) -> Json:
    workers = {"replicas": _PODS, "restartPolicy": "Never", "template": _template(cpus * 1000 // _PODS)}
    return {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": workers}}


def _one_replicated_job(cpus: int) -> Json:
    pods = {"parallelism": _PODS, "completions": _PODS, "template": _template(cpus * 1000 // _PODS)}
    return {"suspend": True, "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": pods}}]}


def _ray_head(cpus: int) -> Json:
    """A Ray cluster has a head, and needs no more: one pod with all cpus, submitted to by KubeRay itself."""
    return {
        "suspend": True,
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "submissionMode": "HTTPMode",
        "rayClusterSpec": {"headGroupSpec": {"rayStartParams": {}, "template": _template(cpus * 1000)}},
    }


def _halves(cpus: int, *, less: int = 0) -> tuple[int, int]:
    """Thousandths of a cpu for the first pod, and for each worker."""
    millis = cpus * 1000 - less
    return millis // 2, millis // 2 // _PODS


def _job_set_status(name: str, active: int) -> Json:
    return {"name": name, "active": active, "ready": active, "succeeded": 0, "failed": 0, "suspended": 0}


BATCH: Final = Played(
    Resource("batch", "v1", "jobs", "Job", namespaced=True),
    _batch_job,
    {"startTime": _NOW, "active": _PODS, "ready": _PODS},
    {"startTime": None, "active": 0, "ready": 0, "conditions": _condition("Suspended")},
    {
        "active": 0,
        "ready": 0,
        "succeeded": _PODS,
        "completionTime": _NOW,
        "conditions": _condition("SuccessCriteriaMet", "Complete"),
    },
)
PYTORCH: Final = Played(
    Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", namespaced=True),
    _pytorch_job,
    {"conditions": _condition("Running"), "replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": _PODS}}},
    {"conditions": _condition("Suspended"), "replicaStatuses": {"Master": {"active": 0}, "Worker": {"active": 0}}},
    {"conditions": _condition("Succeeded"), "replicaStatuses": {"Master": {"active": 0}, "Worker": {"active": 0}}},
)
JOB_SET: Final = Played(
    Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True),
    _job_set,
    {"conditions": None, "replicatedJobsStatus": [_job_set_status("leader", 1), _job_set_status("workers", 1)]},
    {
        "conditions": _condition("Suspended"),
        "replicatedJobsStatus": [_job_set_status("leader", 0), _job_set_status("workers", 0)],
    },
    {
        "conditions": _condition("Completed"),
        "replicatedJobsStatus": [_job_set_status("leader", 0), _job_set_status("workers", 0)],
    },
)
RAY: Final = Played(
    Resource("ray.io", "v1", "rayjobs", "RayJob", namespaced=True),
    _ray_job,
    {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterStatus": {"state": "ready"}},
    {"jobDeploymentStatus": "Suspended", "jobStatus": "", "rayClusterStatus": None},
    {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "rayClusterStatus": None},
)
PLAIN_PYTORCH: Final = PYTORCH._replace(spec=_pytorch_workers)
PLAIN_JOB_SET: Final = JOB_SET._replace(spec=_one_replicated_job)
PLAIN_RAY: Final = RAY._replace(spec=_ray_head)
KINDS: Final = {
    "batch": (BATCH,),
    "mixed": (JOB_SET, RAY, PYTORCH),
    "plain": (PLAIN_JOB_SET, PLAIN_RAY, PLAIN_PYTORCH),
    "jobset": (JOB_SET,),
    "rayjob": (RAY,),
    "pytorchjob": (PYTORCH,),
}
"""What is submitted, in equal parts, by name. ``plain``: with one pod set each, as a batch Job has."""


def job(played: Played, arrival: Arrival) -> Json:
    """As the chart's policies leave it when it is created."""
    kind = played.resource
    return {
        "apiVersion": f"{kind.group}/{kind.version}",
        "kind": kind.kind,
        "metadata": {
            "name": arrival.name,
            "namespace": arrival.queue,
            "labels": {QUEUE: arrival.queue, PRIORITY: arrival.kind.name},
        },
        "spec": played.spec(arrival.kind.cpus),
    }


def priorities() -> list[Json]:
    """A WorkloadPriorityClass for each class of the load, and for the jobs before it."""
    return [
        {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in PRIORITIES.items()
    ]
