"""The agent's figures as families of prometheus_client, and their registry. This module is loaded with the
endpoints.
"""

import math
from collections.abc import Callable, Iterable

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from agent.serving.figures import Figure, Figures, Kind
from kube.metrics import KeptText, Registry


def registry_of(figures: Figures, texts: Iterable[Callable[[], bytes]]) -> Registry:
    """A registry of the process's own figures, ours, and then the texts, each of whole families."""
    registry = Registry()
    ProcessCollector(registry=registry)
    registry.register(_Ours(figures))
    for text in texts:
        registry.register(KeptText(text))
    return registry


class _Ours(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        for figure in self._figures.table.values():
            yield _histogram(figure, self._figures) if figure.kind is Kind.HISTOGRAM else _plain(figure, self._figures)


def _plain(figure: Figure, figures: Figures) -> Metric:
    kind = CounterMetricFamily if figure.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(figure.name, figure.help, labels=figure.labels)
    for labels, value in figures.values(figure.name).items():
        family.add_metric(labels, value)
    return family


def _histogram(figure: Figure, figures: Figures) -> Metric:
    family = HistogramMetricFamily(figure.name, figure.help, labels=figure.labels)
    bounds = [floatToGoString(bound) for bound in (*figure.buckets, math.inf)]  # type: ignore[no-untyped-call]
    for labels, (total, counts) in figures.observed(figure.name).items():
        family.add_metric(labels, list(zip(bounds, counts, strict=True)), total)
    return family
