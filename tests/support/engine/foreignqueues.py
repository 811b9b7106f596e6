"""Queues of Volcano and KAI, nodes, and workloads that ask for GPUs, in a few words."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.objects.core import Node
from controller.objects.decode import decode
from controller.objects.workload import Workload
from controller.scheduler.model.resources import FlavorName, FlavorResource, ResourceName
from inventory.api.names import ALL_NODES
from tests.support.engine.world import World, requesting, workload

GPU = "nvidia.com/gpu"
UNBOUNDED: Mapping[str, float] = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def kai_queue(
    name: str, parent: str = "", *, quota: float = 0, limit: float = -1, weight: float = 1, born_s: int = 0, **spec: Any
) -> KaiQueue:
    """Of GPUs; CPU and memory have no bound."""
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": weight}
    resources = {"gpu": gpu, "cpu": UNBOUNDED, "memory": UNBOUNDED}
    said = {"resources": resources, **({"parentQueue": parent} if parent else {}), **spec}
    return decode({"metadata": _metadata(name, born_s), "spec": said}, KaiQueue)


def volcano_queue(name: str, *, born_s: int = 0, state: str = "", **spec: Any) -> VolcanoQueue:
    return decode({"metadata": _metadata(name, born_s), "spec": spec, "status": {"state": state}}, VolcanoQueue)


def _metadata(name: str, born_s: int) -> dict[str, Any]:
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": f"2025-01-01T00:00:{born_s:02}Z"}


def node(name: str, gpus: int = 8, *, ready: bool = True) -> Node:
    status = {
        "allocatable": {"cpu": "64", "memory": "256Gi", GPU: str(gpus), "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
    }
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return decode({"metadata": metadata, "status": status}, Node)


def asks(name: str, queue: str, gpus: int = 1, *, marks: Mapping[str, str] | None = None, **more: Any) -> Workload:
    """A workload of pods with ``gpus`` each. ``marks``: its annotations."""
    made = requesting(workload(name, queue, **more), {GPU: str(gpus)})
    metadata = msgspec.structs.replace(made.metadata, annotations={**made.metadata.annotations, **(marks or {})})
    return msgspec.structs.replace(made, metadata=metadata)


def world(*queues: Any, gpus: int = 8) -> World:
    lab = World()
    lab.put(node("n1", gpus), *queues)
    return lab


def fill(lab: World, queue: str, jobs: int, gpus: int = 1, **more: Any) -> None:
    for _ in range(jobs):
        lab.arrived += 1
        lab.put(asks(f"{queue}{lab.arrived}", queue, gpus, created_s=lab.arrived, **more))


def rest(lab: World) -> dict[str, int]:
    """GPUs by queue once nothing changes any more, and nobody leaves."""
    for _ in range(20):
        lab.settle()
        if not lab.stop_evicted():
            return held(lab)
    raise AssertionError(f"still changing: {lab.log[-20:]}")


def held(lab: World) -> dict[str, int]:
    queues = lab.engine.state.cluster.queues
    gpus = FlavorResource(FlavorName(ALL_NODES), ResourceName(GPU))
    return {name: queues[name].node.used().get(gpus, 0) for name in sorted(queues)}


def evicted(lab: World) -> list[str]:
    return [key.removeprefix("ns/") for kind, key in lab.log if kind == "Evicted"]
