"""Objects of the cluster that a decision depends on: nodes, pods, limit ranges, namespaces, classes; GpuNodes."""

from typing import Any

import msgspec

from controller.objects.decode import DecodeError, decode
from controller.objects.meta import Condition, Int32, KubernetesObject, Resources, Struct
from controller.objects.pods import PodSpec, Taint
from inventory.api.gpunode import KIND, UNSEEN, GpuNodeStatus, repeated


class GpuNode(KubernetesObject, frozen=True, kw_only=True):
    """Named as its node. The status is ``inventory.api.gpunode``'s, ``tessera.dev/v1alpha1``.

    The agent alone writes it, and what arrives is hostile until it was read: every text and list is bounded, as in the
    CRD, and two devices of one identifier are refused.
    """

    status: GpuNodeStatus = UNSEEN

    def __post_init__(self) -> None:
        problem = repeated(self.status)
        if problem is not None:
            raise ValueError(problem)


def read_gpu_node(given: bytes | str | dict[str, Any]) -> GpuNode:
    """Raises DecodeError: one line with the field, what was found and what is expected."""
    found = decode(given, GpuNode)
    if not found.metadata.name:
        raise DecodeError(f"{KIND}: metadata.name: expected a node's name, found none")
    return found


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
