"""The links of one node's GPUs, ready for queries: which GPUs to hand out together, and how near two of them are.

The table translates between UUIDs and the bit masks of ``partition``. Missing or odd link data never stops an
allocation: without usable links every pair scores 0, and a node with more GPUs than a table can hold is searched within
a well-linked part of it.
"""

from collections.abc import Iterator, Sequence

from inventory.devices import GpuUuid, NodeInventory
from inventory.links import ScoreMatrix, scores
from inventory.preference.partition import ScoreTable, Search
from inventory.preference.subsets import MAX_BITS, indexes, mask_of

POOL = 12
"""The number of GPUs that a search on a larger node looks at: the most that is exact within a few milliseconds."""


class SetSearch:
    """A search by UUIDs. ``best`` is a valid answer from the start.

    It is ``exact`` once ``step()`` returned True, unless the node is so large that a part was left out.
    """

    def __init__(self, gpus: Sequence[GpuUuid], search: Search, *, whole: bool) -> None:
        self._gpus = gpus
        self._search = search
        self._whole = whole

    @property
    def best(self) -> tuple[GpuUuid, ...]:
        """The chosen GPUs in the node's order."""
        return tuple(self._gpus[i] for i in indexes(self._search.best.mask))

    @property
    def exact(self) -> bool:
        """Whether no better set exists."""
        return self._whole and self._search.best.exact

    def step(self) -> bool:
        """Do one bounded piece of work; True when there is nothing more to find."""
        return self._search.step()


class LinkTable:
    """Pair scores by UUID and, for up to 16 GPUs, the ``ScoreTable`` over them. Built at discovery, then kept.

    Drive ``fill()`` to its end in the background (in slices) after building; requests before that are answered too.
    """

    def __init__(self, gpus: Sequence[GpuUuid], pair_scores: ScoreMatrix) -> None:
        """A matrix that does not fit the GPUs, or is not symmetric and non-negative, counts as unknown links."""
        self.gpus = tuple(gpus)
        self._position = {uuid: i for i, uuid in enumerate(self.gpus)}
        self._scores = _usable(pair_scores, len(self.gpus))
        self._table = ScoreTable(self._scores) if len(self.gpus) <= MAX_BITS else None

    @classmethod
    def of(cls, node: NodeInventory) -> "LinkTable":
        """The table of a discovered node."""
        return cls([gpu.uuid for gpu in node.gpus], scores(node.links))

    @property
    def memory_bytes(self) -> int:
        """The bytes that the tables take; see ``ScoreTable``."""
        return 0 if self._table is None else self._table.memory_bytes

    def fill(self) -> Iterator[None]:
        """Compute every answer that requests may need, a bounded piece between two yields."""
        if self._table is not None:
            yield from self._table.fill()

    def knows(self, gpu: GpuUuid) -> bool:
        """Whether the GPU was there at discovery."""
        return gpu in self._position

    def score(self, one: GpuUuid, other: GpuUuid) -> int:
        """The pair's score; 0 where no link is known."""
        i, j = self._position.get(one), self._position.get(other)
        return 0 if i is None or j is None else self._scores[i][j]

    def search(self, available: Sequence[GpuUuid], required: Sequence[GpuUuid], size: int) -> SetSearch | None:
        """Start a search among known GPUs; None where the node has too many and ``size`` is beyond a table.

        Raise KeyError for a GPU that is not known, ValueError where no such set exists.
        """
        free = sorted(self._position[gpu] for gpu in available)
        pinned = [self._position[gpu] for gpu in required]
        if self._table is not None:
            return SetSearch(self.gpus, self._table.search(mask_of(free), mask_of(pinned), size), whole=True)
        pool = free if len(free) <= POOL else self._pool(free, pinned, max(POOL, size))
        if len(pool) > MAX_BITS:
            return None
        table = ScoreTable(tuple(tuple(self._scores[i][j] for j in pool) for i in pool))
        inner = table.search((1 << len(pool)) - 1, mask_of(pool.index(i) for i in pinned), size)
        return SetSearch([self.gpus[i] for i in pool], inner, whole=len(pool) == len(free))

    def _pool(self, free: Sequence[int], pinned: Sequence[int], count: int) -> list[int]:
        """Grow a part of the node from ``pinned``, each time by the GPU best linked to it."""
        pool = list(pinned)
        rest = [i for i in free if i not in pinned]
        while len(pool) < count:
            nearest = max(rest, key=lambda i: sum(self._scores[i][j] for j in pool))
            rest.remove(nearest)
            pool.append(nearest)
        return sorted(pool)


def _usable(pair_scores: ScoreMatrix, n: int) -> ScoreMatrix:
    square = len(pair_scores) == n and all(len(row) == n for row in pair_scores)
    if square and all(
        pair_scores[i][j] == pair_scores[j][i] and pair_scores[i][j] >= 0 for i in range(n) for j in range(i)
    ):
        return tuple(tuple(0 if i == j else row[j] for j in range(n)) for i, row in enumerate(pair_scores))
    return tuple((0,) * n for _ in range(n))
