"""Caches that forget everything when they are full: answers by key, and numbers that stand for contents."""

from collections.abc import Hashable
from itertools import count
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(dict[K, V]):
    """A cache of at most ``most`` entries. Only ``remember`` writes it."""

    def __init__(self, most: int) -> None:
        self._most = most

    def remember(self, key: K, value: V) -> V:
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value


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
