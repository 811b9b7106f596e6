"""Tells victims of preemption when they are likely to start again: in the condition Preempted, and by an Event.

The condition says already for whom a victim gave way and what it lost. When it starts again is known once its job has
stopped and it waits in its queue, so that is written then, once for each preemption. What is to be told is read off the
Workloads, so the next leader tells what a former one did not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites, outcome_of
from controller.messages import restarts as words
from controller.objects.meta import find_condition, is_true, with_condition
from controller.objects.workload import Workload
from controller.reconcile.failures.holders_shell import about_workload
from controller.scheduler.cluster.incoming import PreemptionReason
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.status import MESSAGE_LIMIT
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint
from kube.clock import Clock, sleep
from kube.objects import ObjectReference

log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_AT_ONCE: Final = 20
"""Victims that are told in one look."""


class RestartPromises:
    """``workload`` takes every state of every Workload; ``run`` works until cancelled. ``again``: when a workload is
    likely to start again, as a sentence; None for one that does not wait in its queue yet. ``tell`` records an Event:
    about what, type, reason, note.
    """

    def __init__(
        self,
        ledger: Ledger,
        writes: WorkloadWrites,
        again: Callable[[WorkloadKey], Awaitable[str | None]],
        tell: Callable[[ObjectReference, str, str, str], None],
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._writes = writes
        self._again = again
        self._tell = tell
        self._clock = clock
        self._due: dict[WorkloadKey, None] = {}
        """Victims that have not been told, the longest waiting first."""
        self._some = asyncio.Event()

    def workload(self, workload: Workload, gone: bool) -> None:
        key = WorkloadKey(workload.key)
        if gone or not is_untold(workload):
            self._due.pop(key, None)
        elif key not in self._due:
            self._due[key] = None
            self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            for key in [*self._due][:_AT_ONCE]:
                await self._told(key)
            if not self._due:
                self._some.clear()
            await sleep(self._clock, _LOOK_S)

    async def _told(self, key: WorkloadKey) -> None:
        """Tells the victim, or has it looked at again behind the others."""
        try:
            again_s = await self._again(key)
        except Exception:
            log.exception("workload %s: nobody knows when it starts again", key)
            again_s = None
        if key not in self._due:
            return
        del self._due[key]
        entry = self._ledger.get(key)
        if entry is None or not is_untold(entry.workload):
            return
        if again_s is None or entry.writing:
            self._due[key] = None
            return
        await self._write(entry, again_s)

    async def _write(self, entry: LedgerEntry, said: str) -> None:
        after, note = _with_promise(entry.workload, said)
        result, _ = await outcome_of(lambda then: self._writes.status(entry, after, then, Failpoint.RESTART_FORETOLD))
        if result is Result.WRITTEN:
            self._tell(about_workload(entry), "Normal", reasons.PREEMPTED, note)
        elif result in (Result.LOST, Result.REFUSED) and is_untold(entry.workload):
            self._due[WorkloadKey(entry.workload.key)] = None


def is_untold(workload: Workload) -> bool:
    """Whether the workload was preempted, waits again or will, and has not been told when it starts. One that moves to
    other nodes has them already.
    """
    conditions = workload.status.conditions
    preempted = find_condition(conditions, reasons.PREEMPTED)
    if preempted is None or preempted.status != "True" or preempted.reason == PreemptionReason.CONSOLIDATION:
        return False
    over = is_true(conditions, reasons.FINISHED) or not workload.spec.active
    return not over and words.STARTS_AGAIN not in preempted.message


def _with_promise(workload: Workload, said: str) -> tuple[Workload, str]:
    """The workload that has been told, and what it was told in whole."""
    told = find_condition(workload.status.conditions, reasons.PREEMPTED)
    assert told is not None, "is_untold"
    message = f"{told.message}. {said}"[:MESSAGE_LIMIT]
    conditions = with_condition(workload.status.conditions, msgspec.structs.replace(told, message=message))
    return msgspec.structs.replace(
        workload, status=msgspec.structs.replace(workload.status, conditions=conditions)
    ), message
