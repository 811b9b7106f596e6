"""The Workload of a pod on its own, or of a group of pods: the body of a new one, and the changes to an existing one.

A pod on its own controls its workload. A group's workload is named as the group and owned by all its pods, none of
which controls it: it is collected when the last of them is gone.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from controller.foreign.podgroups.group import subgroup_of
from controller.foreign.podgroups.podsabove import begins_with
from controller.jobs.framework import compose, foreignmarks, marks, names
from controller.jobs.framework.context import controls
from controller.jobs.framework.podsets import JobPodSet, SeenWorkload, same_shape, typed_template
from controller.jobs.framework.podview import IS_GROUP_WORKLOAD, OWN_GATES, SeenPod
from controller.jobs.framework.raw import Json, missing_class, text
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.core import PodTemplateSpec
from controller.reconcile.pods.group import Group, copied_labels, role
from controller.scheduler.model.gangshape import GangShape, written
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import ABOVE_MIN_REPLICAS, ABOVE_MINIMUM_OF, GANG, STARTS_WITH


def workload_name(group: Group, pod: SeenPod, gates: FeatureGates) -> str:
    if group.name:
        return group.name
    full = names.workload_name("Pod", "", pod.name, pod.uid)
    return names.shortened(full) if gates.on("ShortWorkloadNames") else full


def own_workload(
    group: str, pods: Sequence[SeenPod], workloads: Sequence[SeenWorkload], gates: FeatureGates
) -> SeenWorkload | None:
    """The one of ``workloads`` that belongs to these pods: by the name of the prebuilt one, else by ``group`` (empty
    for a pod on its own).

    A pod on its own has the one of its name, else the oldest that it controls: a workload that was made under other
    gates, or by another version, goes on. None if there is no pod.
    """
    if not pods:
        return None
    oldest = min(pods, key=lambda member: member.age_key)
    if name := marks.prebuilt_mark(oldest.raw)[1] or group:
        return next((workload for workload in workloads if workload.name == name), None)
    named = workload_name(Group(name="", total=1, minimum=1), oldest, gates)
    controlled = [each for each in workloads if each.name == named or controls(oldest.raw, each)]
    return min(controlled, key=lambda each: (each.name != named, not each.is_live, each.age_key), default=None)


def workload_body(
    group: Group, pods: Sequence[SeenPod], sets: Sequence[JobPodSet], settings: JobSettings, cluster: ClusterObjects
) -> Json:
    """The complete new Workload. Raises JobError."""
    oldest = min(pods, key=lambda member: member.age_key)
    metadata: Json = {
        "name": workload_name(group, oldest, settings.gates),
        "namespace": text(oldest.raw, "metadata", "namespace"),
        "finalizers": [names.RESOURCE_IN_USE],
        "ownerReferences": owners(group, pods),
        "labels": _labels(group, pods, settings),
        "annotations": _annotations(group, oldest, settings)
        | gang_annotation(group, pods, settings)
        | _spare(oldest, cluster),
    }
    return compose.document(metadata, sets, priority(group, pods, settings, cluster), oldest.raw)


def owners(group: Group, pods: Sequence[SeenPod]) -> list[Json]:
    listed = sorted(pods, key=lambda member: member.age_key)
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "uid": pod.uid,
            **({} if group.name else {"controller": True, "blockOwnerDeletion": True}),
        }
        for pod in listed
    ]


def priority(group: Group, pods: Sequence[SeenPod], settings: JobSettings, cluster: ClusterObjects) -> Json:
    """``priorityClassRef`` and ``priority``, by the order of ``compose.priority``; a PodGroup's class goes before that
    of its pods. Of several priority classes of the pods the highest counts. Raises PriorityClassMissingError.
    """
    oldest, foreign = min(pods, key=lambda member: member.age_key), group.foreign
    known = cluster.pod_priority
    if label := marks.priority_class(oldest.raw):
        return compose.workload_class(label, cluster)
    system, of_group = (None, "") if foreign is None else (foreign.system, foreign.priority_class)
    marked = foreignmarks.member_class(oldest.raw, system, of_group, known)
    if marked is not None:
        return compose.pod_class(*marked)
    if foreign is not None and foreign.priority_class:
        return _highest(f"PodGroup {foreign.title}: spec.priorityClassName", {foreign.priority_class}, known)
    named = {text(pod.raw, "spec", "priorityClassName") for pod in pods} - {""}
    return _highest("spec.priorityClassName", named, known) if named else compose.default_class(settings, cluster)


def _highest(where: str, class_names: set[str], known: foreignmarks.PriorityOf) -> Json:
    values = {name: known(name) for name in class_names}
    by_value = [(value, name) for name, value in values.items() if value is not None]
    if len(by_value) < len(values):
        missing = min(name for name, value in values.items() if value is None)
        raise missing_class(where, "PriorityClass", missing)
    value, name = max(by_value)
    return compose.pod_class(name, value)


def spec_patch(oldest: SeenPod, sets: Sequence[JobPodSet], workload: SeenWorkload, cluster: ClusterObjects) -> Json:
    """Merge patch of ``spec``; empty if the workload says what the pods request, or may not change.

    ``sets`` is empty while the requests are not known yet. A workload with another time limit is written anew as a
    whole, as by Kueue. Raises JobError.
    """
    patch = compose.mark_patch(oldest.raw, workload, cluster)
    anew = "maximumExecutionTimeSeconds" in patch
    if sets and not workload.is_reserved and (anew or not asks_for(sets, workload)):
        patch["podSets"] = [pod_set.as_json() for pod_set in sets]
    return patch


def asks_for(sets: Sequence[JobPodSet], workload: SeenWorkload) -> bool:
    """Whether the workload requests these pod sets; of one that holds quota the names and counts alone are compared.

    The template of a pod that has started is not compared: its start has changed it.
    """
    requested = {pod_set.name: pod_set for pod_set in workload.typed.spec.pod_sets}
    if {pod_set.name for pod_set in sets} != requested.keys():
        return False
    for pod_set in sets:
        there = requested[pod_set.name]
        if (pod_set.count, pod_set.min_count) != (there.count, there.min_count):
            return False
        # The name of a role says what its pods request; the name of a pod on its own does not.
        if len(sets) > 1 or workload.is_reserved:
            continue
        if not same_shape(_ungated(typed_template(pod_set.template, "pod")), _ungated(there.template)):
            return False
    return True


def _ungated(template: PodTemplateSpec) -> PodTemplateSpec:
    """The template without the queue's gates, which come and go."""
    gates = tuple(gate for gate in template.spec.scheduling_gates if gate.name not in OWN_GATES)
    return msgspec.structs.replace(template, spec=msgspec.structs.replace(template.spec, scheduling_gates=gates))


def metadata_patch(
    group: Group,
    pods: Sequence[SeenPod],
    workload: SeenWorkload,
    settings: JobSettings,
    counted: Sequence[SeenPod],
) -> Json:
    """Merge patch of ``metadata``; empty if nothing is missing. ``pods``: the pods that hold the workload, ``counted``
    those that it asks for.

    Owners are added and never removed: the API server's garbage collector ignores those that are gone.
    """
    oldest, meta = min(pods, key=lambda member: member.age_key), workload.typed.metadata
    patch = owners_patch(group, pods, workload)
    wanted = {
        "labels": copied_labels(pods, settings.label_keys_to_copy),
        "annotations": marks.passed_on(oldest.raw, settings.gates),
    }
    have = {"labels": meta.labels, "annotations": meta.annotations}
    gang = {GANG: meta.annotations[GANG]} if GANG in meta.annotations else {}
    if not workload.is_reserved and (now := gang_annotation(group, counted, settings)) != gang:
        patch["annotations"] = {GANG: now.get(GANG)}
    sisters = _sisters(group, oldest)
    if not workload.is_reserved and meta.annotations.get(STARTS_WITH, "") != sisters:
        patch["annotations"] = {**patch.get("annotations", {}), STARTS_WITH: sisters or None}
    for part, values in wanted.items():
        changed: dict[str, str | None] = {key: value for key, value in values.items() if key not in have[part]}
        gone, known = names.ADMISSION_GATED_BY, settings.gates.on("AdmissionGatedBy")
        if known and part == "annotations" and have[part].get(gone) != values.get(gone):
            changed[gone] = values.get(gone)
        if changed:
            patch[part] = {**patch.get(part, {}), **changed}
    return patch


def owners_patch(group: Group, pods: Sequence[SeenPod], workload: SeenWorkload) -> Json:
    """Merge patch of ``metadata`` with the pods that do not own the workload yet."""
    there = {owner.uid for owner in workload.typed.metadata.owner_references}
    missing = [owner for owner in owners(group, pods) if owner["uid"] not in there]
    if not missing:
        return {}
    patch: dict[str, Any] = {
        "ownerReferences": [*workload.owner_references, *missing],
    }
    if not group.name:
        patch["labels"] = {names.JOB_UID: missing[0]["uid"]}
    return patch


def _labels(group: Group, pods: Sequence[SeenPod], settings: JobSettings) -> dict[str, str]:
    copied = copied_labels(pods, settings.label_keys_to_copy)
    return copied if group.name else {**copied, names.JOB_UID: pods[0].uid}


def _sisters(group: Group, oldest: SeenPod) -> str:
    """The PodGroup whose pods get quota together; empty for none."""
    if not group.name:
        return begins_with(oldest)
    return group.foreign.title if group.foreign is not None and group.foreign.kept else ""


def _spare(oldest: SeenPod, cluster: ClusterObjects) -> dict[str, str]:
    """The annotation of a new workload whose pod may be a spare replica: the controller that counts replicas removes it
    again.
    """
    return {ABOVE_MIN_REPLICAS: "true"} if oldest.has_parent and cluster.may_be_spare(oldest.raw) else {}


def gang_annotation(group: Group, pods: Sequence[SeenPod], settings: JobSettings) -> dict[str, str]:
    """The annotation with the parts of a PodGroup that have to run together, if that is more than a number of pods; for
    a pod with foreign marks without a group, its own levels. Raises JobError.
    """
    if group.foreign is None:
        oldest = min(pods, key=lambda member: member.age_key, default=None)
        own = None if oldest is None or oldest.above_minimum_of else foreignmarks.foreign_levels(oldest.raw, {})
        return {} if own is None else {GANG: written(own)}
    shape = group.foreign.shape({role(pod): subgroup_of(pod) for pod in pods}, settings.tiers)
    return {} if shape == GangShape(minimum=shape.minimum) else {GANG: written(shape)}


def _annotations(group: Group, oldest: SeenPod, settings: JobSettings) -> dict[str, str]:
    annotations = {**marks.passed_on(oldest.raw, settings.gates), **foreignmarks.preemption_marks(oldest.raw)}
    if settings.gates.on("WorkloadIdentifierAnnotations"):
        annotations[names.JOB_OWNER_GVK] = "/v1, Kind=Pod"
        annotations[names.JOB_OWNER_NAME] = group.name or oldest.name
    if group.name:
        annotations[IS_GROUP_WORKLOAD] = "true"
    if group.foreign is not None and group.foreign.preemptibility:
        annotations[foreignmarks.KAI_PREEMPTIBILITY] = group.foreign.preemptibility
    if oldest.above_minimum_of:
        annotations[ABOVE_MINIMUM_OF] = oldest.above_minimum_of
    if sisters := _sisters(group, oldest):
        annotations[STARTS_WITH] = sisters
    return annotations
