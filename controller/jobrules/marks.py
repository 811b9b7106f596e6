"""Rules about the queue's labels and annotations of any job. Source: Kueue's jobframework/validation.go.

A mark may stand in a label or, for some, in an annotation of the same key. Refusals are in the order of the checks;
a mark that an update leaves as it is was accepted before, and is looked at again only where Kueue does so.
"""

import re
from typing import Final

from controller.engine.model.gates import FeatureGates
from controller.jobframework import names
from controller.jobframework.kind import Refusal
from controller.jobframework.marks import prebuilt_mark
from controller.jobframework.raw import JobError, Json, annotations, labels, parsed_flag, parsed_integer, shown

PREBUILT_KINDS: Final = frozenset(
    {
        "AppWrapper",
        "Job",
        "JobSet",
        "MPIJob",
        "PaddleJob",
        "Pod",
        "PyTorchJob",
        "RayCluster",
        "RayJob",
        "RayService",
        "TFJob",
        "TrainJob",
        "XGBoostJob",
    }
)
"""Kinds whose jobs may name a Workload that was made for them."""
ELASTIC_KINDS: Final = frozenset({"Job", "RayCluster", "RayJob", "RayService"})

_MAX_GATE_NAME: Final = 63
_MAX_SECONDS: Final = 2**31 - 1
_DOMAIN_PATH: Final = re.compile(r"(?P<domain>[^/]+)/(?P<path>[A-Za-z0-9/\-._~%!$&'()*+,;=:]+)", re.ASCII)


def created(job: Json, kind: str, gates: FeatureGates) -> list[Refusal]:
    """``kind`` is the job's, as in its JSON."""
    return [
        *queue_name(job),
        *prebuilt_workload(job, kind, gates),
        *max_exec_time(job),
        *elastic(job, kind, gates),
        *admission_gates(job, gates),
    ]


def updated(
    old: Json,
    new: Json,
    kind: str,
    gates: FeatureGates,
    *,
    was_suspended: bool,
    is_suspended: bool,
    has_default_queue: bool = False,
) -> list[Refusal]:
    """``has_default_queue``: the namespace has a LocalQueue ``default``."""
    return [
        *queue_change(old, new, is_suspended=is_suspended, has_default_queue=has_default_queue),
        *_prebuilt_change(old, new, kind, gates, is_suspended=is_suspended),
        *_exec_time_change(old, new, both_suspended=was_suspended and is_suspended),
        *priority_class_change(old, new, is_suspended=is_suspended),
        *_elastic_change(old, new, kind, gates),
        *admission_gates_change(old, new, gates),
    ]


def queue_name(job: Json) -> list[Refusal]:
    found = labels(job).get(names.QUEUE_NAME)
    if not found or names.is_object_name(found):
        return []
    return [invalid(label_path(names.QUEUE_NAME), f"expected the name of a LocalQueue, found {shown(found)}")]


def queue_change(old: Json, new: Json, *, is_suspended: bool, has_default_queue: bool = False) -> list[Refusal]:
    before, after = labels(old).get(names.QUEUE_NAME, ""), labels(new).get(names.QUEUE_NAME, "")
    path = label_path(names.QUEUE_NAME)
    if before and not after and has_default_queue:
        return [invalid(path, "expected a queue: the namespace has a default one, so no job goes without")]
    if before != after and not is_suspended:
        sentence = f"it may change only while the job is suspended; found {shown(after)}, was {shown(before)}"
        return [invalid(path, sentence)]
    return []


def prebuilt_workload(job: Json, kind: str, gates: FeatureGates) -> list[Refusal]:
    path, found = prebuilt_name(job, gates)
    if not found:
        return []
    if kind not in PREBUILT_KINDS:
        return [invalid(path, f"a {kind} cannot name a workload that was made for it")]
    return [] if names.is_object_name(found) else [invalid(path, f"expected a Workload's name, found {shown(found)}")]


def prebuilt_name(job: Json, gates: FeatureGates) -> tuple[str, str]:
    """Where it stands, and the name; empty where there is none."""
    if gates.on("WorkloadIdentifierAnnotations"):
        return prebuilt_mark(job)
    return label_path(names.PREBUILT_WORKLOAD), labels(job).get(names.PREBUILT_WORKLOAD, "")


def _prebuilt_change(old: Json, new: Json, kind: str, gates: FeatureGates, *, is_suspended: bool) -> list[Refusal]:
    """An elastic job goes from one Workload to the next while it runs."""
    (_, before), (path, after) = prebuilt_name(old, gates), prebuilt_name(new, gates)
    if before != after and not is_suspended and not _is_elastic(new, gates):
        return [invalid(path, f"it may change only while the job is suspended; found {shown(after)}")]
    return prebuilt_workload(new, kind, gates)


def max_exec_time(job: Json) -> list[Refusal]:
    found = labels(job).get(names.MAX_EXEC_TIME)
    if found is None:
        return []
    try:
        if 1 <= parsed_integer(found, "") <= _MAX_SECONDS:
            return []
    except JobError:
        pass
    return [invalid(label_path(names.MAX_EXEC_TIME), f"expected a number of seconds above 0, found {shown(found)}")]


def _exec_time_change(old: Json, new: Json, *, both_suspended: bool) -> list[Refusal]:
    before, after = labels(old).get(names.MAX_EXEC_TIME), labels(new).get(names.MAX_EXEC_TIME)
    if before == after or both_suspended:
        return []
    return [invalid(label_path(names.MAX_EXEC_TIME), "it may change only while the job is suspended")]


def priority_class_change(old: Json, new: Json, *, is_suspended: bool) -> list[Refusal]:
    before, after = labels(old).get(names.PRIORITY_CLASS, ""), labels(new).get(names.PRIORITY_CLASS, "")
    path = label_path(names.PRIORITY_CLASS)
    if before and not after:
        return [invalid(path, "it may be changed, but not removed")]
    if after and not before and not is_suspended:
        return [invalid(path, "it may be added only while the job is suspended")]
    return []


def elastic(job: Json, kind: str, gates: FeatureGates) -> list[Refusal]:
    if kind in ELASTIC_KINDS or not _is_elastic(job, gates):
        return []
    return [forbidden(annotation_path(names.ELASTIC_JOB), f"a {kind} cannot be an elastic job")]


def _is_elastic(job: Json, gates: FeatureGates) -> bool:
    try:
        found = annotations(job).get(names.ELASTIC_JOB)
        return gates.on("ElasticJobsViaWorkloadSlices") and found is not None and parsed_flag(found, "")
    except JobError:
        return False


def _elastic_change(old: Json, new: Json, kind: str, gates: FeatureGates) -> list[Refusal]:
    if not gates.on("ElasticJobsViaWorkloadSlices"):
        return []
    if _is_elastic(old, gates) != _is_elastic(new, gates):
        return [invalid(annotation_path(names.ELASTIC_JOB), "it does not change")]
    return elastic(new, kind, gates)


def admission_gates(job: Json, gates: FeatureGates) -> list[Refusal]:
    """Names of the controllers that must agree before the job queues, by commas, each as ``example.com/name``."""
    found = annotations(job).get(names.ADMISSION_GATED_BY, "")
    if not found or not gates.on("AdmissionGatedBy"):
        return []
    path, listed = annotation_path(names.ADMISSION_GATED_BY), gate_names(found)
    refusals: list[Refusal] = []
    for index, gate in enumerate(listed):
        if len(gate) > _MAX_GATE_NAME:
            refusals.append(_too_long(path, f"a gate has at most {_MAX_GATE_NAME} characters, found {len(gate)}"))
        elif gate in listed[:index]:
            refusals.append(invalid(path, f"each gate at most once, found {shown(gate)} again"))
        elif not _is_domain_path(gate):
            refusals.append(invalid(path, f"expected gates such as example.com/name, found {shown(gate)}"))
    return refusals


def gate_names(value: str) -> list[str]:
    return [gate.strip() for gate in value.split(",")]


def admission_gates_change(old: Json, new: Json, gates: FeatureGates) -> list[Refusal]:
    """Gates are only ever taken off."""
    if not gates.on("AdmissionGatedBy"):
        return []
    before, after = (annotations(job).get(names.ADMISSION_GATED_BY, "") for job in (old, new))
    added = set(gate_names(after)) - set(gate_names(before)) if after else set()
    if not added:
        return []
    path = annotation_path(names.ADMISSION_GATED_BY)
    return [forbidden(path, f"gates may only be removed once the object is there; found {shown(min(added))}")]


def _is_domain_path(gate: str) -> bool:
    match = _DOMAIN_PATH.fullmatch(gate)
    return match is not None and names.is_object_name(match["domain"])


def label_path(key: str) -> str:
    return f"metadata.labels[{key}]"


def annotation_path(key: str) -> str:
    return f"metadata.annotations[{key}]"


def invalid(field: str, sentence: str) -> Refusal:
    return Refusal(type="Invalid", field=field, sentence=sentence)


def forbidden(field: str, sentence: str) -> Refusal:
    return Refusal(type="Forbidden", field=field, sentence=sentence)


def required(field: str, sentence: str) -> Refusal:
    return Refusal(type="Required", field=field, sentence=sentence)


def _too_long(field: str, sentence: str) -> Refusal:
    return Refusal(type="TooLong", field=field, sentence=sentence)
