"""Figures that few export, each asked of NVML only where it is wanted: limits, banks, the fabric, NVLink 5, C2C."""

from collections.abc import Iterator
from ctypes import byref
from typing import Any
from uuid import UUID

import pynvml

from agent.hardware.query import figure
from agent.telemetry.fields import (
    BANKS,
    FABRIC_CLIQUE,
    FABRIC_CLUSTER,
    FABRIC_ERROR,
    FABRIC_HEALTH,
    FABRIC_STATUS,
    FURTHER_VALUES,
    LINK_COUNTS,
)
from agent.telemetry.reading.readings import Texts, Values
from agent.telemetry.reading.values import field_value

LEAST_LIMIT = "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN"
GREATEST_LIMIT = "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX"
FABRIC = frozenset({FABRIC_STATUS, FABRIC_ERROR, FABRIC_CLIQUE, FABRIC_CLUSTER, FABRIC_HEALTH})
FAILED = 4
"""DCGM's value for a fabric that is done with an error: NVML has a state and an error."""


def read(handle: Any, links: list[int], wanted: frozenset[str]) -> tuple[Values, Texts]:
    """The figures in ``wanted`` that the board gives; ``links`` are its NVLinks. Raises GpuLost, DriverUnavailable."""
    values = {**dict(_values(handle, links, wanted)), **dict(_limits(handle, wanted)), **dict(_banks(handle, wanted))}
    fabric, texts = _fabric(handle) if wanted & FABRIC else ({}, {})
    return {**values, **fabric}, texts


def _values(handle: Any, links: list[int], wanted: frozenset[str]) -> Iterator[tuple[str, float]]:
    single = [(number, 0) for number, name in FURTHER_VALUES.items() if name in wanted]
    by_link = [(number, link) for number, (name, _) in LINK_COUNTS.items() if name in wanted for link in links]
    asked = [*single, *by_link]
    answers = figure(pynvml.nvmlDeviceGetFieldValues, handle, asked) if asked else None
    if answers is None:
        return
    sums: dict[int, float] = {}
    for i, (number, _) in enumerate(asked):
        value = field_value(answers[i])
        if value is not None:
            sums[number] = sums.get(number, 0.0) + value
    for number, total in sums.items():
        yield FURTHER_VALUES.get(number) or LINK_COUNTS[number][0], total


def _limits(handle: Any, wanted: frozenset[str]) -> Iterator[tuple[str, float]]:
    if wanted.isdisjoint((LEAST_LIMIT, GREATEST_LIMIT)):
        return
    limits = figure(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
    if limits is not None:
        yield LEAST_LIMIT, limits[0] / 1000
        yield GREATEST_LIMIT, limits[1] / 1000


def _banks(handle: Any, wanted: frozenset[str]) -> Iterator[tuple[str, float]]:
    if not any(name.startswith(BANKS) for name in wanted):
        return
    banks = figure(pynvml.nvmlDeviceGetRowRemapperHistogram, handle)
    if banks is not None:
        for word in ("max", "high", "partial", "low", "none"):
            yield f"{BANKS}{word.upper()}", float(getattr(banks, word))


def _fabric(handle: Any) -> tuple[Values, Texts]:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    info.version = pynvml.nvmlGpuFabricInfo_v2
    if figure(pynvml.nvmlDeviceGetGpuFabricInfoV, handle, byref(info)) is None:
        return {}, {}
    done = info.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    values = {FABRIC_STATUS: float(FAILED if done and info.status else info.state)}
    if not done:
        return values, {}
    values |= {FABRIC_ERROR: float(info.status), FABRIC_CLIQUE: float(info.cliqueId)}
    values[FABRIC_HEALTH] = float(info.healthMask)
    cluster = bytes(info.clusterUuid)
    return values, {FABRIC_CLUSTER: str(UUID(bytes=cluster))} if any(cluster) else {}
