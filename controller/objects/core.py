"""Kubernetes' own objects that a decision depends on: nodes, pods, limit ranges, namespaces, classes.

Pod templates have the fields that scheduling reads: what is requested, and where pods may run.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.objects.meta import (
    Condition,
    Int32,
    Int64,
    KubernetesObject,
    LabelSelectorRequirement,
    ObjectMeta,
    Resources,
    Struct,
    is_true,
)

ENDED_PHASES: Final = ("Succeeded", "Failed")
"""Phases of a pod whose containers have all ended and are not started again."""
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
"""Karpenter's label of a node: ``spot`` or ``on-demand``."""
SPOT_LABELS: Final[Mapping[str, str]] = {
    CAPACITY_TYPE: "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "eks.amazonaws.com/capacityType": "SPOT",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
"""Labels by which Karpenter, GKE, EKS and AKS mark a node that may be interrupted, each with its value."""


def is_spot(labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels may be interrupted by its provider."""
    return any(labels.get(key) == value for key, value in SPOT_LABELS.items())


class ContainerClaim(Struct, frozen=True, kw_only=True):
    """The claim of its pod that a container gets, or one request of it."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    requests: Resources = msgspec.field(default_factory=dict)
    limits: Resources = msgspec.field(default_factory=dict)
    claims: tuple[ContainerClaim, ...] = ()


class Container(Struct, frozen=True, kw_only=True):
    """A container. ``restart_policy`` "Always" on an init container makes it a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class Toleration(Struct, frozen=True, kw_only=True):
    """A toleration. ``operator`` is Equal (also when empty) or Exists; an empty key with Exists tolerates every
    taint.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class Taint(Struct, frozen=True, kw_only=True):
    """A taint. ``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorTerm(Struct, frozen=True, kw_only=True):
    """One term. Operators are those of a label selector, Gt and Lt."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(Struct, frozen=True, kw_only=True):
    """A selector that matches if one of its terms does."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Struct, frozen=True, kw_only=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class Affinity(Struct, frozen=True, kw_only=True):
    """A pod's affinity. Affinity between pods decides nothing here; it is kept unchanged, as part of a pod's shape."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodSchedulingGate(Struct, frozen=True, kw_only=True):
    name: str = ""


class PodResourceClaim(Struct, frozen=True, kw_only=True):
    """A claim of devices: made for each pod from a template, or named."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSchedulingGroup(Struct, frozen=True, kw_only=True):
    """The pod's PodGroup of ``scheduling.k8s.io``, in its own namespace."""

    pod_group_name: str = ""


class PodSpec(Struct, frozen=True, kw_only=True):
    """A pod's spec. ``resources`` are those of the pod as a whole; None if it sets none."""

    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: Resources = msgspec.field(default_factory=dict)
    runtime_class_name: str | None = None
    node_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    priority_class_name: str = ""
    priority: Int32 | None = None
    restart_policy: str = ""
    scheduler_name: str = ""
    active_deadline_seconds: Int64 | None = None
    termination_grace_period_seconds: Int64 | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None


class PodTemplateSpec(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class NodeSpec(Struct, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True, kw_only=True):
    capacity: Resources = msgspec.field(default_factory=dict)
    allocatable: Resources = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Node(KubernetesObject, frozen=True, kw_only=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def takes_pods(self) -> bool:
        """Whether the node is ready and not cordoned; taints concern some pods only."""
        return not self.spec.unschedulable and is_true(self.status.conditions, "Ready")


class PodStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""


class Pod(KubernetesObject, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ContainerState(Struct, frozen=True, kw_only=True):
    running: dict[str, Any] | None = None


class ContainerStatus(Struct, frozen=True, kw_only=True):
    state: ContainerState = ContainerState()


class AgentPodStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()


class AgentPodSpec(Struct, frozen=True, kw_only=True):
    node_name: str = ""


class AgentPod(KubernetesObject, frozen=True, kw_only=True):
    """A pod of the agents' DaemonSet, as far as it says whether the agent runs."""

    spec: AgentPodSpec = AgentPodSpec()
    status: AgentPodStatus = AgentPodStatus()

    @property
    def runs(self) -> bool:
        """Whether all of its containers run. One that is restarted again and again does not between two times."""
        statuses = self.status.container_statuses
        return self.status.phase == "Running" and all(each.state.running is not None for each in statuses)


class LimitRangeItem(Struct, frozen=True, kw_only=True):
    """One item. ``type`` is Container, Pod or PersistentVolumeClaim."""

    type: str = ""
    max: Resources = msgspec.field(default_factory=dict)
    min: Resources = msgspec.field(default_factory=dict)
    default: Resources = msgspec.field(default_factory=dict)
    default_request: Resources = msgspec.field(default_factory=dict)
    max_limit_request_ratio: Resources = msgspec.field(default_factory=dict)


class LimitRangeSpec(Struct, frozen=True, kw_only=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(KubernetesObject, frozen=True, kw_only=True):
    spec: LimitRangeSpec = LimitRangeSpec()


class Namespace(KubernetesObject, frozen=True, kw_only=True):
    pass


class PriorityClass(KubernetesObject, frozen=True, kw_only=True):
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


class Overhead(Struct, frozen=True, kw_only=True):
    pod_fixed: Resources = msgspec.field(default_factory=dict)


class RuntimeClass(KubernetesObject, frozen=True, kw_only=True):
    handler: str = ""
    overhead: Overhead | None = None
