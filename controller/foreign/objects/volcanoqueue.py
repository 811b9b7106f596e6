"""Volcano's queues: ``scheduling.volcano.sh/v1beta1`` Queue. Defaults are those of its webhook, and no others."""

from typing import Annotated, Final, Literal

import msgspec

from controller.objects.meta import Int32, KubernetesObject, Resources, Struct

VOLCANO_QUEUE: Final = "scheduling.volcano.sh/v1beta1"

CLOSED_BY_PARENT: Final = "volcano.sh/closed-by-parent"
"""Annotation, "true" or "false": whether the Queue is closed because one above it is, and opens with that."""

VolcanoQueueState = Literal["Open", "Closed", "Closing", "Unknown", ""]
_Weight = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Guarantee(Struct, frozen=True, kw_only=True):
    resource: Resources = msgspec.field(default_factory=dict)


class NodeGroups(Struct, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: tuple[str, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[str, ...] = ()


class QueueAffinity(Struct, frozen=True, kw_only=True):
    """The affinity of a queue to groups of nodes by the label ``volcano.sh/nodegroup-name``."""

    node_group_affinity: NodeGroups | None = None
    node_group_anti_affinity: NodeGroups | None = None


class VolcanoQueueSpec(Struct, frozen=True, kw_only=True):
    """A Queue's spec. An absent capability is no bound, an absent ``deserved`` is none, an absent ``reclaimable`` is
    true.
    """

    weight: _Weight = 1
    capability: Resources = msgspec.field(default_factory=dict)
    deserved: Resources = msgspec.field(default_factory=dict)
    guarantee: Guarantee = Guarantee()
    reclaimable: bool = True
    parent: str = ""
    priority: _Count = 0
    dequeue_strategy: Literal["fifo", "traverse"] = "traverse"
    affinity: QueueAffinity | None = None
    type: str = ""


class VolcanoQueueStatus(Struct, frozen=True, kw_only=True):
    state: VolcanoQueueState = ""
    pending: Int32 = 0
    running: Int32 = 0
    inqueue: Int32 = 0
    completed: Int32 = 0
    unknown: Int32 = 0
    allocated: Resources = msgspec.field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether the queue admits jobs: its state is Open or empty."""
        return self.state not in ("Closed", "Closing")


class VolcanoQueue(KubernetesObject, frozen=True, kw_only=True):
    """A Volcano queue. Its kind is Queue; it has no namespace."""

    spec: VolcanoQueueSpec = VolcanoQueueSpec()
    status: VolcanoQueueStatus = VolcanoQueueStatus()

    @property
    def closed_by_parent(self) -> bool:
        return self.metadata.annotations.get(CLOSED_BY_PARENT) == "true"
