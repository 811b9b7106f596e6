"""Forecasts know the windows of calendars: what waits for one starts when it begins."""

from datetime import datetime
from typing import Final

import pytest

from controller.insight.forecast.forecast import Forecaster
from controller.insight.forecast.forward import Forward
from controller.insight.forecast.model import model_of
from controller.objects.queues import ClusterQueue
from tests.controller.scheduler.quota.test_calendars import DAY_S, NIGHT_S, NIGHTS, engine_with, job, made, queue

WEEKENDS: Final = '[{from: "0 0 * * sat", for: 48h, nominal: {a100: {nvidia.com/gpu: 4}}}]'


def starts(owner: ClusterQueue, *gpus: int) -> dict[str, float]:
    """Seconds from 18:00 on a Monday to the starts of jobs of so many GPUs that run for an hour each."""
    engine = engine_with(owner, *(job(f"j{number}", each) for number, each in enumerate(gpus)))
    made(engine, DAY_S)
    model = model_of(engine, DAY_S)
    found: dict[str, float] = {}
    for tree in model.trees:
        before = [(cell.nominal, cell.usage) for line in tree.lines for cell in line.node.cells.values()]
        totals = {waiting.key: 3600.0 for line in tree.lines for waiting in line.waiting}
        forward = Forward(tree, DAY_S, totals, backfill=False, fair=False, grain=0.0)
        for _ in forward.run():
            pass
        assert [(cell.nominal, cell.usage) for line in tree.lines for cell in line.node.cells.values()] == before
        found |= {key.partition("/")[2]: start_s for key, start_s in forward.starts.items()}
    return found


def test_a_job_starts_when_its_window_begins_and_the_next_one_after_it() -> None:
    assert starts(queue(NIGHTS), 8, 5) == {"j0": NIGHT_S - DAY_S, "j1": NIGHT_S - DAY_S + 3600}


def test_a_window_of_the_weekend_is_seen_on_monday() -> None:
    saturday_s = datetime.fromisoformat("2026-01-10T00:00:00Z").timestamp()
    assert starts(queue(WEEKENDS), 4) == {"j0": saturday_s - DAY_S}


def test_what_no_window_has_enough_for_never_starts() -> None:
    assert starts(queue(NIGHTS), 9) == {}
    engine = engine_with(queue(NIGHTS), job("j", 9))
    made(engine, DAY_S)
    (told,) = Forecaster().all(engine, DAY_S).values()
    assert (told.from_s, told.never is None) == (None, False)


def test_a_workload_that_asks_for_more_than_its_queue_has_by_day_is_not_told_never() -> None:
    engine = engine_with(queue(NIGHTS), job("j", 8))
    made(engine, DAY_S)
    (told,) = Forecaster().all(engine, DAY_S).values()
    assert told.never is None
    assert told.likely_s == NIGHT_S - DAY_S


@pytest.mark.parametrize(
    ("begins", "lasts", "at"),
    [
        ("0 14 * * *", "10m", "2026-01-06T14:00:00Z"),
        ("0 20 * * sun", "1h", "2026-01-11T20:00:00Z"),
        ("0 20 1 * *", "3h", "2026-02-01T20:00:00Z"),
        ("0 20 1 12 *", "3h", "2026-12-01T20:00:00Z"),
    ],
)
def test_a_window_that_is_short_for_its_distance_is_seen(begins: str, lasts: str, at: str) -> None:
    calendar = f'[{{from: "{begins}", for: {lasts}, nominal: {{a100: {{nvidia.com/gpu: 8}}}}}}]'
    engine = engine_with(queue(calendar), job("j", 8))
    made(engine, DAY_S)
    (told,) = Forecaster().all(engine, DAY_S).values()
    assert told.never is None
    assert told.likely_s == datetime.fromisoformat(at).timestamp() - DAY_S
