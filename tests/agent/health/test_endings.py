"""What ends a state in which a device is not handed out is told with it."""

import pytest

from agent.health.endings import ends_when
from agent.health.events import (
    BootChanged,
    Event,
    ProbeFailed,
    ProbeOk,
    ProbeReason,
    RecoveryAction,
    ResetObserved,
    XidSeen,
)
from agent.health.machine import HealthCore
from agent.health.settings import HealthSettings
from agent.health.xids import FaultClass
from inventory.devices import GpuUuid
from tests.support.inventory.builders import gpu, node, uuid

GPU = GpuUuid(uuid(0))
SETTINGS = HealthSettings(probation_s=7.0, clean_probes=2, unknown_xids=FaultClass.REPLACE)


def core(*events: Event) -> HealthCore:
    found = HealthCore(SETTINGS)
    found.discovered(node([gpu(0)]).gpus, 1.0)
    for second, event in enumerate(events, 2):
        found.apply(event, float(second))
    return found


def silent() -> ProbeFailed:
    return ProbeFailed(GPU, reason=ProbeReason.TIMEOUT)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((), ""),
        ((XidSeen(GPU, 94),), ""),
        ((XidSeen(GPU, 79),), "the GPU is reset or the node rebooted"),
        ((XidSeen(GPU, 151),), "the node is rebooted"),
        ((XidSeen(GPU, 999),), "the board is replaced"),
        ((XidSeen(GPU, 79), XidSeen(GPU, 46)), "the GPU is reset or the node rebooted"),
        ((XidSeen(GPU, 79), XidSeen(GPU, 151)), "the node is rebooted and the GPU is reset or the node rebooted"),
        ((RecoveryAction(GPU, 1),), "the driver asks for no recovery action"),
        ((silent(), silent(), silent()), "it answers again"),
        ((XidSeen(GPU, 79), ResetObserved(GPU)), "it has done well for 7 s and 2 probes"),
    ],
)
def test_by_the_faults_that_keep_it_out(events: tuple[Event, ...], told: str) -> None:
    assert ends_when(core(*events).state(GPU), SETTINGS) == told


@pytest.mark.parametrize(
    ("fault", "end"),
    [(XidSeen(GPU, 79), ResetObserved(GPU)), (XidSeen(GPU, 151), BootChanged()), (silent(), ProbeOk(GPU))],
)
def test_what_is_told_is_what_ends_it(fault: Event, end: Event) -> None:
    found = core(fault, fault, fault)
    assert not found.state(GPU).advertised_healthy
    found.apply(end, 9.0)
    assert ends_when(found.state(GPU), SETTINGS) == "it has done well for 7 s and 2 probes"
