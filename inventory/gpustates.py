"""The state of one GPU, in a word. The page, the command and the metrics count GPUs by it alone, so their counts agree.

A GPU is in one state. One that has failed is out of service though its pod has not ended yet: it is not in use.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

from inventory.api.gpunode import Device, Instance

IDLE_RATIO: Final = 0.01
"""The busy ratio below which a GPU counts as idle."""


class GpuState(StrEnum):
    """The state of a GPU. ``WATCHED``: it was reset and is on probation. ``OFF``: no pod holds it, and its node takes
    no pods.
    """

    HELD = "held"
    IDLE = "idle"
    FREE = "free"
    WATCHED = "watched"
    FAULT = "fault"
    OFF = "off"


IN_USE: Final = frozenset({GpuState.HELD, GpuState.IDLE})
_FAILED: Final = {"Unhealthy": GpuState.FAULT, "Probation": GpuState.WATCHED}


def gpu_state(health: str, *, held: bool, takes_pods: bool, busy: float | None = None) -> GpuState:
    """The state of a GPU. ``health``: its state in a GpuNode. ``takes_pods``: whether its node is ready and not
    cordoned. ``busy``: from 0 to 1, None where it is not measured.
    """
    if failed := _FAILED.get(health):
        return failed
    if held:
        return GpuState.IDLE if busy is not None and busy < IDLE_RATIO else GpuState.HELD
    return GpuState.FREE if takes_pods else GpuState.OFF


def state_of(device: Device, held: Collection[str], *, takes_pods: bool, busy: float | None = None) -> GpuState:
    """The state of ``device``. ``held``: UUIDs of the GPUs and MIG instances that pods hold."""
    is_held = any(uuid in held for uuid in device.uuids)
    return gpu_state(device.health_state, held=is_held, takes_pods=takes_pods, busy=busy)


def offered(devices: Iterable[Device]) -> Mapping[str, int]:
    """The number of devices of GPUs and MIG instances in service, by resource: a node's allocatable has them."""
    counts: Counter[str] = Counter()
    for device in devices:
        units: tuple[Device | Instance, ...] = (device, *(device.mig.instances if device.mig is not None else ()))
        for unit in units:
            health = unit.health or device.health
            if health is None or health.handed_out:
                for offer in unit.offers:
                    counts[offer.resource] += offer.replicas
    return counts


def counted(states: Iterable[GpuState]) -> Mapping[GpuState, int]:
    """The number of GPUs in each of the six states."""
    found = Counter(states)
    return {state: found[state] for state in GpuState}
