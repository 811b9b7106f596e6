"""The traces that forecasts are measured on."""

from controller.insight.forecast.forecast import Forecast
from controller.insight.simulation.timeline import TimelineEntry, TimelineEvent
from hack.bench.decisions.forecast import holds
from hack.bench.decisions.forecasttrace import WRONG, Answer, Starts, answers, trace


def test_a_trace_is_the_same_each_time_and_another_for_each_seed() -> None:
    assert trace(3) == trace(3)
    assert trace(3) != trace(4)


def test_run_times_are_told_wrongly_within_the_bounds_and_have_a_heavy_tail() -> None:
    found = trace(1)
    wrong = [(found.told[one.key] or 0.0) / (one.runtime_s or 1.0) for one in found.submissions]
    assert WRONG[0] * 0.99 < min(wrong) < 0.5
    assert 3.0 < max(wrong) < WRONG[1] * 1.01
    lasting = sorted(one.runtime_s or 0.0 for one in found.submissions)
    assert sum(lasting[-25:]) > 0.4 * sum(lasting), "a tenth of the jobs is two fifths of the work"


def test_untold_run_times_are_said_nowhere() -> None:
    found = trace(1, tells=False, jobs=20)
    assert set(found.told.values()) == {None}
    assert all(not one.workload.metadata.annotations.get("tessera.dev/runtime") for one in found.submissions)


def test_forecasts_of_a_trace_meet_what_became_of_them() -> None:
    found = list(answers(2, jobs=40, load=2.0))
    assert found
    assert all(one.started_s >= 0.0 for one in found)
    assert any(holds(one) for one in found)


def test_a_truth_at_the_end_of_a_range_lies_in_it() -> None:
    given = Forecast(at_s=0.0, from_s=10.0, to_s=20.0)
    assert [holds(Answer(given, one)) for one in (9.9, 10.0, 20.0, 20.1)] == [False, True, True, False]
    assert holds(Answer(Forecast(at_s=0.0, from_s=10.0), 1e9))
    assert not holds(Answer(Forecast(at_s=0.0), 5.0))


def test_a_victim_that_was_admitted_in_the_same_instant_runs_again_at_its_next_start() -> None:
    def entry(t: float, event: TimelineEvent) -> TimelineEntry:
        return TimelineEntry(t=t, event=event, workload="team/w", cluster_queue="cq", reason="", message="")

    happened = [(5.0, TimelineEvent.ADMITTED), (5.0, TimelineEvent.PREEMPTED), (9.0, TimelineEvent.ADMITTED)]
    starts = Starts([entry(*each) for each in happened])
    assert starts.next_s("team/w", 2) == 9.0, "told when two entries were written"
    assert starts.next_s("team/w", 0) == 5.0


def test_no_victim_of_a_trace_has_started_when_it_is_told() -> None:
    found = [one for seed in (1, 3) for one in answers(seed, tells=False, jobs=40, load=2.0) if one.again]
    assert found
    assert all(one.started_s > 0.0 for one in found)
