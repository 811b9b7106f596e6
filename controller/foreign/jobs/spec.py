"""A Volcano Job's spec with its defaults, as Volcano's webhook sets them, which need not have run. Pure.

Source: volcano-sh/volcano, pkg/webhooks/admission/jobs/mutate; volcano-sh/apis, pkg/apis/batch/v1alpha1.
"""

from typing import Any, Final

import msgspec

from controller.foreign.objects.volcanojob import LifecyclePolicy, TaskSpec, VolcanoJob, VolcanoJobStatus
from controller.foreign.rules.volcanodefaults import RETRIES
from controller.jobs.framework.raw import JobError, Json, mapping, strings
from controller.jobs.framework.topologyrequest import SLICE_CONSTRAINTS, SLICE_TOPOLOGY
from controller.objects.decode import DecodeError, decode
from controller.objects.meta import Struct
from yamlfile.parsers import Unfit, go_duration

DEFAULT_QUEUE: Final = "default"
RESTARTS: Final = frozenset({"RestartJob", "RestartTask", "RestartPod", "RestartPartition"})
_SLICES: Final = frozenset({SLICE_TOPOLOGY, SLICE_CONSTRAINTS})
MOST_PODS: Final = 100_000
"""The most pods of a task: all of them are created, pods above the minimum of the job to wait."""
NEVER: Final = -1
"""The value of ``tasks[].maxRetry`` for a task that never fires TaskFailed."""


class Policy(Struct, frozen=True, kw_only=True):
    """A policy. ``exit_code`` is 0 if the policy goes by events. ``delay_s``: None if it acts at once."""

    action: str
    events: tuple[str, ...] = ()
    exit_code: int = 0
    delay_s: float | None = None


class Task(Struct, frozen=True, kw_only=True):
    """A task. ``minimum``: pods without which the task has failed. ``partition_size``: 0 if it has no partitions.

    ``waits_for``: tasks that must have their minimum first; all of them, or ``any_is_enough``. ``is_whole``: its pods
    are placed in slices, so none of them is queued by itself.
    """

    name: str
    replicas: int
    minimum: int
    template: dict[str, Any]
    policies: tuple[Policy, ...] = ()
    max_retry: int = RETRIES
    waits_for: tuple[str, ...] = ()
    any_is_enough: bool = False
    partition_size: int = 0
    is_whole: bool = False

    def partition(self, index: int) -> int | None:
        return index // self.partition_size if self.partition_size else None


class JobPlan(Struct, frozen=True, kw_only=True):
    tasks: tuple[Task, ...]
    policies: tuple[Policy, ...]
    min_available: int
    max_retry: int
    min_success: int | None
    ttl_s: int | None

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.tasks)

    @property
    def task_minimums_count(self) -> bool:
        """Whether the minimums of tasks count: a job that may run with fewer pods than their sum has only its own
        minimum.
        """
        return self.min_available >= sum(task.minimum for task in self.tasks)

    @property
    def may_restart(self) -> bool:
        """Whether a policy may run finished pods again."""
        listed = (self.policies, *(task.policies for task in self.tasks))
        return any(policy.action in RESTARTS for policies in listed for policy in policies)

    def task(self, name: str) -> Task | None:
        return next((task for task in self.tasks if task.name == name), None)

    def with_replicas(self, counts: dict[str, int]) -> "JobPlan":
        """The plan with no more pods of each task than these, and minimums that can be reached with them."""
        tasks = tuple(_limited(task, counts.get(task.name, 0)) for task in self.tasks)
        least = min(self.min_available, sum(task.replicas for task in tasks))
        return msgspec.structs.replace(self, tasks=tasks, min_available=least)


def _limited(task: Task, count: int) -> Task:
    replicas = min(task.replicas, count)
    return msgspec.structs.replace(task, replicas=replicas, minimum=min(task.minimum, replicas))


def read_job(job: Json) -> VolcanoJob:
    """The decoded job. Raises JobError."""
    try:
        return decode(job, VolcanoJob)
    except DecodeError as error:
        raise JobError(str(error)) from None


def read_status(job: Json) -> VolcanoJobStatus:
    """The job's decoded status. Raises JobError."""
    try:
        return decode(mapping(job, "status"), VolcanoJobStatus)
    except DecodeError as error:
        raise JobError(str(error)) from None


def job_plan(job: VolcanoJob) -> JobPlan:
    """The plan of a job, with defaults. Raises JobError."""
    spec = job.spec
    for index, task in enumerate(spec.tasks):
        if not 0 <= task.replicas <= MOST_PODS:
            raise JobError(f"spec.tasks[{index}].replicas: expected 0 to {MOST_PODS}, found {task.replicas}")
    tasks = tuple(_task(task, index) for index, task in enumerate(spec.tasks))
    return JobPlan(
        tasks=tasks,
        policies=_policies(spec.policies, "spec.policies"),
        min_available=spec.min_available or sum(task.minimum for task in tasks),
        max_retry=spec.max_retry or RETRIES,
        min_success=spec.min_success,
        ttl_s=spec.ttl_seconds_after_finished,
    )


def _task(given: TaskSpec, index: int) -> Task:
    partitions, depends = given.partition_policy, given.depends_on
    least = given.replicas
    if partitions is not None and partitions.min_partitions:
        least = partitions.min_partitions * partitions.partition_size
    return Task(
        name=given.name or f"default{index}",
        replicas=given.replicas,
        minimum=least if given.min_available is None else given.min_available,
        template=given.template,
        policies=_policies(given.policies, f"spec.tasks[{index}].policies"),
        max_retry=given.max_retry or RETRIES,
        waits_for=() if depends is None else depends.name,
        any_is_enough=depends is not None and depends.iteration == "any",
        partition_size=0 if partitions is None else partitions.partition_size,
        is_whole=_is_sliced(given),
    )


def _is_sliced(task: TaskSpec) -> bool:
    partitions = task.partition_policy
    if partitions is not None and partitions.partition_size > 0 and partitions.network_topology is not None:
        return True
    return not _SLICES.isdisjoint(strings(task.template, "metadata", "annotations"))


def _policies(given: tuple[LifecyclePolicy, ...], path: str) -> tuple[Policy, ...]:
    return tuple(
        Policy(
            action=policy.action,
            events=policy.events or ((policy.event,) if policy.event else ()),
            exit_code=policy.exit_code or 0,
            delay_s=_seconds(policy.timeout, f"{path}[{index}].timeout"),
        )
        for index, policy in enumerate(given)
    )


def _seconds(duration: str | None, path: str) -> float | None:
    if duration is None:
        return None
    try:
        return go_duration(duration)
    except Unfit:
        raise JobError(f"{path}: expected a duration such as 10m30s, found {duration[:63]!r}") from None
