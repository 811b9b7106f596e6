"""The links of GPUs: NVLink, NVSwitch fabric, PCIe levels and peer access."""

from typing import Any

from simulator.boards import wiring as topology
from simulator.boards.wiring import LEVELS, LinkEnd
from simulator.nvml import codes
from simulator.nvml.arguments import (
    HandleKind,
    check_version,
    number,
    put,
    put_fields,
    put_list,
    target,
    unpack,
    write_handle,
)
from simulator.nvml.codes import NvmlError
from simulator.nvml.devices import write_pci
from simulator.nvml.session import Device, on_device

MAX_LINKS = 36

REMOTE_GPU = 0
REMOTE_SWITCH = 2

SWITCH_BUS = 0xC4
SWITCH_PORTS = 6
FIRST_HIDDEN_SWITCH = 6
"""The first NVLink version (NVML's number, for 4.0) that shows all ones in place of a switch's address."""

P2P_OK = 0
P2P_CHIPSET_NOT_SUPPORTED = 1
P2P_GPU_NOT_SUPPORTED = 2
P2P_NOT_SUPPORTED = 5
P2P_CAPS_NVLINK = 2
P2P_CAPS_ATOMICS = 3
P2P_CAPS = 5

CAPABILITIES = 6
ERROR_COUNTERS = 5
CAP_SLI_BRIDGE = 4
REPLAY_ERRORS = 0

FABRIC_COMPLETED = 3
FABRIC_V2 = 0x02000024
FABRIC_V3 = 0x3000028
FABRIC_FIRST_ARCHITECTURE = 9
HEALTH_BANDWIDTH_DEGRADED = 0x1
HEALTH_NOTHING_WRONG = 0x2 | 0x2 << 2 | 0x2 << 4 | 0x2 << 6 | 0x1 << 8
HEALTH_DEGRADED = HEALTH_NOTHING_WRONG & ~0x3 | HEALTH_BANDWIDTH_DEGRADED
SUMMARY_HEALTHY = 1
SUMMARY_LIMITED = 3

DEFAULT_CLUSTER = "3f6a2c54-9d0b-5e71-8a4c-6e1f2b7d9c30"
"""The cluster UUID of a GB200 node whose fleet names none."""


def link_end(device: Device, link: int) -> LinkEnd:
    """The end of a link. Raises NOT_SUPPORTED without NVLink, INVALID_ARGUMENT beyond the last link."""
    device.need(device.spec.links)
    if link >= len(device.spec.links):
        raise NvmlError(codes.INVALID_ARGUMENT)
    return device.spec.links[link]


def is_active(device: Device, link: int) -> bool:
    """Whether a link is up: neither end is down, and the GPU at the other end is present."""
    end = link_end(device, link)
    if link in device.state.links_down:
        return False
    if end.peer is None:
        return True
    peer = device.session.hardware.gpus[end.peer]
    return peer.present and not peer.lost and end.remote_link not in peer.links_down


def active_links(device: Device) -> list[int]:
    """The links that are up."""
    return [link for link in range(len(device.spec.links)) if is_active(device, link)]


def _active(device: Device, link: Any) -> LinkEnd:
    wanted = number(link)
    end = link_end(device, wanted)
    device.need(is_active(device, wanted))
    return end


@on_device()
def nvmlDeviceGetNvLinkState(device: Device, link: Any, active: Any) -> None:
    put(active, int(is_active(device, number(link))))


@on_device()
def nvmlDeviceGetNvLinkVersion(device: Device, link: Any, version: Any) -> None:
    link_end(device, number(link))
    put(version, device.product.nvlink_version or 1)


@on_device()
def nvmlDeviceGetNvLinkRemoteDeviceType(device: Device, link: Any, kind: Any) -> None:
    put(kind, REMOTE_SWITCH if _active(device, link).peer is None else REMOTE_GPU)


@on_device()
def nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Device, link: Any, info: Any) -> None:
    end = _active(device, link)
    if end.peer is not None:
        peer = device.session.hardware.gpus[end.peer]
        write_pci(info, Device(device.session, device.gpu_handle.__class__(HandleKind.GPU, end.peer, peer.epoch)))
        return
    if device.product.nvlink_version >= FIRST_HIDDEN_SWITCH:
        put_fields(info, busIdLegacy="FFFF:FF:FF.F", domain=0xFFFFFFFF, bus=0xFF, device=0xFF, busId="FFFFFFFF:FF:FF.F")
        return
    bus = SWITCH_BUS + number(link) % SWITCH_PORTS
    put_fields(info, busIdLegacy=f"0000:{bus:02X}:00.0", domain=0, bus=bus, device=0, busId=f"00000000:{bus:02X}:00.0")


@on_device()
def nvmlDeviceGetNvLinkCapability(device: Device, link: Any, capability: Any, result: Any) -> None:
    link_end(device, number(link))
    wanted = number(capability)
    if wanted not in range(CAPABILITIES):
        raise NvmlError(codes.INVALID_ARGUMENT)
    put(result, int(wanted != CAP_SLI_BRIDGE and is_active(device, number(link))))


@on_device()
def nvmlDeviceGetNvLinkErrorCounter(device: Device, link: Any, counter: Any, value: Any) -> None:
    link_end(device, number(link))
    wanted = number(counter)
    if wanted not in range(ERROR_COUNTERS):
        raise NvmlError(codes.INVALID_ARGUMENT)
    put(value, device.state.nvlink_errors if wanted == REPLAY_ERRORS and number(link) == 0 else 0)


@on_device()
def nvmlDeviceResetNvLinkErrorCounters(device: Device, link: Any) -> None:
    from msgspec.structs import replace

    link_end(device, number(link))
    device.session.simulation.change_gpu(device.index, lambda gpu, _: replace(gpu, nvlink_errors=0))


@on_device()
def nvmlDeviceGetNvLinkUtilizationCounter(device: Device, link: Any, _counter: Any, rx: Any, tx: Any) -> None:
    link_end(device, number(link))
    meter = device.meter
    share = len(active_links(device)) or 1
    put(rx, round(meter.nvlink_rx_kib / share))
    put(tx, round(meter.nvlink_tx_kib / share))


def _peer(device: Device, other: Any) -> Device:
    """The second device of a pair; a MIG device has no place in the topology."""
    handle = unpack(other)
    if handle.kind != HandleKind.GPU:
        raise NvmlError(codes.INVALID_ARGUMENT)
    return Device(device.session, handle)


def _level(device: Device, other: int) -> int:
    return device.session.simulation.node.levels[device.index][other]


@on_device()
def nvmlDeviceGetTopologyCommonAncestor(device: Device, other: Any, level: Any) -> None:
    put(level, _level(device, _peer(device, other).index))


@on_device()
def nvmlDeviceGetTopologyNearestGpus(device: Device, level: Any, count: Any, array: Any) -> None:
    wanted = number(level)
    if wanted not in LEVELS.values():
        raise NvmlError(codes.INVALID_ARGUMENT)
    session = device.session
    near = [i for i in session.present() if i != device.index and _level(device, i) == wanted]
    handles = [session.open_gpu(i) for i in near if not session.hardware.gpus[i].lost]
    put_list(count, array, handles, write_handle)


@on_device()
def nvmlDeviceOnSameBoard(device: Device, other: Any, same: Any) -> None:
    put(same, int(_level(device, _peer(device, other).index) == LEVELS["PSB"]))


def _nvlinked(device: Device, peer: Device) -> bool:
    """Whether traffic between two GPUs can go over NVLink: a direct link is up, or both reach the switches."""
    if any(device.spec.links[link].peer == peer.index for link in active_links(device)):
        return True
    return all(any(d.spec.links[link].peer is None for link in active_links(d)) for d in (device, peer))


@on_device()
def nvmlDeviceGetP2PStatus(device: Device, other: Any, capability: Any, status: Any) -> None:
    peer = _peer(device, other)
    wanted = number(capability)
    if wanted not in range(P2P_CAPS) or peer.index == device.index:
        raise NvmlError(codes.INVALID_ARGUMENT)
    if device.state.mig.enabled or peer.state.mig.enabled:
        put(status, P2P_GPU_NOT_SUPPORTED)
    elif _nvlinked(device, peer):
        put(status, P2P_OK)
    elif wanted in (P2P_CAPS_NVLINK, P2P_CAPS_ATOMICS):
        put(status, P2P_NOT_SUPPORTED)
    else:
        near = _level(device, peer.index) < topology.LEVELS["SYS"]
        put(status, P2P_OK if near else P2P_CHIPSET_NOT_SUPPORTED)


def _fabric(device: Device) -> tuple[bytes, int]:
    """The cluster UUID and the clique. A single HGX board's fabric is complete with a cluster of zeros.

    Raises NOT_SUPPORTED for boards without a fabric manager's registration (before Hopper, or without switches).
    """
    product = device.product
    switched = any(end.peer is None for end in device.spec.links)
    device.need(device.spec.cluster_uuid or (product.architecture.number >= FABRIC_FIRST_ARCHITECTURE and switched))
    uuid = device.spec.cluster_uuid or (DEFAULT_CLUSTER if product.grace else "0" * 32)
    return bytes.fromhex(uuid.replace("-", "")), device.spec.clique_id


def _write_fabric(device: Device, info: Any) -> Any:
    cluster, clique = _fabric(device)
    struct = target(info)
    for i, byte in enumerate(cluster):
        struct.clusterUuid[i] = byte
    struct.status = codes.SUCCESS
    struct.cliqueId = clique
    struct.state = FABRIC_COMPLETED
    return struct


@on_device()
def nvmlDeviceGetGpuFabricInfo(device: Device, info: Any) -> None:
    _write_fabric(device, info)


@on_device()
def nvmlDeviceGetGpuFabricInfoV(device: Device, info: Any) -> None:
    version = check_version(info, FABRIC_V2, FABRIC_V3)
    struct = _write_fabric(device, info)
    whole = len(active_links(device)) == len(device.spec.links)
    struct.healthMask = HEALTH_NOTHING_WRONG if whole else HEALTH_DEGRADED
    if version == FABRIC_V3:
        struct.healthSummary = SUMMARY_HEALTHY if whole else SUMMARY_LIMITED


@on_device()
def nvmlDeviceGetCurrPcieLinkGeneration(device: Device, generation: Any) -> None:
    put(generation, device.product.architecture.pcie_generation)


@on_device()
def nvmlDeviceGetMaxPcieLinkGeneration(device: Device, generation: Any) -> None:
    put(generation, device.product.architecture.pcie_generation)


@on_device()
def nvmlDeviceGetGpuMaxPcieLinkGeneration(device: Device, generation: Any) -> None:
    put(generation, device.product.architecture.pcie_generation)


PCIE_WIDTH = 16


@on_device()
def nvmlDeviceGetCurrPcieLinkWidth(device: Device, width: Any) -> None:
    del device
    put(width, PCIE_WIDTH)


@on_device()
def nvmlDeviceGetMaxPcieLinkWidth(device: Device, width: Any) -> None:
    del device
    put(width, PCIE_WIDTH)


@on_device()
def nvmlDeviceGetPcieReplayCounter(device: Device, count: Any) -> None:
    del device
    put(count, 0)


@on_device()
def nvmlDeviceGetPcieThroughput(device: Device, counter: Any, kib_s: Any) -> None:
    device.refuse_mig_mode()
    wanted = number(counter)
    if wanted not in (0, 1):
        raise NvmlError(codes.INVALID_ARGUMENT)
    activity = device.activity()
    put(kib_s, round((activity.pcie_rx_mib_s if wanted else activity.pcie_tx_mib_s) * 1024))
