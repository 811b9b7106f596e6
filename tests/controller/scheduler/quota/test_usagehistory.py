"""Past usage of LocalQueues: what decays, what is added, and what a reservation costs until it counts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.model.config import AdmissionFairSharing
from controller.scheduler.model.resources import CPU, Amount, LocalQueueKey, ResourceName, WorkloadKey
from controller.scheduler.quota.usagehistory import UsageHistory

LQ = LocalQueueKey("ns/lq")
GPU = ResourceName("nvidia.com/gpu")
JOB = WorkloadKey("ns/job")
HOUR = AdmissionFairSharing(half_life_s=3600.0, sampling_interval_s=300.0)


def test_half_of_what_was_used_is_forgotten_in_a_half_life() -> None:
    history = UsageHistory(HOUR)
    history.restore(LQ, {GPU: 8.0}, 0.0)
    assert history.sample(LQ, {}, 3600.0).consumed == {GPU: 4.0}


def test_a_steady_use_is_remembered_as_what_it_is() -> None:
    history = UsageHistory(HOUR)
    for sample in range(300):
        history.sample(LQ, {GPU: 8}, sample * 300.0)
    assert history.usage(LQ) == pytest.approx(8.0)


def test_cpu_counts_in_cores_and_memory_in_bytes() -> None:
    history = UsageHistory(HOUR)
    history.restore(LQ, {}, 0.0)
    history.sample(LQ, {CPU: 1500, ResourceName("memory"): 1024}, 3600.0)
    assert history.usage(LQ) == 1025.5 / 2


def test_without_a_half_life_nothing_is_remembered() -> None:
    history = UsageHistory(AdmissionFairSharing(half_life_s=0.0))
    history.restore(LQ, {GPU: 100.0}, 0.0)
    history.penalise(LQ, JOB, {GPU: 1})
    assert history.sample(LQ, {GPU: 1}, 1.0).consumed == {}
    assert history.usage(LQ) == 0.0


def test_a_reservation_counts_at_once_and_is_counted_only_once() -> None:
    history = UsageHistory(HOUR)
    share = 1 - 0.5 ** (300 / 3600)
    history.penalise(LQ, JOB, {GPU: 8})
    assert history.penalised(LQ, JOB)
    assert history.usage(LQ) == pytest.approx(8 * share)
    history.settle(LQ, JOB, 0.0)
    assert not history.penalised(LQ, JOB)
    assert history.usage(LQ) == pytest.approx(8 * share)
    history.settle(LQ, JOB, 0.0)
    assert history.usage(LQ) == pytest.approx(8 * share)


def test_a_reservation_that_came_to_nothing_costs_nothing() -> None:
    history = UsageHistory(HOUR)
    history.penalise(LQ, JOB, {GPU: 8})
    history.pardon(LQ, JOB)
    assert history.usage(LQ) == 0.0


def test_a_record_of_the_future_is_shown_once_as_it_is_and_due_again_after_one_interval() -> None:
    history = UsageHistory(HOUR)
    history.restore(LQ, {GPU: 8.0}, 1000.0)
    assert history.due(LQ, 0.0)
    made = history.sample(LQ, {GPU: 2}, 0.0)
    assert (made.consumed, made.at_s) == ({GPU: 8.0}, 1000.0)
    assert history.due_s(LQ, 0.0) == 300.0
    assert history.due_s(LQ, 1001.0) == 1300.0


def test_weights_of_resources_multiply_and_the_local_queues_weight_divides() -> None:
    config = AdmissionFairSharing(half_life_s=3600.0, resource_weights={CPU: 0.0, GPU: 3.0})
    history = UsageHistory(config)
    history.restore(LQ, {CPU: 1000.0, GPU: 2.0}, 0.0)
    history.set_weight(LQ, 2.0)
    assert history.usage(LQ) == 3.0


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_a_local_queue_without_weight_goes_last(weight: float) -> None:
    history = UsageHistory(HOUR)
    history.set_weight(LQ, weight)
    assert history.usage(LQ) == math.inf


def test_a_sample_is_due_once_an_interval() -> None:
    history = UsageHistory(HOUR)
    assert history.due(LQ, 0.0)
    history.sample(LQ, {}, 0.0)
    assert not history.due(LQ, 299.9)
    assert history.due(LQ, 300.0)
    assert not UsageHistory(None).due(LQ, 0.0)


def test_a_restart_takes_up_where_the_status_left_off() -> None:
    before, after = UsageHistory(HOUR), UsageHistory(HOUR)
    before.restore(LQ, {GPU: 5.0}, 0.0)
    written = before.sample(LQ, {GPU: 8}, 1000.0)
    after.restore(LQ, written.consumed, written.at_s)
    assert after.sample(LQ, {GPU: 8}, 2000.0) == before.sample(LQ, {GPU: 8}, 2000.0)


@given(
    steps=st.lists(st.tuples(st.integers(0, 64), st.floats(0.0, 86_400.0)), max_size=20),
    cuts=st.lists(st.floats(0.0, 1.0), max_size=3),
)
def test_usage_stays_between_none_and_the_most_that_ran_however_it_is_sampled(
    steps: list[tuple[Amount, float]], cuts: list[float]
) -> None:
    coarse, fine = UsageHistory(HOUR), UsageHistory(HOUR)
    now_s = 0.0
    for one in (coarse, fine):
        one.sample(LQ, {}, now_s)
    for amount, lasts_s in steps:
        for cut in sorted(cuts):
            fine.sample(LQ, {GPU: amount}, now_s + cut * lasts_s)
        now_s += lasts_s
        for one in (coarse, fine):
            one.sample(LQ, {GPU: amount}, now_s)
    assert 0.0 <= coarse.usage(LQ) <= max((amount for amount, _ in steps), default=0) + 1e-9
    assert fine.usage(LQ) == pytest.approx(coarse.usage(LQ), abs=1e-9)


def test_a_clock_that_goes_back_changes_nothing() -> None:
    history = UsageHistory(HOUR)
    history.restore(LQ, {GPU: 8.0}, 1000.0)
    assert history.sample(LQ, {GPU: 1}, 500.0).consumed == {GPU: 8.0}
    assert history.sample(LQ, {GPU: 8}, 1000.0).consumed == {GPU: 8.0}
