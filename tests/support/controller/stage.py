"""The controller's process, whole, against an API server in this process."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from controller.cluster.config.load import parse
from controller.cluster.config.settings import Address, ControllerConfig
from controller.cluster.process.flags import Flags
from controller.cluster.process.process import Process
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, GPU_NODES, LOCAL_QUEUES, NAMESPACES, WORKLOADS
from controller.cluster.webhooks.apart.parent_shell import Start
from controller.core import Core
from kube.clock import Clock
from kube.config import ClusterConfig
from kube.resources import LEASES
from kube.testing import FakeApiServer, eventually
from tests.support.controller.webhookprocess import in_this_loop

API = "kueue.x-k8s.io/v1beta2"
KUEUES_LEASE = "c1f6bfd2.kueue.x-k8s.io"
HERE = Address("127.0.0.1", 0)
CONFIG = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: -1}
health: {healthProbeBindAddress: "0"}
tessera:
  policy: kueue
  batchEvents: 0s
  pendingCondition: {after: 0s, atMostEvery: 60s}
"""


def config(text: str = CONFIG) -> ControllerConfig:
    """With any free port for the webhook: several controllers run on one machine."""
    found = parse(text)
    return msgspec.structs.replace(found, webhook=msgspec.structs.replace(found.webhook, port=0))


class Stage:
    """An API server with queues, and what the controller has made of its workloads."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.process: Process | None = None

    # -- objects -----------------------------------------------------------------------------------------------------

    def queue(
        self, name: str = "cq", cpus: int = 10, *, cohort: str | None = None, namespace: str = "team", **spec: Any
    ) -> None:
        """A flavor, a ClusterQueue, a namespace and a LocalQueue ``lq-<name>`` that leads to it."""
        self.make(FLAVORS, "default", {})
        self.make(NAMESPACES, namespace, {"labels": {"kubernetes.io/metadata.name": namespace}})
        quota = {"name": "cpu", "nominalQuota": str(cpus)}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
        body = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        if cohort is not None:
            body["cohortName"] = cohort
        self.make(CLUSTER_QUEUES, name, {}, spec=body)
        self.make(LOCAL_QUEUES, f"lq-{name}", {}, namespace=namespace, spec={"clusterQueue": name})

    def make(self, resource: Any, name: str, meta: dict[str, Any], *, namespace: str = "", **parts: Any) -> None:
        if any(one["metadata"]["name"] == name for one in self.server.list_all(resource)) and not namespace:
            return
        metadata = {"creationTimestamp": stamp(), "finalizers": ["kueue.x-k8s.io/resource-in-use"], **meta}
        body = {"apiVersion": API, "kind": resource.kind, "metadata": metadata, **parts}
        self.server.create(resource, name, body, namespace=namespace)

    def kueue_leads(self) -> None:
        """A live Kueue holds its lease."""
        held = {"holderIdentity": "kueue", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00Z"}
        self.server.create(LEASES, KUEUES_LEASE, {"metadata": {}, "spec": held}, namespace="kueue-system")

    def workload(
        self,
        name: str,
        cpus: int = 1,
        *,
        queue: str = "lq-cq",
        namespace: str = "team",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        container = {"name": "main", "resources": {"requests": {"cpu": str(cpus)}}}
        template = {"spec": {"containers": [container]}}
        body = {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}], **spec}
        metadata = {"creationTimestamp": stamp(), "annotations": dict(annotations or {})}
        whole = {"apiVersion": API, "kind": "Workload", "metadata": metadata, "spec": body}
        self.server.create(WORKLOADS, name, whole, namespace=namespace)

    def finish(self, name: str, *, namespace: str = "team") -> None:
        self._condition(name, namespace, {"type": "Finished", "status": "True", "reason": "Succeeded"})

    def release(self, name: str, *, namespace: str = "team") -> None:
        """What a stopped job's owner says: the quota is given back."""
        lost = {"type": "QuotaReserved", "status": "False", "reason": "Pending"}
        self._condition(name, namespace, lost, admission=None)

    def _condition(self, name: str, namespace: str, new: dict[str, Any], **status: Any) -> None:
        new = {"message": "", "lastTransitionTime": stamp(), **new}
        kept = [one for one in self.conditions(name, namespace=namespace) if one["type"] != new["type"]]
        patch = {"status": {"conditions": [*kept, new], **status}}
        self.server.merge(WORKLOADS, name, patch, namespace=namespace)

    # -- what has become of them -------------------------------------------------------------------------------------

    def status(self, name: str, *, namespace: str = "team") -> dict[str, Any]:
        found: dict[str, Any] = self.server.get(WORKLOADS, name, namespace=namespace).get("status", {})
        return found

    def conditions(self, name: str, *, namespace: str = "team") -> list[dict[str, Any]]:
        return list(self.status(name, namespace=namespace).get("conditions", []))

    def condition(self, name: str, type_: str) -> str:
        """``True/Reason``; empty where there is none."""
        return next((f"{one['status']}/{one['reason']}" for one in self.conditions(name) if one["type"] == type_), "")

    def admitted(self, name: str) -> bool:
        return self.condition(name, "Admitted") == "True/Admitted"

    def used(self, queue: str = "cq") -> int:
        """Cpus that workloads hold by what the API server says."""
        total = 0
        for one in self.server.list_all(WORKLOADS):
            status = one.get("status", {})
            admission = status.get("admission")
            over = any(each["type"] == "Finished" and each["status"] == "True" for each in status.get("conditions", []))
            if admission and admission["clusterQueue"] == queue and not over:
                total += sum(int(each["resourceUsage"]["cpu"]) for each in admission["podSetAssignments"])
        return total

    async def until_admitted(self, *names: str) -> None:
        await eventually(lambda: all(map(self.admitted, names)), what=f"{names} admitted")

    @staticmethod
    async def until_loaded(process: Process) -> None:
        """The one that leads knows all there is."""
        await eventually(lambda: process.core is not None and process.core.loaded.is_set(), what="loaded")

    @property
    def core(self) -> Core:
        assert self.process is not None
        core = self.process.core
        assert core is not None, "not leading"
        return core

    # -- the process -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def controller(
        self,
        given: ControllerConfig | None = None,
        *,
        core_only: bool = True,
        elect: bool = False,
        name: str = "one",
        clock: Clock | None = None,
        start_webhooks: Start = in_this_loop,
        until_deciding: bool = True,
    ) -> AsyncIterator[Process]:
        """A running controller; it has begun to decide unless it ``elect``s, or that is not waited for."""
        flags = Flags(
            core_only=core_only,
            leader_elect=elect,
            metrics=(HERE,),
            web=HERE,
            identity=name,
            namespace="tessera-system",
        )
        process = Process(given or config(), flags, clock=clock, connect=self._config, start_webhooks=start_webhooks)
        stop = asyncio.Event()
        task = asyncio.create_task(process.run(stop))
        self.process = process
        try:
            if not elect and until_deciding:
                await eventually(lambda: process.core is not None or task.done(), what="deciding")
                assert not task.done() or task.exception() is None, task.exception()
            yield process
        finally:
            stop.set()
            await asyncio.wait_for(task, 60.0)

    def _config(self) -> ClusterConfig:
        return self.server.config


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with FakeApiServer() as server:
        server.install(GPU_NODES)
        yield Stage(server)


def stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)
