"""Memory: sizes, ECC counters, remapped rows and retired pages."""

from typing import Any

from simulator.nvml import codes
from simulator.nvml.arguments import check_version, number, put, put_fields, put_list, target
from simulator.nvml.codes import NvmlError
from simulator.nvml.session import Device, alias, on_device

MIB = 2**20

MEMORY_V2 = 0x02000028
SRAM_STATUS_V1 = 0x1000068

CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
LOCATION_DRAM = 2
LOCATIONS = 8
LOCATIONS_ON_INSTANCE = (1, 7)
"""The places where a MIG device has counters of its own (uncorrected, volatile): L2 and SRAM."""

ROW_BANKS = 640
"""The number of banks in the row remapper's histogram on an HBM board."""


def memory_mib(device: Device) -> tuple[int, int, int]:
    """The total, reserved and used MiB of a GPU or a MIG device."""
    used = round(device.memory_used_mib())
    if device.is_mig:
        total = device.profile.memory_mib
        return total, 0, min(used, total)
    total, reserved = device.spec.memory_mib, device.product.reserved_mib
    return total, reserved, min(used, total - reserved)


@on_device("own")
def nvmlDeviceGetMemoryInfo(device: Device, info: Any) -> None:
    total, reserved, used = memory_mib(device)
    put_fields(info, total=total * MIB, used=(used + reserved) * MIB, free=(total - reserved - used) * MIB)


@on_device("own")
def nvmlDeviceGetMemoryInfo_v2(device: Device, info: Any) -> None:
    check_version(info, MEMORY_V2)
    total, reserved, used = memory_mib(device)
    put_fields(info, total=total * MIB, reserved=reserved * MIB, used=used * MIB, free=(total - reserved - used) * MIB)


@on_device()
def nvmlDeviceGetBAR1MemoryInfo(device: Device, info: Any) -> None:
    total = 1 << (device.spec.memory_mib - 1).bit_length()
    put_fields(info, bar1Total=total * MIB, bar1Used=MIB, bar1Free=(total - 1) * MIB)


@on_device()
def nvmlDeviceGetEccMode(device: Device, current: Any, pending: Any) -> None:
    del device
    put(current, 1)
    put(pending, 1)


@on_device()
def nvmlDeviceGetDefaultEccMode(device: Device, mode: Any) -> None:
    del device
    put(mode, 1)


def ecc_count(device: Device, kind: int, counter: int) -> int:
    """A total of nvmlDeviceGetTotalEccErrors; a MIG device has only its volatile, uncorrected one."""
    if kind not in (CORRECTED, UNCORRECTED) or counter not in (VOLATILE, AGGREGATE):
        raise NvmlError(codes.INVALID_ARGUMENT)
    if device.gi is not None:
        device.need((kind, counter) == (UNCORRECTED, VOLATILE))
        return device.state.instance_ecc.get(device.gi.id, 0)
    ecc = device.state.ecc
    if counter == VOLATILE:
        return ecc.volatile_uncorrected if kind == UNCORRECTED else ecc.volatile_corrected
    return ecc.aggregate_uncorrected if kind == UNCORRECTED else ecc.aggregate_corrected


@on_device("own")
def nvmlDeviceGetTotalEccErrors(device: Device, kind: Any, counter: Any, count: Any) -> None:
    put(count, ecc_count(device, number(kind), number(counter)))


@on_device("own")
def nvmlDeviceGetMemoryErrorCounter(device: Device, kind: Any, counter: Any, location: Any, count: Any) -> None:
    where = number(location)
    if where not in range(LOCATIONS):
        raise NvmlError(codes.INVALID_ARGUMENT)
    if device.gi is not None:
        device.need(where in LOCATIONS_ON_INSTANCE)
    total = ecc_count(device, number(kind), number(counter))
    put(count, total if where == LOCATION_DRAM or device.gi is not None else 0)


@on_device()
def nvmlDeviceGetDetailedEccErrors(device: Device, kind: Any, counter: Any, counts: Any) -> None:
    total = ecc_count(device, number(kind), number(counter))
    put_fields(counts, l1Cache=0, l2Cache=0, deviceMemory=total, registerFile=0)


@on_device()
def nvmlDeviceGetSramEccErrorStatus(device: Device, status: Any) -> None:
    check_version(status, SRAM_STATUS_V1)
    device.need(device.product.architecture.row_remapper)
    put_fields(status, aggregateUncParity=0, aggregateUncSecDed=0, aggregateCor=0, bThresholdExceeded=0)


@on_device()
def nvmlDeviceClearEccErrorCounts(device: Device, counter: Any) -> None:
    from msgspec.structs import replace

    from simulator.hardware.hardware import EccCounts

    kind = number(counter)
    if kind == VOLATILE:
        device.change(lambda gpu, _: replace(gpu, ecc=_without_volatile(gpu.ecc), instance_ecc={}))
    elif kind == AGGREGATE:
        device.change(lambda gpu, _: replace(gpu, ecc=EccCounts(), instance_ecc={}))
    else:
        raise NvmlError(codes.INVALID_ARGUMENT)


def _without_volatile(ecc: Any) -> Any:
    from msgspec.structs import replace

    return replace(ecc, volatile_corrected=0, volatile_uncorrected=0)


@on_device()
def nvmlDeviceGetRemappedRows(device: Device, correctable: Any, uncorrectable: Any, pending: Any, failure: Any) -> None:
    device.need(device.product.architecture.row_remapper)
    remap = device.state.remap
    put(correctable, remap.correctable)
    put(uncorrectable, remap.uncorrectable)
    put(pending, int(remap.pending > 0))
    put(failure, int(remap.failure))


@on_device()
def nvmlDeviceGetRemappedRows_v2(device: Device, info: Any) -> None:
    device.need(device.product.architecture.row_remapper)
    remap = device.state.remap
    put_fields(
        info,
        corrActiveRemaps=remap.correctable,
        uncActiveRemaps=remap.uncorrectable,
        corrInactiveRemaps=0,
        uncInactiveRemaps=0,
        bPending=int(remap.pending > 0),
        bfailureOccurred=int(remap.failure),
    )


@on_device()
def nvmlDeviceGetRowRemapperHistogram(device: Device, values: Any) -> None:
    device.need(device.product.architecture.row_remapper)
    remap = device.state.remap
    used = remap.correctable + remap.uncorrectable
    failed = int(remap.failure)
    high = min(used, ROW_BANKS - failed)
    put_fields(values, max=ROW_BANKS - high - failed, high=high, partial=0, low=0, none=failed)


def _retired(device: Device, cause: int) -> list[int]:
    """The addresses of retired pages (boards without a row remapper): one for each uncorrectable remapping."""
    device.need(not device.product.architecture.row_remapper)
    count = device.state.remap.uncorrectable if cause == 1 else device.state.remap.correctable
    return [0x10000 * (i + 1) for i in range(count)]


@on_device()
def nvmlDeviceGetRetiredPages(device: Device, cause: Any, count: Any, pages: Any) -> None:
    found = _retired(device, number(cause))
    put_list(count, pages, found, _write_number, ask=codes.INSUFFICIENT_SIZE)


@on_device()
def nvmlDeviceGetRetiredPages_v2(device: Device, cause: Any, count: Any, pages: Any, times: Any = None) -> None:
    found = _retired(device, number(cause))
    put_list(count, pages, found, _write_number, ask=codes.INSUFFICIENT_SIZE)
    for i in range(len(found) if times is not None else 0):
        target(times)[i] = 0


def _write_number(array: Any, i: int, value: int) -> None:
    array[i] = value


@on_device()
def nvmlDeviceGetRetiredPagesPendingStatus(device: Device, pending: Any) -> None:
    device.need(not device.product.architecture.row_remapper)
    put(pending, int(device.state.remap.pending > 0))


alias("nvmlDeviceGetRetiredPages_v1", "nvmlDeviceGetRetiredPages")
