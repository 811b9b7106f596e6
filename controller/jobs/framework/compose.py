"""A job's Workload: the body of a new one, and the changes to an existing one.

Workload names and fields: ``kueue.x-k8s.io/v1beta2``. Bodies are JSON ready for the API.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from controller.jobs.framework import foreignmarks, marks, names
from controller.jobs.framework.kind import JobKind, api_version
from controller.jobs.framework.podsets import JobPodSet, SeenWorkload, same_pods, same_shape, slice_name, typed_template
from controller.jobs.framework.raw import Json, annotations, labels, mapping, missing_class, sequence, strings, text
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.decode import KUEUE
from controller.objects.meta import is_true
from controller.objects.workload import PodSet, Workload, admitted_pods
from controller.scheduler.model.gangshape import GangShape, written
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import GANG, GROWTH, OF_CHECKPOINTS

_WORKLOAD_CLASS: Final = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}
_POD_CLASS: Final = {"group": "scheduling.k8s.io", "kind": "PriorityClass"}


def own_name(kind: JobKind, job: Json, *, elastic: bool, settings: JobSettings) -> str:
    """The name of the job's workload; of an elastic job, of the slice for its present size."""
    return _name(kind, job, kind.slice_mark(job) if elastic else None, settings)


def _name(kind: JobKind, job: Json, mark: str | None, settings: JobSettings) -> str:
    name, uid = text(job, "metadata", "name"), text(job, "metadata", "uid")
    full = names.workload_name(kind.kind, kind.group, name, uid, generation=mark)
    return names.shortened(full) if settings.gates.on("ShortWorkloadNames") else full


def pod_sets(kind: JobKind, job: Json, settings: JobSettings) -> tuple[JobPodSet, ...]:
    """The pod sets that the job's workload requests. Raises JobError."""
    asked = kind.pod_sets(job)
    if settings.injected and (named := kind.injected(job)):
        requests = {name: settings.injected.get(container) for name, container in named.items()}
        asked = tuple(_with_injected(each, named.get(each.name, ""), requests.get(each.name)) for each in asked)
    return gated(asked, settings.gates)


def _with_injected(pod_set: JobPodSet, container: str, requests: Mapping[str, str] | None) -> JobPodSet:
    """The pod set with the init container that its pods will have: it is charged if it requests more than the others
    do.
    """
    own = sequence(pod_set.template, "spec", "initContainers")
    if not requests or any(each.get("name") == container for each in own):
        return pod_set
    added = {"name": container, "resources": {"requests": dict(requests)}}
    spec = {**mapping(pod_set.template, "spec"), "initContainers": [*own, added]}
    return JobPodSet(**{**_fields(pod_set), "template": {**pod_set.template, "spec": spec}})


def gated(asked: tuple[JobPodSet, ...], gates: FeatureGates) -> tuple[JobPodSet, ...]:
    """The pod sets without the requests that their feature gates do not allow."""
    dropped = {} if gates.on("PartialAdmission") else {"min_count": None}
    dropped |= {} if gates.on("TopologyAwareScheduling") else {"topology_request": None}
    return tuple(JobPodSet(**{**_fields(pod_set), **dropped}) for pod_set in asked) if dropped else asked


def asks_for(kind: JobKind, job: Json, workload: SeenWorkload, settings: JobSettings) -> bool:
    """Whether the job, with its templates untouched, requests what the workload says. Raises JobError."""
    asked = pod_sets(kind, job, settings)
    in_workload = {pod_set.name: pod_set for pod_set in workload.typed.spec.pod_sets}
    if [pod_set.name for pod_set in asked] != list(in_workload):
        return False
    # The topology request need not be compared: it follows from annotations and counts.
    return all(
        (pod_set.count, pod_set.min_count) == (in_workload[pod_set.name].count, in_workload[pod_set.name].min_count)
        and same_shape(typed_template(pod_set.template, f"pod set {pod_set.name}"), in_workload[pod_set.name].template)
        for pod_set in asked
    )


def runs_as(kind: JobKind, job: Json, workload: SeenWorkload) -> bool:
    """Whether the job, started, is what the workload's admission (else its spec) says.

    While a job runs its templates cannot change, and what its start put in may be older than today's flavors: only
    counts and requests are compared. Init containers that the kind's controller injects are in the workload alone, as
    it was charged when the job was queued.
    """
    of_workload, counts = workload.typed.spec.pod_sets, admitted_counts(workload.typed)
    templates, injected = kind.templates(job), kind.injected(job)
    if kind.counts(job) != counts or templates.keys() != counts.keys():
        return False
    return all(
        same_pods(
            typed_template(templates[pod_set.name], f"pod set {pod_set.name}").spec,
            pod_set.template.spec,
            but=injected.get(pod_set.name, ""),
        )
        for pod_set in of_workload
    )


def workload_body(
    kind: JobKind, job: Json, settings: JobSettings, cluster: ClusterObjects, *, replaces: SeenWorkload | None = None
) -> Json:
    """The complete new Workload; ``replaces``: the slice of the elastic job that it replaces.

    Raises JobError.
    """
    elastic = elastic_here(kind, job, settings)
    name = own_name(kind, job, elastic=elastic, settings=settings)
    metadata: Json = {
        "name": name,
        "namespace": text(job, "metadata", "namespace"),
        "finalizers": [names.RESOURCE_IN_USE],
        "ownerReferences": [owner_reference(kind, job)],
        "labels": _labels(job, settings),
        "annotations": _annotations(kind, job, settings),
    }
    if elastic:
        metadata["annotations"] |= {names.ELASTIC_JOB: "true", names.SLICE_NAME: name}
    if replaces is not None:
        old = replaces.typed
        metadata["annotations"] |= {names.REPLACEMENT_FOR: old.key, names.SLICE_NAME: slice_name(old)}
    return document(metadata, pod_sets(kind, job, settings), priority(kind, job, settings, cluster), job)


def growth_body(kind: JobKind, job: Json, settings: JobSettings, base: SeenWorkload, most: dict[str, int]) -> Json:
    """The Workload by which a gang is to grow that runs by ``base`` with fewer pods than ``most`` by pod set: it asks
    for one pod more than the admission at the least. It has the templates of ``base``, as the job's own are changed by
    its start. Raises JobError.
    """
    running, spec = admitted_counts(base.typed), base.raw["spec"]
    listed = [
        {**raw, "count": most[typed.name], "minCount": running[typed.name] + 1}
        for raw, typed in zip(spec["podSets"], base.typed.spec.pod_sets, strict=True)
    ]
    metadata = {
        "name": _name(kind, job, f"{base.uid}/{sum(running.values())}", settings),
        "namespace": text(job, "metadata", "namespace"),
        "finalizers": [names.RESOURCE_IN_USE],
        "ownerReferences": [owner_reference(kind, job)],
        "labels": _labels(job, settings),
        "annotations": {
            **_annotations(kind, job, settings),
            names.REPLACEMENT_FOR: base.typed.key,
            names.SLICE_NAME: slice_name(base.typed),
            GROWTH: "true",
        },
    }
    copied = {key: spec[key] for key in ("queueName", "priorityClassRef", "priority") if key in spec}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"podSets": listed, "active": True, **copied},
    }


def admitted_counts(workload: Workload) -> dict[str, int]:
    """Pods by pod set that the workload was admitted with; those that it asks for while it is not."""
    sets = {each.name: each for each in workload.spec.pod_sets}
    counts, admission = counts_of(workload.spec.pod_sets), workload.status.admission
    if admission is not None:
        counts |= {
            one.name: admitted_pods(sets[one.name], one) for one in admission.pod_set_assignments if one.name in sets
        }
    return counts


def document(metadata: Json, sets: Iterable[JobPodSet], chosen: Json, marked: Json) -> Json:
    """A Workload as JSON. ``chosen``: the fields of its priority; ``marked``: the object with the queue's labels."""
    spec: Json = {"podSets": [pod_set.as_json() for pod_set in sets], "active": True, **chosen}
    if queue := marks.queue_name(marked):
        spec["queueName"] = queue
    if (seconds := marks.max_exec_time_s(marked)) is not None:
        spec["maximumExecutionTimeSeconds"] = seconds
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": spec,
    }


def elastic_here(kind: JobKind, job: Json, settings: JobSettings) -> bool:
    return kind.can_be_elastic and settings.gates.on("ElasticJobsViaWorkloadSlices") and marks.is_elastic(job)


def owner_reference(kind: JobKind, job: Json) -> Json:
    return {
        "apiVersion": api_version(kind),
        "kind": kind.kind,
        "name": text(job, "metadata", "name"),
        "uid": text(job, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def priority(kind: JobKind, job: Json, settings: JobSettings, cluster: ClusterObjects) -> Json:
    """``priorityClassRef`` and ``priority``; empty if no class applies. Raises PriorityClassMissingError.

    The first of these counts: the class in the job's label, in a foreign queue the class that its system uses,
    its pods' priorityClassName, the WorkloadPriorityClass ``default``, the cluster's default PriorityClass.
    """
    if label := marks.priority_class(job):
        return workload_class(label, cluster)
    if (of_kai := foreignmarks.kai_class(job, cluster.pod_priority)) is not None:
        return pod_class(*of_kai)
    if name := kind.pod_priority_class(job):
        value = cluster.pod_priority(name)
        if value is None:
            raise missing_class("priorityClassName of the pods", "PriorityClass", name)
        return pod_class(name, value)
    return default_class(settings, cluster)


def default_class(settings: JobSettings, cluster: ClusterObjects) -> Json:
    """The class of jobs without one: the WorkloadPriorityClass ``default``, else the cluster's default
    PriorityClass.
    """
    if settings.gates.on("WorkloadPriorityClassDefaulting"):
        value = cluster.workload_priority(names.DEFAULT_PRIORITY_CLASS)
        if value is not None:
            return {"priorityClassRef": {**_WORKLOAD_CLASS, "name": names.DEFAULT_PRIORITY_CLASS}, "priority": value}
    default = cluster.global_default()
    if default is not None:
        return pod_class(*default)
    return {}


def pod_class(name: str, value: int) -> Json:
    return {"priorityClassRef": {**_POD_CLASS, "name": name}, "priority": value}


def workload_class(name: str, cluster: ClusterObjects) -> Json:
    """The fields of the class that the label names. Raises PriorityClassMissingError."""
    value = cluster.workload_priority(name)
    if value is None:
        where = f"metadata.labels[{names.PRIORITY_CLASS}]"
        raise missing_class(where, "WorkloadPriorityClass", name)
    return {"priorityClassRef": {**_WORKLOAD_CLASS, "name": name}, "priority": value}


def spec_patch(
    kind: JobKind, job: Json, workload: SeenWorkload, settings: JobSettings, cluster: ClusterObjects
) -> Json:
    """Merge patch of ``spec`` that makes a workload without reservation request what the job requests now."""
    asked = [pod_set.as_json() for pod_set in pod_sets(kind, job, settings)]
    return {"podSets": asked, **mark_patch(job, workload, cluster)}


def mark_patch(job: Json, workload: SeenWorkload, cluster: ClusterObjects) -> Json:
    """Merge patch of ``spec`` for labels of the job that have changed, as far as the workload's state allows.

    Raises JobError for a label without a meaning.
    """
    patch: Json = {}
    reserved, spec = workload.is_reserved, workload.typed.spec
    queue = marks.queue_name(job)
    if not reserved and queue != spec.queue_name:
        patch["queueName"] = queue or None
    seconds = marks.max_exec_time_s(job)
    admitted = is_true(workload.typed.status.conditions, "Admitted")
    if not admitted and seconds != spec.maximum_execution_time_seconds:
        patch["maximumExecutionTimeSeconds"] = seconds
    label, ref = marks.priority_class(job), spec.priority_class_ref
    of_workloads = ref is not None and (ref.group, ref.kind) == tuple(_WORKLOAD_CLASS.values())
    differs = ref is None or not of_workloads or ref.name != label
    # A workload that holds quota may change from one WorkloadPriorityClass to another, and change no other class.
    if label and (of_workloads or not reserved):
        chosen = workload_class(label, cluster) if differs or cluster.workload_priority(label) is not None else {}
        if differs or chosen.get("priority", spec.priority) != spec.priority:
            patch |= chosen
    return patch


def metadata_patch(kind: JobKind, job: Json, workload: SeenWorkload, settings: JobSettings) -> Json:
    """Merge patch of ``metadata``: labels and annotations that the workload has from the job; empty if they are equal.

    The gang of a job in a foreign queue follows the job until quota is held. Raises JobError for annotations that
    cannot be read.
    """
    gang = {} if workload.is_reserved else _foreign_gang(kind, job)
    told = {**checkpoints_of_pods(kind, job), **marks.passed_on(job, settings.gates)}
    wanted = {"labels": _labels(job, settings), "annotations": {**told, **gang}}
    have = {"labels": workload.typed.metadata.labels, "annotations": workload.typed.metadata.annotations}
    patch: dict[str, Any] = {}
    for part, values in wanted.items():
        changed: dict[str, str | None] = {k: v for k, v in values.items() if have[part].get(k) != v}
        if part == "annotations":
            # Other keys that the job lost stay: they may be another client's.
            gone, known = names.ADMISSION_GATED_BY, settings.gates.on("AdmissionGatedBy")
            changed |= {gone: None} if known and gone in have[part] and gone not in values else {}
        if changed:
            patch[part] = changed
    return patch


def with_counts(workload: SeenWorkload, counts: dict[str, int]) -> Json:
    """Merge patch of ``spec`` that gives the pod sets of a slice these counts, and changes nothing else."""
    listed = [
        {**raw, "count": counts.get(typed.name, typed.count)}
        for raw, typed in zip(workload.raw["spec"]["podSets"], workload.typed.spec.pod_sets, strict=True)
    ]
    return {"podSets": listed}


def counts_of(pod_sets_: tuple[PodSet, ...] | tuple[JobPodSet, ...]) -> dict[str, int]:
    return {pod_set.name: pod_set.count for pod_set in pod_sets_}


def _labels(job: Json, settings: JobSettings) -> dict[str, str]:
    uid, own = text(job, "metadata", "uid"), labels(job)
    copied = {key: own[key] for key in settings.label_keys_to_copy if key in own}
    return {**copied, **({names.JOB_UID: uid} if names.is_label_value(uid) else {})}


def _annotations(kind: JobKind, job: Json, settings: JobSettings) -> dict[str, str]:
    workload_annotations = {
        **checkpoints_of_pods(kind, job),
        **marks.passed_on(job, settings.gates),
        **foreignmarks.preemption_marks(job),
        **_foreign_gang(kind, job),
        **kind.workload_annotations(job),
    }
    if settings.gates.on("WorkloadIdentifierAnnotations"):
        group = f"{kind.group}/{kind.version}" if kind.group else f"/{kind.version}"
        workload_annotations[names.JOB_OWNER_GVK] = f"{group}, Kind={kind.kind}"
        workload_annotations[names.JOB_OWNER_NAME] = text(job, "metadata", "name")
    return workload_annotations


def checkpoints_of_pods(kind: JobKind, job: Json) -> dict[str, str]:
    """What the pod templates say of the work that the job keeps, as far as the job itself says nothing; where several
    do, the first. Raises JobError.
    """
    missing = [key for key in OF_CHECKPOINTS if key not in annotations(job)]
    checkpoints: dict[str, str] = {}
    for template in kind.templates(job).values():
        told = strings(template, "metadata", "annotations")
        checkpoints = {key: told[key] for key in missing if key in told} | checkpoints
    return checkpoints


def _foreign_gang(kind: JobKind, job: Json) -> dict[str, str]:
    """The annotation of a job with foreign marks that says how long it may run below its minimum, or in which domains;
    empty for any other. Raises JobError.
    """
    patience, levels = foreignmarks.staleness_s(job), foreignmarks.foreign_levels(job, kind.templates(job))
    if patience is None and levels is None:
        return {}
    return {GANG: written(msgspec.structs.replace(levels or GangShape(), staleness_s=patience))}


def _fields(pod_set: JobPodSet) -> dict[str, Any]:
    return {field: getattr(pod_set, field) for field in pod_set.__struct_fields__}
