"""The best partition of every set of GPUs into sets of one size, as a table over masks.

``values[mask]`` is the highest total score of a partition of ``mask`` into sets of ``size`` members, with one smaller
set for the remainder. A partition is taken apart by the set that holds the lowest GPU, so no order of sets is tried
twice. The table is filled as a whole at discovery (``fill``) or for one query (``solve``); both are generators that
yield after a bounded piece of work (about half a millisecond), because an event loop waits meanwhile.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from collections.abc import Generator, Iterator

from inventory.preference.subsets import precedes, subsets

STEP_SPLITS = 3000
"""The number of splits between two yields."""


def preferred(scores: array[int], one: int, other: int) -> int:
    """The better of two sets of one size (0 is no set): the higher score, then the lower indexes."""
    if not one or not other:
        return one or other
    if scores[one] != scores[other]:
        return one if scores[one] > scores[other] else other
    return one if precedes(one, other) else other


class Optima:
    """The table for one size over a fixed table of set scores.

    Memory: one number (4 bytes, 8 for scores beyond 32 bits) for each of the 2^n masks.
    """

    def __init__(self, set_scores: array[int], size: int) -> None:
        self.set_scores = set_scores
        self.size = size
        self.full = len(set_scores) - 1
        self.unknown = (1 << 8 * set_scores.itemsize) - 1
        self.complete = False
        self.values = array(set_scores.typecode, [self.unknown]) * len(set_scores)
        self._prepared = False

    def prepare(self) -> Iterator[None]:
        """Enter the values that need no search: a set of at most ``size`` members is a partition by itself."""
        if self._prepared:
            return
        for count in range(self.size + 1):
            for mask in subsets(self.full, count):
                self.values[mask] = self.set_scores[mask]
            yield
        self._prepared = True

    def fill(self, canonical: array[int] | None = None) -> Iterator[None]:
        """Solve every mask that a choice can leave over; with ``canonical`` only one of each kind is computed."""
        yield from self.prepare()
        work = 0
        for count in range(self.size + 1, self.full.bit_count() - self.size + 1):
            layer = subsets(self.full, count)
            kinds = layer if canonical is None else [mask for mask in layer if canonical[mask] == mask]
            for mask in kinds:
                if self.values[mask] == self.unknown:
                    firsts = self._firsts(mask)
                    self._solve_split(mask, firsts)
                    work += len(firsts)
                if work >= STEP_SPLITS:
                    yield
                    work = 0
            if canonical is not None:
                for mask in layer:
                    self.values[mask] = self.values[canonical[mask]]
            yield
        self.complete = True

    def solve(self, mask: int) -> Iterator[None]:
        """Make ``values[mask]`` known, and that of every remainder on the way."""
        yield from self.prepare()
        values, unknown = self.values, self.unknown
        stack, work = [mask], 0
        while stack:
            top = stack[-1]
            if values[top] != unknown:
                stack.pop()
                continue
            firsts = self._firsts(top)
            work += len(firsts)
            # Two sets at most: the remainder after a first set is one set, known from the start.
            two = top.bit_count() <= 2 * self.size
            missing = [] if two else [rest for first in firsts if values[rest := top ^ first] == unknown]
            if missing:
                stack += missing
            else:
                self._solve_split(top, firsts)
                stack.pop()
            if work >= STEP_SPLITS:
                yield
                work = 0

    def best_set(self, mask: int) -> Generator[None, None, int]:
        """The preferred full set among those of all best partitions of ``mask``, which must have been solved."""
        return (yield from self._best_set(mask, {}))

    def _firsts(self, mask: int) -> list[int]:
        """The sets that may hold the lowest GPU of ``mask``: full ones, or the one that takes the remainder."""
        low = mask & -mask
        remainder = mask.bit_count() % self.size
        firsts = subsets(mask ^ low, self.size - 1, low)
        if remainder:
            firsts += subsets(mask ^ low, remainder - 1, low)
        return firsts

    def _solve_split(self, mask: int, firsts: list[int]) -> None:
        values, scores = self.values, self.set_scores
        values[mask] = max([scores[first] + values[mask ^ first] for first in firsts])

    def _best_set(self, mask: int, known: dict[int, int]) -> Generator[None, None, int]:
        """Walk down the splits that reach the optimum; ``known`` holds the answer for masks met before."""
        if mask.bit_count() <= self.size:
            return mask if mask.bit_count() == self.size else 0
        if mask in known:
            return known[mask]
        values, scores, target = self.values, self.set_scores, self.values[mask]
        firsts = self._firsts(mask)
        best = 0
        for first in [first for first in firsts if scores[first] + values[mask ^ first] == target]:
            if first.bit_count() == self.size:
                best = preferred(scores, best, first)
            best = preferred(scores, best, (yield from self._best_set(mask ^ first, known)))
        if len(known) % 16 == 0:
            yield
        known[mask] = best
        return best
