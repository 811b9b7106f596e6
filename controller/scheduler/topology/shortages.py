"""Says why pods found no place: what was looked for, and the largest free block."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from controller.messages import pending
from controller.objects.queues import ResourceFlavorSpec
from controller.scheduler.dra.allocation.nofit import no_fit_sentence
from controller.scheduler.model.devicerequest import Link, PodDeviceRequest
from controller.scheduler.topology.counts import Counts
from controller.scheduler.topology.domainsearch import DomainNoFit
from controller.scheduler.topology.nodes import NodeFacts
from controller.scheduler.topology.requests import DomainRequest
from controller.scheduler.topology.tree import Tree
from inventory.api.names import IMPLIED_TOPOLOGY
from inventory.layout.entries import PERCENT_RESOURCE

_REASONS: Final = 4
"""The largest number of reasons that a message names."""

_LINKED: Final = {
    Link.NVLINK: "joined by NVLink",
    Link.PCIE: "below one PCIe root",
    Link.NUMA: "on one NUMA node",
}


def lacks_nodes(flavor: ResourceFlavorSpec, nodes: Collection[NodeFacts], tree: Tree | None) -> str:
    """See ``Placement.lacks_nodes``; ``tree`` is None for a flavor without a topology."""
    if not nodes or (tree is not None and tree.node_count()):
        return ""
    return "" if any(flavor.selects(node.labels) for node in nodes) else no_node(flavor.node_labels)


def unknown_level(topology: str | None, level: str, levels: Sequence[str]) -> str:
    return f"topology {topology} has no level {level}, expected one of {', '.join(levels)}"


def no_node(labels: Mapping[str, str]) -> str:
    return pending.no_node_has(", ".join(f"{name}={value}" for name, value in sorted(labels.items())))


def shortage_sentence(found: DomainNoFit, ask: DomainRequest, counts: Counts) -> str:
    if not counts.tree.node_count():
        return no_node(counts.tree.labels) if counts.tree.labels else pending.no_nodes()
    tree, size = counts.tree, ask.shape.slice_size
    unit = "pod" if size == 1 else f"slice of {size} pods"
    wanted = f"{ask.slices} {_plural(unit, ask.slices)}"
    where = "on the nodes of" if found.spread else f"in one domain of {tree.levels[found.level]} of"
    largest = f"at most {found.slices} {'fit' if found.slices != 1 else 'fits'}"
    if found.leader:
        largest = "their leader fits nowhere beside them"
    nodes = _nodes(counts) + _claims(counts) if tree.by_host else ""
    needs = _needs(ask.shape.devices) if ask.shape.devices is not None else ""
    if any(str(name) == PERCENT_RESOURCE for name, _ in ask.shape.each):
        needs += f"; what a container asks for lies on {_parts(ask.shape.devices)}"
    of = f"flavor {tree.flavor}" if tree.topology == IMPLIED_TOPOLOGY else f"topology {tree.topology}"
    return pending.no_free_capacity(wanted, where, of, largest) + nodes + needs


def _nodes(counts: Counts) -> str:
    """How many nodes are closed to the pods and why, and how many of the open nodes are full."""
    open_, all_ = counts.eligible(), counts.tree.node_count()
    sentence = ""
    if open_ < all_:
        reasons = counts.closed().most_common()
        told = [f"{number} {why}" for why, number in reasons[:_REASONS]]
        rest = sum(number for _, number in reasons[_REASONS:])
        why = ", ".join([*told, f"{rest} for other reasons"] if rest else told)
        sentence = f"; {pending.closed_nodes(all_ - open_, all_, why)}"
    full = counts.full()
    return sentence + (f"; {pending.nodes_too_full(full, open_)}" if full else "")


def _claims(counts: Counts) -> str:
    """What ResourceClaims lack on nodes on which the pods fit otherwise."""
    supply = counts.tree.claims
    if supply is None or (counts.shape.claims is None and not supply.requests.extended):
        return ""
    return no_fit_sentence(supply, counts.fitting_nodes(), counts.eligible(), empty=counts.shape.empty)


def _needs(asked: PodDeviceRequest) -> str:
    """What each pod's GPUs must be; empty where any GPUs will do."""
    wanted = [_LINKED[asked.link]] if asked.link is not None and not asked.wished else []
    if asked.product:
        wanted.append(f"of product {asked.product}")
    if asked.min_memory_mib:
        wanted.append(f"with at least {asked.min_memory_mib // 1024} GiB")
    return f"; a pod's GPUs must be {' and '.join(wanted)}" if wanted else ""


def _parts(asked: PodDeviceRequest | None) -> str:
    """The GPUs on which a container's percents lie, in words."""
    gpus = asked.split[0].gpus if asked is not None and asked.split else 1
    if gpus == 1:
        return "one GPU, in multiples of its granularity"
    return f"{gpus} GPUs of one MPS daemon, equal parts on each, in multiples of their granularity"


def _plural(unit: str, number: int) -> str:
    if number == 1:
        return unit
    return f"{unit}s" if unit == "pod" else unit.replace("slice", "slices", 1)
