"""Caches of the scheduler. Each holds at most so many entries, and forgets everything when it is full: what is asked
for again is computed again.

Entries are read as those of any dict, because hot paths do so. Nobody but ``remember`` and ``keep`` adds one.
"""

from collections.abc import Hashable
from itertools import count
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """A cache of at most ``most`` entries."""

    def __init__(self, most: int) -> None:
        self._most = most

    def remember(self, key: K, value: V) -> V:
        """Caches the value, and returns it."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value


class ByIdentity(Bounded[int, tuple[T, V]]):
    """``id(one) -> (one, what is known of it)``, for objects that are costly to compare or equal to others.

    Each entry holds its object, so no other object can get that id while the entry exists: a reader need not check
    whose entry it found.
    """

    def keep(self, one: T, value: V) -> V:
        """Caches what is known of the object, and returns it."""
        return self.remember(id(one), (one, value))[1]

    def validate(self) -> None:
        for key, (one, _) in self.items():
            if key != id(one):
                raise AssertionError(f"kept under another object's id: {one!r}")


class Numbers:
    """A number for each content: equal contents have equal numbers while they are remembered, and no number is given
    twice.
    """

    def __init__(self, most: int) -> None:
        self._known: Bounded[Hashable, int] = Bounded(most)
        self._next = count()

    def of(self, content: Hashable) -> int:
        known = self._known.get(content)
        return self._known.remember(content, next(self._next)) if known is None else known
