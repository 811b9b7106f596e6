"""Subgroups of a group: the pods that it starts with, and what starts as a whole beside those. Pure.

A subgroup is whole or absent: a leaf is whole with the pods of its minimum, any other subgroup with as many whole ones
below it as it needs. Subgroups that the group does not need start and leave as a whole too. Once a leaf is present,
pods above its minimum come and go one by one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from controller.foreign.objects.kai import DEEPEST_SUBGROUP
from controller.scheduler.model.gangshape import GangShape, Subgroup
from inventory.words.catalog import plural

NONE: Final = ""
"""The leaf of a pod that is in no subgroup."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The tree of a shape without circles. ``spare``: groups that are optional."""

    shape: GangShape
    spare: frozenset[str] = frozenset()

    @cached_property
    def _groups(self) -> Mapping[str, Subgroup]:
        return {group.name: group for group in self.shape.groups}

    @cached_property
    def _below(self) -> Mapping[str, list[Subgroup]]:
        found: dict[str, list[Subgroup]] = {}
        for group in self.shape.groups:
            found.setdefault(group.parent, []).append(group)
        return found

    @cached_property
    def _least(self) -> dict[str, int]:
        """A cache of ``least``."""
        return {}

    def is_leaf(self, name: str) -> bool:
        return name in self._groups and name not in self._below

    def required(self, parent: str) -> list[Subgroup]:
        return [group for group in self._below.get(parent, ()) if group.name not in self.spare]

    def needed(self, parent: str) -> int:
        """The number of groups right below it that are needed; ``parent`` is empty for the top."""
        group, most = self._groups.get(parent), len(self.required(parent))
        said = self.shape.minimum if group is None else group.minimum
        return min(said, most) if said else most

    def least(self, name: str) -> int:
        """The fewest pods of a whole group; of the whole tree for an empty name."""
        if self.is_leaf(name):
            return self._groups[name].minimum
        if name not in self._least:
            counts = sorted(self.least(below.name) for below in self.required(name))
            self._least[name] = sum(counts[: self.needed(name)])
        return self._least[name]

    def part(self, name: str) -> "Tree":
        """The group of that name alone, with all below it."""
        names = {name}
        for _ in range(DEEPEST_SUBGROUP):
            names |= {group.name for group in self.shape.groups if group.parent in names}
        groups = tuple(
            msgspec.structs.replace(group, parent="") if group.name == name else group
            for group in self.shape.groups
            if group.name in names
        )
        return Tree(shape=GangShape(groups=groups), spare=self.spare - {name})

    def wholes(self, leaves: Iterable[str], there: Iterable[str]) -> dict[str, str]:
        """The subgroup with which the pods of each leaf start as a whole, beside pods of the leaves ``there``.

        Empty if they join one by one: the leaf is present, or nothing of it is needed together.
        """
        reached = {name for leaf in set(there) for name in self._path(leaf)}
        return {leaf: self._whole(leaf, reached) for leaf in set(leaves)}

    def _whole(self, leaf: str, reached: set[str]) -> str:
        highest = ""
        for name in self._path(leaf):
            if name in reached or (name in self.spare and not self.is_leaf(name)):
                break
            highest = name
        return highest if highest and self.least(highest) else ""

    def _path(self, leaf: str) -> Iterable[str]:
        """The leaf, and the groups above it, upwards."""
        while leaf in self._groups:
            yield leaf
            leaf = self._groups[leaf].parent


def starting(tree: Tree, leaves: Sequence[str], total: int) -> list[int]:
    """The indexes of the pods with which the group starts, at least ``total`` if there are as many; more if a subgroup
    is larger.

    ``leaves``: the leaf of each pod, in the order in which they are taken. If they are too few for the minimums, the
    first ones of each leaf up to its minimum, then others up to ``total``.
    """
    own: dict[str, list[int]] = {}
    for at, leaf in enumerate(leaves):
        own.setdefault(leaf, []).append(at)
    needed = _minimum(tree, "", own)
    if needed is None:
        first = {at for group in tree.shape.leaves for at in own.get(group.name, [])[: group.minimum]}
        others = [at for at in range(len(leaves)) if at not in first]
        return sorted([*first, *others[: max(0, total - len(first))]])[:total]
    taken = set(needed)
    while len(taken) < total:
        wholes = tree.wholes(own, (leaves[at] for at in taken))
        single = [at for at, leaf in enumerate(leaves) if at not in taken and not wholes[leaf]]
        more = [[at] for at in single] or _whole_ones(tree, {name for name in wholes.values() if name}, own)
        if not more:
            break
        for pods in more:
            if len(taken) < total:
                taken |= set(pods)
    return sorted(taken)


def _whole_ones(tree: Tree, names: Iterable[str], own: Mapping[str, list[int]]) -> list[list[int]]:
    """The pods of those of these groups that are whole, the group that was whole first before the others."""
    found = [(max(pods), name, pods) for name in names if (pods := _minimum(tree, name, own))]
    return [pods for _, _, pods in sorted(found)]


def _minimum(tree: Tree, name: str, own: Mapping[str, list[int]]) -> list[int] | None:
    """The pods of a whole group; None while some are missing. Subgroups that were whole first are preferred."""
    if tree.is_leaf(name):
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


def lacking(tree: Tree, leaves: Iterable[str]) -> str:
    """Why pods of these leaves are too few; empty if they are not."""
    return _lacking(tree, Counter(leaves), "")


def _lacking(tree: Tree, pods: Mapping[str, int], parent: str) -> str:
    below = tree.required(parent)
    missing = [why for group in below if (why := _short(tree, group, pods))]
    return missing[0] if missing and len(below) - len(missing) < tree.needed(parent) else ""


def _short(tree: Tree, group: Subgroup, pods: Mapping[str, int]) -> str:
    if not tree.is_leaf(group.name):
        return _lacking(tree, pods, group.name)
    found = pods.get(group.name, 0)
    return f"{found} of {plural(group.minimum, 'pod')} of {group.name}" if found < group.minimum else ""
