"""How Volcano Jobs are queued: ``batch.volcano.sh/v1alpha1`` Job as a kind of job. See ``jobs.framework.kind.JobKind``.

The kind has no field that holds a job back, and needs none: Tessera itself makes the pods, and makes them only while
the job has its placement (``controller.foreign.jobs.placement``).

- Its Workload has the pods that start together. Pods above its minimum have Workloads of their own
  (``controller.foreign.jobs.gang``), unless the slices of an elastic job are queued.
- A restart by a policy keeps the quota. A job with such a policy therefore gives no quota back before its end, or that
  of the pods that started together; any other gives back that of the pods that have succeeded, and queues anew if a
  Command runs them again.
- A job that was aborted is on hold: it queues again when it is resumed.
"""

from typing import Final

from controller.foreign.jobs.gang import gives_back, has_above, minimums, serves
from controller.foreign.jobs.lifecycle import FINAL
from controller.foreign.jobs.nettopology import required_level, with_levels
from controller.foreign.jobs.placement import Placement, TaskPlacement, is_placed, placement, written
from controller.foreign.jobs.plugins.table import check
from controller.foreign.jobs.podfacts import JOB_NAME, TASK_INDEX
from controller.foreign.jobs.spec import DEFAULT_QUEUE, job_plan, read_job, read_status
from controller.foreign.jobs.status import is_active
from controller.jobs.framework import names
from controller.jobs.framework.kind import Outcome, Patch, tie
from controller.jobs.framework.marks import is_elastic, queue_name
from controller.jobs.framework.podsets import JobPodSet, PodSetInfo, SeenWorkload, StartConflictError
from controller.jobs.framework.raw import JobError, Json, annotations, labels, sequence, text
from controller.jobs.framework.templated import MAX_POD_SETS, Slot, TemplatedKind
from controller.jobs.framework.tiers import Tiers
from controller.scheduler.model.gangshape import GangShape
from controller.scheduler.model.gangshape import written as shape_written
from inventory.api.names import GANG, PLACEMENT, RUNTIME

_ABORTED: Final = ("Aborting", "Aborted")


class ForeignJobKind(TemplatedKind):
    framework = "batch.volcano.sh/job"
    group = "batch.volcano.sh"
    version = "v1alpha1"
    kind = "Job"
    plural = "jobs"
    suspend_path = ("metadata", "annotations", PLACEMENT)
    priority_class_path = ("spec", "priorityClassName")
    can_be_elastic = True

    def __init__(self, tiers: Tiers = ()) -> None:
        """``tiers``: the configuration's levels for Volcano's HyperNodes."""
        self._tiers = tiers

    # -- pod sets

    def slots(self, job: Json) -> tuple[Slot, ...]:
        tasks = sequence(job, "spec", "tasks")
        wrong = next((index for index, task in enumerate(tasks) if not isinstance(task, dict)), None)
        if wrong is not None:
            raise JobError(f"spec.tasks[{wrong}]: expected an object, found {type(tasks[wrong]).__name__}")
        if len(tasks) > MAX_POD_SETS:
            raise JobError(f"spec.tasks: expected {MAX_POD_SETS} at most, found {len(tasks)}")
        plan = job_plan(read_job(job))
        least = {} if is_elastic(job) else minimums(plan)
        return tuple(
            Slot(
                name=task.name,
                path=("spec", "tasks", index, "template"),
                count=least.get(task.name, task.replicas),
                index_label=TASK_INDEX,
            )
            for index, task in enumerate(plan.tasks)
        )

    def pod_sets(self, job: Json) -> tuple[JobPodSet, ...]:
        found = super().pod_sets(job)  # it bounds the replicas that plugins write lists of
        check(job)
        return with_levels(found, read_job(job), self._tiers, elastic=is_elastic(job))

    def workload_annotations(self, job: Json) -> dict[str, str]:
        """The annotation with the gang's level: pods above the minimum join the domain that the minimum is in."""
        level = "" if is_elastic(job) else required_level(read_job(job), self._tiers)
        return {GANG: shape_written(GangShape(required_level=level))} if level else {}

    def counts(self, job: Json) -> dict[str, int]:
        """Pods by task of a started job as they were admitted, unless the job needs more by now; of any other as it
        asks.
        """
        placed = None if is_elastic(job) else placement(job)
        if placed is None or not serves(placed, job_plan(read_job(job))):
            return super().counts(job)
        return {name: task.info.count for name, task in placed.items()}

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
        """Whether its pods are ready. The status counts pods above the minimum with the others: if the job has some,
        its placement tells it.
        """
        placed = None if is_elastic(job) else placement(job)
        if placed is not None and has_above(job_plan(read_job(job)), placed):
            return all(task.up or not task.pods for task in placed.values())
        status = read_status(job)
        return status.running + status.succeeded >= sum(self.counts(job).values())

    def is_active(self, job: Json) -> bool:
        return is_active(job)

    def says_suspended(self, _job: Json) -> bool:
        """Always true: no pod is made before a status counts it, and that status is written on the version that was
        placed.
        """
        return True

    def is_on_hold(self, job: Json) -> bool:
        phase = _phase(job)
        if phase in _ABORTED:
            return True
        return phase == "Restarting" and gives_back(job_plan(read_job(job)), placement(job) or {})

    def reclaimed(self, job: Json) -> dict[str, int]:
        plan, status, placed = job_plan(read_job(job)), read_status(job), placement(job) or {}
        by_task = {}
        for task in plan.tasks:
            here = placed.get(task.name)
            counted = status.task_status_count.get(task.name)
            succeeded = 0 if plan.may_restart or counted is None else counted.phase.get("Succeeded", 0)
            if here is None or is_elastic(job):
                by_task[task.name] = succeeded
                continue
            ended = here.ended if task.replicas > here.pods else max(here.ended, succeeded)
            by_task[task.name] = max(0, here.info.count - here.pods) + ended
        return by_task

    def needs_again(self, job: Json, workload: SeenWorkload) -> bool:
        """Whether more quota is needed: a Command or a deletion makes a pod that has ended run again, or more pods have
        to run together.
        """
        placed = None if is_elastic(job) else placement(job)
        if placed is not None and not serves(placed, job_plan(read_job(job))):
            return True
        have = self.reclaimable(job, workload)
        return any(pods.count > have.get(pods.name, 0) for pods in workload.typed.status.reclaimable_pods)

    # -- start and stop

    def is_suspended(self, job: Json) -> bool:
        return not is_placed(job)

    def is_started(self, job: Json, _workload: SeenWorkload) -> bool:
        return is_placed(job)

    def suspend(self, job: Json) -> Patch:
        return Patch(body={"metadata": {**tie(job), "annotations": {PLACEMENT: None}}})

    def start(self, job: Json, workload: SeenWorkload, infos: tuple[PodSetInfo, ...]) -> tuple[Patch, ...]:
        if not self.is_stopped(job):
            return ()
        tasks, by_task = super().counts(job), {info.name: info for info in infos}
        if by_task.keys() != tasks.keys():
            raise StartConflictError(
                f"workload {workload.name}: expected an assignment of each of the tasks {', '.join(tasks)}, "
                f"found {', '.join(by_task) or 'none'}"
            )
        placed: Placement = {name: TaskPlacement(info=by_task[name]) for name in tasks}
        return (Patch(body={"metadata": {**tie(job), "annotations": {PLACEMENT: written(placed)}}}),)

    def stop(self, job: Json, _workload: SeenWorkload | None) -> tuple[Patch, ...]:
        return () if self.is_suspended(job) else (self.suspend(job),)


def queued(job: Json) -> Json:
    """The job with its Volcano queue as its queue, if no label names another: all readers then see it as queued.

    Its ``runningEstimate`` becomes the annotation with its run time, if it has none.
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
