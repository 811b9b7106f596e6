"""One bad program on 1,000 nodes fences nothing: XIDs of applications take no GPU out and start no repair."""

from agent.health.events import XidSeen
from agent.health.machine import HealthCore
from agent.health.remediation import Remediation, ResetMode, wanted
from agent.health.repairs import RepairCore
from agent.health.states import HealthState
from agent.health.xids import XIDS, FaultClass
from inventory.devices import Gpu, GpuUuid

NODES, GPUS, TIMES = 1000, 8, 3


def node(number: int) -> list[Gpu]:
    return [
        Gpu(
            uuid=GpuUuid(f"GPU-{number}-{index}"),
            index=index,
            minor=index,
            product="x",
            pci_bus_id=f"0000:0{index}:00.0",
            memory_mib=1,
        )
        for index in range(GPUS)
    ]


def test_a_storm_of_application_xids_over_a_thousand_nodes_fences_nothing() -> None:
    xids = sorted(xid for xid, row in XIDS.items() if row.fault_class is FaultClass.APPLICATION)
    assert len(xids) > 3
    for number in range(NODES):
        health, gpus = HealthCore(), node(number)
        health.discovered(gpus, 0.0)
        repairs = RepairCore(Remediation(reset=ResetMode.DRAIN), by_grant=True)
        for now_s in map(float, range(TIMES)):
            for gpu in gpus:
                health.apply(XidSeen(gpu.uuid, xids[(number + gpu.index + int(now_s)) % len(xids)]), now_s)
                want = wanted(health.faults(gpu.uuid), told=True, now_s=now_s)
                assert repairs.judged(gpu.uuid, want, health.state(gpu.uuid).state, now_s) == ()
        assert all(health.state(gpu.uuid).state is HealthState.HEALTHY for gpu in gpus)
        assert (repairs.repairs(), dict(repairs.withheld())) == ((), {})
