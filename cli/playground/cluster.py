"""Kubernetes' work beside its API server, for batch/v1 Jobs: the Job controller, the scheduler, the kubelets, the
garbage collector. Pure.

    Seen (objects as the API server has them, nodes), now -> Cluster.step() -> writes

Pods run from the moment in which they have a node. A GPU is given as a plan says (``tessera.dev/devices``), else the
first that are free; resources that a Job does not ask for are not counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from cli.playground.world import runtime_s
from controller.cluster.watching.kinds import JOBS, PODS, WORKLOADS
from inventory.api import deviceplan
from inventory.api.names import DEVICES
from kube.resources import Resource

Json = dict[str, Any]
GPU: Final = "nvidia.com/gpu"
KEPT_S: Final = 60.0
"""The seconds for which a Job that has ended stays, so that people can see it."""
_ENDED: Final = ("Succeeded", "Failed")
_FOREVER: Final = float("inf")


class PlaygroundNode(Struct, frozen=True):
    """A node as a kubelet knows it: labels, its GPUs, and those that may be given to a pod."""

    labels: Mapping[str, str]
    gpus: tuple[str, ...]
    healthy: frozenset[str]


class Seen(Struct, frozen=True):
    """The API server's objects, and the nodes by name."""

    jobs: Sequence[Json]
    pods: Sequence[Json]
    workloads: Sequence[Json]
    nodes: Mapping[str, PlaygroundNode]


class Create(Struct, frozen=True):
    resource: Resource
    body: Json


class Merge(Struct, frozen=True):
    resource: Resource
    namespace: str
    name: str
    patch: Json


class Delete(Struct, frozen=True):
    resource: Resource
    namespace: str
    name: str


Write = Create | Merge | Delete


class Holder(Struct, frozen=True):
    """A container that holds GPUs of ``node``."""

    namespace: str
    pod: str
    container: str
    node: str
    gpus: tuple[str, ...]


class Cluster:
    """The cluster's state. ``_held`` are the pods on a node that have not ended, by uid; no GPU is in two of them.
    ``_ran_s``: since when all pods of a Job run, and ``_ended_s``: since when it is over; both by the Job's uid, and
    gone with the Job.
    """

    def __init__(self) -> None:
        self._held: dict[str, Holder] = {}
        self._ran_s: dict[str, float] = {}
        self._ended_s: dict[str, float] = {}

    def holders(self, node: str) -> dict[str, Holder]:
        """The holder of each GPU of a node."""
        return {gpu: each for each in self._held.values() if each.node == node for gpu in each.gpus}

    def validate(self) -> None:
        """AssertionError for a GPU that two pods hold."""
        given = [gpu for each in self._held.values() for gpu in each.gpus]
        assert len(given) == len(set(given)), "a GPU is given to two pods"

    def step(self, seen: Seen, now_s: float) -> list[Write]:
        """The writes to make now; the next call sees them written."""
        running = {_uid(pod) for pod in seen.pods if pod["status"].get("phase") not in _ENDED}
        self._held = {uid: each for uid, each in self._held.items() if uid in running}
        uids = {_uid(job) for job in seen.jobs}
        for kept in (self._ran_s, self._ended_s):
            for uid in kept.keys() - uids:
                del kept[uid]
        writes = [*self._collected(seen, uids)]
        for job in seen.jobs:
            pods = [pod for pod in seen.pods if _owner(pod) == _uid(job)]
            writes += self._job(job, pods, now_s)
        writes += self._bound(seen, now_s)
        return writes

    # -- the garbage collector -----------------------------------------------------------------------------------

    @staticmethod
    def _collected(seen: Seen, jobs: set[str]) -> Iterator[Write]:
        for resource, objects in ((PODS, seen.pods), (WORKLOADS, seen.workloads)):
            for each in objects:
                if (owner := _owner(each)) is not None and owner not in jobs:
                    yield Delete(resource, each["metadata"]["namespace"], each["metadata"]["name"])

    # -- the Job controller --------------------------------------------------------------------------------------

    def _job(self, job: Json, pods: list[Json], now_s: float) -> Iterator[Write]:
        meta, uid = job["metadata"], _uid(job)
        if _has(job, "Complete"):
            if now_s - self._ended_s.setdefault(uid, now_s) >= KEPT_S:
                yield Delete(JOBS, meta["namespace"], meta["name"])
            return
        if job["spec"].get("suspend"):
            self._ran_s.pop(uid, None)
            yield from (Delete(PODS, meta["namespace"], pod["metadata"]["name"]) for pod in pods)
            yield from _status(job, {"active": 0, "ready": 0, "startTime": None}, "Suspended", now_s)
            return
        there = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        wanted = int(job["spec"].get("parallelism", 1))
        indexes = {pod["metadata"]["annotations"][_INDEX] for pod in there}
        yield from (_pod(job, index, now_s) for index in range(wanted) if str(index) not in indexes)
        ready = sum(pod["status"].get("phase") == "Running" for pod in there)
        if ready < wanted:
            self._ran_s.pop(uid, None)
        elif now_s - self._ran_s.setdefault(uid, now_s) >= runtime_s(job, _FOREVER):
            yield from (_merged(pod, {"status": {"phase": "Succeeded"}}) for pod in there)
            yield from _status(job, {"active": 0, "ready": 0, "succeeded": wanted}, "Complete", now_s)
            return
        started = job.get("status", {}).get("startTime") or stamp(now_s)
        yield from _status(job, {"active": wanted, "ready": ready, "startTime": started}, None, now_s)

    # -- the scheduler and the kubelets --------------------------------------------------------------------------

    def _bound(self, seen: Seen, now_s: float) -> Iterator[Write]:
        for pod in seen.pods:
            waits = pod["status"].get("phase") == "Pending" and not pod["spec"].get("schedulingGates")
            if not waits or pod["spec"].get("nodeName"):
                continue
            for name, node in seen.nodes.items():
                gpus = self._given(pod, name, node)
                if gpus is not None:
                    meta, container = pod["metadata"], pod["spec"]["containers"][0]["name"]
                    self._held[_uid(pod)] = Holder(meta["namespace"], meta["name"], container, name, gpus)
                    yield _merged(pod, {"spec": {"nodeName": name}, "status": _running(now_s)})
                    break

    def _given(self, pod: Json, name: str, node: PlaygroundNode) -> tuple[str, ...] | None:
        """The GPUs that the pod gets on this node; None where it does not go there."""
        selector = pod["spec"].get("nodeSelector") or {}
        if any(node.labels.get(key) != value for key, value in selector.items()):
            return None
        count, held = _gpus(pod), self.holders(name)
        free = [gpu for gpu in node.gpus if gpu in node.healthy and gpu not in held]
        planned = deviceplan.devices((pod["metadata"].get("annotations") or {}).get(DEVICES, ""))
        if len(planned) == count and set(planned) <= set(free):
            return planned
        return tuple(free[:count]) if len(free) >= count else None


_INDEX: Final = "batch.kubernetes.io/job-completion-index"


def _pod(job: Json, index: int, now_s: float) -> Create:
    """A pod as the Job controller makes it."""
    meta, template = job["metadata"], job["spec"]["template"]
    template_meta, name = template.get("metadata") or {}, f"{meta['name']}-{index}-{int(now_s * 1000) % 36**5:06x}"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    labels = {"batch.kubernetes.io/job-name": meta["name"], "job-name": meta["name"], _INDEX: str(index)}
    metadata = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {**(template_meta.get("labels") or {}), **labels},
        "annotations": {**(template_meta.get("annotations") or {}), _INDEX: str(index)},
        "ownerReferences": [owner],
        "creationTimestamp": stamp(now_s),
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(template["spec"])}
    return Create(PODS, {**body, "status": {"phase": "Pending"}})


def _running(now_s: float) -> Json:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(now_s)}
    return {"phase": "Running", "startTime": stamp(now_s), "conditions": [ready]}


def _merged(body: Json, patch: Json) -> Merge:
    resource = PODS if body["kind"] == "Pod" else JOBS
    return Merge(resource, body["metadata"]["namespace"], body["metadata"]["name"], patch)


def _status(job: Json, counts: Json, condition: str | None, now_s: float) -> Iterator[Write]:
    """The write of the Job's status with these counts, and with this condition alone, where it differs."""
    status = job.get("status") or {}
    there = [each for each in status.get("conditions") or [] if each["type"] == condition]
    new = {"type": condition, "status": "True", "lastTransitionTime": stamp(now_s)}
    wanted = there or ([new] if condition is not None else [])
    same = all(status.get(key) == value for key, value in counts.items())
    if not same or (status.get("conditions") or []) != wanted:
        yield _merged(job, {"status": {**counts, "conditions": wanted}})


def _has(job: Json, condition: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _gpus(pod: Json) -> int:
    count = 0
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        count += int((resources.get("limits") or resources.get("requests") or {}).get(GPU, 0))
    return count


def _uid(body: Json) -> str:
    return str(body["metadata"]["uid"])


def _owner(body: Json) -> str | None:
    """The uid of the Job that made the object, or that it stands for."""
    owners = body["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner["kind"] == "Job"), None)


def stamp(now_s: float) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
