"""Counts of LocalQueues' units: when the next would be admitted, and the sentences of their statuses."""

import logging
from collections.abc import Callable
from typing import Final

from controller.core import Core
from controller.insight.admissible import MOST_ROWS, UnitCount, annotated, count_parts, next_parts
from controller.insight.forecast.forecast import Forecaster
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.service_shell import BusyError, ForecastService, worked
from controller.messages import queues
from controller.messages.spans import moment
from controller.objects.queues import LocalQueue
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import LocalQueueKey
from kube.clock import Clock, sleep

log = logging.getLogger(__name__)

NextUnits = dict[tuple[str, str], float | None]
"""The time of the next unit, by unit and flavor; None where no end is known."""
COUNT_EVERY_S: Final = 60.0
"""Seconds between two counts for statuses: each that differs is a write, and wakes whoever watches LocalQueues."""
_TIMED: Final = 32
"""Units and flavors of one LocalQueue of which the next is foretold."""


async def count_units(core: Core, forecasts: ForecastService, priority: Callable[[], int], clock: Clock) -> None:
    """Tell the status of each LocalQueue that names units what it would admit, again and again. ``priority``: of a job
    that names no class. The first ``MOST_ROWS`` counts are told, by namespace and name of the LocalQueue.
    """
    while True:
        try:
            core.count(await _sentences(core.engine, forecasts, priority(), clock.wall()))
        except Exception:
            # A fault of counts must not end a term of decisions.
            log.exception("no units of LocalQueues could be counted")
        await sleep(clock, COUNT_EVERY_S)


async def _sentences(
    engine: Engine, forecasts: ForecastService, priority: int, now_s: float
) -> dict[LocalQueueKey, str]:
    sentences: dict[LocalQueueKey, str] = {}
    rows = 0
    for queue in annotated(engine):
        if rows >= MOST_ROWS:
            break
        counts = await worked(count_parts(engine, queue, priority, now_s))
        coming = await next_units(engine, forecasts, queue, counts, now_s)
        rows += len(counts)
        parts = [_sentence(each, coming.get((each.unit, each.flavor))) for each in counts]
        key = LocalQueueKey(queue.key)
        sentences[key] = queues.units_counted(priority, "; ".join(parts)) if parts else queues.no_units_counted()
    return sentences


def _sentence(count: UnitCount, next_s: float | None) -> str:
    if next_s is None:
        return queues.units_of_flavor(count.unit, count.flavor, count.admissible)
    return queues.units_of_flavor_later(count.unit, count.flavor, count.admissible, moment(next_s))


async def next_units(
    engine: Engine, forecasts: ForecastService, queue: LocalQueue, counts: list[UnitCount], now_s: float
) -> NextUnits:
    """When one unit more than counted would be admitted; nothing where forecasts are busy."""
    try:
        return await forecasts.answered(lambda known: _next_parts(engine, known, queue, counts, now_s))
    except (BusyError, TimeoutError):
        return {}


def _next_parts(
    engine: Engine, known: Forecaster, queue: LocalQueue, counts: list[UnitCount], now_s: float
) -> Parts[NextUnits]:
    """When one unit more than now would be admitted, if everything that holds quota ends when it says."""
    found, ends_at, lasts_s = NextUnits(), known.ends_at(engine, now_s), known.lasts(engine)
    for each in counts[:_TIMED]:
        found[each.unit, each.flavor] = yield from next_parts(engine, queue, each, now_s, ends_at, lasts_s)
    return found
