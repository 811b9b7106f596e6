"""What one resource's server answers from: an immutable snapshot, swapped whole when anything changes."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from msgspec import structs

from deviceplugin.answer import Mount
from deviceplugin.strategy import AllocationSpec, NodeAccess
from inventory.devices import DeviceId
from inventory.layout.layout import LogicalDevice, Resource
from inventory.layout.sharing import ReplicaPolicy
from inventory.preference.preference import Chooser


class ClientEdits(Protocol):
    """What makes a container a client of a daemon that shares its device."""

    @property
    def envs(self) -> Mapping[str, str]: ...
    @property
    def mounts(self) -> tuple[Mount, ...]: ...


ClientLookup = Callable[[Sequence[LogicalDevice]], ClientEdits | None]
"""What else a container needs that got these devices, all of one daemon; None for nothing."""


def no_client(devices: Sequence[LogicalDevice]) -> ClientEdits | None:  # noqa: ARG001 - one answer for all
    """No device is shared by a daemon."""
    return None


class ResourceView:
    """One resource, its devices' health, how to answer Allocate, and whom to prefer.

    ``unhealthy`` maps a device to the reason, one short line. Never mutated: build another one.
    """

    def __init__(
        self,
        resource: Resource,
        *,
        unhealthy: Mapping[DeviceId, str],
        spec: AllocationSpec,
        access: NodeAccess,
        chooser: Chooser,
        policy: ReplicaPolicy,
        client: ClientLookup = no_client,
    ) -> None:
        self.resource = resource
        self.unhealthy = unhealthy
        self.spec = spec
        self.access = access
        self.chooser = chooser
        self.policy = policy
        self.client = client

    @cached_property
    def by_id(self) -> Mapping[str, LogicalDevice]:
        return {device.id: device for device in self.resource.devices}

    def lists_same(self, other: "ResourceView") -> bool:
        """Whether kubelet would see no difference between the two: same devices, same health."""
        return self.resource.devices == other.resource.devices and self.unhealthy.keys() == other.unhealthy.keys()

    def without_devices(self) -> "ResourceView":
        """The same resource with nothing left to give."""
        return ResourceView(
            structs.replace(self.resource, devices=()),
            unhealthy={},
            spec=self.spec,
            access=self.access,
            chooser=self.chooser,
            policy=self.policy,
            client=self.client,
        )
