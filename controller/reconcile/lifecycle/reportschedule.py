"""Decides when a pending workload's condition is written: not for workloads that wait a moment, not again while it is
unchanged.

The first time is after ``after_s`` of waiting, then when the reason changes (``after_s`` apart, for two reasons may
alternate), else every ``every_s`` while the workload is still tried. Pure; times are arguments. Times are whole
seconds: of a hundred thousand waiting workloads many are then due at one time, and share an entry.
"""

import math
from functools import lru_cache
from typing import Final, NamedTuple

from controller.cluster.config.settings import PendingReports
from controller.reconcile.lifecycle.duetimes import DueTimes
from controller.scheduler.model.resources import WorkloadKey

_NEVER: Final = -math.inf


class _Waiting(NamedTuple):
    """A workload that waits. ``reason`` is that of the last decision; ``written`` is the condition's, since
    ``written_s``.
    """

    reason: str
    written: str | None
    written_s: float


_waiting = lru_cache(16_384)(_Waiting)
"""A cache of ``_Waiting``: one object for all workloads with the same reasons since the same second. Entries of their
own took 14 MiB of 100,000 workloads that wait (docs/benchmarks).
"""


class ReportSchedule:
    """The workloads that wait, what was last written of each, and when it is to be written again."""

    def __init__(self, rules: PendingReports) -> None:
        self._rules = rules
        self._waiting: dict[WorkloadKey, _Waiting] = {}
        self._due = DueTimes()
        """The due times of workloads in ``_waiting``."""

    def __len__(self) -> int:
        return len(self._waiting)

    def decided(self, key: WorkloadKey, reason: str, *, since_s: float, said: str | None, now_s: float) -> None:
        """Notes a decision after which the workload still waits. ``since_s``: when it began to wait; ``said``: the
        reason in its condition.
        """
        known = self._waiting.get(key)
        if known is None:
            self._waiting[key] = known = _waiting(reason, said, _NEVER if said is None else _whole(now_s))
            self._set(key, since_s + self._rules.after_s if said is None else self._next(known))
            return
        if known.reason != reason:
            self._waiting[key] = known = _waiting(reason, known.written, known.written_s)
        if known.written is not None:
            self._set(key, self._next(known))

    def written(self, key: WorkloadKey, reason: str, now_s: float) -> None:
        """Notes that the workload's condition has ``reason`` now: it is not written again before another decision on
        it.
        """
        known = self._waiting.get(key)
        if known is not None:
            self._waiting[key] = known = _waiting(known.reason, reason, _whole(now_s))
            self._set(key, None if known.reason == reason else self._next(known))

    def failed(self, key: WorkloadKey, now_s: float) -> None:
        """Notes that the write failed: it is due again a while later."""
        if key in self._waiting:
            self._set(key, now_s + self._rules.after_s)

    def forget(self, key: WorkloadKey) -> None:
        """Forgets a workload that does not wait any more."""
        self._waiting.pop(key, None)
        self._set(key, None)

    def due(self, now_s: float) -> list[WorkloadKey]:
        """The workloads whose condition is to be written now, each once: call ``written`` or ``failed`` for each."""
        return list(self._due.due(now_s))

    def next_due_s(self) -> float | None:
        return self._due.next_s()

    def _set(self, key: WorkloadKey, due_s: float | None) -> None:
        self._due.set(key, None if due_s is None else _whole(due_s))

    def _next(self, known: _Waiting) -> float:
        pause_s = self._rules.every_s if known.reason == known.written else self._rules.after_s
        return known.written_s + pause_s


def _whole(time_s: float) -> float:
    """The next whole second; infinity stays infinity."""
    return float(math.ceil(time_s)) if math.isfinite(time_s) else time_s
