"""Subgroups of a group: the pods that it starts with, and what starts as a whole beside those. Pure.

A subgroup is whole or not there: of a leaf the pods of its minimum, of any other as many whole ones below it as it
needs. Those that the group does not need start and leave as a whole too. Of a leaf that is there, pods above its
minimum come and go one by one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from controller.engine.model.gangshape import GangShape, Subgroup
from controller.objects.kai import DEEPEST_SUBGROUP

NONE: Final = ""
"""The leaf of a pod that is in none."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Of a shape without circles. ``spare``: groups that need not be there."""

    shape: GangShape
    spare: frozenset[str] = frozenset()

    def required(self, parent: str) -> tuple[Subgroup, ...]:
        return tuple(group for group in self.shape.below(parent) if group.name not in self.spare)

    def needed(self, parent: str) -> int:
        """How many of the groups right below it; ``parent`` is empty for the top."""
        minimums = {group.name: group.minimum for group in self.shape.groups}
        said, most = minimums.get(parent, self.shape.minimum), len(self.required(parent))
        return min(said, most) if said else most

    def least(self, name: str) -> int:
        """The fewest pods of a whole one; of the whole tree for an empty name."""
        group = self._group(name)
        if group is not None and not self.shape.below(name):
            return group.minimum
        return sum(sorted(self.least(below.name) for below in self.required(name))[: self.needed(name)])

    def part(self, name: str) -> "Tree":
        """The group of that name alone, with all below it."""
        names = {name}
        for _ in range(DEEPEST_SUBGROUP):
            names |= {group.name for group in self.shape.groups if group.parent in names}
        kept = tuple(
            msgspec.structs.replace(group, parent="") if group.name == name else group
            for group in self.shape.groups
            if group.name in names
        )
        return Tree(shape=GangShape(groups=kept), spare=self.spare - {name})

    def whole(self, leaf: str, there: Iterable[str]) -> str:
        """What the pods of the leaf start with as a whole, beside pods of the leaves ``there``.

        Empty where they join one by one: the leaf is there, or nothing of it is needed together.
        """
        found = ""
        reached = {name for each in there for name in self._path(each)}
        for name in self._path(leaf):
            if name in reached or (name in self.spare and self.shape.below(name)):
                break
            found = name
        return found if found and self.least(found) else ""

    def _group(self, name: str) -> Subgroup | None:
        return next((group for group in self.shape.groups if group.name == name), None)

    def _path(self, leaf: str) -> list[str]:
        """The leaf, and what is above it, upwards."""
        parents = {group.name: group.parent for group in self.shape.groups}
        found: list[str] = []
        while leaf in parents:
            found.append(leaf)
            leaf = parents[leaf]
        return found


def starting(tree: Tree, leaves: Sequence[str], total: int) -> list[int]:
    """Which pods the group starts with, at least ``total`` where there are as many; more where a subgroup is larger.

    ``leaves``: of each pod its leaf, in the order in which they are taken. Where they are too few for the minimums, the
    first of each.
    """
    own: dict[str, list[int]] = {}
    for at, leaf in enumerate(leaves):
        own.setdefault(leaf, []).append(at)
    found = _minimum(tree, "", own)
    if found is None:
        first = {at for group in tree.shape.leaves for at in own.get(group.name, [])[: group.minimum]}
        others = [at for at in range(len(leaves)) if at not in first]
        return sorted([*first, *others[: max(0, total - len(first))]])[:total]
    taken = set(found)
    while len(taken) < total:
        there = {leaves[at] for at in taken}
        wholes = {leaf: tree.whole(leaf, there) for leaf in own}
        single = [at for at, leaf in enumerate(leaves) if at not in taken and not wholes[leaf]]
        more = set(single[: total - len(taken)]) or _next(tree, {name for name in wholes.values() if name}, own)
        if not more:
            break
        taken |= more
    return sorted(taken)


def _next(tree: Tree, names: Iterable[str], own: Mapping[str, list[int]]) -> set[int]:
    """The first of these groups that is whole."""
    found = [(max(pods), name, pods) for name in names if (pods := _minimum(tree, name, own))]
    return set(min(found)[2]) if found else set()


def _minimum(tree: Tree, name: str, own: Mapping[str, list[int]]) -> list[int] | None:
    """The pods of a whole one; None while some are missing. Of its subgroups those that were whole first."""
    if name and not tree.shape.below(name):
        least, pods = tree.least(name), own.get(name, [])
        return pods[:least] if len(pods) >= least else None
    whole = []
    for group in tree.required(name):
        pods_below = _minimum(tree, group.name, own)
        if pods_below is not None:
            whole.append((max(pods_below, default=-1), group.name, pods_below))
    needed = tree.needed(name)
    if len(whole) < needed:
        return None
    return [at for _, _, pods_below in sorted(whole)[:needed] for at in pods_below]


def lacking(tree: Tree, leaves: Sequence[str], parent: str = "") -> str:
    """Why pods of these leaves are too few; empty where they are not."""
    below = tree.required(parent)
    missing = [why for group in below if (why := _short(tree, group, leaves))]
    return missing[0] if missing and len(below) - len(missing) < tree.needed(parent) else ""


def _short(tree: Tree, group: Subgroup, leaves: Sequence[str]) -> str:
    if tree.shape.below(group.name):
        return lacking(tree, leaves, group.name)
    found = leaves.count(group.name)
    return f"{found} of {group.minimum} pods of {group.name}" if found < group.minimum else ""
