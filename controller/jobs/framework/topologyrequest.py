"""Topology annotations of a pod template as a workload's topology request, with the rules about them.

Source of the keys and rules: Kueue's topology aware scheduling (KEP 2724), sections "User-facing API" and "Validation".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from controller.jobs.framework.kind import Refusal
from controller.jobs.framework.names import is_label_key
from controller.jobs.framework.podsets import UNCONSTRAINED
from controller.jobs.framework.raw import JobError, Json, parsed_flag, parsed_integer, shown
from controller.objects.meta import Struct
from controller.scheduler.model.gates import FeatureGates

REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
SLICE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
SLICE_CONSTRAINTS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
GROUP_NAME: Final = "kueue.x-k8s.io/podset-group-name"

_KEYS: Final = frozenset(
    {REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_TOPOLOGY, SLICE_SIZE, SLICE_CONSTRAINTS, GROUP_NAME}
)
_MAX_CONSTRAINTS: Final = 3
_GROUP_MEMBERS: Final = 2
_MAX_SIZE: Final = 2**31 - 1


class _Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topology: str
    size: int


class AskingPodSet(Struct, frozen=True, kw_only=True):
    """A pod set of a job that may request a topology. ``path``: where the annotations stand."""

    name: str
    path: str
    count: int
    annotations: Mapping[str, str]


def topology_request(
    annotations: Mapping[str, str], *, path: str, count: int, pod_index_label: str | None = None, elastic: bool = False
) -> Json | None:
    """``podSets[].topologyRequest`` as JSON; None without a request. ``count`` is the pod set's own.

    Raises JobError; ``path`` is where the annotations stand.
    """
    if _KEYS.isdisjoint(annotations):
        return None
    asking = AskingPodSet(name="", path=path, count=count, annotations=annotations)
    for refusal in (*refusals(asking), *size_refusals(asking)):
        raise JobError(f"{refusal.field}: {refusal.sentence}")
    request = _request(annotations)
    if not request:
        return None
    if elastic:
        for refusal in elastic_refusals(asking):
            raise JobError(f"{refusal.field}: {refusal.sentence}")
    return request if pod_index_label is None else {**request, "podIndexLabel": pod_index_label}


def ranked(
    request: Json | None, pod_index_label: str | None, sub_group_label: str | None, sub_group_count: int | None
) -> Json | None:
    """``request`` with the labels that tell a pod's number in its set: also for a pod set that requests no topology
    itself.
    """
    rank = {
        "podIndexLabel": pod_index_label,
        "subGroupIndexLabel": sub_group_label,
        "subGroupCount": sub_group_count,
    }
    return {**(request or {}), **{key: value for key, value in rank.items() if value is not None}} or None


def check_groups(pod_sets: Sequence[tuple[str, int, Json | None]]) -> None:
    """Checks the groups in ``(name, count, topology request)`` of all pod sets of a job. Raises JobError for a wrong
    group.
    """
    members = [(name, count, request) for name, count, request in pod_sets if request and "podSetGroupName" in request]
    for group in dict.fromkeys(request["podSetGroupName"] for _, _, request in members):
        own = [member for member in members if member[2]["podSetGroupName"] == group]
        problem = _group_problem(
            [(name, count, (request.get("required"), request.get("preferred"))) for name, count, request in own]
        )
        if problem is not None:
            raise JobError(f"{GROUP_NAME} {shown(group)}: {problem[1]}")


def topology_refusals(pod_sets: Sequence[AskingPodSet], gates: FeatureGates) -> list[Refusal]:
    """The refusals of all pod sets of a job. Sizes and groups are checked only if each pod set is valid by itself."""
    if not gates.on("TopologyAwareScheduling"):
        return []
    found = [refusal for each in pod_sets for refusal in refusals(each, gates)]
    return found or [*(refusal for each in pod_sets for refusal in size_refusals(each)), *group_refusals(pod_sets)]


def refusals(asking: AskingPodSet, gates: FeatureGates | None = None) -> list[Refusal]:
    """Problems with the annotations of one pod set, whatever its count is."""
    annotations, path = asking.annotations, asking.path
    return [
        *_level_refusals(annotations, path),
        *_slice_refusals(annotations, path),
        *_constraint_refusals(annotations, path, gates or FeatureGates()),
        *_group_refusals(annotations, path),
    ]


def size_refusals(asking: AskingPodSet) -> list[Refusal]:
    """Refusals of slices that are larger than the pod set; sizes that cannot be read are skipped."""
    annotations, count = asking.annotations, asking.count
    sizes: list[tuple[str, int]] = []
    if SLICE_SIZE in annotations and (size := _integer(annotations[SLICE_SIZE])) is not None:
        sizes.append((SLICE_SIZE, size))
    if SLICE_CONSTRAINTS in annotations:
        listed = _constraints(annotations[SLICE_CONSTRAINTS]) or []
        sizes += [(SLICE_CONSTRAINTS, max(one.size for one in listed))] if listed else []
    return [
        _invalid(f"{asking.path}[{key}]", f"a slice of {size} pods is larger than the pod set of {count}")
        for key, size in sizes
        if size > count
    ]


def elastic_refusals(asking: AskingPodSet) -> list[Refusal]:
    return [
        Refusal(
            type="Forbidden",
            field=f"{asking.path}.{key}",
            sentence=f"an elastic job may not ask for {REQUIRED} or {PREFERRED}: its pods come and go",
        )
        for key in (REQUIRED, PREFERRED)
        if key in asking.annotations
    ]


def group_refusals(pod_sets: Iterable[AskingPodSet]) -> list[Refusal]:
    """Refusals of wrong groups of pod sets, one for each member."""
    groups: dict[str, list[AskingPodSet]] = {}
    for one in pod_sets:
        if GROUP_NAME in one.annotations:
            groups.setdefault(one.annotations[GROUP_NAME], []).append(one)
    wrong: list[Refusal] = []
    for members in groups.values():
        levels = [
            (one.name, one.count, (one.annotations.get(REQUIRED), one.annotations.get(PREFERRED))) for one in members
        ]
        problem = _group_problem(levels)
        if problem is not None:
            key, sentence = problem
            wrong += [_invalid(f"{one.path}{key}", sentence) for one in members]
    return wrong


_Level = tuple[str | None, str | None]
"""The required and the preferred level."""


def _group_problem(members: Sequence[tuple[str, int, _Level]]) -> tuple[str, str] | None:
    """The problem of a group, or None. ``members``: name, count and level. Returns the path below the annotations, and
    the sentence.
    """
    if len(members) != _GROUP_MEMBERS:
        names = ", ".join(name for name, _, _ in members)
        return f"[{GROUP_NAME}]", f"expected exactly two pod sets, found {len(members)} ({names})"
    (_, one, first), (_, other, second) = members
    if 1 not in (one, other):
        return f"[{GROUP_NAME}]", f"expected one of the two pod sets to have one pod, found {one} and {other}"
    return ("", "both pod sets must ask for the same required or preferred topology") if first != second else None


def _request(annotations: Mapping[str, str]) -> Json:
    """The request of annotations that are valid."""
    request: Json = {}
    for key, name in ((REQUIRED, "required"), (PREFERRED, "preferred")):
        if key in annotations:
            request[name] = annotations[key]
    if UNCONSTRAINED in annotations:
        request["unconstrained"] = parsed_flag(annotations[UNCONSTRAINED], UNCONSTRAINED)
    if SLICE_TOPOLOGY in annotations:
        request["podSetSliceRequiredTopology"] = annotations[SLICE_TOPOLOGY]
        request["podSetSliceSize"] = parsed_integer(annotations[SLICE_SIZE], SLICE_SIZE)
    if SLICE_CONSTRAINTS in annotations:
        listed: list[dict[str, Any]] = [
            {"topology": one.topology, "size": one.size} for one in _constraints(annotations[SLICE_CONSTRAINTS]) or ()
        ]
        request["podsetSliceRequiredTopologyConstraints"] = listed
    if GROUP_NAME in annotations:
        request["podSetGroupName"] = annotations[GROUP_NAME]
    return request


def _level_refusals(annotations: Mapping[str, str], path: str) -> Iterator[Refusal]:
    asked = [key for key in (REQUIRED, PREFERRED, UNCONSTRAINED) if key in annotations]
    if len(asked) > 1:
        yield _invalid(path, f"at most one of {REQUIRED}, {PREFERRED}, {UNCONSTRAINED}, found {' and '.join(asked)}")
    for key in (REQUIRED, PREFERRED, SLICE_TOPOLOGY):
        if key in annotations and not is_label_key(annotations[key]):
            yield _no_label(annotations[key], f"{path}[{key}]")
    if UNCONSTRAINED in annotations:
        try:
            parsed_flag(annotations[UNCONSTRAINED], "")
        except JobError:
            found = shown(annotations[UNCONSTRAINED])
            yield _invalid(f"{path}[{UNCONSTRAINED}]", f"expected true or false, found {found}")


def _slice_refusals(annotations: Mapping[str, str], path: str) -> Iterator[Refusal]:
    where = f"{path}[{SLICE_SIZE}]"
    if SLICE_TOPOLOGY in annotations and SLICE_SIZE not in annotations:
        yield Refusal(type="Required", field=where, sentence=f"{SLICE_TOPOLOGY} is set without {SLICE_SIZE}")
    elif SLICE_SIZE in annotations and SLICE_TOPOLOGY not in annotations and SLICE_CONSTRAINTS not in annotations:
        yield Refusal(type="Forbidden", field=where, sentence=f"{SLICE_SIZE} is set without {SLICE_TOPOLOGY}")
    elif SLICE_SIZE in annotations:
        size = _integer(annotations[SLICE_SIZE])
        if size is None:
            yield _invalid(where, f"expected an integer, found {shown(annotations[SLICE_SIZE])}")
        elif not 1 <= size <= _MAX_SIZE:
            yield _invalid(where, f"expected a size of at least 1, found {size}")


def _constraint_refusals(annotations: Mapping[str, str], path: str, gates: FeatureGates) -> Iterator[Refusal]:
    if SLICE_CONSTRAINTS not in annotations:
        return
    where = f"{path}[{SLICE_CONSTRAINTS}]"
    if not gates.on("TASMultiLayerTopology"):
        yield Refusal(type="Forbidden", field=where, sentence="the feature gate TASMultiLayerTopology is off")
        return
    for other in (SLICE_TOPOLOGY, SLICE_SIZE, GROUP_NAME):
        if other in annotations:
            yield Refusal(type="Forbidden", field=where, sentence=f"it may not stand beside {other}")
    yield from _listed_refusals(annotations[SLICE_CONSTRAINTS], where)


def _listed_refusals(value: str, where: str) -> Iterator[Refusal]:
    constraints = _constraints(value)
    if constraints is None:
        yield _invalid(where, 'expected a JSON list of {"topology": LABEL, "size": PODS}')
        return
    if not 1 <= len(constraints) <= _MAX_CONSTRAINTS:
        yield _invalid(where, f"expected 1 to {_MAX_CONSTRAINTS} constraints, found {len(constraints)}")
        return
    if len({constraint.topology for constraint in constraints}) < len(constraints):
        yield _invalid(where, "each topology at most once")
    for constraint in constraints:
        if not is_label_key(constraint.topology):
            yield _no_label(constraint.topology, where)
        if not 1 <= constraint.size <= _MAX_SIZE:
            yield _invalid(where, f"expected a size of at least 1, found {constraint.size}")
            return
    for outer, inner in pairwise(constraints):
        if outer.size % inner.size:
            sentence = f"each size must be a multiple of the next, found {outer.size} before {inner.size}"
            yield _invalid(where, sentence)


def _group_refusals(annotations: Mapping[str, str], path: str) -> Iterator[Refusal]:
    if GROUP_NAME not in annotations:
        return
    where, name = f"{path}[{GROUP_NAME}]", annotations[GROUP_NAME]
    if not name or name.isdecimal():
        yield _invalid(where, f"expected a name that is no number, found {shown(name)}")
    if REQUIRED not in annotations and PREFERRED not in annotations:
        yield Refusal(type="Forbidden", field=where, sentence=f"a group needs {REQUIRED} or {PREFERRED}")
    for key in (SLICE_TOPOLOGY, SLICE_SIZE):
        if key in annotations:
            yield Refusal(type="Forbidden", field=where, sentence=f"a group may not ask for slices ({key})")


def _constraints(value: str) -> list[_Constraint] | None:
    """The constraints in a text; None if it cannot be decoded."""
    try:
        return msgspec.json.decode(value, type=list[_Constraint])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _integer(value: str) -> int | None:
    try:
        return parsed_integer(value, "")
    except JobError:
        return None


def _no_label(value: str, where: str) -> Refusal:
    return _invalid(where, f"expected the node label of a topology level, found {shown(value)}")


def _invalid(field: str, sentence: str) -> Refusal:
    return Refusal(type="Invalid", field=field, sentence=sentence)
