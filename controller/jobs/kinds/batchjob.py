"""``batch/v1`` Job: one pod set ``main``.

What may be changed on a Job, by the API server's validation (pkg/registry/batch/job, pkg/apis/batch/validation):
- A template changes only while the Job is suspended, and then its labels, annotations, node selector, tolerations,
  node affinity and scheduling gates. Up to 1.35 ``status.startTime`` must be unset; from 1.36 the Job may instead carry
  the condition JobSuspended, and ``status.active`` must be 0 either way.
- ``status.startTime`` may be unset while the Job is suspended. From 1.36 the Job controller does it itself.
- ``completions`` change only on an Indexed Job, together with ``parallelism`` and to the same number.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.growing import batch_minimum, begins_with
from controller.jobs.framework.kind import Ending, JobKind, Outcome, Patch, Review, refused, tie
from controller.jobs.framework.marks import is_elastic
from controller.jobs.framework.podsets import (
    JobPodSet,
    PodSetInfo,
    SeenWorkload,
    before_growth,
    check_requests,
    is_marked,
    is_started,
    started_template,
    template_patch,
)
from controller.jobs.framework.raw import (
    JobError,
    Json,
    annotations,
    at,
    condition,
    has_condition,
    integer,
    map_patch,
    mapping,
    parallel_pods,
    parsed_flag,
    sequence,
    strings,
    text,
)
from controller.jobs.framework.topologyrequest import check_groups, ranked, topology_request
from controller.jobs.kinds.jobscheduling import (
    check_minimum,
    gang_minimum,
    is_grouped,
    native_minimum,
    placed_by,
    with_group_claims,
)
from controller.jobs.rules.batchjob import EQUAL_COMPLETIONS, MINIMUM, POD_SETS
from inventory.api.names import FULL_PARALLELISM

MAIN: Final = "main"
INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"

_TEMPLATE: Final = "spec.template"
_UID_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
_NAME_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")
_MAX_COUNT: Final = 2**31 - 1
_ENDS: Final[tuple[tuple[str, Ending, str], ...]] = (
    ("Complete", "Succeeded", "Job finished successfully"),
    ("Failed", "Failed", "Job failed"),
)


class BatchJob(JobKind):
    """Kubernetes' own Job. See ``kind.JobKind``."""

    framework = "batch/job"
    group = "batch"
    version = "v1"
    kind = "Job"
    plural = "jobs"
    can_be_elastic = True
    template_paths = ("spec.template",)
    managed_by_path = ("spec", "managedBy")
    own_controller = "kubernetes.io/job-controller"

    @cached_property
    def pod_sets_in_cel(self) -> str:
        return POD_SETS

    def pod_sets(self, job: Json) -> tuple[JobPodSet, ...]:
        template = with_group_claims(job, _bare_template(job))
        count = self._first_count(job, _full_count(job))
        check_requests(template, _TEMPLATE)
        minimum = _min_parallelism(job)
        elastic = is_elastic(job)
        if minimum is not None:
            check_minimum(job, minimum)
        if minimum is None and not elastic and count == _full_count(job):
            minimum = native_minimum(job, count)
        request = topology_request(
            placed_by(job, strings(template, "metadata", "annotations")),
            path=f"{_TEMPLATE}.metadata.annotations",
            count=count,
            elastic=elastic,
        )
        request = ranked(request, INDEX_LABEL, None, None)
        check_groups([(MAIN, count, request)])
        return (JobPodSet(name=MAIN, count=count, template=template, min_count=minimum, topology_request=request),)

    def templates(self, job: Json) -> dict[str, Json]:
        return {MAIN: _bare_template(job)}

    def counts(self, job: Json) -> dict[str, int]:
        return {MAIN: self._first_count(job, parallel_pods(job, "spec"))}

    def counts_above(self, job: Json) -> dict[str, int]:
        full = parallel_pods(job, "spec")
        above = full - self._first_count(job, full)
        return {MAIN: above} if above else {}

    def full_counts(self, job: Json) -> dict[str, int]:
        if FULL_PARALLELISM not in annotations(job) or _equal_completions(job):
            return {}
        full = _full_count(job)
        if names.MIN_PARALLELISM in annotations(job) or gang_minimum(job, full) is None:
            return {}
        completions = integer(job, "spec", "completions", default=-1)
        if completions >= 0:
            return {MAIN: min(full, completions - _ended(job, completions))}
        # A Job without completions makes no pod any more once one has succeeded.
        return {} if integer(job, "status", "succeeded", default=0) else {MAIN: full}

    def resized(self, job: Json, counts: Mapping[str, int]) -> Patch:
        return Patch(body={"metadata": tie(job), "spec": {"parallelism": counts[MAIN]}})

    def makes_all_at_once(self, job: Json) -> bool:
        return not is_grouped(job)

    def pods_left(self, job: Json) -> int | None:
        active, succeeded = (integer(job, "status", field, default=0) for field in ("active", "succeeded"))
        # The first that succeeds of a Job without completions is the last that is made.
        left = active if succeeded else parallel_pods(job, "spec")
        if at(job, "spec", "completions") is not None:
            left = min(parallel_pods(job, "spec"), integer(job, "spec", "completions", default=1) - succeeded)
        return left if integer(job, "status", "ready", default=0) < max(active, left) else None

    def _first_count(self, job: Json, full: int) -> int:
        """The number of pods that start together, out of those that run at a time."""
        least, template = batch_minimum(job), _bare_template(job)
        return begins_with(job, {MAIN: full}, least, [template], may_grow=self.may_grow)[MAIN]

    def pod_selector(self, job: Json) -> str:
        return f"{_NAME_LABELS[0]}={text(job, 'metadata', 'name')}"

    def pod_priority_class(self, job: Json) -> str:
        return text(job, "spec", "template", "spec", "priorityClassName")

    def is_stopped(self, job: Json) -> bool:
        # Only the condition says that the Job controller has seen the suspension: before it, "no active pods" may be an
        # old count. A Job that has no start time never had pods. A Job that is being deleted gets no condition any
        # more: its start time and its first count were written together.
        terminating = bool(text(job, "metadata", "deletionTimestamp"))
        seen = terminating or has_condition(job, "Suspended") or not _start_time(job)
        return self.is_suspended(job) and integer(job, "status", "active", default=0) == 0 and seen

    def finished(self, job: Json) -> Outcome | None:
        for type_, reason, message in _ENDS:
            if has_condition(job, type_):
                return Outcome(reason=reason, message=text(condition(job, type_), "message") or message)
        return None

    def pods_ready(self, job: Json) -> bool:
        uncounted = sequence(job, "status", "uncountedTerminatedPods", "succeeded")
        done = integer(job, "status", "succeeded", default=0) + len(uncounted)
        counts = self.counts(job)[MAIN]
        return done + integer(job, "status", "ready", default=0) >= (gang_minimum(job, counts) or counts)

    def reclaimable(self, job: Json, workload: SeenWorkload) -> dict[str, int]:
        parallelism = integer(job, "spec", "parallelism", default=1)
        # Equal completions would be lowered together with the parallelism under partial admission.
        completions = integer(job, "spec", "completions", default=parallelism)
        ended = _ended(job, completions)
        remaining = completions - ended
        if ended == 0 or remaining >= parallel_pods(job, "spec"):
            return {}
        # The number is taken from the full count even if fewer pods were admitted: the workload subtracts it from that.
        spare = workload.typed.spec.pod_sets[0].count - max(remaining, 0) if workload.typed.spec.pod_sets else 0
        return {MAIN: spare} if spare > 0 else {}

    def is_started(self, job: Json, workload: SeenWorkload) -> bool:
        template = _bare_template(job)
        if is_marked(template) and is_started(template, _original(workload) or {}):
            return True
        return FULL_PARALLELISM in annotations(job)

    def start(self, job: Json, workload: SeenWorkload, infos: tuple[PodSetInfo, ...]) -> tuple[Patch, ...]:
        original = _original(workload)
        info = next((info for info in infos if info.name == MAIN), None)
        if original is None or info is None:
            raise JobError(f"workload {workload.name}: expected an assignment of pod set {MAIN}")
        template = template_patch(_bare_template(job), started_template(original, info))
        spec: Json = {"suspend": False, **({} if self.counts_above(job) else _reduced(job, info.count))}
        if template:
            if not self.is_stopped(job):
                return ()
            if _start_time(job):
                return (_clear_start_time(job),)
            spec["template"] = template
        metadata = _conditional(job)
        full = integer(job, "spec", "parallelism", default=1)
        if "parallelism" in spec and FULL_PARALLELISM not in annotations(job):
            metadata["annotations"] = {FULL_PARALLELISM: str(full)}
        return (Patch(body={"metadata": metadata, "spec": spec}),)

    def stop(self, job: Json, workload: SeenWorkload | None) -> tuple[Patch, ...]:
        if not self.is_suspended(job):
            return (self.suspend(job),)
        original = None if workload is None else _original(workload)
        if workload is None or original is None or not self.is_stopped(job) or not self.is_started(job, workload):
            return ()
        template = template_patch(_bare_template(job), original)
        if template and _start_time(job):
            return (_clear_start_time(job),)
        metadata, spec = _conditional(job), _restored_counts(job, workload)
        if FULL_PARALLELISM in annotations(job):
            metadata["annotations"] = {FULL_PARALLELISM: None}
        if template:
            spec["template"] = template
        return (Patch(body={"metadata": metadata, "spec": spec}),)


def _ended(job: Json, completions: int) -> int:
    """The number of pods that will not run again: pods that succeeded; of an Indexed Job the indexes that are done or
    given up.
    """
    if text(job, "spec", "completionMode") != "Indexed":
        return integer(job, "status", "succeeded", default=0)
    completed, failed = (text(job, "status", key) for key in ("completedIndexes", "failedIndexes"))
    return terminal_indexes(completed, failed, completions)


def terminal_indexes(completed: str, failed: str, completions: int) -> int:
    """The number of indexes below ``completions`` that either list names, as in ``1,3-5``; text that is no interval is
    ignored.
    """
    intervals: list[tuple[int, int]] = []
    for interval in f"{completed},{failed}".split(","):
        first, _, last = interval.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            intervals.append((int(first), min(int(last or first), completions - 1)))
    count, upto = 0, -1
    for start, end in sorted(intervals):
        count += max(0, end - max(start - 1, upto))
        upto = max(upto, end)
    return count


def _full_count(job: Json) -> int:
    """The number of pods that the Job requests, without the reduction of a start under partial admission."""
    spec = mapping(job, "spec")
    return parallel_pods({"spec": {**spec, **_unreduced(job)}}, "spec")


def _unreduced(job: Json) -> Json:
    value = annotations(job).get(FULL_PARALLELISM)
    if value is None:
        return {}
    # The controller writes the annotation; a value that it cannot have written is ignored.
    full = (
        int(value) if value.isascii() and value.isdecimal() and len(value) <= len(str(_MAX_COUNT)) else _MAX_COUNT + 1
    )
    if full > _MAX_COUNT:
        return {}
    return {"parallelism": full, **({"completions": full} if _equal_completions(job) else {})}


def _reduced(job: Json, count: int) -> Json:
    """The patch of ``spec`` that makes the Job run ``count`` pods at a time; empty if it does already."""
    if parallel_pods(job, "spec") == count:
        return {}
    return {"parallelism": count, **({"completions": count} if _equal_completions(job) else {})}


def _restored_counts(job: Json, workload: SeenWorkload) -> Json:
    """The patch that restores counts, if they are what the start made of them: a later change is the user's, and
    stays.
    """
    admission, unreduced = workload.typed.status.admission, _unreduced(job)
    assigned = admission.pod_set_assignments[0].count if admission and admission.pod_set_assignments else None
    written = (assigned, before_growth(workload.typed))
    if assigned is not None and parallel_pods(job, "spec") not in written:
        return {}
    asked = workload.typed.spec.pod_sets[0]
    if (
        not unreduced and asked.min_count is not None and assigned is not None
    ):  # started by another controller, without the annotation
        unreduced = _reduced(job, asked.count)
    spec = mapping(job, "spec")
    return map_patch(spec, {**spec, **unreduced})


def _equal_completions(job: Json) -> bool:
    """Whether the completions of a job, which was valid when it was queued, follow its parallelism."""
    try:
        found = annotations(job).get(names.COMPLETIONS_EQUAL_PARALLELISM, "false")
        return parsed_flag(found, "")
    except JobError:
        return False


def _min_parallelism(job: Json) -> int | None:
    """The least pods of a partial admission. Raises JobError if its annotations and the Job contradict each other."""
    spec = {**mapping(job, "spec"), **_unreduced(job)}
    # A minimum that is no smaller than the completions is none: the Job runs with all its pods.
    endless = {key: value for key, value in spec.items() if key != "completions"}
    for rule, asked in ((EQUAL_COMPLETIONS, spec), (MINIMUM, endless)):
        for refusal in refused((rule,), Review(new={**job, "spec": asked})):
            raise JobError(f"{refusal.field}: {refusal.sentence}")
    found = annotations(job).get(names.MIN_PARALLELISM)
    return None if found is None or int(found) >= _full_count(job) else int(found)


def _bare_template(job: Json) -> Json:
    """The template without the labels that the API server generates for each Job: another Job could not have them.

    It shares its contents with the job: not to be written to.
    """
    template = dict(mapping(job, "spec", "template"))
    uid, name = text(job, "metadata", "uid"), text(job, "metadata", "name")
    found = strings(template, "metadata", "labels")
    generated = {**dict.fromkeys(_UID_LABELS, uid), **dict.fromkeys(_NAME_LABELS, name)}
    kept = {key: value for key, value in found.items() if generated.get(key) != value}
    metadata = {key: value for key, value in mapping(template, "metadata").items() if key != "labels"}
    if kept:
        metadata["labels"] = kept
    return {**template, "metadata": metadata} if "metadata" in template else template


def _original(workload: SeenWorkload) -> Json | None:
    return workload.templates().get(MAIN)


def _start_time(job: Json) -> str:
    return text(job, "status", "startTime")


def _conditional(job: Json) -> Json:
    """Metadata that tie a patch to the state it was computed from."""
    return {
        "uid": text(job, "metadata", "uid"),
        "resourceVersion": text(job, "metadata", "resourceVersion"),
    }


def _clear_start_time(job: Json) -> Patch:
    return Patch(body={"metadata": _conditional(job), "status": {"startTime": None}}, subresource="status")
