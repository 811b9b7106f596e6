"""``jobset.x-k8s.io/v1alpha2`` JobSet: a pod set for each replicated job.

Facts (kubernetes-sigs/jobset, pkg/webhooks and pkg/controllers):
- While the JobSet is suspended before or after an update, the labels, annotations, node selector, tolerations and
  scheduling gates of its pod templates may change; affinity and all else may not.
- A restart by ``failurePolicy`` makes all child Jobs anew, also those that had succeeded.
- ``dependsOn`` and the startup policy InOrder create Jobs one after the other: their quota is held from the beginning.
"""

from functools import cached_property
from typing import Final

from controller.jobs.framework.kind import Outcome
from controller.jobs.framework.raw import JobError, Json, integer, mapping, parallel_pods, sequence, text
from controller.jobs.framework.templated import Path, Slot, TemplatedKind, dotted, ended, selector
from controller.jobs.rules import cel
from controller.jobs.rules.topology import parallel_pods_in_cel, pod_set

INDEX_LABEL: Final = "batch.kubernetes.io/job-completion-index"
JOB_INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"

_RESTART_FOR_EVER: Final = "RestartJobSetAndIgnoreMaxRestarts"


_JOBS: Final = f"{cel.field('object', 'spec', 'replicatedJobs')}.orValue([])"
_POD_SET: Final = pod_set(
    name=f"{_JOBS}[i].name.lowerAscii()",
    path="'spec.replicatedJobs[' + string(i) + '].template.spec.template.metadata.annotations'",
    count=f"{_JOBS}[i].?replicas.orValue(1) * {parallel_pods_in_cel(f'{_JOBS}[i].?template.?spec')}",
    annotations=cel.field(f"{_JOBS}[i]", "template", "spec", "template", "metadata", "annotations"),
)


class JobSet(TemplatedKind):
    """JobSets, see ``kind.JobKind``."""

    framework = "jobset.x-k8s.io/jobset"
    group = "jobset.x-k8s.io"
    version = "v1alpha2"
    kind = "JobSet"
    plural = "jobsets"
    template_paths = ("spec.replicatedJobs[].template.spec.template",)
    managed_by_path = ("spec", "managedBy")
    own_controller = "jobset.sigs.k8s.io/jobset-controller"

    @cached_property
    def pod_sets_in_cel(self) -> str:
        return f"{cel.places(_JOBS)}.map(i, {_POD_SET})"

    def slots(self, job: Json) -> tuple[Slot, ...]:
        return job_slots(mapping(job, "spec"), ("spec",))

    def pod_selector(self, job: Json) -> str:
        return selector("jobset.sigs.k8s.io/jobset-name", job)

    def finished(self, job: Json) -> Outcome | None:
        return ended(job, "Completed", "Failed", what="JobSet")

    def pods_ready(self, job: Json) -> bool:
        return all_jobs_ready(mapping(job, "spec"), sequence(job, "status", "replicatedJobsStatus"))

    def is_active(self, job: Json) -> bool:
        return any_job_active(sequence(job, "status", "replicatedJobsStatus"))

    def reclaimed(self, job: Json) -> dict[str, int]:
        if self._may_restart(job):
            return {}
        return of_succeeded_jobs(mapping(job, "spec"), sequence(job, "status", "replicatedJobsStatus"))

    def _may_restart(self, job: Json) -> bool:
        """Whether the next failure would run everything again, and with it pods whose quota was given up."""
        return may_restart(mapping(job, "spec"), integer(job, "status", "restartsCountTowardsMax", default=0))


# A TrainJob becomes a JobSet: these functions of a JobSet's ``spec`` serve it as well.


def job_slots(spec: Json, at: Path) -> tuple[Slot, ...]:
    """The slots of a JobSet's spec. ``at``: the path of ``spec`` in the object. Raises JobError."""
    jobs = sequence(spec, "replicatedJobs")
    return tuple(_slot(replicated, (*at, "replicatedJobs", index)) for index, replicated in enumerate(jobs))


def _slot(replicated: Json, at: Path) -> Slot:
    try:
        replicas = _replicas(replicated)
        return Slot(
            name=text(replicated, "name").lower(),
            path=(*at, "template", "spec", "template"),
            count=replicas * pods_per_job(replicated),
            index_label=INDEX_LABEL,
            sub_group_label=JOB_INDEX_LABEL,
            sub_group_count=replicas,
        )
    except JobError as error:
        raise JobError(f"{dotted(at)}.{error}") from None


def pods_per_job(replicated: Json) -> int:
    """The number of pods that one Job of a replicated job runs at a time."""
    return parallel_pods(replicated, "template", "spec")


def all_jobs_ready(spec: Json, statuses: list[Json]) -> bool:
    """Whether all Jobs of the spec have all their pods ready, or have succeeded."""
    wanted = sum(_replicas(replicated) for replicated in sequence(spec, "replicatedJobs"))
    have = sum(integer(each, "ready", default=0) + integer(each, "succeeded", default=0) for each in statuses)
    return have == wanted


def any_job_active(statuses: list[Json]) -> bool:
    return any(integer(each, "active", default=0) > 0 for each in statuses)


def may_restart(spec: Json, counted: int) -> bool:
    """Whether the failure policy allows another restart. ``counted``: the number of restarts so far."""
    policy = mapping(spec, "failurePolicy")
    for_ever = any(text(rule, "action") == _RESTART_FOR_EVER for rule in sequence(policy, "rules"))
    return for_ever or integer(policy, "maxRestarts", default=0) > counted


def of_succeeded_jobs(spec: Json, statuses: list[Json]) -> dict[str, int]:
    """Pods of Jobs that have succeeded, by pod set."""
    succeeded = {text(each, "name"): integer(each, "succeeded", default=0) for each in statuses}
    pods = {
        text(replicated, "name").lower(): succeeded.get(text(replicated, "name"), 0) * pods_per_job(replicated)
        for replicated in sequence(spec, "replicatedJobs")
    }
    return {name: count for name, count in pods.items() if count > 0}


def _replicas(replicated: Json) -> int:
    return integer(replicated, "replicas", default=1)
