"""What past forecasts teach about the next."""

import math

from controller.insight.forecast.calibration import Calibration, Range
from controller.scheduler.model.resources import WorkloadKey

A = WorkloadKey("ns/a")


def key(number: int) -> WorkloadKey:
    return WorkloadKey(f"ns/w-{number}")


def taught(waited_s: float, expected: Range, times: int = 200) -> Calibration:
    made = Calibration()
    for number in range(times):
        made.expect(key(number), "q", 1000.0, expected)
        made.started(key(number), 1000.0 + waited_s)
    return made


def test_a_queue_that_is_always_later_gets_later_ranges() -> None:
    given = Range(600.0, 1200.0)
    late = taught(7200.0, given).widened("q", given)
    assert late.to_s is not None
    assert abs(late.to_s - 7200.0) < 1.0
    assert late.from_s > 600.0


def test_a_queue_whose_truths_lie_inside_gets_narrower_ranges() -> None:
    given = Range(600.0, 6000.0)
    before, after = Calibration().widened("q", given), taught(2000.0, given).widened("q", given)
    assert before.to_s is not None
    assert after.to_s is not None
    assert after.to_s < before.to_s
    assert after.from_s - 1.0 < 2000.0 < after.to_s + 1.0


def test_what_one_queue_teaches_holds_for_no_other() -> None:
    given = Range(600.0, 1200.0)
    assert taught(7200.0, given).widened("other", given) == Calibration().widened("other", given)
    assert taught(7200.0, given).seen("q") == 200
    assert taught(7200.0, given).seen("other") == 0


def test_a_range_never_ends_before_it_begins() -> None:
    for low, high in ((0.0, 0.0), (1e300, 1e300), (0.0, 1e300), (5.0, 5.0)):
        found = taught(1.0, Range(3600.0, 7200.0)).widened("q", Range(low, high))
        assert found.to_s is not None
        assert 0.0 <= found.from_s <= found.to_s < math.inf


def test_an_open_end_stays_open_and_is_not_learnt_from() -> None:
    made = Calibration()
    made.expect(A, "q", 0.0, Range(1.0, None))
    made.started(A, 50.0)
    assert made.seen("q") == 0
    assert made.widened("q", Range(1.0, None)).to_s is None


def test_forecasts_of_one_workload_count_when_they_lie_apart() -> None:
    made = Calibration()
    for at_s in (0.0, 299.0, 300.0, 600.0, 900.0, 1200.0, 1500.0):
        made.expect(A, "q", at_s, Range(1.0, 2.0))
    made.started(A, 5000.0)
    assert made.seen("q") == 4
    made.started(A, 6000.0)
    assert made.seen("q") == 4


def test_a_forecast_made_after_the_start_was_decided_teaches_nothing() -> None:
    made = Calibration()
    made.expect(A, "q", 100.0, Range(1.0, 2.0))
    made.started(A, 99.0)
    assert made.seen("q") == 0
    made.expect(A, "q", 100.0, Range(1.0, 2.0))
    made.started(A, 100.0)
    assert made.seen("q") == 1


def test_what_is_expected_is_bounded_and_forgotten_with_its_workload() -> None:
    made = Calibration()
    for number in range(20_050):
        made.expect(key(number), "q", 0.0, Range(1.0, 2.0))
    assert len(made) == 20_000
    made.gone(key(20_049))
    assert len(made) == 19_999
