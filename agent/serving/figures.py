"""The agent's own numbers, without the library that writes them: that is loaded when the devices are listed.

A family has its numbers by label values. The event loop alone writes and reads them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import accumulate

from msgspec import Struct

Labels = tuple[str, ...]


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Figure(Struct, frozen=True):
    """A family of series. ``buckets`` are the upper bounds of a histogram's buckets, without the last, which
    has none.
    """

    kind: Kind
    name: str
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()


class Figures:
    """The numbers of each family. A family without labels starts at 0.

    A histogram has the sum of its values, then the number of values in each bucket, each value in the first that takes
    it.
    """

    def __init__(self, table: Iterable[Figure]) -> None:
        self.table = {figure.name: figure for figure in table}
        self._numbers: dict[str, dict[Labels, list[float]]] = {name: {} for name in self.table}
        for figure in self.table.values():
            if not figure.labels:
                self._of(figure.name, ())

    def count(self, name: str, *labels: str, by: float = 1.0) -> None:
        self._of(name, labels)[0] += by

    def set(self, name: str, *labels: str, value: float) -> None:
        self._of(name, labels)[0] = value

    def observe(self, name: str, *labels: str, value: float) -> None:
        numbers = self._of(name, labels)
        numbers[0] += value
        numbers[1 + bisect_left(self.table[name].buckets, value)] += 1

    def keep(self, name: str, shown: Iterable[Labels]) -> None:
        """Drop the series of labels that are not ``shown``."""
        numbers = self._numbers[name]
        for gone in numbers.keys() - set(shown):
            del numbers[gone]

    def values(self, name: str) -> Mapping[Labels, float]:
        """The value of a counter or gauge."""
        return {labels: numbers[0] for labels, numbers in self._numbers[name].items()}

    def observed(self, name: str) -> Mapping[Labels, tuple[float, tuple[float, ...]]]:
        """The sum of a histogram, and how many of its values are at most each bound; the last number counts all."""
        found = self._numbers[name].items()
        return {labels: (total, tuple(accumulate(numbers))) for labels, (total, *numbers) in found}

    def _of(self, name: str, labels: Labels) -> list[float]:
        numbers = self._numbers[name].get(labels)
        if numbers is None:
            figure = self.table[name]
            assert len(labels) == len(figure.labels), f"{name} has the labels {figure.labels}, not {labels}"
            width = 2 + len(figure.buckets) if figure.kind is Kind.HISTOGRAM else 1
            numbers = self._numbers[name][labels] = [0.0] * width
        return numbers
