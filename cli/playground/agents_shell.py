"""The agents of simulated nodes: health by the agent's own core, GpuNode and labels by its own writer.

The hardware behind them is a fleet file; no kubelet and no NVML is called.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from agent.cluster.apireporter import view
from agent.cluster.gpunode import HealthView, build
from agent.cluster.labels import labels
from agent.cluster.publisher import KubePublisher
from agent.health.events import Event, ProbeFailed, ProbeOk, ProbeReason, ResetObserved, Tick, XidSeen
from agent.health.machine import HealthCore
from agent.health.settings import HealthSettings
from cli.fleetnodes import hardware
from cli.playground.cluster import GPU, Holder, PlaygroundNode
from cli.playground.figures import measured
from controller.people.history.figures import Figures
from inventory.devices import DeviceId, GpuUuid
from inventory.layout.layout import plan
from inventory.layout.sharing import LayoutSpec
from kube.clock import SystemClock
from kube.config import ClusterConfig
from kube.resources import NODES
from kube.testing import FakeApiServer
from simulator.fleet.fleet import Fleet, NodeSpec
from simulator.fleet.orders import Lost, Order, Reset, Xid

_PROBATION: Final = HealthSettings(probation_s=5.0)
_UNBOUNDED: Final = {"cpu": "1000000", "memory": "1000Ti", "pods": "110"}


class NodeAgent:
    """The agent of one node: ``run`` writes what ``look`` has found; ``happens`` takes the hardware's events."""

    def __init__(self, fleet: Fleet, spec: NodeSpec, config: ClusterConfig, now_s: float) -> None:
        self._spec = spec
        self._begun_s = now_s
        self._node = hardware(fleet, spec)
        self._layout = plan(self._node, LayoutSpec())
        self._health = HealthCore(_PROBATION)
        self._health.discovered(self._node.gpus, now_s)
        self._publisher = KubePublisher(
            config, node_name=spec.name, clock=SystemClock(), random=random.SystemRandom().random
        )
        self._told = labels(self._node, self._layout, LayoutSpec(), machine_type="", timestamp_s=None)
        self.labels: dict[str, str] = {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", **spec.labels}
        self._allocatable = {**_UNBOUNDED, **spec.allocatable}
        self._offered: dict[str, str] = {}
        self._silent: set[str] = set()
        """The GPUs that do not answer since they failed."""

    @property
    def name(self) -> str:
        return str(self._node.name)

    def body(self) -> dict[str, Any]:
        """The Node as its kubelet registers it."""
        ready = [{"type": "Ready", "status": "True"}]
        metadata = {"name": self.name, "labels": self.labels}
        status = {"allocatable": self._allocatable, "conditions": ready}
        return {"metadata": metadata, "spec": {"taints": self._spec.taint_objects}, "status": status}

    @property
    def node(self) -> PlaygroundNode:
        gpus = tuple(str(device.id) for resource in self._layout.resources for device in resource.devices)
        healthy = frozenset(gpu for gpu in gpus if self._health.state(GpuUuid(gpu)).advertised_healthy)
        return PlaygroundNode({**self._told, **self.labels}, gpus, healthy)

    def happens(self, order: Order, now_s: float) -> None:
        """Take an event of the hardware. Other orders do not concern health, and are passed over."""
        uuid = next((gpu.uuid for gpu in self._node.gpus if gpu.index == getattr(order, "gpu", None)), None)
        if uuid is None:
            return
        match order:
            case Xid(xid=number, gi=gi, ci=ci):
                self._silent.add(uuid)
                self._hear(XidSeen(uuid, number, gi, ci), now_s)
            case Lost():
                self._silent.add(uuid)
                self._hear(ProbeFailed(uuid, reason=ProbeReason.LOST), now_s)
            case Reset():
                self._silent.discard(uuid)
                self._hear(ResetObserved(uuid), now_s)

    def _hear(self, event: Event, now_s: float) -> None:
        self._health.apply(event, now_s)

    def look(self, server: FakeApiServer, holders: Mapping[str, Holder], now_s: float) -> None:
        """Probe all GPUs, publish the result, and update the Node's allocatable, as the kubelet does."""
        for gpu in self._node.gpus:
            if gpu.uuid not in self._silent:
                self._hear(ProbeOk(gpu.uuid), now_s)
        self._hear(Tick(), now_s)
        self._publisher.publish_labels(self._told)
        held = {DeviceId(gpu): each for gpu, each in holders.items()}
        self._publisher.publish_gpunode(build(node=self._node, layout=self._layout, health=self._views(), holders=held))
        offered = {GPU: str(len(self.node.healthy))}
        if offered != self._offered:
            self._offered = offered
            server.merge(NODES, self.name, {"status": {"allocatable": {**self._allocatable, **offered}}})

    def figures(self, holders: Mapping[str, Holder], now_s: float) -> dict[str, Figures]:
        """The figures of its GPUs, by UUID; none of those that do not answer."""
        return measured(self._spec, holders.keys(), self._silent, now_s - self._begun_s)

    def _views(self) -> dict[str, HealthView]:
        found = {}
        for gpu in self._node.gpus:
            found[str(gpu.uuid)] = view(self._health.state(gpu.uuid), _PROBATION)
        return found

    async def run(self) -> None:
        await self._publisher.run()


async def run_all(agents: list[NodeAgent]) -> None:
    """Run all agents until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for agent in agents:
            tasks.create_task(agent.run())
