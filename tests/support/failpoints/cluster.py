"""A controller that is killed at its failpoints, in a small cluster whose history is judged.

The API server is in this process (``kube.testing``), what Kubernetes does beside it is the playground's. The history is
the API server's own log of changes, with what the kubelets had given at each.
"""

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from cli.playground.cluster import GPU, Cluster, Create, Delete, Merge, PlaygroundNode, Seen, stamp
from controller.cluster.config.load import parse
from controller.cluster.process.flags import Flags
from controller.cluster.process.process import Process
from controller.cluster.watching.kinds import (
    CLUSTER_QUEUES,
    FLAVORS,
    GPU_NODES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PROVISIONING_REQUESTS,
    TOPOLOGIES,
    WORKLOAD_CLASSES,
    WORKLOADS,
)
from controller.foreign.jobs.reconcile_shell import JOBS as VOLCANO_JOBS
from controller.reconcile.jobs.startgroups_shell import MADE_KINDS
from controller.reconcile.provisioning.provisioning_shell import POD_TEMPLATES
from failpoints.names import Failpoint
from hack.failpoints.armed import Moment, Point
from history.judge import Finding, judged
from history.record import read
from inventory.api.names import POD_GROUP
from kube.errors import KubeError
from kube.resources import Resource
from kube.testing import FakeApiServer, eventually
from tests.support.controller.gpunodes import full_status
from tests.support.failpoints.deaths import DeadError, Deaths, DiedError
from tests.support.hang import HANG_S

Json = dict[str, Any]
QUEUE: Final = "kueue.x-k8s.io/queue-name"
TRACKED: Final = "batch.kubernetes.io/job-tracking"
"""The Job controller's finalizer of pods."""
TEAM: Final = "team"
CONFIG: Final = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: -1}
health: {healthProbeBindAddress: "0"}
integrations: {frameworks: [batch/job, pod]}
tessera:
  policy: kueue
  batchEvents: 0s
  pendingCondition: {after: 0s, atMostEvery: 60s}
  gpuFailures: {policy: requeue-gang, budget: 100, window: 1m, coolDown: 1s}
"""
START_GROUPS: Final = MADE_KINDS[0]
STEP_S: Final = 0.2
"""Between two changes, on the record's clock: what lasts over 25 of them is no passing state any more."""
DEAD_S: Final = 15.0
"""A dead controller stays away so long: what it left is judged by every rule that counts seconds."""
END_S: Final = 1000.0


class Stage(NamedTuple):
    """``deed`` is done at once, by a person, by hardware or by Kubernetes; then all go on until ``until`` holds."""

    deed: Callable[[], object]
    until: Callable[[], bool]
    what: str


class Act(NamedTuple):
    """``stages`` in a cluster, with objects named by the number. ``failpoints``: where the controller is killed."""

    name: str
    failpoints: tuple[Failpoint, ...]
    stages: Callable[["KilledCluster", str], list[Stage]]
    config: str = CONFIG
    kinds: tuple[Resource, ...] = ()
    """That the API server has beside Kubernetes' own, Kueue's and Tessera's."""

    @property
    def points(self) -> list[Point]:
        return [Point(failpoint, moment) for failpoint in self.failpoints for moment in Moment]


class KilledCluster:
    """Two nodes of two GPUs, a queue ``cq`` with all of them, and one controller."""

    def __init__(self, server: FakeApiServer, deaths: Deaths, config: str = CONFIG) -> None:
        self.server = server
        self.deaths = deaths
        self.config = config
        self.process: Process | None = None
        self._cluster = Cluster()
        self._machines = {
            name: PlaygroundNode({"kubernetes.io/hostname": name}, gpus, frozenset(gpus))
            for name in ("n1", "n2")
            for gpus in [(f"GPU-{name}-0", f"GPU-{name}-1")]
        }
        self._task: asyncio.Task[int] | None = None
        self._stop = asyncio.Event()
        self._kubelets: list[tuple[int, str, Json]] = []
        self._told: dict[str, object] = {}
        self._pauses: list[int] = []
        """Versions after which the controller was dead for a while."""
        self.schedules = True
        """Whether pods get nodes."""
        self._lost = ""
        self._seen = 0
        """The version at which Kubernetes last went a step further."""
        server.store.finalizers = True
        server.store.stamp = lambda: stamp(time.time())
        self._furnish()

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def _furnish(self) -> None:
        self.make(NAMESPACES, TEAM, meta={"labels": {"kubernetes.io/metadata.name": TEAM}})
        self.make(TOPOLOGIES, "hosts", spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
        self.make(FLAVORS, "gpu", spec={"nodeLabels": {"pool": "gpu"}, "topologyName": "hosts"})
        self.make(WORKLOAD_CLASSES, "urgent", value=1000)
        flavors = [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": "4"}]}]
        groups = [{"coveredResources": [GPU], "flavors": flavors}]
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
        self.make(CLUSTER_QUEUES, "cq", spec=spec)
        self.make(LOCAL_QUEUES, "lq", TEAM, spec={"clusterQueue": "cq"})
        for name in tuple(self._machines):
            self.join(name, "gpu")

    def join(self, name: str, pool: str) -> None:
        """A node of two GPUs comes."""
        gpus = (f"GPU-{name}-0", f"GPU-{name}-1")
        labels = {"kubernetes.io/hostname": name, "pool": pool}
        self._machines[name] = PlaygroundNode(labels, gpus, frozenset(gpus))
        amounts = {"cpu": "64", GPU: "2", "pods": "20"}
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(time.time())}]
        status = {"allocatable": amounts, "capacity": amounts, "conditions": ready}
        self.make(NODES, name, meta={"labels": labels}, status=status)
        self.make(GPU_NODES, name, status=self.gpu_node(name))

    def leave(self, name: str) -> None:
        """The node goes."""
        del self._machines[name]
        self.server.delete(NODES, name)
        self.server.delete(GPU_NODES, name)

    def gpu_node(self, name: str, *, failed: str = "", holders: list[Json] | None = None) -> Json:
        devices = [
            {
                "uuid": uuid,
                "index": index,
                "memoryMiB": 81920,
                "product": "NVIDIA H100",
                "offers": [{"resource": GPU}],
                "health": {"state": "Unhealthy", "reasons": ["Xid79"]} if uuid == failed else {"state": "Healthy"},
            }
            for index, uuid in enumerate(self._machines[name].gpus)
        ]
        return full_status({"devices": devices, "holders": holders or [], "observedAt": "2026-01-01T00:00:00Z"})

    def make(
        self, resource: Resource, name: str, namespace: str = "", *, meta: Json | None = None, **parts: Any
    ) -> None:
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"creationTimestamp": stamp(time.time()), **(meta or {})},
            **parts,
        }
        self.server.create(resource, name, body, namespace=namespace)

    def step(self) -> None:
        """Kubernetes goes one step further, and the kubelets tell what they have given."""
        all_ = self.server.list_all
        machines = {name: machine for name, machine in self._machines.items() if name != self._lost}
        pods = [{"status": {"phase": "Pending"}, **pod} for pod in all_(PODS)]
        seen = Seen(all_(JOBS), [self._scheduled(pod, pods) for pod in pods], all_(WORKLOADS), machines)
        for write in self._cluster.step(seen, time.time()):
            with contextlib.suppress(KubeError):  # gone meanwhile
                match write:
                    case Create(resource=resource, body=body):
                        meta = body["metadata"]
                        meta["finalizers"] = [TRACKED]
                        self.server.create(resource, meta["name"], body, namespace=meta["namespace"])
                    case Merge(resource=resource, namespace=namespace, name=name, patch=patch):
                        self.server.merge(resource, name, patch, namespace=namespace)
                    case Delete(resource=resource, namespace=namespace, name=name) if self._of_others(write):
                        pass
                    case Delete(resource=resource, namespace=namespace, name=name):
                        self.server.delete(resource, name, namespace=namespace)
        for pod in pods:
            meta = pod["metadata"]
            if TRACKED not in meta.get("finalizers", []):
                continue
            with contextlib.suppress(KubeError):
                if pod["status"].get("phase") == "Failed":  # the Job controller makes another in its place
                    self.server.delete(PODS, meta["name"], namespace=meta["namespace"])
                if pod["status"].get("phase") == "Failed" or meta.get("deletionTimestamp"):
                    left = [each for each in meta["finalizers"] if each != TRACKED]
                    self.server.merge(
                        PODS, meta["name"], {"metadata": {"finalizers": left or None}}, namespace=meta["namespace"]
                    )
        self._collect()
        self._listen()

    def _scheduled(self, pod: Json, pods: list[Json]) -> Json:
        """The pod as the scheduler has it: behind a gate while it may not go."""
        if self.schedules and is_whole(pod["metadata"]["name"], pods, self.server.list_all(START_GROUPS)):
            return pod
        return {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": "waits"}]}}

    def _collect(self) -> None:
        """The garbage collector, of what other objects than Kubernetes' Jobs owned."""
        uids = {stored.body["metadata"]["uid"] for stored in self.server.store.objects.values()}
        for resource in (PODS, WORKLOADS, POD_GROUPS, START_GROUPS, PROVISIONING_REQUESTS, POD_TEMPLATES):
            for each in self.server.list_all(resource):
                meta = each["metadata"]
                owners = {owner["uid"] for owner in meta.get("ownerReferences", [])}
                if owners and not owners & uids and not meta.get("deletionTimestamp"):
                    self.server.delete(resource, meta["name"], namespace=meta["namespace"])

    def _of_others(self, write: Delete) -> bool:
        """Owned by a Job that is not Kubernetes' own, and that is there: the playground knows no other."""
        meta = self.server.get(write.resource, write.name, namespace=write.namespace)["metadata"]
        uids = {job["metadata"]["uid"] for job in self.server.list_all(VOLCANO_JOBS)}
        return any(owner["uid"] in uids for owner in meta.get("ownerReferences", []))

    def _listen(self) -> None:
        for node in self._machines:
            held: dict[tuple[str, str], list[str]] = {}
            for gpu, holder in sorted(self._cluster.holders(node).items()):
                held.setdefault((holder.namespace, holder.pod), []).append(gpu)
            if self._told.get(node) != held:
                self._told[node] = held
                pods = [
                    {
                        "namespace": namespace,
                        "name": name,
                        "containers": [{"name": "main", "devices": [{"resource": GPU, "ids": ids}]}],
                    }
                    for (namespace, name), ids in held.items()
                ]
                self._kubelets.append((self.server.store.version, node, {"call": "PodResources", "pods": pods}))

    # -- the controller ------------------------------------------------------------------------------------------------

    def fail_gpu(self, uuid: str, *holders: str) -> None:
        """Its node's agent says so, and that these pods have it."""
        node = uuid.removeprefix("GPU-").rpartition("-")[0]
        machine = self._machines[node]
        self._machines[node] = PlaygroundNode(machine.labels, machine.gpus, machine.healthy - {uuid})
        held = [{"device": uuid, "namespace": TEAM, "pod": pod, "container": "main"} for pod in holders]
        self.server.merge(GPU_NODES, node, {"status": self.gpu_node(node, failed=uuid, holders=held)})

    def mend_gpus(self) -> None:
        for node, machine in self._machines.items():
            self._machines[node] = PlaygroundNode(machine.labels, machine.gpus, frozenset(machine.gpus))
            self.server.merge(GPU_NODES, node, {"status": self.gpu_node(node)})

    def find(self, job: str, phase: str) -> list[Json]:
        """Pods of the job in that phase."""
        pods = self.server.list_all(PODS)
        return [
            pod
            for pod in pods
            if pod["metadata"]["labels"].get("job-name") == job and pod["status"].get("phase") == phase
        ]

    def lose(self, node: str) -> None:
        """No pod gets to this node; the empty name: to all again."""
        self._lost, self._seen = node, 0

    def gpus_of(self, pod: str) -> tuple[str, ...]:
        held = [
            gpu for node in self._machines for gpu, holder in self._cluster.holders(node).items() if holder.pod == pod
        ]
        return tuple(sorted(held))

    async def start(self, point: Point | None = None) -> None:
        """A life of the controller, which is to end at ``point``; it decides, or has died on its way there."""
        self.deaths.life(point)
        self._stop = asyncio.Event()
        flags = Flags(kubeconfig="none", metrics=(None,), web=None, leader_elect=False, namespace="tessera-system")
        self.process = process = Process(parse(self.config), flags, connect=lambda: self.server.config)
        self._task = task = asyncio.create_task(process.run(self._stop))

        def decides() -> bool:
            return task.done() or self.deaths.is_dead or (process.core is not None and process.core.loaded.is_set())

        await eventually(decides, what="deciding")
        if not self.deaths.is_dead:
            assert not task.done(), task.exception()

    async def bury(self) -> None:
        """The dead process is gone: nothing of it writes any more."""
        assert self._task is not None
        assert self.deaths.is_dead
        self._pauses.append(self.server.store.version)
        self._stop.set()
        with contextlib.suppress(DiedError, DeadError):
            await asyncio.wait_for(self._task, HANG_S)

    @property
    def deaths_so_far(self) -> int:
        return len(self._pauses)

    async def play(self, act: "Act", number: int, point: Point | None = None) -> None:
        """One act with the running controller, which dies at ``point`` and is started again."""
        self.deaths.life(point)
        for stage in act.stages(self, f"{number}"):
            stage.deed()
            try:
                await self.until(stage.until, stage.what)
            except Dead:
                await self.bury()
                await self.start()
                await self.until(stage.until, f"{stage.what} after a death at {point}")
        if point is not None and self.deaths.point is not None:
            # What was waited for was seen from outside before the controller came there itself.
            await eventually(lambda: self.deaths.is_dead, within_s=HANG_S, what=f"{act.name}: never came to {point}")
            await self.bury()
            await self.start()

    async def stop(self) -> None:
        assert self._task is not None
        self._stop.set()
        await self._task

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Kubernetes and the controller go on until it holds, or the controller dies."""

        def holds() -> bool:
            if self.deaths.is_dead:
                raise Dead
            if self.server.store.version != self._seen:
                self._seen = self.server.store.version  # what a step changes itself is looked at by the next one
                self.step()
            return condition()

        await eventually(holds, within_s=HANG_S, what=f"it never came to this: {what}")

    # -- the history ---------------------------------------------------------------------------------------------------

    def findings(self) -> tuple[Finding, ...]:
        """What the judge finds in the whole history, a long peace at its end included."""
        return judged(read(io.BytesIO(b"".join(self._lines())))).findings

    def _lines(self) -> Iterator[bytes]:
        at_s, kubelets, pauses = 0.0, list(self._kubelets), list(self._pauses)
        yield _line(0.0, source="recorder", type="SETTINGS", settings={"queuesPods": True})
        for node, machine in self._machines.items():
            yield _line(0.0, source="hardware", node=node, gpus=[{"uuid": each} for each in machine.gpus])
        for change in self.server.store.changes:
            while pauses and pauses[0] < change.version:
                pauses.pop(0)
                at_s += DEAD_S
            at_s += STEP_S
            yield _line(at_s, source="api", type=change.type, object=change.body)
            while kubelets and kubelets[0][0] <= change.version:
                _, node, told = kubelets.pop(0)
                yield _line(at_s, source="kubelet", node=node, **told)
        yield _line(at_s + END_S, source="recorder", type="END")


def is_whole(name: str, pods: list[Json], groups: list[Json]) -> bool:
    """Whether kube-scheduler lets the pod go: its PodGroup, if it names one, is there, and no pod of it is gated."""
    named = {
        pod["metadata"]["name"]: (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
        or (pod["metadata"].get("annotations") or {}).get(POD_GROUP, "")
        for pod in pods
    }
    if not named[name]:
        return True
    (least,) = [
        each["spec"]["schedulingPolicy"]["gang"]["minCount"]
        for each in groups
        if each["metadata"]["name"] == named[name]
    ] or [len(pods) + 1]
    free = [not pod["spec"].get("schedulingGates") for pod in pods if named[pod["metadata"]["name"]] == named[name]]
    return len(free) >= least and all(free)


class Dead(Exception):  # noqa: N818 - an end, not a mistake
    """The controller has died while something was waited for."""


def _line(at_s: float, **fields: object) -> bytes:
    return json.dumps({"t": round(at_s, 3), **fields}).encode() + b"\n"
