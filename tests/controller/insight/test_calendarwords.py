"""Sentences about calendars name the window that holds, the next one, and what is wrong."""

from controller.insight.calendarwords import calendar_shown
from controller.insight.explain import explained
from controller.objects.decode import decode
from controller.objects.queues import Cohort
from controller.scheduler.model.resources import ClusterQueueName
from tests.controller.scheduler.quota.test_calendars import (
    CLOSED_NIGHTS,
    DAY_S,
    NIGHT_S,
    NIGHTS,
    engine_with,
    groups,
    job,
    made,
    metadata,
    queue,
)

QUEUE = ClusterQueueName("cq")


def test_by_day_the_next_window_is_told_and_in_it_its_end() -> None:
    engine = engine_with(queue(NIGHTS))
    by_day, by_night = (calendar_shown(engine, QUEUE, now_s) for now_s in (DAY_S, NIGHT_S))
    assert by_day is not None
    assert by_day["sentence"] == (
        "ClusterQueue cq has its own quota; "
        'the next window of its calendar, "0 20 * * *" UTC, begins 2026-01-05 20:00 UTC'
    )
    assert by_night is not None
    assert by_night["sentence"] == (
        'ClusterQueue cq has the quota of its calendar\'s window "0 20 * * *" UTC until 2026-01-06 06:00 UTC'
    )
    (owner,) = by_night["owners"]
    assert owner["windows"] == [{"entry": 1, "from": "0 20 * * *", "until": "2026-01-06 06:00 UTC"}]


def test_calendars_of_cohorts_above_and_wrong_entries_are_told_too() -> None:
    pool = decode({"metadata": metadata("pool", CLOSED_NIGHTS), "spec": {"resourceGroups": groups("0")}}, Cohort)
    engine = engine_with(pool, queue('[{from: "0 25 * * *"}]', cohort="pool"))
    found = calendar_shown(engine, QUEUE, NIGHT_S)
    assert found is not None
    own, above = found["owners"]
    assert (own["windows"], own["nextChange"], len(own["problems"])) == ([], None, 1)
    assert own["sentence"].endswith("Correct the entry; the others hold")
    assert above["owner"] == "Cohort pool"
    assert found["sentence"] == f"{own['sentence']}. {above['sentence']}"


def test_a_queue_without_a_calendar_and_one_that_is_not_there_say_nothing() -> None:
    engine = engine_with(queue(None))
    assert calendar_shown(engine, QUEUE, DAY_S) is None
    assert calendar_shown(engine, ClusterQueueName("other"), DAY_S) is None


def test_a_workload_that_waits_is_told_its_queues_calendar() -> None:
    engine = engine_with(queue(NIGHTS), waits := job("j", 8))
    made(engine, DAY_S)
    found = explained(engine, waits, DAY_S)["calendar"]
    assert "begins 2026-01-05 20:00 UTC" in found["sentence"]
