"""GPU performance monitoring (Hopper and newer): samples, and metrics between two of them.

A sample is a moment on the hardware's clock and a scope (GPU, or one GPU instance); a metric is the mean of the loads
between two samples.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from msgspec import Struct

from simulator.boards import telemetry
from simulator.boards.loads import breakpoints
from simulator.boards.telemetry import Activity
from simulator.nvml import codes
from simulator.nvml.arguments import (
    Handle,
    HandleKind,
    check_version,
    number,
    put,
    put_fields,
    put_handle,
    target,
    unpack,
)
from simulator.nvml.codes import NvmlError
from simulator.nvml.links import active_links
from simulator.nvml.session import Device, Session, on_device, on_system

VERSION = 1
MOST_METRICS = 477
PERCENT = 100.0
FIRST_LINK_METRIC = 62
LINK_METRICS = 36
"""The number of metrics from 62 to 97: receive and transmit rate of links 0 to 17."""

OCCUPANCY = 0.6
PIPES = {4: 0.15, 7: 1.0, 11: 0.02, 12: 0.25, 13: 0.1}
"""The parts of SM (or, for 7, tensor) activity that the single pipes get."""


class Sample(Struct, frozen=True):
    """A GPM sample; ``gpu`` None while it has not been taken."""

    gpu: int | None = None
    epoch: int = 0
    gi: int | None = None
    t: float = 0.0


def _sample(session: Session, argument: Any) -> tuple[int, Sample]:
    handle = unpack(argument)
    sample = session.samples.get(handle.serial) if handle.kind == HandleKind.GPM_SAMPLE else None
    if not isinstance(sample, Sample):
        raise NvmlError(codes.INVALID_ARGUMENT)
    return handle.serial, sample


@on_device()
def nvmlGpmQueryDeviceSupport(device: Device, support: Any) -> None:
    check_version(support, VERSION)
    put_fields(support, isSupportedDevice=int(device.product.architecture.gpm))


@on_system
def nvmlGpmSampleAlloc(session: Session, handle: Any) -> None:
    serial = session.next_serial()
    target(handle)
    session.samples[serial] = Sample()
    put_handle(handle, Handle(HandleKind.GPM_SAMPLE, serial=serial))


@on_system
def nvmlGpmSampleFree(session: Session, argument: Any) -> None:
    serial, _ = _sample(session, argument)
    session.samples.pop(serial, None)


@on_device()
def nvmlGpmSampleGet(device: Device, argument: Any) -> None:
    device.need(device.product.architecture.gpm)
    serial, _ = _sample(device.session, argument)
    device.session.samples[serial] = Sample(gpu=device.index, epoch=device.state.epoch, t=device.t)


@on_device()
def nvmlGpmMigSampleGet(device: Device, gi_id: Any, argument: Any) -> None:
    device.need(device.product.architecture.gpm)
    gi = device.state.mig.instance(number(gi_id))
    if gi is None:
        raise NvmlError(codes.INVALID_ARGUMENT)
    serial, _ = _sample(device.session, argument)
    device.session.samples[serial] = Sample(gpu=device.index, epoch=device.state.epoch, gi=gi.id, t=device.t)


@on_device()
def nvmlGpmQueryIfStreamingEnabled(device: Device, state: Any) -> None:
    device.need(device.product.architecture.gpm)
    put(state, 0)


@on_system
def nvmlGpmMetricsGet(session: Session, request: Any) -> None:
    check_version(request, VERSION)
    struct = target(request)
    _, first = _sample(session, struct.sample1)
    _, second = _sample(session, struct.sample2)
    if first.gpu is None or (first.gpu, first.epoch, first.gi) != (second.gpu, second.epoch, second.gi):
        raise NvmlError(codes.INVALID_ARGUMENT)
    if struct.numMetrics > MOST_METRICS:
        raise NvmlError(codes.INVALID_ARGUMENT)
    device = Device(session, Handle(HandleKind.GPU, first.gpu, first.epoch))
    mean = _mean(device, first, second)
    for i in range(struct.numMetrics):
        metric = struct.metrics[i]
        try:
            metric.value = _metric(device, metric.metricId, mean)
            metric.nvmlReturn = codes.SUCCESS
        except NvmlError as error:
            metric.nvmlReturn = error.code


Mean = Callable[[str], float]


def _mean(device: Device, first: Sample, second: Sample) -> Mean:
    """The mean of an Activity field between two samples; NaN where no time has passed."""
    start, end = first.t, second.t
    loads = tuple(load for load in device.state.loads if first.gi is None or load.gi == first.gi)
    if end <= start:
        return lambda _: math.nan
    moments = breakpoints(loads, start, end)
    states: list[Activity] = [
        telemetry.activity(loads, device.product, device.state.limit_w, moment) for moment in moments
    ]

    def mean(field: str) -> float:
        pairs = pairwise(zip(moments, states, strict=True))
        total = sum((getattr(a, field) + getattr(b, field)) / 2 * (t1 - t0) for (t0, a), (t1, b) in pairs)
        return float(total) / (end - start)

    return mean


_SIMPLE: dict[int, tuple[str, float]] = {
    1: ("sm", PERCENT),
    2: ("sm", PERCENT),
    3: ("sm", PERCENT * OCCUPANCY),
    4: ("sm", PERCENT * PIPES[4]),
    5: ("tensor", PERCENT),
    6: ("tensor", 0.0),
    7: ("tensor", PERCENT * PIPES[7]),
    8: ("tensor", 0.0),
    9: ("tensor", 0.0),
    10: ("memory", PERCENT),
    11: ("sm", PERCENT * PIPES[11]),
    12: ("sm", PERCENT * PIPES[12]),
    13: ("sm", PERCENT * PIPES[13]),
    20: ("pcie_tx_mib_s", 1.0),
    21: ("pcie_rx_mib_s", 1.0),
    60: ("nvlink_rx_mib_s", 1.0),
    61: ("nvlink_tx_mib_s", 1.0),
    **dict.fromkeys(range(30, 38), ("decoder", PERCENT)),
    **dict.fromkeys(range(40, 48), ("jpeg", PERCENT)),
    **dict.fromkeys(range(50, 52), ("ofa", PERCENT)),
}
"""The Activity field and the factor of each metric id. Rates are in MiB/s, the rest in percent."""


def _metric(device: Device, metric_id: int, mean: Mean) -> float:
    if metric_id in _SIMPLE:
        field, factor = _SIMPLE[metric_id]
        return mean(field) * factor
    link, transmit = divmod(metric_id - FIRST_LINK_METRIC, 2)
    if metric_id < FIRST_LINK_METRIC or metric_id >= FIRST_LINK_METRIC + LINK_METRICS:
        raise NvmlError(codes.NOT_SUPPORTED)
    up = active_links(device)
    device.need(link < len(device.spec.links))
    return mean("nvlink_tx_mib_s" if transmit else "nvlink_rx_mib_s") / len(up) if link in up else 0.0
