"""Why pods found no place: what was looked for, and the largest block there is."""

from typing import Final

from controller.engine.model.devicerequest import DeviceAsk, Link
from controller.engine.topology.ask import Ask
from controller.engine.topology.counts import Counts
from controller.engine.topology.domainsearch import Shortage
from inventory.layout.entries import PERCENT_RESOURCE

_LINKED: Final = {
    Link.NVLINK: "joined by NVLink",
    Link.PCIE: "below one PCIe root",
    Link.NUMA: "on one NUMA node",
}


def shortage_sentence(found: Shortage, ask: Ask, counts: Counts) -> str:
    tree, size = counts.tree, ask.shape.slice_size
    unit = "pod" if size == 1 else f"slice of {size} pods"
    wanted = f"{ask.slices} {_plural(unit, ask.slices)}"
    where = "on the nodes of" if found.spread else f"in one domain of {tree.levels[found.level]} of"
    largest = f"at most {found.slices} {'fit' if found.slices != 1 else 'fits'}"
    if found.leader:
        largest = "their leader fits nowhere beside them"
    able, all_ = counts.eligible(), tree.node_count()
    nodes = f"; {all_ - able} of {all_} nodes are closed to these pods" if tree.by_host and able < all_ else ""
    needs = _needs(ask.shape.devices) if ask.shape.devices is not None else ""
    if any(str(name) == PERCENT_RESOURCE for name, _ in ask.shape.each):
        needs += "; what a container asks for lies on one GPU, in multiples of its granularity"
    return f"no room for {wanted} {where} topology {tree.topology}: {largest}{nodes}{needs}"


def _needs(asked: DeviceAsk) -> str:
    """What each pod's GPUs must be; empty where nothing must."""
    found = [_LINKED[asked.link]] if asked.link is not None and not asked.wished else []
    if asked.product:
        found.append(f"of product {asked.product}")
    if asked.min_memory_mib:
        found.append(f"with at least {asked.min_memory_mib // 1024} GiB")
    return f"; a pod's GPUs must be {' and '.join(found)}" if found else ""


def _plural(unit: str, number: int) -> str:
    if number == 1:
        return unit
    return f"{unit}s" if unit == "pod" else unit.replace("slice", "slices", 1)
