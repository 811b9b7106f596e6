"""What the agent holds to be true right now: hardware, layout, health; and the views that kubelet is served from it.

Synchronous and without I/O: the daemon hands in what it learned, with the time, and takes out what follows.
"""

from collections.abc import Iterator

from msgspec import Struct

from agent.health.events import Event
from agent.health.machine import HealthCore
from agent.health.settings import HealthSettings
from agent.health.states import Transition
from deviceplugin.strategy import AllocationSpec, NodeAccess
from deviceplugin.view import ResourceView
from inventory.devices import Node
from inventory.ids import DeviceId, NodeName, ResourceName
from inventory.layout import Layout, LogicalDevice, Resource, plan
from inventory.linktable import LinkTable
from inventory.preference import Chooser
from inventory.sharing import LayoutSpec, ReplicaPolicy


class Choices(Struct, frozen=True):
    """The administrator's choices that shape what is advertised and how it is handed out."""

    layout: LayoutSpec = LayoutSpec()
    allocation: AllocationSpec = AllocationSpec()
    replica_policy: ReplicaPolicy = ReplicaPolicy.DISTRIBUTED
    health: HealthSettings = HealthSettings()


class Picture:
    """One node's state. ``views()`` is what the device plugin servers answer from."""

    def __init__(self, name: NodeName, choices: Choices) -> None:
        self.node = Node(name=name)
        self.layout = Layout()
        self.access = NodeAccess()
        self.choices = choices
        self.health = HealthCore(choices.health)
        self.links = LinkTable.of(self.node)
        self._choosers: dict[ResourceName, Chooser] = {}

    def discovered(self, node: Node, access: NodeAccess, now_s: float) -> tuple[Transition, ...]:
        """NVML's (or the checkpoint's) node replaces the old one. A GPU that is gone becomes Unhealthy and unlisted."""
        same_links = node.links == self.node.links and [g.uuid for g in node.gpus] == [g.uuid for g in self.node.gpus]
        self.node, self.access = node, access
        if not same_links:
            self.links = LinkTable.of(node)
        transitions = self.health.discovered(node.gpus, now_s)
        self._replan()
        return transitions

    def reconfigured(self, choices: Choices, now_s: float) -> tuple[Transition, ...]:
        """New choices; what they do not touch keeps its identity, so that no server or stream is disturbed."""
        old, self.choices = self.choices, choices
        if choices.layout != old.layout:
            self._replan()
        return self.health.reconfigure(choices.health, now_s) if choices.health != old.health else ()

    def apply(self, event: Event, now_s: float) -> tuple[Transition, ...]:
        """A health event; the transitions it caused."""
        return self.health.apply(event, now_s)

    def views(self) -> tuple[ResourceView, ...]:
        """One view for each advertised resource, with the health of this moment."""
        return tuple(self._view(resource) for resource in self.layout.resources)

    def unhealthy(self, resource: Resource) -> dict[DeviceId, str]:
        """The resource's devices that are not to be given, with why."""
        return {device.id: reason for device, reason in self._unhealthy(resource)}

    def device_ids(self) -> set[DeviceId]:
        return {device.id for resource in self.layout.resources for device in resource.devices}

    def validate(self) -> None:
        """Recompute the invariants of every part, and that all devices stand on GPUs of this node."""
        self.node.validate()
        self.layout.validate()
        self.health.validate()
        uuids = {gpu.uuid for gpu in self.node.gpus}
        assert all(d.gpu in uuids for r in self.layout.resources for d in r.devices), "a device without a GPU"

    def _replan(self) -> None:
        self.layout = plan(self.node, self.choices.layout)
        self._choosers = {r.name: Chooser(r.devices, self.links) for r in self.layout.resources}

    def _view(self, resource: Resource) -> ResourceView:
        return ResourceView(
            resource,
            unhealthy=self.unhealthy(resource),
            spec=self.choices.allocation,
            access=self.access,
            chooser=self._choosers[resource.name],
            policy=self.choices.replica_policy,
        )

    def _unhealthy(self, resource: Resource) -> Iterator[tuple[LogicalDevice, str]]:
        for device in resource.devices:
            health = self.health.state(device.gpu, device.mig)
            if not health.advertised_healthy:
                yield device, health.reason or health.state.value
