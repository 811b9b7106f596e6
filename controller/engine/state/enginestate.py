"""What the parts of the engine share: the cluster, the queues, past usage, and the workloads as their objects are."""

from collections.abc import Callable, Iterable, Iterator

from controller.engine.claims.backfill import backfill_for
from controller.engine.claims.book import book_for
from controller.engine.claims.events import RELEASED, Effect, RunAgain, WakeAll, WakeTree, Withdrawn
from controller.engine.cluster.cluster import Cluster
from controller.engine.conditions.decisions import Admitted
from controller.engine.flavors.assigner import FlavorAssigner
from controller.engine.model.config import EngineConfig
from controller.engine.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.engine.preemption import Preemption
from controller.engine.queues.pending import PendingWorkload
from controller.engine.queues.pendingqueues import PendingQueues
from controller.engine.quota.queuestate import Holder, QueueState
from controller.engine.quota.quotanode import QuotaNode
from controller.engine.quota.usagehistory import UsageHistory
from controller.engine.state.activity import Inactive, queue_problems
from controller.engine.topology.port import Placement
from controller.objects.core import LimitRange
from controller.objects.meta import Resources
from controller.objects.workload import Workload


class EngineState:
    """``changes`` moves on with everything that may make a cycle decide otherwise."""

    def __init__(self, config: EngineConfig, placement: Placement | None) -> None:
        fair = config.admission_fair_sharing if config.gates.on("AdmissionFairSharing") else None
        self.config = config
        self.cluster = Cluster(config, placement)
        self.usage = UsageHistory(fair)
        self.claims = book_for(self.cluster)
        self.queues = PendingQueues(self.cluster, self.usage.usage, self.claims)
        self.preemption = Preemption(self.cluster, self.usage.usage, self.is_open)
        self.assigner = FlavorAssigner(self.cluster, self.preemption.oracle)
        self.backfill = backfill_for(self.cluster, self.assigner)
        self.changes = 0
        self.objects: dict[WorkloadKey, Workload] = {}
        """Every workload that is not finished, as it was told last."""
        self.stranded: dict[ClusterQueueName, dict[WorkloadKey, Workload]] = {}
        """Those that hold quota in a ClusterQueue that is not there."""
        self.assumed: dict[WorkloadKey, Admitted] = {}
        """Admitted by a decision that its object does not show yet."""
        self.told: set[WorkloadKey] = set()
        """Told to go by a decision that their object does not show yet."""
        self.ended: set[WorkloadKey] = set()
        """Slices whose end is decided and that their object does not show yet: they hold nothing any more."""
        self.unready: set[WorkloadKey] = set()
        """Admitted, and their pods are not all ready."""
        self.slices: dict[WorkloadKey, WorkloadKey] = {}
        """Holder -> the slice it replaced, while that one holds quota as well."""
        self.second: dict[WorkloadKey, tuple[float, float]] = {}
        """Second passes to come: when, and how many seconds were waited for the last."""
        self.moved: list[Holder] = []
        """Got new places in a second pass of the last cycle: from the next one on those count for whoever was refused
        beside them, as room that is free and as victims that can go.
        """
        self.ranges: dict[str, dict[str, LimitRange]] = {}
        self.overheads: dict[str, Resources] = {}
        self._problems: dict[ClusterQueueName, tuple[tuple[int, int, int], tuple[Inactive, ...]]] = {}
        self._open = _Answers(self._is_open)
        """What ``open_now`` has answered while both generations add up to ``_open_at``."""
        self._open_at = -1

    def touch(self) -> None:
        self.changes += 1

    def wake_tree(self, node: QuotaNode | None) -> None:
        """Everything below the node's root is tried again."""
        found = None if node is None else next(members(node.root()), None)
        if found is not None:
            self.wake(found)
        else:
            self.touch()

    def wake(self, name: ClusterQueueName, departed: WorkloadKey | None = None) -> None:
        self.touch()
        self.claims.apply(RELEASED)
        self.queues.wake(name, departed)

    def dequeue(self, key: WorkloadKey) -> PendingWorkload | None:
        """The workload waits no longer, if it did: with its wait end its claim and its backfill reservation."""
        pending = self.queues.remove(key)
        if pending is None:
            return None
        if key in self.claims:
            self.carry_out(self.claims.apply(Withdrawn(key)))
        reserved_in = self.backfill.drop(key)
        if reserved_in is not None:
            self.wake(reserved_in)
        return pending

    def withdraw(self, claimants: Iterable[WorkloadKey]) -> None:
        """Their claims end."""
        for key in claimants:
            self.carry_out(self.claims.apply(Withdrawn(key)))

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Of an event that ``claims`` took in; before the next one."""
        for effect in effects:
            match effect:
                case WakeAll():
                    self.queues.wake_all()
                    self.touch()
                case WakeTree(name):
                    self.wake(name)
                case RunAgain():
                    self.touch()

    def released(self, holder: Holder, departed: WorkloadKey | None = None) -> None:
        """What it held, or part of it, is free: quota in its tree, and room on nodes for whoever uses them."""
        self.wake(holder.cluster_queue, departed)
        if any(one.topology is not None for one in holder.info.pod_sets):
            self.queues.wake_roomless()

    def wake_beside_moved(self) -> None:
        moved, self.moved = self.moved, []
        for holder in moved:
            if holder.cluster_queue in self.cluster.queues:
                self.released(holder)

    def queue_of(self, key: LocalQueueKey) -> QueueState | None:
        """The ClusterQueue that a LocalQueue leads to."""
        local = self.cluster.local_queues.get(key)
        return None if local is None else self.cluster.queues.get(ClusterQueueName(local.spec.cluster_queue))

    def problems(self, name: ClusterQueueName) -> tuple[Inactive, ...]:
        """Why the ClusterQueue takes nothing in; asked for in every cycle, so remembered until something changes."""
        state = self.cluster.queues[name]
        stamp = (self.cluster.generation, state.version, state.node.quota_generation())
        known = self._problems.get(name)
        if known is None or known[0] != stamp:
            known = self._problems[name] = (stamp, queue_problems(state, self.cluster))
        return known[1]

    def open_now(self) -> Callable[[ClusterQueueName], bool]:
        """Whether a ClusterQueue takes anything in: to be asked about many of them before the next event."""
        # Both only ever grow: the sum stays the same as long as nothing that activity depends on has changed.
        at = self.cluster.generation + self.cluster.quota.generation
        if at != self._open_at:
            self._open.clear()
            self._open_at = at
        return self._open.__getitem__

    def is_open(self, name: ClusterQueueName) -> bool:
        """Whether the ClusterQueue takes part: takes anything in, and gives anything up."""
        return self.open_now()(name)

    def _is_open(self, name: ClusterQueueName) -> bool:
        return not self.problems(name)

    def forget_queue(self, name: ClusterQueueName) -> None:
        self._problems.pop(name, None)


class _Answers(dict[ClusterQueueName, bool]):
    """Answers by name; a question that is not answered yet is asked."""

    def __init__(self, ask: Callable[[ClusterQueueName], bool]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, name: ClusterQueueName) -> bool:
        answer = self[name] = self._ask(name)
        return answer


def members(node: QuotaNode) -> Iterator[ClusterQueueName]:
    """All ClusterQueues at or below a node."""
    if node.is_queue:
        yield ClusterQueueName(node.name)
    yield from node.queues
    for cohort in node.cohorts.values():
        yield from members(cohort)
