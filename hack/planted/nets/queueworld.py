"""A cluster without hardware for the nets of the controller: an API server in this process, the controller before it,
and what Kubernetes does beside its API server. What the API server said is written down as a record for the judge.

The record's clock goes ``FASTER`` times as fast as the wall clock. The judge's bounds are for clusters, where one
source is seconds late; here all that is late is milliseconds late. Where this process gets no processor for a while,
its controller gets none either, so a step counts for ``_LONGEST_STEP_S`` at most.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from cli.playground.cluster import Cluster, Create, Delete, Machine, Merge, Seen, stamp
from history.judge import Judge, Verdict
from history.record import ApiFact, Note
from history.settings import Settings
from kube.errors import KubeError
from kube.resources import NODES, PODS, Resource
from kube.testing import FakeApiServer

Json = dict[str, Any]
FASTER: Final = 6.0
STEP_S: Final = 0.1
_LONGEST_STEP_S: Final = 0.2
GPU: Final = "nvidia.com/gpu"
_QUEUES: Final = "kueue.x-k8s.io"
FLAVORS: Final = Resource(_QUEUES, "v1beta2", "resourceflavors", "ResourceFlavor")
CHECKS: Final = Resource(_QUEUES, "v1beta2", "admissionchecks", "AdmissionCheck")
CLUSTER_QUEUES: Final = Resource(_QUEUES, "v1beta2", "clusterqueues", "ClusterQueue")
LOCAL_QUEUES: Final = Resource(_QUEUES, "v1beta2", "localqueues", "LocalQueue", namespaced=True)
WORKLOADS: Final = Resource(_QUEUES, "v1beta2", "workloads", "Workload", namespaced=True)
PRIORITIES: Final = Resource(_QUEUES, "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace")
JOBS: Final = Resource("batch", "v1", "jobs", "Job", namespaced=True)
JOB_SETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True)


class QueueWorld:
    """``begin`` once all is there that scenes need, then ``step`` every ``STEP_S``. Written by one task."""

    def __init__(self, server: FakeApiServer, machines: Mapping[str, Machine]) -> None:
        self.server = server
        self._machines = machines
        self._cluster = Cluster()
        self._judge = Judge()
        self._stepped_s = time.monotonic()
        self._told = server.store.version
        """The version of the last change that is in the record."""
        self.now_s = 0.0
        """Seconds since the beginning, in which this process had a processor."""

    def begin(self) -> None:
        self._stepped_s = time.monotonic()
        self._judge.take(Note(0.0, "SETTINGS", settings=Settings()))
        self._tell(0.0)

    def step(self) -> None:
        now_s, stepped_s = time.time(), time.monotonic()
        self.now_s += min(stepped_s - self._stepped_s, _LONGEST_STEP_S)
        self._stepped_s = stepped_s
        seen = Seen(self.all(JOBS), self.all(PODS), self.all(WORKLOADS), self._machines)
        for write in self._cluster.step(seen, now_s):
            with contextlib.suppress(KubeError):  # gone meanwhile
                match write:
                    case Create(resource=resource, body=body):
                        self.create(resource, body)
                    case Merge(resource=resource, namespace=namespace, name=name, patch=patch):
                        self.server.merge(resource, name, patch, namespace=namespace)
                    case Delete(resource=resource, namespace=namespace, name=name):
                        self.server.delete(resource, name, namespace=namespace)
        self._tell(self.now_s * FASTER)

    def verdict(self) -> Verdict:
        self._tell(self.now_s * FASTER)
        self._judge.take(Note(self.now_s * FASTER, "END"))
        return self._judge.verdict()

    def all(self, resource: Resource) -> list[Json]:
        return self.server.list_all(resource)

    def create(self, resource: Resource, body: Json) -> None:
        meta = {"creationTimestamp": stamp(time.time()), **body["metadata"]}
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": meta}
        self.server.create(resource, meta["name"], whole, namespace=meta.get("namespace", ""))

    def _tell(self, t: float) -> None:
        for change in self.server.store.since(self._told):
            self._told = change.version
            self._judge.take(ApiFact(t, change.type, change.body))


@asynccontextmanager
async def controller(run: Callable[[asyncio.Event], Any]) -> AsyncIterator[None]:
    """It runs meanwhile. Raises what ends it before."""
    stop = asyncio.Event()
    task = asyncio.create_task(run(stop))
    try:
        yield
        if task.done():
            task.result()
    finally:
        stop.set()
        await asyncio.wait([task], timeout=10.0)


def machines(count: int, gpus: int) -> dict[str, Machine]:
    found = {}
    for number in range(count):
        uuids = tuple(f"GPU-{number}-{index}" for index in range(gpus))
        found[f"node-{number}"] = Machine({"kubernetes.io/hostname": f"node-{number}"}, uuids, frozenset(uuids))
    return found


def node(name: str, machine: Machine) -> Json:
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: str(len(machine.gpus))}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": dict(machine.labels)},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


def install_nodes(server: FakeApiServer, machines_: Mapping[str, Machine]) -> None:
    for name, machine in machines_.items():
        body = {"apiVersion": "v1", "kind": "Node", **node(name, machine)}
        server.create(NODES, name, body)
