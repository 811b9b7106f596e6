"""Open faults and clock event reasons as the health watches of DCGM, for ``DCGM_EXP_GPU_HEALTH_STATUS``. Pure.

Names, error codes and results are DCGM's (dcgm_structs.h, dcgm_errors.h). DCGM judges by checks of its own; the results
here are this agent's judgement of the same components: a watch without a known fault passes.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from agent.health.states import Fault, FaultKind
from agent.health.xids import FaultClass
from agent.telemetry.fields import CLOCK_EVENTS

PASS, WARN, FAIL = 0, 10, 20
WATCHES = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER")
OK = "DCGM_FR_OK"


class Finding(Struct, frozen=True, order=True):
    """The finding of one watch; ``result`` is PASS, WARN or FAIL."""

    result: int = PASS
    code: str = OK


FINE = Finding()

_XIDS: dict[int, tuple[str, str]] = {
    **dict.fromkeys((48, 140), ("MEM", "DCGM_FR_VOLATILE_DBE_DETECTED")),
    **dict.fromkeys((63, 156), ("MEM", "DCGM_FR_PENDING_ROW_REMAP")),
    **dict.fromkeys((64, 157), ("MEM", "DCGM_FR_ROW_REMAP_FAILURE")),
    92: ("MEM", "DCGM_FR_VOLATILE_SBE_DETECTED"),
    94: ("MEM", "DCGM_FR_VOLATILE_DBE_DETECTED"),
    95: ("MEM", "DCGM_FR_UNCONTAINED_ERROR"),
    **dict.fromkeys((57, 58), ("MEM", "DCGM_FR_XID_ERROR")),
    **dict.fromkeys((74, 136, 144, 145, 146, 149, 150, 155), ("NVLINK", "DCGM_FR_NVLINK_ERROR_CRITICAL")),
    **dict.fromkeys((79, 121), ("PCIE", "DCGM_FR_XID_ERROR")),
    **dict.fromkeys((61, 62, 122, 123, 124), ("PMU", "DCGM_FR_XID_ERROR")),
    **dict.fromkeys((119, 120), ("MCU", "DCGM_FR_XID_ERROR")),
    125: ("INFOROM", "DCGM_FR_CORRUPT_INFOROM"),
    54: ("POWER", "DCGM_FR_XID_ERROR"),
    46: ("SM", "DCGM_FR_XID_ERROR"),
}
_KINDS: dict[FaultKind, tuple[str, str]] = {
    FaultKind.LOST: ("PCIE", "DCGM_FR_XID_ERROR"),
    FaultKind.REMOVED: ("PCIE", "DCGM_FR_XID_ERROR"),
    FaultKind.UNREADABLE: ("DRIVER", "DCGM_FR_NVML_API"),
    FaultKind.PROBE: ("DRIVER", "DCGM_FR_NVML_API"),
    FaultKind.ECC: ("MEM", "DCGM_FR_VOLATILE_DBE_DETECTED"),
    FaultKind.REMAP_PENDING: ("MEM", "DCGM_FR_PENDING_ROW_REMAP"),
    FaultKind.REMAP_FAILURE: ("MEM", "DCGM_FR_ROW_REMAP_FAILURE"),
    FaultKind.NVLINK: ("NVLINK", "DCGM_FR_NVLINK_DOWN"),
}
_ELSE = ("DRIVER", "DCGM_FR_XID_ERROR")
_THERMAL = CLOCK_EVENTS["hw_thermal"] | CLOCK_EVENTS["sw_thermal"]
_POWER = CLOCK_EVENTS["hw_power_brake"]
"""The power reason that is a warning. The driver's own power cap is not one: every busy board reaches it."""


def findings(faults: Iterable[Fault], clock_reasons: int) -> Mapping[str, Finding]:
    """Every watch with its worst known fault. ``clock_reasons`` is NVML's bit mask; 0 where it is not read."""
    by_watch = dict.fromkeys(WATCHES, FINE)
    if clock_reasons & _THERMAL:
        by_watch["THERMAL"] = Finding(WARN, "DCGM_FR_CLOCK_THROTTLE_THERMAL")
    if clock_reasons & _POWER:
        by_watch["POWER"] = Finding(WARN, "DCGM_FR_CLOCK_THROTTLE_POWER")
    for fault in faults:
        watch, code = _XIDS.get(fault.code, _ELSE) if fault.kind is FaultKind.XID else _KINDS.get(fault.kind, _ELSE)
        by_watch[watch] = max(by_watch[watch], Finding(_result(fault.fault_class), code))
    return by_watch


def _result(fault_class: FaultClass) -> int:
    return WARN if fault_class in (FaultClass.CONTAINED, FaultClass.DEGRADED) else FAIL
