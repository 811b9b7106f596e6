"""What a person orders for one GPU is obeyed where it may be, and answered always."""

import pytest

from agent.health.grants import AskFor, Grant
from agent.health.remediation import Action, RebootMode, Remediation, ResetMode, Want
from agent.health.repairs import RepairCore
from agent.health.repairstate import Order, RepairState, ResetResult
from agent.health.states import HealthState
from inventory.devices import GpuUuid

A = GpuUuid("GPU-a")
FREE = Remediation(reset=ResetMode.WHEN_FREE)
DRAIN = Remediation(reset=ResetMode.DRAIN, reboot=RebootMode.ASK)
RESET = Want(action=Action.RESET, reason="Xid119", cause="XID 119", since_s=0.0)
REBOOT = Want(action=Action.REBOOT, reason="Xid79", cause="XID 79", since_s=0.0)
NOTHING = Want()
OUT, WELL = HealthState.UNHEALTHY, HealthState.HEALTHY


def state(repairs: RepairCore) -> RepairState | None:
    repair = repairs.repair(A)
    return None if repair is None else repair.state


def asks(repairs: RepairCore) -> AskFor | None:
    ask = repairs.ask(A)
    return None if ask is None else ask.action


def test_start_resets_a_gpu_without_a_fault() -> None:
    repairs = RepairCore(FREE)
    changes, answer = repairs.ordered(A, "start", 1.0)
    assert [change.new for change in changes] == [RepairState.DRAINING]
    assert "once nobody has it" in answer
    assert repairs.judged(A, NOTHING, WELL, 2.0) == (), "a healthy verdict does not end it"
    repairs.begun(A, 3.0)
    repairs.reset_ended(A, ResetResult.BUSY, "a process", 4.0)
    assert repairs.judged(A, NOTHING, WELL, 5.0) == (), "a reset that was refused is none"
    repairs.begun(A, 6.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 7.0)
    repairs.verified(A, "", 8.0)
    (change,) = repairs.judged(A, NOTHING, WELL, 9.0)
    assert change.result == "returned"


def test_stop_ends_a_repair_until_its_faults_are_gone() -> None:
    repairs = RepairCore(FREE)
    repairs.judged(A, RESET, OUT, 1.0)
    (change,), _ = repairs.ordered(A, "stop", 2.0)
    assert (change.new, change.result) == (None, "stopped")
    assert repairs.judged(A, RESET, OUT, 3.0) == ()
    assert A not in repairs.withheld()
    repairs.judged(A, NOTHING, WELL, 4.0)
    repairs.judged(A, RESET, OUT, 5.0)
    assert state(repairs) is RepairState.DRAINING


def test_start_takes_up_what_was_stopped() -> None:
    repairs = RepairCore(FREE)
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.ordered(A, "stop", 2.0)
    repairs.ordered(A, "start", 3.0)
    assert state(repairs) is RepairState.DRAINING
    repairs.judged(A, REBOOT, OUT, 4.0)
    assert state(repairs) is RepairState.REBOOT_WANTED, "a lost GPU is not reset by an order either"


def test_retire_keeps_out_and_return_gives_back() -> None:
    repairs = RepairCore(FREE)
    repairs.ordered(A, "retire", 1.0)
    assert state(repairs) is RepairState.RETIRED
    assert A in repairs.withheld()
    assert repairs.judged(A, NOTHING, WELL, 2.0) == ()
    assert repairs.ordered(A, "start", 3.0)[0] == ()
    assert repairs.ordered(A, "stop", 3.0)[0] == ()
    (change,), _ = repairs.ordered(A, "return", 4.0)
    assert change.result == "returned"
    assert (state(repairs), dict(repairs.withheld())) == (None, {})


@pytest.mark.parametrize("order", [each.value for each in Order])
def test_nothing_is_obeyed_in_the_middle_of_a_reset(order: str) -> None:
    repairs = RepairCore(FREE)
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    for ended in (False, True):
        if ended:
            repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
        changes, answer = repairs.ordered(A, order, 4.0)
        assert changes == ()
        assert state(repairs) is not None
        assert str(state(repairs)) in answer


@pytest.mark.parametrize(
    ("settings", "order", "says"),
    [
        (FREE, "restart", "Found 'restart', expected start, stop, retire or return"),
        (FREE, "x" * 4000, "expected start"),
        (FREE, "stop", "not in repair"),
        (FREE, "return", "not retired"),
        (Remediation(), "start", "never"),
        (Remediation(), "retire", "never"),
    ],
)
def test_what_cannot_be_is_answered_in_one_line(settings: Remediation, order: str, says: str) -> None:
    repairs = RepairCore(settings)
    changes, answer = repairs.ordered(A, order, 1.0)
    assert changes == ()
    assert says in answer
    assert len(answer) < 200
    assert "\n" not in answer


def test_start_of_what_has_a_repair_names_the_orders_that_are_obeyed_there() -> None:
    repairs = RepairCore(FREE)
    repairs.judged(A, REBOOT, OUT, 1.0)
    _, answer = repairs.ordered(A, "start", 2.0)
    assert "Use stop to end that, or retire to keep it out" in answer
    assert repairs.ordered(A, "retire", 3.0)[0] != ()
    for order in ("start", "stop", "retire"):
        assert repairs.ordered(A, order, 4.0) == ((), "It is retired. Use return to give it back")
    assert repairs.ordered(A, "return", 5.0)[0] != ()


def test_a_grant_alone_makes_a_candidate_where_there_is_a_controller() -> None:
    repairs = RepairCore(FREE, by_grant=True)
    repairs.judged(A, RESET, OUT, 1.0)
    assert repairs.candidates(1.0) == ()
    repairs.held_by(A, "a pod", 2.0, by_pods=True)
    assert asks(repairs) is None, "when-free asks nobody to leave"
    assert repairs.free(A, 3.0)
    assert not repairs.free(A, 3.0)
    assert asks(repairs) is AskFor.RESET
    assert repairs.candidates(3.0) == ()
    repairs.granted([Grant(gpu=A, generation=1, action="reset", granted_s=3.0)], 4.0)
    assert repairs.candidates(4.0) == (A,)
    repairs.held_by(A, "a process", 5.0)
    assert repairs.candidates(5.0) == (), "what is withdrawn lets nothing"
    repairs.free(A, 6.0)
    repairs.begun(A, 6.0)
    repairs.reset_ended(A, ResetResult.FAILED, "why", 7.0)
    assert repairs.candidates(8.0) == (), "another attempt takes another grant"
    repairs.free(A, 8.0)
    ask = repairs.ask(A)
    assert ask is not None
    assert ask.generation == 2


def test_drain_asks_for_its_pods_then_for_its_reset_and_a_reboot_is_asked_for() -> None:
    repairs = RepairCore(DRAIN, by_grant=True)
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.held_by(A, "a program", 2.0)
    assert asks(repairs) is None, "no controller ends a program"
    repairs.held_by(A, "a pod", 3.0, by_pods=True)
    assert asks(repairs) is AskFor.DRAIN
    repairs.free(A, 4.0)
    assert asks(repairs) is AskFor.RESET
    repairs.judged(A, REBOOT, OUT, 5.0)
    assert asks(repairs) is AskFor.REBOOT
    repairs.reconfigured(FREE, 6.0)
    assert asks(repairs) is None
    repairs.reconfigured(DRAIN, 7.0)
    assert asks(repairs) is AskFor.REBOOT
    repairs.validate()


def test_without_an_api_server_drain_is_when_free() -> None:
    repairs = RepairCore(DRAIN)
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.held_by(A, "a pod", 2.0, by_pods=True)
    assert (asks(repairs), repairs.candidates(3.0)) == (None, (A,))


def test_a_gpu_that_was_found_wrong_stays_so_through_a_reset_that_fails_or_is_refused() -> None:
    repairs = RepairCore(Remediation(reset=ResetMode.WHEN_FREE, attempts=3))
    repairs.judged(A, RESET, OUT, 1.0)
    repairs.begun(A, 2.0)
    repairs.reset_ended(A, ResetResult.DONE, "", 3.0)
    repairs.verified(A, "a link is down", 4.0)
    for result in (ResetResult.BUSY, ResetResult.FAILED):
        repairs.begun(A, 5.0)
        repairs.reset_ended(A, result, "why", 6.0)
        assert repairs.judged(A, NOTHING, WELL, 7.0) == (), "no fault says so, and it is wrong all the same"
        assert A in repairs.withheld()


def test_of_all_gpus_of_a_node_that_are_ordered_one_leaves_service_before_the_grants() -> None:
    """The breaker may hold them for long; the first one is kept free, so that its turn comes."""
    gpus = [GpuUuid(f"GPU-{n}") for n in range(8)]
    repairs = RepairCore(FREE, by_grant=True)
    for at_s, gpu in enumerate(gpus):
        repairs.ordered(gpu, "start", float(at_s))
    assert set(repairs.withheld()) == {gpus[0]}
    for gpu in gpus:
        repairs.free(gpu, 10.0)
    assert set(repairs.withheld()) == {gpus[0]}, "they ask, and are in service meanwhile"
    ask = repairs.ask(gpus[5])
    assert ask is not None
    repairs.granted([Grant(gpu=gpus[5], generation=ask.generation, action="reset", granted_s=11.0)], 11.0)
    assert set(repairs.withheld()) == {gpus[0], gpus[5]}
    repairs.begun(gpus[5], 12.0)
    repairs.judged(gpus[7], RESET, OUT, 13.0)
    assert gpus[5] in repairs.withheld()
    repairs.ordered(gpus[0], "stop", 14.0)
    assert set(repairs.withheld()) == {gpus[1], gpus[5]}
    repairs.validate()


def test_a_gpu_with_a_fault_leaves_service_whatever_is_ordered_before_it() -> None:
    repairs = RepairCore(FREE, by_grant=True)
    repairs.ordered(A, "start", 1.0)
    other = GpuUuid("GPU-b")
    repairs.judged(other, RESET, OUT, 2.0)
    assert set(repairs.withheld()) == {A, other}
