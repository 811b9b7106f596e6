"""Pod templates, as far as scheduling looks at them: what is requested, and where it may run."""

from typing import Any

import msgspec

from controller.objects.meta import Int32, Int64, LabelSelectorRequirement, ObjectMeta, Resources, Struct


class ResourceClaim(Struct, frozen=True, kw_only=True):
    name: str = ""
    request: str = ""


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    requests: Resources = msgspec.field(default_factory=dict)
    limits: Resources = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaim, ...] = ()


class Container(Struct, frozen=True, kw_only=True):
    """``restart_policy`` "Always" on an init container makes it a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""


class Toleration(Struct, frozen=True, kw_only=True):
    """``operator`` is Equal (also when empty) or Exists; an empty key with Exists tolerates every taint."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class Taint(Struct, frozen=True, kw_only=True):
    """``effect`` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSelectorTerm(Struct, frozen=True, kw_only=True):
    """Operators are those of a label selector, Gt and Lt."""

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_fields: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelector(Struct, frozen=True, kw_only=True):
    """One of the terms must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Struct, frozen=True, kw_only=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class Affinity(Struct, frozen=True, kw_only=True):
    """Affinity between pods decides nothing here; it is kept as it came, as part of a pod's shape."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodSchedulingGate(Struct, frozen=True, kw_only=True):
    name: str = ""


class PodSpec(Struct, frozen=True, kw_only=True):
    """``resources`` are those of the pod as a whole; None where the pod sets none."""

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


class PodTemplateSpec(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
