"""What a stop leaves of a job's work, and what is lost."""

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.simulation.progress import WorkLedger
from controller.objects.meta import ObjectMeta
from controller.objects.workload import Workload
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.preemption.price import Checkpoints

A = WorkloadKey("ns/a")
NEVER = Checkpoints()
JOB = Workload(metadata=ObjectMeta(name="a", namespace="ns"))


def left_s(ledger: WorkLedger, terms: Checkpoints, runtime_s: float = 1000.0) -> float:
    """The seconds to the end of a job that runs so long."""
    found = ledger.left_s(A, terms, runtime_s)
    assert found is not None
    return found


def test_without_checkpoints_a_job_starts_from_zero() -> None:
    ledger = WorkLedger()
    ledger.begin(A, NEVER, 8, 0.0)
    ledger.stop(A, NEVER, 100.0)
    assert ledger.lost_gpu_seconds == 800
    assert left_s(ledger, NEVER) == 1000


def test_a_checkpoint_takes_its_time_to_load_and_that_is_no_work() -> None:
    terms = Checkpoints(interval_s=60.0, restart_cost_s=30.0)
    ledger = WorkLedger()
    assert left_s(ledger, terms) == 1000, "there is none yet"
    ledger.begin(A, terms, 2, 0.0)
    ledger.stop(A, terms, 130.0)
    assert ledger.lost_gpu_seconds == 20
    assert left_s(ledger, terms) == 1000 + 30 - 120
    ledger.begin(A, terms, 2, 200.0)
    ledger.stop(A, terms, 220.0)
    assert left_s(ledger, terms) == 1000 + 30 - 120, "it had not begun to work"
    ledger.begin(A, terms, 2, 300.0)
    ledger.stop(A, terms, 395.0)
    assert left_s(ledger, terms) == 1000 + 30 - 120 - 30, "a checkpoint is due 60 s after each start, loading included"
    assert ledger.lost_gpu_seconds == 2 * (10 + 20 + 35)


def test_a_told_checkpoint_is_kept_whatever_the_interval() -> None:
    terms = Checkpoints(interval_s=60.0, last_s=70.0)
    ledger = WorkLedger()
    ledger.begin(A, terms, 2, 0.0)
    ledger.stop(A, terms, 130.0)
    assert (left_s(ledger, terms), ledger.lost_gpu_seconds) == (930, 120)
    ledger.begin(A, terms, 2, 200.0)
    ledger.stop(A, terms, 250.0)
    assert (left_s(ledger, terms), ledger.lost_gpu_seconds) == (930, 220), "it was told before this start"


def test_a_grace_that_is_cut_short_saves_nothing_by_itself() -> None:
    terms = Checkpoints(grace_s=120.0)
    ledger = WorkLedger()
    ledger.begin(A, terms, 1, 0.0)
    ledger.stop(A, terms, 100.0, notice_s=120.0)
    assert left_s(ledger, terms) == 900
    ledger.begin(A, terms, 1, 200.0)
    ledger.stop(A, terms, 250.0, notice_s=119.0)
    assert ledger.lost_gpu_seconds == 50
    assert left_s(ledger, terms) == 900, "the checkpoint from before is still there"


def test_what_does_not_run_loses_nothing() -> None:
    ledger = WorkLedger()
    ledger.stop(A, NEVER, 100.0)
    ledger.begin(A, NEVER, 1, 100.0)
    ledger.finish(A)
    ledger.stop(A, NEVER, 200.0)
    assert ledger.lost_gpu_seconds == 0


def is_saved(ledger: WorkLedger) -> bool:
    return ledger.goes_on(JOB, 1.0) is not JOB


@settings(max_examples=100, deadline=None)
@drawn(
    st.builds(
        Checkpoints,
        interval_s=st.none() | st.integers(0, 90).map(float),
        grace_s=st.none() | st.integers(0, 60).map(float),
        restart_cost_s=st.integers(0, 40).map(float),
    ),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 80)), max_size=8),
)
def test_work_is_saved_or_lost_and_never_both(terms: Checkpoints, runs: list[tuple[int, int]]) -> None:
    ledger, now_s, lost_s = WorkLedger(), 0.0, 0.0
    for lasts_s, notice_s in runs:
        before_s = left_s(ledger, terms, 1e4)
        loads_s = terms.restart_cost_s if is_saved(ledger) else 0.0
        ledger.begin(A, terms, 1, now_s)
        now_s += lasts_s
        ledger.stop(A, terms, now_s, float(notice_s))
        lost_now_s, lost_s = ledger.lost_gpu_seconds - lost_s, ledger.lost_gpu_seconds
        again_s = terms.restart_cost_s if is_saved(ledger) else 0.0
        gained_s = before_s - loads_s - (left_s(ledger, terms, 1e4) - again_s)
        assert gained_s == pytest.approx(max(0.0, lasts_s - loads_s - lost_now_s))
