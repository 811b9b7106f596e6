"""Health as taints: which fault keeps new pods away, and which sends those that run elsewhere."""

import pytest

from agent.dra.publishing.devices import Taint
from agent.dra.publishing.taints import MAX_TAINTS, taints
from agent.health.states import DeviceHealth, Fault, FaultKind, HealthState
from agent.health.xids import FaultClass


def fault(kind: FaultKind, code: int = 0, fault_class: FaultClass = FaultClass.RESET) -> Fault:
    return Fault(kind=kind, fault_class=fault_class, since_s=0, last_s=0, cause="", source="", code=code)


def unhealthy(*faults: Fault, state: HealthState = HealthState.UNHEALTHY) -> DeviceHealth:
    return DeviceHealth(state=state, since_s=0, faults=faults)


@pytest.mark.parametrize(
    ("health", "found"),
    [
        (unhealthy(state=HealthState.HEALTHY), ()),
        (unhealthy(fault(FaultKind.XID, 94, FaultClass.CONTAINED), state=HealthState.SUSPECT), ()),
        (unhealthy(fault(FaultKind.XID, 48)), (Taint("gpu.nvidia.com/xid", "48", "NoSchedule"),)),
        (unhealthy(fault(FaultKind.LOST)), (Taint("gpu.nvidia.com/gpu-lost", "", "NoExecute"),)),
        (unhealthy(fault(FaultKind.REMOVED)), (Taint("gpu.nvidia.com/gpu-lost", "", "NoExecute"),)),
        (unhealthy(fault(FaultKind.ECC)), (Taint("tessera.dev/unhealthy", "EccUncorrected", "NoSchedule"),)),
        (unhealthy(state=HealthState.PROBATION), (Taint("tessera.dev/unhealthy", "Probation", "NoSchedule"),)),
        (
            unhealthy(fault(FaultKind.XID, 79), fault(FaultKind.XID, 94, FaultClass.CONTAINED), fault(FaultKind.LOST)),
            (Taint("gpu.nvidia.com/xid", "79", "NoSchedule"), Taint("gpu.nvidia.com/gpu-lost", "", "NoExecute")),
        ),
    ],
)
def test_each_fault_that_blocks_is_a_taint(health: DeviceHealth, found: tuple[Taint, ...]) -> None:
    assert taints(health, None) == found


def test_a_gpu_that_is_withheld_takes_no_new_pod_and_keeps_those_it_has() -> None:
    kept = Taint("tessera.dev/withheld", "", "NoSchedule")
    assert taints(unhealthy(state=HealthState.HEALTHY), "its layout is about to change") == (kept,)
    assert taints(unhealthy(fault(FaultKind.LOST)), "why")[-1] == kept


def test_no_more_taints_than_the_api_takes_and_each_once() -> None:
    many = [fault(FaultKind.XID, code) for code in (*range(100, 120), 100)]
    found = taints(unhealthy(*many), None)
    assert len(found) == len(set(found)) == MAX_TAINTS
