"""The state on which one cycle decides: nodes, gangs and queues, under one log of changes that can be undone. Source:
sessions and statements of KAI Scheduler.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from controller.scheduler.kai.gangs.gang import (
    ACTIVE,
    USED,
    Gang,
    GangName,
    GpuGroup,
    NodeName,
    Phase,
    Task,
)
from controller.scheduler.kai.gangs.kainode import Hold, KaiNode, When, hold_of, total
from controller.scheduler.kai.gangs.shares import GangQueue, fair_shares
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts, QueueShare, Tree, added, path, subtracted
from controller.scheduler.model.resources import ResourceName

_ROUNDING: Final = 1e-3
"""Tolerance for sums of floats: a thousandth of a milli-CPU, of a byte or of a GPU."""

Spares = Callable[[Gang, Gang, bool], bool]
"""Called with (victim, gang, within): whether the victim is spared from the gang. ``within``: both are in one queue."""

MovesFor = Callable[[Gang], Callable[[Gang], bool]]
"""Called with a gang that waits; returns a function that says whether another gang may move for it."""


def nobody(_victim: Gang, _gang: Gang, _within: bool) -> bool:
    return False


def all_movable(_gang: Gang) -> Callable[[Gang], bool]:
    return lambda moved: moved.movable


@dataclass(frozen=True)
class GangSolution:
    """What an action decided: ``victims`` lose their places for ``tasks`` of ``gang``."""

    action: str
    gang: Gang
    tasks: tuple[Task, ...]
    victims: tuple[Task, ...]


Mark = int
"""A length of the log of changes: what came after it can be undone."""


class SessionDriftError(AssertionError):
    """Two fields of a session contradict each other; the message says which."""


@dataclass(frozen=True)
class CycleLimits:
    """What a cycle may do. ``spread_gpus`` and ``spread_cpu``: tasks are spread over nodes, else packed;
    ``spread_shared``: tasks are spread over shared GPUs; ``fills_shared``: nodes where it fits on a shared GPU come
    first. ``saturation`` is KAI's saturation multiplier of reclaim. ``consolidation_victims`` is how many gangs may
    move for one gang, ``moves`` how many for all together; None: any number.
    """

    spread_gpus: bool = False
    spread_cpu: bool = False
    spread_shared: bool = False
    fills_shared: bool = True
    saturation: float = 1.0
    usage_weight: float = 0.0
    staleness_s: float = 60.0
    consolidation_victims: int | None = 16
    moves: int | None = None


class GangSession:
    """The state of one cycle. Invariants: a queue's ``allocated`` is what its USED tasks and those of all queues below
    it are charged, its ``non_preemptible`` the part of gangs that are not preemptible. A node holds a task as
    ``hold_of(phase)`` says; a task that was evicted and got another place is held as RELEASING where it was. The log
    undoes changes in reverse.
    """

    def __init__(
        self,
        nodes: Iterable[KaiNode],
        gangs: Iterable[Gang],
        queues: Iterable[GangQueue],
        limits: CycleLimits | None = None,
        spares: Spares = nobody,
        moves_for: MovesFor = all_movable,
    ) -> None:
        """``spares`` says which victims have not run for their minimum yet, ``moves_for`` which may be moved."""
        self.nodes: dict[NodeName, KaiNode] = {node.name: node for node in nodes}
        self.gangs: dict[GangName, Gang] = {gang.name: gang for gang in gangs}
        self.queues: dict[QueueName, GangQueue] = {queue.name: queue for queue in queues}
        self.limits = limits or CycleLimits()
        self.total: Amounts = total(self.nodes.values())
        memories = [node.gpu_memory_mib for node in self.nodes.values() if node.gpu_memory_mib > 0]
        self._smallest_gpu_mib = min(memories, default=0)
        self.spares = spares
        self.moves_for = moves_for
        self.solutions: list[GangSolution] = []
        """The evictions of all actions with the gangs that they are for, in order."""
        self._log: list[Callable[[], None]] = []
        self._groups = 0
        self.stamps: dict[QueueName, int] = dict.fromkeys(self.queues, 0)
        """A number for each queue that grows with each change of what the queue is charged."""
        self.tree: dict[QueueName, QueueShare] = {}
        """The queues with their shares. The mappings ``allocated`` and ``non_preemptible`` in it are changed
        in place.
        """
        self._allocated: dict[QueueName, dict[ResourceName, float]] = {name: {} for name in self.queues}
        self._non_preemptible: dict[QueueName, dict[ResourceName, float]] = {name: {} for name in self.queues}
        self._shortages = {
            (node.name, when): node.free(when).shortage() for node in self.nodes.values() for when in When
        }
        """What nodes lack at the start: a node that shrank under its tasks may lack so much, and no more."""
        self._open()

    def _open(self) -> None:
        requests: dict[QueueName, Amounts] = {}
        for name, queue in self.queues.items():
            self.tree[name] = QueueShare(
                name, queue.parent, queue.quota, queue.limit, {}, self._allocated[name], self._non_preemptible[name]
            )
        for gang in self.gangs.values():
            for task in gang.tasks():
                if task.phase in USED:
                    self._charge(task, 1.0)
                if task.phase in USED or task.phase is Phase.PENDING:
                    for above in path(self.tree, gang.queue):
                        requests[above.name] = added(requests.get(above.name, {}), self.charged(task))
        shares = fair_shares(self.queues.values(), self.total, requests, self.limits.usage_weight)
        for name, share in self.tree.items():
            self.tree[name] = replace(share, fair_share=shares[name])

    # -- what things amount to ---------------------------------------------------------------------------------------

    def charged(self, task: Task) -> Amounts:
        """What the task is charged on its node or, without a node, on one whose GPUs have the least memory."""
        if task.node is not None and task.phase is not Phase.PENDING:
            return task.request.charged(self.nodes[task.node].gpu_memory_mib)
        return task.request.charged(self._smallest_gpu_mib)

    def charged_together(self, tasks: Iterable[Task]) -> Amounts:
        found: Amounts = {}
        for task in tasks:
            found = added(found, self.charged(task))
        return found

    def path(self, name: QueueName) -> list[QueueShare]:
        return path(self.tree, name)

    def before(self) -> Tree:
        """A copy of the queues as they are now; later decisions do not change it."""
        return {
            name: replace(share, allocated=dict(share.allocated), non_preemptible=dict(share.non_preemptible))
            for name, share in self.tree.items()
        }

    # -- the log -----------------------------------------------------------------------------------------------------

    def mark(self) -> Mark:
        return len(self._log)

    def undo(self, mark: Mark) -> None:
        while len(self._log) > mark:
            self._log.pop()()

    # -- changes -----------------------------------------------------------------------------------------------------

    def place(self, task: Task, node: KaiNode) -> None:
        """The task is bound to what is free now, or else waits; the node fits it. A preferred shared GPU is waited
        for even where another is free.
        """
        now, later = (node.sharing(task.request, when, spread=self.limits.spread_shared) for when in When)
        if now == later and node.fits(task.request, When.NOW):
            self.allocate(task, node)
        else:
            self.pipeline(task, node)

    def allocate(self, task: Task, node: KaiNode) -> None:
        """The task is bound to what is free now."""
        self._place(task, node, Phase.ALLOCATED, self._groups_for(task, node, When.NOW))

    def pipeline(self, task: Task, node: KaiNode) -> None:
        """The task waits for what will be free. An evicted task that gets its own place again counts as never
        evicted.
        """
        groups = self._groups_for(task, node, When.LATER)
        if task.phase is Phase.RELEASING and task.node == node.name and (not task.groups or task.groups == groups):
            self._take_back(task, node)
        else:
            self._place(task, node, Phase.PIPELINED, groups)

    def evict(self, task: Task) -> None:
        assert task.phase in ACTIVE
        assert task.node is not None
        node = self.nodes[task.node]
        self._charge(task, -1.0)
        self._log.append(lambda: self._charge(task, 1.0))
        self._hold(node, task, hold_of(task.phase), Hold.RELEASING, task.groups)
        self._set(task, Phase.RELEASING, task.node, task.groups)

    def wait_for_release(self, gang: Gang) -> None:
        """All tasks that the gang was given in this session wait together with its pipelined ones."""
        for task in gang.in_phase(frozenset({Phase.ALLOCATED})):
            assert task.node is not None
            self._hold(self.nodes[task.node], task, Hold.ACTIVE, Hold.PIPELINED, task.groups)
            self._set(task, Phase.PIPELINED, task.node, task.groups)

    def _take_back(self, task: Task, node: KaiNode) -> None:
        self._hold(node, task, Hold.RELEASING, Hold.ACTIVE, task.groups)
        self._set(task, Phase.RUNNING, task.node, task.groups)
        self._charge(task, 1.0)
        self._log.append(lambda: self._charge(task, -1.0))

    def _place(self, task: Task, node: KaiNode, phase: Phase, groups: tuple[GpuGroup, ...]) -> None:
        self._hold(node, task, None, hold_of(phase), groups)
        self._set(task, phase, node.name, groups)
        self._charge(task, 1.0)
        self._log.append(lambda: self._charge(task, -1.0))

    def _groups_for(self, task: Task, node: KaiNode, when: When) -> tuple[GpuGroup, ...]:
        found = node.sharing(task.request, when, spread=self.limits.spread_shared)
        return tuple(self._new_group(node) if group is None else group for group in found)

    def _new_group(self, node: KaiNode) -> GpuGroup:
        self._groups += 1
        return GpuGroup(f"{node.name}/new-{self._groups}")

    def _set(self, task: Task, phase: Phase, node: NodeName | None, groups: tuple[GpuGroup, ...]) -> None:
        before = task.phase, task.node, task.groups
        task.phase, task.node, task.groups = phase, node, groups

        def back() -> None:
            task.phase, task.node, task.groups = before

        self._log.append(back)

    def _hold(
        self, node: KaiNode, task: Task, before: Hold | None, after: Hold | None, groups: tuple[GpuGroup, ...]
    ) -> None:
        held = node.drop(task, before) if before is not None else None
        if after is not None:
            node.put(task, after, groups)

        def back() -> None:
            if after is not None:
                node.drop(task, after)
            if held is not None and before is not None:
                node.put(task, before, held.groups)

        self._log.append(back)

    def _charge(self, task: Task, sign: float) -> None:
        gang = self.gangs[task.gang]
        for above in path(self.tree, gang.queue):
            self.stamps[above.name] += 1
            books = [self._allocated[above.name]]
            if not gang.preemptible:
                books.append(self._non_preemptible[above.name])
            for book in books:
                for resource, amount in self.charged(task).items():
                    book[resource] = book.get(resource, 0.0) + sign * amount

    # -- invariants --------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """SessionDriftError names the first queue or node whose sums are not those of its tasks."""
        self._validate_queues()
        for node in self.nodes.values():
            for when in When:
                free = node.free(when)
                if free.shortage() > self._shortages[node.name, when]:
                    raise SessionDriftError(f"node {node.name}: more is held {when.name} than there is: {free}")
        for gang in self.gangs.values():
            for task in gang.tasks():
                hold = hold_of(task.phase)
                if hold is not None and (task.node is None or (task.name, hold) not in self.nodes[task.node].held):
                    raise SessionDriftError(f"task {task.name} is {task.phase} and not held by {task.node}")

    def _validate_queues(self) -> None:
        for name in self.queues:
            here = [
                gang for gang in self.gangs.values() if any(above.name == name for above in path(self.tree, gang.queue))
            ]
            for book, gangs in (
                (self._allocated, here),
                (self._non_preemptible, [gang for gang in here if not gang.preemptible]),
            ):
                tasks = [task for gang in gangs for task in gang.in_phase(USED)]
                drift = subtracted(book[name], self.charged_together(tasks))
                if any(abs(amount) > _ROUNDING for amount in drift.values()):
                    raise SessionDriftError(f"queue {name}: its book is off by {drift}")


def running(nodes: Mapping[NodeName, KaiNode], gangs: Iterable[Gang]) -> None:
    """Put the tasks of ``gangs`` that have nodes on these nodes, before a session begins."""
    for gang in gangs:
        for task in gang.tasks():
            hold = hold_of(task.phase)
            if hold is not None and task.node is not None:
                nodes[task.node].put(task, hold, task.groups)
