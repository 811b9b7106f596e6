"""Writes the engine's decisions to the API server, and takes back in the engine those that could not be written.

A decision counts in the engine from the moment it is made, and is written onto what the Workload is by then. It waits
while another write of that Workload is under way; a decision that is void by then is dropped.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from controller.cluster.watching.ledger import Ledger, LedgerEntry
from controller.cluster.writing.heldevictions import HeldEvictions, HoldS
from controller.cluster.writing.workloadwrites import Result, WorkloadWrites
from controller.objects.workload import Workload
from controller.scheduler.decisions import status
from controller.scheduler.decisions.decisions import (
    Admitted,
    Decision,
    Event,
    Evicted,
    Pending,
    SecondPassFailed,
    SliceReplaced,
)
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from failpoints.names import Failpoint

REFUSED_PAUSE_S = 5.0
"""The pause after a refusal in which a workload is not written again: the same write would be refused again."""

_FAILPOINTS: Final[Mapping[type[Decision], Failpoint]] = {
    Admitted: Failpoint.ADMITTED,
    Evicted: Failpoint.EVICTED,
    SliceReplaced: Failpoint.SLICE_REPLACED,
}


class DecisionObserver(Protocol):
    """Counts decisions and publishes Events. ``carried_out``: the decision has been written."""

    def carried_out(self, decision: Decision, after: Workload) -> None: ...

    def events(self, events: tuple[Event, ...]) -> None: ...


class DecisionWriter:
    """Writes decisions. ``later`` calls back after so many seconds of the ``monotonic`` clock; ``hold_s``: the seconds
    for which an eviction for a preemptor is held back.

    ``_waiting`` has decisions of a Workload only while another write of it is under way, in the order they were made:
    ``resume`` is called at the end of each write. No decision replaces another: an eviction of a workload that no
    object shows as admitted would free nothing. A decision is in one place: in ``_waiting``, in ``_ends``, in ``held``,
    or in a write.
    """

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        writes: WorkloadWrites,
        observer: DecisionObserver,
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
        hold_s: HoldS = lambda _eviction, _waited_s: 0.0,
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._writes = writes
        self._observer = observer
        self._now = now
        self._later = later
        self._waiting: dict[WorkloadKey, list[Decision]] = {}
        self._ends: dict[WorkloadKey, SliceReplaced] = {}
        """Ends of slices, each by the slice that replaces it, while the admission of that one is not written: a job
        none of whose Workloads is admitted would be stopped. ``submit`` puts them in, ``_write`` and
        ``_take_back`` take them out.
        """
        self.held = HeldEvictions(engine, hold_s=hold_s, now=now, monotonic=monotonic, later=later)

    def submit(self, decision: Decision) -> None:
        if isinstance(decision, Pending):
            return  # controller.reconcile.lifecycle.pendingconditions_shell writes these, when there is room
        if isinstance(decision, SecondPassFailed):
            self._observer.events(decision.events())
            return
        if self.held.takes(decision):
            return
        if isinstance(decision, SliceReplaced) and decision.by in self._engine.state.unwritten.admissions:
            self._ends[decision.by] = decision
            return
        self._submit(decision)

    def _submit(self, decision: Decision) -> None:
        key = decision.key
        entry = self._ledger.get(key)
        if isinstance(decision, Admitted):
            self.held.settled(key)
        if entry is None:
            self._take_back(decision, "the workload is gone")
        elif entry.writing:
            self._waiting.setdefault(key, []).append(decision)
        else:
            self._write(entry, decision)

    def resume(self, key: WorkloadKey) -> bool:
        """Writes the decisions that waited for the end of another write, as far as they still hold: the next waits for
        the end of the one before. Returns whether there was any.
        """
        entry = self._ledger.get(key)
        if entry is not None and entry.writing:
            return False
        waiting, has_written = self._waiting.pop(key, []), False
        while waiting and entry is not None and not entry.writing:
            decision = waiting.pop(0)
            if self._holds(decision):
                self._write(entry, decision)
                has_written = True
        if waiting and entry is not None:
            self._waiting[key] = waiting
        return has_written

    def _holds(self, decision: Decision) -> bool:
        """Whether the decision still holds: the engine has not taken it back meanwhile."""
        state = self._engine.state
        match decision:
            case Admitted(second_pass=False):
                return state.unwritten.admissions.get(decision.key) is decision
            case Evicted():
                return decision.key in state.unwritten.evictions
        return True

    def _write(self, entry: LedgerEntry, decision: Decision) -> None:
        admitted = self._engine.state.unwritten.admissions.get(decision.key)
        if isinstance(decision, Evicted) and admitted is not None:
            # Its admission was refused, and is to be taken back after a pause: no object shows a workload to evict.
            self._take_back(decision, "it was never admitted")
            self._take_back(admitted, "it was to be evicted at once")
            return
        after = applied(decision, entry.workload)

        def then(result: Result, why: str) -> None:
            if result in (Result.WRITTEN, Result.UNCHANGED):
                self._observer.carried_out(decision, after)
                if isinstance(decision, Admitted) and (end := self._ends.pop(decision.key, None)) is not None:
                    self._submit(end)
                return
            if isinstance(decision, Evicted) and result in (Result.REFUSED, Result.LOST):
                self._observer.events(decision.refused_events())
            if result is Result.REFUSED:
                # Its quota stays reserved for the pause: otherwise other workloads would be decided on again for
                # nothing.
                self._later(REFUSED_PAUSE_S, lambda: self._take_back(decision, why))
                return
            self._take_back(decision, why)

        self._writes.status(entry, after, then, _FAILPOINTS[type(decision)])

    def _take_back(self, decision: Decision, why: str) -> None:
        if isinstance(decision, Admitted):
            self._ends.pop(decision.key, None)
        self._engine.failed(decision, self._now(), why)


def applied(decision: Decision, workload: Workload) -> Workload:
    """The workload after the decision. It may have changed since in ways that the decision allows."""
    match decision:
        case Admitted():
            return msgspec.structs.replace(decision, workload=workload).status()
        case Evicted(reason=reason, message=message, preemption=preemption, record=record):
            return evicted(workload, reason, message, now_s=record.at_s, preemption=preemption)
        case SliceReplaced(by=by, record=record):
            return status.slice_replaced(workload, by, record.at_s)
    return workload
