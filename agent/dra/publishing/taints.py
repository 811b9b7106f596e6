"""Taints of devices given out by claim: the faults of a GPU, as the scheduler and the evictor read them. Pure.

Keys are NVIDIA's where it has one. A taint goes when the device is well again: health decides, not a restart. NoExecute
stands where the containers on the GPU have lost it in any case, so that their pods are better off elsewhere.
"""

from typing import Final

from agent.dra.publishing.devices import MAX_STRING, Taint
from agent.health.states import DeviceHealth, Fault, FaultKind
from inventory.api.names import UNHEALTHY, WITHHELD

XID_KEY: Final = "gpu.nvidia.com/xid"
LOST_KEY: Final = "gpu.nvidia.com/gpu-lost"
MAX_TAINTS: Final = 16
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
_GONE: Final = frozenset({FaultKind.LOST, FaultKind.REMOVED})
LOST: Final = Taint(LOST_KEY, "", NO_EXECUTE)


def taints(health: DeviceHealth, withheld: str | None) -> tuple[Taint, ...]:
    """The taints of one GPU. ``withheld``: why it is given to no new container, health aside; None where it is not
    withheld.
    """
    unique: dict[Taint, None] = {}
    if not health.advertised_healthy:
        for fault in health.faults:
            if fault.blocks:
                unique[_of(fault)] = None
        if not unique:
            unique[Taint(UNHEALTHY, health.state.value, NO_SCHEDULE)] = None
    if withheld is not None:
        unique[Taint(WITHHELD, "", NO_SCHEDULE)] = None
    return tuple(unique)[:MAX_TAINTS]


def _of(fault: Fault) -> Taint:
    if fault.kind in _GONE:
        return LOST
    if fault.kind is FaultKind.XID:
        return Taint(XID_KEY, str(fault.code), NO_SCHEDULE)
    return Taint(UNHEALTHY, fault.reason[:MAX_STRING], NO_SCHEDULE)
