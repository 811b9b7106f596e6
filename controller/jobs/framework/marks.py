"""Labels and annotations of a job that are for the queue; whether the job is managed, by them and by its owners'.

Functions raise JobError for a value that cannot be read.
"""

from collections.abc import Mapping

import msgspec

from controller.jobs.framework import names
from controller.jobs.framework.raw import (
    JobError,
    Json,
    annotations,
    labels,
    parsed_flag,
    parsed_integer,
    sequence,
    shown,
    text,
)
from controller.jobs.framework.settings import ClusterObjects, JobSettings
from controller.objects.meta import OwnerReference
from controller.scheduler.model.gates import FeatureGates
from inventory.api.names import ABOVE_MIN_REPLICAS, AWAITS_OWNER, FULL_PARALLELISM, GROWTH, MIN_REPLICAS

_MAX_INT32 = 2**31 - 1
MAX_DIGITS = 9
MAX_DEPTH = 10
"""Levels of owners above a job that are followed."""
_NOT_PASSED_ON = (ABOVE_MIN_REPLICAS, FULL_PARALLELISM, GROWTH)


class NestingTooDeepError(Exception):
    """The job has more levels of owners above it than are followed."""


def queue_name(job: Json) -> str:
    """The queue in the label, else in the older annotation; empty if the job names none."""
    return labels(job).get(names.QUEUE_NAME) or annotations(job).get(names.QUEUE_NAME, "")


def is_elastic(job: Json) -> bool:
    """Whether the job is marked as elastic by an annotation, or by a label of the same key."""
    for where, found in (("annotations", annotations(job)), ("labels", labels(job))):
        if names.ELASTIC_JOB in found:
            return parsed_flag(found[names.ELASTIC_JOB], f"metadata.{where}[{names.ELASTIC_JOB}]")
    return False


def priority_class(job: Json) -> str:
    return labels(job).get(names.PRIORITY_CLASS, "")


def prebuilt_workload(job: Json) -> str:
    """Name of the workload that was created for the job beforehand; empty if the job gets one of its own."""
    where, name = prebuilt_mark(job)
    if name and not names.is_object_name(name):
        raise JobError(f"{where}: expected a Workload's name, found {shown(name)}")
    return name


def prebuilt_mark(job: Json) -> tuple[str, str]:
    """The path of the mark that names a prebuilt workload, and the name as it stands there. The annotation goes before
    the label.
    """
    if name := annotations(job).get(names.PREBUILT_WORKLOAD, ""):
        return f"metadata.annotations[{names.PREBUILT_WORKLOAD}]", name
    return f"metadata.labels[{names.PREBUILT_WORKLOAD}]", labels(job).get(names.PREBUILT_WORKLOAD, "")


def max_exec_time_s(job: Json) -> int | None:
    value = labels(job).get(names.MAX_EXEC_TIME)
    if value is None:
        return None
    where = f"metadata.labels[{names.MAX_EXEC_TIME}]"
    seconds = parsed_integer(value, where)
    if not 1 <= seconds <= _MAX_INT32:
        raise JobError(f"{where}: expected a number of seconds above 0, found {shown(value)}")
    return seconds


def min_replicas(job: Json) -> int | None:
    """The number of replicas of a serving object that are not reclaimed first; None if it does not say."""
    value = annotations(job).get(MIN_REPLICAS)
    if value is None:
        return None
    where = f"metadata.annotations[{MIN_REPLICAS}]"
    if not (value.isascii() and value.isdecimal() and len(value) <= MAX_DIGITS):
        raise JobError(f"{where}: expected a number of replicas of at least 0, found {shown(value)}")
    return int(value)


def passed_on(job: Json, gates: FeatureGates) -> dict[str, str]:
    """The annotations that are copied to the workload unchanged."""
    keys = (names.ADMISSION_GATED_BY,) if gates.on("AdmissionGatedBy") else ()
    return {
        key: value
        for key, value in annotations(job).items()
        if (key in keys or key.startswith(names.PASSED_ON)) and key not in _NOT_PASSED_ON
    }


def controller_of(job: Json) -> OwnerReference | None:
    """The owner that manages the object; None if there is none, or nothing that could be one."""
    for item in sequence(job, "metadata", "ownerReferences"):
        try:
            owner = msgspec.convert(item, OwnerReference)
        except msgspec.ValidationError:
            continue
        if owner.controller:
            return owner
    return None


def awaits_owner(job: Json) -> bool:
    """Whether the job was created with an owner whose own controller did not make it."""
    return annotations(job).get(AWAITS_OWNER) == "true"


def is_managed(job: Json, namespace_labels: Mapping[str, str], settings: JobSettings) -> bool:
    if not settings.managed_jobs_namespace_selector.matches(namespace_labels):
        return False
    return bool(queue_name(job)) or settings.manage_jobs_without_queue_name


def managed_ancestor(job: Json, settings: JobSettings, cluster: ClusterObjects) -> str | None:
    """The uid of the topmost job above this one that is queued itself; None if there is none.

    An owner counts by its uid: a new object under an old name owns nothing. All are in the job's namespace, which the
    caller has matched. Raises NestingTooDeepError.
    """
    found = ancestor(job, settings, cluster)
    return None if found is None else found[0].uid


def ancestor(job: Json, settings: JobSettings, cluster: ClusterObjects) -> tuple[OwnerReference, Json] | None:
    """The topmost job above this one that is queued itself, with the reference to it; None if there is none."""
    namespace = text(job, "metadata", "namespace")
    topmost: tuple[OwnerReference, Json] | None = None
    current = job
    for _ in range(MAX_DEPTH):
        reference = controller_of(current)
        if reference is None:
            return topmost
        owner = cluster.owner(namespace, reference)
        if owner is None and cluster.has_workload(reference.uid):
            return (reference, {})  # of a kind that is queued by somebody else
        if owner is None or text(owner, "metadata", "uid") != reference.uid:
            return topmost
        is_job = cluster.is_job_kind(reference.api_version, reference.kind)
        if is_job and (queue_name(owner) or settings.manage_jobs_without_queue_name):
            topmost = (reference, owner)
        current = owner
    if controller_of(current) is None:
        return topmost
    raise NestingTooDeepError(f"expected at most {MAX_DEPTH} levels of owners above a job")
