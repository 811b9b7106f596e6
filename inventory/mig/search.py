"""Exact search over a GPU's placement table: the places where GPU instances can stand side by side. Pure.

A state is (the number of each profile still to be placed, the memory slices taken): at most a few hundred states, each
decided once in the life of a ``Placer``.
"""

from collections import Counter
from collections.abc import Sequence

from inventory.devices import MigProfile

Staying = tuple[tuple[str, int, int], ...]
"""The (profile, first slice, slices) of instances that are not to be moved."""


class Placer:
    """The placement table of one kind of GPU. It gives the same answers each time."""

    def __init__(self, profiles: Sequence[MigProfile]) -> None:
        # The widest come first: they have the fewest places.
        self._profiles = sorted(profiles, key=lambda offered: (-offered.size, -offered.slices, offered.name))
        self._by_name = {profile.name: profile for profile in profiles}
        self._compute = max((profile.slices for profile in profiles), default=0)
        self._known: dict[tuple[tuple[int, ...], int], tuple[tuple[int, int], ...] | None] = {}
        self._places = [self._ordered(profile) for profile in self._profiles]

    def fits(self, wanted: Counter[str], staying: Staying) -> bool:
        return self.place(wanted, staying) is not None

    def place(self, wanted: Counter[str], staying: Staying) -> dict[str, list[int]] | None:
        """The first slices by profile for all wanted instances, beside those that stay; None where there is no way."""
        if not self._countable(wanted, staying):
            return None
        mask = 0
        for _, start, size in staying:
            mask |= _span(start, size)
        placed = self._search(tuple(wanted[profile.name] for profile in self._profiles), mask)
        if placed is None:
            return None
        places: dict[str, list[int]] = {}
        for kind, start in placed:
            places.setdefault(self._profiles[kind].name, []).append(start)
        return {name: sorted(starts) for name, starts in places.items()}

    def order(self, profile: str) -> tuple[int, ...]:
        """The places of one profile, the one that takes the fewest from the other profiles first."""
        kind = next((i for i, offered in enumerate(self._profiles) if offered.name == profile), None)
        return () if kind is None else tuple(start for start, _ in self._places[kind])

    def _countable(self, wanted: Counter[str], staying: Staying) -> bool:
        """Whether compute slices suffice, and no profile is there more often than it may be."""
        total = wanted + Counter(name for name, _, _ in staying)
        known = [(self._by_name[name], count) for name, count in total.items() if name in self._by_name]
        if any(count > profile.max_count for profile, count in known if wanted[profile.name]):
            return False
        return sum(profile.slices * count for profile, count in known) <= self._compute

    def _search(self, left: tuple[int, ...], mask: int) -> tuple[tuple[int, int], ...] | None:
        """The (profile number, start) of each instance left, or None."""
        kind = next((i for i, count in enumerate(left) if count), None)
        if kind is None:
            return ()
        key = (left, mask)
        if key not in self._known:
            self._known[key] = self._try(kind, left, mask)
        return self._known[key]

    def _try(self, kind: int, left: tuple[int, ...], mask: int) -> tuple[tuple[int, int], ...] | None:
        fewer = tuple(count - (i == kind) for i, count in enumerate(left))
        for start, span in self._places[kind]:
            if span & mask:
                continue
            rest = self._search(fewer, mask | span)
            if rest is not None:
                return ((kind, start), *rest)
        return None

    def _ordered(self, profile: MigProfile) -> list[tuple[int, int]]:
        """The (start, slices as bits) of each place, first those that take the fewest places from the other
        profiles.
        """

        def harm(start: int) -> tuple[int, int]:
            span = _span(start, profile.size)
            others = ((other.slices, _span(at, other.size)) for other in self._profiles for at in other.starts)
            return sum(slices for slices, place in others if place & span), -start

        return [(start, _span(start, profile.size)) for start in sorted(profile.starts, key=harm)]


def _span(start: int, size: int) -> int:
    return ((1 << size) - 1) << start
