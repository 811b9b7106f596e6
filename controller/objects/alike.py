"""Interning of equal values, for thousands of objects with the same content. Callers must not change a value from
here.

A dict of three items takes 184 bytes, a set 216; to find the shared one takes 0.4 us, 0.3 us more than to make one. In
a fleet of 120,000 workloads the dicts of those with quota alone took 20 MiB before they were shared (docs/benchmarks).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED: Final = 16_384
"""The values that are remembered; one that comes again after so many others is kept anew."""


def one_dict(given: Mapping[K, V]) -> dict[K, V]:
    """A dict with the same items in the same order, shared. Values have to be hashable, and equal only if either may
    replace the other.
    """
    return cast("dict[K, V]", _dict(tuple(given.items())))


def one_set(given: Iterable[V]) -> frozenset[V]:
    return cast("frozenset[V]", _set(tuple(given)))


@lru_cache(_REMEMBERED)
def _dict(items: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
    return dict(items)


@lru_cache(_REMEMBERED)
def _set(items: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(items)
