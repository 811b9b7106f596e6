"""Rules about Deployments, StatefulSets and LeaderWorkerSets, whose pods are queued.

They count as suspended while none of their replicas is ready. Templates that another kind has stamped are that
kind's. Sources: Kueue's webhooks in pkg/controller/jobs/{deployment,statefulset,leaderworkerset}.
"""

from typing import Final

from controller.engine.model.gates import FeatureGates
from controller.jobframework import names
from controller.jobframework.kind import Refusal
from controller.jobframework.marks import min_replicas
from controller.jobframework.podview import SUSPENDING_PARENT
from controller.jobframework.raw import (
    JobError,
    Json,
    annotations,
    at,
    condition,
    integer,
    labels,
    mapping,
    shown,
    strings,
)
from controller.jobframework.topologyrequest import AskingPodSet, topology_refusals
from controller.jobrules import marks, podspec
from controller.jobrules.marks import annotation_path, forbidden, invalid, label_path
from inventory.api.names import MIN_REPLICAS

STATEFULSET_PARENT: Final = "statefulset"

_LWS: Final = ("spec", "leaderWorkerTemplate")
_MAX_REPLICAS: Final = 1_000_000
_REPLICAS: Final = "spec.replicas"


def deployment_created(deployment: Json, gates: FeatureGates) -> list[Refusal]:
    return [
        *marks.queue_name(deployment),
        *marks.elastic(deployment, "Deployment", gates),
        *marks.admission_gates(deployment, gates),
        *_minimum(deployment),
    ]


def deployment_updated(old: Json, new: Json, gates: FeatureGates) -> list[Refusal]:
    return [*marks.queue_name(new), *_changed_marks(old, new, gates), *_minimum(new)]


def _minimum(job: Json) -> list[Refusal]:
    try:
        min_replicas(job)
    except JobError as error:
        return [invalid(annotation_path(MIN_REPLICAS), str(error).partition(": ")[2])]
    return []


def _no_minimum(sts: Json) -> list[Refusal]:
    found = annotations(sts).get(MIN_REPLICAS)
    sentence = f"a StatefulSet has all of its replicas or none; found {shown(found)}, expected no minimum"
    return [] if found is None else [forbidden(annotation_path(MIN_REPLICAS), sentence)]


def _changed_marks(old: Json, new: Json, gates: FeatureGates) -> list[Refusal]:
    suspended = integer(old, "status", "readyReplicas", default=0) == 0
    before, after = (labels(each).get(names.QUEUE_NAME, "") for each in (old, new))
    if before and not after:
        found = [invalid(label_path(names.QUEUE_NAME), "it may be changed, but not removed")]
    else:
        found = marks.queue_change(old, new, is_suspended=suspended)
    return [
        *found,
        *marks.priority_class_change(old, new, is_suspended=suspended),
        *marks.admission_gates_change(old, new, gates),
    ]


# -- StatefulSets


def statefulset_created(sts: Json, gates: FeatureGates) -> list[Refusal]:
    if _is_anothers(sts):
        return []
    return [*marks.created(sts, "StatefulSet", gates), *_statefulset_topology(sts, gates), *_no_minimum(sts)]


def statefulset_updated(
    old: Json, new: Json, gates: FeatureGates, *, is_owned: bool = False, workload: Json | None = None
) -> list[Refusal]:
    """``is_owned``: a job above it is queued in its place. ``workload``: its own, where there is one already."""
    if _is_anothers(new):
        return []
    found = [*marks.queue_name(new), *_changed_marks(old, new, gates), *_statefulset_topology(new, gates)]
    found += _no_minimum(new)
    if labels(new).get(names.QUEUE_NAME) and not is_owned:
        path = ("spec", "template", "spec")
        found += podspec.changed(mapping(old, *path), mapping(new, *path), ".".join(path))
        found += _rescaled(old, new, workload)
    return found


def _is_anothers(sts: Json) -> bool:
    """Another kind has stamped its template: it makes the workload."""
    stamp = strings(sts, "spec", "template", "metadata", "annotations").get(SUSPENDING_PARENT, STATEFULSET_PARENT)
    return stamp != STATEFULSET_PARENT


def _statefulset_topology(sts: Json, gates: FeatureGates) -> list[Refusal]:
    path = ("spec", "template", "metadata", "annotations")
    count = integer(sts, "spec", "replicas", default=1)
    return topology_refusals(
        [AskingPodSet(name="main", path=".".join(path), count=count, annotations=strings(sts, *path))], gates
    )


def _rescaled(old: Json, new: Json, workload: Json | None) -> list[Refusal]:
    """All replicas or none: their number changes to 0 and, once the old pods and their quota are gone, from 0."""
    before, after = (integer(each, "spec", "replicas", default=1) for each in (old, new))
    if after in (before, 0):
        return []
    if before > 0:
        return [invalid(_REPLICAS, f"of a queued StatefulSet they change from or to 0; found {after}, was {before}")]
    left = integer(new, "status", "replicas", default=0)
    if left > 0:
        return [forbidden(_REPLICAS, f"it is still being scaled down: {left} pods are left")]
    if workload is not None and condition(workload, "QuotaReserved").get("reason") != "OnHold":
        return [forbidden(_REPLICAS, "its workload of before is still there")]
    return []


# -- LeaderWorkerSets


def leaderworkerset_created(lws: Json, gates: FeatureGates) -> list[Refusal]:
    return [*marks.created(lws, "LeaderWorkerSet", gates), *_sized(lws), *_group_topology(lws, gates), *_minimum(lws)]


def leaderworkerset_updated(old: Json, new: Json, gates: FeatureGates) -> list[Refusal]:
    found = [*marks.queue_name(new), *_changed_marks(old, new, gates), *_sized(new), *_group_topology(new, gates)]
    found += _minimum(new)
    if not labels(new).get(names.QUEUE_NAME):
        return found
    for key in ("leaderTemplate", "workerTemplate"):
        path = (*_LWS, key, "spec")
        if at(old, *_LWS, key) is not None and at(new, *_LWS, key) is not None:
            found += podspec.changed(mapping(old, *path), mapping(new, *path), ".".join(path))
    if gates.on("LWSImmutableGroupSize") and _size(old) != _size(new):
        found.append(invalid(".".join((*_LWS, "size")), "a queued group keeps its size"))
    return found


def _size(lws: Json) -> int:
    return integer(lws, *_LWS, "size", default=1)


def _sized(lws: Json) -> list[Refusal]:
    replicas = integer(lws, "spec", "replicas", default=1)
    if 0 <= replicas <= _MAX_REPLICAS:
        return []
    return [invalid(_REPLICAS, f"expected 0 to {_MAX_REPLICAS} groups, found {replicas}")]


def _group_topology(lws: Json, gates: FeatureGates) -> list[Refusal]:
    has_leader = at(lws, *_LWS, "leaderTemplate") is not None
    workers = _size(lws) - (1 if has_leader else 0)
    sets = [("leader", "leaderTemplate", 1)] if has_leader else []
    return topology_refusals(
        [
            AskingPodSet(
                name=name,
                path=".".join((*_LWS, key, "metadata", "annotations")),
                count=count,
                annotations=strings(lws, *_LWS, key, "metadata", "annotations"),
            )
            for name, key, count in [*sets, ("worker" if has_leader else "main", "workerTemplate", workers)]
        ],
        gates,
    )
