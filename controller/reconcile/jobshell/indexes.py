"""Indexes that follow the watches: which objects belong to a key, and which key an object is under."""

from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def note(index: dict[K, set[V]], key: K, value: V, *, gone: bool) -> None:
    """Adds a value to an index of sets, or removes it; empty sets are removed."""
    if not gone:
        index.setdefault(key, set()).add(value)
    elif key in index:
        index[key].discard(value)
        if not index[key]:
            del index[key]


class Index(Generic[K, V]):
    """Values by key, each under one key at a time. ``_values`` and ``_key`` are inverse to each other: ``put`` and
    ``drop`` alone write both, and no set in them is empty.
    """

    def __init__(self) -> None:
        self._values: dict[K, set[V]] = {}
        self._key: dict[V, K] = {}

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def values(self) -> Collection[V]:
        return self._key.keys()

    def of(self, key: K) -> Collection[V]:
        """The values under the key."""
        return self._values.get(key, ())

    def key(self, value: V) -> K | None:
        """The key that the value is under; None for one that is not there."""
        return self._key.get(value)

    def put(self, value: V, key: K) -> None:
        """Puts the value under the key, and under no other."""
        if self._key.get(value) != key:
            self.drop(value)
            self._key[value] = key
            self._values.setdefault(key, set()).add(value)

    def drop(self, value: V) -> K | None:
        """Takes the value out. Returns the key that it was under; None if it was not there."""
        key = self._key.pop(value, None)
        if key is not None:
            note(self._values, key, value, gone=True)
        return key
