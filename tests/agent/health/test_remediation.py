"""Which repair faults call for: NVML's recovery action decides and whether the GPU answers, not the XID."""

import pytest
from msgspec import structs

from agent.health.events import ProbeFailed, ProbeOk, ProbeReason, RecoveryAction, RemapSample, XidSeen
from agent.health.losses import Losses
from agent.health.machine import HealthCore
from agent.health.remediation import UNANSWERED_S, Action, Want, unrepaired, wanted
from agent.words import repairs as words
from inventory.devices import Gpu, GpuUuid

GPU = GpuUuid("GPU-a")


def core() -> HealthCore:
    health = HealthCore()
    health.discovered([Gpu(uuid=GPU, index=0, minor=0, product="x", pci_bus_id="0000:01:00.0", memory_mib=1)], 0.0)
    return health


def want(health: HealthCore, *, told: bool | None = True, now_s: float = 1.0) -> Want:
    return wanted(health.faults(GPU), told=told, now_s=now_s)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (1, Action.RESET),
        (2, Action.REBOOT),
        (3, Action.NONE),
        (4, Action.RESET),
        (5, Action.NONE),
        (6, Action.REBOOT),
        (7, Action.REBOOT),
        (99, Action.NONE),
    ],
)
def test_the_recovery_action_decides(action: int, expected: Action) -> None:
    health = core()
    health.apply(XidSeen(GPU, 119), 1.0)
    health.apply(RecoveryAction(GPU, action), 1.0)
    assert want(health).action is expected


@pytest.mark.parametrize(
    ("xid", "action", "stopped", "expected"),
    [
        (119, 1, False, ""),
        (119, 3, False, words.unrepaired_no_reset()),
        (119, 99, False, words.unrepaired_no_reset()),
        (64, 0, False, words.unrepaired_replace()),
        (119, 1, True, words.unrepaired_stopped()),
        (94, 0, True, ""),
    ],
    ids=["due", "drain-p2p", "newer", "replace", "stopped", "contained"],
)
def test_why_a_gpu_that_is_out_is_not_repaired(xid: int, action: int, stopped: bool, expected: str) -> None:
    health = core()
    health.apply(XidSeen(GPU, xid), 1.0)
    health.apply(RecoveryAction(GPU, action), 1.0)
    assert unrepaired(health.faults(GPU), want(health), stopped=stopped, looked_s=1.0) == expected


def test_nothing_is_said_before_a_probe_has_told_what_the_driver_asks_for_after_the_fault() -> None:
    health = core()
    health.apply(RecoveryAction(GPU, 0), 1.0)
    health.apply(XidSeen(GPU, 119), 2.0)
    assert unrepaired(health.faults(GPU), want(health), stopped=False, looked_s=1.0) == ""
    assert unrepaired(health.faults(GPU), want(health), stopped=False, looked_s=2.5) == words.unrepaired_no_reset()


def test_nothing_is_said_of_a_gpu_that_has_gone_or_is_silent_for_now() -> None:
    assert unrepaired((), Want(), stopped=True, looked_s=1.0) == ""
    health = core()
    health.discovered([], 1.0)
    assert unrepaired(health.faults(GPU), want(health), stopped=False, looked_s=1.0) == ""
    health = core()
    for _ in range(3):
        health.apply(ProbeFailed(gpu=GPU, reason=ProbeReason.TIMEOUT, detail="late"), 1.0)
    assert unrepaired(health.faults(GPU), want(health), stopped=False, looked_s=1.0) == "", "a reboot will be wanted"


def test_a_driver_that_asks_for_nothing_has_nothing_done() -> None:
    health = core()
    health.apply(XidSeen(GPU, 119), 1.0)
    assert want(health, told=True).action is Action.NONE
    assert want(health, told=None).action is Action.NONE, "it may be about to tell"


@pytest.mark.parametrize(("xid", "expected"), [(119, Action.RESET), (151, Action.REBOOT), (64, Action.NONE)])
def test_without_the_field_the_class_decides(xid: int, expected: Action) -> None:
    health = core()
    health.apply(XidSeen(GPU, xid), 1.0)
    assert want(health, told=False).action is expected


@pytest.mark.parametrize("told", [True, False, None])
def test_a_lost_gpu_is_never_reset(told: bool | None) -> None:
    health = core()
    health.apply(XidSeen(GPU, 79), 1.0)
    health.apply(RecoveryAction(GPU, 1), 1.0)
    health.apply(ProbeFailed(GPU, reason=ProbeReason.LOST), 1.0)
    found = want(health, told=told)
    assert (found.action, found.reason) == (Action.REBOOT, "Xid79")


def test_a_lost_gpu_that_may_have_been_taken_out_wants_nothing_for_a_minute() -> None:
    health = core()
    health.apply(ProbeFailed(GPU, reason=ProbeReason.LOST), 2.0)

    def at(now_s: float) -> Want:
        return wanted(health.faults(GPU), told=True, now_s=now_s, there=False)

    assert (at(3.0).action, at(3.0).due_s) == (Action.NONE, 2.0 + UNANSWERED_S)
    assert at(2.0 + UNANSWERED_S).action is Action.REBOOT
    health.discovered([], 4.0)
    assert at(1000.0) == Want(absent=True)


@pytest.mark.parametrize(("xids", "reason"), [((95, 79), "Xid79"), ((95,), "GpuLost")])
def test_a_reboot_for_a_loss_names_the_loss_and_no_fault_before_it(xids: tuple[int, ...], reason: str) -> None:
    health = core()
    for xid in xids:
        health.apply(XidSeen(GPU, xid), 1.0)
    health.apply(ProbeFailed(GPU, reason=ProbeReason.LOST), 2.0)
    found = want(health)
    assert (found.action, found.reason) == (Action.REBOOT, reason)
    assert "95" not in found.cause


def test_a_lost_gpu_is_there_once_a_later_discovery_has_listed_it_unread() -> None:
    losses = Losses()
    board = Gpu(uuid=GPU, index=0, minor=0, product="x", pci_bus_id="0000:01:00.0", memory_mib=1)
    unread = structs.replace(board, readable=False)
    assert losses.heard(GPU, 3), "the node is looked at again"
    assert not losses.heard(GPU, 3)
    losses.discovered([unread], 3)
    assert not losses.there(GPU), "that discovery had begun before"
    losses.discovered([unread], 4)
    assert losses.there(GPU)
    losses.validate()
    for found in ([], [board]):
        losses.over(GPU)
        losses.heard(GPU, 4)
        losses.discovered(found, 5)
        assert not losses.there(GPU)
        assert losses.heard(GPU, 5), "it is lost anew"


def test_a_silent_gpu_is_waited_for_and_never_reset() -> None:
    health = core()
    health.apply(RecoveryAction(GPU, 1), 1.0)
    for _ in range(3):
        health.apply(ProbeFailed(GPU, reason=ProbeReason.TIMEOUT), 2.0)
    found = want(health, now_s=2.0)
    assert (found.action, found.due_s) == (Action.NONE, 2.0 + UNANSWERED_S)
    assert want(health, now_s=2.0 + UNANSWERED_S).action is Action.REBOOT
    health.apply(ProbeOk(GPU), 3.0)
    assert want(health, now_s=100.0).action is Action.RESET


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 154, 109])
def test_the_programs_own_faults_want_nothing(xid: int) -> None:
    health = core()
    health.apply(XidSeen(GPU, xid), 1.0)
    assert want(health, told=False).action is Action.NONE


def test_a_board_that_is_to_be_replaced_is_not_reset() -> None:
    health = core()
    health.apply(RecoveryAction(GPU, 1), 1.0)
    health.apply(RemapSample(GPU, failure=True), 1.0)
    assert want(health).action is Action.NONE


def test_a_suspect_gpu_wants_nothing() -> None:
    health = core()
    health.apply(XidSeen(GPU, 94), 1.0)
    assert want(health, told=False).action is Action.NONE


@pytest.mark.parametrize("told", [True, False, None])
def test_a_board_that_is_gone_wants_nothing_whatever_was_wrong_with_it(told: bool | None) -> None:
    health = core()
    health.apply(ProbeFailed(GPU, reason=ProbeReason.LOST), 1.0)
    assert want(health, told=told).action is Action.REBOOT
    health.discovered([], 2.0)
    assert want(health, told=told) == Want(absent=True)
