"""Evictions for a preemptor wait a moment while workloads come and go quickly, and are decided anew after it.

To evict takes three writes, one more admission and all that the victim has done so far. Where many decisions are
carried out each second, much ends each second as well: a victim that would have ended by itself before its place was
free is evicted for nothing. So the engine's decision counts, and only its writing waits. What is left of it after that
is taken back, and the engine decides again, on what there is by then: this time it is written at once. A preemptor
waits once, and once more if some of its victims did end meanwhile: then the others may well do so too. A victim is held
for one preemptor, however many want its place.
"""

import math
from collections.abc import Callable, Iterable

from controller.engine.conditions.decisions import Decision, Evicted
from controller.engine.engine import Engine
from controller.engine.model.resources import WorkloadKey


class HeldEvictions:
    """``hold_s``: how long now, 0 for not at all. ``later`` calls back after so many seconds."""

    def __init__(
        self,
        engine: Engine,
        *,
        hold_s: Callable[[], float],
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._engine = engine
        self._hold_s = hold_s
        self._now = now
        self._later = later
        self._held: dict[WorkloadKey, list[Evicted]] = {}
        """By whom they are for."""
        self._again: set[WorkloadKey] = set()
        """Preemptors that wait for the second time."""
        self._waited: dict[WorkloadKey, float] = {}
        """Of holds that are over, until when nobody is held for them: preemptors until they are admitted or gone,
        victims for as long again."""

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def takes(self, decision: Decision) -> bool:
        """Whether it keeps the decision for a while: then it is not to be carried out."""
        if not isinstance(decision, Evicted) or decision.preemption is None or decision.by is None:
            return False
        by = decision.by.key
        now_s = self._now()
        if max(self._waited.get(by, 0.0), self._waited.get(decision.key, 0.0)) > now_s:
            return False
        if by in self._held:
            self._held[by].append(decision)
            return True
        hold_s = self._hold_s()
        if hold_s <= 0:
            return False
        held = self._held[by] = [decision]
        self._later(hold_s, lambda: self._over(by, held, hold_s))
        return True

    def admitted(self, key: WorkloadKey) -> None:
        """It has a place: nobody has to go for it any more. A new life begins for it as a victim, too."""
        self._take_back(self._held.pop(key, ()), "the preemptor found room")
        self._waited.pop(key, None)
        self._again.discard(key)

    def _over(self, by: WorkloadKey, held: list[Evicted], hold_s: float) -> None:
        if self._held.get(by) is not held:
            return
        del self._held[by]
        objects = self._engine.state.workloads.objects
        if by not in self._again and any(one.key not in objects for one in held):
            self._again.add(by)
        else:
            self._enough(by, held, hold_s)
        self._take_back(held, "decided anew after a moment")

    def _enough(self, by: WorkloadKey, held: list[Evicted], hold_s: float) -> None:
        """Neither is waited for once more; those who have gone are forgotten."""
        now_s, objects = self._now(), self._engine.state.workloads.objects
        self._waited = {key: until_s for key, until_s in self._waited.items() if until_s > now_s and key in objects}
        self._waited[by] = math.inf
        self._waited.update((one.key, now_s + hold_s) for one in held)
        self._again = {key for key in self._again if key in objects and key != by}

    def _take_back(self, held: Iterable[Evicted], why: str) -> None:
        for one in held:
            self._engine.failed(one, self._now(), why)
