"""Rules about plain pods and groups of pods. Source: Kueue's pkg/controller/reconcile/jobs/pod/pod_webhook.go."""

from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.kind import Refusal, Review, Rule, refused
from controller.jobs.framework.marks import controller_of
from controller.jobs.framework.podview import GROUP_NAME, GROUP_TOTAL, MANAGED, RETRIABLE, SUSPENDING_PARENT
from controller.jobs.framework.raw import JobError, Json, annotations, labels, parsed_integer, sequence, shown
from controller.jobs.framework.topologyrequest import AskingPodSet, refusals
from controller.jobs.rules import cel, marks, topology
from controller.jobs.rules.fields import annotation_path, forbidden, invalid, label_path, required
from controller.scheduler.model.gates import FeatureGates

_NOT_RETRIABLE: Final = "false"
_TOTAL: Final = annotation_path(GROUP_TOTAL)
_WITHOUT_GROUP: Final = f"{GROUP_TOTAL} is set without a group"
_STAYS_SO: Final = "a group that is not retriable does not become so"


def rules() -> tuple[Rule, ...]:
    """The rules about pods. A pod behind a gate counts as suspended."""
    return (
        *marks.rules("Pod", ""),
        Rule(refused=_managed, says={"managed": _managed_says()}),
        Rule(refused=_topology, says=topology.says_of_each()),
        Rule(refused=_group, says=_group_says()),
        Rule(refused=_retriable_change, says={"retriableChange": _retriable_says()}),
        Rule(refused=_group_change, says={"groupChange": _group_change_says()}),
    )


POD_SETS: Final = "[{}]".format(
    topology.pod_set("''", "'metadata.annotations'", "1", cel.field("object", "metadata", "annotations"))
)
"""The pod sets of a pod by itself, in CEL: only the controller knows the pods and pod sets of its group."""


def created(pod: Json, gates: FeatureGates) -> list[Refusal]:
    return list(refused(rules(), Review(new=pod, gates=gates)))


def updated(old: Json, new: Json, gates: FeatureGates, *, has_default_queue: bool = False) -> list[Refusal]:
    review = Review(
        new=new,
        before=old,
        gates=gates,
        was_suspended=_is_gated(old),
        is_suspended=_is_gated(new),
        has_default_queue=has_default_queue,
    )
    return list(refused(rules(), review))


def warnings(pod: Json, is_job_kind: bool) -> list[str]:
    """Warnings about a pod. ``is_job_kind``: its controller is a job of a kind that is queued as a whole."""
    marked = MANAGED in labels(pod) and SUSPENDING_PARENT not in annotations(pod)
    if controller_of(pod) is None or not is_job_kind or not marked:
        return []
    return [f"{label_path(MANAGED)}: the pod belongs to a job that is queued as a whole"]


def group_name(pod: Json, gates: FeatureGates) -> tuple[str, str]:
    """The path of the mark with the group's name, and the name; empty for a pod in no group. An annotation goes before
    the label.
    """
    given = annotations(pod).get(GROUP_NAME, "")
    if given and gates.on("WorkloadIdentifierAnnotations"):
        return annotation_path(GROUP_NAME), given
    return label_path(GROUP_NAME), labels(pod).get(GROUP_NAME, "")


def _is_gated(pod: Json) -> bool:
    return any(isinstance(gate, dict) for gate in sequence(pod, "spec", "schedulingGates"))


def _managed(review: Review) -> list[Refusal]:
    managed = labels(review.new).get(MANAGED, "true")
    return [] if managed == "true" else [forbidden(label_path(MANAGED), f'expected "true", found {shown(managed)}')]


def _managed_says() -> str:
    found = f"variables.labels[?{cel.quoted(MANAGED)}].orValue('true')"
    sentence = cel.text(cel.quoted(f'{label_path(MANAGED)}: expected "true", found '), cel.shown(found))
    return cel.when(f"{found} != 'true'", sentence)


def _topology(review: Review) -> list[Refusal]:
    if not review.gates.on("TopologyAwareScheduling"):
        return []
    pod = AskingPodSet(name="", path="metadata.annotations", count=1, annotations=annotations(review.new))
    return refusals(pod, review.gates)


def _group(review: Review) -> list[Refusal]:
    pod, gates = review.new, review.gates
    path, name = group_name(pod, gates)
    total = annotations(pod).get(GROUP_TOTAL)
    if not name:
        return [] if total is None else [required(path, _WITHOUT_GROUP)]
    refusals: list[Refusal] = []
    if not names.is_object_name(name):
        refusals.append(invalid(path, f"expected a Workload's name, found {shown(name)}"))
    prebuilt_path, prebuilt = marks.prebuilt_name(pod, gates)
    if prebuilt and prebuilt != name:
        refusals.append(
            invalid(prebuilt_path, f"expected the name of the group, {shown(name)}, found {shown(prebuilt)}")
        )
    if total is None:
        return [*refusals, required(_TOTAL, f"expected the number of pods of group {shown(name)}")]
    try:
        if parsed_integer(total, "") >= 1:
            return refusals
    except JobError:
        pass
    return [*refusals, invalid(_TOTAL, f"expected at least 1, found {shown(total)}")]


def _group_says() -> dict[str, str]:
    path, name = marks.marked(GROUP_NAME)
    prebuilt_path, prebuilt = marks.marked(names.PREBUILT_WORKLOAD)
    total = cel.key("variables.annotations", GROUP_TOTAL)
    has_total = cel.has_key("variables.annotations", GROUP_TOTAL)
    least = f"{cel.is_integer(total)} && int({total}) >= 1"
    wrong = cel.text(cel.quoted(f"{_TOTAL}: expected at least 1, found "), cel.shown(total))
    missing = cel.text(cel.quoted(f"{_TOTAL}: expected the number of pods of group "), cel.shown(name))
    other = cel.text(
        prebuilt_path,
        cel.quoted(": expected the name of the group, "),
        cel.shown(name),
        cel.quoted(", found "),
        cel.shown(prebuilt),
    )
    return {
        "totalAlone": cel.when(f"{name} == '' && {has_total}", cel.text(path, cel.quoted(f": {_WITHOUT_GROUP}"))),
        "groupName": cel.when(
            f"{name} != '' && !{cel.is_object_name(name)}",
            cel.text(path, cel.quoted(": expected a Workload's name, found "), cel.shown(name)),
        ),
        "groupPrebuilt": cel.when(f"{name} != '' && {prebuilt} != '' && {prebuilt} != {name}", other),
        "groupTotal": cel.when(
            f"{name} == ''", "''", cel.when(f"!({has_total})", missing, cel.when(f"!({least})", wrong))
        ),
    }


def _group_change(review: Review) -> list[Refusal]:
    """Refusals of a changed group. A pod in no group may get one later."""
    if review.before is None:
        return []
    (_, before), (path, after) = (group_name(pod, review.gates) for pod in (review.before, review.new))
    if before in ("", after):
        return []
    return [invalid(path, f"it does not change; found {shown(after)}, was {shown(before)}")]


def _group_change_says() -> str:
    (path, after), (_, before) = marks.marked(GROUP_NAME), marks.marked(GROUP_NAME, "Before")
    sentence = cel.text(
        path, cel.quoted(": it does not change; found "), cel.shown(after), "', was '", cel.shown(before)
    )
    return cel.when(f"variables.updated && {before} != '' && {before} != {after}", sentence)


def _retriable_change(review: Review) -> list[Refusal]:
    was = None if review.before is None else annotations(review.before).get(RETRIABLE)
    if was != _NOT_RETRIABLE or annotations(review.new).get(RETRIABLE) == _NOT_RETRIABLE:
        return []
    if not group_name(review.new, review.gates)[1]:
        return []
    return [forbidden(annotation_path(RETRIABLE), _STAYS_SO)]


def _retriable_says() -> str:
    was, now = (cel.key(f"variables.{where}", RETRIABLE) for where in ("annotationsBefore", "annotations"))
    _, group = marks.marked(GROUP_NAME)
    changed = f"variables.updated && {was} == '{_NOT_RETRIABLE}' && {now} != '{_NOT_RETRIABLE}' && {group} != ''"
    return cel.when(changed, cel.says(annotation_path(RETRIABLE), _STAYS_SO))
