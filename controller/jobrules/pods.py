"""Rules about plain pods and groups of pods. Source: Kueue's pkg/controller/jobs/pod/pod_webhook.go."""

from controller.engine.model.gates import FeatureGates
from controller.jobframework import names
from controller.jobframework.kind import Refusal
from controller.jobframework.marks import controller_of
from controller.jobframework.podview import GROUP_NAME, GROUP_TOTAL, MANAGED, RETRIABLE, SUSPENDING_PARENT
from controller.jobframework.raw import JobError, Json, annotations, labels, parsed_integer, sequence, shown
from controller.jobframework.topologyrequest import AskingPodSet, refusals
from controller.jobrules import marks
from controller.jobrules.marks import annotation_path, forbidden, invalid, label_path, required

_NOT_RETRIABLE = "false"


def created(pod: Json, gates: FeatureGates) -> list[Refusal]:
    return [*marks.created(pod, "Pod", gates), *_common(pod, gates)]


def updated(old: Json, new: Json, gates: FeatureGates, *, has_default_queue: bool = False) -> list[Refusal]:
    """A pod behind a gate counts as suspended."""
    common = marks.updated(
        old,
        new,
        "Pod",
        gates,
        was_suspended=_is_gated(old),
        is_suspended=_is_gated(new),
        has_default_queue=has_default_queue,
    )
    return [*common, *_common(new, gates), *_group_change(old, new, gates), *_retriable_change(old, new)]


def warnings(pod: Json, is_job_kind: bool) -> list[str]:
    """``is_job_kind``: its controller is a job of a kind that is queued as a whole."""
    marked = MANAGED in labels(pod) and SUSPENDING_PARENT not in annotations(pod)
    if controller_of(pod) is None or not is_job_kind or not marked:
        return []
    return [f"{label_path(MANAGED)}: the pod belongs to a job that is queued as a whole"]


def group_name(pod: Json, gates: FeatureGates) -> tuple[str, str]:
    """Where it stands, and the name; empty for a pod in no group. An annotation goes before the label."""
    given = annotations(pod).get(GROUP_NAME, "")
    if given and gates.on("WorkloadIdentifierAnnotations"):
        return annotation_path(GROUP_NAME), given
    return label_path(GROUP_NAME), labels(pod).get(GROUP_NAME, "")


def _is_gated(pod: Json) -> bool:
    return any(isinstance(gate, dict) for gate in sequence(pod, "spec", "schedulingGates"))


def _common(pod: Json, gates: FeatureGates) -> list[Refusal]:
    found: list[Refusal] = []
    managed = labels(pod).get(MANAGED, "true")
    if managed != "true":
        found.append(forbidden(label_path(MANAGED), f'expected "true", found {shown(managed)}'))
    if gates.on("TopologyAwareScheduling"):
        asking = AskingPodSet(name="", path="metadata.annotations", count=1, annotations=annotations(pod))
        found += refusals(asking, gates)
    return found + _group(pod, gates)


def _group(pod: Json, gates: FeatureGates) -> list[Refusal]:
    path, name = group_name(pod, gates)
    total, total_path = annotations(pod).get(GROUP_TOTAL), annotation_path(GROUP_TOTAL)
    if not name:
        return [] if total is None else [required(path, f"{GROUP_TOTAL} is set without a group")]
    found: list[Refusal] = []
    if not names.is_object_name(name):
        found.append(invalid(path, f"expected a Workload's name, found {shown(name)}"))
    prebuilt_path, prebuilt = marks.prebuilt_name(pod, gates)
    if prebuilt and prebuilt != name:
        found.append(invalid(prebuilt_path, f"expected the name of the group, {shown(name)}, found {shown(prebuilt)}"))
    if total is None:
        return [*found, required(total_path, f"expected the number of pods of group {shown(name)}")]
    try:
        if parsed_integer(total, "") >= 1:
            return found
    except JobError:
        pass
    return [*found, invalid(total_path, f"expected at least 1, found {shown(total)}")]


def _group_change(old: Json, new: Json, gates: FeatureGates) -> list[Refusal]:
    (_, before), (path, after) = group_name(old, gates), group_name(new, gates)
    return [] if before == after else [invalid(path, f"it does not change; found {shown(after)}, was {shown(before)}")]


def _retriable_change(old: Json, new: Json) -> list[Refusal]:
    was, now = (annotations(pod).get(RETRIABLE) for pod in (old, new))
    if was != _NOT_RETRIABLE or now == _NOT_RETRIABLE:
        return []
    return [forbidden(annotation_path(RETRIABLE), "a group that is not retriable does not become so")]
