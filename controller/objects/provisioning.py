"""Requests for nodes: ``autoscaling.x-k8s.io/v1`` ProvisioningRequest, and Kueue's configuration of a check that makes
them.

Sources: Cluster Autoscaler's API types, Kueue's ProvisioningRequestConfig (KEP-1136).
"""

from typing import Final, Literal

import msgspec

from controller.objects.meta import Condition, Int32, KubernetesObject, Struct

PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"
"""The name of the controller of checks that request nodes."""
NODE_MAKING: Final = (PROVISIONING, "kueue.x-k8s.io/multikueue")
"""Controllers of checks whose answer decides on which nodes the pods can run: places are chosen after it (KEP-2724)."""
AUTOSCALING: Final = "autoscaling.x-k8s.io/v1"

PodSetMergePolicy = Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"]


class RetryStrategy(Struct, frozen=True, kw_only=True):
    """How often a request that failed is made again, and the seconds before the first and at most before the last.
    None means Kueue's default: 3, 60, 1800.
    """

    backoff_limit_count: Int32 | None = None
    backoff_base_seconds: Int32 | None = None
    backoff_max_seconds: Int32 | None = None


class NodeSelectorUpdate(Struct, frozen=True, kw_only=True):
    """A node selector for the pods: ``key`` with the value of one of the request's provisioningClassDetails."""

    key: str = ""
    value_from_provisioning_class_detail: str = ""


class ProvisioningPodSetUpdates(Struct, frozen=True, kw_only=True):
    node_selector: tuple[NodeSelectorUpdate, ...] = ()


class ProvisioningRequestConfigSpec(Struct, frozen=True, kw_only=True):
    """Empty ``managed_resources``: nodes are requested for every workload."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    managed_resources: tuple[str, ...] = ()
    retry_strategy: RetryStrategy | None = None
    pod_set_updates: ProvisioningPodSetUpdates | None = None
    pod_set_merge_policy: PodSetMergePolicy | None = None


class ProvisioningRequestConfig(KubernetesObject, frozen=True, kw_only=True):
    spec: ProvisioningRequestConfigSpec = ProvisioningRequestConfigSpec()


class PodTemplateReference(Struct, frozen=True, kw_only=True):
    name: str = ""


class ProvisioningPodSet(Struct, frozen=True, kw_only=True):
    pod_template_ref: PodTemplateReference = PodTemplateReference()
    count: Int32 = 0


class ProvisioningRequestSpec(Struct, frozen=True, kw_only=True):
    """The request itself, which is immutable."""

    pod_sets: tuple[ProvisioningPodSet, ...] = ()
    provisioning_class_name: str = ""
    parameters: dict[str, str] = msgspec.field(default_factory=dict)


class ProvisioningRequestStatus(Struct, frozen=True, kw_only=True):
    """What the autoscaler says. ``provisioning_class_details`` is free text of the provider, by key."""

    conditions: tuple[Condition, ...] = ()
    provisioning_class_details: dict[str, str] = msgspec.field(default_factory=dict)


class ProvisioningRequest(KubernetesObject, frozen=True, kw_only=True):
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
