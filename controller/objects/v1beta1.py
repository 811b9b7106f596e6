"""Kueue's kinds as ``kueue.x-k8s.io/v1beta1`` writes them: for the CRDs' older version and for conversion alone.

Nothing decides on these: the API server stores and hands out v1beta2. Only the structs that differ are here; the
others (ResourceFlavor, Topology, WorkloadPriorityClass and all parts not named below) are those of v1beta2.

Renamed since: ClusterQueue ``cohort`` (``cohortName``) and ``admissionChecks`` (``admissionChecksStrategy``), Workload
``priorityClassName`` with ``priorityClassSource`` (``priorityClassRef``) and the misspelt
``accumulatedPastExexcutionTimeSeconds``, LocalQueue status ``flavorUsage`` (``flavorsUsage``), and a topology
assignment's plain ``domains`` (compressed ``slices``).
"""

from typing import Final, Literal

import msgspec

from controller.objects.meta import Condition, Int32, Int64, KubernetesObject, LabelSelector, Resources, Struct, Time
from controller.objects.pods import PodTemplateSpec, Taint
from controller.objects.queues import (
    AdmissionCheckParametersReference,
    AdmissionChecksStrategy,
    AdmissionCheckStatus,
    AdmissionFairSharingStatus,
    ClusterQueuePreemption,
    CohortSpec,
    FairSharing,
    FlavorUsage,
    FungibilityPreference,
    LocalQueueFairSharingStatus,
    LocalQueueSpec,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Topology,
    WorkloadPriorityClass,
)
from controller.objects.workload import (
    AdmissionCheckState,
    Count,
    PodSetRequest,
    ReclaimablePod,
    RequeueState,
    SchedulingStats,
    UnhealthyNode,
)

API_VERSION: Final = "kueue.x-k8s.io/v1beta1"

BorrowFungibility = Literal["MayStopSearch", "TryNextFlavor", "Borrow"]
PreemptFungibility = Literal["MayStopSearch", "TryNextFlavor", "Preempt"]
PriorityClassSource = Literal["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]


class FlavorFungibility(Struct, frozen=True, kw_only=True):
    """``Borrow`` and ``Preempt`` are older words for MayStopSearch."""

    when_can_borrow: BorrowFungibility | None = None
    when_can_preempt: PreemptFungibility | None = None
    preference: FungibilityPreference | None = None


class AdmissionScope(Struct, frozen=True, kw_only=True):
    admission_mode: str | None = None


class ClusterQueueSpec(Struct, frozen=True, kw_only=True):
    """``admission_checks`` are names of checks that hold for every flavor."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    cohort: str = ""
    queueing_strategy: QueueingStrategy | None = None
    namespace_selector: LabelSelector | None = None
    flavor_fungibility: FlavorFungibility | None = None
    preemption: ClusterQueuePreemption | None = None
    admission_checks: tuple[str, ...] = ()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: StopPolicy | None = None
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None


class FairSharingStatus(Struct, frozen=True, kw_only=True):
    weighted_share: Int64 = 0
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


class ClusterQueuePendingWorkload(Struct, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""


class ClusterQueuePendingWorkloadsStatus(Struct, frozen=True, kw_only=True):
    """The first in line, once; nobody writes it any more."""

    cluster_queue_pending_workload: tuple[ClusterQueuePendingWorkload, ...] = ()
    last_change_time: Time | None = None


class ClusterQueueStatus(Struct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    flavors_reservation: tuple[FlavorUsage, ...] = ()
    flavors_usage: tuple[FlavorUsage, ...] = ()
    pending_workloads: Int32 = 0
    reserving_workloads: Int32 = 0
    admitted_workloads: Int32 = 0
    pending_workloads_status: ClusterQueuePendingWorkloadsStatus | None = None
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(KubernetesObject, frozen=True, kw_only=True):
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()


class CohortStatus(Struct, frozen=True, kw_only=True):
    fair_sharing: FairSharingStatus | None = None


class Cohort(KubernetesObject, frozen=True, kw_only=True):
    spec: CohortSpec = CohortSpec()
    status: CohortStatus = CohortStatus()


class FlavorTopology(Struct, frozen=True, kw_only=True):
    name: str = ""
    levels: tuple[str, ...] = ()


class LocalQueueFlavorStatus(Struct, frozen=True, kw_only=True):
    """What a flavor is, for users who may not read ResourceFlavors."""

    name: str = ""
    resources: tuple[str, ...] = ()
    node_labels: dict[str, str] = msgspec.field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    topology: FlavorTopology | None = None


class LocalQueueStatus(Struct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()
    flavors_reservation: tuple[FlavorUsage, ...] = ()
    flavor_usage: tuple[FlavorUsage, ...] = ()
    pending_workloads: Int32 = 0
    reserving_workloads: Int32 = 0
    admitted_workloads: Int32 = 0
    flavors: tuple[LocalQueueFlavorStatus, ...] = ()
    fair_sharing: LocalQueueFairSharingStatus | None = None


class LocalQueue(KubernetesObject, frozen=True, kw_only=True):
    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class AdmissionCheckSpec(Struct, frozen=True, kw_only=True):
    """``retry_delay_minutes`` has no effect and no place in v1beta2."""

    controller_name: str = ""
    retry_delay_minutes: Int64 | None = None
    parameters: AdmissionCheckParametersReference | None = None


class AdmissionCheck(KubernetesObject, frozen=True, kw_only=True):
    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()


class PodSetTopologyRequest(Struct, frozen=True, kw_only=True):
    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: Int32 | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: Int32 | None = None


class PodSet(Struct, frozen=True, kw_only=True):
    name: str = ""
    template: PodTemplateSpec = PodTemplateSpec()
    count: Count = 1
    min_count: Count | None = None
    topology_request: PodSetTopologyRequest | None = None


class WorkloadSpec(Struct, frozen=True, kw_only=True):
    pod_sets: tuple[PodSet, ...] = ()
    queue_name: str = ""
    active: bool = True
    priority_class_name: str = ""
    priority_class_source: PriorityClassSource = ""
    priority: Int32 | None = None
    maximum_execution_time_seconds: Int32 | None = None


class TopologyDomainAssignment(Struct, frozen=True, kw_only=True):
    """``values``: the domain's label value at each level, highest first; ``count``: pods in it."""

    values: tuple[str, ...] = ()
    count: Int32 = 0


class TopologyAssignment(Struct, frozen=True, kw_only=True):
    levels: tuple[str, ...] = ()
    domains: tuple[TopologyDomainAssignment, ...] = ()


class PodSetAssignment(Struct, frozen=True, kw_only=True):
    name: str = ""
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: Resources = msgspec.field(default_factory=dict)
    count: Count | None = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: str | None = None


class Admission(Struct, frozen=True, kw_only=True):
    cluster_queue: str = ""
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class WorkloadStatus(Struct, frozen=True, kw_only=True):
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    conditions: tuple[Condition, ...] = ()
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    admission_checks: tuple[AdmissionCheckState, ...] = ()
    resource_requests: tuple[PodSetRequest, ...] = ()
    # The API's own spelling.
    accumulated_past_exexcution_time_seconds: Int32 | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: tuple[str, ...] = ()
    cluster_name: str | None = None
    unhealthy_nodes: tuple[UnhealthyNode, ...] = ()


class Workload(KubernetesObject, frozen=True, kw_only=True):
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


KINDS: Final[tuple[type[KubernetesObject], ...]] = (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
