"""A cluster without hardware for the nets of the controller: an API server in this process, the controller before it,
and what Kubernetes does beside its API server. What the API server said is written down as a record for the judge.

The record's clock goes ``FASTER`` times as fast as the wall clock. The judge's bounds are for clusters, where one
source is seconds late; here all that is late is milliseconds late. Where this process gets no processor for a while,
its controller gets none either, so a step counts for ``_LONGEST_STEP_S`` at most.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from cli.playground.cluster import Cluster, Create, Delete, Merge, PlaygroundNode, Seen, stamp
from controller.cluster.config.load import parse
from controller.cluster.config.settings import Address, ControllerConfig
from controller.cluster.process.flags import Flags
from controller.cluster.process.process import Process
from history.judge import Judge, Verdict
from history.record import ApiFact, Note
from history.settings import Settings
from kube.errors import KubeError
from kube.resources import NODES, PODS, Resource
from kube.testing import FakeApiServer, eventually

Json = dict[str, Any]
_CONFIG: Final = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {{qps: -1}}
health: {{healthProbeBindAddress: "0"}}
integrations: {{frameworks: [{frameworks}]}}
"""
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


Timed = tuple[float, Callable[["QueueWorld"], None]]
"""An act with its time, in seconds since the beginning of the record."""


class QueueWorld:
    """``begin`` once all is there that scenes need, then ``step`` every ``STEP_S``. Written by one task."""

    def __init__(self, server: FakeApiServer, machines: Mapping[str, PlaygroundNode]) -> None:
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


def world_of(server: FakeApiServer, machines_: Mapping[str, PlaygroundNode]) -> QueueWorld:
    """The world of an API server without objects: what is created has its time, and the nodes are there."""
    server.store.stamp = lambda: stamp(time.time())
    world = QueueWorld(server, machines_)
    install_nodes(server, machines_)
    return world


def config(frameworks: Sequence[str] = ("batch/job",), more: str = "") -> ControllerConfig:
    """The configuration of a controller for ``frameworks``. ``more``: further lines of the file."""
    return parse(_CONFIG.format(frameworks=", ".join(frameworks)) + more, "the net's configuration")


@asynccontextmanager
async def controller(
    server: FakeApiServer, config_: ControllerConfig, web: Address | None = None
) -> AsyncIterator[Process]:
    """A controller that has loaded all there is, and runs meanwhile. Raises what ends it before."""
    flags = Flags(kubeconfig="none", metrics=(None,), web=web, leader_elect=False, namespace="tessera-system")
    process, stop = Process(config_, flags, connect=lambda: server.config), asyncio.Event()
    task = asyncio.create_task(process.run(stop))
    try:
        await eventually(lambda: process.core is not None and process.core.loaded.is_set(), within_s=60.0)
        yield process
        if task.done():
            task.result()
    finally:
        stop.set()
        await asyncio.wait([task], timeout=10.0)


def first(world: QueueWorld, acts: Iterable[Timed]) -> list[Timed]:
    """Carry out the acts of time 0, which come first; the others are returned."""
    todo = list(acts)
    while todo and todo[0][0] <= 0:
        todo.pop(0)[1](world)
    return todo


async def play(world: QueueWorld, todo: Iterable[Timed], lasts_s: float) -> Verdict:
    """Begin the record, carry out each act at its time, and judge after ``lasts_s``."""
    waiting = list(todo)
    world.begin()
    while world.now_s < lasts_s:
        while waiting and waiting[0][0] <= world.now_s:
            waiting.pop(0)[1](world)
        world.step()
        await asyncio.sleep(STEP_S)
    return world.verdict()


def machines(count: int, gpus: int) -> dict[str, PlaygroundNode]:
    by_name = {}
    for number in range(count):
        uuids = tuple(f"GPU-{number}-{index}" for index in range(gpus))
        by_name[f"node-{number}"] = PlaygroundNode(
            {"kubernetes.io/hostname": f"node-{number}"}, uuids, frozenset(uuids)
        )
    return by_name


def node(name: str, machine: PlaygroundNode) -> Json:
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: str(len(machine.gpus))}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": dict(machine.labels)},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


def install_nodes(server: FakeApiServer, machines_: Mapping[str, PlaygroundNode]) -> None:
    for name, machine in machines_.items():
        body = {"apiVersion": "v1", "kind": "Node", **node(name, machine)}
        server.create(NODES, name, body)
