"""Turns NVML's numbers into figures; its ways to say "no value" become None."""

import math
from typing import Any

import pynvml

BLANK = 0x7FFFFFF0
BLANK_64 = 0x7FFFFFFFFFFFFFF0
"""The smallest of the 64-bit numbers by which DCGM says "no value" and the like; NVML's own are all ones."""

_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_NARROW = frozenset({1, 5, 6})


def number(value: Any) -> float | None:
    """A figure of at most 32 bits; None for NVML's and DCGM's ways to say that there is none."""
    if value is None or not math.isfinite(value) or value >= BLANK:
        return None
    return float(value)


def field_value(answer: Any) -> float | None:
    """The figure in one of nvmlDeviceGetFieldValues' answers; None where it has none."""
    if answer.nvmlReturn != pynvml.NVML_SUCCESS or answer.valueType not in _MEMBERS:
        return None
    value = getattr(answer.value, _MEMBERS[answer.valueType])
    if answer.valueType in _NARROW:
        return number(value)
    return float(value) if math.isfinite(value) and value < BLANK_64 else None
