"""What a stop leaves of a job's work, and what is lost."""

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.insight.simulation.progress import WorkLedger
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.preemption.price import Checkpoints

A = WorkloadKey("ns/a")
NEVER = Checkpoints()


def test_without_checkpoints_a_job_starts_from_zero() -> None:
    ledger = WorkLedger()
    assert ledger.begin(A, NEVER, 8, 0.0) == 0
    ledger.stop(A, NEVER, 100.0)
    assert ledger.lost_gpu_seconds == 800
    assert ledger.begin(A, NEVER, 8, 200.0) == 0


def test_a_checkpoint_takes_its_time_to_load_and_that_is_no_work() -> None:
    terms = Checkpoints(interval_s=60.0, restart_cost_s=30.0)
    ledger = WorkLedger()
    assert ledger.begin(A, terms, 2, 0.0) == 0, "there is none yet"
    ledger.stop(A, terms, 130.0)
    assert ledger.lost_gpu_seconds == 20
    assert ledger.begin(A, terms, 2, 200.0) == 30 - 120
    ledger.stop(A, terms, 220.0)
    assert ledger.lost_gpu_seconds == 20, "it had not begun to work"
    ledger.begin(A, terms, 2, 300.0)
    ledger.stop(A, terms, 395.0)
    assert ledger.lost_gpu_seconds == 20 + 2 * 5, "120 + 65 of work, of which 180 are saved"


def test_a_grace_that_is_cut_short_saves_nothing_by_itself() -> None:
    terms = Checkpoints(grace_s=120.0)
    ledger = WorkLedger()
    ledger.begin(A, terms, 1, 0.0)
    ledger.stop(A, terms, 100.0, notice_s=120.0)
    assert ledger.begin(A, terms, 1, 200.0) == -100
    ledger.stop(A, terms, 250.0, notice_s=119.0)
    assert ledger.lost_gpu_seconds == 50
    assert ledger.begin(A, terms, 1, 300.0) == -100, "the checkpoint from before is still there"


def test_what_does_not_run_loses_nothing() -> None:
    ledger = WorkLedger()
    ledger.stop(A, NEVER, 100.0)
    ledger.begin(A, NEVER, 1, 100.0)
    ledger.finish(A)
    ledger.stop(A, NEVER, 200.0)
    assert ledger.lost_gpu_seconds == 0


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
    ledger, now_s, worked_s = WorkLedger(), 0.0, 0.0
    saved_s = 0.0
    for lasts_s, notice_s in runs:
        more_s = ledger.begin(A, terms, 1, now_s)
        loads_s = terms.restart_cost_s if saved_s else 0.0
        assert more_s == pytest.approx(loads_s - saved_s)
        now_s += lasts_s
        worked_s += max(0.0, lasts_s - loads_s)
        ledger.stop(A, terms, now_s, float(notice_s))
        saved_s = worked_s - ledger.lost_gpu_seconds
        assert saved_s >= -1e-6
