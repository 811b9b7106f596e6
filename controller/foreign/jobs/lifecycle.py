"""The lifecycle of a Volcano Job: what its pods and status become, from the job and its pods as they are. Pure.

Source of phases, actions and their order: volcano-sh/volcano, pkg/controllers/job (state/*, job_controller_actions.go).
Two things differ from Volcano's controller, each for a job that is queued:

- An eviction deletes the pods that run. Finished pods stay and are not run again, so their quota is free for
  good, and no retry is spent.
- A partial restart is written on the pods first (the mark names the retry that it is for), then counted, then carried
  out. A controller that is killed between any two writes finds all that it needs on the objects.

A job whose pods Volcano's controller started has no placement. They run on, and no pod joins them: what ends the job or
restarts all of it is answered, and a restart leaves a job that queues.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from controller.foreign.jobs.events import JOB_UPDATED, Happened, Order, answer, due, happened
from controller.foreign.jobs.gang import NewPod, Seen, new_pods, new_pods_above, with_ended
from controller.foreign.jobs.placement import Placement
from controller.foreign.jobs.podfacts import PodFacts
from controller.foreign.jobs.spec import RESTARTS, JobPlan
from controller.foreign.jobs.status import counted, known_pods, moved
from controller.foreign.objects.volcanojob import JobState, VolcanoCommand, VolcanoJobStatus
from controller.objects.meta import Struct
from inventory.words.catalog import plural

FINAL: Final = ("Completed", "Failed", "Terminated")
KEEPS_FINISHED: Final = (*FINAL, "Aborting", "Aborted", "Completing", "Terminating")
RUNS: Final = ("Pending", "Running")
MOST_AT_ONCE: Final = 500
"""Pods that one decision makes. Further pods follow when the watch shows these."""

_ENDINGS: Final = {"AbortJob": "Aborting", "TerminateJob": "Terminating", "CompleteJob": "Completing"}
_ENDED: Final = {"Aborting": "Aborted", "Terminating": "Terminated", "Completing": "Completed"}
_RESUMABLE: Final = ("Aborting", "Aborted")


class Decision(Struct, frozen=True, kw_only=True):
    """The actions of one step, carried out in the order of the fields: marks, status, deletions, new pods; then
    ``read``, the Commands to delete.

    ``marks``: the retry that the pod is deleted for, by its name. ``deleted``: names of pods. ``due_s``: the time of
    the next step without any change. ``expired``: the job's time to live is over.
    """

    status: VolcanoJobStatus
    marks: dict[str, int] = msgspec.field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    created: tuple[NewPod, ...] = ()
    read: tuple[VolcanoCommand, ...] = ()
    due_s: float | None = None
    expired: bool = False
    told: tuple[Order, ...] = ()


def decide(seen: Seen, now_s: float) -> Decision:
    status = seen.status if seen.status.state.phase else moved(seen.status, "Pending", now_s)
    order, read, due_s = _ordered(seen, status, now_s)
    targets: tuple[PodFacts, ...] = ()
    if order is not None:
        status, targets = _obeyed(seen, status, order, now_s)
    status = _settled(seen, status, targets, now_s)
    going = tuple(pod for pod in seen.pods if pod in targets or _must_go(seen, status, pod))
    created = tuple(islice(_new_pods(seen, status), MOST_AT_ONCE))
    status = counted(status, seen.plan, [pod for pod in seen.pods if pod not in going], going, len(created))
    due_s, expired = _end(seen, status, due_s, now_s)
    leaving = [pod for pod in going if not pod.is_terminating]
    return Decision(
        status=status,
        marks={pod.name: status.retry_count for pod in going if pod.marked is None and _is_marked(pod, targets)},
        deleted=tuple(pod.name for pod in sorted(leaving, key=lambda pod: (pod.task, -pod.index))),
        created=created,
        read=read,
        told=() if order is None else (order,),
        due_s=due_s,
        expired=expired,
    )


def _is_marked(pod: PodFacts, targets: tuple[PodFacts, ...]) -> bool:
    """Whether the pod gets the mark. A pod that is being deleted already gets it only if its deletion is what the
    restart answers.
    """
    return not pod.is_terminating or pod in targets


def _end(seen: Seen, status: VolcanoJobStatus, due_s: float | None, now_s: float) -> tuple[float | None, bool]:
    """The time of the next step, and whether a finished job's time to live is over."""
    ended = status.state.last_transition_time
    if status.state.phase not in FINAL:
        return due_s, False
    if seen.plan.ttl_s is None or ended is None:
        return None, False
    at_s = ended.timestamp() + seen.plan.ttl_s
    return at_s, at_s <= now_s


def ended(seen: Seen, decision: Decision) -> Placement | None:
    """The placement that says which pods have ended for good; None if it says so already. No policy is to answer to
    them.
    """
    answered = decision.told or decision.due_s is not None or decision.status.state.phase not in RUNS
    return None if answered else with_ended(seen)


# -- orders ------------------------------------------------------------------------------------------------------------


def _ordered(
    seen: Seen, status: VolcanoJobStatus, now_s: float
) -> tuple[Order | None, tuple[VolcanoCommand, ...], float | None]:
    """The order to carry out now, the Commands that have been read, and the time of a delayed policy.

    Commands go first. A Command that comes during a restart is read after it.
    """
    read = []
    for command in seen.commands:
        if status.state.phase == "Restarting":
            return None, (), None
        read.append(command)
        if _is_possible(command.action, status.state.phase):
            message = command.message or f"Command {command.metadata.name}: {command.action}"
            name = command.metadata.name
            return Order(action=command.action, event="CommandIssued", message=message, command=name), tuple(read), None
    if status.state.phase not in RUNS or (seen.placed is None and not seen.is_foreign):
        return None, tuple(read), None
    pods = [pod for pod in seen.pods if _is_current(pod, status)]
    ran = status.state.phase == "Running"
    events = happened(seen.here, pods, known_pods(seen.status), seen.own, ran=ran)
    events += _updates(seen, status)
    order, due_s = due(seen.here, events, now_s)
    if order is not None and not _is_possible(order.action, status.state.phase):
        order = None
    if order is not None and seen.is_foreign and order.action not in (*_ENDINGS, "RestartJob"):
        order = None  # pods that a part of it lacks are made anew only for a job with a placement
    return order, tuple(read), due_s


def _updates(seen: Seen, status: VolcanoJobStatus) -> list[Happened]:
    """The event that the job was scaled down, if a policy answers to it: its answer makes the job another version."""
    changes = [task.changed for task in (seen.placed or {}).values() if task.changed is not None]
    times = [at_s for version, at_s in changes if version == status.version]
    if not times:
        return []
    event = Happened(event=JOB_UPDATED, since_s=max(times))
    policy = answer(seen.plan, event)
    return [event] if policy is not None and _is_possible(policy.action, status.state.phase) else []


def _is_possible(action: str, phase: str) -> bool:
    if action == "ResumeJob":
        return phase in _RESUMABLE
    return phase in RUNS and (action in _ENDINGS or action in RESTARTS)


def _is_current(pod: PodFacts, status: VolcanoJobStatus) -> bool:
    """Whether the pod is of the job's version, and the controller does not delete it.

    A mark for a retry that is not counted yet was written just before the controller was killed: it is still to be
    answered.
    """
    return pod.version >= status.version and (pod.marked is None or pod.marked > status.retry_count)


def _obeyed(
    seen: Seen, status: VolcanoJobStatus, order: Order, now_s: float
) -> tuple[VolcanoJobStatus, tuple[PodFacts, ...]]:
    """The status after the order, and the pods that a partial restart deletes. A restart of all raises the version."""
    if order.action in _ENDINGS:
        after = msgspec.structs.replace(status, version=status.version + 1)
        return moved(after, _ENDINGS[order.action], now_s, order.event, order.message), ()
    after = msgspec.structs.replace(status, retry_count=status.retry_count + 1)
    targets: tuple[PodFacts, ...] = ()
    if order.action in ("RestartJob", "ResumeJob") or not order.task:
        after = msgspec.structs.replace(after, version=status.version + 1)
    else:
        targets = tuple(pod for pod in seen.pods if _is_current(pod, status) and _is_target(seen.plan, order, pod))
    return moved(after, "Restarting", now_s, order.event, order.message), targets


def _is_target(plan: JobPlan, order: Order, pod: PodFacts) -> bool:
    if pod.task != order.task:
        return False
    if order.action == "RestartTask" or order.index is None:
        return True
    task = plan.task(order.task)
    if order.action == "RestartPartition" and task is not None and task.partition_size:
        return task.partition(pod.index) == task.partition(order.index)
    return pod.index == order.index


# -- phases ------------------------------------------------------------------------------------------------------------


def _settled(seen: Seen, status: VolcanoJobStatus, targets: Iterable[PodFacts], now_s: float) -> VolcanoJobStatus:
    """The status after all phases that follow from the last one."""
    for _ in range(len(_ENDED) + len(RUNS) + len(FINAL)):
        phase, why = _next_phase(seen, status, tuple(targets))
        if phase == status.state.phase:
            return status
        status = moved(status, phase, now_s, "", why)
    return status


def _next_phase(seen: Seen, status: VolcanoJobStatus, targets: tuple[PodFacts, ...]) -> tuple[str, str]:
    phase = status.state.phase
    going = [pod for pod in seen.pods if pod in targets or _must_go(seen, status, pod)]
    staying = [pod for pod in seen.pods if pod not in going and not pod.is_terminating]
    if phase in _ENDED:
        alive = any(not pod.is_finished for pod in seen.pods)
        return (phase, "") if alive else (_ENDED[phase], status.state.message)
    if phase == "Restarting":
        if status.retry_count >= seen.plan.max_retry:
            return "Failed", f"Restarted {plural(status.retry_count, 'time')} of at most {seen.plan.max_retry}"
        if seen.queues_again:
            return phase, ""  # what finished pods have given back is not theirs any more: the job queues first
        left = seen.here.replicas - sum(pod in going or pod.is_terminating for pod in seen.pods)
        return ("Pending", "") if left >= seen.here.min_available else (phase, "")
    if phase in RUNS:
        return _synced(seen, phase, staying)
    return phase, ""


def _synced(seen: Seen, phase: str, pods: list[PodFacts]) -> tuple[str, str]:
    plan = seen.here
    count = {name: sum(pod.phase == name for pod in pods) for name in ("Pending", "Running", "Succeeded", "Failed")}
    finished = count["Succeeded"] + count["Failed"]
    if phase == "Pending":
        all_done = 0 < plan.replicas <= finished
        up = (seen.placed is not None or seen.is_foreign) and finished + count["Running"] >= plan.min_available
        return ("Running", "") if all_done or (up and pods) else (phase, "")
    if not plan.replicas:
        return phase, ""
    if plan.min_success is not None and count["Succeeded"] >= plan.min_success:
        return "Completed", f"{_succeeded(count['Succeeded'])}"
    if finished >= plan.replicas:
        return _concluded(plan, pods, count["Succeeded"])
    if seen.placed is None and not seen.is_foreign:
        return "Pending", "The job is queued"
    return ("Pending", "") if count["Pending"] > plan.replicas - plan.min_available else (phase, "")


def _succeeded(count: int) -> str:
    return f"{plural(count, 'pod has', 'pods have')} succeeded"


def _concluded(plan: JobPlan, pods: list[PodFacts], succeeded: int) -> tuple[str, str]:
    """Phase and message of a job whose pods have all finished."""
    if plan.task_minimums_count:
        for task in plan.tasks:
            own = sum(pod.task == task.name and pod.phase == "Succeeded" for pod in pods)
            if own < task.minimum:
                return (
                    "Failed",
                    f"of task {task.name} {_succeeded(own)}, expected {task.minimum}",
                )
    if plan.min_success is not None:
        return "Failed", f"{_succeeded(succeeded)}, expected {plan.min_success}"
    if succeeded >= plan.min_available:
        return "Completed", _succeeded(succeeded)
    return "Failed", f"{_succeeded(succeeded)}, expected {plan.min_available}"


# -- pods --------------------------------------------------------------------------------------------------------------


def _must_go(seen: Seen, status: VolcanoJobStatus, pod: PodFacts) -> bool:
    """Whether the controller deletes the pod, or has begun to."""
    phase = status.state.phase
    if phase in KEEPS_FINISHED:
        return not pod.is_finished
    if pod.version < status.version:
        return not (pod.is_finished and status.retry_count >= seen.plan.max_retry)
    if pod.marked is not None and pod.marked <= status.retry_count:
        return True
    task = seen.plan.task(pod.task)
    if task is None or pod.index >= task.replicas:
        return True
    return seen.placed is None and pod.is_ours and not pod.is_finished


def _new_pods(seen: Seen, status: VolcanoJobStatus) -> Iterator[NewPod]:
    """Missing pods of the tasks that need not wait for others. A name is free when its last pod is gone.

    Pods of the job's Workload come first.
    """
    if status.state.phase not in RUNS or seen.placed is None:
        return
    there: dict[str, set[int]] = {task.name: set() for task in seen.here.tasks if _may_begin(seen, status, task.name)}
    for pod in seen.pods:
        if pod.task in there:
            there[pod.task].add(pod.index)
    tasks = [task for task in seen.here.tasks if task.name in there]
    for make in (new_pods, new_pods_above):
        for task in tasks:
            yield from make(seen, task, there[task.name])


def _may_begin(seen: Seen, status: VolcanoJobStatus, name: str) -> bool:
    task = seen.here.task(name)
    if task is None or not task.waits_for:
        return True
    ready = (_is_up(seen, status, other) for other in task.waits_for)
    return any(ready) if task.any_is_enough else all(ready)


def _is_up(seen: Seen, status: VolcanoJobStatus, name: str) -> bool:
    task = seen.here.task(name)
    if task is None:
        return False
    pods = (pod for pod in seen.pods if pod.task == name and _is_current(pod, status) and not pod.is_terminating)
    up = sum((pod.phase == "Running" and pod.is_ready) or pod.phase == "Succeeded" for pod in pods)
    return up >= task.minimum


# -- invariants --------------------------------------------------------------------------------------------------------


def validate(seen: Seen, decision: Decision) -> None:
    """Recomputes the invariants of a decision. Raises AssertionError."""
    status, plan, here = decision.status, seen.plan, seen.here
    staying = [pod for pod in seen.pods if not pod.is_terminating and pod.name not in decision.deleted]
    ended = status.state.phase in KEEPS_FINISHED
    for task in plan.tasks:
        admitted = here.task(task.name)
        new = [pod.index for pod in decision.created if pod.task == task.name]
        indexes = [pod.index for pod in staying if pod.task == task.name and not ended] + new
        assert len(set(indexes)) == len(indexes), f"two pods of one index in task {task.name}"
        assert all(index < task.replicas for index in indexes), f"a pod beyond the replicas of task {task.name}"
        assert not new or (admitted is not None and max(new) < admitted.replicas), f"{task.name}: more than admitted"
        count = seen.own.get(task.name, 0)
        mixed = [pod for pod in decision.created if pod.task == task.name and bool(pod.above) != (pod.index >= count)]
        assert not mixed, f"task {task.name}: expected the first {count} pods in the Workload alone, found {mixed}"
    alive = [pod for pod in staying if not pod.is_finished]
    assert not [pod for pod in alive if pod.version < status.version], "a pod of an old version is alive"
    own = [pod for pod in alive if pod.is_ours]
    assert seen.placed is not None or not (own or decision.created), "a pod runs although the job is queued"
    assert status.state.phase not in FINAL or not (alive or decision.created), "a pod runs although the job has ended"
    counts = (status.pending, status.running, status.succeeded, status.failed, status.unknown, status.terminating)
    assert len(decision.created) <= MOST_AT_ONCE, "more pods at once than are made at once"
    assert sum(counts) == len(seen.pods) + len(decision.created), "the status counts other pods than there are"
    assert status.retry_count <= max(1, plan.max_retry), "more retries than allowed"
    assert status.version >= seen.status.version, "the version went back"
    assert status.state != JobState(), "a job without a phase"
