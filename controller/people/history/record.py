"""What a replica records by itself: amounts of queues, cohorts, nodes and the fleet, summed by hour; and their reading.

Pure: an engine and objects in, amounts out; rows in, a series out. ``Rows`` has the arithmetic of the table that
``recorder_shell`` keeps in SQLite.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from controller.objects.decode import GpuNode
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import CPU, UNLIMITED, Amount, FlavorResource, ResourceName
from controller.scheduler.quota.queueusage import sums

Json = dict[str, Any]
STEP_S: Final = 3600
_MOST_SERIES: Final = 24
"""Series of one answer, as of Prometheus: a chart with more cannot be read."""
KEPT_HOURS: Final = 14 * 24
"""The newest hours that have rows are kept, so many of them: a clock that jumps ahead loses none of the others."""
_MILLI: Final = 1000
GPU: Final = "nvidia.com/gpu"
WAITING: Final = "waiting"
THINNED: Final[tuple[tuple[int, int], ...]] = ((168, 3), (72, 3), (168, 6), (24, 6), (72, 12))
"""Steps of thinning, one after the other, where the record has become too large: of hours older than so many, so many
become one.
"""


class Of(NamedTuple):
    """One series: ``what`` is queue, cohort, node or fleet, ``name`` its name, ``resource`` empty for a number of
    workloads.
    """

    what: str
    name: str
    series: str
    resource: str


Sample = dict[Of, float]
"""Amounts of one moment."""


class HourRow(NamedTuple):
    """The sum of ``samples`` samples in one hour; ``hour`` is its number since 1970."""

    hour: int
    of: Of
    total: float
    samples: int


def hour_of(now_s: float) -> int:
    return math.floor(now_s) // STEP_S


def sampled(engine: Engine, gpu_nodes: Iterable[GpuNode]) -> Sample:
    """The amounts of this moment, as the series of the metrics have them."""
    sample: Sample = {}
    for state in engine.state.cluster.queues.values():
        reserved, _ = sums(state.holders.values())
        quotas = state.node.spec.quotas if state.node.spec is not None else {}
        nominal = {fr: quota.nominal for fr, quota in quotas.items()}
        _amounts(sample, "queue", state.name, reserved, nominal)
        sample[Of("queue", state.name, WAITING, "")] = float(sum(engine.state.queues.counts(state.name)))
    for name, node in engine.state.cluster.quota.cohorts.items():
        cells = node.cells
        _amounts(sample, "cohort", name, {fr: node.usage(fr) for fr in cells}, {fr: node.quota(fr) for fr in cells})
    there, held = 0, 0.0
    for gpu_node in gpu_nodes:
        on_node = Of("node", gpu_node.metadata.name, "there", GPU)
        devices, holds = len(gpu_node.status.devices), _held(gpu_node)
        sample[on_node] = float(devices)
        sample[on_node._replace(series="held")] = holds
        there += devices
        held += holds
    sample[Of("fleet", "", "there", GPU)] = float(there)
    sample[Of("fleet", "", "held", GPU)] = held
    return sample


def _amounts(
    found: Sample,
    what: str,
    name: str,
    used: Mapping[FlavorResource, Amount],
    nominal: Mapping[FlavorResource, Amount],
) -> None:
    """Used, nominal and borrowed by resource, flavors together. An amount without a bound is no sample."""
    totals: dict[tuple[str, str], float] = defaultdict(float)
    for fr in {**used, **nominal}:
        amounts = (_number(fr.resource, used.get(fr, 0)), _number(fr.resource, nominal.get(fr, 0)))
        if amounts[0] is None:
            continue
        totals["used", fr.resource] += amounts[0]
        if amounts[1] is not None:
            totals["nominal", fr.resource] += amounts[1]
            totals["borrowed", fr.resource] += max(0.0, amounts[0] - amounts[1])
    for (series, resource), amount in totals.items():
        found[Of(what, name, series, resource)] = amount


def _number(resource: ResourceName, amount: Amount) -> float | None:
    """The amount in base units; None if it is unlimited."""
    if amount >= UNLIMITED:
        return None
    return amount / _MILLI if resource == CPU else float(amount)


def _held(node: GpuNode) -> float:
    """The GPUs of a node that are held: a whole one by anybody who holds it or a share of it, of a MIG instance the
    part of its GPU's instances.
    """
    held = {entry.physical for entry in node.status.holders}
    gpus = 0.0
    for device in node.status.devices:
        instances = device.uuids[1:]
        if device.uuid in held or not instances:
            gpus += float(device.uuid in held)
        else:
            gpus += len(held.intersection(instances)) / len(instances)
    return gpus


class Pending:
    """Sums by hour that are not in the table yet, each with the number of its samples.

    ``add`` and ``put_back`` alone write ``_rows``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: dict[tuple[int, Of], tuple[float, int]] = {}

    def add(self, sample: Sample, now_s: float) -> None:
        hour = hour_of(now_s)
        self._sum(HourRow(hour, of, amount, 1) for of, amount in sample.items())

    def put_back(self, rows: Iterable[HourRow]) -> None:
        """Rows that could not be written; where there are too many, those of the oldest hours are lost."""
        self._sum(rows)
        for key in sorted(self._rows)[: max(0, len(self._rows) - self._most)]:
            del self._rows[key]

    def _sum(self, rows: Iterable[HourRow]) -> None:
        for row in rows:
            total, count = self._rows.get((row.hour, row.of), (0.0, 0))
            self._rows[row.hour, row.of] = (total + row.total, count + row.samples)

    def taken(self) -> list[HourRow]:
        """All rows, which are not here any more."""
        rows = [HourRow(hour, of, total, count) for (hour, of), (total, count) in self._rows.items()]
        self._rows = {}
        return rows

    def validate(self) -> None:
        """Raises AssertionError where a row has no sample or is no number."""
        assert all(count > 0 and math.isfinite(total) for total, count in self._rows.values())


def bucket(hour: int, step: int) -> int:
    """The hour that has what ``step`` hours had, once they are thinned."""
    return hour - hour % step


def thinned(rows: Iterable[HourRow], step: int) -> list[HourRow]:
    """The rows with ``step`` hours as one: sums and numbers of samples are added, so that means stay."""
    merged: dict[tuple[int, Of], tuple[float, int]] = {}
    for row in rows:
        key = (bucket(row.hour, step), row.of)
        total, count = merged.get(key, (0.0, 0))
        merged[key] = (total + row.total, count + row.samples)
    return [HourRow(hour, of, total, count) for (hour, of), (total, count) in sorted(merged.items())]


def lines(rows: Sequence[HourRow], ends: Sequence[int], thinned_before: Mapping[int, int]) -> list[Json]:
    """The series of one question, as those of Prometheus: a point for each hour by the second in which it ends, the
    mean of its samples, or null. ``thinned_before``: by each step of hours, the hour before which so many became one.
    """
    means: dict[Of, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row.samples:
            means[row.of][row.hour] = row.total / row.samples
    series: list[Json] = []
    for of, known in sorted(means.items(), key=lambda each: (_ORDER.get(each[0].series, len(_ORDER)), each[0])):
        points = [_point(known, end // STEP_S - 1, thinned_before) for end in ends]
        if any(point is not None for point in points):
            series.append({"name": of.series, "resource": of.resource, "points": points})
    return series[:_MOST_SERIES]


_ORDER: Final = {name: at for at, name in enumerate(("used", "nominal", "borrowed", "held", "there", WAITING))}


def _point(known: Mapping[int, float], hour: int, thinned_before: Mapping[int, int]) -> float | None:
    steps = (1, *sorted(step for step, before in thinned_before.items() if hour < before))
    return next((known[bucket(hour, step)] for step in steps if bucket(hour, step) in known), None)
