"""How far past forecasts were off, and by how much ranges are widened for it: learnt from each start, queue by queue,
on top of what traces have taught beforehand.

The runs of a forecast know nothing of later arrivals, so true starts lie after their ranges more often than before
them. The width that is added covers nine in ten of the past misses on either side, as logarithms (Romano, Patterson and
Candes, "Conformalized quantile regression", 2019).
"""

import math
from collections import OrderedDict, deque
from typing import Final, NamedTuple

import msgspec

from controller.scheduler.model.resources import WorkloadKey

_SHORT_S: Final = 60.0
"""Seconds added before logarithms are taken: below a minute a ratio says nothing to a reader."""
_PART: Final = 0.9
_KEPT: Final = 200
_QUEUES: Final = 2_000
_EXPECTED: Final = 20_000
_OF_ONE: Final = 4
"""Forecasts kept of one workload; each is at least so much later than the last:"""
_APART_S: Final = 300.0
_LONGEST_S: Final = 10 * 365 * 86_400.0

EARLY: Final = (-2.8, -2.2, -1.85, -1.55, -1.3, -1.05, -0.8, -0.45, -0.05)
LATE: Final = (-1.65, -0.95, -0.65, -0.35, -0.15, 0.1, 0.35, 0.6, 1.05)
"""The deciles of the misses in traces (``python -m hack.bench forecast``, on seeds for tuning)."""


class Range(NamedTuple):
    """A range of seconds from the moment of the forecast; None: no end is known."""

    from_s: float
    to_s: float | None

    def widened(self, by: "Width") -> "Range":
        low_s = _seconds(_log(self.from_s) - by.early)
        if self.to_s is None:
            return Range(low_s, None)
        return Range(low_s, max(low_s, _seconds(_log(self.to_s) + by.late)))


class Width(NamedTuple):
    """The widening of a range on either side, as logarithms."""

    early: float
    late: float


class _Expected(msgspec.Struct, frozen=True):
    queue: str
    at_s: float
    low_s: float
    high_s: float


class Calibration:
    """The misses of past forecasts. Memory is bounded. ``expect`` takes ranges as the runs gave them; ``width`` is what
    a range is widened by when it is shown.
    """

    def __init__(self) -> None:
        self._misses: OrderedDict[str, deque[tuple[float, float]]] = OrderedDict()
        """The misses of each ClusterQueue: how much too late the range began, and how much too early it ended; negative
        inside of it."""
        self._expected: OrderedDict[WorkloadKey, list[_Expected]] = OrderedDict()

    def expect(self, key: WorkloadKey, queue: str, at_s: float, given: Range) -> None:
        if given.to_s is None:
            return
        known = self._expected.setdefault(key, [])
        if known and (len(known) >= _OF_ONE or at_s < known[-1].at_s + _APART_S):
            return
        known.append(_Expected(queue, at_s, given.from_s, given.to_s))
        if len(self._expected) > _EXPECTED:
            self._expected.popitem(last=False)

    def started(self, key: WorkloadKey, at_s: float) -> None:
        """Notes that the workload holds quota since ``at_s``, and how far its forecasts were off."""
        for expected in self._expected.pop(key, ()):
            if at_s < expected.at_s:
                continue
            waited = _log(at_s - expected.at_s)
            misses = self._misses.setdefault(expected.queue, deque(maxlen=_KEPT))
            self._misses.move_to_end(expected.queue)
            misses.append((_log(expected.low_s) - waited, waited - _log(expected.high_s)))
        if len(self._misses) > _QUEUES:
            self._misses.popitem(last=False)

    def gone(self, key: WorkloadKey) -> None:
        self._expected.pop(key, None)

    def seen(self, queue: str) -> int:
        """The number of the queue's forecasts whose workload has started."""
        return len(self._misses.get(queue, ()))

    def width(self, queue: str) -> "Width":
        misses = self._misses.get(queue, ())
        return Width(
            _quantile([*EARLY, *(miss[0] for miss in misses)]), _quantile([*LATE, *(miss[1] for miss in misses)])
        )

    def widened(self, queue: str, given: Range) -> Range:
        return given.widened(self.width(queue))

    def __len__(self) -> int:
        return len(self._expected)


def _log(seconds: float) -> float:
    return math.log(max(0.0, seconds) + _SHORT_S)


def _seconds(logged: float) -> float:
    return min(max(0.0, math.exp(logged) - _SHORT_S), _LONGEST_S)


def _quantile(values: list[float]) -> float:
    """The smallest value that so large a part of them does not exceed, one more counted in."""
    values.sort()
    return values[min(len(values) - 1, math.ceil((len(values) + 1) * _PART) - 1)]
