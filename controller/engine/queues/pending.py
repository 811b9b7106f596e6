"""One pending workload in its queue, and what ``PendingQueues`` reports of evicted workloads that have gone."""

from collections.abc import Set as AbstractSet
from enum import Enum
from sys import intern
from typing import NamedTuple, Protocol

from controller.engine.cluster.incoming import Incoming
from controller.engine.conditions.records import DecisionRecord
from controller.engine.flavors.assignment import Bookmark
from controller.engine.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.engine.model.workload import WorkloadInfo
from controller.engine.quota.queuestate import Holder, QueueState


class Departed(NamedTuple):
    """Evicted workloads have gone. Their tree was woken just now, and for nothing else."""

    keys: AbstractSet[WorkloadKey]


class DepartureListener(Protocol):
    """``controller.engine.claims.claims.Claims``, as far as it is told here."""

    def apply(self, event: Departed, /) -> object: ...


class NoListener:
    """Keeps nothing that depends on departures."""

    def apply(self, event: Departed, /) -> None: ...


OrderKey = tuple[int, int, float, str, str]
"""What takes over and asks for nothing new, then the sticky one, then higher priority, then earlier, then by uid; the
key decides what is left.
"""

# Workloads of one shape are tried alike, so one that does not fit parks all of them (Kueue: equivalence hashing). A
# shape is written SUMS:SETS.PLACES/RUNTIME, and its prefixes are shapes as well: ``sum_shape`` (what all pod sets ask
# for together), ``quota_shape`` (that and how it is divided into pod sets: what quota alone decides) and
# ``untimed_shape`` (that and the places). Parts that cannot matter are left out: pod sets with different constraints
# have no sum shape but their quota shape, with no topology request a shape is its own quota shape, without backfill its
# own untimed shape.


def summed(shape: str, sum_shape: str) -> str:
    """The shape of a workload of whose pod sets only the sums count where each has but one flavor to choose."""
    return f"{sum_shape}:{shape}"


def placed(shape: str, quota_shape: str) -> str:
    """The shape of a workload that asks for places. Quota alone has one answer for all of ``quota_shape``."""
    return f"{quota_shape}.{shape}"


def timed(shape: str, runtime_s: float | None) -> str:
    """The shape of a workload where its run time matters: backfill lets short ones pass a blocked head."""
    return intern(f"{shape}/{'?' if runtime_s is None else format(runtime_s, 'g')}")


class RequeueReason(Enum):
    """Why a cycle requeues a workload. BestEffortFIFO tries it again at once where the reason is ``immediate``."""

    NO_FIT = "NoFit"
    """No flavor fits, or nothing may be preempted: all of its untimed shape would fail the same way."""
    NO_QUOTA = "NoQuota"
    """As ``NO_FIT``, on whatever nodes its pods ran: all of its quota shape would fail the same way."""
    NO_SUMS = "NoSums"
    """As ``NO_QUOTA``, however its pods were divided into pod sets: all of its sum shape would fail the same way."""
    HELD_BACK = "HeldBack"
    """It fits, and would delay the blocked head of a queue: so would all of its shape, which run as long."""
    GENERIC = "Generic"
    """It fitted alone, and not beside those decided on before it; or a check other than quota refused it."""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PARTLY_SEARCHED = "PartlySearched"
    """It found nothing among the flavors after one that others took from it: that one is asked again."""
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"

    @property
    def immediate(self) -> bool:
        return self in _IMMEDIATE


_IMMEDIATE = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PARTLY_SEARCHED,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PENDING_MIGRATION,
        RequeueReason.PREEMPTION_FAILED,
    }
)


class PendingState(Enum):
    """Where a pending workload is."""

    QUEUED = "queued"
    """In a lane of its ClusterQueue, where its whole shape may be parked."""
    PARKED = "parked"
    """Parked by itself in its ClusterQueue, or in a back-off."""
    IN_FLIGHT = "in flight"
    """Popped: a cycle decides on it, and requeues it unless it is removed."""
    UNQUEUED = "unqueued"
    """Its LocalQueue or ClusterQueue is not there or stopped."""


class QueueOrder(Protocol):
    """``controller.engine.queues.clusterqueue.ClusterQueueOrder``, as far as it is reached from its workloads."""

    name: ClusterQueueName
    epoch: int

    def push(self, pending: "PendingWorkload") -> None: ...

    def back_off(self, pending: "PendingWorkload") -> None: ...

    def remove(self, pending: "PendingWorkload") -> None: ...

    def requeue(self, pending: "PendingWorkload", reason: RequeueReason, found: DecisionRecord | None) -> None: ...

    def is_parked(self, pending: "PendingWorkload") -> bool: ...

    def found_for(self, pending: "PendingWorkload") -> DecisionRecord | None: ...


class PendingWorkload:
    """Mutable, in slots: a hundred thousand of them may wait.

    ``PendingQueues`` and the ClusterQueueOrder that it is in write ``at``, ``state``, ``sticky``, ``popped_epoch`` and
    ``takes_over``;
    the lane that it is in writes ``entry``; the cycle that popped it writes ``bookmark``, and nothing else. Invariants:

    - ``at`` is None just when ``state`` is UNQUEUED, but for the moment in which it is requeued.
    - ``entry`` is None unless ``state`` is QUEUED.
    - ``priority``, ``queued_at_s``, ``shape`` and ``local_queue`` never change: a workload whose change touches one of
      them comes as a new object. While it is in a lane ``sticky`` and ``takes_over`` do not change either: its key
      would.
    """

    __slots__ = (
        "at",
        "bookmark",
        "due_s",
        "entry",
        "info",
        "key",
        "local_queue",
        "popped_epoch",
        "priority",
        "queued_at_s",
        "shape",
        "state",
        "sticky",
        "takes_over",
    )

    def __init__(
        self,
        info: WorkloadInfo,
        *,
        local_queue: LocalQueueKey,
        priority: int,
        queued_at_s: float,
        shape: str,
        due_s: float = 0.0,
    ) -> None:
        self.info = info
        self.key: WorkloadKey = info.key
        self.local_queue = local_queue
        self.priority = priority
        self.queued_at_s = queued_at_s
        self.shape = shape
        self.due_s = due_s
        """Not tried before this time, the end of its back-off. 0: at once; ``inf``: the end is not known yet."""
        self.bookmark: Bookmark | None = None
        self.sticky = False
        """It waits for its victims at the head of its ClusterQueue, as Kueue's sticky workload."""
        self.takes_over = False
        """The quota of the workload that it replaces is all that it asks for. False again once a cycle has refused it:
        it then waits like all others, and holds up nobody.
        """
        self.state = PendingState.UNQUEUED
        self.popped_epoch = 0
        """The epoch of ``at`` when it was popped: a later epoch means that the queue was woken meanwhile."""
        self.at: QueueOrder | None = None
        """The order it is in, or was popped from."""
        self.entry: object = None
        """Its item in a lane's heap. Any other item of it that a heap still holds is out of date."""

    def __repr__(self) -> str:
        return f"<pending {self.key} {self.state.value}>"

    def __lt__(self, other: "PendingWorkload") -> bool:
        """A heap compares two items of one order when one of them is out of date: which of them comes first is all
        the same.
        """
        return False

    @property
    def untimed_shape(self) -> str:
        """Its shape without the run time."""
        return self.shape.partition("/")[0]

    @property
    def quota_shape(self) -> str:
        """Its shape without the run time and the places."""
        return self.untimed_shape.partition(".")[0]

    @property
    def sum_shape(self) -> str:
        """What its pod sets ask for together; its quota shape where that does not tell all of them alike."""
        return self.quota_shape.partition(":")[0]

    def order(self) -> OrderKey:
        return (
            -1 if self.takes_over else 0 if self.sticky else 1,
            -self.priority,
            self.queued_at_s,
            self.info.workload.metadata.uid,
            self.key,
        )

    def incoming(self, queue: QueueState, replaces: Holder | None = None) -> Incoming:
        return Incoming(
            info=self.info,
            queue=queue,
            local_queue=self.local_queue,
            priority=self.priority,
            queued_at_s=self.queued_at_s,
            shape=self.shape,
            replaces=replaces,
        )
