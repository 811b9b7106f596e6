"""The repair of a GPU goes step by step, in any order of faults, holders, hanging resets and deaths of the agent."""

import msgspec
import pytest

from agent.health.nextsteps import next_step
from agent.health.remediation import Action, Remediation, ResetMode, Want
from agent.health.repairs import BREAKER_WINDOW_S, RepairCore
from agent.health.repairstate import Order, RepairChange, RepairSnapshot, RepairState, ResetResult
from agent.health.states import HealthState
from agent.words import repairs as words
from inventory.devices import GpuUuid

A, B, C = GpuUuid("GPU-a"), GpuUuid("GPU-b"), GpuUuid("GPU-c")
ON = Remediation(reset=ResetMode.WHEN_FREE)
RESET = Want(action=Action.RESET, reason="Xid119", cause="XID 119", since_s=0.0)
REBOOT = Want(action=Action.REBOOT, reason="Xid79", cause="XID 79", since_s=0.0)
NOTHING = Want()
OUT, WELL, TRIAL = HealthState.UNHEALTHY, HealthState.HEALTHY, HealthState.PROBATION


def core(settings: Remediation = ON) -> RepairCore:
    return RepairCore(settings)


def state(repairs: RepairCore, gpu: GpuUuid = A) -> RepairState | None:
    repair = repairs.repair(gpu)
    return None if repair is None else repair.state


def failing(repairs: RepairCore, now_s: float, result: ResetResult = ResetResult.FAILED) -> None:
    repairs.begun(A, now_s)
    repairs.reset_ended(A, result, "why", now_s)


def test_the_whole_way_from_fault_to_return() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    assert state(repairs) is RepairState.DRAINING
    assert A in repairs.withheld()
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    assert state(repairs) is RepairState.VERIFYING
    repairs.verified(A, "", 4.0)
    assert state(repairs) is RepairState.PROBATION
    assert A not in repairs.withheld(), "the verdict's probation keeps it out, nothing else"
    assert repairs.judged(A, NOTHING, TRIAL, 5.0) == ()
    (change,) = repairs.judged(A, NOTHING, WELL, 15.0)
    assert (change.step, change.result, change.repair_s) == ("return", "returned", 15.0)
    assert repairs.repairs() == ()


def test_by_default_nothing_is_done() -> None:
    repairs = core(Remediation())
    assert repairs.judged(A, RESET, OUT, 1.0) == ()
    assert repairs.judged(B, REBOOT, OUT, 1.0) == ()
    assert (repairs.repairs(), repairs.candidates(2.0), dict(repairs.withheld())) == ((), (), {})


def test_a_reboot_is_wanted_at_once_and_never_a_reset() -> None:
    repairs = core()
    (change,) = repairs.judged(A, REBOOT, OUT, 1.0)
    assert (change.new, change.step, change.result) == (RepairState.REBOOT_WANTED, "reboot", "wanted")
    assert repairs.candidates(2.0) == ()


def test_a_gpu_that_is_lost_while_it_drains_wants_a_reboot() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.judged(A, REBOOT, OUT, 2.0)
    assert state(repairs) is RepairState.REBOOT_WANTED
    assert repairs.candidates(3.0) == ()


def test_the_last_attempt_that_fails_wants_a_reboot() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    failing(repairs, 2.0, ResetResult.HUNG)
    assert state(repairs) is RepairState.DRAINING
    repairs.begun(A, 3.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 4.0)
    repairs.verified(A, "a link is down", 5.0)
    assert state(repairs) is RepairState.REBOOT_WANTED


def test_a_gpu_that_was_found_wrong_does_not_return_because_it_has_no_fault() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    for at_s in (2.0, 12.0):
        repairs.begun(A, at_s)
        repairs.reset_ended(A, ResetResult.DONE, "", at_s + 1)
        repairs.reset_seen(A)
        repairs.verified(A, "a link is down", at_s + 2)
        assert repairs.judged(A, NOTHING, TRIAL, at_s + 3) == ()
        assert repairs.judged(A, NOTHING, WELL, at_s + 4) == ()
        assert A in repairs.withheld()
    assert state(repairs) is RepairState.REBOOT_WANTED
    repairs.reset_seen(A)
    repairs.judged(A, NOTHING, TRIAL, 30.0)
    assert state(repairs) is RepairState.VERIFYING, "a person has reset it: whether that helped is looked at"


def test_a_fault_that_returns_in_probation_is_another_attempt() -> None:
    repairs = core(Remediation(reset=ResetMode.WHEN_FREE, attempts=1))
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    repairs.verified(A, "", 4.0)
    repairs.judged(A, RESET, OUT, 5.0)
    assert state(repairs) is RepairState.REBOOT_WANTED


def test_a_reset_that_somebody_is_in_the_way_of_is_no_attempt() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    for at_s in range(2, 12):
        failing(repairs, float(at_s), ResetResult.BUSY)
    repair = repairs.repair(A)
    assert repair is not None
    assert (repair.state, repair.attempt) == (RepairState.DRAINING, 0)


def test_a_persons_reset_ends_what_had_not_begun() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    (change,) = repairs.judged(A, NOTHING, TRIAL, 2.0)
    assert (change.new, change.result) == (None, "cleared")


def test_a_persons_reset_in_the_middle_of_a_repair_does_not_turn_it_into_an_ordered_one() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.reset_seen(A)
    (change,) = repairs.judged(A, NOTHING, TRIAL, 2.0)
    assert (change.new, change.result) == (None, "cleared"), "no fault is left, and nobody has ordered a reset"
    assert repairs.candidates(3.0) == ()


def test_a_persons_reset_of_a_gpu_that_was_never_found_wrong_is_not_doubted_by_the_next() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.reset_seen(A)
    repairs.reset_seen(A)
    (change,) = repairs.judged(A, NOTHING, TRIAL, 2.0)
    assert (change.new, change.result) == (None, "cleared"), "none of our resets had found it wrong"


def test_a_persons_reset_of_a_gpu_that_was_found_wrong_leaves_a_verification_like_any_other() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    repairs.verified(A, "a link is down", 4.0)
    repairs.reset_seen(A)
    repairs.judged(A, NOTHING, TRIAL, 5.0)
    assert state(repairs) is RepairState.VERIFYING
    repairs.validate()
    repairs.verified(A, "", 6.0)
    repairs.validate()
    (change,) = repairs.judged(A, NOTHING, WELL, 7.0)
    assert (change.result, change.note) == ("returned", words.returned()), "its faults are gone: nobody has ordered it"


def test_a_persons_reset_or_reboot_ends_the_wish_for_one() -> None:
    repairs = core()
    repairs.judged(A, REBOOT, OUT, 1.0)
    assert repairs.judged(A, NOTHING, OUT, 2.0) == (), "another fault keeps it out"
    repairs.judged(A, NOTHING, TRIAL, 3.0)
    assert repairs.repairs() == ()


def test_the_same_fault_again_and_again_retires_until_a_person_says_otherwise() -> None:
    repairs = core(Remediation(reset=ResetMode.WHEN_FREE, retire_faults=3, retire_within_s=100.0))
    for at_s in (1.0, 11.0):
        repairs.judged(A, RESET, OUT, at_s)
        repairs.judged(A, NOTHING, TRIAL, at_s + 1)
    (change,) = repairs.judged(A, RESET, OUT, 21.0)
    assert (change.new, change.step) == (RepairState.RETIRED, "retire")
    assert repairs.judged(A, NOTHING, WELL, 22.0) == ()
    assert A in repairs.withheld(), "a healthy verdict does not bring it back"
    assert repairs.returned(B, 23.0) is None
    assert repairs.returned(A, 23.0) is not None
    repairs.judged(A, RESET, OUT, 24.0)
    assert state(repairs) is RepairState.DRAINING, "it is counted anew"


def test_other_faults_and_old_ones_do_not_count() -> None:
    repairs = core(Remediation(reset=ResetMode.WHEN_FREE, retire_faults=2, retire_within_s=100.0))
    other = Want(action=Action.RESET, reason="Xid95", cause="XID 95", since_s=0.0)
    for want, at_s in ((RESET, 1.0), (other, 11.0), (RESET, 102.0)):
        repairs.judged(A, want, OUT, at_s)
        assert state(repairs) is RepairState.DRAINING
        repairs.judged(A, NOTHING, TRIAL, at_s + 1)


def test_a_fault_that_stays_open_counts_once_however_often_never_comes_and_goes() -> None:
    on = Remediation(reset=ResetMode.WHEN_FREE, retire_faults=2, retire_within_s=100.0)
    repairs = core(on)
    repairs.judged(A, RESET, OUT, 1.0)
    for at_s in (2.0, 4.0, 6.0):
        repairs.reconfigured(Remediation(), at_s)
        assert not repairs.idle, "the end of the fault must be heard"
        repairs.judged(A, RESET, OUT, at_s)
        repairs = again(repairs, same_boot=True, settings=Remediation())
        repairs.reconfigured(on, at_s + 1)
        repairs.judged(A, RESET, OUT, at_s + 1)
        assert state(repairs) is RepairState.DRAINING
    assert repairs.snapshot().faults == {A: {"Xid119": (1.0,)}}
    repairs.reconfigured(Remediation(), 8.0)
    repairs.judged(A, NOTHING, TRIAL, 9.0)
    assert repairs.idle
    repairs.reconfigured(on, 10.0)
    repairs.judged(A, RESET, OUT, 11.0)
    assert state(repairs) is RepairState.RETIRED, "it had gone, and came a second time"


@pytest.mark.parametrize("before", [RESET, REBOOT], ids=["draining", "reboot wanted"])
def test_a_board_that_is_pulled_ends_its_repair_and_wants_no_reboot(before: Want) -> None:
    repairs = core()
    repairs.judged(A, before, OUT, 1.0)
    (change,) = repairs.judged(A, Want(absent=True), OUT, 2.0)
    assert (change.new, change.note) == (None, words.board_gone())
    assert repairs.judged(A, Want(absent=True), OUT, 3.0) == ()
    assert A not in repairs.withheld()


def test_a_board_that_was_found_wrong_is_remembered_as_that_while_it_is_away() -> None:
    repairs = core(Remediation(reset=ResetMode.WHEN_FREE, attempts=1))
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    repairs.verified(A, "4 links are missing", 4.0)
    assert repairs.judged(A, Want(absent=True), OUT, 5.0) == ()
    assert state(repairs) is RepairState.REBOOT_WANTED


def test_a_gpu_that_could_not_be_looked_at_stays_in_verifying() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    assert repairs.unverified(A, "no program")
    assert not repairs.unverified(A, "no program"), "no news"
    assert (state(repairs), repairs.candidates(4.0)) == (RepairState.VERIFYING, (A,))
    repairs.validate()


def test_one_gpu_at_a_time() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.judged(B, RESET, OUT, 2.0)
    assert repairs.candidates(3.0) == (A, B)
    repairs.begun(B, 3.0)
    assert repairs.candidates(4.0) == (B,)
    repairs.reset_ended(B, ResetResult.DONE, "", 5.0)
    assert repairs.candidates(6.0) == (B,)
    repairs.verified(B, "", 7.0)
    assert repairs.candidates(8.0) == (A,)


def test_two_gpus_in_ten_minutes() -> None:
    repairs = core()
    for number, gpu in enumerate((A, B)):
        repairs.judged(gpu, RESET, OUT, number)
        repairs.begun(gpu, 10.0 + number)
        repairs.reset_ended(gpu, ResetResult.DONE, "", 12.0)
        repairs.verified(gpu, "", 13.0)
    repairs.judged(C, RESET, OUT, 20.0)
    assert repairs.candidates(21.0) == ()
    assert repairs.breaker_open_s(21.0) == 10.0 + BREAKER_WINDOW_S
    repairs.judged(A, RESET, OUT, 22.0)
    assert repairs.candidates(23.0) == (A,), "another attempt is no other GPU"
    assert set(repairs.candidates(10.0 + BREAKER_WINDOW_S)) == {A, C}


def again(repairs: RepairCore, *, same_boot: bool, settings: Remediation = ON) -> RepairCore:
    after = RepairCore(settings, by_grant=repairs.by_grant)
    text = msgspec.json.encode(repairs.snapshot())
    after.restore(msgspec.json.decode(text, type=RepairSnapshot), same_boot=same_boot, now_s=50.0)
    return after


def test_each_reset_that_the_agent_dies_in_is_told_once() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    told: list[RepairChange] = []
    for at_s in (2.0, 3.0):
        repairs.begun(A, at_s)
        after = core()
        told += after.restore(repairs.snapshot(), same_boot=True, now_s=at_s)
        told += core().restore(after.snapshot(), same_boot=True, now_s=at_s)
        told += core().restore(repairs.snapshot(), same_boot=False, now_s=at_s)
        repairs = after
    told += repairs.judged(A, RESET, OUT, 4.0)
    assert [(change.step, change.result) for change in told] == [
        ("reset", "interrupted"),
        ("reset", "interrupted"),
        ("reboot", "wanted"),
    ]


def test_a_reset_that_is_refused_leaves_the_breaker_as_it_was() -> None:
    repairs = core()
    for gpu in (A, B, C):
        repairs.judged(gpu, RESET, OUT, 1.0)
    for at_s, gpu in ((2.0, A), (3.0, B), (4.0, A)):
        repairs.begun(gpu, at_s)
        repairs.reset_ended(gpu, ResetResult.BUSY, "a process", at_s)
    assert set(repairs.candidates(5.0)) == {A, B, C}
    assert (repairs.breaker_open_s(5.0), repairs.snapshot().resets) == (None, {})
    repairs.begun(A, 6.0)
    repairs.reset_ended(A, ResetResult.FAILED, "why", 6.0)
    repairs.begun(A, 7.0)
    repairs.reset_ended(A, ResetResult.BUSY, "a process", 7.0)
    assert repairs.snapshot().resets == {A: 6.0}, "the one before took place"


def test_what_is_retired_stays_so_with_never_live_and_after_a_restart() -> None:
    repairs = core()
    repairs.ordered(A, Order.RETIRE, 1.0)
    repairs.judged(B, RESET, OUT, 1.0)
    ended = repairs.reconfigured(Remediation(), 2.0)
    assert [change.gpu for change in ended] == [B]
    repairs = again(repairs, same_boot=True, settings=Remediation())
    assert repairs.judged(A, NOTHING, WELL, 3.0) == ()
    assert (state(repairs), list(repairs.withheld())) == (RepairState.RETIRED, [A])
    repairs.reconfigured(ON, 4.0)
    assert state(repairs) is RepairState.RETIRED
    repairs.reconfigured(Remediation(), 5.0)
    back = repairs.returned(A, 6.0)
    assert back is not None
    assert (back.step, back.result, repairs.repairs()) == ("retire", "returned", ())


def test_an_agent_that_died_in_a_reset_verifies_what_took_place() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    after = again(repairs, same_boot=True)
    assert state(after) is RepairState.DRAINING
    assert after.judged(A, RESET, OUT, 3.0) == (), "it did not take place: it is tried again"
    after.judged(A, NOTHING, TRIAL, 4.0)
    assert state(after) is RepairState.VERIFYING


def test_an_agent_that_dies_in_every_reset_ends_with_a_reboot_wanted() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    for at_s in (2.0, 3.0):
        repairs.begun(A, at_s)
        repairs = again(repairs, same_boot=True)
    repairs.judged(A, RESET, OUT, 4.0)
    assert state(repairs) is RepairState.REBOOT_WANTED


def test_a_reboot_ends_every_repair_but_retired() -> None:
    repairs = core(Remediation(reset=ResetMode.WHEN_FREE, retire_faults=1))
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.settings = ON
    repairs.judged(B, REBOOT, OUT, 1.0)
    after = again(repairs, same_boot=False)
    assert [(one.gpu, one.state) for one in after.repairs()] == [(A, RepairState.RETIRED)]


def given_up(repairs: RepairCore, gpu: GpuUuid = A, wrong: str = "the program ended with 3") -> None:
    """Reset the GPU as often as it may be; it is found wrong each time."""
    repairs.judged(gpu, RESET, OUT, 1.0)
    for at_s in (2.0, 3.0):
        repairs.begun(gpu, at_s)
        repairs.reset_ended(gpu, ResetResult.DONE, "", at_s)
        repairs.verified(gpu, wrong, at_s)
    assert state(repairs, gpu) is RepairState.REBOOT_WANTED


@pytest.mark.parametrize("verdict", [TRIAL, WELL], ids=["probation", "healthy"])
def test_a_gpu_that_resets_did_not_help_is_verified_after_a_reboot_before_it_returns(verdict: HealthState) -> None:
    repairs = core()
    given_up(repairs)
    after = again(repairs, same_boot=False)
    after.validate()
    assert A in after.withheld()
    assert after.candidates(51.0) == (), "it is not reset for that"
    (change,) = after.judged(A, NOTHING, verdict, 52.0)
    assert (change.new, change.step, change.result) == (RepairState.VERIFYING, "reboot", "over")
    assert after.candidates(53.0) == (A,)
    after.verified(A, "", 54.0)
    assert state(after) is RepairState.PROBATION
    (change,) = after.judged(A, NOTHING, WELL, 55.0)
    assert change.result == "returned"


def test_a_reboot_that_did_not_help_either_wants_another_one() -> None:
    repairs = core(Remediation(reset=ResetMode.WHEN_FREE, attempts=3))
    repairs.judged(A, RESET, OUT, 1.0)
    failing(repairs, 2.0)
    after = again(repairs, same_boot=False, settings=Remediation(reset=ResetMode.WHEN_FREE, attempts=9))
    after.judged(A, NOTHING, TRIAL, 52.0)
    after.verified(A, "the program ended with 3", 54.0)
    assert state(after) is RepairState.REBOOT_WANTED
    once_more = again(after, same_boot=False)
    once_more.judged(A, RESET, OUT, 60.0)
    assert state(once_more) is RepairState.REBOOT_WANTED, "its fault is there again before it was verified"


def test_two_gpus_are_verified_after_a_reboot_one_after_the_other() -> None:
    repairs = core()
    given_up(repairs)
    given_up(repairs, B)
    after = again(repairs, same_boot=False)
    for gpu in (A, B):
        after.judged(gpu, NOTHING, TRIAL, 52.0)
        after.validate()
    assert after.candidates(53.0) == (A,)
    after.verified(A, "", 54.0)
    after.judged(B, NOTHING, TRIAL, 55.0)
    assert after.candidates(56.0) == (B,)


def test_an_agent_that_dies_in_verifying_does_not_tell_of_the_reset_twice() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    after = again(again(repairs, same_boot=True), same_boot=True)
    (change,) = after.judged(A, NOTHING, TRIAL, 4.0)
    assert (change.new, change.step, change.result) == (RepairState.VERIFYING, "verify", "interrupted")


def test_a_fault_that_returns_after_a_reset_counts_again_until_it_retires_the_gpu() -> None:
    repairs = core(Remediation(reset=ResetMode.WHEN_FREE, attempts=9, retire_faults=3, retire_within_s=100.0))
    for at_s in (1.0, 11.0):
        repairs.judged(A, RESET, OUT, at_s)
        repairs.judged(A, RESET, OUT, at_s + 1)
        repairs.begun(A, at_s + 2)
        repairs.reset_ended(A, ResetResult.DONE, "", at_s + 3)
        repairs.judged(A, NOTHING, TRIAL, at_s + 4)
        repairs.verified(A, "", at_s + 5)
    assert repairs.snapshot().faults == {A: {"Xid119": (1.0, 11.0)}}
    (change,) = repairs.judged(A, RESET, OUT, 21.0)
    assert (change.new, change.step) == (RepairState.RETIRED, "retire")


def test_a_fault_that_returns_while_it_is_verified_counts_too() -> None:
    repairs = core(Remediation(reset=ResetMode.WHEN_FREE, retire_faults=2, retire_within_s=100.0))
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    repairs.judged(A, NOTHING, TRIAL, 4.0)
    assert repairs.judged(A, RESET, OUT, 5.0) == ()
    repairs.verified(A, "XID 119", 6.0)
    repairs.judged(A, RESET, OUT, 7.0)
    assert state(repairs) is RepairState.RETIRED


def test_what_never_ends_is_told_as_a_step_of_its_state() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    repairs.verified(A, "", 4.0)
    repairs.judged(B, REBOOT, OUT, 5.0)
    repairs.judged(C, RESET, OUT, 5.0)
    ended = repairs.reconfigured(Remediation(), 6.0)
    assert {(change.gpu, change.step, change.result) for change in ended} == {
        (A, "return", "ended"),
        (B, "reboot", "ended"),
        (C, "drain", "ended"),
    }


def test_never_ends_all_but_a_reset_that_is_under_way() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.judged(B, REBOOT, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reconfigured(Remediation(), 3.0)
    assert [one.gpu for one in repairs.repairs()] == [A]
    repairs.reset_ended(A, ResetResult.FAILED, "why", 4.0)
    assert repairs.candidates(5.0) == ()
    repairs.judged(A, RESET, OUT, 5.0)
    assert repairs.repairs() == ()


def test_a_board_that_is_swapped_is_forgotten() -> None:
    repairs = core()
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.judged(B, RESET, OUT, 1.0)
    repairs.keep([B])
    assert [one.gpu for one in repairs.repairs()] == [B]


def test_every_state_says_what_comes_next() -> None:
    assert all(next_step(each) for each in RepairState)
