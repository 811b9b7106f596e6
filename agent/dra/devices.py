"""The devices that a node offers by claim: what their ResourceSlices say of them. Pure.

    NodeInventory, the GPUs given out by claim, what is wrong with each -> DraDevice, ...

Names of attributes and capacities are those of NVIDIA's driver, so that a CEL selector written for it selects the same
devices here. Names under our own domain are additions. Nothing here changes by the minute: each change is a write.
Source: resource.k8s.io/v1 ``Device``; the driver of NVIDIA, ``deviceinfo.go``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from inventory.api.names import CLIQUE, LINK_GROUP
from inventory.devices import Gpu, GpuUuid, NodeInventory

DRIVER: Final = "gpu.nvidia.com"
"""NVIDIA's name, which its DeviceClasses and selectors use."""
MAX_STRING: Final = 64
"""Of an attribute's text, and of a version's."""
_STANDARD: Final = "resource.kubernetes.io"
_VERSION_PARTS: Final = 3
_NUMBER: Final = re.compile(r"\d{1,9}")


class Version(Struct, frozen=True):
    """An attribute of the type ``version``: semantic versioning 2.0.0, without leading zeros."""

    text: str


Attribute = int | bool | str | Version


class Taint(Struct, frozen=True):
    """``effect`` is NoSchedule or NoExecute."""

    key: str
    value: str
    effect: str


class DraDevice(Struct, frozen=True):
    """One device of the node's pool. ``gpu`` is the GPU that it is. ``capacity`` values are Kubernetes quantities."""

    name: str
    gpu: GpuUuid
    attributes: Mapping[str, Attribute]
    capacity: Mapping[str, str]
    taints: tuple[Taint, ...] = ()

    def content(self) -> dict[str, Any]:
        """The device as a ResourceSlice has it."""
        found: dict[str, Any] = {
            "name": self.name,
            "attributes": {name: _typed(value) for name, value in self.attributes.items()},
            "capacity": {name: {"value": value} for name, value in self.capacity.items()},
        }
        if self.taints:
            found["taints"] = [
                {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in self.taints
            ]
        return found


def _typed(value: Attribute) -> dict[str, object]:
    if isinstance(value, Version):
        return {"version": value.text}
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"string": value}


def device_name(gpu: Gpu) -> str:
    """As NVIDIA's driver calls a whole GPU: by its minor, which pods' logs and device files show too."""
    return f"gpu-{gpu.minor}"


def offered(
    node: NodeInventory, claimed: Iterable[GpuUuid], taints: Mapping[GpuUuid, tuple[Taint, ...]]
) -> tuple[DraDevice, ...]:
    """The devices of the GPUs in ``claimed``, in the node's order."""
    wanted = frozenset(claimed)
    groups = link_groups(node)
    return tuple(
        DraDevice(
            name=device_name(gpu),
            gpu=gpu.uuid,
            attributes=_attributes(node, gpu, groups.get(gpu.uuid)),
            capacity={"memory": memory(gpu.memory_mib)},
            taints=taints.get(gpu.uuid, ()),
        )
        for gpu in node.gpus
        if gpu.uuid in wanted
    )


def _attributes(node: NodeInventory, gpu: Gpu, group: int | None) -> dict[str, Attribute]:
    major, minor = node.cuda_version
    known: dict[str, Attribute | None] = {
        "type": "gpu",
        "uuid": gpu.uuid,
        "productName": gpu.product,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "cudaComputeCapability": _version(gpu.compute_capability) if gpu.compute_capability > (0, 0) else None,
        "driverVersion": driver_version(node.driver_version),
        "cudaDriverVersion": _version((major, minor)) if node.cuda_version > (0, 0) else None,
        f"{_STANDARD}/pciBusID": gpu.pci_bus_id,
        f"{_STANDARD}/pcieRoot": gpu.pcie_root,
        f"{_STANDARD}/numaNode": gpu.numa_node,
        LINK_GROUP: group,
        CLIQUE: None if gpu.clique is None else gpu.clique.label,
    }
    return {name: value for name, value in known.items() if value is not None and _sayable(value)}


def _sayable(value: Attribute) -> bool:
    """Whether the API takes it: an empty text says nothing, and a longer one would cost the whole slice."""
    text = value.text if isinstance(value, Version) else value
    return not isinstance(text, str) or 0 < len(text) <= MAX_STRING


def memory(mib: int) -> str:
    """A quantity as the API server writes it back (``40Gi``, not ``40960Mi``): what is read is compared with it."""
    units = ["Mi", "Gi", "Ti"]
    while mib and mib % 1024 == 0 and len(units) > 1:
        mib //= 1024
        units.pop(0)
    return f"{mib}{units[0]}"


def driver_version(text: str) -> Version | None:
    """NVIDIA's ``550.107.02`` as ``550.107.2``; None for what is no such version."""
    parts = text.split(".")
    if not 0 < len(parts) <= _VERSION_PARTS or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    return _version([int(part) for part in parts])


def _version(numbers: Sequence[int]) -> Version:
    return Version(".".join(map(str, [*numbers, *[0] * (_VERSION_PARTS - len(numbers))])))


def link_groups(node: NodeInventory) -> dict[GpuUuid, int]:
    """By GPU with NVLinks: the lowest index of the GPUs that it reaches over them, itself among them.

    Equal numbers are what ``matchAttribute`` keeps together: GPUs in one group can talk without PCIe.
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
