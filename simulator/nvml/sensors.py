"""A board's measurements: utilisation, power and energy, temperatures, clocks and the reasons that hold them down."""

import time
from typing import Any

from simulator.nvml import codes
from simulator.nvml.arguments import check_version, number, put, put_fields, put_list, target
from simulator.nvml.codes import NvmlError
from simulator.nvml.session import Device, alias, on_device

PERCENT = 100
SAMPLING_US = 167_000

TEMPERATURE_V1 = 0x100000C
MARGIN_V1 = 0x1000008
THRESHOLDS_C = {0: 95, 1: 92, 2: 98, 3: 88}
"""NVML_TEMPERATURE_THRESHOLD_* (shutdown, slowdown, memory, GPU) of every board."""

IDLE_CLOCK_MHZ = 345
CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO = range(4)
VIDEO_SHARE = 0.92

REASON_IDLE = 0x1
REASONS = 0x1FF

PSTATE_ACTIVE = 0
PSTATE_IDLE = 8
HBM_BUS_WIDTH = 2048

POLICY_REASONS = {0: (2,), 1: (5, 6), 2: (4,), 3: (), 4: (0,), 5: (), 10: (), 11: ()}
"""The bits of the clock event reasons whose time each NVML_PERF_POLICY_* counts."""

FIRST_WITH_JPEG = 7
FIRST_WITH_OFA = 6


@on_device()
def nvmlDeviceGetUtilizationRates(device: Device, rates: Any) -> None:
    device.refuse_mig_mode()
    activity = device.activity()
    put_fields(rates, gpu=round(activity.sm * PERCENT), memory=round(activity.memory * PERCENT))


def _put_engine(device: Device, share: float, percent: Any, period: Any) -> None:
    device.refuse_mig_mode()
    put(percent, round(share * PERCENT))
    put(period, SAMPLING_US)


@on_device()
def nvmlDeviceGetEncoderUtilization(device: Device, percent: Any, period: Any) -> None:
    _put_engine(device, device.activity().encoder, percent, period)


@on_device()
def nvmlDeviceGetDecoderUtilization(device: Device, percent: Any, period: Any) -> None:
    _put_engine(device, device.activity().decoder, percent, period)


@on_device()
def nvmlDeviceGetJpgUtilization(device: Device, percent: Any, period: Any) -> None:
    device.need(device.product.architecture.number >= FIRST_WITH_JPEG)
    _put_engine(device, device.activity().jpeg, percent, period)


@on_device()
def nvmlDeviceGetOfaUtilization(device: Device, percent: Any, period: Any) -> None:
    device.need(device.product.architecture.number >= FIRST_WITH_OFA)
    _put_engine(device, device.activity().ofa, percent, period)


@on_device()
def nvmlDeviceGetPowerUsage(device: Device, milliwatts: Any) -> None:
    put(milliwatts, round(device.activity().power_w * 1000))


@on_device()
def nvmlDeviceGetTotalEnergyConsumption(device: Device, millijoules: Any) -> None:
    put(millijoules, round(device.meter.energy_mj))


@on_device()
def nvmlDeviceGetPowerManagementMode(device: Device, mode: Any) -> None:
    del device
    put(mode, 1)


@on_device()
def nvmlDeviceGetPowerManagementLimit(device: Device, milliwatts: Any) -> None:
    put(milliwatts, device.state.limit_w * 1000)


alias("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit")


@on_device()
def nvmlDeviceGetPowerManagementDefaultLimit(device: Device, milliwatts: Any) -> None:
    put(milliwatts, device.product.power_w[2] * 1000)


@on_device()
def nvmlDeviceGetPowerManagementLimitConstraints(device: Device, least: Any, most: Any) -> None:
    put(least, device.product.power_w[1] * 1000)
    put(most, device.product.power_w[2] * 1000)


@on_device()
def nvmlDeviceSetPowerManagementLimit(device: Device, milliwatts: Any) -> None:
    from msgspec.structs import replace

    watts = number(milliwatts) // 1000
    _, least, most = device.product.power_w
    if not least <= watts <= most:
        raise NvmlError(codes.INVALID_ARGUMENT)
    device.change(lambda gpu, t: replace(gpu, meter=gpu.read_meter(t), power_limit_w=watts))


@on_device()
def nvmlDeviceGetTemperature(device: Device, sensor: Any, celsius: Any) -> None:
    if number(sensor) != 0:
        raise NvmlError(codes.INVALID_ARGUMENT)
    put(celsius, round(device.activity().temperature_c))


@on_device()
def nvmlDeviceGetTemperatureV(device: Device, info: Any) -> None:
    check_version(info, TEMPERATURE_V1)
    if target(info).sensorType != 0:
        raise NvmlError(codes.INVALID_ARGUMENT)
    put_fields(info, temperature=round(device.activity().temperature_c))


@on_device()
def nvmlDeviceGetTemperatureThreshold(device: Device, threshold: Any, celsius: Any) -> None:
    wanted = number(threshold)
    device.need(wanted in THRESHOLDS_C)
    put(celsius, THRESHOLDS_C[wanted])


@on_device()
def nvmlDeviceGetMarginTemperature(device: Device, info: Any) -> None:
    check_version(info, MARGIN_V1)
    put_fields(info, marginTemperature=THRESHOLDS_C[1] - round(device.activity().temperature_c))


@on_device()
def nvmlDeviceGetNumFans(device: Device, fans: Any) -> None:
    put(fans, device.product.fans)


@on_device()
def nvmlDeviceGetFanSpeed(device: Device, percent: Any) -> None:
    device.need(device.product.fans)
    put(percent, 30 + round(device.activity().sm * 50))


@on_device()
def nvmlDeviceGetFanSpeed_v2(device: Device, fan: Any, percent: Any) -> None:
    device.need(device.product.fans)
    if number(fan) >= device.product.fans:
        raise NvmlError(codes.INVALID_ARGUMENT)
    put(percent, 30 + round(device.activity().sm * 50))


def _greatest_clock(device: Device, kind: int) -> int:
    sm, memory = device.product.clocks_mhz
    if kind not in range(4):
        raise NvmlError(codes.INVALID_ARGUMENT)
    return {CLOCK_MEMORY: memory, CLOCK_VIDEO: round(sm * VIDEO_SHARE)}.get(kind, sm)


def _clock(device: Device, kind: int) -> int:
    greatest = _greatest_clock(device, kind)
    if kind == CLOCK_MEMORY and device.product.bus_width >= HBM_BUS_WIDTH:
        return greatest
    return greatest if _busy(device) else IDLE_CLOCK_MHZ


def _busy(device: Device) -> bool:
    return device.activity().sm > 0


@on_device()
def nvmlDeviceGetClockInfo(device: Device, kind: Any, mhz: Any) -> None:
    put(mhz, _clock(device, number(kind)))


@on_device()
def nvmlDeviceGetClock(device: Device, kind: Any, which: Any, mhz: Any) -> None:
    wanted = number(which)
    if wanted not in range(4):
        raise NvmlError(codes.INVALID_ARGUMENT)
    put(mhz, _greatest_clock(device, number(kind)) if wanted else _clock(device, number(kind)))


@on_device()
def nvmlDeviceGetMaxClockInfo(device: Device, kind: Any, mhz: Any) -> None:
    put(mhz, _greatest_clock(device, number(kind)))


alias("nvmlDeviceGetMaxCustomerBoostClock", "nvmlDeviceGetMaxClockInfo")
alias("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetMaxClockInfo")
alias("nvmlDeviceGetDefaultApplicationsClock", "nvmlDeviceGetMaxClockInfo")


def _write_number(array: Any, i: int, value: int) -> None:
    array[i] = value


@on_device()
def nvmlDeviceGetSupportedMemoryClocks(device: Device, count: Any, clocks: Any) -> None:
    put_list(count, clocks, [device.product.clocks_mhz[1]], _write_number, ask=codes.INSUFFICIENT_SIZE)


@on_device()
def nvmlDeviceGetSupportedGraphicsClocks(device: Device, memory_mhz: Any, count: Any, clocks: Any) -> None:
    if number(memory_mhz) != device.product.clocks_mhz[1]:
        raise NvmlError(codes.NOT_FOUND)
    steps = list(range(device.product.clocks_mhz[0], IDLE_CLOCK_MHZ, -15))
    put_list(count, clocks, steps, _write_number, ask=codes.INSUFFICIENT_SIZE)


@on_device()
def nvmlDeviceGetPerformanceState(device: Device, state: Any) -> None:
    active = _busy(device) or device.product.bus_width >= HBM_BUS_WIDTH
    put(state, PSTATE_ACTIVE if active else PSTATE_IDLE)


alias("nvmlDeviceGetPowerState", "nvmlDeviceGetPerformanceState")


@on_device()
def nvmlDeviceGetCurrentClocksEventReasons(device: Device, reasons: Any) -> None:
    put(reasons, device.activity().throttle if _busy(device) else REASON_IDLE)


alias("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetCurrentClocksEventReasons")


@on_device()
def nvmlDeviceGetSupportedClocksEventReasons(device: Device, reasons: Any) -> None:
    del device
    put(reasons, REASONS)


alias("nvmlDeviceGetSupportedClocksThrottleReasons", "nvmlDeviceGetSupportedClocksEventReasons")


def violation_ns(device: Device, policy: int) -> int:
    """The time in nanoseconds that a policy has held the clocks down since the last reset."""
    throttle = device.meter.throttle_ns
    return round(sum(throttle.get(bit, 0.0) for bit in POLICY_REASONS[policy]))


@on_device()
def nvmlDeviceGetViolationStatus(device: Device, policy: Any, status: Any) -> None:
    wanted = number(policy)
    if wanted not in POLICY_REASONS:
        raise NvmlError(codes.INVALID_ARGUMENT)
    put_fields(status, referenceTime=round(time.time() * 1e6), violationTime=violation_ns(device, wanted))
