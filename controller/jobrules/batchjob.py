"""Rules about ``batch/v1`` Jobs beside those of all kinds: partial admission and topology.

Source: Kueue's pkg/controller/jobs/job/job_webhook.go.
"""

from controller.engine.model.gates import FeatureGates
from controller.jobframework import names
from controller.jobframework.kind import Refusal
from controller.jobframework.marks import is_elastic
from controller.jobframework.raw import (
    JobError,
    Json,
    annotations,
    flag,
    integer,
    parallel_pods,
    parsed_flag,
    parsed_integer,
    shown,
    strings,
    text,
)
from controller.jobframework.topologyrequest import AskingPodSet, elastic_refusals, topology_refusals
from controller.jobrules import marks
from controller.jobrules.marks import annotation_path, forbidden, invalid


def created(job: Json, gates: FeatureGates) -> list[Refusal]:
    return [*marks.created(job, "Job", gates), *own(job, gates)]


def updated(old: Json, new: Json, gates: FeatureGates, *, has_default_queue: bool = False) -> list[Refusal]:
    was_suspended, is_suspended = (flag(job, "spec", "suspend") for job in (old, new))
    common = marks.updated(
        old,
        new,
        "Job",
        gates,
        was_suspended=was_suspended,
        is_suspended=is_suspended,
        has_default_queue=has_default_queue,
    )
    return [*own(new, gates), *_change(old, new, suspended=was_suspended), *common]


def own(job: Json, gates: FeatureGates) -> list[Refusal]:
    """What only Jobs are asked, on creation and after every change."""
    elastic = gates.on("ElasticJobsViaWorkloadSlices") and is_elastic(job)
    asking = AskingPodSet(
        name="main",
        path="spec.template.metadata.annotations",
        count=parallel_pods(job, "spec"),
        annotations=strings(job, "spec", "template", "metadata", "annotations"),
    )
    found = topology_refusals([asking], gates)
    return [
        *_min_parallelism(job, elastic=elastic),
        *_synchronized_completions(job),
        *found,
        *(elastic_refusals(asking) if elastic else ()),
    ]


def _min_parallelism(job: Json, *, elastic: bool) -> list[Refusal]:
    found, path = annotations(job).get(names.MIN_PARALLELISM), annotation_path(names.MIN_PARALLELISM)
    if found is None:
        return []
    if elastic:
        return [invalid(path, "an elastic job has no minimum of its own")]
    try:
        minimum = parsed_integer(found, "")
    except JobError:
        return [invalid(path, f"expected an integer, found {shown(found)}")]
    count = parallel_pods(job, "spec")
    if 0 < minimum < count:
        return []
    return [invalid(path, f"expected 1 to {count - 1} (below spec.parallelism), found {minimum}")]


def _synchronized_completions(job: Json) -> list[Refusal]:
    key = names.COMPLETIONS_EQUAL_PARALLELISM
    found, path = annotations(job).get(key), annotation_path(key)
    if found is None:
        return []
    try:
        wanted = parsed_flag(found, "")
    except JobError:
        return [invalid(path, f"expected true or false, found {shown(found)}")]
    if not wanted:
        return []
    if text(job, "spec", "completionMode") != "Indexed":
        return [invalid(path, "spec.completionMode must be Indexed, or completions cannot be changed")]
    parallelism, completions = (integer(job, "spec", key, default=1) for key in ("parallelism", "completions"))
    if completions != parallelism:
        return [invalid(path, f"spec.completions must equal spec.parallelism ({parallelism}), found {completions}")]
    return []


def _change(old: Json, new: Json, *, suspended: bool) -> list[Refusal]:
    """A Job that runs with fewer pods than it asked for keeps its size."""
    if suspended:
        return []
    found: list[Refusal] = []
    before, after = (integer(job, "spec", "parallelism", default=1) for job in (old, new))
    if names.MIN_PARALLELISM in annotations(new) and before != after:
        found.append(forbidden("spec.parallelism", "a Job of partial admission keeps it while it runs"))
    key = names.COMPLETIONS_EQUAL_PARALLELISM
    if annotations(old).get(key) != annotations(new).get(key):
        found.append(forbidden(annotation_path(key), "it may change only while the Job is suspended"))
    return found
