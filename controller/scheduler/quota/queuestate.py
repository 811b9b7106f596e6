"""A ClusterQueue as the engine keeps it: its policies with their defaults, its groups, and the holders of its quota."""

from collections.abc import Iterator, Mapping

import msgspec

from controller.objects.queues import (
    BorrowWithinCohortPolicy,
    ClusterQueue,
    ClusterQueuePreemption,
    FlavorFungibility,
    FungibilityPolicy,
    FungibilityPreference,
    ReclaimWithinCohortPolicy,
    StopPolicy,
    WithinClusterQueuePolicy,
)
from controller.scheduler.model.resources import (
    Amount,
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
    WorkloadKey,
)
from controller.scheduler.model.toldtimes import duration_s
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.quota.quotanode import QuotaNode
from inventory.api.names import CHECKPOINT_WAIT, MINIMUM_RUNTIME_BEFORE_PREEMPTION


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The policies of a ClusterQueue, with defaults filled in. A missing policy of a present ``preemption`` stays None:
    it yields no candidates, yet is not Never where Kueue tests for Never. An absent ``preemption`` is Never throughout.
    """

    within_cluster_queue: WithinClusterQueuePolicy | None = "Never"
    reclaim_within_cohort: ReclaimWithinCohortPolicy | None = "Never"
    borrow_within_cohort: BorrowWithinCohortPolicy | None = "Never"
    borrow_threshold: int | None = None
    """``maxPriorityThreshold``: workloads above this priority are not preempted for one that borrows."""
    when_can_borrow: FungibilityPolicy = "MayStopSearch"
    when_can_preempt: FungibilityPolicy = "TryNextFlavor"
    preference: FungibilityPreference | None = None
    strict_fifo: bool = False
    stop: StopPolicy = "None"
    usage_based_admission: bool = False
    minimum_runtime_s: float | None = None
    """The annotation's minimum runtime; None without one. Ignored while the feature is off."""
    checkpoint_wait_s: float = 0.0
    """How long a preemption waits at most for a due checkpoint of a workload of the queue."""

    @classmethod
    def of(cls, cluster_queue: ClusterQueue) -> "Policies":
        spec = cluster_queue.spec
        never = ClusterQueuePreemption(reclaim_within_cohort="Never", within_cluster_queue="Never")
        preemption = spec.preemption or never
        borrow = preemption.borrow_within_cohort
        fungibility = spec.flavor_fungibility or FlavorFungibility()
        scope = spec.admission_scope
        return cls(
            within_cluster_queue=preemption.within_cluster_queue,
            reclaim_within_cohort=preemption.reclaim_within_cohort,
            borrow_within_cohort="Never" if borrow is None else borrow.policy,
            borrow_threshold=None if borrow is None else borrow.max_priority_threshold,
            when_can_borrow=fungibility.when_can_borrow or "MayStopSearch",
            when_can_preempt=fungibility.when_can_preempt or "TryNextFlavor",
            preference=fungibility.preference,
            strict_fifo=spec.queueing_strategy == "StrictFIFO",
            stop=spec.stop_policy or "None",
            usage_based_admission=scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing",
            # An annotation that cannot be read counts as absent: it must not stop the engine.
            minimum_runtime_s=duration_s(cluster_queue.metadata.annotations.get(MINIMUM_RUNTIME_BEFORE_PREEMPTION)),
            checkpoint_wait_s=duration_s(cluster_queue.metadata.annotations.get(CHECKPOINT_WAIT)) or 0.0,
        )


class ResourceGroup(msgspec.Struct, frozen=True):
    """One resource group: its flavors are tried in this order, for all of its resources together."""

    resources: tuple[ResourceName, ...]
    flavors: tuple[FlavorName, ...]


class Holder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A workload that holds quota, as preemption sees it. ``usage`` is exactly what is charged for it.

    ``gc=False`` saves 16 bytes of each and the collector's walk: 20,000 may run.
    """

    info: WorkloadInfo
    cluster_queue: ClusterQueueName
    local_queue: LocalQueueKey
    usage: Mapping[FlavorResource, Amount]
    priority: int
    """Effective priority, see ``effective_priority``."""
    reserved_at_s: float
    queued_at_s: float
    """The result of ``queue_order_time_s``."""
    evicted: bool = False
    """Whether the workload is being evicted and has not stopped yet."""
    admitted: bool = False

    @property
    def key(self) -> WorkloadKey:
        return self.info.key

    @property
    def uid(self) -> str:
        return self.info.workload.metadata.uid


class QueueState:
    """One ClusterQueue. Only ``Cluster`` writes it, except that ``ClusterEvents`` replaces ``object`` by a version with
    an equal spec. ``holders`` are those of ``Cluster.holders`` with this ``cluster_queue``. The usage of ``node`` is
    the sum of theirs outside of trials.
    """

    def __init__(self, cluster_queue: ClusterQueue, node: QuotaNode) -> None:
        self.name = ClusterQueueName(cluster_queue.metadata.name)
        self.node = node
        self.holders: dict[WorkloadKey, Holder] = {}
        self.version = 0
        self.respecify(cluster_queue)

    def __repr__(self) -> str:
        return f"<ClusterQueue {self.name}>"

    def held_through(self, local_queue: LocalQueueKey) -> Iterator[tuple[FlavorResource, Amount]]:
        """The usage of each workload that came through this LocalQueue."""
        for holder in self.holders.values():
            if holder.local_queue == local_queue:
                yield from holder.usage.items()

    def respecify(self, cluster_queue: ClusterQueue) -> None:
        """Take over the new object. ``version`` grows: what was compiled from the old one is void."""
        self.object = cluster_queue
        self.policies = Policies.of(cluster_queue)
        self.groups = tuple(
            ResourceGroup(
                tuple(ResourceName(name) for name in group.covered_resources),
                tuple(FlavorName(flavor.name) for flavor in group.flavors),
            )
            for group in cluster_queue.spec.resource_groups
        )
        # If admission let two groups name a resource, it belongs to the first of them.
        self.group_of: Mapping[ResourceName, int] = {
            resource: index for index, group in reversed([*enumerate(self.groups)]) for resource in group.resources
        }
        self.flavor_resources = tuple(
            FlavorResource(flavor, resource)
            for group in self.groups
            for flavor in group.flavors
            for resource in group.resources
        )
        self.version += 1
