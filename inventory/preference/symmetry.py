"""Finds sets of GPUs that are alike: boxes are built from equal parts, and a table need only be computed once for each
kind.

GPUs with the same links to everything else (twins) may be swapped without changing any score. So may two equal groups
of twins with the same links outward, and so on up: two GPUs under one PCIe switch, two switches under one socket, two
sockets. The result is a tree whose every node has interchangeable children; two sets are alike when sorting the
children of each node makes them equal. A 16-GPU NVSwitch box has 231 kinds of sets instead of 65536.
"""

from __future__ import annotations  # array[int] cannot be subscripted at run time before 3.12

from array import array
from collections.abc import Sequence

from msgspec import Struct

Shape = tuple["Shape", ...]
"""A tree without names: () is one GPU, otherwise the shapes of the interchangeable children, all equal."""


class Module(Struct, frozen=True):
    """A group of GPUs that hangs together: ``members`` in the order of the leaves of ``shape``."""

    members: tuple[int, ...]
    shape: Shape = ()


def modules(scores: Sequence[Sequence[int]]) -> tuple[Module, ...]:
    """The forest for a symmetric score matrix; modules that stand alone are twins of no other."""
    current = [Module((i,)) for i in range(len(scores))]
    while True:
        merged = [_join(group) for group in _interchangeable(scores, current)]
        if len(merged) == len(current):
            return tuple(merged)
        current = merged


def canonical_masks(scores: Sequence[Sequence[int]]) -> array[int] | None:
    """The mask that stands for all masks of its kind, for every mask of the GPUs; None when every kind has one member
    only.
    """
    n = len(scores)
    forest = modules(scores)
    if len(forest) == n:
        return None
    local = _canonical(forest[0].shape)
    for module in forest[1:]:
        width = len(local).bit_length() - 1
        local = [upper << width | lower for upper in _canonical(module.shape) for lower in local]
    positions = [index for module in forest for index in module.members]
    if positions == list(range(n)):
        return array("H", local)
    to_local = _spread([positions.index(i) for i in range(n)])
    to_global = _spread(positions)
    return array("H", [to_global[local[mask]] for mask in to_local])


def _join(group: Sequence[Module]) -> Module:
    if len(group) == 1:
        return group[0]
    return Module(tuple(index for module in group for index in module.members), tuple(module.shape for module in group))


def _interchangeable(scores: Sequence[Sequence[int]], candidates: Sequence[Module]) -> list[list[Module]]:
    """The candidates in classes that may be swapped. Being swappable is an equivalence (swaps compose), so comparing
    with one member of a class is enough.
    """
    classes: list[list[Module]] = []
    for module in candidates:
        home = next((group for group in classes if _swappable(scores, group[0], module)), None)
        if home is None:
            classes.append([module])
        else:
            home.append(module)
    return classes


def _swappable(scores: Sequence[Sequence[int]], one: Module, other: Module) -> bool:
    """Whether exchanging the two, member by member, leaves every pair score as it was.

    The members of a module are interchangeable while all else stays in place, so the first one's links outward are
    those of all, and one score connects any member here with any member there.
    """
    if one.shape != other.shape:
        return False
    a, b = one.members, other.members
    outside = [i for i in range(len(scores)) if i not in a and i not in b]
    return all(scores[a[0]][i] == scores[b[0]][i] for i in outside) and all(
        scores[a[i]][a[j]] == scores[b[i]][b[j]] for i in range(len(a)) for j in range(i)
    )


def _canonical(shape: Shape) -> list[int]:
    """The mask after sorting the children of each node, fullest first, for every mask over the leaves of ``shape``.

    The list is built child by child: a longer row is a shorter sorted row with one more child inserted. The insertions
    repeat (there are few kinds), so each is computed once.
    """
    if not shape:
        return [0, 1]
    child = _canonical(shape[0])
    width = len(child).bit_length() - 1
    rows = child
    for count in range(1, len(shape)):
        kinds = set(rows)
        inserted = {kind: {row: _insert(row, kind, width, count) for row in kinds} for kind in set(child)}
        rows = [of_row[row] for of_row in [inserted[kind] for kind in child] for row in rows]
    return rows


def _insert(row: int, kind: int, width: int, count: int) -> int:
    digits = [row >> width * i & (1 << width) - 1 for i in range(count)]
    digits = sorted([*digits, kind], reverse=True)
    return sum(digit << width * i for i, digit in enumerate(digits))


def _spread(bit_of: Sequence[int]) -> list[int]:
    """The mask in which bit i has moved to ``bit_of[i]``, for every mask."""
    moved = [0]
    for bit in bit_of:
        moved += [mask | 1 << bit for mask in moved]
    return moved
