"""The gang of a Volcano Job: the pods that start together, and the pods above them, which come and go one by one. Pure.

Pods are told apart by their index: of each task the first are in the job's Workload, as many as its placement says, and
any beyond these is queued by itself (``controller.reconcile.pods.above``). So the role of a pod is known before it
exists. A job whose slices are queued (the annotation of elastic jobs) has all of its pods in its Workload.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from controller.foreign.jobs.placement import Placement
from controller.foreign.jobs.podfacts import PodFacts
from controller.foreign.jobs.spec import JobPlan, Task
from controller.foreign.objects.volcanojob import VolcanoCommand, VolcanoJobStatus
from controller.jobs.framework.names import WORKLOAD
from controller.objects.meta import Struct


class Seen(Struct, frozen=True, kw_only=True):
    """A job as the watches show it. ``placed``: None while the job may not run. ``commands``: those about this job, the
    oldest first.

    ``sliced``: its slices are queued.
    """

    plan: JobPlan
    status: VolcanoJobStatus
    pods: tuple[PodFacts, ...] = ()
    placed: Placement | None = None
    commands: tuple[VolcanoCommand, ...] = ()
    sliced: bool = False

    @property
    def is_foreign(self) -> bool:
        """Whether pods run that Volcano's controller started."""
        return self.placed is None and any(not pod.is_ours and not pod.is_finished for pod in self.pods)

    @property
    def here(self) -> JobPlan:
        """The plan, with the tasks as they were admitted."""
        if self.placed is None:
            return self.plan
        counts = {task.name: task.replicas for task in self.plan.tasks if task.name in self.placed}
        return self.plan.with_replicas(counts)

    @property
    def own(self) -> Mapping[str, int]:
        """Pods by task that are in the job's Workload: all others are above its minimum."""
        if self.placed is None or self.sliced:
            return {task.name: task.replicas for task in self.plan.tasks}
        return {name: task.pods for name, task in self.placed.items()}

    @property
    def queues_again(self) -> bool:
        """Whether finished pods of its Workload need the queue to run again: their quota is given back."""
        return self.placed is not None and gives_back(self.plan, self.placed)


class NewPod(Struct, frozen=True, kw_only=True):
    """A pod to make. ``above``: the Workload with the minimum of its gang; empty for a pod of that minimum."""

    task: str
    index: int
    above: str = ""


def minimums(plan: JobPlan) -> dict[str, int]:
    """Pods by task that start together: as many as ``minAvailable`` says, at least one.

    They are each task's own minimum, if minimums of tasks count; then pods of the tasks that others wait for, then of
    the first task.
    """
    counts = plan.task_minimums_count
    least = {task.name: _least(task, counts=counts) for task in plan.tasks}
    left = max(1, plan.min_available) - sum(least.values())
    for task in _in_order(plan):
        more = max(0, min(left, task.replicas - least[task.name]))
        least[task.name] += more
        left -= more
    return least


def _least(task: Task, *, counts: bool) -> int:
    """The minimum of a task. ``counts``: whether minimums of tasks count."""
    if task.is_whole:
        return task.replicas
    return max(0, min(task.minimum, task.replicas)) if counts else 0


def _in_order(plan: JobPlan) -> list[Task]:
    """The tasks, with those that others wait for first, else as they are written; tasks that wait in a circle come
    last.
    """
    place = {task.name: at for at, task in enumerate(plan.tasks)}
    awaits = {task.name: {name for name in task.waits_for if name in place} for task in plan.tasks}
    after: dict[str, list[str]] = {name: [] for name in place}
    for name, others in awaits.items():
        for other in others:
            after[other].append(name)
    left = {name: len(others) for name, others in awaits.items()}
    ordered, level = [], [name for name in place if not left[name]]
    while level:
        ordered += level
        level = [name for done in level for name in after[done] if _is_last(left, name)]
        level.sort(key=lambda name: place[name])
    return [plan.tasks[place[name]] for name in dict.fromkeys((*ordered, *place))]


def _is_last(left: dict[str, int], name: str) -> bool:
    """Counts down the tasks that ``name`` waits for; returns whether none is ``left``."""
    left[name] -= 1
    return not left[name]


def serves(placed: Placement, plan: JobPlan) -> bool:
    """Whether the pods of the job's Workload are enough for what the job requests now."""
    if placed.keys() != {task.name for task in plan.tasks}:
        return False
    have = {task.name: min(placed[task.name].pods, task.replicas) for task in plan.tasks}
    counts = plan.task_minimums_count
    if any(have[task.name] < _least(task, counts=counts) for task in plan.tasks):
        return False
    return sum(have.values()) >= min(max(1, plan.min_available), plan.replicas)


def new_pods(seen: Seen, task: Task, there: Collection[int]) -> Iterator[NewPod]:
    """Pods of the job's Workload that are missing."""
    own = min(seen.own.get(task.name, 0), task.replicas)
    return (NewPod(task=task.name, index=index) for index in range(own) if index not in there)


def new_pods_above(seen: Seen, task: Task, there: Collection[int]) -> Iterator[NewPod]:
    """Pods above the job's minimum that are missing. None while it is not known which Workload has the minimum."""
    placed = (seen.placed or {}).get(task.name)
    minimum = "" if placed is None else placed.info.own_annotations.get(WORKLOAD, "")
    indexes = range(seen.own.get(task.name, 0), task.replicas) if minimum else ()
    return (NewPod(task=task.name, index=index, above=minimum) for index in indexes if index not in there)


# -- quota of pods that have ended -------------------------------------------------------------------------------------


def gives_back(plan: JobPlan, placed: Placement) -> bool:
    """Whether quota of finished pods is, or may be, another workload's: none of them may run again without a queue."""
    return not plan.may_restart or any(task.ended for task in placed.values())


def with_ended(seen: Seen) -> Placement | None:
    """The placement with the number of pods of the Workload that have ended; None if it is unchanged, or not needed.

    The status does not tell it, because it counts pods above the minimum with the others. Quota of pods that no policy
    runs again is given back one by one; any other when the last pod of the Workload has ended: the pods above it may be
    waiting for just that quota.
    """
    if seen.placed is None or seen.sliced or not has_above(seen.plan, seen.placed):
        return None
    own = {name: list(_ended(seen, name, task.pods)) for name, task in seen.placed.items()}
    over = all(len(own[name]) >= task.pods for name, task in seen.placed.items())
    changed = {}
    for name, task in seen.placed.items():
        succeeded = 0 if seen.plan.may_restart else sum(pod.phase == "Succeeded" for pod in own[name])
        count = len(own[name]) if over else succeeded
        if count != task.ended:
            changed[name] = msgspec.structs.replace(task, ended=count)
    return {**seen.placed, **changed} if changed else None


def with_up(seen: Seen) -> Placement | None:
    """The placement that says whether all pods of the Workload run or have succeeded; None as for ``with_ended``.

    The status does not tell that either.
    """
    if seen.placed is None or seen.sliced or not has_above(seen.plan, seen.placed):
        return None
    changed = {}
    for name, task in seen.placed.items():
        own = sum(pod.phase in ("Running", "Succeeded") for pod in _staying(seen, name, task.pods))
        if task.pods and task.up != (own >= task.pods):
            changed[name] = msgspec.structs.replace(task, up=not task.up)
    return {**seen.placed, **changed} if changed else None


def has_above(plan: JobPlan, placed: Placement) -> bool:
    """Whether the job has pods above its minimum, which are no part of its Workload."""
    return any(placed[task.name].pods < task.replicas for task in plan.tasks if task.name in placed)


def _ended(seen: Seen, task: str, count: int) -> Iterator[PodFacts]:
    """Pods of the job's Workload that have finished and stay."""
    return (pod for pod in _staying(seen, task, count) if pod.is_finished)


def _staying(seen: Seen, task: str, count: int) -> Iterator[PodFacts]:
    """Pods of the job's Workload that nobody is deleting."""
    for pod in seen.pods:
        stays = not pod.is_terminating and pod.marked is None and pod.version >= seen.status.version
        if stays and pod.task == task and pod.index < count:
            yield pod
