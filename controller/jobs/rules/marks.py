"""Rules about the queue's labels and annotations of any job. Source: Kueue's jobframework/validation.go.

A mark may stand in a label or, for some, in an annotation of the same key. Refusals are in the order of the checks; a
mark that an update does not change was accepted before, and is checked again only if Kueue does so.
"""

from functools import cache, partial
from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.kind import Refusal, Review, Rule, refused
from controller.jobs.framework.marks import prebuilt_mark
from controller.jobs.framework.raw import JobError, Json, annotations, labels, parsed_flag, parsed_integer, shown
from controller.jobs.rules import cel, gatedby
from controller.jobs.rules.fields import annotation_path, forbidden, invalid, label_path
from controller.scheduler.model.gates import FeatureGates

PREBUILT_KINDS: Final = frozenset(
    {
        ("", "Pod"),
        ("batch", "Job"),
        ("jobset.x-k8s.io", "JobSet"),
        ("kubeflow.org", "MPIJob"),
        ("kubeflow.org", "PaddleJob"),
        ("kubeflow.org", "PyTorchJob"),
        ("kubeflow.org", "TFJob"),
        ("kubeflow.org", "XGBoostJob"),
        ("ray.io", "RayCluster"),
        ("ray.io", "RayJob"),
        ("ray.io", "RayService"),
        ("trainer.kubeflow.org", "TrainJob"),
        ("workload.codeflare.dev", "AppWrapper"),
    }
)
"""Kinds, each with its group before it, whose jobs may name a prebuilt Workload."""
ELASTIC_KINDS: Final = frozenset(
    {("batch", "Job"), ("ray.io", "RayCluster"), ("ray.io", "RayJob"), ("ray.io", "RayService")}
)

_MAX_SECONDS: Final = 2**31 - 1
_NOT_REMOVED: Final = "it may be changed, but not removed"
_NO_CHANGE: Final = "it does not change"


@cache
def rules(kind: str, group: str) -> tuple[Rule, ...]:
    """The rules about marks, cached: made in 30 us, for each request of a webhook. ``kind`` is the job's, as in its
    JSON; ``group`` is that of the API, since kinds of two groups share names.
    """
    return (
        queue_name_rule(),
        Rule(refused=partial(_queue_change, kind=kind), says={"queueChange": _queue_change_says(kind)}),
        prebuilt_rule(kind, group),
        Rule(refused=partial(_exec_time, kind=kind), says=_exec_time_says(kind)),
        Rule(refused=partial(_priority_class_change, kind=kind), says={"priorityChange": _priority_says(kind)}),
        elastic_rule(kind, group),
        gatedby.rule(),
    )


def created(job: Json, kind: str, group: str, gates: FeatureGates) -> list[Refusal]:
    return list(refused(rules(kind, group), Review(new=job, gates=gates)))


def updated(
    old: Json,
    new: Json,
    kind: str,
    group: str,
    gates: FeatureGates,
    *,
    was_suspended: bool,
    is_suspended: bool,
    has_default_queue: bool = False,
) -> list[Refusal]:
    """The refusals of a change. ``has_default_queue``: the namespace has a LocalQueue ``default``."""
    review = Review(
        new=new,
        before=old,
        gates=gates,
        was_suspended=was_suspended,
        is_suspended=is_suspended,
        has_default_queue=has_default_queue,
    )
    return list(refused(rules(kind, group), review))


# -- the queue's name


def _mark(review: Review, key: str) -> tuple[str | None, str | None]:
    """The label before and after; before is None for a new job."""
    before = None if review.before is None else labels(review.before).get(key)
    return before, labels(review.new).get(key)


def queue_name_rule(*, if_kept: bool = False) -> Rule:
    """The rule about the queue's name. ``if_kept``: a name that a change leaves as it is is checked as well."""
    return Rule(refused=partial(_queue_name, if_kept=if_kept), says={"queueName": _queue_name_says(if_kept=if_kept)})


def _queue_name(review: Review, *, if_kept: bool) -> list[Refusal]:
    before, after = _mark(review, names.QUEUE_NAME)
    if not after or (after == before and not if_kept) or names.is_object_name(after):
        return []
    return [invalid(label_path(names.QUEUE_NAME), f"expected the name of a LocalQueue, found {shown(after)}")]


def _queue_name_says(*, if_kept: bool) -> str:
    queue = "variables.queue"
    sentence = cel.text(
        cel.quoted(f"{label_path(names.QUEUE_NAME)}: expected the name of a LocalQueue, found "), cel.shown(queue)
    )
    new = f"{queue} != ''" if if_kept else f"{queue} != '' && {queue} != variables.queueBefore"
    return cel.when(f"{new} && !{cel.is_object_name(queue)}", sentence)


def _queue_change(review: Review, kind: str) -> list[Refusal]:
    if review.before is None:
        return []
    return queue_change(
        review.before,
        review.new,
        kind,
        is_suspended=review.is_suspended,
        has_default_queue=review.has_default_queue,
    )


def queue_change(
    old: Json, new: Json, kind: str, *, is_suspended: bool, has_default_queue: bool = False
) -> list[Refusal]:
    before, after = labels(old).get(names.QUEUE_NAME, ""), labels(new).get(names.QUEUE_NAME, "")
    path = label_path(names.QUEUE_NAME)
    if before and not after and has_default_queue:
        return [invalid(path, "expected a queue: the namespace has a default one, so no job goes without")]
    if before != after and not is_suspended:
        sentence = f"{_only_suspended(kind)}; found {shown(after)}, was {shown(before)}"
        return [invalid(path, sentence)]
    return []


def _queue_change_says(kind: str) -> str:
    """Sentences about a changed queue, in CEL. A policy does not know whether the namespace has a default queue."""
    sentence = cel.text(
        cel.quoted(f"{label_path(names.QUEUE_NAME)}: {_only_suspended(kind)}; found "),
        cel.shown("variables.queue"),
        "', was '",
        cel.shown("variables.queueBefore"),
    )
    return cel.when("variables.updated && !variables.suspended && variables.queue != variables.queueBefore", sentence)


def _only_suspended(kind: str) -> str:
    return f"it may change only while the {kind} is suspended"


# -- a Workload made beforehand


def prebuilt_rule(kind: str, group: str) -> Rule:
    may = (group, kind) in PREBUILT_KINDS
    return Rule(refused=partial(_prebuilt, kind=kind, may=may), says=_prebuilt_says(kind, may=may))


def _prebuilt(review: Review, kind: str, *, may: bool) -> list[Refusal]:
    """Refusals about the prebuilt Workload. An elastic job may change from one Workload to the next while it runs."""
    path, after = prebuilt_name(review.new, review.gates)
    if review.before is not None and not review.is_suspended and not is_elastic(review.new, review.gates):
        _, before = prebuilt_name(review.before, review.gates)
        if before != after:
            return [invalid(path, f"{_only_suspended(kind)}; found {shown(after)}")]
    if not after:
        return []
    if not may:
        return [invalid(path, f"a {kind} cannot name a workload that was made for it")]
    return [] if names.is_object_name(after) else [invalid(path, f"expected a Workload's name, found {shown(after)}")]


def prebuilt_name(job: Json, gates: FeatureGates) -> tuple[str, str]:
    """The path of the mark that names a prebuilt Workload, and the name; empty if there is none."""
    if gates.on("WorkloadIdentifierAnnotations"):
        return prebuilt_mark(job)
    return label_path(names.PREBUILT_WORKLOAD), labels(job).get(names.PREBUILT_WORKLOAD, "")


def marked(key: str, when: str = "") -> tuple[str, str]:
    """The path of a mark of either form and its value, in CEL; ``when`` is empty or "Before"."""
    by_annotation = (
        f"variables.gates.WorkloadIdentifierAnnotations && {cel.key(f'variables.annotations{when}', key)} != ''"
    )
    path = f"({by_annotation} ? {cel.quoted(annotation_path(key))} : {cel.quoted(label_path(key))})"
    annotated, labelled = (cel.key(f"variables.{where}{when}", key) for where in ("annotations", "labels"))
    return path, f"({by_annotation} ? {annotated} : {labelled})"


def _prebuilt_says(kind: str, *, may: bool) -> dict[str, str]:
    path, after = marked(names.PREBUILT_WORKLOAD)
    _, before = marked(names.PREBUILT_WORKLOAD, "Before")
    changed = f"{after} != {before}"
    elastic = "variables.gates.ElasticJobsViaWorkloadSlices && variables.elasticMarked"
    says = {
        "prebuiltChange": cel.when(
            f"variables.updated && !variables.suspended && !({elastic}) && {changed}",
            cel.text(path, cel.quoted(f": {_only_suspended(kind)}; found "), cel.shown(after)),
        )
    }
    if not may:
        sentence = cel.text(path, cel.quoted(f": a {kind} cannot name a workload that was made for it"))
        return {**says, "prebuilt": cel.when(f"{after} != ''", sentence)}
    sentence = cel.text(path, cel.quoted(": expected a Workload's name, found "), cel.shown(after))
    return {**says, "prebuilt": cel.when(f"{after} != '' && !{cel.is_object_name(after)}", sentence)}


# -- the longest time that it may run


def _exec_time(review: Review, kind: str) -> list[Refusal]:
    before, after = _mark(review, names.MAX_EXEC_TIME)
    path = label_path(names.MAX_EXEC_TIME)
    if review.before is not None and before == after:
        return []
    if review.before is not None and not (review.was_suspended and review.is_suspended):
        return [invalid(path, _only_suspended(kind))]
    try:
        if after is None or 1 <= parsed_integer(after, "") <= _MAX_SECONDS:
            return []
    except JobError:
        pass
    return [invalid(path, f"expected a whole number of seconds above 0, found {shown(after)}")]


def _exec_time_says(kind: str) -> dict[str, str]:
    path, key = label_path(names.MAX_EXEC_TIME), cel.quoted(names.MAX_EXEC_TIME)
    now, was = f"variables.labels[?{key}]", f"variables.labelsBefore[?{key}]"
    value = f"{now}.orValue('')"
    in_order = f"{cel.is_integer(value)} && int({value}) >= 1 && int({value}) <= {_MAX_SECONDS}"
    return {
        "execTimeChange": cel.when(
            f"variables.updated && {now} != {was} && !(variables.wasSuspended && variables.suspended)",
            cel.says(path, _only_suspended(kind)),
        ),
        "execTime": cel.when(
            f"{now}.hasValue() && !(variables.updated && {now} == {was}) && !({in_order})",
            cel.text(cel.quoted(f"{path}: expected a whole number of seconds above 0, found "), cel.shown(value)),
        ),
    }


# -- its priority


def _priority_class_change(review: Review, kind: str) -> list[Refusal]:
    if review.before is None:
        return []
    return priority_class_change(review.before, review.new, kind, is_suspended=review.is_suspended)


def priority_class_change(old: Json, new: Json, kind: str, *, is_suspended: bool) -> list[Refusal]:
    before, after = labels(old).get(names.PRIORITY_CLASS, ""), labels(new).get(names.PRIORITY_CLASS, "")
    path = label_path(names.PRIORITY_CLASS)
    if before and not after:
        return [invalid(path, _NOT_REMOVED)]
    if after and not before and not is_suspended:
        return [invalid(path, f"it may be added only while the {kind} is suspended")]
    return []


def _priority_says(kind: str) -> str:
    path = label_path(names.PRIORITY_CLASS)
    before, after = (cel.key(f"variables.{where}", names.PRIORITY_CLASS) for where in ("labelsBefore", "labels"))
    added = cel.when(
        f"variables.updated && {before} == '' && {after} != '' && !variables.suspended",
        cel.says(path, f"it may be added only while the {kind} is suspended"),
    )
    return cel.when(f"variables.updated && {before} != '' && {after} == ''", cel.says(path, _NOT_REMOVED), added)


# -- elastic jobs


def elastic_rule(kind: str, group: str) -> Rule:
    """The rule about elastic jobs: for new jobs, and for changed ones if the mark itself may not change."""
    path, off = annotation_path(names.ELASTIC_JOB), "!variables.gates.ElasticJobsViaWorkloadSlices"
    says = {
        "elasticChange": cel.when(
            f"{off}", "''", cel.when(
                "variables.updated && variables.elasticMarked != variables.elasticBefore",
                cel.says(path, _NO_CHANGE),
            ),
        )
    }  # fmt: skip
    may = (group, kind) in ELASTIC_KINDS
    if not may:
        says["elasticKind"] = cel.when(off, "''", cel.when("variables.elasticMarked", elastic_says(kind)))
    return Rule(refused=partial(_elastic, kind=kind, may=may), says=says)


def _elastic(review: Review, kind: str, *, may: bool) -> list[Refusal]:
    now = is_elastic(review.new, review.gates)
    if review.before is not None and is_elastic(review.before, review.gates) != now:
        return [invalid(annotation_path(names.ELASTIC_JOB), _NO_CHANGE)]
    return [] if may or not now else elastic(kind)


def elastic(kind: str) -> list[Refusal]:
    return [forbidden(annotation_path(names.ELASTIC_JOB), f"a {kind} cannot be an elastic job")]


def elastic_says(kind: str) -> str:
    return cel.says(annotation_path(names.ELASTIC_JOB), f"a {kind} cannot be an elastic job")


def is_elastic(job: Json, gates: FeatureGates) -> bool:
    try:
        found = annotations(job).get(names.ELASTIC_JOB)
        return gates.on("ElasticJobsViaWorkloadSlices") and found is not None and parsed_flag(found, "")
    except JobError:
        return False
