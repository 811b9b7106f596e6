"""How the GPUs of a node are linked, asked about sets of GPUs. A set is a bit mask: bit i is the GPU at place i of the
board.

    fitting_sets(free, size, link)    how many disjoint sets of ``size``, each fully linked, lie in ``free``
    choose(free, size, link)  one of them, chosen so that the others still fit and the rest is well linked

Nodes of one model share one ``Linkage``, so what was computed once for a set of free GPUs holds for ten thousand nodes.
Where a link joins GPUs in groups (switches, pairs, PCIe roots, NUMA nodes) the count is a sum over groups. In a mesh
the packing is searched: exactly for up to 16 connected GPUs, and as a lower bound beyond that. An answer about the
mesh of eight GPUs takes 9 us, and 0.3 us once it is known.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from typing import Final

from controller.scheduler.model.caches import Bounded
from controller.scheduler.model.devicerequest import Link
from inventory.devices import GpuUuid
from inventory.links import LinkMatrix, PcieLevel, scores
from inventory.preference.linktable import LinkTable
from inventory.preference.subsets import MAX_BITS, indexes, mask_of

_STEPS: Final = 64
"""Steps of a search for the best set, some half a millisecond each: the first request on a new kind of node waits for
no more.
"""
_REMEMBERED: Final = 65_536
_MOST_SETS: Final = 4096


class Linkage:
    """The links of one node model. ``links`` and ``numa`` are in the order of the board's places; scores come from
    ``inventory``.
    """

    def __init__(self, links: LinkMatrix, numa: tuple[int | None, ...]) -> None:
        self.count = len(links)
        self.full = (1 << self.count) - 1
        self._joined = {link: _joined(links, numa, link) for link in Link}
        self._groups = {link: _groups(joined) for link, joined in self._joined.items()}
        self._names = tuple(GpuUuid(str(place)) for place in range(self.count))
        self._table = LinkTable(self._names, scores(links))
        self._fitting = Bounded[tuple[int, int, Link], int](_REMEMBERED)
        self.kinds: dict[object, object] = {}
        """The kinds of pools that stand on these GPUs; ``devices.kinds`` stores them here."""

    def joined(self, mask: int, link: Link) -> bool:
        """Whether every two GPUs of the set are linked."""
        return all(not mask & ~(self._joined[link][place] | 1 << place) for place in indexes(mask))

    def groups(self, link: Link | None) -> tuple[int, ...]:
        """Sets of GPUs that the link joins fully and that it does not join to one another; single GPUs in a mesh."""
        if link is None:
            return (self.full,)
        found = self._groups[link]
        return found if found is not None else tuple(1 << place for place in range(self.count))

    def regions(self, link: Link) -> tuple[int, ...]:
        """Sets of GPUs such that every fully linked set lies in one of them."""
        joined = self._joined[link]
        return tuple(dict.fromkeys(joined[place] | 1 << place for place in range(self.count)))

    def near(self, places: Iterable[int], link: Link) -> int:
        """The mask of these GPUs and those that are linked to all of them."""
        found = self.full
        for place in places:
            found &= self._joined[link][place] | 1 << place
        return found

    def fitting_sets(self, free: int, size: int, link: Link | None) -> int:
        if size <= 0:
            return 0
        if link is None or size == 1:
            return free.bit_count() // size
        groups = self._groups[link]
        if groups is not None:
            return sum((free & group).bit_count() // size for group in groups)
        known = self._fitting.get((free, size, link))
        if known is None:
            known = sum(self._packed(part, size, link) for part in self._parts(free, link))
            self._fitting.remember((free, size, link), known)
        return known

    def choose(self, free: int, size: int, link: Link | None) -> int:
        """The mask of a set of ``size`` GPUs; 0 where there is none."""
        if not 0 < size <= free.bit_count():
            return 0
        return self._chosen(free, size, link if size > 1 else None)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _chosen(self, free: int, size: int, link: Link | None) -> int:
        if link is None:
            return self._best(free, size)
        groups = self._groups[link]
        if groups is not None:
            fitting = [free & group for group in groups if (free & group).bit_count() >= size]
            # The tightest group is taken: larger ones stay whole.
            return (
                self._best(min(fitting, key=lambda region: (region.bit_count(), region & -region)), size)
                if fitting
                else 0
            )
        left = self.fitting_sets(free, size, link) - 1
        candidates = [
            clique for part in self._parts(free, link) for clique in self._cliques(part, size, link, limit=_MOST_SETS)
        ]
        keeping = [
            candidate for candidate in candidates if self.fitting_sets(free ^ candidate, size, link) >= left
        ] or candidates
        return max(
            keeping, key=lambda choice: (self._left(free ^ choice, link), self._score(choice), -choice), default=0
        )

    def _left(self, free: int, link: Link) -> int:
        """How many sets could still be placed, as one number that weighs large sets above small ones."""
        worth = 0
        for size in (8, 4, 2):
            worth = worth * (MAX_BITS + 1) + self.fitting_sets(free, size, link)
        return worth

    def _best(self, free: int, size: int) -> int:
        """The best set by the quality of links: what is left over stays well connected too."""
        search = self._table.search([self._names[place] for place in indexes(free)], (), size)
        if search is None:
            return mask_of(indexes(free)[:size])
        for _ in range(_STEPS):
            if search.step():
                break
        return mask_of(int(name) for name in search.best)

    def _score(self, mask: int) -> int:
        places = indexes(mask)
        return sum(self._table.score(self._names[a], self._names[b]) for a, b in combinations(places, 2))

    def _parts(self, free: int, link: Link) -> Iterator[int]:
        """The connected components of ``free``."""
        joined = self._joined[link]
        while free:
            part, edge = 0, free & -free
            while edge:
                part |= edge
                edge = 0
                for place in indexes(part):
                    edge |= joined[place]
                edge &= free & ~part
            yield part
            free &= ~part

    def _packed(self, part: int, size: int, link: Link) -> int:
        """The largest number of disjoint linked sets in one component; a lower bound where the component is too large
        to search.
        """
        if part.bit_count() < size:
            return 0
        if part.bit_count() > MAX_BITS:
            return self._greedy(part, size, link)
        known: dict[int, int] = {}

        def most(free: int) -> int:
            bound = free.bit_count() // size
            if not bound:
                return 0
            largest = known.get(free)
            if largest is None:
                lowest = free & -free
                largest = 0
                for chosen in self._with(lowest, free, size, link):
                    largest = max(largest, 1 + most(free ^ chosen))
                    if largest == bound:
                        break
                if largest < bound:
                    largest = max(largest, most(free ^ lowest))
                known[free] = largest
            return largest

        return most(part)

    def _greedy(self, free: int, size: int, link: Link) -> int:
        sets = 0
        while free:
            component = next(self._with(free & -free, free, size, link), 0)
            sets += 1 if component else 0
            free &= ~(component or free & -free)
        return sets

    def _cliques(self, part: int, size: int, link: Link, *, limit: int) -> Iterator[int]:
        rest = part
        while rest and limit:
            for rest_of in self._with(rest & -rest, rest, size, link):
                yield rest_of
                limit -= 1
                if not limit:
                    return
            rest &= rest - 1

    def _with(self, lowest: int, free: int, size: int, link: Link) -> Iterator[int]:
        """The linked sets of ``size`` within ``free`` that contain its lowest GPU."""
        joined = self._joined[link]

        def grow(chosen: int, open_: int, missing: int) -> Iterator[int]:
            if not missing:
                yield chosen
                return
            while open_.bit_count() >= missing:
                bit = open_ & -open_
                open_ ^= bit
                yield from grow(chosen | bit, open_ & joined[bit.bit_length() - 1], missing - 1)

        yield from grow(lowest, free & joined[lowest.bit_length() - 1] & ~lowest, size - 1)


@lru_cache(maxsize=1024)
def linkage(links: LinkMatrix, numa: tuple[int | None, ...]) -> Linkage:
    """The one Linkage of all nodes whose GPUs are linked alike: made in 150 us, found in 1 us, and with it all that was
    computed of it.
    """
    return Linkage(links, numa)


def _joined(links: LinkMatrix, numa: tuple[int | None, ...], link: Link) -> tuple[int, ...]:
    """A mask for each place: the other GPUs that it is linked to."""
    count = len(links)

    def holds(a: int, b: int) -> bool:
        pair = links[a][b]
        if link is Link.NVLINK:
            return pair.nvlinks > 0 or pair.nvswitch > 0
        if link is Link.PCIE:
            return pair.pcie is not None and pair.pcie <= PcieLevel.PHB
        if numa[a] is not None and numa[b] is not None:
            return numa[a] == numa[b]
        return pair.pcie is not None and pair.pcie <= PcieLevel.NODE

    return tuple(mask_of(b for b in range(count) if a != b and holds(a, b)) for a in range(count))


def _groups(joined: tuple[int, ...]) -> tuple[int, ...] | None:
    """The groups that the link forms; None where the link is not transitive (a mesh)."""
    found = dict.fromkeys(mask | 1 << place for place, mask in enumerate(joined))
    if any(joined[place] | 1 << place != group for group in found for place in indexes(group)):
        return None
    return tuple(found)
