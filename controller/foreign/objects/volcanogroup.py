"""Volcano's PodGroup, ``scheduling.volcano.sh/v1beta1``: a gang, what it asks for, and how far it has come."""

from typing import Final

import msgspec

from controller.foreign.objects.volcanojob import NetworkTopology
from controller.objects.meta import Int32, KubernetesObject, LabelSelector, Resources, Struct, Time

GROUP_VERSION: Final = "scheduling.volcano.sh/v1beta1"


class SubGroupPolicy(Struct, frozen=True, kw_only=True):
    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_sub_groups: Int32 = 0
    sub_group_size: Int32 | None = None
    network_topology: NetworkTopology | None = None


class PodGroupSpec(Struct, frozen=True, kw_only=True):
    min_member: Int32 = 0
    min_task_member: dict[str, Int32] = msgspec.field(default_factory=dict)
    min_resources: Resources = msgspec.field(default_factory=dict)
    priority_class_name: str = ""
    queue: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class PodGroupCondition(Struct, frozen=True, kw_only=True):
    """A condition. ``type`` is Unschedulable or Scheduled; ``transition_id`` is named after a cycle of Volcano's
    scheduler.
    """

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: Time | None = None


class PodGroupStatus(Struct, frozen=True, kw_only=True):
    """A PodGroup's status. ``phase`` is Pending, Inqueue, Running, Unknown or Completed."""

    phase: str = ""
    conditions: tuple[PodGroupCondition, ...] = ()
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


class PodGroup(KubernetesObject, frozen=True, kw_only=True):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
