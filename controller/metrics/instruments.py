"""Counters and histograms of the table, in one registry."""

from collections.abc import Iterable

from prometheus_client import Counter, Histogram

from controller.metrics.table import COUNTED, Family, Type
from kube.metrics import Registry

Labels = tuple[str, ...]


class Instruments:
    """``count`` and ``observe`` take label values in the order of the table.

    A thousand admissions a second pass through here, so the children that labels lead to are kept beside the registry:
    ``labels()`` of the library takes three times as long as the addition. Each child kept here is the library's own of
    the same labels; ``forget`` removes both.
    """

    def __init__(self, families: Iterable[Family] = COUNTED) -> None:
        self.registry = Registry()
        self._families = tuple(families)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        for family in self._families:
            if family.type is Type.HISTOGRAM:
                self._histograms[family.name] = Histogram(
                    family.name, family.help, family.labels, buckets=family.buckets, registry=self.registry
                )
            else:
                self._counters[family.name] = Counter(family.name, family.help, family.labels, registry=self.registry)
        self._counted: dict[str, dict[Labels, Counter]] = {name: {} for name in self._counters}
        self._observed: dict[str, dict[Labels, Histogram]] = {name: {} for name in self._histograms}

    def count(self, name: str, *labels: str, by: float = 1.0) -> None:
        child = self._counted[name].get(labels)
        if child is None:
            parent = self._counters[name]
            child = self._counted[name][labels] = parent.labels(*labels) if labels else parent
        child.inc(by)

    def observe(self, name: str, *labels: str, value: float, times: int = 1) -> None:
        child = self._observed[name].get(labels)
        if child is None:
            parent = self._histograms[name]
            child = self._observed[name][labels] = parent.labels(*labels) if labels else parent
        for _ in range(times):
            child.observe(value)

    def forget(self, **gone: str) -> None:
        """The object that these labels name is gone: its series go too."""
        for family in self._families:
            if gone.keys() <= set(family.labels):
                places = [(family.labels.index(label), value) for label, value in gone.items()]
                metric = self._counters.get(family.name) or self._histograms[family.name]
                metric.remove_by_labels(gone)
                kept = self._counted.get(family.name) or self._observed.get(family.name) or {}
                for labels in [labels for labels in kept if all(labels[at] == value for at, value in places)]:
                    del kept[labels]
