"""Kubernetes' own PodGroups and CompositePodGroups, ``scheduling.k8s.io``, as groups of pods. Pure.

A gang is as many pods as its ``minCount`` says, and those above join one by one (decision 063); pods of a PodGroup with
the policy basic are queued one by one. A CompositePodGroup that is a gang is one tree with all groups below it
(decision 146): its pods name their PodGroup alone, so a mark on them says which tree, or that they are by themselves.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from controller.foreign.objects.kai import TopologyConstraint
from controller.foreign.podgroups.group import ForeignGroup, SharedClaim, read_group, with_shared
from controller.foreign.podgroups.group import as_admitted as foreign_as_admitted
from controller.foreign.podgroups.subgroups import Tree
from controller.jobs.framework.marks import controller_of, priority_class, queue_name
from controller.jobs.framework.names import is_label_key
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.podview import GroupName, SeenPod
from controller.jobs.framework.raw import JobError, Json, at, sequence, shown, text
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import OwnerReference
from controller.objects.nativegroups import DEEPEST_NATIVE, NATIVE, GroupSpec, NativeGroup, group_problems
from controller.scheduler.model.gangshape import GangShape, GangShapeError, Subgroup, gang_shape
from inventory.api.names import COMPOSITE_GROUP, OUT_OF_GROUP

BELOW: Final = "$below"
"""The key under which ``tree_of`` puts the groups below into a CompositePodGroup's JSON; no API has it."""
_PARENT: Final = ("spec", "parentCompositePodGroupName")

Find = Callable[[str, bool], Json | None]
"""Returns a PodGroup, or (True) a CompositePodGroup, of the pod's namespace by its name; None if there is none."""


def nothing_found(_name: str, _composite: bool) -> Json | None:
    """A ``Find`` that finds no object."""
    return None


OwnerOf = Callable[[OwnerReference], Json | None]
"""Returns the object that a reference names; None if there is none, or it is not known."""


def marks_of(pod: SeenPod, find: Find) -> dict[str, str]:
    """The annotations that say with what the pod is queued, if that is not its PodGroup; empty while there is no
    PodGroup. Raises JobError for groups that are none.
    """
    name, group = pod.native_group, find(pod.native_group, False)
    if group is None:
        return {}
    spec, top = _spec(name, group, composite=False), ""
    parent, seen = spec.parent_composite_pod_group_name, list[str]()
    while parent:
        if parent in seen:
            circle = ", ".join([*seen[seen.index(parent) :], parent])
            raise JobError(f"PodGroup {name}: expected a tree, found CompositePodGroups above each other: {circle}")
        if len(seen) == DEEPEST_NATIVE - 1:
            raise JobError(f"PodGroup {name}: expected a tree of {DEEPEST_NATIVE} levels at most, found more")
        seen.append(parent)
        parent_group = find(parent, True)
        if parent_group is None:
            where = f"PodGroup {name}: spec.parentCompositePodGroupName"
            raise JobError(f"{where}: no CompositePodGroup {shown(parent)} of {NATIVE}")
        above = _spec(parent, parent_group, composite=True)
        if not (above.is_gang or above.level):
            break
        top, parent = parent, above.parent_composite_pod_group_name
    if top:
        return {COMPOSITE_GROUP: top}
    # Pods of one domain are an elastic gang of one pod: those that follow join its domain.
    return {} if spec.is_gang or spec.level else {OUT_OF_GROUP: "true"}


def beside(pod: SeenPod) -> GroupName | None:
    """The PodGroup that has to be known for a pod that is queued by itself: it may share claims with it, or start with
    others of it; None for none.
    """
    name = pod.native_group
    needed = name and (pod.is_gated or sequence(pod.raw, "spec", "resourceClaims"))
    return GroupName(None, name) if needed else None


def sharing(pod: SeenPod, find: Find) -> SeenPod:
    """A pod that is queued by itself, with what it shares with its PodGroup; as it is if that cannot be read."""
    group = find(pod.native_group, False) if pod.native_group else None
    try:
        return pod if group is None else with_shared(pod, _claims(_read(pod.native_group, group)))
    except JobError:
        return pod


def tree_of(top: str, groups: Iterable[Json], composites: Iterable[Json]) -> Json | None:
    """The CompositePodGroup ``top`` with all groups of its namespace below it, as ``read`` takes it; None if there is
    no such group. ``groups``, ``composites``: those of its namespace.
    """
    known = {text(each, "metadata", "name"): each for each in composites}
    if top not in known:
        return None
    names, inner = {top}, list[Json]()
    for _ in range(DEEPEST_NATIVE):
        more = [each for name, each in sorted(known.items()) if name not in names and _parent(each) in names]
        inner += more
        names |= {text(each, "metadata", "name") for each in more}
    leaves = [each for each in groups if _parent(each) in names]
    return {**known[top], BELOW: [*inner, *sorted(leaves, key=lambda each: text(each, "metadata", "name"))]}


def read(name: GroupName, given: Json | None, minimum: str = "", owner_of: OwnerOf | None = None) -> ForeignGroup:
    """The group of an object of any system, as ``read_group`` has it. ``given`` of a CompositePodGroup is from
    ``tree_of``. ``owner_of`` finds the object that controls the group. Raises JobError.
    """
    if name.system is not None:
        return read_group(name, given, minimum)
    if given is None:
        kind = "CompositePodGroup" if name.composite else "PodGroup"
        raise JobError(f"spec.schedulingGroup.podGroupName: no {kind} {shown(name.name)} of {NATIVE}")
    group = _of_tree(name.name, given) if name.composite else _of_group(name.name, given)
    marked = [given, *sequence(given, BELOW)]
    if owner_of is not None:
        references = [reference for each in marked if (reference := controller_of(each)) is not None]
        marked += [owner for each in references if (owner := owner_of(each)) is not None]
    queue = next((queue for each in marked if (queue := queue_name(each))), "")
    of_workloads = next((class_ for each in marked if (class_ := priority_class(each))), "")
    return replace(group, name=name.workload, called=name.name, queue=queue, workload_class=of_workloads)


def as_admitted(name: GroupName, workload: SeenWorkload) -> ForeignGroup:
    """The group that the workload was made for, if its object is gone; of Kubernetes' own groups with its levels."""
    group = foreign_as_admitted(name, workload)
    if name.system is not None:
        return group
    try:
        shape = gang_shape(workload.typed.metadata.annotations)
    except GangShapeError:
        shape = None
    if shape is None:
        return group
    levels = TopologyConstraint(required_topology_level=shape.required_level)
    return replace(group, levels=levels, groups=shape.groups, top_minimum=shape.minimum if shape.groups else 0)


def levels_named(group: Json) -> Iterator[tuple[str, str]]:
    """The levels that a PodGroup, a CompositePodGroup, a Workload or a Job names, each with the path of its field.
    Whatever cannot be read is left out.
    """
    yield from _levels_below(group.get("spec"), "spec")


def _levels_below(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _levels_below(each, f"{path}[{index}]")
    for key, item in value.items() if isinstance(value, dict) else ():
        if key == "schedulingConstraints":
            yield from _keys(item, f"{path}.{key}")
        elif key in ("scheduling", "podGroupTemplates", "compositePodGroupTemplates"):
            yield from _levels_below(item, f"{path}.{key}")


def _keys(constraints: object, path: str) -> Iterator[tuple[str, str]]:
    listed = constraints.get("topology") if isinstance(constraints, dict) else None
    for index, each in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(each, dict) and isinstance(key := each.get("key"), str):
            yield f"{path}.topology[{index}].key", key


def _of_group(name: str, given: Json) -> ForeignGroup:
    group = _read(name, given)
    spec = _spec(name, given, composite=False)
    return ForeignGroup(
        system=None,
        name=name,
        minimum=_minimum(spec),
        queue="",
        priority_class=spec.priority_class_name,
        priority=spec.priority,
        levels=TopologyConstraint(required_topology_level=spec.level),
        claims=tuple(_claims(group)),
    )


def _of_tree(name: str, given: Json) -> ForeignGroup:
    spec, groups, claims = _spec(name, given, composite=True), list[Subgroup](), list[SharedClaim]()
    for child in sequence(given, BELOW):
        own, composite = text(child, "metadata", "name"), text(child, "kind") == "CompositePodGroup"
        below, parent = _spec(own, child, composite=composite), _parent(child)
        if own in {group.name for group in groups}:
            raise JobError(
                f"CompositePodGroup {name}: expected groups with names of their own, found {shown(own)} twice"
            )
        groups.append(
            Subgroup(
                name=own,
                parent="" if parent == name else parent,
                minimum=_least_groups(below) if composite else _minimum(below),
                required_level=below.level,
            )
        )
        claims += [] if composite else _claims(_read(own, child), own)
        if composite:
            _check_below(own, below, sequence(given, BELOW))
    _check_below(name, spec, sequence(given, BELOW))
    shape = GangShape(minimum=_least_groups(spec), groups=tuple(groups))
    return ForeignGroup(
        system=None,
        name=name,
        minimum=max(1, Tree(shape=shape).least("")),
        queue="",
        priority_class=spec.priority_class_name,
        groups=shape.groups,
        top_minimum=shape.minimum,
        levels=TopologyConstraint(required_topology_level=spec.level),
        claims=tuple(claims),
    )


def _check_below(name: str, spec: GroupSpec, below: Iterable[Json]) -> None:
    """Checks that as many groups as are needed have this one for their parent: they are made one after another."""
    found, least = sum(_parent(each) == name for each in below), _least_groups(spec)
    if found < least:
        raise JobError(f"CompositePodGroup {name}: expected at least {least} groups below it, found {found}")


def _minimum(spec: GroupSpec) -> int:
    gang = spec.scheduling_policy.gang
    return 1 if gang is None else gang.min_count or 1


def _least_groups(spec: GroupSpec) -> int:
    gang = spec.scheduling_policy.gang
    return 1 if gang is None else gang.min_group_count or 1


def _claims(group: NativeGroup, leaf: str = "") -> Iterator[SharedClaim]:
    """The claims of the group that were made for it. ``leaf``: the group in a tree."""
    made = {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses}
    for claim in group.spec.resource_claims:
        if claim.resource_claim_template_name and made.get(claim.name):
            yield SharedClaim(
                name=claim.name, template=claim.resource_claim_template_name, claim=made[claim.name], leaf=leaf
            )


def _parent(group: Json) -> str:
    found = at(group, *_PARENT)
    return found if isinstance(found, str) else ""


def _spec(name: str, given: Json, *, composite: bool) -> GroupSpec:
    """The spec of a group that the API server takes. Raises JobError."""
    kind = "CompositePodGroup" if composite else "PodGroup"
    group = _read(name, given)
    for problem in group_problems(group, composite=composite):
        raise JobError(f"{kind} {name}: {problem}")
    if group.spec.level and not is_label_key(group.spec.level):
        where = f"{kind} {name}: spec.schedulingConstraints.topology[0].key"
        raise JobError(f"{where}: expected a label of nodes, found {shown(group.spec.level)}")
    return group.spec


def _read(name: str, given: Json) -> NativeGroup:
    try:
        return decode({key: given[key] for key in ("metadata", "spec", "status") if key in given}, NativeGroup)
    except DecodeError as error:
        kind, _, said = str(error).partition(": ")
        raise JobError(f"PodGroup {name}: {said if kind.startswith(NativeGroup.__name__) else error}") from None
