"""A story on the real controller, and the judge's verdict on it."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

from cli.playground.cluster import Machine, stamp
from controller.config.load import parse
from controller.process.flags import Flags
from controller.process.process import Process
from hack.outside.story import FLAVORS, GPUS_OF_NODE, NODES, Act, Story
from hack.planted.nets.queueworld import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    PRIORITIES,
    STEP_S,
    WORKLOADS,
    QueueWorld,
    controller,
    install_nodes,
    machines,
)
from hack.planted.nets.queueworld import (
    FLAVORS as RESOURCE_FLAVORS,
)
from history.judge import Verdict
from kube.errors import KubeError
from kube.resources import Resource
from kube.testing import FakeApiServer, eventually

QUIET_S: Final = 12.0
"""After the last act: longer than the judge's longest bound, on a clock that goes six times as fast."""
COHORTS: Final = Resource("kueue.x-k8s.io", "v1beta2", "cohorts", "Cohort")
_KINDS: Final = {
    "Namespace": NAMESPACES,
    "ResourceFlavor": RESOURCE_FLAVORS,
    "WorkloadPriorityClass": PRIORITIES,
    "Cohort": COHORTS,
    "ClusterQueue": CLUSTER_QUEUES,
    "LocalQueue": LOCAL_QUEUES,
    "Job": JOBS,
}
_CONFIG: Final = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: -1}
health: {healthProbeBindAddress: "0"}
integrations: {frameworks: [batch/job]}
"""


async def judged(story: Story) -> Verdict:
    """Raises what ends the controller."""
    nodes = _nodes()
    async with FakeApiServer() as server:
        server.store.stamp = lambda: stamp(time.time())
        world = QueueWorld(server, nodes)
        install_nodes(server, nodes)
        todo = list(story.acts)
        while todo and todo[0].at_s <= 0:
            carry_out(world, todo.pop(0))
        flags = Flags(kubeconfig="none", metrics=(None,), web=None, leader_elect=False, namespace="tessera-system")
        config = parse(_CONFIG + ("fairSharing: {}\n" if story.fair else ""), "the driver's configuration")
        process = Process(config, flags, connect=lambda: server.config)
        async with controller(process.run):
            await eventually(lambda: process.core is not None and process.core.loaded.is_set(), within_s=60.0)
            world.begin()
            end_s = (todo[-1].at_s if todo else 0.0) + QUIET_S
            while world.now_s < end_s:
                while todo and todo[0].at_s <= world.now_s:
                    carry_out(world, todo.pop(0))
                world.step()
                await asyncio.sleep(STEP_S)
            return world.verdict()


def carry_out(world: QueueWorld, act: Act) -> None:
    """What is there no more is passed over."""
    with contextlib.suppress(KubeError):
        if act.kind == "WorkloadOf":
            for name in _workloads_of(world, act):
                world.server.merge(WORKLOADS, name, act.body, namespace=act.namespace)
            return
        resource = _KINDS[act.kind]
        match act.verb:
            case "create":
                meta = {**act.body.get("metadata", {}), "name": act.name}
                if act.namespace:
                    meta["namespace"] = act.namespace
                world.create(resource, {**act.body, "metadata": meta})
            case "merge":
                world.server.merge(resource, act.name, act.body, namespace=act.namespace)
            case "delete":
                world.server.delete(resource, act.name, namespace=act.namespace)


def _workloads_of(world: QueueWorld, act: Act) -> Sequence[str]:
    owned = [(each["metadata"], each["metadata"].get("ownerReferences") or []) for each in world.all(WORKLOADS)]
    return [
        meta["name"]
        for meta, owners in owned
        if meta["namespace"] == act.namespace and any(owner["name"] == act.name for owner in owners)
    ]


def _nodes() -> dict[str, Machine]:
    found = {}
    for number, (name, machine) in enumerate(machines(NODES, GPUS_OF_NODE).items()):
        labels = {**machine.labels, "flavor": FLAVORS[number % len(FLAVORS)]}
        found[name] = Machine(labels, machine.gpus, machine.healthy)
    return found
