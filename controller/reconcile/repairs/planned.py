"""Which resets that are due are ordered in a repair window. Pure: GpuNodes in, orders out.

A GPU whose memory row remap waits for a reset works until then, so its reset is nobody's hurry: it is ordered in the
windows of the configuration, as a person would order it. A GPU is ordered once in a window, whatever comes of it, and
not at all in a window in which a person has ordered anything about it. Everything that has a fault goes first: in a
flavor one order waits at a time, and none beside an ask that waits; a node has one repair at a time. So no more
GPUs are kept from new pods than the budget of repairs lets be reset at once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from controller.objects.decode import GpuNode
from controller.reconcile.repairs.gpuresets import ORDERED
from inventory.api.gpunode import RESETS_NEVER, Device, GpuNodeStatus
from inventory.api.names import REMEDIATION_ORDER

_DRAINING: Final = "Draining"
_RESTS: Final = ("Probation", "Retired")
"""States of a repair that does nothing any more: beside it another GPU of the node may be reset."""


class PlannedOrder(NamedTuple):
    """The reset of a GPU of a node, to be ordered now."""

    node: str
    gpu: str


def planned_orders(
    nodes: Mapping[str, GpuNode],
    begun_s: float,
    flavors_of: Callable[[str], Iterable[str]],
    lets: Callable[[str, str], bool],
) -> list[PlannedOrder]:
    """The orders of this moment. ``begun_s``: when the window began. ``lets``: whether the repair of a node's GPU would
    be granted.
    """
    busy = {flavor for name, node in nodes.items() if _waits(node) for flavor in flavors_of(name)}
    orders: list[PlannedOrder] = []
    for name in sorted(nodes):
        flavors = {*flavors_of(name)}
        device = None if busy & flavors else _due(nodes[name], begun_s)
        if device is not None and lets(name, device.uuid):
            orders.append(PlannedOrder(name, device.uuid))
            busy |= flavors
    return orders


def _waits(node: GpuNode) -> bool:
    """Whether an order of the node waits: to be read by its agent, or to be granted."""
    if any(key.startswith(REMEDIATION_ORDER) for key in node.metadata.annotations):
        return True
    return any((each.state, each.reason) == (_DRAINING, ORDERED) for each in node.status.repairs)


def _due(node: GpuNode, begun_s: float) -> Device | None:
    """The GPU to be reset first, the one that has waited longest; None where none is due, or one is repaired."""
    status = node.status
    if status.reset_mode in ("", RESETS_NEVER) or any(repair.state not in _RESTS for repair in status.repairs):
        return None
    due = [
        device
        for device in status.devices
        if device.health is not None and device.health.reset_due and device.healthy and not device.health.repair
    ]
    waiting = (device for device in due if not _was_ordered(status, device.uuid, begun_s))
    return min(waiting, key=_since, default=None)


def _since(device: Device) -> tuple[float, str]:
    since = device.health.since if device.health is not None else None
    return (since.timestamp() if since is not None else 0.0, device.uuid)


def _was_ordered(status: GpuNodeStatus, gpu: str, begun_s: float) -> bool:
    """Whether the agent has answered an order about the GPU since the window began. The answer to a person's ``stop``
    stands in the place of the answer to the order that it ended.
    """
    return any(answer.gpu == gpu and answer.at.timestamp() >= begun_s for answer in status.order_answers)
