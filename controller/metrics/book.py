"""Counters and histograms, and their text. Plain dictionaries: a thousand admissions a second pass through here."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping

from controller.metrics.table import COUNTED, ROLE, Family, Type

Labels = tuple[str, ...]
Samples = Mapping[str, Mapping[Labels, float]]
"""Values of gauges, by name and labels."""


class Histogram:
    """``counts`` are of single buckets; the text adds them up."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0


class Book:
    """``count`` and ``observe`` take label values in the order of the table."""

    def __init__(self, families: Iterable[Family] = COUNTED) -> None:
        self._families = {family.name: family for family in families}
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        for name, family in self._families.items():
            if family.type is Type.HISTOGRAM:
                self._histograms[name] = {}
            else:
                self._counters[name] = {}

    def count(self, name: str, *labels: str, by: float = 1.0) -> None:
        values = self._counters[name]
        values[labels] = values.get(labels, 0.0) + by

    def observe(self, name: str, *labels: str, value: float, times: int = 1) -> None:
        family = self._families[name]
        found = self._histograms[name].get(labels)
        if found is None:
            found = self._histograms[name][labels] = Histogram(len(family.buckets))
        found.counts[bisect_left(family.buckets, value)] += times
        found.total += value * times

    def value(self, name: str, *labels: str) -> float:
        """A counter's value; how often a histogram was told."""
        if name in self._counters:
            return self._counters[name].get(labels, 0.0)
        found = self._histograms[name].get(labels)
        return 0.0 if found is None else float(sum(found.counts))

    def forget(self, **gone: str) -> None:
        """The object that these labels name is gone: its series go too."""
        for name, family in self._families.items():
            if gone.keys() <= set(family.labels):
                places = [(family.labels.index(label), value) for label, value in gone.items()]
                kept = self._counters.get(name) or self._histograms.get(name) or {}
                for labels in [labels for labels in kept if all(labels[at] == value for at, value in places)]:
                    del kept[labels]

    def lines(self, role: str) -> Iterable[str]:
        for name, family in self._families.items():
            yield from _heading(family)
            for labels, value in self._counters.get(name, {}).items():
                yield _line(name, (*family.labels, ROLE), (*labels, role), value)
            for labels, found in self._histograms.get(name, {}).items():
                yield from _buckets(family, labels, found, role)


def gauges(families: Iterable[Family], samples: Samples, role: str) -> Iterable[str]:
    """The text of gauges; a family without samples is left out."""
    for family in families:
        values = samples.get(family.name)
        if values:
            yield from _heading(family)
            for labels, value in values.items():
                yield _line(family.name, (*family.labels, ROLE), (*labels, role), value)


def _heading(family: Family) -> Iterable[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.type.value}"


def _buckets(family: Family, labels: Labels, found: Histogram, role: str) -> Iterable[str]:
    names, values = (*family.labels, ROLE), (*labels, role)
    sum_ = 0
    for edge, count in zip((*family.buckets, math.inf), found.counts, strict=True):
        sum_ += count
        yield _line(f"{family.name}_bucket", (*names, "le"), (*values, _number(edge)), sum_)
    yield _line(f"{family.name}_sum", names, values, found.total)
    yield _line(f"{family.name}_count", names, values, sum_)


def _line(name: str, names: Labels, values: Labels, value: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in zip(names, values, strict=True))
    return f"{name}{{{pairs}}} {_number(value)}" if pairs else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
