"""The input of one job's reconciliation, and the questions about all of it."""

from dataclasses import dataclass
from functools import cached_property

from controller.jobs.framework import compose
from controller.jobs.framework.kind import JobKind
from controller.jobs.framework.marks import queue_name
from controller.jobs.framework.podsets import SeenWorkload
from controller.jobs.framework.raw import JobError, Json, text
from controller.jobs.framework.settings import ClusterObjects, JobSettings, Observed


@dataclass(frozen=True, kw_only=True)
class Context:
    """The input of one job's reconciliation: an existing job, settings and the objects of the cluster."""

    kind: JobKind
    job: Json
    seen: Observed
    settings: JobSettings
    cluster: ClusterObjects

    @cached_property
    def elastic(self) -> bool:
        """Whether the job is elastic. A value that is neither true nor false counts as false: the job was queued with
        another, or is refused.
        """
        try:
            return compose.elastic_here(self.kind, self.job, self.settings)
        except JobError:
            return False

    def fits(self, workload: SeenWorkload) -> bool:
        """Whether the workload matches what the job requests, or what it was started as."""
        kind, job = self.kind, self.job
        if not kind.is_suspended(job) or kind.is_started(job, workload):
            return compose.runs_as(kind, job, workload)
        return compose.asks_for(kind, job, workload, self.settings)

    def moved_while_reserved(self, workload: SeenWorkload) -> bool:
        """Whether a stopped job names another queue than its workload, which cannot change its queue while it has
        quota.

        False for an evicted workload: it gives its quota up anyway, and changes its queue then.
        """
        if workload.eviction is not None or not workload.is_reserved:
            return False
        moved = queue_name(self.job) != workload.typed.spec.queue_name
        return moved and self.kind.is_stopped(self.job) and not self.kind.is_started(self.job, workload)


def controls(job: Json, workload: SeenWorkload) -> bool:
    uid = text(job, "metadata", "uid")
    return any(owner.controller and owner.uid == uid for owner in workload.typed.metadata.owner_references)
