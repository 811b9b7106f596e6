"""Devices that Allocate handed out and that the kubelet has not listed yet. Pure: it takes answers, Lists and times.

    granted(resource, devices, now_s), listed(shown, began_s)  ->  open

The kubelet lists a pod's devices some time after it took the answer, and the holders of the last List may be seconds
old. A grant counts as a holder from the answer on: until a List that began after it has shown the device once, or until
the kubelet has not shown it for a minute. From then on the Lists alone say whether the device is held.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from inventory.devices import DeviceId, ResourceName

UNLISTED_S: Final = 60.0
"""The seconds after which a grant that no List shows ends: the kubelet lists a device within milliseconds, or the pod
failed.
"""

Shown = tuple[ResourceName, DeviceId]
"""A device in one List, with its resource: the kubelet keeps the devices of each resource apart."""


class _Open(Struct, frozen=True):
    """A grant that no List has shown yet. ``missing_s`` is when the first List began that could have shown the device
    and did not.
    """

    resource: ResourceName
    given_s: float
    missing_s: float | None = None


class Grants:
    """The open grants of one node, by device. Written on the agent's event loop alone: by Allocate (``granted``) and by
    the reader of pod resources (``listed``). All times are of one clock that never jumps back.
    """

    def __init__(self) -> None:
        self._open: dict[DeviceId, _Open] = {}
        self._listed_s = float("-inf")

    @property
    def open(self) -> Mapping[DeviceId, ResourceName]:
        """The devices that a container has though no List shows them, with the resource of each."""
        return {device: grant.resource for device, grant in self._open.items()}

    def granted(self, resource: ResourceName, devices: Iterable[DeviceId], now_s: float) -> None:
        """Record that Allocate answered with these devices. A device that is given anew counts from now on."""
        for device in devices:
            self._open[device] = _Open(resource, now_s)

    def listed(self, shown: Collection[Shown], began_s: float) -> bool:
        """Take in a List that began at ``began_s``. True where a grant no longer counts by itself."""
        if began_s <= self._listed_s:
            return False  # a later one was taken in already
        self._listed_s = began_s
        before = len(self._open)
        for device, grant in list(self._open.items()):
            if began_s <= grant.given_s:
                continue  # that List may have been answered before the grant
            if (grant.resource, device) in shown:
                del self._open[device]
            elif grant.missing_s is None:
                self._open[device] = _Open(grant.resource, grant.given_s, began_s)
            elif began_s - grant.missing_s >= UNLISTED_S:
                del self._open[device]
        return len(self._open) < before

    def validate(self) -> None:
        """Check that a List that lacks a grant began after it, and that no grant is overdue."""
        for device, grant in self._open.items():
            if grant.missing_s is not None:
                assert grant.missing_s > grant.given_s, f"{device} is missed by a List that began before its grant"
                assert self._listed_s - grant.missing_s < UNLISTED_S, f"{device} counts for too long"
