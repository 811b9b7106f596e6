"""One object for all equal ones, where thousands of objects say the same. Nobody may change what comes from here."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

_REMEMBERED: Final = 16_384
"""What is met again after so many others is kept anew."""


def one_dict(given: Mapping[K, V]) -> dict[K, V]:
    """With the same items in the same order. Values have to be hashable, and equal only where either will do."""
    return cast("dict[K, V]", _dict(tuple(given.items())))


def one_set(given: Iterable[V]) -> frozenset[V]:
    return cast("frozenset[V]", _set(tuple(given)))


@lru_cache(_REMEMBERED)
def _dict(items: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
    return dict(items)


@lru_cache(_REMEMBERED)
def _set(items: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(items)
