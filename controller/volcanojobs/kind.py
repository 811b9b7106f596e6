"""How Volcano Jobs are queued: ``batch.volcano.sh/v1alpha1`` Job as a kind of job. See ``jobframework.kind.JobKind``.

The kind has no field that holds a job back, and needs none: Tessera itself makes the pods, and makes them only while
the job has its placement (``controller.volcanojobs.placement``).

- A restart by a policy keeps the quota. So a job with such a policy gives no quota back before its end; any other gives
  back that of the pods that have succeeded, and queues anew if a Command runs them again.
- A job that was aborted is on hold: it queues again when it is resumed.
"""

from typing import Final

import msgspec

from controller.jobframework import names
from controller.jobframework.kind import Outcome, Patch
from controller.jobframework.marks import is_elastic, queue_name
from controller.jobframework.podsets import JobPodSet, PodSetInfo, SeenWorkload, StartConflictError
from controller.jobframework.raw import JobError, Json, annotations, labels, sequence, text
from controller.jobframework.templated import Slot, TemplatedKind
from controller.jobframework.tiers import Tiers
from controller.volcanojobs.lifecycle import FINAL
from controller.volcanojobs.nettopology import with_levels
from controller.volcanojobs.placement import Placement, TaskPlacement, is_placed, placement, written
from controller.volcanojobs.podfacts import JOB_NAME, TASK_INDEX
from controller.volcanojobs.spec import DEFAULT_QUEUE, job_plan, read_job, read_status, task_name
from controller.volcanojobs.status import is_active
from inventory.api.names import PLACEMENT, RUNTIME

_ABORTED: Final = ("Aborting", "Aborted")


class VolcanoJobKind(TemplatedKind):
    framework = "batch.volcano.sh/job"
    group = "batch.volcano.sh"
    version = "v1alpha1"
    kind = "Job"
    plural = "jobs"
    suspend_path = ("metadata", "annotations", PLACEMENT)
    priority_class_path = ("spec", "priorityClassName")
    can_be_elastic = True

    def __init__(self, tiers: Tiers = ()) -> None:
        """``tiers``: what the configuration says of Volcano's HyperNodes."""
        self._tiers = tiers

    # -- pod sets

    def slots(self, job: Json) -> tuple[Slot, ...]:
        tasks = sequence(job, "spec", "tasks")
        wrong = next((index for index, task in enumerate(tasks) if not isinstance(task, dict)), None)
        if wrong is not None:
            raise JobError(f"spec.tasks[{wrong}]: expected an object, found {type(tasks[wrong]).__name__}")
        return tuple(
            Slot(
                name=task_name(task, index),
                path=("spec", "tasks", index, "template"),
                count=task.get("replicas") or 0,
                index_label=TASK_INDEX,
            )
            for index, task in enumerate(tasks)
        )

    def pod_sets(self, job: Json) -> tuple[JobPodSet, ...]:
        """A Workload has one pod set at most that may get fewer pods: the last task that can spare some.

        It may spare as many as leave the job its minimum, and itself the task's own where those count.
        """
        typed = read_job(job)
        found = with_levels(super().pod_sets(job), typed, self._tiers, elastic=is_elastic(job))
        plan = job_plan(typed)
        spare = plan.replicas - plan.min_available
        if spare <= 0 or is_elastic(job):
            return found
        for index, task in reversed(list(enumerate(plan.tasks))):
            least = max(task.replicas - spare, task.minimum if plan.task_minimums_count else 1, 1)
            if least < task.replicas:
                shrinking = msgspec.structs.replace(found[index], min_count=least)
                return (*found[:index], shrinking, *found[index + 1 :])
        return found

    def counts(self, job: Json) -> dict[str, int]:
        """Of a job that was started, what was admitted, unless it asks for more by now."""
        placed = None if is_elastic(job) else placement(job)
        counts = super().counts(job)
        if placed is None:
            return counts
        return {name: _runs_as(placed.get(name), count) for name, count in counts.items()}

    def pod_selector(self, job: Json) -> str:
        return f"{JOB_NAME}={text(job, 'metadata', 'name')}"

    # -- what its status says

    def finished(self, job: Json) -> Outcome | None:
        phase = _phase(job)
        if phase not in FINAL or is_active(job):
            return None
        message = text(job, "status", "state", "message") or f"The Volcano Job is {phase}"
        return Outcome(reason="Succeeded" if phase == "Completed" else "Failed", message=message)

    def pods_ready(self, job: Json) -> bool:
        status = read_status(job)
        return status.running + status.succeeded >= sum(self.counts(job).values())

    def is_active(self, job: Json) -> bool:
        return is_active(job)

    def says_suspended(self, _job: Json) -> bool:
        """No pod is made before a status counts it, and that status is written on the version that was placed."""
        return True

    def is_on_hold(self, job: Json) -> bool:
        phase = _phase(job)
        return phase in _ABORTED or (phase == "Restarting" and not job_plan(read_job(job)).may_restart)

    def reclaimed(self, job: Json) -> dict[str, int]:
        plan, status = job_plan(read_job(job)), read_status(job)
        succeeded = {name: task.phase.get("Succeeded", 0) for name, task in status.task_status_count.items()}
        if plan.may_restart:
            succeeded = {}
        placed = placement(job) or {}
        given_up = {name: max(0, task.info.count - task.pods) for name, task in placed.items()}
        return {task.name: succeeded.get(task.name, 0) + given_up.get(task.name, 0) for task in plan.tasks}

    def needs_again(self, job: Json, workload: SeenWorkload) -> bool:
        """A pod that has succeeded is run again, by a Command or because it was deleted."""
        have = self.reclaimable(job, workload)
        return any(pods.count > have.get(pods.name, 0) for pods in workload.typed.status.reclaimable_pods)

    # -- start and stop

    def is_suspended(self, job: Json) -> bool:
        return not is_placed(job)

    def is_started(self, job: Json, _workload: SeenWorkload) -> bool:
        return is_placed(job)

    def suspend(self, job: Json) -> Patch:
        return Patch(body={"metadata": {"uid": text(job, "metadata", "uid"), "annotations": {PLACEMENT: None}}})

    def start(self, job: Json, workload: SeenWorkload, infos: tuple[PodSetInfo, ...]) -> tuple[Patch, ...]:
        if not self.is_stopped(job):
            return ()
        asked, given = super().counts(job), {info.name: info for info in infos}
        if given.keys() != asked.keys():
            raise StartConflictError(
                f"workload {workload.name}: expected an assignment of each of the tasks {', '.join(asked)}, "
                f"found {', '.join(given) or 'none'}"
            )
        placed: Placement = {name: TaskPlacement(info=given[name], asked=asked[name]) for name in asked}
        version = {key: text(job, "metadata", key) for key in ("uid", "resourceVersion")}
        return (Patch(body={"metadata": {**version, "annotations": {PLACEMENT: written(placed)}}}),)

    def stop(self, job: Json, _workload: SeenWorkload | None) -> tuple[Patch, ...]:
        return () if self.is_suspended(job) else (self.suspend(job),)


def queued(job: Json) -> Json:
    """The job with its Volcano queue as its queue, where no label names another: read so, it is queued by all parts.

    So it is with its ``runningEstimate``, where no annotation says how long it runs.
    """
    metadata = job.get("metadata") or {}
    estimate = text(job, "spec", "runningEstimate")
    if estimate and RUNTIME not in annotations(job):
        metadata = {**metadata, "annotations": {**annotations(job), RUNTIME: estimate}}
    if not queue_name(job):
        queue = text(job, "spec", "queue") or DEFAULT_QUEUE
        metadata = {**metadata, "labels": {**labels(job), names.QUEUE_NAME: queue}}
    return job if metadata is job.get("metadata") else {**job, "metadata": metadata}


def _phase(job: Json) -> str:
    return text(job, "status", "state", "phase")


def _runs_as(placed: TaskPlacement | None, replicas: int) -> int:
    if placed is None or replicas > placed.asked or (placed.kept is not None and replicas > placed.kept):
        return replicas
    return placed.info.count
