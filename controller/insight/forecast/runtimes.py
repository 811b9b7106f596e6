"""How long workloads run: what they were told to, and what the finished ones of the same queue really took.

The history is read from finished Workloads: from the condition Admitted to the condition Finished. Workloads that still
exist when a controller begins are read again, so a restart loses only what was deleted before.
"""

import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from controller.objects.meta import epoch_s, find_condition
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.model.toldtimes import runtime_s

_KEPT: Final = 128
"""Finished workloads remembered of each ClusterQueue, the newest."""
_QUEUES: Final = 2_000
_FEW: Final = 3
_LONGEST_S: Final = 10 * 365 * 86_400.0

PRIOR_RATIOS: Final = (0.2, 0.35, 0.5, 0.7, 0.9, 1.0, 1.3, 1.9, 3.0)
"""Ratios of actual to told run time before any workload has finished: told times are upper bounds as often as wishes.
Each counts as one run."""
_FADES: Final = 24
"""The number of finished workloads from which the prior does not count."""
_TAIL: Final = 1.5
"""Exponent of the Pareto tail of workloads that outlived all that is known: half of them go on for 0.6 times their
age."""


_CUT_OFF: Final = frozenset({reasons.OWNER_NOT_FOUND, reasons.WORKLOAD_SLICE_REPLACED, "OutOfSync", "FailedToStart"})
"""Reasons of Finished that say nothing of a run time."""


class FinishedRun(msgspec.Struct, frozen=True):
    """The run of a finished workload. ``told_s`` None: no run time was told."""

    lasted_s: float
    told_s: float | None


class RuntimeHistory:
    """The run times of finished workloads, bounded. ``observe`` takes every state of every Workload, and may get one
    again.
    """

    def __init__(self) -> None:
        self._queues: OrderedDict[str, OrderedDict[str, FinishedRun]] = OrderedDict()
        """Runs by ClusterQueue and UID, the least recently finished first."""

    def observe(self, workload: Workload) -> None:
        found = finished_run(workload)
        admission = workload.status.admission
        if found is not None and admission is not None:
            self.note(admission.cluster_queue, workload.metadata.uid or workload.key, found)

    def note(self, queue: str, uid: str, run: FinishedRun) -> None:
        """Notes a workload of the ClusterQueue that has finished."""
        runs = self._queues.setdefault(queue, OrderedDict())
        self._queues.move_to_end(queue)
        runs[uid] = run
        if len(runs) > _KEPT:
            runs.popitem(last=False)
        if len(self._queues) > _QUEUES:
            self._queues.popitem(last=False)

    def of(self, queue: str) -> "Experience":
        """The experience of a queue's own finished workloads; of all queues where it has none of a kind."""
        own = self._queues.get(queue, OrderedDict()).values()
        ratios, lasted = _ratios(own), _lasted(own)
        every = [run for runs in self._queues.values() for run in runs.values()] if not (ratios and lasted) else []
        return Experience(
            ratios=ratios or _thinned(_ratios(every)),
            lasted=lasted or _thinned(_lasted(every)),
            own=len(own),
        )

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))


def finished_run(workload: Workload) -> FinishedRun | None:
    """The run of a workload. None for one that has not finished, never ran, or whose end says nothing of how long it
    would have run: its job was deleted, or another slice replaced it.
    """
    conditions = workload.status.conditions
    ended, began = find_condition(conditions, reasons.FINISHED), find_condition(conditions, reasons.ADMITTED)
    if ended is None or ended.status != "True":
        return None
    if ended.reason in _CUT_OFF or ended.message.endswith(reasons.ALL_PODS_DELETED):
        return None
    if began is None or began.status != "True" or ended.last_transition_time is None:
        return None
    lasted_s = epoch_s(ended.last_transition_time) - epoch_s(began.last_transition_time)
    if not 0.0 < lasted_s < _LONGEST_S or began.last_transition_time is None:
        return None
    told_s = runtime_s(workload)
    return FinishedRun(lasted_s, told_s if told_s is not None and 0.0 < told_s < _LONGEST_S else None)


def _ratios(runs: Iterable[FinishedRun]) -> tuple[float, ...]:
    return tuple(sorted(run.lasted_s / run.told_s for run in runs if run.told_s))


def _lasted(runs: Iterable[FinishedRun]) -> tuple[float, ...]:
    return tuple(sorted(run.lasted_s for run in runs))


def _thinned(values: Sequence[float]) -> tuple[float, ...]:
    """The sorted values, thinned evenly to at most ``_KEPT``."""
    if len(values) <= _KEPT:
        return tuple(values)
    return tuple(values[index * len(values) // _KEPT] for index in range(_KEPT))


class Experience:
    """The known run times of one queue. ``ratios`` (actual to told) and ``lasted`` (seconds) are sorted.

    ``own``: the number of finished workloads of the queue itself.
    """

    def __init__(self, ratios: Sequence[float] = (), lasted: Sequence[float] = (), own: int = 0) -> None:
        self.ratios = tuple(ratios)
        self.lasted = tuple(lasted)
        self.own = own
        prior = PRIOR_RATIOS if len(self.ratios) < _FADES else ()
        self._spread = tuple(sorted((*self.ratios, *prior)))

    def ratio(self, part: float) -> float:
        """A quantile of the ratios of actual to told run time."""
        return _between(self.ratios, part)

    def total_s(self, told_s: float | None, age_s: float, part: float) -> float | None:
        """The seconds that a workload which has run for ``age_s`` runs altogether: the ``part`` (0 to 1) quantile of
        what the queue's experience says of workloads that got so far. None where nothing is known.
        """
        return self.totals_s(told_s, age_s, (part,))[0]

    def totals_s(self, told_s: float | None, age_s: float, parts: Sequence[float]) -> list[float | None]:
        """``total_s`` for each of ``parts``."""
        known = [ratio * told_s for ratio in self._spread] if told_s else self.lasted
        if not known:
            return [None] * len(parts)
        longer = known[bisect_right(known, age_s) :] if age_s > 0.0 else known
        if len(longer) >= _FEW or (longer and len(known) < _FEW):
            return [max(_between(longer, part), age_s) for part in parts]
        return [min(age_s * math.pow(1.0 - min(part, 0.999), -1.0 / _TAIL), _LONGEST_S) for part in parts]


def _between(values: Sequence[float], part: float) -> float:
    """A quantile of sorted values, interpolated between its two neighbours by their logarithms."""
    at = min(max(part, 0.0), 1.0) * len(values) - 0.5
    low = min(max(math.floor(at), 0), len(values) - 1)
    high = min(low + 1, len(values) - 1)
    rest = min(max(at - low, 0.0), 1.0)
    if values[low] <= 0.0:
        return values[high] * rest
    return float(values[low] * (values[high] / values[low]) ** rest)
