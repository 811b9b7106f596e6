"""Which pods of a workload must run together, where that is not all of them: minimums, and a tree of subgroups.

The controller writes the shape into the annotation ``tessera.dev/gang`` of the Workload, from a PodGroup of another
system, or from its annotations on a job; the engine reads it there. A workload without the annotation starts and
ends as a whole.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from controller.foreign.objects import DEEPEST_SUBGROUP, MOST_SUBGROUPS
from controller.objects.meta import Int32, Struct, to_json
from inventory.api.names import GANG

_WHERE: Final = f"metadata.annotations[{GANG}]"


class GangShapeError(ValueError):
    """The annotation is not what the controller writes; the message is one sentence."""


class Subgroup(Struct, frozen=True, kw_only=True):
    """One subgroup. ``parent`` is empty at the top. ``minimum``: in a leaf the number of pods; in any other subgroup
    the number of groups directly below, 0 for all.

    ``required_level`` and ``preferred_level`` are node labels, empty for none: one domain of the level has all pods.
    They are levels of the foreign Topology ``topology``, where that is named. ``exclusive``: see ``GangShape``.
    """

    name: str
    parent: str = ""
    minimum: Int32 = 0
    topology: str = ""
    required_level: str = ""
    preferred_level: str = ""
    exclusive: bool = False


class GangShape(Struct, frozen=True, kw_only=True):
    """The shape of a gang. ``minimum``: the number of pods of the whole gang; with ``groups`` the number of top-level
    groups that start, 0 for all.

    ``members``: the leaf subgroup of each pod set, by pod set name; pod sets that are not named are in no subgroup.
    ``staleness_s``: a gang that has run below its minimum for this long is evicted; None, or below 0: never.
    ``exclusive``: the gang's domain of the required level has no pod of another gang of its namespace that has an
    exclusive domain; for subgroups, no pod of another subgroup either.
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
        """The node labels whose domains the gang or its subgroups have to themselves."""
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
    """The gang's shape; None for a workload without the annotation. Raises GangShapeError."""
    annotation = annotations.get(GANG)
    if annotation is None:
        return None
    try:
        shape = msgspec.json.decode(annotation, type=GangShape)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise GangShapeError(f"{_WHERE}: expected what the controller wrote, found {error}") from None
    for problem in _problems(shape):
        raise GangShapeError(f"{_WHERE}: expected {problem}")
    return shape


def patience_s(annotations: dict[str, str]) -> float:
    """How long the gang may run below its minimum, in seconds; below 0 for ever, also where the annotation does not
    say.
    """
    try:
        shape = gang_shape(annotations)
    except GangShapeError:
        return -1.0
    return -1.0 if shape is None or shape.staleness_s is None else shape.staleness_s


def _problems(shape: GangShape) -> Iterator[str]:
    """The faults of a shape. Anybody who may write the Workload may have written it, and its readers walk down
    the tree.
    """
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
