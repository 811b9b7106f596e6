"""All pending workloads of the cluster, by ClusterQueue, and when they are tried again.

A workload names its LocalQueue. Which ClusterQueue that leads to, and whether either exists and is open, may change at
any time and in any order. A workload that leads to no ClusterQueue is kept, and queued once it leads to one.

Source: Kueue's queue manager, and KEP-10080: workloads of one shape are parked and woken together. A workload that
could be admitted is never left parked: whatever frees or changes something in a tree wakes the tree. To wake a tree
costs a step for each of its ClusterQueues and parked shapes, however many workloads wait; to put one, a step of a heap.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.queues.clusterqueue import ClusterQueueOrder
from controller.scheduler.queues.pending import (
    Departed,
    DepartureListener,
    NoListener,
    PendingState,
    PendingWorkload,
    QueueOrder,
    RequeueReason,
)
from controller.scheduler.quota.queuestate import QueueState
from controller.scheduler.quota.quotanode import QuotaNode


class QueueDriftError(AssertionError):
    """A pending workload is in no queue order or in two: a bug of the engine, never a user's mistake."""


class PendingQueues:
    """The pending workloads of all queues. ``usage`` returns the past usage of a LocalQueue, for ClusterQueues that
    admit by it. Time is always an argument. ``listener`` is called with evicted workloads that have gone, if nothing
    else has woken their tree.

    Invariants, which ``validate`` checks:

    - ``_pending`` holds every workload; ``_by_local_queue`` holds the same ones by LocalQueue, and no empty entry.
    - A workload that is QUEUED or PARKED is in just the one order that its ``at`` names: the order that its LocalQueue
      leads to. One that is UNQUEUED is in none; one that is IN_FLIGHT is in none and may name one that has gone.
    - An order with something to try is in ``_ready``, which may hold others too; ``heads`` drops those.

    Wake-ups are noted (``_woken``, ``_nodes_freed``) and carried out later: every public method that reads an order, or
    puts a workload into one, calls ``_carry_out_wake_ups`` first. ``_due`` may hold back-offs that are over.
    """

    def __init__(
        self,
        cluster: Cluster,
        usage: Callable[[LocalQueueKey], float],
        listener: DepartureListener = NoListener(),  # noqa: B008  it keeps nothing
    ) -> None:
        self._cluster = cluster
        self._usage = usage
        self._listener = listener
        self._orders: dict[ClusterQueueName, ClusterQueueOrder] = {}
        self._pending: dict[WorkloadKey, PendingWorkload] = {}
        self._by_local_queue: dict[LocalQueueKey, dict[WorkloadKey, PendingWorkload]] = {}
        self._woken: dict[int, tuple[QuotaNode, set[WorkloadKey] | None]] = {}
        """Trees to be woken, by the identity of their root: the root, and the evicted workloads whose departure is the
        only reason for it, or None if there is another reason.
        """
        self._wait_for_nodes: set[ClusterQueueName] = set()
        """ClusterQueues in which, since they were last woken, a workload was parked that could fit if more on
        nodes became free.
        """
        self.carried_out = 0
        """How often wake-ups were carried out. While the number stays, every noted wake-up is still to be
        carried out.
        """
        self._nodes_freed = False
        self._due: list[tuple[float, WorkloadKey]] = []
        """A heap of the ends of back-offs, with the workloads' keys."""
        self._ready: set[ClusterQueueName] = set()

    def __len__(self) -> int:
        return len(self._pending)

    def get(self, key: WorkloadKey) -> PendingWorkload | None:
        return self._pending.get(key)

    def __iter__(self) -> Iterator[PendingWorkload]:
        return iter(self._pending.values())

    # -- workloads ---------------------------------------------------------------------------------------------------

    def put(self, pending: PendingWorkload, now_s: float) -> None:
        """Store a new or changed workload: it is tried again, unless its shape is parked.

        A change that touches neither its shape nor its order leaves it in its place: our own writes requeue nothing. A
        workload that is in flight is treated as new: the cycle's decision on the old object no longer matters.
        """
        self._carry_out_wake_ups()
        known = self._pending.get(pending.key)
        if known is not None and known.state is not PendingState.IN_FLIGHT and _alike(known, pending):
            known.info = pending.info
            return
        self.remove(pending.key)
        self._pending[pending.key] = pending
        self._by_local_queue.setdefault(pending.local_queue, {})[pending.key] = pending
        self._enter(pending, now_s)

    def remove(self, key: WorkloadKey) -> PendingWorkload | None:
        """Remove a workload that was admitted, finished, deleted or held back. Returns it, or None if it is unknown."""
        pending = self._pending.pop(key, None)
        if pending is None:
            return None
        self._leave(pending)
        siblings = self._by_local_queue[pending.local_queue]
        del siblings[key]
        if not siblings:
            del self._by_local_queue[pending.local_queue]
        return pending

    def requeue(
        self, pending: PendingWorkload, reason: RequeueReason, now_s: float, found: DecisionRecord | None = None
    ) -> None:
        """Put back a workload that a cycle did not admit; ``found`` says why. Ignored for a workload that was replaced
        or removed meanwhile.
        """
        if self._pending.get(pending.key) is not pending or pending.state is not PendingState.IN_FLIGHT:
            return
        self._carry_out_wake_ups()
        order = pending.at
        if order is None:
            self._enter(pending, now_s)
            return
        pending.state = PendingState.UNQUEUED
        if pending.due_s > now_s:
            self._back_off(order, pending)
        else:
            order.requeue(pending, reason, found)
        if reason in (RequeueReason.NO_FIT, RequeueReason.NO_TIME):
            self._wait_for_nodes.add(order.name)
        self._ready.add(order.name)

    # -- queues ------------------------------------------------------------------------------------------------------

    def through(self, local_queue: LocalQueueKey) -> tuple[WorkloadKey, ...]:
        """The workloads of a LocalQueue that wait."""
        return tuple(self._by_local_queue.get(local_queue, ()))

    def local_queue_changed(self, key: LocalQueueKey, now_s: float) -> None:
        """Move the workloads of a LocalQueue that came, went, was stopped, or leads to another ClusterQueue."""
        for pending in tuple(self._by_local_queue.get(key, {}).values()):
            if pending.at is not self._order_of(pending):
                self._leave(pending)
                self._enter(pending, now_s)

    def cluster_queue_changed(self, name: ClusterQueueName, now_s: float) -> None:
        """Take in that a ClusterQueue came, went or changed: everything in it is tried again."""
        self._carry_out_wake_ups()
        state = self._cluster.queues.get(name)
        order = self._orders.get(name)
        if order is not None and (state is None or not self._rules_stand(order, state)):
            del self._orders[name]
            self._ready.discard(name)
            for pending in [known for known in self._pending.values() if known.at is order]:
                self._leave(pending)
                self._enter(pending, now_s)
        if state is None:
            return
        if name not in self._orders:
            for key, waiting in self._by_local_queue.items():
                local_queue = self._cluster.local_queues.get(key)
                if local_queue is not None and local_queue.spec.cluster_queue == name:
                    for pending in tuple(waiting.values()):
                        if pending.at is None:
                            self._enter(pending, now_s)
        self.wake(name)

    def wake(self, name: ClusterQueueName, departed: WorkloadKey | None = None) -> None:
        """Note that something was freed or changed in this ClusterQueue: its whole tree is tried again.

        A tree is walked once for everything that happens between two questions. ``departed``: the only thing that
        happened is that this evicted workload has gone.
        """
        state = self._cluster.queues.get(name)
        if state is None:
            return
        root = state.node.root()
        _, known = self._woken.setdefault(id(root), (root, set()))
        if departed is None:
            self._woken[id(root)] = (root, None)
        elif known is not None:
            known.add(departed)

    def wake_waiting_for_nodes(self) -> None:
        """Note that capacity of nodes was freed, which several trees may share: ClusterQueues that may wait for it try
        again.
        """
        self._nodes_freed = True

    def wake_all(self) -> None:
        self._carry_out_wake_ups()
        for name in self._orders:
            self._wake(name)

    # -- cycles ------------------------------------------------------------------------------------------------------

    def heads(self, now_s: float, *, open_for: Callable[[ClusterQueueName], bool]) -> list[PendingWorkload]:
        """One workload from each ClusterQueue that has one to try and is ``open_for`` admission, sorted by
        queue name.
        """
        self._carry_out_wake_ups()
        self._release_due(now_s)
        heads = []
        for name in sorted(self._ready):
            if not open_for(name):
                continue
            head = self._orders[name].pop()
            if head is None:
                self._ready.discard(name)
            else:
                heads.append(head)
        return heads

    def next_head(self, name: ClusterQueueName) -> PendingWorkload | None:
        """The next workload of a ClusterQueue whose head was admitted in the running cycle. No wake-up was noted since
        ``heads``: only the decisions of a cycle cause some.
        """
        order = self._orders.get(name)
        return order.pop() if order is not None else None

    def put_back(self, pending: PendingWorkload) -> None:
        """Put back a workload that ``next_head`` returned and that was not decided on: it is the next one again."""
        if pending.at is not None and self._pending.get(pending.key) is pending:
            pending.at.push(pending)

    def take_all(self, name: ClusterQueueName, now_s: float) -> list[PendingWorkload]:
        """Take all workloads of one ClusterQueue in their order, including parked ones but not those that back off: a
        cycle decides on all of them.
        """
        self._carry_out_wake_ups()
        self._release_due(now_s)
        order = self._orders.get(name)
        if order is None:
            return []
        order.wake()
        taken = list(iter(order.pop, None))
        self._ready.discard(name)
        return taken

    def take(self, pending: PendingWorkload) -> None:
        """Take this workload for a decision, wherever it waits. Its ClusterQueue is woken: the workload's shape was
        refused before.
        """
        self._carry_out_wake_ups()
        order = self._orders.get(pending.at.name) if pending.at is not None else None
        if order is not None:
            self._wake(order.name)
            order.take(pending)

    def release_due(self, now_s: float) -> None:
        """Let workloads whose back-off is over be tried."""
        self._carry_out_wake_ups()
        self._release_due(now_s)

    def busy(self, *, open_for: Callable[[ClusterQueueName], bool]) -> bool:
        """Whether ``heads`` would return something, apart from workloads that back off."""
        self._carry_out_wake_ups()
        return any(open_for(name) and self._orders[name].first() is not None for name in self._ready)

    def any_waits(self, open_for: Callable[[ClusterQueueName], bool]) -> bool:
        """Whether any workload waits in a ClusterQueue that admits; a step for each that waits."""
        return any(pending.at is not None and open_for(pending.at.name) for pending in self._pending.values())

    def next_due_s(self) -> float | None:
        """The time at which the next back-off ends; None if there is none."""
        while self._due:
            due_s, key = self._due[0]
            pending = self._pending.get(key)
            if pending is not None and pending.due_s == due_s and pending.state is PendingState.PARKED:
                return due_s
            heapq.heappop(self._due)
        return None

    # -- questions ---------------------------------------------------------------------------------------------------

    def active(self, name: ClusterQueueName) -> list[PendingWorkload]:
        """The active workloads of a ClusterQueue, in the order in which they are tried."""
        self._carry_out_wake_ups()
        order = self._orders.get(name)
        return self.in_order(order.active()) if order is not None else []

    def parked(self, name: ClusterQueueName) -> list[PendingWorkload]:
        """The workloads that wait for a change or a back-off, in the order in which they would be tried."""
        self._carry_out_wake_ups()
        order = self._orders.get(name)
        return self.in_order(order.parked()) if order is not None else []

    def waiting_with(
        self, asked: PendingWorkload, name: ClusterQueueName, to: ClusterQueueName, now_s: float
    ) -> list[PendingWorkload]:
        """The workloads that ``take_all`` would take from ``name``, without taking them. ``asked`` is queued nowhere;
        it is at the place that it would have if it waited in ``to``.
        """
        self._carry_out_wake_ups()
        order = self._order_at(self._cluster.queues[name])
        waiting = [each for each in (*order.active(), *order.parked()) if each.due_s <= now_s]
        if name == to:
            asked.at = order
            waiting.append(asked)
        return self.in_order(waiting)

    def counts(self, name: ClusterQueueName) -> tuple[int, int]:
        """The numbers of active and of parked workloads of a ClusterQueue."""
        self._carry_out_wake_ups()
        order = self._orders.get(name)
        return order.counts() if order is not None else (0, 0)

    def in_order(self, some: Iterable[PendingWorkload]) -> list[PendingWorkload]:
        """The workloads sorted as their ClusterQueue tries them: by past usage first where that counts."""

        def key(pending: PendingWorkload) -> tuple[bool, float, tuple[int, int, float, str, str]]:
            state = self._state_of(pending)
            usage = self._usage(pending.local_queue) if state is not None and self._by_usage(state) else 0.0
            return not pending.takes_over, usage, pending.order()

        return sorted(some, key=key)

    def validate(self) -> None:
        """Check every invariant. QueueDriftError names the first workload that is not in exactly one place, the one its
        ``state`` names.
        """
        self._carry_out_wake_ups()
        seen: dict[WorkloadKey, ClusterQueueOrder] = {}
        for order in self._orders.values():
            for pending in (*order.active(), *order.parked()):
                if pending.key in seen or self._pending.get(pending.key) is not pending:
                    raise QueueDriftError(f"{pending} is in {order.name} and elsewhere, or should be gone")
                if pending.at is not order:
                    raise QueueDriftError(f"{pending} is in {order.name} and not known to be")
                seen[pending.key] = order
        for key, pending in self._pending.items():
            if (pending.state in (PendingState.QUEUED, PendingState.PARKED)) != (key in seen):
                raise QueueDriftError(f"{pending} is not where it says")
            if self._by_local_queue.get(pending.local_queue, {}).get(key) is not pending:
                raise QueueDriftError(f"{pending} is lost to its LocalQueue")
            order_of = self._order_of(pending)
            if pending.state is not PendingState.IN_FLIGHT and pending.at is not order_of:
                raise QueueDriftError(f"{pending} leads to {order_of and order_of.name} and is not there")
        for name, order in self._orders.items():
            if order.first() is not None and name not in self._ready:
                raise QueueDriftError(f"{name} has work and is not ready")

    # -- inside ------------------------------------------------------------------------------------------------------

    def _enter(self, pending: PendingWorkload, now_s: float) -> None:
        order = self._order_of(pending)
        if order is None:
            pending.state = PendingState.UNQUEUED
            return
        pending.at = order
        if pending.due_s > now_s:
            self._back_off(order, pending)
        else:
            order.push(pending)
        self._ready.add(order.name)

    def _back_off(self, order: QueueOrder, pending: PendingWorkload) -> None:
        """Park the workload until its back-off ends; no wake-up before that requeues it."""
        order.back_off(pending)
        if pending.due_s < math.inf:
            heapq.heappush(self._due, (pending.due_s, pending.key))

    def _leave(self, pending: PendingWorkload) -> None:
        order, pending.at = pending.at, None
        if order is not None:
            order.remove(pending)
        pending.state = PendingState.UNQUEUED

    def _release_due(self, now_s: float) -> None:
        while (due_s := self.next_due_s()) is not None and due_s <= now_s:
            _, key = heapq.heappop(self._due)
            pending = self._pending[key]
            order = pending.at
            if order is None:
                continue
            order.remove(pending)
            order.push(pending)
            self._ready.add(order.name)

    def _carry_out_wake_ups(self) -> None:
        if self._woken:
            woken, self._woken = self._woken, {}
            self.carried_out += 1
            for root, departed in woken.values():
                for name in root.queue_names():
                    self._wake(name)
                if departed:
                    self._listener.apply(Departed(departed))
        if self._nodes_freed:
            self._nodes_freed = False
            for name in tuple(self._wait_for_nodes):
                state = self._cluster.queues.get(name)
                if state is None or self._cluster.on_topology(state):
                    self._wake(name)

    def _wake(self, name: ClusterQueueName) -> None:
        self._wait_for_nodes.discard(name)
        order = self._orders.get(name)
        if order is not None:
            order.wake()
            self._ready.add(name)

    def _state_of(self, pending: PendingWorkload) -> QueueState | None:
        local_queue = self._cluster.local_queues.get(pending.local_queue)
        if local_queue is None or (local_queue.spec.stop_policy or "None") != "None":
            return None
        return self._cluster.queues.get(ClusterQueueName(local_queue.spec.cluster_queue))

    def _order_of(self, pending: PendingWorkload) -> ClusterQueueOrder | None:
        state = self._state_of(pending)
        return None if state is None else self._order_at(state)

    def _order_at(self, state: QueueState) -> ClusterQueueOrder:
        order = self._orders.get(state.name)
        if order is None:
            order = self._orders[state.name] = ClusterQueueOrder(
                state.name,
                strict=state.policies.strict_fifo,
                by_shape=self._cluster.config.gates.on("SchedulingEquivalenceHashing"),
                usage=self._usage if self._by_usage(state) else None,
                preemptor_first=self._cluster.config.extensions.reserve_for_preemptor,
            )
        return order

    def _by_usage(self, state: QueueState) -> bool:
        config = self._cluster.config
        on = config.admission_fair_sharing is not None and config.gates.on("AdmissionFairSharing")
        return on and state.policies.usage_based_admission

    def _rules_stand(self, order: ClusterQueueOrder, state: QueueState) -> bool:
        return order.same_rules(strict=state.policies.strict_fifo, usage=self._usage if self._by_usage(state) else None)


def _alike(known: PendingWorkload, pending: PendingWorkload) -> bool:
    return (known.shape, known.local_queue, known.due_s, known.order()[1:]) == (
        pending.shape,
        pending.local_queue,
        pending.due_s,
        pending.order()[1:],
    )
