"""When a pending workload's condition is written: not for those that wait a moment, not again while it says the same.

The first time after ``after_s`` of waiting, then when the reason code changes (``after_s`` apart, for two codes may
take turns), else every ``every_s`` while it goes on being tried. Pure; times are handed in.
"""

import heapq
import math
from dataclasses import dataclass

from controller.config.settings import PendingReports
from controller.engine.model.resources import WorkloadKey


@dataclass(slots=True)
class _Waiting:
    reason: str
    due_s: float
    written: str | None = None
    written_s: float = -math.inf


class Reports:
    """Who waits, what was last said of it, and when it is to be said."""

    def __init__(self, rules: PendingReports) -> None:
        self._rules = rules
        self._waiting: dict[WorkloadKey, _Waiting] = {}
        self._due: list[tuple[float, WorkloadKey]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def decided(self, key: WorkloadKey, reason: str, *, since_s: float, said: str | None, now_s: float) -> None:
        """It was tried and waits on. ``since_s``: when it began to wait; ``said``: what its condition gives."""
        known = self._waiting.get(key)
        if known is None:
            known = self._waiting[key] = _Waiting(reason, math.inf, said, -math.inf if said is None else now_s)
            self._schedule(key, known, since_s + self._rules.after_s if said is None else self._next(known))
            return
        known.reason = reason
        if known.written is not None:
            self._schedule(key, known, self._next(known))

    def written(self, key: WorkloadKey, reason: str, now_s: float) -> None:
        """Its condition says ``reason`` now; silent until it is decided on again."""
        known = self._waiting.get(key)
        if known is not None:
            known.written, known.written_s, known.due_s = reason, now_s, math.inf
            if known.reason != reason:
                self._schedule(key, known, self._next(known))

    def again(self, key: WorkloadKey, now_s: float) -> None:
        """The write came to nothing: a while later."""
        known = self._waiting.get(key)
        if known is not None:
            self._schedule(key, known, now_s + self._rules.after_s)

    def forget(self, key: WorkloadKey) -> None:
        """It waits no more."""
        self._waiting.pop(key, None)

    def due(self, now_s: float) -> list[WorkloadKey]:
        """Whose condition is to be written now. Each is told once: say ``written`` or ``again`` of it."""
        found = []
        while (due_s := self.next_due_s()) is not None and due_s <= now_s:
            _, key = heapq.heappop(self._due)
            self._waiting[key].due_s = math.inf
            found.append(key)
        return found

    def next_due_s(self) -> float | None:
        while self._due:
            due_s, key = self._due[0]
            known = self._waiting.get(key)
            if known is not None and known.due_s == due_s:
                return due_s
            heapq.heappop(self._due)
        return None

    def _next(self, known: _Waiting) -> float:
        pause_s = self._rules.every_s if known.reason == known.written else self._rules.after_s
        return known.written_s + pause_s

    def _schedule(self, key: WorkloadKey, known: _Waiting, due_s: float) -> None:
        if due_s != known.due_s:
            known.due_s = due_s
            heapq.heappush(self._due, (due_s, key))
