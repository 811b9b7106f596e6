"""Counters and histograms of the table, in one registry."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from controller.cluster.metrics.table import COUNTED, Family, Type
from kube.metrics import Registry

Labels = tuple[str, ...]
Series = dict[Labels, list[float]]


class Instruments(Collector):
    """The counters and histograms. ``count`` and ``observe`` take label values in the order of the table; another
    number of them is a ValueError.

    The numbers are kept here, and the library writes the text. A histogram of the library's takes 4 KiB for the labels
    of one LocalQueue, and a fleet has thousands of them.

    A counter has one number, its value. A histogram has the sum of its values, then how many of them fell into each
    bucket and into none before it; the last bucket has no bound. The event loop alone writes. ``collect`` may run on
    another thread, which may see half an observation.
    """

    def __init__(self, families: Iterable[Family] = COUNTED) -> None:
        self._families = {one.name: one for one in families}
        every = self._families.values()
        self._bounds = {one.name: (*one.buckets, math.inf) for one in every if one.type is Type.HISTOGRAM}
        self._series: dict[str, Series] = {name: {} for name in self._families}
        for family in every:
            if not family.labels:
                self._series[family.name][()] = self._zero(family.name)
        self.registry = Registry()
        self.registry.register(self)

    def count(self, name: str, *labels: str, by: float = 1.0) -> None:
        self._numbers(name, labels)[0] += by

    def observe(self, name: str, *labels: str, value: float, times: int = 1) -> None:
        numbers = self._numbers(name, labels)
        numbers[0] += value * times
        numbers[1 + bisect_left(self._bounds[name], value)] += times

    def forget(self, **gone: str) -> None:
        """Removes the series of an object that is gone, which these labels name."""
        for family in self._families.values():
            if gone.keys() <= set(family.labels):
                places = [(family.labels.index(label), value) for label, value in gone.items()]
                series = self._series[family.name]
                for labels in [labels for labels in series if all(labels[at] == value for at, value in places)]:
                    del series[labels]

    def collect(self) -> Iterable[Metric]:
        for family in self._families.values():
            series = dict(self._series[family.name])  # at once, before the loop adds another
            if family.type is Type.HISTOGRAM:
                yield _histogram(family, self._bounds[family.name], series)
            else:
                counter = CounterMetricFamily(family.name, family.help, labels=family.labels)
                for labels, (value,) in series.items():
                    counter.add_metric(labels, value)
                yield counter

    def _numbers(self, name: str, labels: Labels) -> list[float]:
        series = self._series[name]
        numbers = series.get(labels)
        if numbers is None:
            if len(labels) != (wanted := len(self._families[name].labels)):
                raise ValueError(f"{name} has {wanted} labels, not {len(labels)}: {labels}")
            numbers = series[labels] = self._zero(name)
        return numbers

    def _zero(self, name: str) -> list[float]:
        return [0.0] * (1 + len(self._bounds.get(name, ())))


def _histogram(family: Family, bounds: tuple[float, ...], series: Mapping[Labels, list[float]]) -> Metric:
    histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
    names = [floatToGoString(bound) for bound in bounds]  # type: ignore[no-untyped-call]
    for labels, (total, *numbers) in series.items():
        histogram.add_metric(labels, list(zip(names, accumulate(numbers), strict=True)), total)
    return histogram
