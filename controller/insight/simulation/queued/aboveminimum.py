"""Foreign Jobs of the manifests as the documents that are queued of each: the job with its minimum, and every pod above
that.

Pods are named as the job's controller names them, ``<job>-<task>-<index>``.
"""

from collections.abc import Iterator

from controller.foreign.jobs.bodies import pod_bodies
from controller.foreign.jobs.gang import Seen, minimums, new_pods_above
from controller.foreign.jobs.kind import ForeignJobKind
from controller.foreign.jobs.placement import TaskPlacement
from controller.foreign.jobs.spec import job_plan, read_job, read_status
from controller.insight.simulation.documents import Document
from controller.jobs.framework.kind import api_version
from controller.jobs.framework.marks import is_elastic
from controller.jobs.framework.names import WORKLOAD
from controller.jobs.framework.podsets import PodSetInfo
from controller.jobs.framework.raw import JobError, annotations
from inventory.api.names import OF_SIMULATED_JOBS

_JOB = (api_version(ForeignJobKind()), ForeignJobKind.kind)


def above_minimum(document: Document) -> list[Document]:
    """The document, and one for each pod above its minimum. A document that cannot be read stays as it is: its reader
    says why.
    """
    try:
        return [document, *pods_above(document)]
    except JobError:
        return [document]


def count_above(document: Document) -> int:
    """The number of the job's pods above its minimum. Raises JobError."""
    if (document.version, document.kind) != _JOB or is_elastic(document.data):
        return 0
    plan = job_plan(read_job(document.data))
    least = minimums(plan)
    return sum(task.replicas - least.get(task.name, 0) for task in plan.tasks)


def pods_above(document: Document) -> Iterator[Document]:
    """Yields the job's pods above its minimum. Raises JobError."""
    job = document.data
    if not count_above(document):
        return
    plan, name = job_plan(read_job(job)), job["metadata"]["name"]
    placed = {
        task: TaskPlacement(info=PodSetInfo(name=task, count=count, own_annotations={WORKLOAD: name}))
        for task, count in minimums(plan).items()
    }
    seen = Seen(plan=plan, status=read_status({}), placed=placed)
    told = {key: value for key, value in annotations(job).items() if key in OF_SIMULATED_JOBS}
    above = (new for task in plan.tasks for new in new_pods_above(seen, task, ()))
    for pod in pod_bodies(job, seen, seen.status, above):
        pod["metadata"]["annotations"] |= told
        del pod["metadata"]["ownerReferences"]
        yield document.having(pod)
