"""The share of each device that each container holds, from pod resources and the layout. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs

from agent.kubelet.containers import ClaimUse, PodContainer
from agent.kubelet.holders import Holder
from inventory.devices import DeviceId, Gpu, GpuUuid, NodeInventory, ResourceName
from inventory.layout.layout import Layout, LogicalDevice, physical_id
from inventory.layout.sharing import SharingMode

WHOLE, MIG = "whole", "mig"
PERCENTS = 100
SLICES = 7
"""The number of compute slices of a MIG GPU whose profiles do not tell."""


class GpuPart(Struct, frozen=True, order=True):
    """A GPU, or one of its GPU instances."""

    gpu: GpuUuid
    gi_id: int = -1
    """The id of the GPU instance; -1: the GPU as a whole."""


class Allocation(Struct, frozen=True):
    """The part of one place that one container holds. ``share`` is of the physical GPU, 0 to 1."""

    place: GpuPart
    holder: PodContainer
    resource: ResourceName
    mode: str
    share: float
    claim: ClaimUse = ClaimUse()


class Tenants(Struct, frozen=True):
    """The holders of one place. ``exclusive``: one holder, and no other can be given a part of it."""

    holders: tuple[PodContainer, ...] = ()
    exclusive: bool = False


NOBODY = Tenants()
NO_CLAIM = ClaimUse()


def slices_of(gpu: Gpu) -> int:
    """The number of compute slices of the whole GPU."""
    return max((profile.slices for profile in gpu.mig_profiles), default=SLICES) or SLICES


def allocations(
    node: NodeInventory,
    layout: Layout,
    holders: Mapping[DeviceId, Holder],
    claims: Mapping[DeviceId, ClaimUse] | None = None,
    sharers: Mapping[DeviceId, tuple[Holder, ...]] | None = None,
) -> tuple[Allocation, ...]:
    """The allocations, one for each place, container, resource, mode and claim. Devices of GPUs that are gone are left
    out. ``claims``: the claim by which a device is held; ``sharers``: the containers that have a device by one claim
    together, in equal parts.
    """
    devices = {device.id: device for resource in layout.resources for device in resource.devices}
    parts = Counter((resource.name, device.physical_id) for resource in layout.resources for device in resource.devices)
    instances = {str(mig.uuid): (gpu, mig) for gpu in node.gpus for mig in gpu.mig_instances}
    gpus = {str(gpu.uuid): gpu for gpu in node.gpus}
    shares: dict[tuple[GpuPart, PodContainer, ResourceName, str, ClaimUse], float] = {}
    for device_id, holder, number in _each(holders, sharers or {}):
        unit = physical_id(device_id)
        device = devices.get(device_id)
        claim = (claims or {}).get(device_id, NO_CLAIM)
        if unit in instances:
            gpu, mig = instances[unit]
            place, whole = GpuPart(gpu.uuid, mig.gi_id), mig.ci_slices / slices_of(gpu)
        elif unit in gpus:
            place, whole = GpuPart(GpuUuid(unit)), 1.0
        else:
            continue
        part = claim.percent / PERCENTS
        key = (
            place,
            PodContainer(holder.namespace, holder.pod, holder.container),
            holder.resource,
            SharingMode.MPS.value if claim.percent else _mode(device, unit),
            structs.replace(claim, percent=0),
        )
        # A device that is not planned any more (the layout was changed under its holder) counts for all of its GPU or
        # instance.
        of = parts[holder.resource, unit] if device is not None else 1
        shares[key] = shares.get(key, 0.0) + whole * (part or 1 / max(1, of)) / number
    return tuple(
        Allocation(place, holder, resource, mode, min(1.0, share), claim)
        for (place, holder, resource, mode, claim), share in sorted(shares.items())
    )


def _each(
    holders: Mapping[DeviceId, Holder], sharers: Mapping[DeviceId, tuple[Holder, ...]]
) -> Iterator[tuple[DeviceId, Holder, int]]:
    """Each device and each container that has it, with the number of containers that have it."""
    for device, holder in holders.items():
        every = sharers.get(device, (holder,))
        yield from ((device, each, len(every)) for each in every)


def _mode(device: LogicalDevice | None, unit: str) -> str:
    if device is not None and device.share is not None:
        return device.share.sharing.value
    return MIG if unit.startswith("MIG-") else WHOLE


def tenants(found: Iterable[Allocation]) -> dict[GpuPart, Tenants]:
    """The holders of each place that has any."""
    by_place: dict[GpuPart, Tenants] = {}
    for allocation in found:
        before = by_place.get(allocation.place)
        alone = allocation.mode in (WHOLE, MIG)
        if before is None:
            by_place[allocation.place] = Tenants((allocation.holder,), alone)
        elif allocation.holder in before.holders:
            by_place[allocation.place] = structs.replace(before, exclusive=before.exclusive and alone)
        else:
            by_place[allocation.place] = Tenants((*before.holders, allocation.holder), exclusive=False)
    return by_place
