"""Open faults as DCGM's health watches: the worst of each counts, and what nothing is known against passes."""

import pytest

from agent.health.states import Fault, FaultKind
from agent.health.xids import XIDS, FaultClass
from agent.telemetry.fields import CLOCK_EVENTS
from agent.telemetry.healthwatch import _XIDS, FAIL, FINE, WARN, WATCHES, Finding, findings


def fault(kind: FaultKind, fault_class: FaultClass = FaultClass.RESET, code: int = 0) -> Fault:
    return Fault(kind=kind, fault_class=fault_class, since_s=0, last_s=0, cause="", source="", code=code)


def test_a_gpu_without_a_fault_passes_everywhere() -> None:
    assert findings((), 0) == dict.fromkeys(WATCHES, FINE)


@pytest.mark.parametrize(
    ("opened", "watch", "finding"),
    [
        (fault(FaultKind.XID, code=48), "MEM", Finding(FAIL, "DCGM_FR_VOLATILE_DBE_DETECTED")),
        (fault(FaultKind.XID, FaultClass.CONTAINED, 63), "MEM", Finding(WARN, "DCGM_FR_PENDING_ROW_REMAP")),
        (fault(FaultKind.XID, FaultClass.REPLACE, 64), "MEM", Finding(FAIL, "DCGM_FR_ROW_REMAP_FAILURE")),
        (fault(FaultKind.XID, code=74), "NVLINK", Finding(FAIL, "DCGM_FR_NVLINK_ERROR_CRITICAL")),
        (fault(FaultKind.NVLINK, FaultClass.DEGRADED), "NVLINK", Finding(WARN, "DCGM_FR_NVLINK_DOWN")),
        (fault(FaultKind.LOST), "PCIE", Finding(FAIL, "DCGM_FR_XID_ERROR")),
        (fault(FaultKind.XID, code=119), "MCU", Finding(FAIL, "DCGM_FR_XID_ERROR")),
        (fault(FaultKind.XID, FaultClass.DEGRADED, 125), "INFOROM", Finding(WARN, "DCGM_FR_CORRUPT_INFOROM")),
        (fault(FaultKind.XID, code=9999), "DRIVER", Finding(FAIL, "DCGM_FR_XID_ERROR")),
        (fault(FaultKind.PROBE), "DRIVER", Finding(FAIL, "DCGM_FR_NVML_API")),
    ],
)
def test_a_fault_is_found_by_its_watch_and_by_no_other(opened: Fault, watch: str, finding: Finding) -> None:
    assert findings([opened], 0) == {**dict.fromkeys(WATCHES, FINE), watch: finding}


def test_the_worst_of_a_watch_counts() -> None:
    both = [fault(FaultKind.XID, code=48), fault(FaultKind.REMAP_PENDING, FaultClass.CONTAINED)]
    for opened in (both, both[::-1]):
        assert findings(opened, 0)["MEM"] == Finding(FAIL, "DCGM_FR_VOLATILE_DBE_DETECTED")


def test_heat_and_a_power_brake_are_warnings_and_the_drivers_own_power_cap_is_none() -> None:
    found = findings((), CLOCK_EVENTS["hw_thermal"] | CLOCK_EVENTS["hw_power_brake"])
    assert (found["THERMAL"].code, found["POWER"].code) == (
        "DCGM_FR_CLOCK_THROTTLE_THERMAL",
        "DCGM_FR_CLOCK_THROTTLE_POWER",
    )
    assert findings((), CLOCK_EVENTS["power_cap"] | CLOCK_EVENTS["gpu_idle"])["POWER"] == FINE


def test_every_kind_of_fault_and_every_xid_of_the_table_has_a_watch_that_exists() -> None:
    for kind in FaultKind:
        for code in (0, *XIDS):
            found = findings([fault(kind, code=code)], 0)
            assert sum(one != FINE for one in found.values()) == 1
            assert set(found) == set(WATCHES)
    assert set(_XIDS) <= XIDS.keys()
