"""What of a workload's pods has to run together, where that is less than all of them: minimums, and a tree of groups.

The controller writes it into the annotation ``tessera.dev/gang`` of the Workload, from a PodGroup of Volcano's or
KAI's, or from marks of theirs on a job; the engine reads it there. A workload without it starts and ends as a whole.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from controller.objects.kai import DEEPEST_SUBGROUP, MOST_SUBGROUPS
from controller.objects.meta import Int32, Struct, to_json
from inventory.api.names import GANG

_WHERE: Final = f"metadata.annotations[{GANG}]"


class GangShapeError(ValueError):
    """The annotation is not what the controller writes; one sentence."""


class Subgroup(Struct, frozen=True, kw_only=True):
    """``parent`` is empty at the top. ``minimum``: pods of a leaf; of any other the groups right below, 0 for all.

    ``required_level`` and ``preferred_level`` are labels of nodes, empty for none: one domain of it has all pods. They
    are levels of the KAI Topology ``topology``, where it is named. ``exclusive``: see ``GangShape``.
    """

    name: str
    parent: str = ""
    minimum: Int32 = 0
    topology: str = ""
    required_level: str = ""
    preferred_level: str = ""
    exclusive: bool = False


class GangShape(Struct, frozen=True, kw_only=True):
    """``minimum``: pods of the whole gang; with ``groups`` those at the top that start, 0 for all of them.

    ``members``: by the name of a pod set the leaf that its pods are in; pod sets that are not named are in none.
    ``staleness_s``: a gang that has run below its minimum for so long is evicted; None, or below 0: never.
    ``exclusive``: its domain of the required level has no pod of another gang of its namespace that has an exclusive
    domain; of subgroups, no pod of another subgroup either.
    """

    minimum: Int32 = 0
    groups: tuple[Subgroup, ...] = ()
    members: dict[str, str] = msgspec.field(default_factory=dict)
    topology: str = ""
    required_level: str = ""
    preferred_level: str = ""
    exclusive: bool = False
    staleness_s: float | None = None

    def below(self, parent: str) -> tuple[Subgroup, ...]:
        return tuple(group for group in self.groups if group.parent == parent)

    @property
    def exclusive_levels(self) -> frozenset[str]:
        """The labels of nodes by which its domains, or its subgroups', are its alone."""
        found = {group.required_level for group in self.groups if group.exclusive}
        return frozenset(found | ({self.required_level} if self.exclusive else set())) - {""}

    @property
    def leaves(self) -> tuple[Subgroup, ...]:
        parents = {group.parent for group in self.groups}
        return tuple(group for group in self.groups if group.name not in parents)


def written(shape: GangShape) -> str:
    """The annotation's value, the same text for the same shape."""
    body: dict[str, Any] = to_json(shape)
    return msgspec.json.encode(body, order="deterministic").decode()


def gang_shape(annotations: dict[str, str]) -> GangShape | None:
    """None for a workload without it. Raises GangShapeError."""
    found = annotations.get(GANG)
    if found is None:
        return None
    try:
        shape = msgspec.json.decode(found, type=GangShape)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise GangShapeError(f"{_WHERE}: expected what the controller wrote, found {error}") from None
    for problem in _problems(shape):
        raise GangShapeError(f"{_WHERE}: expected {problem}")
    return shape


def patience_s(annotations: dict[str, str]) -> float:
    """How long the gang may run below its minimum; below 0 for ever, as where the annotation says nothing."""
    try:
        shape = gang_shape(annotations)
    except GangShapeError:
        return -1.0
    return -1.0 if shape is None or shape.staleness_s is None else shape.staleness_s


def _problems(shape: GangShape) -> Iterator[str]:
    """Anybody who may write the Workload wrote it, and its readers go down the tree."""
    if len(shape.groups) > MOST_SUBGROUPS:
        yield f"{MOST_SUBGROUPS} groups at most, found {len(shape.groups)}"
        return
    parents = {group.name: group.parent for group in shape.groups}
    if "" in parents:
        yield "names of groups, found an empty one"
    if len(parents) < len(shape.groups):
        yield "names of their own, found one twice"
    if shape.minimum < 0 or any(group.minimum < 0 for group in shape.groups):
        yield "minimums of at least 0, found one below"
    if unknown := ({*parents.values(), *shape.members.values()} - parents.keys() - {""}):
        yield f"names of groups, found {min(unknown)!r}"
    if any(_is_too_deep(name, parents) for name in parents):
        yield f"a tree of {DEEPEST_SUBGROUP} levels at most, found a deeper one or a circle"


def _is_too_deep(name: str, parents: dict[str, str]) -> bool:
    for _ in range(DEEPEST_SUBGROUP):
        name = parents.get(name, "")
        if not name:
            return False
    return True
