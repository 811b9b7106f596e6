"""The Workload, ``kueue.x-k8s.io/v1beta2``: what a job requests, and everything that has been decided about it."""

from typing import Annotated, Final, Literal

import msgspec

from controller.objects.core import PodTemplateSpec, Toleration
from controller.objects.meta import Condition, Int32, KubernetesObject, Resources, Struct, Time, written

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
CheckState = Literal["Pending", "Ready", "Retry", "Rejected"]
DelayedTopologyRequestState = Literal["Pending", "Ready"]


class SliceConstraint(Struct, frozen=True, kw_only=True):
    topology: str = ""
    size: Int32 = 0


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
    podset_slice_required_topology_constraints: tuple[SliceConstraint, ...] = ()

    @property
    def names_places(self) -> bool:
        """Whether the request names a level or slices for its pods, and not only the labels with their ranks."""
        return bool(
            self.required
            or self.preferred
            or self.unconstrained
            or self.pod_set_slice_required_topology
            or self.podset_slice_required_topology_constraints
            or self.pod_set_group_name
        )


class PodSet(Struct, frozen=True, kw_only=True):
    name: str = ""
    template: PodTemplateSpec = PodTemplateSpec()
    count: Count = 1
    min_count: Count | None = None
    topology_request: PodSetTopologyRequest | None = None


class PriorityClassRef(Struct, frozen=True, kw_only=True):
    group: str = ""
    kind: str = ""
    name: str = ""


class PreemptionGate(Struct, frozen=True, kw_only=True):
    name: str = ""


class WorkloadSpec(Struct, frozen=True, kw_only=True):
    pod_sets: tuple[PodSet, ...] = ()
    queue_name: str = ""
    active: bool = True
    priority_class_ref: PriorityClassRef | None = None
    priority: Int32 | None = None
    maximum_execution_time_seconds: Int32 | None = None
    preemption_gates: tuple[PreemptionGate, ...] = ()


class LevelRoots(Struct, frozen=True, kw_only=True):
    """The values of domains that share parts: the value of domain i is ``prefix + roots[i] + suffix``."""

    prefix: str = ""
    suffix: str = ""
    roots: tuple[str, ...] = ()


class LevelValues(Struct, frozen=True, kw_only=True):
    """The values of a level. One of the two is set: the value that all domains of the slice share, or a value for
    each.
    """

    universal: str | None = None
    individual: LevelRoots | None = None


class SlicePodCounts(Struct, frozen=True, kw_only=True):
    universal: Int32 | None = None
    individual: tuple[Int32, ...] = ()


class TopologyAssignmentSlice(Struct, frozen=True, kw_only=True):
    domain_count: Int32
    values_per_level: tuple[LevelValues, ...] = ()
    pod_counts: SlicePodCounts = SlicePodCounts()


class TopologyAssignment(Struct, frozen=True, kw_only=True):
    """A compressed topology assignment: ``controller.objects.placeencoding`` reads and writes it."""

    levels: tuple[str, ...] = ()
    slices: tuple[TopologyAssignmentSlice, ...] = ()


class PodSetAssignment(Struct, frozen=True, kw_only=True):
    name: str = ""
    flavors: dict[str, str] = msgspec.field(default_factory=dict)
    resource_usage: Resources = msgspec.field(default_factory=dict)
    count: Count | None = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: DelayedTopologyRequestState | None = None


def admitted_pods(pod_set: PodSet, assignment: PodSetAssignment) -> int:
    """The number of pods that run: the admitted number of a set that may start with fewer, else all.

    Source: Kueue's expectedRunningPodSets. A set without a minimum is admitted with fewer if pods of it were done
    before; a job starts with all of them again.
    """
    return pod_set.count if pod_set.min_count is None or assignment.count is None else assignment.count


class Admission(Struct, frozen=True, kw_only=True):
    cluster_queue: str = ""
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodSetUpdate(Struct, frozen=True, kw_only=True):
    name: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class AdmissionCheckState(Struct, frozen=True, kw_only=True):
    name: str = ""
    state: CheckState
    message: str = written(str)
    last_transition_time: Time | None = None
    requeue_after_seconds: Int32 | None = None
    retry_count: Int32 | None = None
    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class RequeueState(Struct, frozen=True, kw_only=True):
    count: Int32 | None = None
    requeue_at: Time | None = None


class ReclaimablePod(Struct, frozen=True, kw_only=True):
    name: str = ""
    count: Count = written(int)


class PodSetRequest(Struct, frozen=True, kw_only=True):
    name: str = ""
    resources: Resources = msgspec.field(default_factory=dict)


class EvictionCount(Struct, frozen=True, kw_only=True):
    reason: str = ""
    underlying_cause: str = written(str)
    count: Int32 = written(int)


class SchedulingStats(Struct, frozen=True, kw_only=True):
    evictions: tuple[EvictionCount, ...] = ()


class UnhealthyNode(Struct, frozen=True, kw_only=True):
    name: str = ""


class PreemptionGateState(Struct, frozen=True, kw_only=True):
    """The state of a gate. ``position`` is Open or Closed."""

    name: str = ""
    position: str = ""
    last_transition_time: Time | None = None


class WorkloadStatus(Struct, frozen=True, kw_only=True):
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    conditions: tuple[Condition, ...] = ()
    reclaimable_pods: tuple[ReclaimablePod, ...] = ()
    admission_checks: tuple[AdmissionCheckState, ...] = ()
    resource_requests: tuple[PodSetRequest, ...] = ()
    accumulated_past_execution_time_seconds: Int32 | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: tuple[str, ...] = ()
    cluster_name: str | None = None
    unhealthy_nodes: tuple[UnhealthyNode, ...] = ()
    preemption_gates: tuple[PreemptionGateState, ...] = ()


NO_STATUS: Final = WorkloadStatus()
"""The status of an object whose JSON had none. It is compared by identity (``is``), and costs no object a byte."""

EMPTY_STATUS: Final = WorkloadStatus()
"""An equal status that is never taken for ``NO_STATUS``: the object's status may have fields that are not read here."""


class Workload(KubernetesObject, frozen=True, kw_only=True):
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = NO_STATUS
