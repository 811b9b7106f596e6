"""The pending workloads of one ClusterQueue."""

from collections.abc import Callable, Iterator

from controller.engine.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.engine.queues.lanes import Lane
from controller.engine.queues.pending import PendingWorkload, Place, RequeueReason

_ALL = LocalQueueKey("")


class ClusterQueueOrder:
    """StrictFIFO puts everything back to the front it came from; BestEffortFIFO parks what cannot run now (KEP-59).

    ``preemptor_first``: who has made others go is the head whatever arrives, here and among LocalQueues: what they left
    is kept for it, and everybody before it would wait for nothing. ``usage``: the past usage of a LocalQueue where they
    take turns by it (KEP-4136), else None.
    """

    __slots__ = (
        "_asleep",
        "_by_shape",
        "_lanes",
        "_parked",
        "_preemptor_first",
        "_sticky",
        "_strict",
        "_usage",
        "_waiting",
        "epoch",
        "name",
    )

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
        self._asleep: set[str] = set()
        """Shapes, families and kin that cannot run now: what arrives with one sleeps at once."""
        self._parked: dict[WorkloadKey, PendingWorkload] = {}
        self._waiting: dict[WorkloadKey, PendingWorkload] = {}
        self._sticky: PendingWorkload | None = None
        self.epoch = 0
        """Moves on with every wake-up: what was out with a cycle meanwhile must be tried again."""

    def same_rules(self, *, strict: bool, usage: Callable[[LocalQueueKey], float] | None) -> bool:
        return self._strict == strict and (self._usage is None) == (usage is None)

    def push(self, pending: PendingWorkload) -> None:
        """A new or changed workload takes its place in the order."""
        self._lane(pending.local_queue).push(
            pending, asleep=not self._asleep.isdisjoint((pending.shape, pending.family, pending.kin))
        )
        pending.place = Place.QUEUED

    def park(self, pending: PendingWorkload) -> None:
        """The one alone sleeps until the next wake-up."""
        self._parked[pending.key] = pending
        pending.place = Place.PARKED

    def wait(self, pending: PendingWorkload) -> None:
        """It sleeps until it is pushed: a wake-up passes over what stands in a backoff."""
        self._waiting[pending.key] = pending
        pending.place = Place.PARKED

    def remove(self, pending: PendingWorkload) -> None:
        """Out of here, wherever it is."""
        if pending.place is Place.QUEUED:
            self._take(pending)
        elif pending.place is Place.PARKED:
            for sleeping in (self._parked, self._waiting):
                sleeping.pop(pending.key, None)
        if self._sticky is pending:
            self._sticky = None
        pending.sticky = False
        pending.place = Place.NOWHERE

    def first(self) -> PendingWorkload | None:
        """The next to be tried; it stays where it is."""
        if self._usage is None:
            lane = self._lanes.get(_ALL)
            return lane.first() if lane is not None else None
        if self._preemptor_first and self._sticky is not None and self._sticky.place is Place.QUEUED:
            return self._sticky
        heads = [(self._usage(key), head.order(), head) for key, lane in self._lanes.items() if (head := lane.first())]
        return min(heads, key=lambda one: one[:2])[2] if heads else None

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
            head.place = Place.IN_FLIGHT
            head.popped_epoch = self.epoch
        return head

    def requeue(self, pending: PendingWorkload, reason: RequeueReason) -> None:
        """Back from a cycle that did not admit it."""
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
        sleeps = _alike(pending, reason) if self._by_shape and not self._strict else None
        if sleeps is not None:
            # What cannot fit for one LocalQueue cannot for another: quota is the ClusterQueue's.
            self._asleep.add(sleeps)
            for lane in self._lanes.values():
                lane.park(sleeps)
            self.push(pending)
            return
        self.park(pending)

    def wake(self) -> bool:
        """Try everything again; whether anything slept."""
        self.epoch += 1
        self._asleep.clear()
        woken = False
        for lane in self._lanes.values():
            woken |= lane.wake()
        parked, self._parked = self._parked, {}
        for pending in parked.values():
            self.push(pending)
        return woken or bool(parked)

    def active(self) -> Iterator[PendingWorkload]:
        """In no particular order."""
        for lane in self._lanes.values():
            yield from lane.listed(awake=True)

    def parked(self) -> Iterator[PendingWorkload]:
        for lane in self._lanes.values():
            yield from lane.listed(awake=False)
        yield from self._parked.values()
        yield from self._waiting.values()

    def counts(self) -> tuple[int, int]:
        """How many are active and how many parked."""
        sleeping = sum(lane.sleeping for lane in self._lanes.values())
        return sum(map(len, self._lanes.values())) - sleeping, sleeping + len(self._parked) + len(self._waiting)

    def sleeps(self, pending: PendingWorkload) -> bool:
        """Whether it waits for a change; it is in here."""
        if pending.place is not Place.QUEUED:
            return pending.place is Place.PARKED
        lane = self._lanes.get(_ALL if self._usage is None else pending.local_queue)
        return lane is not None and lane.asleep(pending)

    def _at_once(self, pending: PendingWorkload, reason: RequeueReason) -> bool:
        if reason is RequeueReason.NAMESPACE_MISMATCH:
            return False
        if self._strict or reason.immediate or self.epoch > pending.popped_epoch:
            return True
        return pending.bookmark is not None and pending.bookmark.more_flavors()

    def _stick(self, pending: PendingWorkload) -> None:
        """One workload at most waits for its victims at the head of the line; the latest takes over."""
        old = self._sticky
        if old is not None and old is not pending and old.place is Place.QUEUED:
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
        """Out of its lane; an empty lane goes."""
        key = _ALL if self._usage is None else pending.local_queue
        lane = self._lanes[key]
        lane.remove(pending)
        if not lane:
            del self._lanes[key]


def _alike(pending: PendingWorkload, reason: RequeueReason) -> str | None:
    """Those who would come back for the same reason."""
    match reason:
        case RequeueReason.NO_FIT:
            return pending.family
        case RequeueReason.NO_QUOTA:
            return pending.kin
        case RequeueReason.HELD_BACK:
            return pending.shape
    return None
