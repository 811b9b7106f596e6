"""The condition QuotaReserved=False of workloads that wait: it is written with the reason, seldom, if there is room.

Admissions go first: these conditions are written only while few other writes wait, and at a bounded rate.
"""

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from controller.cluster.config.settings import PendingReports
from controller.cluster.watching.ledger import Ledger
from controller.cluster.writing.pace import Allowance, Pace
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.objects.meta import epoch_s, find_condition, is_true
from controller.objects.workload import Workload
from controller.reconcile.lifecycle.pendingcause import before_a_try, blocked_by_queues, held_back, reason_code
from controller.reconcile.lifecycle.reportschedule import ReportSchedule
from controller.scheduler.decisions import reasons, status
from controller.scheduler.decisions.decisions import Event, Pending
from controller.scheduler.decisions.reasons import EventType, PendingReason
from controller.scheduler.decisions.records import Rule
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.state.intake import WorkloadPhase, standing
from failpoints.names import Failpoint

_BACKLOG: Final = 4
"""Writes under way above which no condition of a waiting workload is written."""


class PendingConditions:
    """Writes pending conditions. ``backlog``: the number of writes that are not done yet. ``publish``: makes Events.

    Every workload that waits is in ``_schedule``. ``_due`` has workloads whose condition is due and not written yet,
    for lack of room; a workload of ``_due`` may have been admitted meanwhile, which ``_write`` checks.
    """

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        writes: WorkloadWrites,
        rules: PendingReports,
        *,
        pace: Pace,
        backlog: Callable[[], int],
        publish: Callable[[tuple[Event, ...]], None],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._writes = writes
        self._schedule = ReportSchedule(rules)
        self._backlog = backlog
        self._publish = publish
        self._allowance = Allowance(pace, rate=25.0, quick_rate=1.0, burst=20.0)
        self._due: deque[WorkloadKey] = deque()

    def arrived(self, workload: Workload, now_s: float) -> None:
        """Notes that the workload waits from now on, tried or not: a workload of a shape that is known not to fit is
        never tried itself, and one that is held back may not queue.
        """
        shown = _said(workload)
        since_s = epoch_s(workload.metadata.creation_timestamp)
        if shown is None and self._engine.state.config.gates.on("UnadmittedWorkloadsExplicitStatus"):
            since_s = -math.inf  # its condition is due at once
        cause = before_a_try(self._engine, workload)
        reason = shown or "" if cause is None else self._code(cause.reason)
        self._schedule.decided(WorkloadKey(workload.key), reason, since_s=since_s, said=shown, now_s=now_s)

    def decided(self, pending: Pending, now_s: float) -> None:
        workload = pending.info.workload
        since_s = epoch_s(workload.metadata.creation_timestamp)
        reason = self._code(pending.reason)
        self._schedule.decided(pending.key, reason, since_s=since_s, said=_said(workload), now_s=now_s)

    def forget(self, key: WorkloadKey) -> None:
        self._schedule.forget(key)

    def next_due_s(self, now_s: float) -> float | None:
        if self._due:
            return now_s + 1.0 / self._allowance.rate(now_s)
        return self._schedule.next_due_s()

    def write(self, now_s: float) -> None:
        """Writes conditions that are due, as far as there is room."""
        self._due += self._schedule.due(now_s)
        while self._due and self._allowance.left(now_s) >= 1.0 and self._backlog() <= _BACKLOG:
            self._write(self._due.popleft(), now_s)

    def _write(self, key: WorkloadKey, now_s: float) -> None:
        entry = self._ledger.get(key)
        cause = self._cause(key, entry.workload, now_s) if entry is not None else None
        if entry is None or cause is None:
            self._schedule.forget(key)
            return
        if entry.writing:
            self._schedule.failed(key, now_s)
            return
        reason = self._code(cause.reason)

        def then(result: Result, _: str) -> None:
            if result in (Result.WRITTEN, Result.UNCHANGED):
                self._schedule.written(key, reason, now_s)
            else:
                self._schedule.failed(key, now_s)
            if result is Result.WRITTEN:
                self._allowance.take()
                self._publish((Event(key, EventType.WARNING, reason, cause.message),))

        self._writes.status(entry, cause.put(entry.workload), then, Failpoint.PENDING)

    def _cause(self, key: WorkloadKey, workload: Workload, now_s: float) -> "_Cause | None":
        """Why the workload waits: by itself, by its queues, by the last decision on it, or by a dry run. None for a
        workload that does not wait.
        """
        engine = self._engine
        waiting = engine.state.queues.get(key)
        gates = engine.state.config.gates
        if waiting is None:
            return self._held_back(workload, now_s)
        blocked = blocked_by_queues(engine, waiting.local_queue)
        if blocked is not None:
            reason, message = blocked
            info = waiting.info

            def put(workload: Workload) -> Workload:
                return status.pending(workload, reason, message, pod_sets=info.pod_sets, now_s=now_s, gates=gates)

            return _Cause(reason, message, put)
        record = engine.stories.last(key)
        pending = (
            engine.explain(key, now_s)
            if record is None or record.rule is Rule.FITS
            else Pending(
                info=waiting.info,
                record=record,
                gates=gates,
                preemption_gated=record.rule is Rule.PREEMPTION_GATED,
            )
        )
        if pending is None:
            return None
        pending = msgspec.structs.replace(pending, record=engine.with_taken_nodes(pending.record, now_s))
        return _Cause(pending.reason, sentence(pending.record), partial(put_on, pending))

    def _held_back(self, workload: Workload, now_s: float) -> "_Cause | None":
        """Why the workload may not queue; None for one that may."""
        gates = self._engine.state.config.gates
        held = held_back(workload, gates)
        if held is None or standing(workload, self._engine.state.config) is not WorkloadPhase.HELD_BACK:
            return None

        def put(now: Workload) -> Workload:
            return status.unreserved(now, held.reason, held.message, now_s=now_s, gates=gates)

        return _Cause(held.reason, held.message, put)

    def _code(self, reason: PendingReason) -> str:
        return reason_code(reason, self._engine.state.config.gates)


class _Cause(NamedTuple):
    """Why a workload waits; ``put`` makes the workload with that in its status."""

    reason: PendingReason
    message: str
    put: Callable[[Workload], Workload]


def put_on(pending: Pending, workload: Workload) -> Workload:
    """The workload as it is by now, with the status of the decision."""
    info = msgspec.structs.replace(pending.info, workload=workload)
    return msgspec.structs.replace(pending, info=info).status()


def _said(workload: Workload) -> str | None:
    """The reason that the workload's condition has already; None if it has none."""
    condition = find_condition(workload.status.conditions, reasons.QUOTA_RESERVED)
    if condition is None or condition.status != "False" or is_true(workload.status.conditions, reasons.EVICTED):
        return None
    return condition.reason
