"""Gangs: tasks that start together. Tasks are in pod sets, pod sets in a tree of groups, each with its own minimum.

Source: PodGroup of scheduling.run.ai/v2alpha2 and its subgroups. A pod set below its minimum is not started at all;
tasks above the minimum join and leave one by one. Subgroups that the gang does not need (``PodSet.whole``) join and
leave one by one, each with the minimums of all its pod sets.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.model.resources import ResourceName
from inventory.api.names import GPU_PERCENT

GangName = NewType("GangName", str)
TaskName = NewType("TaskName", str)
NodeName = NewType("NodeName", str)
GpuGroup = NewType("GpuGroup", str)
"""The name of one shared GPU of a node; the tasks that share it have the name."""

CPU, MEMORY, GPU = ResourceName("cpu"), ResourceName("memory"), ResourceName("gpu")
PODS = ResourceName("pods")
_PERCENT: Final = 0.01


class Phase(StrEnum):
    """The state of a task. ALLOCATED was decided in this session, RUNNING before; PIPELINED waits for what is
    released.
    """

    PENDING = "Pending"
    GATED = "Gated"
    ALLOCATED = "Allocated"
    RUNNING = "Running"
    PIPELINED = "Pipelined"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ACTIVE = frozenset({Phase.ALLOCATED, Phase.RUNNING})
USED = ACTIVE | {Phase.PIPELINED}


@dataclass(frozen=True, eq=False)
class TaskRequest:
    """The request of a task; tasks with equal requests share one object, and nodes remember whether it fits.

    ``gpus`` are whole ones. ``portion`` (between 0 and 1) or ``gpu_memory_mib`` is requested of each of ``shared_gpus``
    GPUs. ``counted`` are resources by count, MIG instances among them, by their full names.
    """

    cpu_milli: float = 0.0
    memory_bytes: float = 0.0
    gpus: int = 0
    shared_gpus: int = 0
    portion: float = 0.0
    gpu_memory_mib: int = 0
    counted: Mapping[ResourceName, int] = field(default_factory=dict)
    asked: Mapping[ResourceName, float] = field(init=False)
    """What the task takes of a node, without shared GPUs."""

    def __post_init__(self) -> None:
        amounts = {CPU: self.cpu_milli, MEMORY: self.memory_bytes, GPU: float(self.gpus)}
        some = {name: amount for name, amount in amounts.items() if amount > 0.0}
        object.__setattr__(self, "asked", {PODS: 1.0, **self.counted} | some)

    @property
    def is_shared(self) -> bool:
        return self.shared_gpus > 0

    @property
    def on_gpu(self) -> bool:
        return self.gpus > 0 or self.is_shared or any(gpus_in(name) for name in self.counted)

    def memory_on_mib(self, node_gpu_memory_mib: int) -> int:
        """MiB that the task takes of each shared GPU, on a node whose GPUs have ``node_gpu_memory_mib``."""
        return self.gpu_memory_mib or int(self.portion * node_gpu_memory_mib)

    def charged(self, node_gpu_memory_mib: int) -> Amounts:
        """What the task's queue is charged: ``gpus_in`` of resources by count, and memory as a fraction of a GPU."""
        portion = self.portion or (self.gpu_memory_mib / node_gpu_memory_mib if node_gpu_memory_mib else 0.0)
        parts = sum(gpus_in(name) * count for name, count in self.counted.items())
        return {
            CPU: self.cpu_milli,
            MEMORY: self.memory_bytes,
            GPU: self.gpus + portion * self.shared_gpus + parts,
        }


def gpus_in(name: str) -> float:
    """How many GPUs one unit of a resource counts as: a MIG instance as many as it has slices, a percent of a GPU a
    hundredth. 0 for any other resource, whole GPUs included.
    """
    return _PERCENT if name == GPU_PERCENT else mig_slices(name)


def mig_slices(name: str) -> int:
    """Compute slices of a resource such as nvidia.com/mig-3g.20gb; 0 for any other."""
    _, is_mig, profile = name.partition("/mig-")
    slices = profile.partition("g.")[0]
    return int(slices) if is_mig and slices.isdecimal() else 0


@dataclass(frozen=True)
class TopologyConstraint:
    """The topology request of a group or pod set. ``levels`` are the node labels of the topology, outermost first;
    ``required`` and ``preferred`` are one of them, or empty.
    """

    levels: tuple[str, ...]
    required: str = ""
    preferred: str = ""


@dataclass(slots=True)
class Task:
    """A pod. A task has a node in every phase but PENDING, GATED, SUCCEEDED and FAILED, and ``groups`` where it shares
    GPUs there. ``gangmodel`` gives a task of a running job its ``phase`` and ``node`` before a session begins; from
    then on ``GangSession`` alone writes ``phase``, ``node`` and ``groups``, together, and undoes them together.

    ``gang`` and ``pod_set`` are the names of the gang and pod set whose ``tasks`` have it: ``gangmodel`` renames them
    where a job above a minimum joins the gang of its minimum, and never once a session has begun. Slots save 48 bytes
    of each task, 2.3 MiB of 50,000.
    """

    name: TaskName
    gang: GangName
    pod_set: str
    request: TaskRequest
    phase: Phase = Phase.PENDING
    node: NodeName | None = None
    groups: tuple[GpuGroup, ...] = ()
    priority: int = 0
    node_kinds: frozenset[NodeName] | None = None
    """The nodes on which the task's own rules (selector, affinity) let it run; None: all."""


Startable = Callable[[Task], bool]


def is_pending(task: Task) -> bool:
    return task.phase is Phase.PENDING


@dataclass
class PodSet:
    """Tasks of a gang that start together, at least ``minimum`` of them. ``gangmodel`` writes one while it builds the
    model; ``Planner`` adds the ``constraint`` of a consolidation. Sessions only read it.

    ``name`` is its key in ``Gang.pod_sets``. ``tasks`` and ``minimum`` of a running job are its placed pods and their
    number. ``whole`` changes together with ``name``, when the pod set joins a gang as a subgroup that it can do
    without.
    """

    name: str
    minimum: int
    tasks: list[Task] = field(default_factory=list)
    constraint: TopologyConstraint | None = None
    whole: str = ""
    """The subgroup of the pod set, if the gang does not need that subgroup; empty for a pod set that the gang needs."""

    def active(self) -> int:
        return sum(task.phase in ACTIVE for task in self.tasks)

    def used(self) -> int:
        return sum(task.phase in USED for task in self.tasks)

    def lacks(self) -> int:
        """How many tasks the pod set lacks to reach its minimum."""
        return max(0, self.minimum - self.used())

    def in_order(self, wanted: Startable) -> list[Task]:
        """The wanted tasks, by priority, then by name; numbers in names count as numbers."""
        return sorted(filter(wanted, self.tasks), key=_task_key)


@dataclass
class Group:
    """A node of the tree: it has ``groups`` below it, or ``pod_sets``. ``gangmodel`` adds to the root of a gang what
    joins it above its minimum; sessions only read it.
    """

    name: str = ""
    groups: list["Group"] = field(default_factory=list)
    pod_sets: list[PodSet] = field(default_factory=list)
    constraint: TopologyConstraint | None = None

    def all_pod_sets(self) -> Iterator[PodSet]:
        for group in self.groups:
            yield from group.all_pod_sets()
        yield from self.pod_sets


@dataclass
class Gang:
    """A gang. ``created`` in seconds orders gangs of one priority; ``Planner`` puts the order in its place in which a
    consolidation takes victims. ``stale_s`` is how long the gang has run below its minimum.
    """

    name: GangName
    queue: QueueName
    priority: int
    preemptible: bool
    created: float
    root: Group
    stale_s: float = 0.0
    movable: bool = True
    """Whether a consolidation may move the gang. ``gangmodel`` and ``GangTurn`` clear it where one of its jobs may not
    be moved, or has not run for long enough; a session never does.
    """
    pod_sets: dict[str, PodSet] = field(init=False)
    """All pod sets below ``root``, by name. ``gangmodel`` adds each that it hangs below ``root`` later."""

    def __post_init__(self) -> None:
        self.pod_sets = {pod_set.name: pod_set for pod_set in self.root.all_pod_sets()}

    def tasks(self) -> Iterator[Task]:
        for pod_set in self.pod_sets.values():
            yield from pod_set.tasks

    def in_phase(self, phases: frozenset[Phase]) -> list[Task]:
        return [task for task in self.tasks() if task.phase in phases]

    @property
    def is_ready(self) -> bool:
        """Whether enough tasks exist, and may be started, for every minimum."""
        startable = USED | {Phase.PENDING, Phase.RELEASING}
        return all(
            sum(task.phase in startable for task in pod_set.tasks) >= pod_set.minimum for pod_set in self._needed()
        )

    @property
    def is_satisfied(self) -> bool:
        return all(pod_set.used() >= pod_set.minimum for pod_set in self._needed())

    def elasticity(self, without: AbstractSet[TaskName] = frozenset()) -> int:
        """-1 below a minimum, 0 at all minimums, 1 above one: in this order gangs of one priority are started."""
        counts = [
            (
                sum(task.phase in USED and task.name not in without for task in pod_set.tasks),
                0 if pod_set.whole else pod_set.minimum,
            )
            for pod_set in self.pod_sets.values()
        ]
        if any(used < minimum for used, minimum in counts):
            return -1
        return 1 if any(used > minimum for used, minimum in counts) else 0

    def waits_for_release(self) -> bool:
        """Whether a pod set reaches its minimum only by pipelined tasks: everything that it was given waits
        with them.
        """
        return any(
            pod_set.used() > pod_set.active() and pod_set.active() < pod_set.minimum for pod_set in self._needed()
        )

    def next_tasks(self) -> list[Task]:
        """The tasks that are started next: all that its minimums lack, at once; else one task more, or else one
        subgroup more. None is started while fewer wait than are lacking: the others are still leaving.
        """
        return self._next(is_pending, _all_lacked)

    def next_moved(self, homeless: Startable) -> list[Task]:
        """``next_tasks`` for tasks that lost their places; a gang that ran on below a minimum may do so in another
        place.
        """
        return self._next(homeless, _lacked)

    def _next(self, startable: Startable, lacked: Callable[[Iterable[PodSet], Startable], list[Task]]) -> list[Task]:
        ordered = self._pod_sets_in_order()
        lacking = [pod_set for pod_set in ordered if not pod_set.whole and pod_set.lacks()]
        if lacking:
            return lacked(lacking, startable)
        for pod_set in ordered:
            if not pod_set.whole and (more := pod_set.in_order(startable)):
                return more[:1]
        for whole in dict.fromkeys(pod_set.whole for pod_set in ordered if pod_set.whole):
            if tasks := lacked([pod_set for pod_set in ordered if pod_set.whole == whole], startable):
                return tasks
        return []

    def next_victims(self, without: AbstractSet[TaskName] = frozenset()) -> list[Task]:
        """The tasks that leave next, after those of ``without`` have left: one task above a minimum, or else one
        subgroup that is not needed, or else the whole gang.
        """
        left = {
            pod_set.name: pod_set.in_order(lambda task: task.phase in ACTIVE and task.name not in without)
            for pod_set in self._pod_sets_in_order()
        }
        for name in reversed(left):
            if not self.pod_sets[name].whole and len(left[name]) > self.pod_sets[name].minimum:
                return left[name][-1:]
        for name in reversed(left):
            if left[name] and (whole := self.pod_sets[name].whole):
                return [task for each, tasks in left.items() if self.pod_sets[each].whole == whole for task in tasks]
        return [task for tasks in left.values() for task in tasks]

    def _needed(self) -> Iterator[PodSet]:
        return (pod_set for pod_set in self.pod_sets.values() if not pod_set.whole)

    def _pod_sets_in_order(self) -> list[PodSet]:
        """The pod sets, those furthest below their minimum first."""

        def key(pod_set: PodSet) -> tuple[bool, float, str]:
            used, minimum = pod_set.used(), pod_set.minimum
            return used >= minimum, used / minimum if minimum else float(used), pod_set.name

        return sorted(self.pod_sets.values(), key=key)


def _lacked(pod_sets: Iterable[PodSet], startable: Startable) -> list[Task]:
    """The tasks that are missing for the minimums, as far as they exist."""
    return [task for pod_set in pod_sets for task in pod_set.in_order(startable)[: pod_set.lacks()]]


def _all_lacked(pod_sets: Iterable[PodSet], startable: Startable) -> list[Task]:
    """The tasks that are missing for the minimums; empty where some do not exist."""
    pod_sets = list(pod_sets)
    tasks = _lacked(pod_sets, startable)
    return tasks if len(tasks) == sum(pod_set.lacks() for pod_set in pod_sets) else []


def _task_key(task: Task) -> tuple[int, int, str]:
    return -task.priority, len(task.name), task.name
