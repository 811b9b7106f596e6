"""Facts about devices as they are offered: the mode of their GPU, and the means that keep their containers apart."""

from collections.abc import Collection

from inventory.devices import GpuUuid, NodeInventory
from inventory.layout.entries import Enforcement, LayoutMode
from inventory.layout.layout import Layout, LogicalDevice, Resource, Share
from inventory.layout.sharing import SharingMode

ALONE = Share(SharingMode.NONE)
_WEAKEST = (Enforcement.HARDWARE, Enforcement.DAEMON, Enforcement.BY_CLIENT, Enforcement.NOBODY)


def enforced(device: LogicalDevice) -> Enforcement:
    """The means that keep the containers on one device apart."""
    share = device.share or ALONE
    if share.sharing is SharingMode.TIME_SLICING:
        return Enforcement.NOBODY
    if share.sharing.needs_mps:
        own = share.memory_mib is not None or share.threads is not None
        return Enforcement.BY_CLIENT if own else Enforcement.DAEMON
    return Enforcement.HARDWARE


def weakest(resource: Resource) -> Enforcement:
    """The weakest enforcement of a resource's devices, which is all that a container can rely on."""
    return max(map(enforced, resource.devices), key=_WEAKEST.index, default=Enforcement.HARDWARE)


_MODES = {
    SharingMode.TIME_SLICING.value: LayoutMode.TIME_SLICING,
    SharingMode.MPS.value: LayoutMode.MPS,
    SharingMode.FRACTIONAL.value: LayoutMode.FRACTIONAL,
}


def device_modes(node: NodeInventory, layout: Layout, by_claim: Collection[GpuUuid] = ()) -> dict[GpuUuid, LayoutMode]:
    """The mode in which each GPU is offered, by a layout, by NVIDIA's sharing section, or by default.

    The GPUs in ``by_claim`` are given out by ResourceClaim: no resource shows them.
    """
    shared = {
        device.gpu: _MODES[device.share.sharing.value]
        for resource in layout.resources
        for device in resource.devices
        if device.share is not None and device.mig is None
    }
    plain = {gpu.uuid: LayoutMode.MIG if gpu.mig_enabled else LayoutMode.WHOLE for gpu in node.gpus}
    return plain | shared | dict.fromkeys(by_claim, LayoutMode.DRA)
