"""Chooses GPUs so that those left over stay well connected too.

The available GPUs are divided into sets of the size asked for (the remainder is one smaller set); a partition's score
is the sum of the pair scores inside its sets. Among the partitions with the highest score the answer is the full set
that contains ``required`` and scores best; ties go to lower indexes, never by the order of a request.

Data flow: discovery builds a ``ScoreTable`` from the links and drives ``fill()`` to its end in the background; each
request is a ``Search``. On a filled table one step answers. Before that the search works out what it needs, a
bounded piece for each ``step()``, with a good answer in ``best`` from the start. No clock, no thread: the caller
decides when to go on. One table must not be used by two threads at once.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from collections.abc import Callable, Iterator
from operator import add

from msgspec import Struct

from inventory.links import ScoreMatrix
from inventory.preference import localsearch
from inventory.preference.optima import Optima, preferred
from inventory.preference.subsets import MAX_BITS, subsets
from inventory.preference.symmetry import canonical_masks


class Choice(Struct, frozen=True):
    """A set of GPUs as a mask. ``exact`` says that no better one exists."""

    mask: int
    set_score: int
    exact: bool


class ScoreTable:
    """The set scores of up to 16 GPUs, and the best partitions once they are filled in.

    Pair scores are non-negative integers, symmetric. Memory: 2^n numbers of 4 bytes, and as many again for each size
    from 2 to (n - 1) / 2 that was asked for or filled: 4 KiB for 8 GPUs, 1.8 MiB for 16.
    """

    def __init__(self, scores: ScoreMatrix) -> None:
        """Raise ValueError for more than 16 GPUs or a matrix that is not symmetric or has negative scores."""
        _check(scores)
        self.scores = scores
        self.count = len(scores)
        self.set_scores = _set_scores(scores)
        self._optima: dict[int, Optima] = {}

    @property
    def memory_bytes(self) -> int:
        """The bytes that the tables take."""
        return sum(
            len(table) * table.itemsize for table in [self.set_scores, *(o.values for o in self._optima.values())]
        )

    @property
    def filled(self) -> bool:
        """Whether every search is answered by its first step."""
        return all(self._is_complete(size) for size in range(2, self.count + 1))

    def fill(self) -> Iterator[None]:
        """Compute the best partitions for every size, a bounded piece of work between two yields.

        The whole takes, for arbitrary links, about 50 ms at 12 GPUs and 3 s at 16; for 16 in a regular box 60 ms.
        """
        canonical = canonical_masks(self.scores)
        yield
        for size in range(2, self.count):
            if not self._is_complete(size):
                yield from self.optima(size).fill(canonical)

    def search(self, available: int, required: int, size: int) -> Search:
        """Start a search for ``size`` of the ``available`` GPUs with all of ``required`` (masks).

        Raise ValueError where no such set exists.
        """
        return Search(self, available, required, size)

    def choose(self, available: int, required: int, size: int, *, expired: Callable[[], bool] | None = None) -> Choice:
        """The exact answer, or the best found when ``expired()`` is first true; it is called after each step."""
        search = self.search(available, required, size)
        while not search.step():
            if expired is not None and expired():
                break
        return search.best

    def optima(self, size: int) -> Optima:
        """The table of best partitions into sets of ``size``, as far as it is filled."""
        if size not in self._optima:
            self._optima[size] = Optima(self.set_scores, size)
        return self._optima[size]

    def answers(self, size: int, remaining: int) -> array[int] | None:
        """The best partition scores of the ``remaining`` GPUs that a choice leaves over; None when not computed yet."""
        if remaining <= size:
            return self.set_scores
        known = self._optima.get(size)
        return known.values if known is not None and known.complete else None

    def _is_complete(self, size: int) -> bool:
        return self.answers(size, self.count - size) is not None


class Search:
    """One request on a table. ``best`` is a valid answer from the start, and exact once ``step()`` returned True."""

    def __init__(self, table: ScoreTable, available: int, required: int, size: int) -> None:
        if not 0 < size <= available.bit_count() or required & ~available or required.bit_count() > size:
            raise ValueError(f"no set of {size} GPUs within {available:#x} contains {required:#x}")
        self._table = table
        self._available = available
        self._required = required
        self._size = size
        self.best = self._start()
        self._steps = self._run()

    def step(self) -> bool:
        """Do one bounded piece of work (about half a millisecond); True when ``best`` is exact."""
        if not self.best.exact:
            next(self._steps, None)
        return self.best.exact

    def _start(self) -> Choice:
        available, required, size = self._available, self._required, self._size
        if size == available.bit_count():
            return self._choice(available, exact=True)
        if size == required.bit_count():
            return self._choice(required, exact=True)
        if size == 1:
            return self._choice(self._loosest(), exact=True)
        if self._answers() is not None:
            return self._choice(self._enumerate(), exact=True)
        return self._choice(localsearch.first_set(self._table.set_scores, available, required, size), exact=False)

    def _run(self) -> Iterator[None]:
        optima = self._table.optima(self._size)
        if self._required:
            for chosen in self._candidates():
                yield from optima.solve(self._available ^ chosen)
            self.best = self._choice(self._pick(optima.values), exact=True)
        else:
            yield from optima.solve(self._available)
            self.best = self._choice((yield from optima.best_set(self._available)), exact=True)

    def _answers(self) -> array[int] | None:
        return self._table.answers(self._size, self._available.bit_count() - self._size)

    def _enumerate(self) -> int:
        answers = self._answers()
        assert answers is not None, "only a filled table is enumerated"
        return self._pick(answers)

    def _candidates(self) -> list[int]:
        free = self._available ^ self._required
        return subsets(free, self._size - self._required.bit_count(), self._required)

    def _pick(self, left_over: array[int]) -> int:
        """The preferred set, given the best partition score of everything that may be left over."""
        scores, available, candidates = self._table.set_scores, self._available, self._candidates()
        totals = [scores[chosen] + left_over[available ^ chosen] for chosen in candidates]
        best = max(totals)
        chosen = 0
        for candidate, total in zip(candidates, totals, strict=True):
            if total == best:
                chosen = preferred(scores, chosen, candidate)
        return chosen

    def _loosest(self) -> int:
        """The set of one GPU. It makes no pair, so every partition scores 0: the GPU that the others will miss least is
        taken.
        """
        members = [i for i in range(self._table.count) if self._available >> i & 1]
        return 1 << min(members, key=lambda i: sum(self._table.scores[i][j] for j in members))

    def _choice(self, mask: int, *, exact: bool) -> Choice:
        return Choice(mask, self._table.set_scores[mask], exact)


def _check(scores: ScoreMatrix) -> None:
    n = len(scores)
    if n > MAX_BITS:
        raise ValueError(f"found {n} GPUs, expected at most {MAX_BITS}")
    for i, row in enumerate(scores):
        if len(row) != n:
            raise ValueError(f"row {i} of the scores has {len(row)} entries, expected {n}")
        for j, score in enumerate(row):
            if score < 0 or score != scores[j][i]:
                raise ValueError(
                    f"the score of {i} and {j} is {score}, expected the same non-negative number both ways"
                )


def _set_scores(scores: ScoreMatrix) -> array[int]:
    """The score of every set, by mask: adding GPU i to a set adds its pair scores with the members."""
    total = sum(map(sum, scores))
    typecode = "I" if total < 2**32 - 1 else "Q"
    table = array(typecode, [0])
    for i in range(len(scores)):
        gained = array(typecode, [0])
        for j in range(i):
            pair = scores[i][j]
            gained += array(typecode, [gain + pair for gain in gained])
        table += array(typecode, map(add, table, gained))
    return table
