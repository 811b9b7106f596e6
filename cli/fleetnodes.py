"""A fleet file's nodes as the API server would show them: with the labels and GPUs that each node's agent publishes.

The same code plans and labels as on a node, under the agent's default configuration.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from agent.cluster.gpunode import build
from agent.cluster.labels import labels
from controller.insight.simulation.pools.specs import Interruption, Pool, PoolFleet
from controller.objects.core import CAPACITY_TYPE, SPOT_LABELS, is_spot
from controller.objects.core import Node as NodeObject
from controller.objects.decode import GpuNode, decode, read_gpu_node
from inventory.api.names import DRAIN_AT
from inventory.devices import Clique, Gpu, GpuUuid, MigInstance, MigProfile, MigUuid, NodeInventory, NodeName
from inventory.layout.layout import Layout, plan
from inventory.layout.sharing import LayoutSpec
from inventory.links import Link, PcieLevel
from simulator.fleet.fleet import Fleet, GpuSpec, NodeSpec, PoolSpec
from simulator.fleet.fleetfile import load_fleet

_UNBOUNDED = {"cpu": "1000000", "memory": "1000Ti", "pods": "110"}


class FleetNodes(NamedTuple):
    """A fleet file for a simulation. ``nodes``: those of the file, and all that its pools may have. ``has_events``:
    something happens to the hardware.
    """

    nodes: list[NodeObject | GpuNode]
    fleet: PoolFleet
    has_events: bool


def nodes(fleet: Fleet) -> list[NodeObject | GpuNode]:
    """Each node with its GpuNode; those of pools have the label of their capacity."""
    objects: list[NodeObject | GpuNode] = []
    for spec in (*fleet.nodes, *(_of_pool(each, pool) for pool in fleet.pools for each in pool.nodes)):
        node = _hardware(fleet, spec)
        layout = plan(node, LayoutSpec())
        told = build(node=node, layout=layout)
        objects += [_node(node, layout, spec), read_gpu_node(msgspec.json.encode(told))]
    return objects


def load_nodes(path: Path) -> FleetNodes:
    """The nodes of a fleet file and their GpuNodes, and which of them come and go. Raises simulator's InputError."""
    fleet = load_fleet(path)
    pools = tuple(
        Pool(
            name=pool.name,
            nodes=tuple(node.name for node in pool.nodes),
            min_nodes=pool.min_nodes,
            delay_s=pool.delay_s,
            remove_after_s=pool.remove_after_s,
            cooldown_s=pool.cooldown_s,
            price_per_hour=pool.price_per_hour,
            spot=is_spot(_of_pool(pool.nodes[0], pool).labels),
        )
        for pool in fleet.pools
    )
    interruptions = tuple(
        Interruption(at_s=each.at_s, notice_s=each.notice_s, pool=each.pool, node=each.node)
        for each in fleet.interruptions
    )
    comes = PoolFleet(pools=pools, interruptions=interruptions)
    return FleetNodes(nodes(fleet), comes, any(spec.events for spec in fleet.nodes))


def _of_pool(spec: NodeSpec, pool: PoolSpec) -> NodeSpec:
    """A node of a pool with the label that says its capacity, unless its template says it by a provider's label."""
    if not pool.capacity or any(key in spec.labels for key in SPOT_LABELS):
        return spec
    return structs.replace(spec, labels={**spec.labels, CAPACITY_TYPE: pool.capacity})


def _hardware(fleet: Fleet, spec: NodeSpec) -> NodeInventory:
    present = tuple(gpu for gpu in spec.gpus if gpu.present)
    return NodeInventory(
        name=NodeName(spec.name),
        driver_version=fleet.driver,
        cuda_version=(fleet.cuda // 1000, fleet.cuda % 1000 // 10),
        gpus=tuple(_gpu(gpu, spec) for gpu in present),
        links=tuple(tuple(_link(each, other, spec) for other in present) for each in present),
    )


def _link(one: GpuSpec, other: GpuSpec, spec: NodeSpec) -> Link:
    if one.index == other.index:
        return Link()
    direct = sum(end.peer == other.index for end in one.links)
    lanes = min(sum(end.peer is None for end in gpu.links) for gpu in (one, other))
    return Link(pcie=PcieLevel(spec.levels[one.index][other.index]), nvlinks=direct, nvswitch=lanes)


def _node(node: NodeInventory, layout: Layout, spec: NodeSpec) -> NodeObject:
    offered = {resource.name: str(len(resource.devices)) for resource in layout.resources}
    published = labels(node, layout, LayoutSpec(), machine_type="", timestamp_s=None)
    body: dict[str, Any] = {
        "metadata": {
            "name": spec.name,
            "labels": {"kubernetes.io/hostname": spec.name, **published, **spec.labels},
            "annotations": {} if spec.drain_at_s is None else {DRAIN_AT: f"{spec.drain_at_s:.9g}s"},
        },
        "spec": {"taints": spec.taint_objects},
        "status": {
            "allocatable": {**_UNBOUNDED, **offered, **spec.allocatable},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return decode(body, NodeObject)


def _gpu(spec: GpuSpec, node: NodeSpec) -> Gpu:
    product = spec.product
    return Gpu(
        uuid=GpuUuid(spec.uuid),
        index=spec.index,
        minor=spec.minor,
        product=product.name,
        pci_bus_id=spec.pci.sysfs,
        memory_mib=spec.memory_mib,
        numa_node=spec.numa_node,
        compute_capability=product.architecture.compute,
        clique=Clique(spec.cluster_uuid, spec.clique_id) if spec.cluster_uuid is not None else None,
        mig_capable=bool(product.mig),
        mig_enabled=spec.index in node.mig_enabled,
    )


def hardware(fleet: Fleet, spec: NodeSpec) -> NodeInventory:
    """The node as its agent would find it, with the instances that the fleet file starts with."""
    node = _hardware(fleet, spec)
    by_uuid = {gpu.uuid: gpu for gpu in spec.gpus}
    return structs.replace(node, gpus=tuple(_cut(gpu, by_uuid[gpu.uuid], spec) for gpu in node.gpus))


def _cut(gpu: Gpu, of: GpuSpec, node: NodeSpec) -> Gpu:
    profiles = tuple(
        MigProfile(
            offered.name,
            offered.id,
            offered.slices,
            offered.size,
            offered.starts,
            offered.count,
            offered.memory_mib,
            offered.sms,
        )
        for offered in of.product.mig
    )
    instances = tuple(
        MigInstance(MigUuid(f"{gpu.uuid}/{number}"), number, number, 0, profile, 1, 1, 0, 0)
        for number, profile in enumerate(node.mig.get(of.index, ()))
    )
    return structs.replace(gpu, mig_profiles=profiles, mig_instances=instances)
