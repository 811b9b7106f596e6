"""Answers about units of LocalQueues: how many would be admitted now, and when the next would be."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from controller.cluster.process.term import Running
from controller.cluster.process.unitcounts_shell import next_units
from controller.insight.admissible import UnitCount, annotated, count_parts
from controller.insight.forecast.service_shell import worked
from controller.messages.spans import LATEST_S
from controller.objects.queues import LocalQueue
from controller.objects.queueunits import UnitsError, unit_shapes
from controller.people.visibility.routes import ADMISSIBLE, Asked, What
from controller.scheduler.model.resources import LocalQueueKey

Json = dict[str, Any]


async def units_view(running: Running, asked: Asked, priority: int, now_s: float) -> Json | None:
    """The body of a LocalQueueView, or the items of a series. None for a LocalQueue that does not exist."""
    engine = running.core.engine
    if asked.what is What.EXTERNAL:
        items: list[Json] = []
        for queue in annotated(engine):
            if queue.metadata.namespace == asked.namespace:
                counts = await worked(count_parts(engine, queue, priority, now_s))
                items += _values(asked, queue, counts, now_s)
        return {"items": items}
    queue_of = engine.state.cluster.local_queues.get(LocalQueueKey(f"{asked.namespace}/{asked.name}"))
    if queue_of is None:
        return None
    counts = await worked(count_parts(engine, queue_of, priority, now_s))
    coming = await next_units(engine, running.forecasts, queue_of, counts, now_s)
    return {
        "clusterQueue": queue_of.spec.cluster_queue,
        "units": [_row(each, coming.get((each.unit, each.flavor))) for each in counts],
        "problem": _problem(queue_of),
    }


def _row(count: UnitCount, next_s: float | None) -> Json:
    return {
        "unit": count.unit,
        "flavor": count.flavor,
        "priority": count.priority,
        "admissible": count.admissible,
        "held": count.held,
        "next": None if next_s is None else _time(next_s),
    }


def _problem(queue: LocalQueue) -> str | None:
    try:
        unit_shapes(queue.metadata.annotations)
    except UnitsError as wrong:
        return str(wrong)
    return None


def _values(asked: Asked, queue: LocalQueue, counts: list[UnitCount], now_s: float) -> Iterator[Json]:
    series = asked.right.resource
    for count in counts:
        labels = {
            "namespace": queue.metadata.namespace,
            "local_queue": queue.metadata.name,
            "flavor": count.flavor,
            "unit": count.unit,
        }
        if asked.labels.items() <= labels.items():
            value = count.admissible if series == ADMISSIBLE else count.admissible + count.held
            at = _time(now_s)
            yield {"metricName": series, "metricLabels": labels, "timestamp": at, "value": str(value)}


def _time(at_s: float) -> str:
    return f"{datetime.fromtimestamp(min(at_s, LATEST_S), UTC):%Y-%m-%dT%H:%M:%SZ}"
