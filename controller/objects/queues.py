"""Kueue's cluster-side kinds, ``kueue.x-k8s.io/v1beta2``: flavors, queues, cohorts, checks, topologies, classes.

Nothing is defaulted here: an absent policy stays None, because the engine tells "absent" from "Never" in places.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from controller.objects.core import Taint, Toleration
from controller.objects.meta import (
    Condition,
    Int32,
    Int64,
    KubernetesObject,
    LabelSelector,
    Resources,
    Struct,
    Time,
)
from controller.objects.quantity import Quantity

QueueingStrategy = Literal["StrictFIFO", "BestEffortFIFO"]
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
FungibilityPolicy = Literal["MayStopSearch", "TryNextFlavor"]
FungibilityPreference = Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"]
WithinClusterQueuePolicy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
ReclaimWithinCohortPolicy = Literal["Never", "LowerPriority", "Any"]
BorrowWithinCohortPolicy = Literal["Never", "LowerPriority"]
AdmissionMode = Literal["NoAdmissionFairSharing", "UsageBasedAdmissionFairSharing"]
MigrationMode = Literal["TryPreferredFlavors", "RetainFirstAdmission"]


class ResourceFlavorSpec(Struct, frozen=True, kw_only=True):
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is one of the flavor's."""
        return all(labels.get(name) == value for name, value in self.node_labels.items())


class ResourceFlavor(KubernetesObject, frozen=True, kw_only=True):
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class ResourceQuota(Struct, frozen=True, kw_only=True):
    """An absent ``borrowing_limit`` borrows without bound, an absent ``lending_limit`` lends everything."""

    name: str
    nominal_quota: Quantity
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Struct, frozen=True, kw_only=True):
    name: str
    resources: tuple[ResourceQuota, ...] = ()


class ResourceGroup(Struct, frozen=True, kw_only=True):
    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()


class FairSharing(Struct, frozen=True, kw_only=True):
    weight: Quantity | None = None


class FlavorFungibility(Struct, frozen=True, kw_only=True):
    when_can_borrow: FungibilityPolicy | None = None
    when_can_preempt: FungibilityPolicy | None = None
    preference: FungibilityPreference | None = None


class BorrowWithinCohort(Struct, frozen=True, kw_only=True):
    policy: BorrowWithinCohortPolicy | None = None
    max_priority_threshold: Int32 | None = None


class ClusterQueuePreemption(Struct, frozen=True, kw_only=True):
    reclaim_within_cohort: ReclaimWithinCohortPolicy | None = None
    borrow_within_cohort: BorrowWithinCohort | None = None
    within_cluster_queue: WithinClusterQueuePolicy | None = None


class AdmissionCheckStrategyRule(Struct, frozen=True, kw_only=True):
    """Empty ``on_flavors``: the check holds for every flavor."""

    name: str
    on_flavors: tuple[str, ...] = ()


class AdmissionChecksStrategy(Struct, frozen=True, kw_only=True):
    admission_checks: tuple[AdmissionCheckStrategyRule, ...] = ()


class AdmissionScope(Struct, frozen=True, kw_only=True):
    admission_mode: AdmissionMode | None = None


class MigrationConstraints(Struct, frozen=True, kw_only=True):
    last_acceptable_flavor_name: str | None = None


class Migration(Struct, frozen=True, kw_only=True):
    mode: MigrationMode | None = None
    constraints: MigrationConstraints | None = None


class ConcurrentAdmissionPolicy(Struct, frozen=True, kw_only=True):
    migration: Migration = Migration()


class ClusterQueueSpec(Struct, frozen=True, kw_only=True):
    """An absent ``namespace_selector`` matches no namespace, an empty one all."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    cohort_name: str = ""
    queueing_strategy: QueueingStrategy | None = None
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility | None = None
    preemption: ClusterQueuePreemption | None = None
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: StopPolicy | None = None
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None


class ResourceUsage(Struct, frozen=True, kw_only=True):
    name: str
    total: Quantity | None = None
    borrowed: Quantity | None = None


class FlavorUsage(Struct, frozen=True, kw_only=True):
    name: str
    resources: tuple[ResourceUsage, ...] = ()


class FairSharingStatus(Struct, frozen=True, kw_only=True):
    """``weighted_share`` is 2^63-1 where the weight is 0 and something is borrowed."""

    weighted_share: Int64 | None = None


class _QueueStatus(Struct, frozen=True, kw_only=True):
    """None is not said: a count of 0 is, as in Kueue, whose types write these fields always."""

    conditions: tuple[Condition, ...] = ()
    flavors_reservation: tuple[FlavorUsage, ...] = ()
    flavors_usage: tuple[FlavorUsage, ...] = ()
    pending_workloads: Int32 | None = None
    reserving_workloads: Int32 | None = None
    admitted_workloads: Int32 | None = None


class ClusterQueueStatus(_QueueStatus, frozen=True, kw_only=True):
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(KubernetesObject, frozen=True, kw_only=True):
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


class CohortSpec(Struct, frozen=True, kw_only=True):
    parent_name: str = ""
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_sharing: FairSharing | None = None


class CohortStatus(Struct, frozen=True, kw_only=True):
    fair_sharing: FairSharingStatus | None = None


class Cohort(KubernetesObject, frozen=True, kw_only=True):
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


class LocalQueueSpec(Struct, frozen=True, kw_only=True):
    cluster_queue: str = ""
    stop_policy: StopPolicy | None = None
    fair_sharing: FairSharing | None = None


class AdmissionFairSharingStatus(Struct, frozen=True, kw_only=True):
    consumed_resources: Resources = msgspec.field(default_factory=dict)
    last_update: Time | None = None


class LocalQueueFairSharingStatus(Struct, frozen=True, kw_only=True):
    weighted_share: Int64 | None = None
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


class LocalQueueStatus(_QueueStatus, frozen=True, kw_only=True):
    fair_sharing: LocalQueueFairSharingStatus | None = None


class LocalQueue(KubernetesObject, frozen=True, kw_only=True):
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class WorkloadPriorityClass(KubernetesObject, frozen=True, kw_only=True):
    value: Int32
    description: str = ""


class AdmissionCheckParametersReference(Struct, frozen=True, kw_only=True):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class AdmissionCheckSpec(Struct, frozen=True, kw_only=True):
    controller_name: str = ""
    parameters: AdmissionCheckParametersReference | None = None


class AdmissionCheckStatus(Struct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class AdmissionCheck(KubernetesObject, frozen=True, kw_only=True):
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class TopologyLevel(Struct, frozen=True, kw_only=True):
    node_label: str


class TopologySpec(Struct, frozen=True, kw_only=True):
    levels: tuple[TopologyLevel, ...] = ()


class Topology(KubernetesObject, frozen=True, kw_only=True):
    spec: TopologySpec = TopologySpec()
