"""What finished workloads teach about run times."""

import math
from datetime import UTC, datetime

import msgspec
import pytest

from controller.insight.forecast.runtimes import Experience, FinishedRun, RuntimeHistory, finished_run
from controller.objects.meta import Condition
from controller.objects.workload import Admission, Workload
from controller.scheduler.decisions import reasons, status
from inventory.api.names import RUNTIME
from tests.support.engine.world import NOW_S, workload


def ended(name: str, lasted_s: float, told: str = "", *, reason: str = "Succeeded", queue: str = "q") -> Workload:
    given = workload(name, "lq", annotations={RUNTIME: told} if told else None)
    began = Condition(type="Admitted", status="True", reason="Admitted", last_transition_time=status.moment(NOW_S))
    changed = msgspec.structs.replace(given.status, conditions=(began,), admission=Admission(cluster_queue=queue))
    return status.finished(msgspec.structs.replace(given, status=changed), reason, "done", NOW_S + lasted_s)


def test_a_finished_workload_tells_how_long_it_ran_and_what_was_told() -> None:
    assert finished_run(ended("a", 90.0, "60s")) == FinishedRun(90.0, 60.0)
    assert finished_run(ended("a", 90.0)) == FinishedRun(90.0, None)
    assert finished_run(ended("a", 90.0, "soon")) == FinishedRun(90.0, None)


def test_what_never_ran_or_gave_its_place_to_a_slice_teaches_nothing() -> None:
    assert finished_run(workload("a", "lq")) is None
    assert finished_run(ended("a", 90.0, reason="WorkloadSliceReplaced")) is None
    assert finished_run(ended("a", 0.0)) is None
    assert finished_run(ended("a", -5.0)) is None
    bare = ended("a", 90.0)
    without = tuple(one for one in bare.status.conditions if one.type != "Admitted")
    assert (
        finished_run(msgspec.structs.replace(bare, status=msgspec.structs.replace(bare.status, conditions=without)))
        is None
    )


@pytest.mark.parametrize("reason", ["OwnerNotFound", "OutOfSync", "FailedToStart"])
def test_a_job_that_was_deleted_or_never_could_run_did_not_finish(reason: str) -> None:
    history = RuntimeHistory()
    history.observe(ended("a", 80.0, "60s", reason=reason))
    assert (len(history), history.of("q").own) == (0, 0)


def test_a_group_whose_pods_were_deleted_did_not_finish() -> None:
    given = ended("a", 80.0, "60s", reason="Failed")
    assert finished_run(given) is not None
    told = f"0 of 2 pods succeeded; {reasons.ALL_PODS_DELETED}"
    conditions = tuple(
        msgspec.structs.replace(each, message=told) if each.type == reasons.FINISHED else each
        for each in given.status.conditions
    )
    given = msgspec.structs.replace(given, status=msgspec.structs.replace(given.status, conditions=conditions))
    assert finished_run(given) is None


def test_each_state_of_one_workload_counts_once() -> None:
    history = RuntimeHistory()
    for _ in range(3):
        history.observe(ended("a", 90.0, "60s"))
    history.observe(ended("b", 30.0, "60s"))
    assert len(history) == 2
    assert history.of("q").ratios == (0.5, 1.5)


def test_the_history_is_bounded_and_keeps_the_newest() -> None:
    history = RuntimeHistory()
    for number in range(200):
        history.observe(ended(f"w-{number}", 1.0 + number))
    assert len(history) == 128
    assert history.of("q").lasted[0] == 73.0


def test_a_queue_without_history_borrows_that_of_all_others() -> None:
    history = RuntimeHistory()
    history.observe(ended("a", 90.0, "60s"))
    assert history.of("other").lasted == (90.0,)
    assert history.of("other").own == 0


def test_the_prior_counts_until_enough_has_finished() -> None:
    few, many = Experience(ratios=[1.0] * 23), Experience(ratios=[1.0] * 24)
    assert few.total_s(100.0, 0.0, 0.99) == pytest.approx(300.0, rel=0.35)
    assert many.total_s(100.0, 0.0, 0.99) == 100.0


def test_quantiles_of_what_was_told_times_what_is_known() -> None:
    known = Experience(ratios=[0.5] * 15 + [2.0] * 15)
    assert known.total_s(100.0, 0.0, 0.1) == 50.0
    assert known.total_s(100.0, 0.0, 0.9) == 200.0
    assert known.ratio(0.1) == 0.5


def test_nothing_told_goes_by_how_long_others_ran() -> None:
    assert Experience(lasted=[10.0] * 5).total_s(None, 0.0, 0.5) == 10.0
    assert Experience().total_s(None, 0.0, 0.5) is None
    assert Experience().total_s(100.0, 0.0, 0.5) is not None


def test_of_one_that_runs_only_the_longer_ones_count() -> None:
    known = Experience(lasted=[10.0, 20.0, 30.0, 40.0, 50.0])
    assert known.total_s(None, 25.0, 0.01) == 30.0
    assert known.total_s(None, 25.0, 0.99) == 50.0


def test_one_that_outlived_all_goes_on_by_a_heavy_tail() -> None:
    known = Experience(lasted=[10.0, 20.0, 30.0, 40.0])
    middle, late = known.total_s(None, 100.0, 0.5), known.total_s(None, 100.0, 0.95)
    assert middle is not None
    assert late is not None
    assert 100.0 < middle < late < math.inf
    assert middle == pytest.approx(158.7, abs=0.1)
    assert known.total_s(None, 100.0, 1.0) is not None


def test_the_moment_is_read_in_utc() -> None:
    assert status.moment(NOW_S) == datetime.fromtimestamp(NOW_S, UTC)
