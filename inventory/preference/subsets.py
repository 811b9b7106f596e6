"""Sets of GPUs as bit masks: bit i stands for the GPU of index i.

A mask has at most 16 GPUs, so that a table over all their sets stays small.
"""

from collections.abc import Iterable

MAX_BITS = 16


def _by_count() -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The submasks of each byte, grouped by their number of bits (3^8 small integers, about 0.2 MiB)."""
    table = []
    for mask in range(256):
        groups: list[list[int]] = [[] for _ in range(9)]
        sub = mask
        while True:
            groups[sub.bit_count()].append(sub)
            if not sub:
                break
            sub = (sub - 1) & mask
        table.append(tuple(tuple(reversed(group)) for group in groups))
    return tuple(table)


_SUBMASKS = _by_count()


def subsets(mask: int, count: int, base: int = 0) -> list[int]:
    """Every subset of ``mask`` with ``count`` bits, each joined with ``base``; in no promised order.

    The two bytes are combined in one comprehension: half the time of itertools.combinations with sum.
    """
    low, high = _SUBMASKS[mask & 0xFF], _SUBMASKS[mask >> 8]
    return [
        upper | lower
        for in_high in range(max(0, count - 8), min(8, count) + 1)
        for upper in [part << 8 | base for part in high[in_high]]
        for lower in low[count - in_high]
    ]


def mask_of(indexes: Iterable[int]) -> int:
    """The mask of some indexes."""
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return mask


def indexes(mask: int) -> tuple[int, ...]:
    """The indexes in a mask, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def precedes(first: int, second: int) -> bool:
    """Whether ``first`` comes before another set of the same size, both read as ascending lists of indexes."""
    different = first ^ second
    return bool(first & different & -different)
