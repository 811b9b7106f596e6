"""Topology annotations of a pod template as a workload's topology request, with the rules about them.

Source of the keys and rules: Kueue's topology aware scheduling (KEP 2724), sections "User-facing API" and "Validation".
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from controller.jobframework.names import is_label_key
from controller.jobframework.raw import JobError, Json, parsed_flag, parsed_integer, shown

REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
SLICE_CONSTRAINTS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
GROUP_NAME: Final = "kueue.x-k8s.io/podset-group-name"

_MAX_CONSTRAINTS: Final = 3
_GROUP_MEMBERS: Final = 2
_MAX_SIZE: Final = 2**31 - 1


class _Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topology: str
    size: int


def topology_request(
    annotations: Mapping[str, str], *, path: str, count: int, pod_index_label: str | None = None, elastic: bool = False
) -> Json | None:
    """``podSets[].topologyRequest`` as JSON; None where nothing is asked. ``count`` is the pod set's own.

    Raises JobError; ``path`` is where the annotations stand.
    """
    request = {
        **_level(annotations, path),
        **_slices(annotations, path, count=count),
        **_constraints(annotations, path, count=count),
        **_group(annotations, path),
    }
    if not request:
        return None
    if elastic and ("required" in request or "preferred" in request):
        raise JobError(f"{path}: an elastic job may not ask for {REQUIRED} or {PREFERRED}: its pods come and go")
    return request if pod_index_label is None else {**request, "podIndexLabel": pod_index_label}


def ranked(
    request: Json | None, pod_index_label: str | None, sub_group_label: str | None, sub_group_count: int | None
) -> Json | None:
    """``request`` with what tells a pod's number in its set: also for a pod set that asks for no topology itself."""
    given = {
        "podIndexLabel": pod_index_label,
        "subGroupIndexLabel": sub_group_label,
        "subGroupCount": sub_group_count,
    }
    return {**(request or {}), **{key: value for key, value in given.items() if value is not None}} or None


def check_groups(pod_sets: Sequence[tuple[str, int, Json | None]]) -> None:
    """``(name, count, topology request)`` of all pod sets of a job. Raises JobError for a group that is none."""
    groups: dict[str, list[tuple[str, int, Json]]] = {}
    for name, count, request in pod_sets:
        if request is not None and "podSetGroupName" in request:
            groups.setdefault(request["podSetGroupName"], []).append((name, count, request))
    for group, members in groups.items():
        where = f"{GROUP_NAME} {shown(group)}"
        if len(members) != _GROUP_MEMBERS:
            names = ", ".join(name for name, _, _ in members)
            raise JobError(f"{where}: expected exactly two pod sets, found {len(members)} ({names})")
        (_, one, first), (_, other, second) = members
        if 1 not in (one, other):
            raise JobError(f"{where}: expected one of the two pod sets to have one pod, found {one} and {other}")
        if any(first.get(key) != second.get(key) for key in ("required", "preferred")):
            raise JobError(f"{where}: both pod sets must ask for the same required or preferred topology")


def _level(annotations: Mapping[str, str], path: str) -> Json:
    asked = [key for key in (REQUIRED, PREFERRED, UNCONSTRAINED) if key in annotations]
    if len(asked) > 1:
        raise JobError(f"{path}: at most one of {REQUIRED}, {PREFERRED}, {UNCONSTRAINED}, found {' and '.join(asked)}")
    if REQUIRED in annotations:
        return {"required": _level_label(annotations, REQUIRED, path)}
    if PREFERRED in annotations:
        return {"preferred": _level_label(annotations, PREFERRED, path)}
    if UNCONSTRAINED in annotations and parsed_flag(annotations[UNCONSTRAINED], f"{path}[{UNCONSTRAINED}]"):
        return {"unconstrained": True}
    return {}


def _slices(annotations: Mapping[str, str], path: str, *, count: int) -> Json:
    if (SLICE_TOPOLOGY in annotations) != (SLICE_SIZE in annotations):
        missing, given = (SLICE_SIZE, SLICE_TOPOLOGY) if SLICE_TOPOLOGY in annotations else (SLICE_TOPOLOGY, SLICE_SIZE)
        raise JobError(f"{path}: {given} is set without {missing}")
    if SLICE_TOPOLOGY not in annotations:
        return {}
    where = f"{path}[{SLICE_SIZE}]"
    return {
        "podSetSliceRequiredTopology": _level_label(annotations, SLICE_TOPOLOGY, path),
        "podSetSliceSize": _size(parsed_integer(annotations[SLICE_SIZE], where), where, count=count),
    }


def _constraints(annotations: Mapping[str, str], path: str, *, count: int) -> Json:
    if SLICE_CONSTRAINTS not in annotations:
        return {}
    for other in (SLICE_TOPOLOGY, SLICE_SIZE, GROUP_NAME):
        if other in annotations:
            raise JobError(f"{path}: {SLICE_CONSTRAINTS} may not stand beside {other}")
    where = f"{path}[{SLICE_CONSTRAINTS}]"
    try:
        given = msgspec.json.decode(annotations[SLICE_CONSTRAINTS], type=list[_Constraint])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise JobError(f'{where}: expected a JSON list of {{"topology": LABEL, "size": PODS}}') from None
    if not 1 <= len(given) <= _MAX_CONSTRAINTS:
        raise JobError(f"{where}: expected 1 to {_MAX_CONSTRAINTS} constraints, found {len(given)}")
    if len({constraint.topology for constraint in given}) < len(given):
        raise JobError(f"{where}: each topology at most once")
    for constraint in given:
        _check_label(constraint.topology, where)
        _size(constraint.size, where, count=count)
    for outer, inner in pairwise(given):
        if outer.size % inner.size:
            raise JobError(f"{where}: each size must be a multiple of the next, found {outer.size} before {inner.size}")
    listed: list[dict[str, Any]] = [{"topology": constraint.topology, "size": constraint.size} for constraint in given]
    return {"podsetSliceRequiredTopologyConstraints": listed}


def _group(annotations: Mapping[str, str], path: str) -> Json:
    if GROUP_NAME not in annotations:
        return {}
    where, name = f"{path}[{GROUP_NAME}]", annotations[GROUP_NAME]
    if not name or name.isdecimal():
        raise JobError(f"{where}: expected a name that is no number, found {shown(name)}")
    if REQUIRED not in annotations and PREFERRED not in annotations:
        raise JobError(f"{where}: a group needs {REQUIRED} or {PREFERRED}")
    if SLICE_TOPOLOGY in annotations or SLICE_SIZE in annotations:
        raise JobError(f"{where}: a group may not ask for slices")
    return {"podSetGroupName": name}


def _level_label(annotations: Mapping[str, str], key: str, path: str) -> str:
    return _check_label(annotations[key], f"{path}[{key}]")


def _check_label(value: str, where: str) -> str:
    if not is_label_key(value):
        raise JobError(f"{where}: expected the node label of a topology level, found {shown(value)}")
    return value


def _size(size: int, where: str, *, count: int) -> int:
    if not 1 <= size <= _MAX_SIZE:
        raise JobError(f"{where}: expected a size of at least 1, found {size}")
    if size > count:
        raise JobError(f"{where}: a slice of {size} pods is larger than the pod set of {count}")
    return size
