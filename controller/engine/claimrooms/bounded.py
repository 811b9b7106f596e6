"""Answers that are kept for a while, and numbers in the place of contents. Both forget all when they are full."""

from collections.abc import Hashable
from itertools import count
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(dict[K, V]):
    """``remember`` alone writes it: at most ``most`` entries."""

    def __init__(self, most: int) -> None:
        self._most = most

    def remember(self, key: K, value: V) -> V:
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value


class Numbers:
    """Equal contents have equal numbers, while they are remembered; none has one that another had."""

    def __init__(self, most: int) -> None:
        self._known: Bounded[Hashable, int] = Bounded(most)
        self._next = count()

    def of(self, content: Hashable) -> int:
        known = self._known.get(content)
        return self._known.remember(content, next(self._next)) if known is None else known
