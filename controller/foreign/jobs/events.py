"""The events of a Volcano Job, derived from its present pods, and the policy that answers each. Pure.

An event is a state of the pods that no policy has answered yet, so none is lost while the controller is away, and none
is answered twice: every answer deletes the pods that it is about, or makes them pods of an old version.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller.foreign.jobs.podfacts import PodFacts
from controller.foreign.jobs.spec import NEVER, JobPlan, Policy, Task
from controller.objects.meta import Struct

POD_FAILED: Final = "PodFailed"
POD_EVICTED: Final = "PodEvicted"
POD_PENDING: Final = "PodPending"
TASK_COMPLETED: Final = "TaskCompleted"
TASK_FAILED: Final = "TaskFailed"
JOB_UNKNOWN: Final = "Unknown"
JOB_UPDATED: Final = "JobUpdated"
ANY: Final = "*"


class Happened(Struct, frozen=True, kw_only=True):
    """One event. ``index``: the pod's in its task; None if it is about the task, or the job. ``since_s``: None is just
    now.
    """

    event: str
    task: str = ""
    index: int | None = None
    exit_code: int = 0
    since_s: float | None = None

    @property
    def sentence(self) -> str:
        what = "the job" if not self.task else f"task {self.task}"
        what = what if self.index is None else f"pod {self.index} of {what}"
        return f"{self.event}: {what}" + (f", exit code {self.exit_code}" if self.exit_code else "")


class Order(Struct, frozen=True, kw_only=True):
    """An action to take, and what it is about: see ``Happened``. ``command``: the Command that orders it."""

    action: str
    event: str
    message: str
    task: str = ""
    index: int | None = None
    command: str = ""


def happened(
    plan: JobPlan, pods: Iterable[PodFacts], known: dict[str, int], together: Mapping[str, int], *, ran: bool
) -> list[Happened]:
    """The events of the job in the order in which they happened. ``pods``: pods of the job's version that the
    controller does not delete.

    ``known``: pods by task when the status was last written. ``together``: the number of pods of each task that are
    admitted together; pods beyond it come and go. ``ran``: the job had its minimum.
    """
    own: dict[str, list[PodFacts]] = {task.name: [] for task in plan.tasks}
    for pod in sorted(pods, key=lambda pod: pod.index):
        if pod.task in own:
            own[pod.task].append(pod)
    events = []
    for task in plan.tasks:
        fixed = min(together.get(task.name, 0), task.replicas)
        # All known pods that may have been above the minimum may have been deleted by the queue.
        known_fixed = min(known.get(task.name, 0), task.replicas) - (task.replicas - fixed)
        events += [*_of_task(task, own[task.name]), *_lost(task.name, fixed, own[task.name], known_fixed)]
    every = [pod for listed in own.values() for pod in listed if not pod.is_terminating]
    # A pod above the minimum may wait for a node: the job is whole without it.
    is_torn = any(pod.is_unschedulable and not pod.is_above for pod in every)
    if ran and is_torn and any(pod.phase == "Running" for pod in every):
        events.append(Happened(event=JOB_UNKNOWN))
    return sorted(events, key=lambda event: (event.since_s is None, event.since_s or 0.0))


def _of_task(task: Task, pods: list[PodFacts]) -> Iterator[Happened]:
    for pod in pods:
        if pod.index >= task.replicas or pod.is_given_up:
            continue
        if pod.is_terminating:
            yield _about(POD_EVICTED, pod, pod.deleted_s)
        elif pod.phase == "Failed":
            yield _about(POD_FAILED, pod, pod.finished_s)
        elif pod.phase == "Pending":
            yield _about(POD_PENDING, pod, pod.created_s)
    succeeded = [pod for pod in pods if pod.phase == "Succeeded" and not pod.is_terminating]
    if task.replicas and len(succeeded) >= task.replicas:
        last = max(pod.finished_s or 0.0 for pod in succeeded)
        yield Happened(event=TASK_COMPLETED, task=task.name, since_s=last)
    restarts = sum(pod.restarts for pod in pods if pod.phase in ("Pending", "Running") and not pod.is_terminating)
    if task.max_retry != NEVER and restarts and restarts >= task.max_retry:
        yield Happened(event=TASK_FAILED, task=task.name)


def _about(event: str, pod: PodFacts, since_s: float | None) -> Happened:
    code = (pod.exit_code or 0) if event == POD_FAILED else 0
    return Happened(event=event, task=pod.task, index=pod.index, exit_code=code, since_s=since_s)


def _lost(task: str, fixed: int, pods: list[PodFacts], known: int) -> Iterator[Happened]:
    """Events of pods below the index ``fixed`` that existed and do not exist now, and were never seen to be deleted."""
    there = {pod.index for pod in pods if pod.index < fixed}
    missing = [index for index in range(fixed) if index not in there]
    for index in missing[: max(0, known - len(there))]:
        yield Happened(event=POD_EVICTED, task=task, index=index)


def answer(plan: JobPlan, event: Happened) -> Policy | None:
    """The first policy that matches: the task's before the job's."""
    task = plan.task(event.task)
    listed = (*(() if task is None else task.policies), *plan.policies)
    return next((policy for policy in listed if _matches(policy, event)), None)


def _matches(policy: Policy, event: Happened) -> bool:
    if event.event in policy.events or ANY in policy.events:
        return event.event != POD_PENDING or policy.delay_s is not None
    return bool(policy.exit_code) and event.event == POD_FAILED and policy.exit_code == event.exit_code


def due(plan: JobPlan, events: Iterable[Happened], now_s: float) -> tuple[Order | None, float | None]:
    """The first order whose time has come, and the time of the next one."""
    next_s: float | None = None
    for event in events:
        policy = answer(plan, event)
        if policy is None or policy.action == "SyncJob":
            continue
        if policy.delay_s:
            # An event without a time has left the state that the delay is about: no action is due.
            at_s = None if event.since_s is None else event.since_s + policy.delay_s
            if at_s is None:
                continue
            if at_s > now_s:
                next_s = at_s if next_s is None else min(next_s, at_s)
                continue
        message = f"{event.sentence}: {policy.action}"
        order = Order(action=policy.action, event=event.event, message=message, task=event.task, index=event.index)
        return order, next_s
    return None, next_s
