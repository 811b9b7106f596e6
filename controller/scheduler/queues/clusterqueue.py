"""The pending workloads of one ClusterQueue."""

from collections.abc import Callable, Iterator

from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.queues.lanes import Lane
from controller.scheduler.queues.pending import PendingState, PendingWorkload, RequeueReason

_ALL = LocalQueueKey("")


class ClusterQueueOrder:
    """The pending workloads of one ClusterQueue in order. StrictFIFO requeues every workload to its place in the order;
    BestEffortFIFO parks a workload that cannot run now (KEP-59).

    ``preemptor_first``: a preemptor that waits for its victims is the head whatever arrives, under StrictFIFO and among
    LocalQueues as well: what its victims leave is reserved for it, and any head before it would wait in vain. A
    workload that takes over quota and asks for nothing new (``takes_over``) is tried before all of them, once.

    ``usage``: the past usage of a LocalQueue where LocalQueues take turns by it (KEP-4136), else None.

    Invariants: each workload in here is in just one of ``_lanes`` (state QUEUED), ``_parked`` and ``_backing_off``
    (both PARKED). ``_lanes`` holds no empty lane. ``_parked_shapes`` says which shapes arrive parked; between two
    wake-ups no shape leaves it, and each lane has parked all shapes that it names. ``_sticky`` is the one workload
    whose ``sticky`` is set; it may be in flight.
    """

    def __init__(
        self,
        name: ClusterQueueName,
        *,
        strict: bool,
        by_shape: bool,
        usage: Callable[[LocalQueueKey], float] | None,
        preemptor_first: bool = False,
    ) -> None:
        self.name = name
        self._strict = strict
        self._by_shape = by_shape
        self._usage = usage
        self._preemptor_first = preemptor_first
        self._lanes: dict[LocalQueueKey, Lane] = {}
        self._parked_shapes: dict[str, DecisionRecord | None] = {}
        """Shapes (whole, untimed, quota or sum) that cannot run now, with the decision record of the last workload
        tried of each.
        """
        self._parked: dict[WorkloadKey, PendingWorkload] = {}
        """Workloads that are parked by themselves: others of their shape may fit."""
        self._backing_off: dict[WorkloadKey, PendingWorkload] = {}
        """Workloads that wait out a back-off: no wake-up requeues them, only the end of their back-off."""
        self._sticky: PendingWorkload | None = None
        self.epoch = 0
        """A number that grows with every wake-up: a workload that was in flight meanwhile must be tried again."""

    def same_rules(self, *, strict: bool, usage: Callable[[LocalQueueKey], float] | None) -> bool:
        return self._strict == strict and (self._usage is None) == (usage is None)

    def push(self, pending: PendingWorkload) -> None:
        """Put a new or changed workload in its place in the order."""
        self._lane(pending.local_queue).push(
            pending,
            parked=not self._parked_shapes.keys().isdisjoint(_shapes(pending)),
        )
        pending.state = PendingState.QUEUED

    def park(self, pending: PendingWorkload) -> None:
        """Park this workload alone until the next wake-up."""
        self._parked[pending.key] = pending
        pending.state = PendingState.PARKED

    def back_off(self, pending: PendingWorkload) -> None:
        """Park the workload until it is removed and pushed again; no wake-up requeues it."""
        self._backing_off[pending.key] = pending
        pending.state = PendingState.PARKED

    def remove(self, pending: PendingWorkload) -> None:
        """Remove the workload, wherever it is in this queue, or in flight."""
        if pending.state is PendingState.QUEUED:
            self._take(pending)
        elif pending.state is PendingState.PARKED:
            for parked in (self._parked, self._backing_off):
                parked.pop(pending.key, None)
        if self._sticky is pending:
            self._sticky = None
        pending.sticky = False
        pending.state = PendingState.UNQUEUED

    def first(self) -> PendingWorkload | None:
        """The next workload to be tried; it stays in its place."""
        if self._usage is None:
            lane = self._lanes.get(_ALL)
            return lane.first() if lane is not None else None
        firsts = [(key, head) for key, lane in self._lanes.items() if (head := lane.first())]
        if taking := [head for _, head in firsts if head.takes_over]:
            return min(taking, key=PendingWorkload.order)
        if self._preemptor_first and self._sticky is not None and self._sticky.state is PendingState.QUEUED:
            return self._sticky
        heads = [(self._usage(key), head.order(), head) for key, head in firsts]
        return min(heads, key=lambda head: head[:2])[2] if heads else None

    def pop(self) -> PendingWorkload | None:
        if self._usage is None:
            lane = self._lanes.get(_ALL)
            if lane is None:
                return None
            head = lane.pop()
            if not lane:
                del self._lanes[_ALL]
        else:
            head = self.first()
            if head is not None:
                self._take(head)
        if head is not None:
            self._fly(head)
        return head

    def take(self, pending: PendingWorkload) -> None:
        """Pop this workload, whether or not it comes next."""
        self.remove(pending)
        self._fly(pending)

    def _fly(self, pending: PendingWorkload) -> None:
        pending.state = PendingState.IN_FLIGHT
        pending.popped_epoch = self.epoch

    def requeue(self, pending: PendingWorkload, reason: RequeueReason, found: DecisionRecord | None) -> None:
        """Put back a workload that a cycle did not admit. ``found``: what the cycle decided."""
        pending.takes_over = False
        sticks = not self._strict or self._preemptor_first
        preempting = reason is RequeueReason.PENDING_PREEMPTION and sticks
        if preempting:
            self._stick(pending)
        elif self._sticky is pending:
            self._sticky = None
            pending.sticky = False
        if self._at_once(pending, reason):
            self.push(pending)
            return
        alike = _alike(pending, reason) if self._by_shape and not self._strict else None
        if alike is not None:
            # Quota belongs to the ClusterQueue: a shape that does not fit for one LocalQueue does not fit for another.
            self._parked_shapes[alike] = found
            for lane in self._lanes.values():
                lane.park(alike)
            self.push(pending)
            return
        self.park(pending)

    def wake(self) -> bool:
        """Requeue all parked workloads except those that back off. Returns whether there were any."""
        self.epoch += 1
        self._parked_shapes.clear()
        woken = False
        for lane in self._lanes.values():
            woken |= lane.wake()
        parked, self._parked = self._parked, {}
        for pending in parked.values():
            self.push(pending)
        return woken or bool(parked)

    def active(self) -> Iterator[PendingWorkload]:
        """The workloads that are not parked, in no particular order."""
        for lane in self._lanes.values():
            yield from lane.listed(parked=False)

    def parked(self) -> Iterator[PendingWorkload]:
        for lane in self._lanes.values():
            yield from lane.listed(parked=True)
        yield from self._parked.values()
        yield from self._backing_off.values()

    def counts(self) -> tuple[int, int]:
        """The numbers of active and of parked workloads."""
        parked = sum(lane.parked for lane in self._lanes.values())
        return sum(map(len, self._lanes.values())) - parked, parked + len(self._parked) + len(self._backing_off)

    def is_parked(self, pending: PendingWorkload) -> bool:
        """Whether the workload is parked, by itself or with its shape. It must be in this queue."""
        if pending.state is not PendingState.QUEUED:
            return pending.state is PendingState.PARKED
        lane = self._lanes.get(_ALL if self._usage is None else pending.local_queue)
        return lane is not None and lane.is_parked(pending)

    def found_for(self, pending: PendingWorkload) -> DecisionRecord | None:
        """The decision record of the workload that parked this one's shape, the latest where several did; None if its
        shape is not parked.
        """
        if pending.state is not PendingState.QUEUED or not self.is_parked(pending):
            return None
        records = (self._parked_shapes.get(shape) for shape in _shapes(pending))
        return max((each for each in records if each is not None), key=lambda each: each.at_s, default=None)

    def _at_once(self, pending: PendingWorkload, reason: RequeueReason) -> bool:
        if reason is RequeueReason.NAMESPACE_MISMATCH:
            return False
        if self._strict or reason.immediate or self.epoch > pending.popped_epoch:
            return True
        return pending.bookmark is not None and pending.bookmark.more_flavors()

    def _stick(self, pending: PendingWorkload) -> None:
        """Make the workload the one that waits for its victims at the head. There is one at most: the latest preemptor
        replaces the one before.
        """
        old = self._sticky
        if old is not None and old is not pending and old.state is PendingState.QUEUED:
            self._take(old)
            old.sticky = False
            self.push(old)
        self._sticky = pending
        pending.sticky = True

    def _lane(self, local_queue: LocalQueueKey) -> Lane:
        key = _ALL if self._usage is None else local_queue
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane()
        return lane

    def _take(self, pending: PendingWorkload) -> None:
        """Take the workload out of its lane, and delete a lane that this empties."""
        key = _ALL if self._usage is None else pending.local_queue
        lane = self._lanes[key]
        lane.remove(pending)
        if not lane:
            del self._lanes[key]


def _shapes(pending: PendingWorkload) -> tuple[str, str, str, str]:
    return pending.shape, pending.untimed_shape, pending.quota_shape, pending.sum_shape


def _alike(pending: PendingWorkload, reason: RequeueReason) -> str | None:
    """The shape, whole or in part, of all workloads that would be requeued for the same reason; None if only this one
    would.
    """
    match reason:
        case RequeueReason.NO_FIT:
            return pending.untimed_shape
        case RequeueReason.NO_QUOTA:
            return pending.quota_shape
        case RequeueReason.NO_SUMS:
            return pending.sum_shape
        case RequeueReason.HELD_BACK | RequeueReason.NO_TIME | RequeueReason.SISTERS:
            return pending.shape
    return None
