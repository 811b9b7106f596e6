"""Kubernetes' own objects that a decision depends on: nodes, pods, limit ranges, namespaces, classes."""

import msgspec

from controller.objects.meta import Condition, Int32, KubernetesObject, Resources, Struct
from controller.objects.pods import PodSpec, Taint


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


class PodStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Pod(KubernetesObject, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class LimitRangeItem(Struct, frozen=True, kw_only=True):
    """``type`` is Container, Pod or PersistentVolumeClaim."""

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
