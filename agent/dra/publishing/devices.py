"""The devices that a node offers by claim, as its ResourceSlices describe them. Pure.

    NodeInventory, the GPUs given out by claim -> Offer: devices, and the counters that some of them share

Names of attributes and capacities are those of NVIDIA's driver, so that a CEL selector written for it selects the same
devices here. Names under our own domain are additions. Nothing here changes by the minute: each change is a write.
Source: resource.k8s.io/v1 ``Device``; the driver of NVIDIA, ``deviceinfo.go``.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from agent.dra.publishing.partitions import (
    CounterSet,
    Partition,
    capacity,
    counter_set,
    device_name,
    divisible,
    memory,
    partitions,
)
from agent.dra.publishing.shares import Share, amounts, policies, share_name, whole
from inventory.api.names import CLIQUE, LINK_GROUP, PART
from inventory.devices import Gpu, GpuUuid, NodeInventory
from inventory.mig.plan import Slot

MAX_STRING: Final = 64
"""The longest text of an attribute, and of a version, in characters."""
_STANDARD: Final = "resource.kubernetes.io"
_VERSION_PARTS: Final = 3
_BRANDS: Final[Mapping[str, str]] = {
    "quadro": "Quadro",
    "tesla": "Tesla",
    "geforce": "GeForce",
    "titan": "Titan",
    "quadro-rtx": "QuadroRTX",
    "nvidia-rtx": "NvidiaRTX",
    "nvidia": "Nvidia",
    "geforce-rtx": "GeForceRTX",
    "titan-rtx": "TitanRTX",
}
"""The brands as NVIDIA's driver spells them, by the inventory's words."""
_NUMBER: Final = re.compile(r"\d{1,9}")


class Version(Struct, frozen=True):
    """An attribute of the type ``version``: semantic versioning 2.0.0, without leading zeros."""

    text: str


Attribute = int | bool | str | Version


class Taint(Struct, frozen=True):
    """A taint of a device. ``effect`` is NoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class DraDevice(Struct, frozen=True):
    """One device of the node's pool. ``gpu`` is the GPU that it is, or with ``slot`` is a part of. ``capacity`` values
    are Kubernetes quantities, and so are those of ``consumes``: counters of the counter set of that name. ``shares``:
    several claims may have parts of the device, together at most this much; ``policies`` has the request policy of each
    capacity.
    """

    name: str
    gpu: GpuUuid
    attributes: Mapping[str, Attribute]
    capacity: Mapping[str, str]
    slot: Slot | None = None
    consumes: CounterSet | None = None
    taints: tuple[Taint, ...] = ()
    shares: Share | None = None
    policies: Mapping[str, Mapping[str, object]] = {}

    def content(self) -> dict[str, Any]:
        """The device as a ResourceSlice has it."""
        content: dict[str, Any] = {
            "name": self.name,
            "attributes": {name: _typed(value) for name, value in self.attributes.items()},
            "capacity": values(self.capacity),
        }
        if self.shares is not None:
            content["allowMultipleAllocations"] = True
            for name, policy in self.policies.items():
                content["capacity"][name]["requestPolicy"] = policy
        if self.consumes is not None:
            content["consumesCounters"] = [
                {"counterSet": self.consumes.name, "counters": values(self.consumes.counters)}
            ]
        if self.taints:
            content["taints"] = [
                {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in self.taints
            ]
        return content


class Offer(Struct, frozen=True):
    """All devices that a node gives out by claim. Devices of one GPU stand together, in the node's order; each counter
    set is of one GPU.
    """

    devices: tuple[DraDevice, ...] = ()
    counters: tuple[CounterSet, ...] = ()

    def tainted(self, taints: Mapping[str, tuple[Taint, ...]]) -> "Offer":
        """The offer with ``taints``, by the device's name."""
        if not any(taints.values()):
            return self
        devices = (structs.replace(each, taints=taints.get(each.name, ())) for each in self.devices)
        return structs.replace(self, devices=tuple(devices))

    def with_gone(self, before: "Offer", gone: Collection[GpuUuid]) -> "Offer":
        """The offer, with the devices that ``before`` had of the GPUs in ``gone``, unless another GPU has their place
        and name now.
        """
        names = {each.name for each in self.devices}
        lost = {each.gpu for each in before.devices if each.gpu in gone}
        lost -= {each.gpu for each in before.devices if each.name in names}
        devices = tuple(each for each in before.devices if each.gpu in lost)
        sets = {each.consumes.name for each in devices if each.consumes is not None}
        counters = tuple(each for each in before.counters if each.name in sets)
        return Offer((*self.devices, *devices), (*self.counters, *counters))

    def undivided(self) -> "Offer":
        """The offer with whole GPUs only, for an API server that keeps no counters."""
        whole = (structs.replace(each, consumes=None) for each in self.devices if each.slot is None)
        return Offer(tuple(whole))

    def unshared(self) -> "Offer":
        """The offer without the GPUs that are given out by shares, for an API server that does not keep the fields of
        shares: it would give the first claim all of a GPU.
        """
        return structs.replace(self, devices=tuple(each for each in self.devices if each.shares is None))


def values(amounts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Capacities and counters as the API writes them."""
    return {name: {"value": value} for name, value in amounts.items()}


def _typed(value: Attribute) -> dict[str, object]:
    if isinstance(value, Version):
        return {"version": value.text}
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"string": value}


def offered(node: NodeInventory, claimed: Iterable[GpuUuid], shares: Mapping[GpuUuid, int] | None = None) -> Offer:
    """The devices of the GPUs in ``claimed``, in the node's order, without taints. The parts of a GPU that can be
    divided follow it; a GPU in ``shares`` has one device that is given out in multiples of that many percent.
    """
    wanted, steps = frozenset(claimed), shares or {}
    groups = link_groups(node)
    devices: list[DraDevice] = []
    counters: list[CounterSet] = []
    for gpu in node.gpus:
        if gpu.uuid in wanted and gpu.uuid in steps:
            devices.append(_shared(node, gpu, steps[gpu.uuid]))
        elif gpu.uuid in wanted:
            divided = counter_set(gpu) if divisible(gpu) else None
            devices.append(_whole(node, gpu, groups.get(gpu.uuid), divided))
            if divided is not None:
                counters.append(divided)
                devices += [_part(node, gpu, part, divided.name) for part in partitions(gpu)]
    return Offer(tuple(devices), tuple(counters))


def _whole(node: NodeInventory, gpu: Gpu, group: int | None, divided: CounterSet | None) -> DraDevice:
    own: dict[str, Attribute | None] = {
        "type": "gpu",
        "uuid": gpu.uuid,
        LINK_GROUP: group,
        CLIQUE: None if gpu.clique is None else gpu.clique.label,
    }
    amounts = {"memory": memory(gpu.memory_mib)}
    return DraDevice(
        name=device_name(gpu),
        gpu=gpu.uuid,
        attributes=_said(own | _common(node, gpu)),
        capacity=amounts if divided is None else amounts | capacity(gpu),
        consumes=divided,
    )


def _shared(node: NodeInventory, gpu: Gpu, step: int) -> DraDevice:
    own: dict[str, Attribute | None] = {"type": "share", "uuid": gpu.uuid}
    return DraDevice(
        name=share_name(gpu),
        gpu=gpu.uuid,
        attributes=_said(own | _common(node, gpu)),
        capacity=amounts(gpu),
        shares=whole(gpu),
        policies=policies(gpu, step),
    )


def _part(node: NodeInventory, gpu: Gpu, part: Partition, counters: str) -> DraDevice:
    own: dict[str, Attribute | None] = {
        "type": "mig",
        "parentUUID": gpu.uuid,
        "profile": part.slot.profile,
        PART: f"{gpu.uuid}{part.name.removeprefix(device_name(gpu))}",
    }
    return DraDevice(
        name=part.name,
        gpu=gpu.uuid,
        attributes=_said(own | _common(node, gpu)),
        capacity=part.capacity,
        slot=part.slot,
        consumes=CounterSet(counters, part.consumes),
    )


def _common(node: NodeInventory, gpu: Gpu) -> dict[str, Attribute | None]:
    """The attributes that a GPU's parts share with it."""
    major, minor = node.cuda_version
    return {
        "productName": gpu.product,
        "brand": _BRANDS.get(gpu.brand),
        "architecture": gpu.architecture.replace("-", " ").title(),
        "cudaComputeCapability": _version(gpu.compute_capability) if gpu.compute_capability > (0, 0) else None,
        "driverVersion": driver_version(node.driver_version),
        "cudaDriverVersion": _version((major, minor)) if node.cuda_version > (0, 0) else None,
        f"{_STANDARD}/pciBusID": gpu.pci_bus_id,
        f"{_STANDARD}/pcieRoot": gpu.pcie_root,
        f"{_STANDARD}/numaNode": gpu.numa_node,
    }


def _said(known: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {name: value for name, value in known.items() if value is not None and _sayable(value)}


def _sayable(value: Attribute) -> bool:
    """Whether the API takes the attribute: an empty text says nothing, and one that is too long would cost the whole
    slice.
    """
    text = value.text if isinstance(value, Version) else value
    return not isinstance(text, str) or 0 < len(text) <= MAX_STRING


def driver_version(text: str) -> Version | None:
    """NVIDIA's ``550.107.02`` as ``550.107.2``; None for a text that is not such a version."""
    parts = text.split(".")
    if not 0 < len(parts) <= _VERSION_PARTS or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    return _version([int(part) for part in parts])


def _version(numbers: Sequence[int]) -> Version:
    return Version(".".join(map(str, [*numbers, *[0] * (_VERSION_PARTS - len(numbers))])))


def link_groups(node: NodeInventory) -> dict[GpuUuid, int]:
    """The group of each GPU with NVLinks: the lowest index of the GPUs that it reaches over them, itself among them.

    ``matchAttribute`` keeps equal numbers together: GPUs in one group can talk without PCIe.
    """
    group = list(range(len(node.gpus)))
    for at, row in enumerate(node.links):
        for other, link in enumerate(row[:at]):
            if link.nvlinks + link.nvswitch and group[at] != group[other]:
                low, high = sorted((group[at], group[other]))
                group = [low if number == high else number for number in group]
    linked = [any(link.nvlinks + link.nvswitch for link in row) for row in node.links]
    return {
        gpu.uuid: node.gpus[number].index
        for gpu, number, joined in zip(node.gpus, group, linked, strict=True)
        if joined
    }
