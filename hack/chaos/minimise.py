"""The smallest part of a failing list that still fails: Zeller's ddmin. Pure, but for the trial that is handed in."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def minimise(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A sublist for which ``fails`` holds, and for none of whose sublists with one item less it held.

    ``fails(items)`` is taken as known. A trial that fails by luck alone keeps too much, never too little.
    """
    found, parts = list(items), 2
    while len(found) > 1:
        size = -(-len(found) // parts)
        chunks = [range(start, min(start + size, len(found))) for start in range(0, len(found), size)]
        rests = ([item for at, item in enumerate(found) if at not in chunk] for chunk in chunks)
        smaller = next((rest for rest in rests if fails(rest)), None)
        if smaller is not None:
            found, parts = smaller, max(parts - 1, 2)
        elif parts >= len(found):
            break
        else:
            parts = min(parts * 2, len(found))
    return [] if len(found) == 1 and fails([]) else found
