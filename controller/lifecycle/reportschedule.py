"""When a pending workload's condition is written: not for those that wait a moment, not again while it says the same.

The first time after ``after_s`` of waiting, then when the reason changes (``after_s`` apart, for two reasons may
alternate), else every ``every_s`` while the workload goes on being tried. Pure; times are handed in.
"""

import math
from typing import Final

import msgspec

from controller.config.settings import PendingReports
from controller.engine.model.resources import WorkloadKey
from controller.lifecycle.duetimes import DueTimes

_NEVER: Final = -math.inf
"""One number for all of which nothing was written."""


class _Waiting(msgspec.Struct, gc=False, eq=False):
    """``reason`` is that of the last decision; ``written`` what the condition says, since ``written_s``."""

    reason: str
    written: str | None
    written_s: float


class ReportSchedule:
    """The workloads that wait, what was last written of each, and when it is to be written again."""

    def __init__(self, rules: PendingReports) -> None:
        self._rules = rules
        self._waiting: dict[WorkloadKey, _Waiting] = {}
        self._due = DueTimes()
        """Of ``_waiting`` alone."""

    def __len__(self) -> int:
        return len(self._waiting)

    def decided(self, key: WorkloadKey, reason: str, *, since_s: float, said: str | None, now_s: float) -> None:
        """It was tried and waits on. ``since_s``: when it began to wait; ``said``: what its condition says."""
        known = self._waiting.get(key)
        if known is None:
            known = self._waiting[key] = _Waiting(reason, said, _NEVER if said is None else now_s)
            self._due.set(key, since_s + self._rules.after_s if said is None else self._next(known))
            return
        known.reason = reason
        if known.written is not None:
            self._due.set(key, self._next(known))

    def written(self, key: WorkloadKey, reason: str, now_s: float) -> None:
        """Its condition says ``reason`` now: not written again before another decision on it."""
        known = self._waiting.get(key)
        if known is not None:
            known.written, known.written_s = reason, now_s
            self._due.set(key, None if known.reason == reason else self._next(known))

    def failed(self, key: WorkloadKey, now_s: float) -> None:
        """The write failed: it is due again a while later."""
        if key in self._waiting:
            self._due.set(key, now_s + self._rules.after_s)

    def forget(self, key: WorkloadKey) -> None:
        """It waits no more."""
        self._waiting.pop(key, None)
        self._due.set(key, None)

    def due(self, now_s: float) -> list[WorkloadKey]:
        """Workloads whose condition is to be written now, each once: call ``written`` or ``failed`` for each."""
        return list(self._due.due(now_s))

    def next_due_s(self) -> float | None:
        return self._due.next_s()

    def _next(self, known: _Waiting) -> float:
        pause_s = self._rules.every_s if known.reason == known.written else self._rules.after_s
        return known.written_s + pause_s
