"""The GPUs of the node, and the facts of each."""

from typing import Any

from simulator.nvml import codes
from simulator.nvml.arguments import (
    Handle,
    HandleKind,
    check_version,
    number,
    put,
    put_fields,
    put_handle,
    put_text,
    target,
)
from simulator.nvml.codes import NvmlError
from simulator.nvml.session import Device, Session, alias, on_device, on_system

CPUS_PER_NUMA = 32
"""The number of CPUs that the simulated machine has on each NUMA node, in order."""

BITS = 64

GRACE_FIRST_NUMA = 2
GRACE_NUMA_STEP = 8
"""The number of NUMA nodes of each GPU's memory on Grace: they follow those of the CPUs."""

AFFINITY_MEMORY_NODES = 1

PCI_INFO_EXT = 0x1000040
DRIVER_MODEL_NONE = 0

SUBSYSTEM = 0x000010DE
BUS_PCIE = 2
FIRMWARE = "96.00.99.00.01"
INFOROM_IMAGE = "G520.0200.00.05"
INFOROM_PARTS = 4
INFOROM_OBJECTS = {0: "2.1", 1: "6.16", 2: "1.10"}
"""The versions of nvmlInforomObject_t: for the manufacturer, ECC, power."""


@on_system
def nvmlDeviceGetCount(session: Session, count: Any) -> None:
    put(count, len(session.present()))


alias("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")


@on_system
def nvmlDeviceGetHandleByIndex(session: Session, index: Any, handle: Any) -> None:
    present = session.present()
    wanted = number(index)
    if wanted >= len(present):
        raise NvmlError(codes.INVALID_ARGUMENT)
    session.delay("nvmlDeviceGetHandleByIndex_v2", present[wanted])
    put_handle(handle, session.open_gpu(present[wanted]))


alias("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")


@on_system
def nvmlDeviceGetHandleByUUID(session: Session, uuid: Any, handle: Any) -> None:
    text = target(uuid).value
    if text is None:
        raise NvmlError(codes.INVALID_ARGUMENT)
    put_handle(handle, _by_uuid(session, text.decode(errors="replace")))


def _by_uuid(session: Session, uuid: str) -> Handle:
    for i in session.present():
        gpu = session.hardware.gpus[i]
        if gpu.uuid == uuid:
            return session.open_gpu(i)
        if uuid.startswith("MIG-") and not gpu.lost:
            device = Device(session, session.open_gpu(i))
            for gi, ci in gpu.mig.devices():
                if device.mig_uuid(gi, ci) == uuid:
                    return Handle(HandleKind.MIG_DEVICE, i, gpu.epoch, ci.serial)
    raise NvmlError(codes.NOT_FOUND)


@on_system
def nvmlDeviceGetHandleBySerial(session: Session, serial: Any, handle: Any) -> None:
    text = (target(serial).value or b"").decode(errors="replace")
    for i in session.present():
        if session.simulation.node.gpus[i].serial == text:
            put_handle(handle, session.open_gpu(i))
            return
    raise NvmlError(codes.NOT_FOUND)


@on_system
def nvmlDeviceGetHandleByPciBusId(session: Session, bus_id: Any, handle: Any) -> None:
    text = (target(bus_id).value or b"").decode(errors="replace").upper()
    for i in session.present():
        pci = session.simulation.node.gpus[i].pci
        if text in (pci.nvml, pci.legacy, pci.sysfs.upper(), pci.sysfs.upper().partition(":")[2]):
            put_handle(handle, session.open_gpu(i))
            return
    raise NvmlError(codes.NOT_FOUND)


alias("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId")


@on_device("own")
def nvmlDeviceGetIndex(device: Device, index: Any) -> None:
    if device.is_mig:
        put(index, device.state.mig.devices().index(device.instance))
        return
    put(index, device.session.present().index(device.index))


@on_device("own")
def nvmlDeviceGetName(device: Device, buffer: Any, length: Any) -> None:
    name = device.product.name
    if device.is_mig:
        gi, ci = device.instance
        profile = device.profile
        part = "" if ci.slices == profile.slices else f"{ci.slices}c."
        assert gi.profile == profile.id
        name += f" MIG {part}{profile.name}"
    put_text(buffer, length, name)


@on_device("own")
def nvmlDeviceGetUUID(device: Device, buffer: Any, length: Any) -> None:
    put_text(buffer, length, device.mig_uuid(*device.instance) if device.is_mig else device.spec.uuid)


@on_device()
def nvmlDeviceGetSerial(device: Device, buffer: Any, length: Any) -> None:
    put_text(buffer, length, device.spec.serial)


@on_device()
def nvmlDeviceGetMinorNumber(device: Device, minor: Any) -> None:
    put(minor, device.spec.minor)


@on_device("parent")
def nvmlDeviceGetBrand(device: Device, brand: Any) -> None:
    put(brand, device.product.brand)


@on_device("parent")
def nvmlDeviceGetArchitecture(device: Device, architecture: Any) -> None:
    put(architecture, device.product.architecture.number)


@on_device("parent")
def nvmlDeviceGetCudaComputeCapability(device: Device, major: Any, minor: Any) -> None:
    put(major, device.product.architecture.compute[0])
    put(minor, device.product.architecture.compute[1])


@on_device()
def nvmlDeviceGetNumGpuCores(device: Device, cores: Any) -> None:
    put(cores, device.product.sms * device.product.architecture.cores_per_sm)


@on_device()
def nvmlDeviceGetMemoryBusWidth(device: Device, width: Any) -> None:
    put(width, device.product.bus_width)


@on_device("parent")
def nvmlDeviceGetPciInfo_v3(device: Device, info: Any) -> None:
    write_pci(info, device)


alias("nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3")


def write_pci(info: Any, device: Device) -> None:
    """Write a GPU's nvmlPciInfo_t."""
    pci = device.spec.pci
    put_fields(
        info,
        busIdLegacy=pci.legacy,
        domain=pci.domain,
        bus=pci.bus,
        device=pci.device,
        pciDeviceId=device.product.pci_device_id,
        pciSubSystemId=SUBSYSTEM | (device.product.device_id ^ 0x1000) << 16,
        busId=pci.nvml,
    )


@on_device("parent")
def nvmlDeviceGetPciInfoExt(device: Device, info: Any) -> None:
    check_version(info, PCI_INFO_EXT)
    pci = device.spec.pci
    put_fields(
        info,
        domain=pci.domain,
        bus=pci.bus,
        device=pci.device,
        pciDeviceId=device.product.pci_device_id,
        pciSubSystemId=SUBSYSTEM | (device.product.device_id ^ 0x1000) << 16,
        baseClass=device.product.pci_class >> 16,
        subClass=device.product.pci_class >> 8 & 0xFF,
        busId=pci.nvml,
    )


@on_device()
def nvmlDeviceGetBusType(device: Device, bus: Any) -> None:
    del device
    put(bus, BUS_PCIE)


@on_device()
def nvmlDeviceGetNumaNodeId(device: Device, node: Any) -> None:
    device.need(device.product.grace)
    put(node, GRACE_FIRST_NUMA + GRACE_NUMA_STEP * device.index)


def _write_bits(array: Any, size: Any, bits: int) -> None:
    words = target(array)
    for i in range(number(size)):
        words[i] = bits >> (i * BITS) & (2**BITS - 1)


def _cpu_bits(device: Device) -> int:
    node = device.spec.numa_node
    return 0 if node < 0 else (2**CPUS_PER_NUMA - 1) << (node * CPUS_PER_NUMA)


@on_device()
def nvmlDeviceGetCpuAffinity(device: Device, size: Any, array: Any) -> None:
    _write_bits(array, size, _cpu_bits(device))


@on_device()
def nvmlDeviceGetCpuAffinityWithinScope(device: Device, size: Any, array: Any, _scope: Any) -> None:
    _write_bits(array, size, _cpu_bits(device))


@on_device()
def nvmlDeviceGetMemoryAffinity(device: Device, size: Any, array: Any, _scope: Any) -> None:
    _write_bits(array, size, 0 if device.spec.numa_node < 0 else 1 << device.spec.numa_node)


@on_device()
def nvmlDeviceGetVbiosVersion(device: Device, buffer: Any, length: Any) -> None:
    del device
    put_text(buffer, length, FIRMWARE)


@on_device()
def nvmlDeviceGetInforomVersion(device: Device, part: Any, buffer: Any, length: Any) -> None:
    wanted = number(part)
    if wanted not in range(INFOROM_PARTS):
        raise NvmlError(codes.INVALID_ARGUMENT)
    device.need(wanted in INFOROM_OBJECTS)
    put_text(buffer, length, INFOROM_OBJECTS[wanted])


@on_device()
def nvmlDeviceGetInforomImageVersion(device: Device, buffer: Any, length: Any) -> None:
    del device
    put_text(buffer, length, INFOROM_IMAGE)


@on_device()
def nvmlDeviceGetBoardPartNumber(device: Device, buffer: Any, length: Any) -> None:
    put_text(buffer, length, f"900-2{device.product.device_id:04X}-0000-000")


@on_device()
def nvmlDeviceGetBoardId(device: Device, board: Any) -> None:
    put(board, device.spec.pci.bus << 8)


@on_device()
def nvmlDeviceGetMultiGpuBoard(device: Device, multi: Any) -> None:
    del device
    put(multi, 0)


@on_device()
def nvmlDeviceGetPersistenceMode(device: Device, mode: Any) -> None:
    put(mode, int(device.state.persistence))


@on_device()
def nvmlDeviceSetPersistenceMode(device: Device, mode: Any) -> None:
    from msgspec.structs import replace

    wanted = _switch(mode)
    device.session.simulation.change_gpu(device.index, lambda gpu, _: replace(gpu, persistence=wanted))


def _switch(mode: Any) -> bool:
    wanted = number(mode)
    if wanted not in (0, 1):
        raise NvmlError(codes.INVALID_ARGUMENT)
    return wanted == 1


@on_device()
def nvmlDeviceGetDisplayMode(device: Device, mode: Any) -> None:
    del device
    put(mode, 0)


@on_device()
def nvmlDeviceGetDisplayActive(device: Device, mode: Any) -> None:
    del device
    put(mode, 0)


@on_device()
def nvmlDeviceGetVirtualizationMode(device: Device, mode: Any) -> None:
    del device
    put(mode, 0)


@on_device()
def nvmlDeviceGetGridLicensableFeatures_v4(device: Device, features: Any) -> None:
    """Report no licensable features: the board needs no licence."""
    del device
    put_fields(features, isGridLicenseSupported=0, licensableFeaturesCount=0)


@on_device()
def nvmlDeviceGetComputeMode(device: Device, mode: Any) -> None:
    put(mode, device.state.compute_mode)


@on_device()
def nvmlDeviceSetComputeMode(device: Device, mode: Any) -> None:
    from msgspec.structs import replace

    wanted = number(mode)
    if wanted == 1:  # EXCLUSIVE_THREAD is gone
        raise NvmlError(codes.NOT_SUPPORTED)
    if wanted not in (0, 2, 3):
        raise NvmlError(codes.INVALID_ARGUMENT)
    device.refuse_mig_mode()
    device.change(lambda gpu, _: replace(gpu, compute_mode=wanted))
