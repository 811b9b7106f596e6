"""The victims that lose least, among those of equal rank that the policy allows.

A search has found victims in its order: lower ranks first. Here the victims of each rank, the highest first, are
exchanged for the cheapest set of candidates of the same rank with which the request still fits; then those that are not
needed any more stay. Who may be taken is asked of the search (``holds``), never decided here. The rule is our own.

Sets are tried in the order of their loss, so the first that holds is the cheapest: exactly, for a rank of up to seven
candidates. Of more than ``CANDIDATES`` the search's first are looked at, ``CHECKS`` sets of a rank are tried at most,
and ``STEPS`` considered; then as many single exchanges are tried. Sets that free too little cost a sum. Where it is
clear that no set of these loses less, no set is tried: the usual case, in which all candidates are alike. Without an
exchange the search's own victims stand, so nothing is ever lost that was not lost before.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from controller.scheduler.cluster.incoming import Target
from controller.scheduler.model.resources import Amount, FlavorResource
from controller.scheduler.quota.queuestate import Holder

CANDIDATES: Final = 10
CHECKS: Final = 128
STEPS: Final = 1024

TargetRank = tuple[bool, int, float, int]
"""(not evicted, group of the search, minus the LocalQueue's usage, priority): a search's order without the loss."""

Loss = tuple[float, float]
"""GPU-seconds, and CPU-seconds of workloads without GPUs; compared in this order."""

NO_LOSS: Final = (0.0, 0.0)
_Places = frozenset[int]


class VictimChoice(msgspec.Struct, frozen=True):
    """A choice between victims. ``pool``: the candidates in the order of the search, its victims among them.

    ``lacking``: how much has to be freed at least. ``holds`` returns whether the policy allows this set, in the order
    of the pool, and the request fits without it.
    """

    pool: Sequence[Target]
    rank: Callable[[Target], TargetRank]
    loss: Callable[[Holder], Loss]
    lacking: Mapping[FlavorResource, Amount]
    holds: Callable[[Sequence[Target]], bool]


def loss_of(loss: Callable[[Holder], Loss], targets: Iterable[Target]) -> Loss:
    """What the victims lose together. One that is evicted already loses nothing more."""
    return _total(loss(target.holder) for target in targets if not target.holder.evicted)


def _total(losses: Iterable[Loss]) -> Loss:
    gpus = cpus = 0.0
    for gpu_s, cpu_s in losses:
        gpus += gpu_s
        cpus += cpu_s
    return gpus, cpus


def cheapest(choice: VictimChoice, targets: Sequence[Target]) -> tuple[Target, ...]:
    """The victims after all exchanges. They hold as ``targets`` does, and lose no more."""
    places = {target.holder.key: place for place, target in enumerate(choice.pool)}
    chosen = found = frozenset(places[target.holder.key] for target in targets)
    for rank in sorted({choice.rank(target) for target in targets if not target.holder.evicted}, reverse=True):
        chosen = _Exchange(choice, chosen, rank).result()
    if chosen == found:
        return tuple(targets)
    for place in sorted(chosen, reverse=True):
        without = chosen - {place}
        if without and choice.holds(_targets(choice, without)):
            chosen = without
    return _targets(choice, chosen)


def _targets(choice: VictimChoice, places: Iterable[int]) -> tuple[Target, ...]:
    return tuple(choice.pool[place] for place in sorted(places))


class _Exchange:
    """The victims of one rank; those of other ranks stay as they are."""

    def __init__(self, choice: VictimChoice, chosen: _Places, rank: TargetRank) -> None:
        self._choice = choice
        ranked = [place for place, target in enumerate(choice.pool) if choice.rank(target) == rank]
        self._rest = chosen.difference(ranked)
        self._best = chosen.intersection(ranked)
        self._loss = {place: loss_of(choice.loss, [choice.pool[place]]) for place in ranked}
        self._members = sorted(ranked, key=lambda place: (self._loss[place], place))
        self._checks = CHECKS
        freed = {fr: self._freed(self._rest, fr) for fr in choice.lacking}
        self._lacking = {fr: amount - freed[fr] for fr, amount in choice.lacking.items() if amount > freed[fr]}

    def result(self) -> _Places:
        if not self._is_cheapest() and not self._enumerated():
            self._checks = CHECKS
            while self._swapped():
                pass
        return self._rest | self._best

    def _freed(self, places: Iterable[int], fr: FlavorResource) -> Amount:
        return sum(self._choice.pool[place].holder.usage.get(fr, 0) for place in places)

    def _sum(self, places: Iterable[int]) -> Loss:
        return _total(self._loss[place] for place in places)

    def _is_cheapest(self) -> bool:
        """Whether no set of the rank loses less: not even one of parts of candidates, which is a sum."""
        gpu_s, cpu_s = self._sum(self._best)
        if cpu_s or len(self._lacking) != 1:
            return (gpu_s, cpu_s) == NO_LOSS
        ((fr, lacking),) = self._lacking.items()
        parts = [(self._loss[place][0], self._freed([place], fr)) for place in self._members]
        least = 0.0
        for each_s, freed in sorted((part for part in parts if part[1]), key=lambda part: part[0] / part[1]):
            part = min(lacking, freed)
            least, lacking = least + each_s * part / freed, lacking - part
            if lacking <= 0:
                break
        return lacking <= 0 and gpu_s <= least * (1 + 1e-9)

    def _enumerated(self) -> bool:
        """Try sets in the order of their loss. Returns whether the cheapest is found."""
        members, bound = self._members, self._sum(self._best)
        heap: list[tuple[Loss, tuple[int, ...]]] = [(self._loss[members[0]], (0,))]
        for _ in range(STEPS):
            if not heap or heap[0][0] >= bound:
                return True
            loss, at = heapq.heappop(heap)
            places = frozenset(members[each] for each in at)
            if self._frees_enough(places):
                if not self._checks:
                    return False
                if self._try(places):
                    return True
            following = at[-1] + 1
            if following < len(members):
                more, last = self._loss[members[following]], self._loss[members[at[-1]]]
                heapq.heappush(heap, ((loss[0] + more[0], loss[1] + more[1]), (*at, following)))
                swapped = (loss[0] - last[0] + more[0], loss[1] - last[1] + more[1])
                heapq.heappush(heap, (swapped, (*at[:-1], following)))
        return False

    def _swapped(self) -> bool:
        """Exchange one victim, the most expensive first, for one that loses less. Returns whether that was done."""
        for out in sorted(self._best, key=lambda place: (self._loss[place], place), reverse=True):
            for into in self._members:
                if self._loss[into] >= self._loss[out]:
                    break
                places = (self._best - {out}) | {into}
                if into not in self._best and self._frees_enough(places):
                    if not self._checks:
                        return False
                    if self._try(places):
                        return True
        return False

    def _frees_enough(self, places: _Places) -> bool:
        return all(self._freed(places, fr) >= amount for fr, amount in self._lacking.items())

    def _try(self, places: _Places) -> bool:
        self._checks -= 1
        if not self._choice.holds(_targets(self._choice, self._rest | places)):
            return False
        self._best = places
        return True
