"""Whether a job is managed, and whether it is part of a larger job that is."""

from collections.abc import Mapping

from controller.jobframework.marks import controller_of, queue_name
from controller.jobframework.raw import Json, text
from controller.jobframework.settings import ClusterObjects, JobSettings

MAX_DEPTH = 10


class NestingTooDeepError(Exception):
    """More levels of owners above the job than are followed."""


def is_managed(job: Json, namespace_labels: Mapping[str, str], settings: JobSettings) -> bool:
    if not settings.managed_jobs_namespace_selector.matches(namespace_labels):
        return False
    return bool(queue_name(job)) or settings.manage_jobs_without_queue_name


def managed_ancestor(job: Json, settings: JobSettings, cluster: ClusterObjects) -> str | None:
    """The uid of the topmost job above this one that is queued itself; None where there is none.

    An owner counts by its uid: a new object under an old name owns nothing. All are in the job's namespace, which the
    caller has matched. Raises NestingTooDeepError.
    """
    namespace = text(job, "metadata", "namespace")
    found: str | None = None
    current = job
    for _ in range(MAX_DEPTH):
        reference = controller_of(current)
        if reference is None:
            return found
        owner = cluster.owner(namespace, reference)
        if owner is None or text(owner, "metadata", "uid") != reference.uid:
            return found
        is_job = cluster.is_job_kind(reference.api_version, reference.kind)
        if is_job and (queue_name(owner) or settings.manage_jobs_without_queue_name):
            found = reference.uid
        current = owner
    if controller_of(current) is None:
        return found
    raise NestingTooDeepError(f"expected at most {MAX_DEPTH} levels of owners above a job")
