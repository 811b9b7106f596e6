"""Rules about ``batch/v1`` Jobs beside those of all kinds: partial admission and topology.

Source: Kueue's pkg/controller/reconcile/jobs/job/job_webhook.go.
"""

from collections.abc import Iterator
from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.kind import Refusal, Review, Rule, refused
from controller.jobs.framework.marks import is_elastic
from controller.jobs.framework.raw import (
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
from controller.jobs.framework.topologyrequest import AskingPodSet, elastic_refusals, topology_refusals
from controller.jobs.rules import cel, marks, topology
from controller.jobs.rules.fields import annotation_path, forbidden, invalid
from controller.jobs.rules.topology import parallel_pods_in_cel, pod_set
from controller.scheduler.model.gates import FeatureGates

_PATH: Final = "spec.template.metadata.annotations"
_ANNOTATIONS: Final = cel.field("object", "spec", "template", "metadata", "annotations")
_COUNT: Final = parallel_pods_in_cel(cel.field("object", "spec"))
_PARALLELISM: Final = f"{cel.field('object', 'spec', 'parallelism')}.orValue(1)"
_COMPLETIONS: Final = f"{cel.field('object', 'spec', 'completions')}.orValue(1)"
_MINIMUM, _EQUAL = (annotation_path(key) for key in (names.MIN_PARALLELISM, names.COMPLETIONS_EQUAL_PARALLELISM))
_LEAST: Final = 2
"""The fewest pods of a Job that may start with fewer."""
_NOT_ELASTIC: Final = "an elastic job has no minimum of its own"
_INDEXED: Final = "spec.completionMode must be Indexed, or completions cannot be changed"
_KEEPS_SIZE: Final = "a Job of partial admission keeps it while it runs"
_WHILE_SUSPENDED: Final = "it may change only while the Job is suspended"


def created(job: Json, gates: FeatureGates) -> list[Refusal]:
    return list(refused(rules(), Review(new=job, gates=gates)))


def updated(old: Json, new: Json, gates: FeatureGates, *, has_default_queue: bool = False) -> list[Refusal]:
    was_suspended, is_suspended = (flag(job, "spec", "suspend") for job in (old, new))
    review = Review(
        new=new,
        before=old,
        gates=gates,
        was_suspended=was_suspended,
        is_suspended=is_suspended,
        has_default_queue=has_default_queue,
    )
    return list(refused(rules(), review))


def rules() -> tuple[Rule, ...]:
    topology_says = {**topology.says(), **topology.elastic_says()}
    return (*OWN, Rule(refused=_topology, says=topology_says), *marks.rules("Job", "batch"))


POD_SETS: Final = f"[{pod_set(cel.quoted('main'), cel.quoted(_PATH), _COUNT, _ANNOTATIONS)}]"


def _topology(review: Review) -> list[Refusal]:
    job, gates = review.new, review.gates
    asking = AskingPodSet(
        name="main",
        path=_PATH,
        count=parallel_pods(job, "spec"),
        annotations=strings(job, "spec", "template", "metadata", "annotations"),
    )
    elastic = gates.on("ElasticJobsViaWorkloadSlices") and is_elastic(job)
    return [*topology_refusals([asking], gates), *(elastic_refusals(asking) if elastic else ())]


# -- partial admission


def _min_parallelism(review: Review) -> Iterator[Refusal]:
    job = review.new
    value = annotations(job).get(names.MIN_PARALLELISM)
    if value is None:
        return
    if review.gates.on("ElasticJobsViaWorkloadSlices") and is_elastic(job):
        yield invalid(_MINIMUM, _NOT_ELASTIC)
        return
    try:
        minimum = parsed_integer(value, "")
    except JobError:
        yield invalid(_MINIMUM, f"expected an integer, found {shown(value)}")
        return
    parallelism, count = integer(job, "spec", "parallelism", default=1), parallel_pods(job, "spec")
    if parallelism < _LEAST:
        yield invalid(_MINIMUM, f"spec.parallelism is {parallelism}, expected at least {_LEAST}")
    elif not 0 < minimum < count:
        yield invalid(_MINIMUM, f"expected 1 to {count - 1} (below spec.parallelism), found {minimum}")


def _min_parallelism_says() -> str:
    value = cel.key("variables.annotations", names.MIN_PARALLELISM)
    out = cel.text(
        cel.quoted(f"{_MINIMUM}: expected 1 to "),
        f"string({_COUNT} - 1)",
        cel.quoted(" (below spec.parallelism), found "),
        f"string(int({value}))",
    )
    few = cel.text(
        cel.quoted(f"{_MINIMUM}: spec.parallelism is "),
        f"string({_PARALLELISM})",
        cel.quoted(f", expected at least {_LEAST}"),
    )
    wrong = cel.when(f"!(int({value}) > 0 && int({value}) < {_COUNT})", out)
    unread = cel.text(cel.quoted(f"{_MINIMUM}: expected an integer, found "), cel.shown(value))
    refusal = cel.when(f"!{cel.is_integer(value)}", unread, cel.when(f"{_PARALLELISM} < {_LEAST}", few, wrong))
    elastic = "variables.elastic && variables.gates.ElasticJobsViaWorkloadSlices"
    return cel.when(
        f"!({cel.has_key('variables.annotations', names.MIN_PARALLELISM)})",
        "''",
        cel.when(elastic, cel.says(_MINIMUM, _NOT_ELASTIC), refusal),
    )


def _synchronized_completions(review: Review) -> Iterator[Refusal]:
    job = review.new
    value = annotations(job).get(names.COMPLETIONS_EQUAL_PARALLELISM)
    if value is None:
        return
    try:
        wanted = parsed_flag(value, "")
    except JobError:
        yield invalid(_EQUAL, f"expected true or false, found {shown(value)}")
        return
    if not wanted:
        return
    if text(job, "spec", "completionMode") != "Indexed":
        yield invalid(_EQUAL, _INDEXED)
        return
    parallelism, completions = (integer(job, "spec", key, default=1) for key in ("parallelism", "completions"))
    if completions != parallelism:
        yield invalid("spec.completions", f"expected spec.parallelism ({parallelism}), found {completions}")


def _synchronized_completions_says() -> str:
    value = cel.key("variables.annotations", names.COMPLETIONS_EQUAL_PARALLELISM)
    unread = cel.text(cel.quoted(f"{_EQUAL}: expected true or false, found "), cel.shown(value))
    differ = cel.text(
        cel.quoted("spec.completions: expected spec.parallelism ("),
        f"string({_PARALLELISM})",
        "'), found '",
        f"string({_COMPLETIONS})",
    )
    indexed = f"{cel.field('object', 'spec', 'completionMode')}.orValue('') == 'Indexed'"
    wanted = cel.when(
        f"!({indexed})", cel.says(_EQUAL, _INDEXED), cel.when(f"{_COMPLETIONS} != {_PARALLELISM}", differ)
    )
    return cel.when(
        f"!({cel.has_key('variables.annotations', names.COMPLETIONS_EQUAL_PARALLELISM)})",
        "''",
        cel.when(f"!{cel.is_flag(value)}", unread, cel.when(cel.is_true(value), wanted)),
    )


def _resized(review: Review) -> Iterator[Refusal]:
    """Refusals of a new size for a Job that runs with fewer pods than it requested."""
    old, new = review.before, review.new
    if old is None or review.was_suspended:
        return
    before, after = (integer(job, "spec", "parallelism", default=1) for job in (old, new))
    if names.MIN_PARALLELISM in annotations(new) and before != after:
        yield forbidden("spec.parallelism", _KEEPS_SIZE)
    key = names.COMPLETIONS_EQUAL_PARALLELISM
    if annotations(old).get(key) != annotations(new).get(key):
        yield forbidden(_EQUAL, _WHILE_SUSPENDED)


def _resized_says() -> dict[str, str]:
    runs, key = "variables.updated && !variables.wasSuspended", cel.quoted(names.COMPLETIONS_EQUAL_PARALLELISM)
    before = f"{cel.field('oldObject', 'spec', 'parallelism')}.orValue(1)"
    partial = cel.has_key("variables.annotations", names.MIN_PARALLELISM)
    changed = f"variables.annotations[?{key}] != variables.annotationsBefore[?{key}]"
    return {
        "parallelism": cel.when(
            f"{runs} && {partial} && {_PARALLELISM} != {before}", cel.says("spec.parallelism", _KEEPS_SIZE)
        ),
        "synchronized": cel.when(f"{runs} && {changed}", cel.says(_EQUAL, _WHILE_SUSPENDED)),
    }


MINIMUM: Final = Rule(refused=_min_parallelism, says={"minimum": _min_parallelism_says()})
EQUAL_COMPLETIONS: Final = Rule(
    refused=_synchronized_completions, says={"equalCompletions": _synchronized_completions_says()}
)
OWN: Final = (MINIMUM, EQUAL_COMPLETIONS, Rule(refused=_resized, says=_resized_says()))
