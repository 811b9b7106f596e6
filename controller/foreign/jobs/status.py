"""The status of a Volcano Job as ``kubectl get vcjob`` shows it: phase, counts of pods, times. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from controller.foreign.jobs.podfacts import PHASES, PodFacts
from controller.foreign.jobs.spec import JobPlan
from controller.foreign.objects.volcanojob import JobCondition, JobState, TaskState, VolcanoJobStatus
from controller.jobs.framework.raw import Json, mapping
from controller.jobs.framework.templated import difference
from controller.objects.meta import to_json

_MAX_CONDITIONS: Final = 64
"""The most conditions; the newest are kept: a job that is evicted again and again must not outgrow its object."""
_COUNTS: Final = ("pending", "running", "succeeded", "failed", "terminating", "unknown")
_ENDED: Final = ("Completed", "Failed", "Terminated", "Aborted")


def moved(status: VolcanoJobStatus, phase: str, now_s: float, reason: str = "", message: str = "") -> VolcanoJobStatus:
    """The status in another phase since now."""
    at = datetime.fromtimestamp(int(now_s), UTC)
    conditions = (*status.conditions, JobCondition(status=phase, last_transition_time=at))[-_MAX_CONDITIONS:]
    state = JobState(phase=phase, reason=reason, message=message, last_transition_time=at)
    after = msgspec.structs.replace(status, state=state, conditions=conditions)
    return msgspec.structs.replace(after, running_duration=_duration(after, now_s)) if phase in _ENDED else after


def _duration(status: VolcanoJobStatus, now_s: float) -> str | None:
    """The time from when the job first had its minimum to now, as Go writes durations; unchanged if it never had."""
    began = next((each.last_transition_time for each in status.conditions if each.status == "Running"), None)
    if began is None:
        return status.running_duration
    hours, seconds = divmod(max(0, int(now_s - began.timestamp())), 3600)
    minutes, seconds = divmod(seconds, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def counted(
    status: VolcanoJobStatus, plan: JobPlan, pods: Iterable[PodFacts], going: Iterable[PodFacts], coming: int
) -> VolcanoJobStatus:
    """The status with its counts. ``going``: pods that the controller deletes. ``coming``: the number of pods that are
    about to be made; they count as pending.

    Pods are counted before they exist: a status that counts no pod must mean that there is none.
    """
    staying = [pod for pod in pods if not pod.is_terminating]
    terminating = sum(pod.is_terminating for pod in pods) + sum(1 for _ in going)
    phases = {name: sum(pod.phase == name for pod in staying) for name in PHASES}
    tasks: dict[str, TaskState] = {}
    for task in plan.tasks:
        own = [pod.phase for pod in staying if pod.task == task.name]
        if own:
            tasks[task.name] = TaskState(phase={name: own.count(name) for name in PHASES if name in own})
    return msgspec.structs.replace(
        status,
        min_available=plan.min_available,
        task_status_count=tasks,
        pending=phases["Pending"] + coming,
        running=phases["Running"],
        succeeded=phases["Succeeded"],
        failed=phases["Failed"],
        unknown=phases["Unknown"],
        terminating=terminating,
    )


def known_pods(status: VolcanoJobStatus) -> dict[str, int]:
    """Pods by task that the status was written with, less those that were being deleted."""
    return {name: sum(task.phase.values()) for name, task in status.task_status_count.items()}


def is_active(job: Json) -> bool:
    """Whether pods of the job may run, by its status."""
    status = mapping(job, "status")
    return any(status.get(name) for name in ("pending", "running", "terminating", "unknown"))


def status_patch(before: Json, after: VolcanoJobStatus) -> Json:
    """The merge patch of the job's ``status``; empty if nothing changes. Counts of 0 that were left out stay so."""
    wanted: dict[str, Any] = to_json(after)
    now = {key: value for key, value in before.items() if not (key in _COUNTS and value == 0)}
    return difference(now, wanted)
