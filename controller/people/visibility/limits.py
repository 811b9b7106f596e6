"""A bounded cache of answers, and limits on how often a user may ask. Pure: time is an argument."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values that are valid for ``life_s`` seconds, at most ``most`` of them: the oldest is dropped first.

    Entries stand in the order in which they were put, so the first is the oldest.
    """

    def __init__(self, *, most: int, life_s: float) -> None:
        self._most = most
        self._life_s = life_s
        self._found: dict[K, tuple[V, float]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: K, now_s: float) -> tuple[V] | None:
        """The value in a tuple, so that None can be a value; None if there is none, or it is too old."""
        entry = self._found.get(key)
        if entry is None:
            return None
        if now_s - entry[1] >= self._life_s:
            del self._found[key]
            return None
        return (entry[0],)

    def put(self, key: K, value: V, now_s: float) -> None:
        self._found.pop(key, None)
        while len(self._found) >= self._most:
            del self._found[next(iter(self._found))]
        self._found[key] = (value, now_s)


class Buckets(Generic[K]):
    """A token bucket for each key: ``burst`` at once, then ``per_s`` a second. At most ``most`` are kept.

    A key that was dropped has a full bucket: keys that asked longest ago are dropped first.
    """

    def __init__(self, *, per_s: float, burst: int, most: int) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._most = most
        self._left: dict[K, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._left)

    def take(self, key: K, now_s: float) -> float:
        """Takes a token and returns 0; if there is none, returns the seconds until the next."""
        left, at_s = self._left.pop(key, (self._burst, now_s))
        left = min(self._burst, left + max(0.0, now_s - at_s) * self._per_s)
        while len(self._left) >= self._most:
            del self._left[next(iter(self._left))]
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / self._per_s
        self._left[key] = (left - 1.0 if left >= 1.0 else left, now_s)
        return wait_s
