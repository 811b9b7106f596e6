"""What is told of workloads that wait: the condition that says why, rarely and when there is room for it.

Admissions go first: conditions of those who wait are written only while few other writes are, and so many a second.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec

from controller.config.settings import PendingReports
from controller.engine.conditions import reasons, status
from controller.engine.conditions.decisions import Event, Pending
from controller.engine.conditions.reasons import EventType, PendingReason
from controller.engine.conditions.records import Rule
from controller.engine.conditions.sentences import sentence
from controller.engine.engine import Engine
from controller.engine.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.engine.state.activity import local_queue_problem
from controller.engine.state.intake import WorkloadPhase, standing
from controller.lifecycle.heldback import held_back
from controller.lifecycle.reports import Reports
from controller.objects.meta import epoch_s, find_condition, is_true
from controller.objects.workload import Workload
from controller.watching.ledger import Ledger
from controller.writing.pace import Allowance, Pace
from controller.writing.workloadwrites import Result, WorkloadWrites

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
        pace: Pace,
        backlog: Callable[[], int],
        tell: Callable[[tuple[Event, ...]], None],
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._writes = writes
        self._reports = Reports(rules)
        self._backlog = backlog
        self._tell = tell
        self._allowance = Allowance(pace, rate=25.0, quick_rate=1.0, burst=20.0)
        self._due: deque[WorkloadKey] = deque()

    def arrived(self, workload: Workload, now_s: float) -> None:
        """It waits from now on, tried or not: one of a shape that is known not to fit is never tried itself, and one
        that is held back may not queue.
        """
        said = _said(workload)
        since_s = epoch_s(workload.metadata.creation_timestamp)
        held = held_back(workload, self._engine.state.config.gates)
        reason = said or "" if held is None else self._shown(PendingReason(held.reason))
        self._reports.decided(WorkloadKey(workload.key), reason, since_s=since_s, said=said, now_s=now_s)

    def decided(self, pending: Pending, now_s: float) -> None:
        workload = pending.info.workload
        since_s = epoch_s(workload.metadata.creation_timestamp)
        reason = self._shown(pending.reason)
        self._reports.decided(pending.key, reason, since_s=since_s, said=_said(workload), now_s=now_s)

    def forget(self, key: WorkloadKey) -> None:
        self._reports.forget(key)

    def next_due_s(self, now_s: float) -> float | None:
        if self._due:
            return now_s + 1.0 / self._allowance.rate(now_s)
        return self._reports.next_due_s()

    def write(self, now_s: float) -> None:
        """Write what is due, as far as there is room."""
        self._due += self._reports.due(now_s)
        while self._due and self._allowance.left(now_s) >= 1.0 and self._backlog() <= _BACKLOG:
            self._write(self._due.popleft(), now_s)

    def _write(self, key: WorkloadKey, now_s: float) -> None:
        kept = self._ledger.get(key)
        told = self._told(key, kept.workload, now_s) if kept is not None else None
        if kept is None or told is None:
            self._reports.forget(key)
            return
        if kept.writing:
            self._reports.again(key, now_s)
            return
        reason = self._shown(told.reason)

        def then(result: Result, _: str) -> None:
            if result in (Result.WRITTEN, Result.UNCHANGED):
                self._reports.written(key, reason, now_s)
            else:
                self._reports.again(key, now_s)
            if result is Result.WRITTEN:
                self._allowance.take()
                self._tell((Event(key, EventType.WARNING, reason, told.message),))

        self._writes.status(kept, told.on(kept.workload), then)

    def _told(self, key: WorkloadKey, workload: Workload, now_s: float) -> "_Told | None":
        """Why it waits: by itself, its queues, the last decision on it, or one made for the question. None: it does
        not.
        """
        engine = self._engine
        waiting = engine.state.queues.get(key)
        gates = engine.state.config.gates
        if waiting is None:
            return self._held(workload, now_s)
        blocked = self._blocked(waiting.local_queue)
        if blocked is not None:
            reason, message = blocked
            info = waiting.info

            def on(workload: Workload) -> Workload:
                return status.pending(workload, reason, message, pod_sets=info.pod_sets, now_s=now_s, gates=gates)

            return _Told(reason, message, on)
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
        return _Told(pending.reason, sentence(pending.record), partial(told_on, pending))

    def _held(self, workload: Workload, now_s: float) -> "_Told | None":
        """It may not queue at all."""
        gates = self._engine.state.config.gates
        held = held_back(workload, gates)
        if held is None or standing(workload, self._engine.state.config) is not WorkloadPhase.HELD_BACK:
            return None
        reason = PendingReason(held.reason)

        def on(now: Workload) -> Workload:
            return status.unreserved(now, reason, held.message, now_s=now_s, gates=gates)

        return _Told(reason, held.message, on)

    def _blocked(self, key: LocalQueueKey) -> tuple[PendingReason, str] | None:
        """What of its queues keeps it from being tried."""
        cluster = self._engine.state.cluster
        local = cluster.local_queues.get(key)
        if local is None:
            return PendingReason.MISCONFIGURED, f"There is no LocalQueue {key}"
        name = ClusterQueueName(local.spec.cluster_queue)
        problems = self._engine.inactive(name) if name in cluster.queues else ()
        found = local_queue_problem(local, cluster, queue_active=not problems)
        if found is None:
            return None
        if found.reason == "ClusterQueueDoesNotExist":
            return PendingReason.MISCONFIGURED, found.message
        return PendingReason.SUSPENDED, f"{found.message}: {problems[0].message}" if problems else found.message

    def _shown(self, reason: PendingReason) -> str:
        observable = self._engine.state.config.gates.on("UnadmittedWorkloadsObservability")
        return reason.value if observable else reason.coarse


class _Told(NamedTuple):
    """Why a workload waits; ``on`` puts it into its status."""

    reason: PendingReason
    message: str
    on: Callable[[Workload], Workload]


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
