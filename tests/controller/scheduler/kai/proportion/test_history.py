"""What queues had before, as the division takes it."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.history import BUCKETS, QueueHistory
from controller.scheduler.model.config import QueueUsage
from controller.scheduler.model.resources import ResourceName

GPU = ResourceName("nvidia.com/gpu")
A, B = QueueName("a"), QueueName("b")
DAY_S = 86400.0
FULL = {GPU: 8.0}


def history(window_s: float = DAY_S, half_life_s: float = 0.0) -> QueueHistory:
    return QueueHistory(QueueUsage(window_s=window_s, half_life_s=half_life_s))


def use(found: QueueHistory, name: QueueName = A) -> float:
    found.validate()
    return found.usage().get(name, {}).get(GPU, 0.0)


def test_use_is_the_part_of_the_capacity_that_was_held() -> None:
    found = history()
    found.sample({A: {GPU: 8.0}}, FULL, 0.0)
    assert use(found) == 0.0
    found.sample({A: {GPU: 4.0}}, FULL, 600.0)
    assert (use(found), use(found, B)) == (0.5, 0.0)
    found.sample({B: {GPU: 8.0}}, FULL, 1200.0)
    assert (use(found), use(found, B)) == (0.25, 0.5)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    found = history()
    found.sample({}, FULL, 0.0)
    found.sample({A: {GPU: 8.0}}, FULL, 3600.0)
    for hour in range(2, 25):
        found.sample({}, FULL, 3600.0 * hour)
    assert use(found) == pytest.approx(1 / 24, rel=0.05)
    found.sample({}, FULL, 3600.0 * 26)
    assert use(found) == 0.0


def test_a_half_life_halves_what_is_so_old() -> None:
    found = history(half_life_s=DAY_S / 10)
    found.sample({}, FULL, 0.0)
    found.sample({A: {GPU: 8.0}}, FULL, 100.0)
    for step in range(1, 5):
        found.sample({}, FULL, 100.0 + step * DAY_S / 40)
    late = found.usage()[A][GPU]
    even = 100.0 / (100.0 + DAY_S / 10)
    assert even / 2 < late < even


def test_time_before_the_first_sample_and_of_a_clock_that_went_back_counts_for_nobody() -> None:
    found = history()
    found.sample({A: {GPU: 8.0}}, FULL, 1000.0)
    found.sample({A: {GPU: 8.0}}, FULL, 500.0)
    assert (use(found), found.at_s) == (0.0, 500.0)
    found.sample({A: {GPU: 2.0}}, FULL, 600.0)
    assert use(found) == 0.25


def test_nobody_has_a_part_of_what_is_not_there() -> None:
    found = history()
    found.sample({}, {}, 0.0)
    found.sample({A: {GPU: 4.0}}, {}, 60.0)
    assert use(found) == 0.0


def test_more_than_there_is_counts_as_all_of_it() -> None:
    found = history()
    found.sample({}, FULL, 0.0)
    found.sample({A: {GPU: 16.0}}, FULL, 60.0)
    assert use(found) == 1.0


def test_a_record_brings_it_back_in_another_process() -> None:
    found, after = history(), history()
    found.sample({}, FULL, 0.0)
    for hour in range(1, 20):
        found.sample({A: {GPU: hour % 5}, B: {GPU: 3.0}}, FULL, 3600.0 * hour)
    for name in found.names():
        assert after.restore(name, found.record(name))
    for name in (A, B):
        assert use(after, name) == pytest.approx(use(found, name), rel=1e-4)


def test_what_this_process_knows_is_not_replaced_by_its_own_echo() -> None:
    found = history()
    found.sample({}, FULL, 0.0)
    found.sample({A: {GPU: 8.0}}, FULL, 60.0)
    old = found.record(A)
    found.sample({}, FULL, 120.0)
    assert found.restore(A, old)
    assert use(found) == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"bucketSeconds":2160.0,"observed":{},"used":3}',
        '{"bucketSeconds":1.0,"observed":{"0":1.0},"used":{}}',
        '{"bucketSeconds":2160.0,"observed":{"0":60.0},"used":{"nvidia.com/gpu":{"0":61.0}}}',
        '{"bucketSeconds":2160.0,"observed":{"0":-1.0},"used":{}}',
        '{"bucketSeconds":2160.0,"observed":{"0":1e300},"used":{}}',
        '{"bucketSeconds":2160.0,"observed":{"0":1.0},"used":{"nvidia.com/gpu":{"1":0.0}}}',
        '{"bucketSeconds":2160.0,"observed":{"-1":1.0},"used":{}}',
        f'{{"bucketSeconds":2160.0,"observed":{{"{2**53}":1.0}},"used":{{}}}}',
        f'{{"bucketSeconds":2160.0,"observed":{{"1{"0" * 400}":1.0}},"used":{{}}}}',
        f'{{"bucketSeconds":2160.0,"observed":{{"1{"0" * 5000}":1.0}},"used":{{}}}}',
        f'{{"other":{"[" * 30_000}{"]" * 30_000},"bucketSeconds":2160.0,"observed":{{}},"used":{{}}}}',
    ],
)
def test_what_is_no_record_of_these_rules_is_not_taken_up(text: str) -> None:
    found = history()
    assert not found.restore(A, text)
    assert list(found.names()) == []


AHEAD = '{"bucketSeconds":2160.0,"observed":{"1000000001":2160.0},"used":{}}'


@pytest.mark.parametrize("half_life_s", [0.0, DAY_S])
@pytest.mark.parametrize("late", [True, False])
def test_a_record_of_a_clock_that_is_ahead_weighs_nothing(half_life_s: float, late: bool) -> None:
    found = history(half_life_s=half_life_s)
    if not late:
        assert found.restore(B, AHEAD)
        assert use(found, B) == 0.0
    found.sample({}, FULL, 0.0)
    found.sample({A: {GPU: 8.0}}, FULL, 60.0)
    if late:
        assert found.restore(B, AHEAD)
    assert use(found) == pytest.approx(1.0)
    assert "1000000001" not in found.record(B)


def test_a_clock_that_goes_back_loses_only_what_is_ahead_of_it() -> None:
    found = history()
    found.sample({}, FULL, 0.0)
    found.sample({A: {GPU: 8.0}}, FULL, 2160.0)
    found.sample({}, FULL, 4 * 2160.0)
    assert use(found) == 0.25
    found.sample({}, FULL, 2160.0)
    assert use(found) == 0.5


def test_a_record_with_more_buckets_than_a_window_keeps_those_of_the_window() -> None:
    found = history()
    observed = ",".join(f'"{bucket}":2160.0' for bucket in range(2 * BUCKETS))
    record = (
        f'{{"bucketSeconds":2160.0,"observed":{{{observed}}},"used":{{"nvidia.com/gpu":{{"9":1080.0,"70":2160.0}}}}}}'
    )
    assert found.restore(A, record)
    found.sample({}, FULL, 9 * 2160.0)
    assert use(found) == pytest.approx(0.05)


def test_a_queue_that_is_gone_is_forgotten() -> None:
    found = history()
    found.sample({}, FULL, 0.0)
    found.sample({A: {GPU: 8.0}}, FULL, 60.0)
    found.forget(A)
    assert (use(found), list(found.names())) == (0.0, [])


@settings(max_examples=30)
@given(
    steps=st.lists(st.tuples(st.floats(1.0, 20_000.0), st.floats(0.0, 8.0)), min_size=1, max_size=30),
    half_life_s=st.sampled_from((0.0, 3600.0, DAY_S)),
)
def test_use_is_a_part_and_memory_is_bounded(steps: list[tuple[float, float]], half_life_s: float) -> None:
    found, now_s = history(half_life_s=half_life_s), 0.0
    found.sample({}, FULL, now_s)
    for seconds, gpus in steps:
        now_s += seconds
        found.sample({A: {GPU: gpus}, B: {GPU: 8.0 - gpus}}, FULL, now_s)
        assert 0.0 <= use(found) <= 1.0 + 1e-9
        assert math.isclose(use(found) + use(found, B), 1.0, rel_tol=1e-6)
        assert found.record(A).count(":") <= 3 + 2 * (BUCKETS + 1) + 2


TUMBLING = QueueUsage(window_s=400.0, tumbles_from_s=1000.0)


def test_use_begins_anew_with_each_window() -> None:
    history = QueueHistory(TUMBLING)
    history.sample({A: {GPU: 8.0}}, FULL, 1000.0)
    history.sample({A: {GPU: 8.0}}, FULL, 1390.0)
    assert history.usage()[A][GPU] == 1.0
    history.sample({}, FULL, 1400.0)
    assert history.usage() == {}
    history.sample({B: {GPU: 8.0}}, FULL, 1410.0)
    assert history.usage() == {B: {GPU: 1.0}}
    history.validate()


def test_of_a_sample_over_the_beginning_of_a_window_the_rest_counts() -> None:
    history = QueueHistory(TUMBLING)
    history.sample({}, FULL, 1000.0)
    history.sample({A: {GPU: 4.0}}, FULL, 1450.0)
    assert history.usage() == {A: {GPU: 0.5}}
    record = msgspec.json.decode(history.record(A))
    assert sum(record["observed"].values()) == 50.0


def test_what_was_stored_before_the_window_began_does_not_count() -> None:
    before, after = QueueHistory(TUMBLING), QueueHistory(TUMBLING)
    before.sample({}, FULL, 1000.0)
    before.sample({A: {GPU: 8.0}}, FULL, 1390.0)
    after.sample({}, FULL, 1500.0)
    assert after.restore(A, before.record(A))
    assert after.usage().get(A, {}).get(GPU, 0.0) == 0.0
