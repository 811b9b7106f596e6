"""One pending workload in its queue."""

from enum import Enum
from typing import TYPE_CHECKING

from controller.engine.cluster.incoming import Incoming
from controller.engine.flavors.assignment import Bookmark
from controller.engine.model.resources import LocalQueueKey, WorkloadKey
from controller.engine.model.workload import WorkloadInfo
from controller.engine.quota.queuestate import Holder, QueueState

if TYPE_CHECKING:
    from controller.engine.queues.clusterqueue import ClusterQueueOrder

OrderKey = tuple[int, int, float, str, str]
"""Sticky first, then more priority, then earlier, then by uid; the key settles what is left."""


def placed(shape: str, kin: str) -> str:
    """The shape of workloads that differ in the places they ask for: quota alone has one answer for all of ``kin``."""
    return f"{kin}.{shape}"


def timed(shape: str, runtime_s: float | None) -> str:
    """The shape of workloads that differ in how long they run, where that decides who passes: part of a family."""
    return f"{shape}/{'?' if runtime_s is None else format(runtime_s, 'g')}"


class RequeueReason(Enum):
    """Why a workload comes back from a cycle; the value says whether it is tried again at once (BestEffortFIFO)."""

    NO_FIT = "NoFit"
    """No flavor fits, or nobody may be preempted: everything of its shape would fail the same way."""
    NO_QUOTA = "NoQuota"
    """As ``NO_FIT``, wherever there were room for its pods: so would everything of its kin."""
    HELD_BACK = "HeldBack"
    """It fits, and would delay the head of a queue: so would everything of its shape that runs as long."""
    GENERIC = "Generic"
    """It fitted alone and not beside those that went first, or a check outside quota refused it."""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"

    @property
    def immediate(self) -> bool:
        return self in _IMMEDIATE


_IMMEDIATE = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PENDING_MIGRATION,
        RequeueReason.PREEMPTION_FAILED,
    }
)


class Place(Enum):
    """Where a pending workload is: in its ClusterQueue's order, parked one by one, or out with a cycle."""

    QUEUED = "queued"
    PARKED = "parked"
    IN_FLIGHT = "in flight"
    NOWHERE = "nowhere"
    """Its LocalQueue or ClusterQueue is not there, or it is held back (not active, gated)."""


class PendingWorkload:
    """Mutable, owned by ``PendingQueues``; a cycle reads it and writes ``bookmark`` alone.

    Slots, because a hundred thousand of them may wait: what workloads of one shape have in common is shared.
    """

    __slots__ = (
        "at",
        "bookmark",
        "due_s",
        "entry",
        "info",
        "key",
        "local_queue",
        "place",
        "popped_epoch",
        "priority",
        "queued_at_s",
        "shape",
        "sticky",
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
        """Not tried before this time: the end of its backoff. 0 for at once, ``inf`` while its backoff stands open."""
        self.bookmark: Bookmark | None = None
        self.sticky = False
        self.place = Place.NOWHERE
        self.popped_epoch = 0
        self.at: ClusterQueueOrder | None = None
        """The order it is in; None while it leads nowhere."""
        self.entry: object = None
        """The lane's entry of it, which is how a heap tells what is out of date."""

    def __repr__(self) -> str:
        return f"<pending {self.key} {self.place.value}>"

    @property
    def family(self) -> str:
        """Its shape, however long it runs."""
        return self.shape.partition("/")[0]

    @property
    def kin(self) -> str:
        """Its family, whatever places they ask for."""
        return self.family.partition(".")[0]

    def order(self) -> OrderKey:
        return (0 if self.sticky else 1, -self.priority, self.queued_at_s, self.info.workload.metadata.uid, self.key)

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
