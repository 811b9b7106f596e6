"""The gang of a Volcano Job: the pods that start together, and those above them, which come and go one by one. Pure.

Pods are told apart by their index: of each task the first are in the job's Workload, as many as its placement says,
and any beyond these is queued by itself (``controller.pods.above``). So it is known of a pod that is not there what it
is to be. A job whose slices are queued (the annotation of elastic jobs) has all of its pods in its Workload.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from controller.jobframework.names import WORKLOAD
from controller.objects.meta import Struct
from controller.objects.volcanojob import VolcanoCommand, VolcanoJobStatus
from controller.volcanojobs.placement import Placement
from controller.volcanojobs.podfacts import PodFacts
from controller.volcanojobs.spec import JobPlan, Task


class Seen(Struct, frozen=True, kw_only=True):
    """``placed``: None while the job may not run. ``commands``: those about this job, the oldest first.

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
        """The plan with the tasks that were admitted."""
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
        """Whether pods of its Workload that have finished may run again from the queue alone: their quota is gone."""
        return self.placed is not None and gives_back(self.plan, self.placed)


class NewPod(Struct, frozen=True, kw_only=True):
    """``above``: the Workload that has the minimum of its gang; empty for a pod of that."""

    task: str
    index: int
    above: str = ""


def minimums(plan: JobPlan) -> dict[str, int]:
    """Pods by task that start together: as many as ``minAvailable`` says, at least one.

    Of each task its own minimum, where these count; then those of the tasks that others wait for, and of the first.
    """
    counts = plan.task_minimums_count
    found = {task.name: _least(task, counts=counts) for task in plan.tasks}
    left = max(1, plan.min_available) - sum(found.values())
    for task in _in_order(plan):
        more = max(0, min(left, task.replicas - found[task.name]))
        found[task.name] += more
        left -= more
    return found


def _least(task: Task, *, counts: bool) -> int:
    """``counts``: whether minimums of tasks count."""
    if task.is_whole:
        return task.replicas
    return max(0, min(task.minimum, task.replicas)) if counts else 0


def _in_order(plan: JobPlan) -> list[Task]:
    """Tasks that others wait for before these, else as they are written; those that wait in a circle come last."""
    place = {task.name: at for at, task in enumerate(plan.tasks)}
    awaits = {task.name: {name for name in task.waits_for if name in place} for task in plan.tasks}
    after: dict[str, list[str]] = {name: [] for name in place}
    for name, others in awaits.items():
        for other in others:
            after[other].append(name)
    left = {name: len(others) for name, others in awaits.items()}
    found, level = [], [name for name in place if not left[name]]
    while level:
        found += level
        level = [name for done in level for name in after[done] if _is_last(left, name)]
        level.sort(key=lambda name: place[name])
    return [plan.tasks[place[name]] for name in dict.fromkeys((*found, *place))]


def _is_last(left: dict[str, int], name: str) -> bool:
    """Whether nothing else is ``left`` that the task waits for, once this is there."""
    left[name] -= 1
    return not left[name]


def serves(placed: Placement, plan: JobPlan) -> bool:
    """Whether the pods of the job's Workload are enough for what the job asks for by now."""
    if placed.keys() != {task.name for task in plan.tasks}:
        return False
    have = {task.name: min(placed[task.name].pods, task.replicas) for task in plan.tasks}
    counts = plan.task_minimums_count
    if any(have[task.name] < _least(task, counts=counts) for task in plan.tasks):
        return False
    return sum(have.values()) >= min(max(1, plan.min_available), plan.replicas)


def new_pods(seen: Seen, task: Task, there: Collection[int]) -> Iterator[NewPod]:
    """Those of the job's Workload that are missing."""
    own = min(seen.own.get(task.name, 0), task.replicas)
    return (NewPod(task=task.name, index=index) for index in range(own) if index not in there)


def new_pods_above(seen: Seen, task: Task, there: Collection[int]) -> Iterator[NewPod]:
    """Those above its minimum that are missing. Where it is not said which Workload has the minimum, there are none."""
    placed = (seen.placed or {}).get(task.name)
    minimum = "" if placed is None else placed.info.own_annotations.get(WORKLOAD, "")
    indexes = range(seen.own.get(task.name, 0), task.replicas) if minimum else ()
    return (NewPod(task=task.name, index=index, above=minimum) for index in indexes if index not in there)


# -- quota of pods that have ended -------------------------------------------------------------------------------------


def gives_back(plan: JobPlan, placed: Placement) -> bool:
    """Whether quota of pods that have finished is, or may be, another's: none of them may run again without a queue."""
    return not plan.may_restart or any(task.ended for task in placed.values())


def with_ended(seen: Seen) -> Placement | None:
    """The placement with how many pods of the Workload have ended; None where it says so, or where nobody asks.

    The status counts pods above the minimum with the others, so it does not tell. Quota of pods that no policy runs
    again is given back one by one; any other when the last pod of the Workload has ended: those above it may be waiting
    for just that quota.
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
    """The placement with whether all pods of the Workload run or have succeeded; None as for ``with_ended``.

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
    """Whether the job has pods above its minimum, that are no part of its Workload."""
    return any(placed[task.name].pods < task.replicas for task in plan.tasks if task.name in placed)


def _ended(seen: Seen, task: str, count: int) -> Iterator[PodFacts]:
    """Pods of the job's Workload that have finished and stay."""
    return (pod for pod in _staying(seen, task, count) if pod.is_finished)


def _staying(seen: Seen, task: str, count: int) -> Iterator[PodFacts]:
    """Pods of the job's Workload that nobody deletes."""
    for pod in seen.pods:
        stays = not pod.is_terminating and pod.marked is None and pod.version >= seen.status.version
        if stays and pod.task == task and pod.index < count:
            yield pod
