"""One pass over one GPU: reads everything that is exported about it, in one go, on the GPU's own thread.

A figure that the board, its mode or its driver does not give is left out; only a GPU or a driver that is gone ends the
pass. Numbers that NVML uses for "not available" never get past this module.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from agent.hardware.migs import mig_handles
from agent.hardware.query import figure, text
from agent.telemetry.fields import (
    CLOCK_REASONS,
    CRC_DATA,
    CRC_FLIT,
    DEC_UTIL,
    ENC_UTIL,
    FIELD_VALUES,
    GPM_METRICS,
    GPU_UTIL,
    LINK_COUNTERS,
    LINK_FIELDS,
    MEM_COPY_UTIL,
    NVLINK_BANDWIDTH,
    POWER,
    RECOVERY,
    REPLAY,
    RETIRED_DBE,
    RETIRED_PENDING,
    RETIRED_SBE,
)
from agent.telemetry.reading import further, processes
from agent.telemetry.reading.gpm import GpmReader
from agent.telemetry.reading.readings import GpuReading, InstanceReading, Texts, Values
from agent.telemetry.reading.values import BLANK_64, field_value, number
from inventory.devices import Gpu

MIB = 1 << 20
WHOLE_PERCENT = 100
ALL_LINKS = 0xFFFFFFFF
NVML_VERSION = "DCGM_FI_NVML_VERSION"
NVLINK_TX_KIB, NVLINK_RX_KIB, NVLINK_STATE = 138, 139, 165

_SINGLE: tuple[tuple[str, Callable[..., Any], tuple[int, ...], float], ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", pynvml.nvmlDeviceGetClockInfo, (pynvml.NVML_CLOCK_SM,), 1),
    ("DCGM_FI_DEV_MEM_CLOCK", pynvml.nvmlDeviceGetClockInfo, (pynvml.NVML_CLOCK_MEM,), 1),
    ("DCGM_FI_DEV_VIDEO_CLOCK", pynvml.nvmlDeviceGetClockInfo, (pynvml.NVML_CLOCK_VIDEO,), 1),
    ("DCGM_FI_DEV_MAX_SM_CLOCK", pynvml.nvmlDeviceGetMaxClockInfo, (pynvml.NVML_CLOCK_SM,), 1),
    ("DCGM_FI_DEV_MAX_MEM_CLOCK", pynvml.nvmlDeviceGetMaxClockInfo, (pynvml.NVML_CLOCK_MEM,), 1),
    ("DCGM_FI_DEV_GPU_TEMP", pynvml.nvmlDeviceGetTemperature, (pynvml.NVML_TEMPERATURE_GPU,), 1),
    ("DCGM_FI_DEV_SHUTDOWN_TEMP", pynvml.nvmlDeviceGetTemperatureThreshold, (0,), 1),
    ("DCGM_FI_DEV_SLOWDOWN_TEMP", pynvml.nvmlDeviceGetTemperatureThreshold, (1,), 1),
    ("DCGM_FI_DEV_MEM_MAX_OP_TEMP", pynvml.nvmlDeviceGetTemperatureThreshold, (2,), 1),
    ("DCGM_FI_DEV_GPU_MAX_OP_TEMP", pynvml.nvmlDeviceGetTemperatureThreshold, (3,), 1),
    (POWER, pynvml.nvmlDeviceGetPowerUsage, (), 0.001),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", pynvml.nvmlDeviceGetPowerManagementLimit, (), 0.001),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", pynvml.nvmlDeviceGetPowerManagementDefaultLimit, (), 0.001),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", pynvml.nvmlDeviceGetEnforcedPowerLimit, (), 0.001),
    ("DCGM_FI_DEV_PCIE_TX_THROUGHPUT", pynvml.nvmlDeviceGetPcieThroughput, (pynvml.NVML_PCIE_UTIL_TX_BYTES,), 1),
    ("DCGM_FI_DEV_PCIE_RX_THROUGHPUT", pynvml.nvmlDeviceGetPcieThroughput, (pynvml.NVML_PCIE_UTIL_RX_BYTES,), 1),
    ("DCGM_FI_DEV_PCIE_LINK_GEN", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, (), 1),
    ("DCGM_FI_DEV_PCIE_LINK_WIDTH", pynvml.nvmlDeviceGetCurrPcieLinkWidth, (), 1),
    ("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", pynvml.nvmlDeviceGetMaxPcieLinkGeneration, (), 1),
    ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", pynvml.nvmlDeviceGetMaxPcieLinkWidth, (), 1),
    ("DCGM_FI_DEV_FAN_SPEED", pynvml.nvmlDeviceGetFanSpeed, (), 1),
    ("DCGM_FI_DEV_PSTATE", pynvml.nvmlDeviceGetPerformanceState, (), 1),
    ("DCGM_FI_DEV_COMPUTE_MODE", pynvml.nvmlDeviceGetComputeMode, (), 1),
    ("DCGM_FI_DEV_PERSISTENCE_MODE", pynvml.nvmlDeviceGetPersistenceMode, (), 1),
    (CLOCK_REASONS, pynvml.nvmlDeviceGetCurrentClocksEventReasons, (), 1),
)
"""The NVML function, its arguments after the handle and the factor for each field."""


LINK_ERRORS = frozenset({CRC_FLIT, CRC_DATA, REPLAY, RECOVERY})
RETIRED = frozenset({RETIRED_SBE, RETIRED_DBE, RETIRED_PENDING})

_TEXTS: tuple[tuple[str, Callable[..., Any], tuple[int, ...]], ...] = (
    ("DCGM_FI_DEV_VBIOS_VERSION", pynvml.nvmlDeviceGetVbiosVersion, ()),
    ("DCGM_FI_DEV_OEM_INFOROM_VER", pynvml.nvmlDeviceGetInforomVersion, (pynvml.NVML_INFOROM_OEM,)),
    ("DCGM_FI_DEV_ECC_INFOROM_VER", pynvml.nvmlDeviceGetInforomVersion, (pynvml.NVML_INFOROM_ECC,)),
    ("DCGM_FI_DEV_POWER_INFOROM_VER", pynvml.nvmlDeviceGetInforomVersion, (pynvml.NVML_INFOROM_POWER,)),
    ("DCGM_FI_DEV_INFOROM_IMAGE_VER", pynvml.nvmlDeviceGetInforomImageVersion, ()),
)
"""The NVML function and its arguments after the handle for each label. The values do not change under a running
driver.
"""


class GpuReader:
    """The state that one pass over a GPU leaves for the next. Read and written on that GPU's thread alone, except for
    ``wanted``.
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = wanted
        """The names of the single figures to ask for: a figure that is not exported costs no call. ``Sampler``
        replaces the set before each pass, on the event loop: a pass that hangs reads the one or the other.
        """
        self._gpm = GpmReader()
        self._session = -1
        self._seen_us = 0
        self._passed = False
        self._texts: dict[str, str | None] = {}

    def read(self, handle: Any, gpu: Gpu, session: int, now_s: float) -> GpuReading:
        """Read the GPU once. ``session`` counts NVML sessions: samples of an older one are of no use.

        Raises GpuLost, DriverUnavailable.
        """
        if session != self._session:
            self._gpm.clear()
            self._session, self._seen_us, self._passed = session, 0, False
            self._texts.clear()
        first, self._passed = not self._passed, True
        values = self._singles(handle)
        values.update(_rates(handle))
        links = [link.link for link in gpu.nvlinks if link.known]
        found, links_up = _field_values(handle, links)
        values.update(_traffic(handle, [link for link in links if f"{NVLINK_BANDWIDTH}{link}" in self.wanted]))
        values.update(found)
        values.update(_link_errors(handle, links, (LINK_ERRORS & self.wanted) - values.keys()))
        values.update(_retired(handle, (RETIRED & self.wanted) - values.keys()))
        values.update(_memory(handle))
        if "DCGM_FI_DEV_VGPU_LICENSE_STATUS" in self.wanted:
            values.update(_licence(handle))
        if any(name.startswith("DCGM_FI_DEV_BAR1_") for name in self.wanted):
            values.update(_bar1(handle))
        more, texts = further.read(handle, links, self.wanted)
        values.update(more)
        self._gpm.want(self.wanted & GPM_METRICS.keys())
        instances = self._instances(handle, gpu, now_s) if gpu.mig_enabled else ()
        if gpu.mig_capable:
            values["DCGM_FI_DEV_MIG_MODE"] = float(gpu.mig_enabled)
        values.update(self._gpm.read(handle, None, now_s))
        samples = processes.read_samples(handle, self._seen_us)
        if samples is not None:
            self._seen_us = samples.newest_us
        return GpuReading(
            uuid=gpu.uuid,
            at_s=now_s,
            values=values,
            instances=instances,
            processes=processes.read(handle, samples),
            processes_sampled=samples is not None,
            links=len(links) if links_up is not None else 0,
            links_up=links_up or 0,
            first=first,
            texts={**self._labels(handle), **texts},
        )

    def close(self) -> None:
        """Give NVML its buffers back."""
        self._gpm.clear()

    def _singles(self, handle: Any) -> Values:
        values: Values = {}
        for name, function, args, factor in _SINGLE:
            if name in self.wanted:
                value = number(figure(function, handle, *args))
                if value is not None:
                    values[name] = value * factor
        if CLOCK_REASONS in values:
            values["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] = values[CLOCK_REASONS]
        return values

    def _labels(self, handle: Any) -> Texts:
        for name, function, args in _TEXTS:
            if name in self.wanted and name not in self._texts:
                self._texts[name] = _text(figure(function, handle, *args))
        if NVML_VERSION in self.wanted and NVML_VERSION not in self._texts:
            self._texts[NVML_VERSION] = _text(figure(pynvml.nvmlSystemGetNVMLVersion))
        return {name: found for name, found in self._texts.items() if found}

    def _instances(self, handle: Any, gpu: Gpu, now_s: float) -> tuple[InstanceReading, ...]:
        """One reading for each GPU instance that discovery knows and that is still there."""
        known = {mig.index: mig.gi_id for mig in gpu.mig_instances}
        by_instance: dict[int, InstanceReading] = {}
        for index, mig in mig_handles(handle):
            gi_id = known.get(index)
            if gi_id is None or gi_id in by_instance or figure(pynvml.nvmlDeviceGetGpuInstanceId, mig) != gi_id:
                continue
            by_instance[gi_id] = InstanceReading(gi_id, {**_memory(mig), **self._gpm.read(handle, gi_id, now_s)})
        self._gpm.keep(set(by_instance))
        return tuple(by_instance.values())


def _text(value: Any) -> str | None:
    return None if value is None else text(value)


def _rates(handle: Any) -> Iterator[tuple[str, float]]:
    rates = figure(pynvml.nvmlDeviceGetUtilizationRates, handle)
    busy = [] if rates is None else [(GPU_UTIL, rates.gpu), (MEM_COPY_UTIL, rates.memory)]
    for name, function in (
        (ENC_UTIL, pynvml.nvmlDeviceGetEncoderUtilization),
        (DEC_UTIL, pynvml.nvmlDeviceGetDecoderUtilization),
    ):
        engine = figure(function, handle)
        if engine is not None:
            busy.append((name, engine[0]))
    for name, percent in busy:
        if 0 <= percent <= WHOLE_PERCENT:
            yield name, float(percent)


def _memory(handle: Any) -> Values:
    """The framebuffer figures of a GPU or a MIG device, MiB."""
    values: Values = {}
    memory = figure(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    reserved = 0
    if memory is not None:
        reserved = memory.reserved
        values["DCGM_FI_DEV_FB_RESERVED"] = reserved / MIB
    else:
        memory = figure(pynvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is not None and memory.total < BLANK_64:
        values["DCGM_FI_DEV_FB_TOTAL"] = memory.total / MIB
        values["DCGM_FI_DEV_FB_FREE"] = memory.free / MIB
        values["DCGM_FI_DEV_FB_USED"] = memory.used / MIB
        if memory.total > reserved:
            values["DCGM_FI_DEV_FB_USED_PERCENT"] = memory.used / (memory.total - reserved)
    return values


def _bar1(handle: Any) -> Values:
    bar1 = figure(pynvml.nvmlDeviceGetBAR1MemoryInfo, handle)
    if bar1 is None or bar1.bar1Total >= BLANK_64:
        return {}
    return {
        "DCGM_FI_DEV_BAR1_TOTAL": bar1.bar1Total / MIB,
        "DCGM_FI_DEV_BAR1_USED": bar1.bar1Used / MIB,
        "DCGM_FI_DEV_BAR1_FREE": bar1.bar1Free / MIB,
    }


def _licence(handle: Any) -> Values:
    features = figure(pynvml.nvmlDeviceGetGridLicensableFeatures_v4, handle)
    if features is None:
        return {}
    count = features.licensableFeaturesCount if features.isGridLicenseSupported else 0
    states = [features.gridLicensableFeatures[i].featureState for i in range(min(count, 3))]
    return {"DCGM_FI_DEV_VGPU_LICENSE_STATUS": float(max(states, default=0))}


def _field_values(handle: Any, links: list[int]) -> tuple[Values, int | None]:
    """All field values, read in one call, and how many of ``links`` are up (None where the driver does not say)."""
    states = [(NVLINK_STATE, link) for link in links]
    traffic = [(NVLINK_TX_KIB, ALL_LINKS), (NVLINK_RX_KIB, ALL_LINKS)] if links else []
    asked = [*((field, 0) for field in FIELD_VALUES), *traffic, *states]
    answers = figure(pynvml.nvmlDeviceGetFieldValues, handle, asked)
    if answers is None:
        return {}, None
    got = [field_value(answers[i]) for i in range(len(asked))]
    values: Values = {}
    for (name, factor), value in zip(FIELD_VALUES.values(), got, strict=False):
        if value is not None:
            values[name] = value * factor
    parts = got[len(FIELD_VALUES) : len(FIELD_VALUES) + len(traffic)]
    if parts and None not in parts:
        values["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"] = math.fsum(part for part in parts if part is not None)
    up = [value for value in got[len(FIELD_VALUES) + len(traffic) :] if value is not None]
    return values, sum(value == 1 for value in up) if up else None


def _traffic(handle: Any, links: list[int]) -> Values:
    """The traffic of each of these links, KiB. This is a call of its own, made only where these figures are
    exported.
    """
    asked = [(way, link) for link in links for way in (NVLINK_TX_KIB, NVLINK_RX_KIB)]
    answers = figure(pynvml.nvmlDeviceGetFieldValues, handle, asked) if asked else None
    if answers is None:
        return {}
    values: Values = {}
    for i, link in enumerate(links):
        sent, received = field_value(answers[2 * i]), field_value(answers[2 * i + 1])
        if sent is not None and received is not None:
            values[f"{NVLINK_BANDWIDTH}{link}"] = sent + received
    return values


def _link_errors(handle: Any, links: list[int], lacking: frozenset[str]) -> Values:
    """Sums over the links of the figures of which the board has no total: by field values, else by the older
    counters.
    """
    values: Values = {}
    fields = {field: name for field, name in LINK_FIELDS.items() if name in lacking}
    asked = [(field, link) for field in fields for link in links]
    answers = figure(pynvml.nvmlDeviceGetFieldValues, handle, asked) if asked else None
    for answer, (field, _) in zip(answers or (), asked, strict=False):
        value = field_value(answer)
        if value is not None:
            values[fields[field]] = values.get(fields[field], 0.0) + value
    for counter, name in LINK_COUNTERS.items():
        if name in lacking and name not in values:
            counts = [figure(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, counter) for link in links]
            known = [float(count) for count in counts if count is not None and count < BLANK_64]
            if known:
                values[name] = math.fsum(known)
    return values


def _retired(handle: Any, lacking: frozenset[str]) -> Values:
    """Retired pages, counted where the board has no field for them."""
    values: Values = {}
    causes = (
        (RETIRED_SBE, pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
        (RETIRED_DBE, pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
    )
    for name, cause in causes:
        pages = figure(pynvml.nvmlDeviceGetRetiredPages, handle, cause) if name in lacking else None
        if pages is not None:
            values[name] = float(len(pages))
    pending = figure(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle) if RETIRED_PENDING in lacking else None
    if pending is not None:
        values[RETIRED_PENDING] = float(pending)
    return values
