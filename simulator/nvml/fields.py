"""Field values: many figures in one call, each with its own return code."""

import time
from collections.abc import Callable
from typing import Any

from simulator.boards.boards import NVLINK_MBPS
from simulator.boards.telemetry import MEMORY_OVER_GPU_C
from simulator.nvml import codes
from simulator.nvml.arguments import number, target
from simulator.nvml.codes import NvmlError
from simulator.nvml.links import active_links, is_active, link_end
from simulator.nvml.memory import AGGREGATE, CORRECTED, UNCORRECTED, VOLATILE, ecc_count
from simulator.nvml.sensors import violation_ns
from simulator.nvml.session import Device, on_device

ALL_LINKS = 0xFFFFFFFF
TYPE_UINT = 1
TYPE_ULONG_LONG = 3
TYPE_INT = 5
MEMBERS = {TYPE_UINT: "uiVal", TYPE_ULONG_LONG: "ullVal", TYPE_INT: "siVal"}

FIRST_WITH_TLIMIT = 9
LAST_WITH_CRC_COUNTERS = 8
MOST_FIELDS = 4096

Field = Callable[[Device, int], int]
"""A function from the device and the scope to a field's value; its NvmlError is the field's own return code."""


def _pre_ampere(value: Callable[[Device], int]) -> Field:
    def field(device: Device, _: int) -> int:
        device.need(not device.product.architecture.row_remapper)
        return value(device)

    return field


def _remapped(value: Callable[[Device], int]) -> Field:
    def field(device: Device, _: int) -> int:
        device.need(device.product.architecture.row_remapper)
        return value(device)

    return field


def _linked(value: Callable[[Device], int]) -> Field:
    def field(device: Device, _: int) -> int:
        device.need(device.spec.links)
        return value(device)

    return field


def _crc(value: Callable[[Device], int]) -> Field:
    """A field for an error total that Hopper no longer has."""

    def field(device: Device, _: int) -> int:
        device.need(device.spec.links and device.product.architecture.number <= LAST_WITH_CRC_COUNTERS)
        return value(device)

    return field


def _on_link(value: Callable[[Device], int]) -> Field:
    """A field for a count of one link; the first link has all of it."""

    def field(device: Device, scope: int) -> int:
        link_end(device, scope)
        return value(device) if scope == 0 else 0

    return field


def _traffic(counter: str) -> Field:
    def field(device: Device, scope: int) -> int:
        device.need(device.spec.links)
        kib = float(getattr(device.meter, counter))
        if scope == ALL_LINKS:
            return round(kib)
        up = active_links(device)
        link_end(device, scope)
        return round(kib / len(up)) if scope in up else 0

    return field


def _power(device: Device, scope: int) -> int:
    device.need(scope == 0)
    return round(device.activity().power_w * 1000)


def _recovery(device: Device, _: int) -> int:
    return device.state.recovery


def _t_limit(celsius: int) -> Field:
    def field(device: Device, _: int) -> int:
        device.need(device.product.architecture.number >= FIRST_WITH_TLIMIT)
        return celsius

    return field


def _memory_temperature(device: Device, _: int) -> int:
    device.need(device.product.bus_width >= 2048)  # noqa: PLR2004 - HBM boards have the sensor
    return round(device.activity().temperature_c + MEMORY_OVER_GPU_C)


def _link_speed(device: Device, scope: int) -> int:
    link_end(device, scope)
    return NVLINK_MBPS[device.product.nvlink_version] if is_active(device, scope) else 0


def _link_version(device: Device, scope: int) -> int:
    link_end(device, scope)
    return device.product.nvlink_version


def _mig_capable(device: Device, _: int) -> int:
    return int(bool(device.product.mig))


UINT: dict[int, Field] = {
    1: lambda _d, _s: 1,
    2: lambda _d, _s: 1,
    29: _pre_ampere(lambda d: d.state.remap.correctable),
    30: _pre_ampere(lambda d: d.state.remap.uncorrectable),
    31: _pre_ampere(lambda d: int(d.state.remap.pending > 0)),
    82: _memory_temperature,
    90: _linked(lambda d: NVLINK_MBPS[d.product.nvlink_version]),
    91: _linked(lambda d: len(d.spec.links)),
    92: _pre_ampere(lambda _: 0),
    93: _pre_ampere(lambda d: int(d.state.remap.pending > 0)),
    94: lambda _d, _s: 0,
    95: lambda _d, _s: 0,
    142: _remapped(lambda d: d.state.remap.correctable),
    143: _remapped(lambda d: d.state.remap.uncorrectable),
    144: _remapped(lambda d: int(d.state.remap.pending > 0)),
    145: _remapped(lambda d: int(d.state.remap.failure)),
    147: _linked(lambda d: sum(d.spec.links[link].peer is None for link in active_links(d))),
    164: _link_speed,
    165: lambda d, s: int(is_active(d, s)),
    166: _link_version,
    184: lambda d, _: int(bool(d.product.mig) and not d.product.architecture.mig_mode_persists),
    185: _power,
    186: _power,
    187: lambda d, _: d.product.power_w[1] * 1000,
    188: lambda d, _: d.product.power_w[2] * 1000,
    189: lambda d, _: d.product.power_w[2] * 1000,
    190: lambda d, _: d.state.limit_w * 1000,
    192: lambda d, _: d.state.limit_w * 1000,
    199: _mig_capable,
    226: lambda d, _: int(d.state.recovery > 0),
    227: lambda _d, _s: 0,
    230: _recovery,
}

INT: dict[int, Field] = {193: _t_limit(-8), 194: _t_limit(-2), 195: _t_limit(0), 196: _t_limit(0)}

ULONG_LONG: dict[int, Field] = {
    3: lambda d, _: ecc_count(d, CORRECTED, VOLATILE),
    4: lambda d, _: ecc_count(d, UNCORRECTED, VOLATILE),
    5: lambda d, _: ecc_count(d, CORRECTED, AGGREGATE),
    6: lambda d, _: ecc_count(d, UNCORRECTED, AGGREGATE),
    38: _crc(lambda _: 0),
    45: _crc(lambda _: 0),
    52: _crc(lambda d: d.state.nvlink_errors),
    59: _crc(lambda _: 0),
    74: lambda d, _: violation_ns(d, 0),
    75: lambda d, _: violation_ns(d, 1),
    76: lambda d, _: violation_ns(d, 2),
    77: lambda d, _: violation_ns(d, 3),
    78: lambda d, _: violation_ns(d, 4),
    79: lambda d, _: violation_ns(d, 5),
    80: lambda d, _: violation_ns(d, 10),
    81: lambda d, _: violation_ns(d, 11),
    83: lambda d, _: round(d.meter.energy_mj),
    138: _traffic("nvlink_tx_kib"),
    139: _traffic("nvlink_rx_kib"),
    140: _traffic("nvlink_tx_kib"),
    141: _traffic("nvlink_rx_kib"),
    161: _on_link(lambda d: d.state.nvlink_errors),
    162: _on_link(lambda _: 0),
    163: _on_link(lambda _: 0),
    191: lambda d, _: round(d.meter.energy_mj),
    197: lambda d, _: round(d.meter.pcie_tx_kib * 1024),
    198: lambda d, _: round(d.meter.pcie_rx_kib * 1024),
}

FIELDS: dict[int, tuple[int, Field]] = {
    **{i: (TYPE_UINT, field) for i, field in UINT.items()},
    **{i: (TYPE_INT, field) for i, field in INT.items()},
    **{i: (TYPE_ULONG_LONG, field) for i, field in ULONG_LONG.items()},
}
"""Value type and reader of every field that is simulated; any other is NOT_SUPPORTED in its own return code."""


@on_device()
def nvmlDeviceGetFieldValues(device: Device, count: Any, values: Any) -> None:
    size = number(count)
    if not 0 < size <= MOST_FIELDS:
        raise NvmlError(codes.INVALID_ARGUMENT)
    array = target(values)
    for i in range(size):
        _read_field(device, array[i])


def _read_field(device: Device, value: Any) -> None:
    kind, field = FIELDS.get(value.fieldId, (TYPE_UINT, _unknown))
    value.timestamp = int(time.time() * 1e6)
    value.latencyUsec = 0
    try:
        reading = field(device, value.scopeId)
    except NvmlError as error:
        value.nvmlReturn = error.code
        return
    value.nvmlReturn = codes.SUCCESS
    value.valueType = kind
    setattr(value.value, MEMBERS[kind], reading)


def _unknown(_device: Device, _scope: int) -> int:
    raise NvmlError(codes.NOT_SUPPORTED)


@on_device()
def nvmlDeviceClearFieldValues(device: Device, count: Any, values: Any) -> None:
    del device
    array = target(values)
    for i in range(number(count)):
        array[i].nvmlReturn = codes.NOT_SUPPORTED
