"""What is told of decisions stands back while many are carried out, and catches up afterwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.writing.events import EventPublisher
from controller.cluster.writing.pace import Allowance, Pace
from kube.objects import ObjectReference
from kube.testing import VirtualClock
from kube.writing.events import EventRecorder, Occurrence


def quick_until(pace: Pace, start_s: float, end_s: float, *, per_s: float = 50.0) -> None:
    for n in range(int((end_s - start_s) * per_s)):
        pace.carried_out(start_s + n / per_s)


def test_the_pace_is_what_was_carried_out_in_the_last_seconds() -> None:
    pace = Pace()
    assert pace.per_second(100.0) == 0.0
    quick_until(pace, 100.0, 120.0)
    assert 45.0 < pace.per_second(120.0) < 55.0
    assert pace.quick(120.0)
    assert not pace.quick(130.0)


def test_a_single_burst_is_not_a_quick_pace_for_long() -> None:
    pace = Pace()
    for _ in range(60):
        pace.carried_out(100.0)
    assert pace.quick(100.0)
    assert not pace.quick(104.0)


def test_it_is_busy_where_much_is_decided_and_where_a_slow_server_lets_no_more_be_decided() -> None:
    pace = Pace()
    assert not pace.busy(100.0)
    quick_until(pace, 100.0, 105.0)
    assert pace.busy(105.0)
    assert not pace.busy(120.0)
    slow_until(pace, 120.0, 121.0, 0.05)
    assert not pace.busy(121.0), "half of what a slow one takes"
    slow_until(pace, 121.0, 123.0, 0.2)
    assert pace.busy(123.0)
    assert not pace.quick(123.0)
    assert not pace.busy(130.0)


def test_by_a_clock_that_is_put_back_it_is_not_busy_for_hours() -> None:
    pace = Pace()
    quick_until(pace, 4000.0, 4010.0)
    slow_until(pace, 4000.0, 4010.0, 0.5)
    assert pace.quick(410.0), "nothing has aged"
    assert pace.latency_s(410.0) > 0.4
    assert not pace.quick(420.0)
    assert not pace.busy(430.0)


def test_an_allowance_shrinks_while_decisions_are_quick_and_grows_back() -> None:
    pace = Pace()
    allowance = Allowance(pace, rate=20.0, quick_rate=2.0, burst=10.0)
    spent = 0
    for second in range(100, 120):
        quick_until(pace, float(second), second + 1.0)
        while allowance.left(second + 1.0) >= 1.0:
            allowance.take()
            spent += 1
    assert 10 + 36 <= spent <= 10 + 40
    assert allowance.left(140.0) == 10.0


def test_a_rate_that_must_hold_holds_however_quick_decisions_are() -> None:
    pace = Pace()
    allowance = Allowance(pace, rate=20.0, quick_rate=2.0, burst=1.0)
    quick_until(pace, 0.0, 10.0)
    allowance.left(10.0)
    allowance.take()
    assert allowance.left(10.5, at_least=8.0) == 4.0


def slow_until(pace: Pace, start_s: float, end_s: float, latency_s: float, *, per_s: float = 20.0) -> None:
    for n in range(int((end_s - start_s) * per_s)):
        pace.answered(latency_s, start_s + n / per_s)


def test_a_server_that_answers_slowly_is_told_less() -> None:
    pace = Pace()
    allowance = Allowance(pace, rate=20.0, quick_rate=1.0, burst=10.0)
    assert allowance.rate(100.0) == 20.0
    slow_until(pace, 100.0, 110.0, 0.25)
    assert 2.0 <= allowance.rate(110.0) < 3.0, "a tenth of it at ten times what is prompt"
    assert allowance.rate(140.0) == 20.0, "nobody has asked it for long"


def test_a_server_that_hardly_answers_is_told_something_still() -> None:
    pace = Pace()
    allowance = Allowance(pace, rate=20.0, quick_rate=1.0, burst=10.0)
    slow_until(pace, 100.0, 110.0, 10.0)
    assert allowance.rate(110.0) == 1.0


def test_a_prompt_server_changes_nothing() -> None:
    pace = Pace()
    allowance = Allowance(pace, rate=20.0, quick_rate=1.0, burst=10.0)
    slow_until(pace, 100.0, 110.0, 0.012)
    assert allowance.rate(110.0) == 20.0
    assert pace.batch_s(0.02, 110.0) == 0.02


def test_news_are_gathered_longer_while_the_server_is_slow_and_never_long() -> None:
    pace = Pace()
    slow_until(pace, 100.0, 110.0, 0.2)
    assert pace.batch_s(0.02, 110.0) == pytest.approx(0.05, rel=0.1)
    slow_until(pace, 110.0, 120.0, 5.0)
    assert pace.batch_s(0.02, 120.0) == 0.1
    assert pace.batch_s(0.5, 120.0) == 0.5, "what is configured is the least"
    assert pace.batch_s(0.0, 120.0) == 0.0, "whoever wants no gathering gets none"


@given(st.lists(st.tuples(st.floats(-1.0, 1e6), st.floats(-1e9, 1e9)), max_size=60), st.floats(-1e9, 1e9))
def test_whatever_a_clock_and_a_server_do_the_pace_stays_within_its_bounds(
    answers: list[tuple[float, float]], now_s: float
) -> None:
    pace = Pace()
    for latency_s, at_s in answers:
        pace.answered(latency_s, at_s)
    assert 0.0 < pace.promptness(now_s) <= 1.0
    assert 0.02 <= pace.batch_s(0.02, now_s) <= 0.1


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.booleans(), st.booleans()), max_size=60), st.floats(-1e9, 1e9))
def test_no_more_is_ever_allowed_than_burst_and_rate(steps: list[tuple[float, bool, bool]], start_s: float) -> None:
    pace = Pace()
    allowance = Allowance(pace, rate=5.0, quick_rate=1.0, burst=3.0)
    now_s, taken = start_s, 0
    for pause_s, carried, back in steps:
        now_s += -pause_s if back else pause_s
        if carried:
            pace.carried_out(now_s)
        left = allowance.left(now_s)
        assert 0.0 <= left <= 5.0
        if left >= 1.0:
            allowance.take()
            taken += 1
    longest_s = sum(pause_s for pause_s, _, _ in steps)
    assert taken <= 3.0 + 5.0 * longest_s + 1e-6


class Recorder(EventRecorder):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Occurrence] = []

    def record(self, occurrence: Occurrence) -> None:
        self.told.append(occurrence)

    @property
    def dropped(self) -> int:
        return 0


def test_the_last_of_the_events_is_kept_for_those_who_lost_something() -> None:
    recorder, clock = Recorder(), VirtualClock()
    events = EventPublisher(recorder, clock, Pace())
    about = ObjectReference("kueue.x-k8s.io/v1beta2", "Workload", "w", "uid", "ns")
    for _ in range(200):
        events.publish(about, "Normal", "Admitted", "admitted")
    admitted = len(recorder.told)
    assert 0 < admitted < 200
    events.publish(about, "Normal", "Preempted", "preempted")
    assert recorder.told[-1].reason == "Preempted"
    assert events.dropped == 200 - admitted
