"""The Workload of a pod on its own, or of a group of pods: the body of a new one, and what has to change in one.

A pod on its own controls its workload. A group's workload is named as the group and owned by all its pods, none of
which controls it: it goes when the last of them has gone.
"""

from collections.abc import Sequence
from typing import Any

from controller.engine.model.gates import FeatureGates
from controller.jobframework import compose, marks, names
from controller.jobframework.podsets import JobPodSet, SeenWorkload, same_shape, typed_template
from controller.jobframework.podview import IS_GROUP_WORKLOAD, SeenPod
from controller.jobframework.raw import Json, PriorityClassMissingError, shown, text
from controller.jobframework.settings import ClusterObjects, JobSettings
from controller.pods.group import Group


def workload_name(group: Group, pod: SeenPod, gates: FeatureGates) -> str:
    if group.name:
        return group.name
    full = names.workload_name("Pod", "", pod.name, pod.uid)
    return names.shortened(full) if gates.on("ShortWorkloadNames") else full


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
        "labels": _labels(group, oldest, settings),
        "annotations": _annotations(group, oldest, settings),
    }
    return compose.document(metadata, sets, priority(oldest, pods, settings, cluster), oldest.raw)


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


def priority(oldest: SeenPod, pods: Sequence[SeenPod], settings: JobSettings, cluster: ClusterObjects) -> Json:
    """``priorityClassRef`` and ``priority``, by the order of ``compose.priority``.

    Of several priority classes of the pods the highest counts. Raises PriorityClassMissingError.
    """
    if label := marks.priority_class(oldest.raw):
        return compose.workload_class(label, cluster)
    known: list[tuple[int, str]] = []
    for name in {text(pod.raw, "spec", "priorityClassName") for pod in pods} - {""}:
        value = cluster.pod_priority(name)
        if value is None:
            raise PriorityClassMissingError(f"spec.priorityClassName: no PriorityClass {shown(name)}")
        known.append((value, name))
    if known:
        value, name = max(known)
        return compose.pod_class(name, value)
    return compose.default_class(settings, cluster)


def spec_patch(oldest: SeenPod, sets: Sequence[JobPodSet], workload: SeenWorkload, cluster: ClusterObjects) -> Json:
    """Merge patch of ``spec``; empty where the workload says what the pods ask for, or may not change.

    ``sets`` is empty where it is not known yet what is asked for. Raises JobError.
    """
    patch = compose.mark_patch(oldest.raw, workload, cluster)
    if sets and not workload.is_reserved and not _asks_for(sets, workload):
        patch["podSets"] = [pod_set.as_json() for pod_set in sets]
    return patch


def _asks_for(sets: Sequence[JobPodSet], workload: SeenWorkload) -> bool:
    given = {pod_set.name: pod_set for pod_set in workload.typed.spec.pod_sets}
    if {pod_set.name for pod_set in sets} != given.keys():
        return False
    for pod_set in sets:
        there = given[pod_set.name]
        if (pod_set.count, pod_set.min_count) != (there.count, there.min_count):
            return False
        # The name of a role says what its pods ask for; that of a pod on its own does not.
        if len(sets) == 1 and not same_shape(typed_template(pod_set.template, "pod"), there.template):
            return False
    return True


def metadata_patch(group: Group, pods: Sequence[SeenPod], workload: SeenWorkload, settings: JobSettings) -> Json:
    """Merge patch of ``metadata``; empty where nothing is missing. ``pods``: those that hold the workload."""
    oldest, meta = min(pods, key=lambda member: member.age_key), workload.typed.metadata
    patch: dict[str, Any] = {}
    if {owner_reference.uid for owner_reference in meta.owner_references} != {member.uid for member in pods}:
        patch["ownerReferences"] = owners(group, pods)
    wanted = {"labels": _labels(group, oldest, settings), "annotations": _annotations(group, oldest, settings)}
    have = {"labels": meta.labels, "annotations": meta.annotations}
    for part, values in wanted.items():
        changed: dict[str, str | None] = {key: value for key, value in values.items() if key not in have[part]}
        gone = names.ADMISSION_GATED_BY
        if part == "annotations" and have[part].get(gone) != values.get(gone):
            changed[gone] = values.get(gone)
        if changed:
            patch[part] = changed
    return patch


def _labels(group: Group, oldest: SeenPod, settings: JobSettings) -> dict[str, str]:
    copied = {key: oldest.labels[key] for key in settings.label_keys_to_copy if key in oldest.labels}
    return copied if group.name else {**copied, names.JOB_UID: oldest.uid}


def _annotations(group: Group, oldest: SeenPod, settings: JobSettings) -> dict[str, str]:
    found = marks.passed_on(oldest.raw)
    if settings.gates.on("WorkloadIdentifierAnnotations"):
        found[names.JOB_OWNER_GVK] = "/v1, Kind=Pod"
        found[names.JOB_OWNER_NAME] = group.name or oldest.name
    if group.name:
        found[IS_GROUP_WORKLOAD] = "true"
    return found
