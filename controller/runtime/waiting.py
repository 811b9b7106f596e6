"""What is told of workloads that wait: the condition that says why, rarely and when there is room for it.

Admissions go first: conditions of those who wait are written only while few other writes are, and so many a second.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from controller.config.settings import PendingReports
from controller.engine import reasons
from controller.engine.decisions import Event, Pending
from controller.engine.engine import Engine
from controller.engine.reasons import PendingReason
from controller.engine.records import Rule
from controller.engine.resources import WorkloadKey
from controller.objects.meta import epoch_s, find_condition, is_true
from controller.objects.workload import Workload
from controller.runtime.ledger import Ledger
from controller.runtime.reports import Reports
from controller.runtime.workloadwrites import Result, WorkloadWrites

_RATE: Final = 25.0
"""Conditions a second, on average."""
_BURST: Final = 50.0
_BACKLOG: Final = 4
"""Writes of other kinds beside which conditions of those who wait are still written."""


class Waiting:
    """``backlog``: how many writes are not done yet. ``tell``: Events for people."""

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        writes: WorkloadWrites,
        rules: PendingReports,
        *,
        backlog: Callable[[], int],
        tell: Callable[[tuple[Event, ...]], None],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._writes = writes
        self._reports = Reports(rules)
        self._backlog = backlog
        self._tell = tell
        self._tokens = _BURST
        self._filled_s = 0.0
        self._due: list[WorkloadKey] = []

    def arrived(self, workload: Workload, now_s: float) -> None:
        """It waits from now on, tried or not: one of a shape that is known not to fit is never tried itself."""
        said = _said(workload)
        since_s = epoch_s(workload.metadata.creation_timestamp)
        self._reports.decided(WorkloadKey(workload.key), said or "", since_s=since_s, said=said, now_s=now_s)

    def decided(self, pending: Pending, now_s: float) -> None:
        workload = pending.info.workload
        since_s = epoch_s(workload.metadata.creation_timestamp)
        reason = self._shown(pending.reason)
        self._reports.decided(pending.key, reason, since_s=since_s, said=_said(workload), now_s=now_s)

    def forget(self, key: WorkloadKey) -> None:
        self._reports.forget(key)

    def next_due_s(self, now_s: float) -> float | None:
        if self._due:
            return now_s + 1.0 / _RATE
        return self._reports.next_due_s()

    def write(self, now_s: float) -> None:
        """Write what is due, as far as there is room."""
        self._tokens = min(_BURST, self._tokens + max(0.0, now_s - self._filled_s) * _RATE)
        self._filled_s = now_s
        self._due += self._reports.due(now_s)
        while self._due and self._tokens >= 1.0 and self._backlog() <= _BACKLOG:
            self._tokens -= 1.0
            self._write(self._due.pop(0), now_s)

    def _write(self, key: WorkloadKey, now_s: float) -> None:
        kept = self._ledger.get(key)
        pending = self._pending(key, now_s)
        if kept is None or pending is None:
            self._reports.forget(key)
            return
        if kept.writing:
            self._reports.again(key, now_s)
            return
        reason = self._shown(pending.reason)

        def then(result: Result, _: str) -> None:
            if result in (Result.WRITTEN, Result.UNCHANGED):
                self._reports.written(key, reason, now_s)
            else:
                self._reports.again(key, now_s)
            if result is Result.WRITTEN:
                self._tell(pending.events())

        before = kept.workload
        after = told_on(pending, before)
        self._writes.status(kept, after, then)

    def _pending(self, key: WorkloadKey, now_s: float) -> Pending | None:
        """Why it waits, by the last decision on it, else by one made for the question. None where it waits no more."""
        engine = self._engine
        waiting = engine.state.queues.get(key)
        if waiting is None:
            return None
        record = engine.stories.last(key)
        if record is None or record.rule is Rule.FITS:
            return engine.explain(key, now_s)
        gated = record.rule is Rule.PREEMPTION_GATED
        gates = engine.state.config.gates
        return Pending(info=waiting.info, record=record, gates=gates, preemption_gated=gated)

    def _shown(self, reason: PendingReason) -> str:
        observable = self._engine.state.config.gates.on("UnadmittedWorkloadsObservability")
        return reason.value if observable else reason.coarse


def told_on(pending: Pending, workload: Workload) -> Workload:
    """What it says, put onto what the workload is by now."""
    info = msgspec.structs.replace(pending.info, workload=workload)
    return msgspec.structs.replace(pending, info=info).status()


def _said(workload: Workload) -> str | None:
    """The reason that its condition gives already; None where it says nothing."""
    condition = find_condition(workload.status.conditions, reasons.QUOTA_RESERVED)
    if condition is None or condition.status != "False" or is_true(workload.status.conditions, reasons.EVICTED):
        return None
    return condition.reason
