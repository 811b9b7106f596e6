"""GpuNodes of small machines, and clusters of them: the GPUs of node ``a`` are a-0, a-1 and so on."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from controller.objects.core import Node, Pod
from controller.objects.decode import GpuNode, decode
from controller.objects.meta import KubernetesObject
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.placeencoding import decode as decode_places
from controller.objects.workload import PodSetTopologyRequest, Workload
from controller.scheduler.devices.cache import DeviceCache
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.topology.placement import Topologies
from simulator.boards.wiring import DGX1_LINKS
from tests.controller.scheduler.topology.test_topology_in_cycles import topology
from tests.support.controller.gpunodes import observed
from tests.support.engine.topologylab import node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

PRODUCT = "NVIDIA A100-SXM4-80GB"
Links = Callable[[int, int], int]


def pairs(a: int, b: int) -> int:
    return 2 if a // 2 == b // 2 else 0


def full(_a: int, _b: int) -> int:
    return 12


def none(_a: int, _b: int) -> int:
    return 0


def mesh(a: int, b: int) -> int:
    return DGX1_LINKS[a][b]


def gpu_node(  # noqa: PLR0913
    name: str,
    gpus: int = 4,
    links: Links = pairs,
    *,
    per_numa: int = 4,
    sick: Iterable[int] = (),
    holders: Mapping[str, Iterable[int]] | None = None,
    product: str = PRODUCT,
    memory_mib: int = 81920,
    replicas: int = 1,
) -> GpuNode:
    """``holders``: by pod (of namespace ns), the indexes of the GPUs that it holds."""
    devices: list[dict[str, Any]] = [
        {
            "uuid": f"{name}-{index}",
            "index": index,
            "product": product,
            "memoryMiB": memory_mib,
            "pciBusId": "x",
            "numaNode": index // per_numa,
            "offers": [{"resource": "gpu", "replicas": replicas}],
            "health": {"state": "Unhealthy" if index in sick else "Healthy"},
        }
        for index in range(gpus)
    ]
    entries = [
        {"a": a, "b": b, "nvlinks": links(a, b), "pcie": "PHB" if a // per_numa == b // per_numa else "SYS"}
        for a in range(gpus)
        for b in range(a + 1, gpus)
    ]
    held = [
        {"device": f"{name}-{index}", "namespace": "ns", "pod": pod, "container": "c"}
        for pod, indexes in (holders or {}).items()
        for index in indexes
    ]
    return observed(name, devices=devices, links=entries, holders=held)


def world_of(
    boards: Iterable[GpuNode], *, nodes: Mapping[str, int] | None = None, packs: bool = False, **queue: Any
) -> World:
    """All nodes in one rack, beside those of ``nodes`` of which no GpuNode is told."""
    world = World(EngineConfig(extensions=Extensions(keep_linked_gpus=packs)))
    made: list[Node] = [node(f"b/r/{name}", gpus) for name, gpus in (nodes or {}).items()]
    told = list(boards)
    made += [node(f"b/r/{one.metadata.name}", len(one.status.devices)) for one in told]
    objects: list[KubernetesObject] = [topology(), flavor("default", topologyName="dc")]
    world.put(*objects, cluster_queue("q", 1000, **queue), local_queue("q"), *made, *told)
    return world


def job(name: str, gpus: int, count: int = 1, *, asked: PodSetTopologyRequest | None = None, **given: Any) -> Workload:
    """``given``: ``link``, ``wished``, ``product``, ``memory`` are annotations of the template; the rest as ever."""
    names = {
        "link": "tessera.dev/required-gpu-link",
        "wished": "tessera.dev/preferred-gpu-link",
        "product": "tessera.dev/gpu-product",
        "memory": "tessera.dev/min-gpu-memory-gib",
    }
    annotations = {names[key]: given.pop(key) for key in list(given) if key in names}
    made = workload(name, "q", gpus, count=count, **given)
    replace = msgspec.structs.replace
    pod_set = made.spec.pod_sets[0]
    metadata = replace(pod_set.template.metadata, annotations=annotations)
    asked = asked if asked is not None else PodSetTopologyRequest(unconstrained=True)
    pod_set = replace(pod_set, template=replace(pod_set.template, metadata=metadata), topology_request=asked)
    return replace(made, spec=replace(made.spec, pod_sets=(pod_set,)))


def pod_of(
    name: str,
    of: str,
    host: str,
    devices: str = "",
    gpus: int = 1,
    phase: str = "Running",
    *,
    leaving: bool = False,
) -> Pod:
    """A pod of a workload, let go to its node; ``leaving``: it is being deleted."""
    annotations = {"kueue.x-k8s.io/workload": of} | ({"tessera.dev/devices": devices} if devices else {})
    data = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "annotations": annotations,
            "labels": {"kueue.x-k8s.io/podset": "main"},
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}),
        },
        "spec": {
            "nodeSelector": {HOSTNAME_LABEL: host},
            "containers": [{"name": "c", "resources": {"requests": {"gpu": str(gpus)}}}],
        },
        "status": {"phase": phase},
    }
    return decode(data, Pod)


def hosts(world: World, name: str, pod_set: int = 0) -> dict[str, int]:
    """Pods of one of its pod sets by node; empty for a workload that waits."""
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    given_ = admission.pod_set_assignments[pod_set].topology_assignment if admission is not None else None
    return {} if given_ is None else {values[-1]: pods for values, pods in decode_places(given_)}


def plan(world: World, name: str, host: str) -> list[tuple[str, ...]]:
    return list(world.engine.device_plan(WorkloadKey(f"ns/{name}"), "main", host))


def device_cache(world: World) -> DeviceCache:
    placement = world.engine.state.cluster.placement
    assert isinstance(placement, Topologies)
    return placement.devices


def settled(world: World) -> None:
    world.settle()
    world.engine.validate()
