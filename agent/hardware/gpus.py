"""Reads one GPU on its own thread: handle in, ``inventory.Gpu`` out. ``link_matrix`` is pure."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from ctypes import byref
from pathlib import Path
from typing import Any
from uuid import UUID

import pynvml

from agent.hardware.migs import read_instances, read_profiles
from agent.hardware.query import CallFailed, NvmlError, ask, field, must, text
from inventory.devices import Clique, Gpu, GpuUuid, NvLink, RemoteType
from inventory.links import UNKNOWN_LINK, Link, LinkMatrix, PcieLevel


def link_matrix(gpus: Sequence[Gpu], ancestors: Mapping[tuple[int, int], int]) -> LinkMatrix:
    """The links of every pair, in the order of ``gpus``.

    ``ancestors`` holds nvmlGpuTopologyLevel_t by positions (i, j) with i < j; a missing pair is an unknown distance. A
    direct link counts when both ends see it, a switch lane up to the smaller of the two GPUs' counts.
    """
    direct = [Counter(link.remote_pci_bus_id for link in gpu.nvlinks if link.active) for gpu in gpus]
    lanes = [sum(1 for link in g.nvlinks if link.active and link.remote_type is RemoteType.SWITCH) for g in gpus]

    def pair(i: int, j: int) -> Link:
        level = ancestors.get((min(i, j), max(i, j)))
        return Link(
            pcie=PcieLevel(level) if level in set(PcieLevel) else None,
            nvlinks=min(direct[i][gpus[j].pci_bus_id], direct[j][gpus[i].pci_bus_id]),
            nvswitch=min(lanes[i], lanes[j]),
        )

    n = len(gpus)
    return tuple(tuple(UNKNOWN_LINK if i == j else pair(i, j) for j in range(n)) for i in range(n))


MIB = 1 << 20
ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada-lovelace",
    9: "hopper",
    10: "blackwell",
}
BRANDS = {
    1: "quadro",
    2: "tesla",
    5: "geforce",
    6: "titan",
    12: "quadro-rtx",
    13: "nvidia-rtx",
    14: "nvidia",
    15: "geforce-rtx",
    16: "titan-rtx",
}
PCIE_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
REMOTE_TYPES = {0: RemoteType.GPU, 1: RemoteType.NPU, 2: RemoteType.SWITCH}


def read_gpu(handle: Any, index: int, sys_root: Path) -> Gpu:
    """Everything static about the GPU, and its MIG mode and instances as they are now.

    Raises GpuLost, DriverUnavailable, CallFailed; a property that the hardware lacks never raises.
    """
    pci = must(pynvml.nvmlDeviceGetPciInfo, handle)
    bus_id = sysfs_bus_id(field(pci, "busId"))
    mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
    profiles = read_profiles(handle) if mode is not None else ()
    enabled = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    memory = must(pynvml.nvmlDeviceGetMemoryInfo, handle)
    serial = ask(pynvml.nvmlDeviceGetSerial, handle)
    return Gpu(
        uuid=GpuUuid(text(must(pynvml.nvmlDeviceGetUUID, handle))),
        index=index,
        minor=must(pynvml.nvmlDeviceGetMinorNumber, handle),
        product=text(must(pynvml.nvmlDeviceGetName, handle)),
        brand=BRANDS.get(ask(pynvml.nvmlDeviceGetBrand, handle) or 0, ""),
        architecture=ARCHITECTURES.get(ask(pynvml.nvmlDeviceGetArchitecture, handle) or 0, ""),
        compute_capability=tuple(ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle) or (0, 0)),
        pci_bus_id=bus_id,
        pci_device_id=pci.pciDeviceId,
        pci_subsystem_id=pci.pciSubSystemId,
        pci_class=read_pci_class(sys_root, bus_id),
        numa_node=read_numa_node(sys_root, bus_id),
        pcie_root=read_pcie_root(sys_root, bus_id),
        memory_mib=memory.total // MIB,
        multiprocessors=max((p.multiprocessors for p in profiles), default=None),
        serial=None if serial is None else text(serial),
        clique=read_clique(handle),
        nvlinks=read_nvlinks(handle),
        mig_capable=mode is not None,
        mig_enabled=enabled,
        mig_profiles=profiles,
        mig_instances=read_instances(handle) if enabled else (),
    )


def sysfs_bus_id(bus_id: str) -> str:
    """NVML's ``00000000:07:00.0`` as sysfs writes it: lower case, a domain of at least four digits."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def read_numa_node(sys_root: Path, bus_id: str) -> int | None:
    """The NUMA node of a PCI device in sysfs; None where it says -1, or nothing."""
    # nvmlDeviceGetNumaNodeId is another thing: the GPU's own memory node on Grace.
    try:
        node = int((sys_root / "bus/pci/devices" / bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def read_pcie_root(sys_root: Path, bus_id: str) -> str | None:
    """The root bus above a PCI device (``pci0000:17``): its entry is a link through all bridges from there."""
    try:
        path = (sys_root / "bus/pci/devices" / bus_id).readlink()
    except OSError:
        return None
    return next((part for part in path.parts if PCIE_ROOT.fullmatch(part)), None)


def read_pci_class(sys_root: Path, bus_id: str) -> int | None:
    """Class and subclass (``0x0302`` is a 3D controller); sysfs adds the programming interface, which is cut off."""
    try:
        return int((sys_root / "bus/pci/devices" / bus_id / "class").read_text(), 16) >> 8
    except (OSError, ValueError):
        return None


def read_nvlinks(handle: Any) -> tuple[NvLink, ...]:
    """All NVLink ports of the GPU; those it does not have end the list."""
    links: list[NvLink] = []
    for number in range(pynvml.NVML_NVLINK_MAX_LINKS):
        active = ask(pynvml.nvmlDeviceGetNvLinkState, handle, number)
        if active is None:
            # Some boards leave gaps (links wired to nothing), but none starts after four missing ones.
            if number - len(links) >= 4:  # noqa: PLR2004 - see above
                break
            continue
        links.append(_nvlink(handle, number, active=bool(active)))
    return tuple(links)


def _nvlink(handle: Any, number: int, *, active: bool) -> NvLink:
    if not active:
        return NvLink(link=number, active=False)
    kind = ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, number)
    remote = ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, number)
    return NvLink(
        link=number,
        active=True,
        remote_type=REMOTE_TYPES.get(kind, RemoteType.UNKNOWN) if kind is not None else RemoteType.UNKNOWN,
        remote_pci_bus_id=None if remote is None else sysfs_bus_id(field(remote, "busId")),
    )


def read_clique(handle: Any) -> Clique | None:
    """NVLink fabric membership, once the fabric manager has completed without error."""
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    info.version = pynvml.nvmlGpuFabricInfo_v2
    if ask(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, byref(info)) is None:
        return None
    cluster = bytes(info.clusterUuid)
    if info.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED or info.status != 0 or not any(cluster):
        return None
    return Clique(cluster_uuid=str(UUID(bytes=cluster)), clique_id=info.cliqueId)


def read_recovery_action(handle: Any) -> int | None:
    """NVML_GPU_RECOVERY_ACTION_*: 0 none, 1 reset ...; None where the driver is too old to tell."""
    return read_field(handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)


def read_field(handle: Any, field: int) -> int | None:
    """One unsigned field (NVML_FI_DEV_*); None where the driver or this GPU does not tell."""
    values = ask(pynvml.nvmlDeviceGetFieldValues, handle, [field])
    if values is None or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)


def common_ancestor(one: Any, other: Any) -> int | None:
    """nvmlGpuTopologyLevel_t of a pair, None where NVML cannot say (a lost GPU must not take its neighbour's links)."""
    try:
        level = ask(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    except NvmlError:
        return None
    return None if level is None else int(level)


def handle_of(uuid: str) -> Any:
    """A fresh handle for the GPU. Raises CallFailed when no such GPU is there any more, GpuLost when it is there and
    dead.
    """
    handle = ask(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        raise CallFailed(f"nvmlDeviceGetHandleByUUID: no GPU {uuid}")
    return handle
