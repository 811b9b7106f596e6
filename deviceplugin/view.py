"""The snapshot from which one resource's server answers: immutable, and swapped whole when anything changes."""

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
    """The edits that make a container a client of a daemon that shares its device."""

    @property
    def envs(self) -> Mapping[str, str]: ...
    @property
    def mounts(self) -> tuple[Mount, ...]: ...


ClientLookup = Callable[[Sequence[LogicalDevice]], ClientEdits | None]
"""A function to the further edits of a container that got these devices, all of one daemon; None for none."""


def no_client(devices: Sequence[LogicalDevice]) -> ClientEdits | None:  # noqa: ARG001 - one answer for all
    """The lookup for a node without daemons: always None."""
    return None


class ResourceView:
    """One resource, its devices' health, the settings of Allocate's answers, and the chooser.

    ``unhealthy`` maps a device to the reason, one short line. A view is never mutated: another one is built.
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
        """Whether the kubelet would see no difference between the two: equal devices, equal health."""
        return self.resource.devices == other.resource.devices and self.unhealthy.keys() == other.unhealthy.keys()

    def without_devices(self) -> "ResourceView":
        """The view of the resource with no device left to give."""
        return ResourceView(
            structs.replace(self.resource, devices=()),
            unhealthy={},
            spec=self.spec,
            access=self.access,
            chooser=self.chooser,
            policy=self.policy,
            client=self.client,
        )
