"""Preemptions are held back for a moment while workloads come and go quickly, and are decided anew after it.

An eviction costs three writes, another admission and all the work that the victim has done. Where many decisions are
written each second, many workloads end each second as well: a victim that would have ended before its devices were free
is evicted for nothing. So the decision counts in the engine, and only its write is held back. After that moment the
decision is taken back and the engine decides again, by what there is then: this time it is written at once. A preemptor
waits once, and a second time if some of its victims ended meanwhile: the others may well end too. A victim is held back
for one preemptor, however many want its devices. Until when is by the monotonic clock: one that is put holds nothing.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from controller.scheduler.decisions.decisions import Decision, Evicted
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import LocalQueueKey, WorkloadKey

HoldS = Callable[[Evicted, float], float]
"""Returns the seconds for which this eviction is held back by a preemptor that has waited for so many seconds; 0 for
none."""


class Waiting(NamedTuple):
    """What a preemptor waits for: ``evictions``, and until when (Unix seconds)."""

    evictions: int
    until_s: float


@dataclass
class _Hold:
    """Evictions of one preemptor that are held back together: it needs all of them, so the shortest time counts."""

    evictions: list[Evicted]
    since_s: float
    for_s: float


class _Mark(NamedTuple):
    """The mark of a victim that was held back for this preemptor. It counts until the preemptor is decided on anew, and
    until its time at most.
    """

    by: WorkloadKey
    until_s: float


class HeldEvictions:
    """Evictions that are held back. ``later`` calls back after so many seconds. ``now`` is for the engine alone,
    ``monotonic`` for all else.

    A decision in ``_held`` counts in the engine and is in no write; it leaves only by being taken back (``_over``,
    ``settled``, ``let_go``, ``queues_changed``, ``_is_due``). A preemptor that has waited enough (it is in ``_waited``)
    is neither in ``_held`` nor in ``_again``.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        hold_s: HoldS,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._engine = engine
        self._hold_s = hold_s
        self._now = now
        self._monotonic = monotonic
        self._later = later
        self._held: dict[WorkloadKey, _Hold] = {}
        """Evictions that are held back, by preemptor."""
        self._again: dict[WorkloadKey, float] = {}
        """Preemptors that wait for the second time, with the seconds that they waited the first time."""
        self._waited: set[WorkloadKey] = set()
        """Preemptors that have waited, until they are admitted or gone: evictions for them are written at once."""
        self._marked: dict[WorkloadKey, _Mark] = {}
        """Marks by victim: a marked victim was held back, and is not held back again for another preemptor."""

    def __len__(self) -> int:
        return sum(len(hold.evictions) for hold in self._held.values())

    def waits(self, by: WorkloadKey) -> Waiting | None:
        """What this preemptor waits for; None if nothing is held back for it."""
        hold = self._held.get(by)
        if hold is None:
            return None
        return Waiting(len(hold.evictions), self._now() + hold.since_s + hold.for_s - self._monotonic())

    def takes(self, decision: Decision) -> bool:
        """Holds the decision back if it is to be, and returns whether: then it must not be written."""
        if not isinstance(decision, Evicted) or decision.preemption is None or decision.by is None:
            return False
        by = decision.by.key
        if self._is_due(by, decision.key):
            return False
        hold, hold_s = self._held.get(by), self._hold_s(decision, self._again.get(by, 0.0))
        if hold is not None:
            hold.evictions.append(decision)
            self._shorten(by, hold, hold_s)
            return True
        if hold_s <= 0:
            return False
        hold = self._held[by] = _Hold([decision], self._monotonic(), math.inf)
        self._shorten(by, hold, hold_s)
        return True

    def settled(self, key: WorkloadKey) -> None:
        """Notes that the workload is admitted, gone, or may not queue: it needs no victims any more, and may be held
        back as a victim again.
        """
        hold = self._held.pop(key, None)
        if hold is not None:
            self._take_back(hold.evictions, "the preemptor needs it no more")
        self._waited.discard(key)
        self._again.pop(key, None)
        self._marked.pop(key, None)
        self._unmark(key)

    def let_go(self, victim: WorkloadKey) -> None:
        """Releases what is held back with this victim, which changed otherwise: its preemptor is decided on anew at
        once, and does not wait any more.
        """
        for by, hold in self._held.items():
            if any(eviction.key == victim for eviction in hold.evictions):
                del self._held[by]
                self._enough(by, hold)
                self._take_back(hold.evictions, "one of the victims is in trouble")
                return

    def queues_changed(self) -> None:
        """Releases the victims of preemptors whose queue admits nothing any more."""
        state = self._engine.state
        for by in list(self._held):
            pending = state.queues.get(by)
            local = None if pending is None else state.cluster.local_queues.get(pending.local_queue)
            queue = None if local is None else state.queue_of(LocalQueueKey(local.key))
            stopped = local is None or (local.spec.stop_policy or "None") != "None"
            if stopped or queue is None or not state.activity.is_open(queue.name):
                self.settled(by)

    def _is_due(self, by: WorkloadKey, victim: WorkloadKey) -> bool:
        """Whether the eviction is written at once, because the preemptor or the victim has waited.

        A preemptor needs all of its victims: if one has waited, none of the others is held back.
        """
        if by in self._waited:
            self._unmark(by)
            return True
        mark = self._marked.get(victim)
        if mark is None or mark.until_s <= self._monotonic():
            return False
        hold = self._held.pop(by, None)
        self._waited.add(by)
        self._again.pop(by, None)
        if hold is not None:
            self._take_back(hold.evictions, "another victim of the preemptor has waited")
        return True

    def _unmark(self, by: WorkloadKey) -> None:
        """Drops the marks of a preemptor that is decided on anew, or needs no victims: victims that stay may be held
        back again.
        """
        self._marked = {key: mark for key, mark in self._marked.items() if mark.by != by}

    def _shorten(self, by: WorkloadKey, hold: _Hold, hold_s: float) -> None:
        """Shortens a hold to ``hold_s`` from its begin. A hold_s of 0, of a cluster that has become calm, shortens
        nothing.
        """
        if 0 < hold_s < hold.for_s:
            hold.for_s = hold_s
            self._later(max(0.0, hold_s - (self._monotonic() - hold.since_s)), lambda: self._over(by, hold))

    def _over(self, by: WorkloadKey, hold: _Hold) -> None:
        if self._held.get(by) is not hold:
            return
        del self._held[by]
        objects = self._engine.state.workloads.objects
        if by not in self._again and any(eviction.key not in objects for eviction in hold.evictions):
            self._again[by] = hold.for_s
        else:
            self._enough(by, hold)
        self._take_back(hold.evictions, "decided anew after a moment")

    def _enough(self, by: WorkloadKey, hold: _Hold) -> None:
        """Notes that neither the preemptor nor these victims are held back again; drops keys of workloads that are
        gone.
        """
        now_s, objects = self._monotonic(), self._engine.state.workloads.objects
        self._waited = {key for key in self._waited if key in objects} | {by}
        self._marked = {key: mark for key, mark in self._marked.items() if mark.until_s > now_s and key in objects}
        self._marked |= {eviction.key: _Mark(by, now_s + hold.for_s) for eviction in hold.evictions}
        self._again = {key: waited_s for key, waited_s in self._again.items() if key in objects and key != by}

    def _take_back(self, held: Iterable[Evicted], why: str) -> None:
        for eviction in held:
            self._engine.failed(eviction, self._now(), why)
