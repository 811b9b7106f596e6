"""Preemptions are held back for a moment while workloads come and go quickly, and are decided anew after it.

An eviction costs three writes, another admission and all the work that the victim has done. Where many decisions are
written each second, many workloads end each second as well: a victim that would have ended before its devices were free
is evicted for nothing. So the decision counts in the engine, and only its write is held back. After that moment the
decision is taken back and the engine decides again, by what there is then: this time it is written at once. A preemptor
waits once, and a second time if some of its victims ended meanwhile: the others may well end too. A victim is held back
for one preemptor, however many want its devices.
"""

import math
from collections.abc import Callable, Iterable

from controller.engine.conditions.decisions import Decision, Evicted
from controller.engine.engine import Engine
from controller.engine.model.resources import WorkloadKey


class HeldEvictions:
    """``hold_s``: how long an eviction is held back that is decided now, 0 for not at all. ``later`` calls back after so
    many seconds.

    DecisionWriter alone calls in. A decision in ``_held`` counts in the engine and is in no write; it leaves only by
    being taken back (``_over``, ``admitted``). A preemptor that has waited enough (``_waited`` is infinite for it) is
    neither in ``_held`` nor in ``_again``.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        hold_s: Callable[[Evicted], float],
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._engine = engine
        self._hold_s = hold_s
        self._now = now
        self._later = later
        self._held: dict[WorkloadKey, list[Evicted]] = {}
        """Evictions that are held back, by their preemptor."""
        self._again: set[WorkloadKey] = set()
        """Preemptors that wait for the second time."""
        self._waited: dict[WorkloadKey, float] = {}
        """Until when evictions are written at once: for preemptors that have waited, until they are admitted or gone;
        for their victims, for as long again as they were held back."""

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def takes(self, decision: Decision) -> bool:
        """Whether the decision is held back here: then it is not to be written."""
        if not isinstance(decision, Evicted) or decision.preemption is None or decision.by is None:
            return False
        by = decision.by.key
        now_s = self._now()
        if max(self._waited.get(by, 0.0), self._waited.get(decision.key, 0.0)) > now_s:
            return False
        if by in self._held:
            self._held[by].append(decision)
            return True
        hold_s = self._hold_s(decision)
        if hold_s <= 0:
            return False
        held = self._held[by] = [decision]
        self._later(hold_s, lambda: self._over(by, held, hold_s))
        return True

    def admitted(self, key: WorkloadKey) -> None:
        """The workload is admitted: it needs no victims any more, and may be held back as a victim again."""
        self._take_back(self._held.pop(key, ()), "the preemptor found room")
        self._waited.pop(key, None)
        self._again.discard(key)

    def _over(self, by: WorkloadKey, held: list[Evicted], hold_s: float) -> None:
        if self._held.get(by) is not held:
            return
        del self._held[by]
        objects = self._engine.state.workloads.objects
        if by not in self._again and any(eviction.key not in objects for eviction in held):
            self._again.add(by)
        else:
            self._enough(by, held, hold_s)
        self._take_back(held, "decided anew after a moment")

    def _enough(self, by: WorkloadKey, held: list[Evicted], hold_s: float) -> None:
        """Neither the preemptor nor these victims are held back again; keys of workloads that are gone are dropped."""
        now_s, objects = self._now(), self._engine.state.workloads.objects
        self._waited = {key: until_s for key, until_s in self._waited.items() if until_s > now_s and key in objects}
        self._waited[by] = math.inf
        self._waited.update((eviction.key, now_s + hold_s) for eviction in held)
        self._again = {key for key in self._again if key in objects and key != by}

    def _take_back(self, held: Iterable[Evicted], why: str) -> None:
        for eviction in held:
            self._engine.failed(eviction, self._now(), why)
