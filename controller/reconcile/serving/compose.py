"""The Workload of a group of a serving object: the body of a new one, and the changes to an existing one.

The object owns the Workload and does not control it: Workloads of groups may have several owners, and end with the
last.
"""

from typing import Any

import msgspec

from controller.jobs.framework import compose, foreignmarks, marks, names
from controller.jobs.framework.podsets import JobPodSet, SeenWorkload, typed_template
from controller.jobs.framework.podview import IS_GROUP_WORKLOAD
from controller.jobs.framework.raw import Json, annotations, labels, missing_class, text
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.jobs.serving.kind import ServingGroup, ServingKind
from controller.objects.core import PodSpec
from controller.scheduler.model.gangshape import GangShape, written
from inventory.api.names import ABOVE_MIN_REPLICAS, GANG


def workload_body(
    kind: ServingKind, owner: Json, group: ServingGroup, settings: JobSettings, cluster: ClusterObjects
) -> Json:
    """The complete new Workload. Raises JobError."""
    identity = {
        names.JOB_OWNER_GVK: f"{kind.api_version}, Kind={kind.kind}",
        names.JOB_OWNER_NAME: text(owner, "metadata", "name"),
    }
    index = {} if group.index is None else {names.COMPONENT_INDEX: str(group.index)}
    if is_above_minimum(owner, group, settings):
        index[ABOVE_MIN_REPLICAS] = "true"
    metadata: Json = {
        "name": workload_name(kind, owner, group.name, settings),
        "namespace": text(owner, "metadata", "namespace"),
        "finalizers": [names.RESOURCE_IN_USE],
        "ownerReferences": [_reference(kind, owner)],
        "labels": _labels(owner, settings),
        "annotations": {
            **marks.passed_on(owner, settings.gates),
            **foreignmarks.preemption_marks(owner),
            IS_GROUP_WORKLOAD: "true",
            **identity,
            **index,
            **_gang(owner, group, settings),
        },
    }
    sets = pod_sets(group, settings)
    return compose.document(metadata, sets, _priority(owner, sets, settings, cluster), owner)


def is_above_minimum(owner: Json, group: ServingGroup, settings: JobSettings) -> bool:
    """Whether the group is one of those that are reclaimed first. Groups of the lowest numbers are the minimum: an
    object that is scaled down removes the others. Raises JobError.
    """
    minimum = marks.min_replicas(owner) if settings.keeps_minimum else None
    return minimum is not None and group.index is not None and group.index >= minimum


def group_index(workload: Json) -> int | None:
    """The number of the Workload's group; None if its object has only one, or if it is no number."""
    found = annotations(workload).get(names.COMPONENT_INDEX, "")
    return int(found) if found.isdecimal() else None


def workload_name(kind: ServingKind, owner: Json, group: str, settings: JobSettings) -> str:
    full = kind.workload_name(owner, group)
    return names.shortened(full) if settings.gates.on("ShortWorkloadNames") else full


def pod_sets(group: ServingGroup, settings: JobSettings) -> tuple[JobPodSet, ...]:
    """The pod sets that the Workload requests."""
    if settings.gates.on("TopologyAwareScheduling"):
        return group.pod_sets
    return tuple(msgspec.structs.replace(each, topology_request=None) for each in group.pod_sets)


def _gang(owner: Json, group: ServingGroup, settings: JobSettings) -> dict[str, str]:
    """The annotation with the group's levels, or the levels of the object's foreign annotations if the group has none.
    Raises JobError.
    """
    gang, marked = group.gang, foreignmarks.foreign_levels(owner, {})
    if marked is not None and not (gang and gang.required_level):
        gang = msgspec.structs.replace(
            gang or GangShape(),
            topology=marked.topology,
            required_level=marked.required_level,
            preferred_level=marked.preferred_level,
        )
    placed = gang is not None and settings.gates.on("TopologyAwareScheduling")
    return {GANG: written(gang)} if placed and gang is not None else {}


def asks_for(group: ServingGroup, workload: SeenWorkload) -> bool:
    """Whether the Workload has the group's pods: as many, of the same shape. Images may differ: a rollout changes them.
    Raises JobError.
    """
    requested = {pod_set.name: pod_set for pod_set in workload.typed.spec.pod_sets}
    if [pod_set.name for pod_set in group.pod_sets] != list(requested):
        return False
    return all(
        each.count == requested[each.name].count
        and shape(typed_template(each.template, each.name).spec) == shape(requested[each.name].template.spec)
        for each in group.pod_sets
    )


def shape(spec: PodSpec) -> PodSpec:
    """The part of a pod's spec that a scheduler reads."""
    plain = [
        tuple(msgspec.structs.replace(container, image="") for container in containers)
        for containers in (spec.containers, spec.init_containers)
    ]
    return msgspec.structs.replace(spec, containers=plain[0], init_containers=plain[1], restart_policy="")


def metadata_patch(
    kind: ServingKind, owner: Json, group: ServingGroup, workload: SeenWorkload, settings: JobSettings
) -> Json:
    """Merge patch of ``metadata``; empty if nothing is missing."""
    meta = workload.typed.metadata
    patch: dict[str, Any] = {}
    if not owns(owner, workload):
        others = workload.owner_references
        patch["ownerReferences"] = [*others, _reference(kind, owner)]
        patch["annotations"] = {
            names.JOB_OWNER_GVK: f"{kind.api_version}, Kind={kind.kind}",
            names.JOB_OWNER_NAME: text(owner, "metadata", "name"),
        }
    wanted, gated_by = marks.passed_on(owner, settings.gates), names.ADMISSION_GATED_BY
    changed: dict[str, str | None] = {key: value for key, value in wanted.items() if meta.annotations.get(key) != value}
    if settings.gates.on("AdmissionGatedBy") and gated_by in meta.annotations and gated_by not in wanted:
        changed[gated_by] = None
    gang = _gang(owner, group, settings).get(GANG)
    if not workload.is_reserved and gang != meta.annotations.get(GANG):
        changed[GANG] = gang
    above = is_above_minimum(owner, group, settings)
    if above != (meta.annotations.get(ABOVE_MIN_REPLICAS) == "true"):
        changed[ABOVE_MIN_REPLICAS] = "true" if above else None
    if changed:
        patch["annotations"] = {**patch.get("annotations", {}), **changed}
    copied = {key: value for key, value in _copied(owner, settings).items() if meta.labels.get(key) != value}
    if copied:
        patch["labels"] = copied
    return patch


def owns(owner: Json, workload: SeenWorkload) -> bool:
    uid = text(owner, "metadata", "uid")
    return any(reference.uid == uid for reference in workload.typed.metadata.owner_references)


def _reference(kind: ServingKind, owner: Json) -> Json:
    meta = {key: text(owner, "metadata", key) for key in ("name", "uid")}
    return {"apiVersion": kind.api_version, "kind": kind.kind, **meta}


def _labels(owner: Json, settings: JobSettings) -> dict[str, str]:
    uid = text(owner, "metadata", "uid")
    return {**_copied(owner, settings), **({names.JOB_UID: uid} if names.is_label_value(uid) else {})}


def _copied(owner: Json, settings: JobSettings) -> dict[str, str]:
    own = labels(owner)
    return {key: own[key] for key in settings.label_keys_to_copy if key in own}


def _priority(owner: Json, sets: tuple[JobPodSet, ...], settings: JobSettings, cluster: ClusterObjects) -> Json:
    """The fields of the priority, by the order of ``jobs.framework.compose.priority``. Raises
    PriorityClassMissingError.
    """
    if label := marks.priority_class(owner):
        return compose.workload_class(label, cluster)
    if (of_kai := foreignmarks.kai_class(owner, cluster.pod_priority)) is not None:
        return compose.pod_class(*of_kai)
    named = (text(each.template, "spec", "priorityClassName") for each in sets)
    if name := next(filter(None, named), ""):
        value = cluster.pod_priority(name)
        if value is None:
            raise missing_class("priorityClassName of the pods", "PriorityClass", name)
        return compose.pod_class(name, value)
    return compose.default_class(settings, cluster)
