"""The record's arithmetic: the rows it makes, how hours are thinned, and how a question is answered, without a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.people.history import queries, record
from controller.people.history.record import (
    GPU,
    HourRow,
    Of,
    Pending,
    Sample,
    bucket,
    hour_of,
    lines,
    sampled,
    thinned,
)
from tests.controller.people.visibility.test_redaction import preempting
from tests.support.controller.gpunodes import observed

USED = Of("queue", "research", "used", GPU)
OTHER = Of("queue", "research", "nominal", GPU)
HOURS = st.integers(480_000, 480_400)
ROWS = st.lists(
    st.builds(HourRow, HOURS, st.sampled_from([USED, OTHER]), st.floats(0, 1e6), st.integers(1, 60)), max_size=60
)


def device(index: int, **more: object) -> dict[str, object]:
    return {"index": index, "uuid": f"GPU-{index}", "product": "H100", "mode": "whole", "offers": [], **more}


def holder(of: str) -> dict[str, str]:
    return {"namespace": "team", "pod": f"p-{of}", "container": "c", "resource": "r", "device": of}


def test_a_sample_has_queues_cohorts_nodes_and_the_fleet() -> None:
    world = preempting()
    nodes = [
        observed("n1", devices=[device(0), device(1)], holders=[holder("GPU-0::0"), holder("GPU-0::1")]),
        observed("n2", devices=[device(2)], holders=[]),
    ]
    found = sampled(world.engine, nodes)
    assert (found[Of("fleet", "", "there", GPU)], found[Of("fleet", "", "held", GPU)]) == (3.0, 1.0)
    of_nodes = [[found[Of("node", name, series, GPU)] for series in ("there", "held")] for name in ("n1", "n2")]
    assert of_nodes == [[2.0, 1.0], [1.0, 0.0]]
    queues = {of.name for of in found if of.what == "queue"}
    assert queues == set(world.engine.state.cluster.queues)
    waiting = sum(amount for of, amount in found.items() if of.series == "waiting")
    assert waiting == 3
    for name, state in world.engine.state.cluster.queues.items():
        for fr, cell in state.node.cells.items():
            assert found[Of("queue", name, "used", fr.resource)] >= cell.usage > -1
    assert all(amount >= 0 for amount in found.values())


def test_a_gpu_in_instances_is_held_by_the_part_that_is() -> None:
    instances = [{"uuid": f"MIG-{index}"} for index in range(4)]
    node = observed("n", devices=[device(0, mig={"instances": instances})], holders=[holder("MIG-1")])
    assert sampled(preempting().engine, [node])[Of("fleet", "", "held", GPU)] == 0.25


def test_an_hour_is_the_mean_of_its_samples_and_one_without_any_is_null() -> None:
    pending = Pending(100)
    for minute, amount in enumerate((2.0, 4.0, 6.0)):
        pending.add({USED: amount}, 7200 + minute * 60)
    (line,) = lines(pending.taken(), (7200, 10_800, 14_400), {})
    assert line == {"name": "used", "resource": GPU, "points": [None, 4.0, None]}


def test_a_clock_that_steps_back_adds_to_the_hour_that_it_shows() -> None:
    pending = Pending(100)
    for now_s in (7200.0, 10_900.0, 7300.0):
        pending.add({USED: 1.0}, now_s)
    assert sorted((row.hour, row.samples) for row in pending.taken()) == [(2, 2), (3, 1)]


@given(ROWS, st.integers(1, 40))
def test_rows_that_are_put_back_are_the_newest_that_there_is_room_for(rows: list[HourRow], most: int) -> None:
    pending = Pending(most)
    pending.put_back(rows)
    pending.validate()
    kept = pending.taken()
    keys = sorted({(row.hour, row.of) for row in rows})
    assert sorted((row.hour, row.of) for row in kept) == keys[-most:]
    assert pending.taken() == []


@given(ROWS, st.sampled_from([2, 3, 6, 12]))
def test_thinning_loses_no_sample_and_twice_is_once(rows: list[HourRow], step: int) -> None:
    found = thinned(rows, step)
    for of in (USED, OTHER):
        assert sum(row.total for row in found if row.of == of) == pytest.approx(
            sum(row.total for row in rows if row.of == of)
        )
        assert sum(row.samples for row in found if row.of == of) == sum(row.samples for row in rows if row.of == of)
    assert all(row.hour % step == 0 for row in found)
    again = thinned(found, step)
    assert [(row.hour, row.of, row.samples) for row in again] == [(row.hour, row.of, row.samples) for row in found]


@given(st.lists(HOURS, unique=True, min_size=1, max_size=60), st.sampled_from([3, 6]))
def test_an_hour_that_was_thinned_has_the_mean_of_its_bucket(hours: list[int], step: int) -> None:
    rows = thinned([HourRow(hour, USED, float(hour), 1) for hour in hours], step)
    ends = [(hour + 1) * 3600 for hour in hours]
    (line,) = lines(rows, ends, {step: max(hours) + 1})
    for hour, point in zip(hours, line["points"], strict=True):
        together = [each for each in hours if bucket(each, step) == bucket(hour, step)]
        assert point == pytest.approx(sum(together) / len(together))


def test_an_hour_after_what_was_thinned_is_not_taken_from_a_bucket() -> None:
    (line,) = lines([HourRow(3, USED, 1.0, 1)], [4 * 3600, 5 * 3600], {3: 3})
    assert line["points"] == [1.0, None]


def test_the_order_is_used_nominal_borrowed_and_there_are_no_more_than_a_chart_can_show() -> None:
    sample: Sample = {Of("queue", "q", series, f"r{at}"): 1.0 for series in ("nominal", "used") for at in range(20)}
    pending = Pending(100)
    pending.add(sample, 0.0)
    found = lines(pending.taken(), [3600], {})
    assert len(found) == queries.MOST_SERIES
    assert [each["name"] for each in found[:20]] == ["used"] * 20


def test_hours_are_those_of_prometheus() -> None:
    assert record.STEP_S == queries.STEP_S
    assert hour_of(7199.9) == 1
