"""A fleet file's nodes as the API server would show them: with the labels and GPUs that each node's agent publishes.

The same code plans and labels as on a node, under the agent's default configuration.
"""

from pathlib import Path
from typing import Any

from agent.labels import labels
from controller.objects.core import Node as NodeObject
from controller.objects.decode import decode
from inventory.devices import Clique, Gpu, Node, unknown_links
from inventory.ids import GpuUuid, NodeName
from inventory.layout import plan
from inventory.sharing import LayoutSpec
from simulator.fleet import Fleet, GpuSpec, NodeSpec
from simulator.fleetfile import load_fleet

_UNBOUNDED = {"cpu": "1000000", "memory": "1000Ti", "pods": "110"}


def nodes(fleet: Fleet) -> list[NodeObject]:
    return [_node(fleet, spec) for spec in fleet.nodes]


def load_nodes(path: Path) -> tuple[list[NodeObject], bool]:
    """The nodes of a fleet file, and whether it has events. Raises simulator's InputError."""
    fleet = load_fleet(path)
    return nodes(fleet), any(spec.events for spec in fleet.nodes)


def _node(fleet: Fleet, spec: NodeSpec) -> NodeObject:
    gpus = tuple(_gpu(gpu, spec) for gpu in spec.gpus if gpu.present)
    node = Node(
        name=NodeName(spec.name),
        driver_version=fleet.driver,
        cuda_version=(fleet.cuda // 1000, fleet.cuda % 1000 // 10),
        gpus=gpus,
        links=unknown_links(len(gpus)),
    )
    layout = plan(node, LayoutSpec())
    offered = {resource.name: str(len(resource.devices)) for resource in layout.resources}
    published = labels(node, layout, LayoutSpec(), machine_type="", timestamp_s=None)
    given: dict[str, Any] = {
        "metadata": {
            "name": spec.name,
            "labels": {"kubernetes.io/hostname": spec.name, **published, **spec.labels},
        },
        "status": {
            "allocatable": {**_UNBOUNDED, **offered, **spec.allocatable},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return decode(given, NodeObject)


def _gpu(spec: GpuSpec, node: NodeSpec) -> Gpu:
    product = spec.product
    return Gpu(
        uuid=GpuUuid(spec.uuid),
        index=spec.index,
        minor=spec.minor,
        product=product.name,
        pci_bus_id=spec.pci.sysfs,
        memory_mib=spec.memory_mib,
        compute_capability=product.compute,
        clique=Clique(spec.cluster_uuid, spec.clique_id) if spec.cluster_uuid is not None else None,
        mig_capable=bool(product.mig),
        mig_enabled=spec.index in node.mig_enabled,
    )
