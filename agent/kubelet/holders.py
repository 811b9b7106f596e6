"""The holder of each device, and pods that hold none yet, by the kubelet's answers to List. Pure.

The kubelet has a pod among its own before it admits it: List of pod resources names the pod that a call is for, without
a device. A pod that the watch knows as well needs no wait, whatever it asks for; one that it does not know is waited
for, once.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from agent.kubelet.grants import Shown
from agent.kubelet.plans import PodKey
from inventory.devices import DeviceId, ResourceName
from inventory.layout.layout import physical_id
from kubeletapi import podresources_v1_pb2 as pb

SHOWN_PODS = 8
UNLISTED = "a pod that the kubelet has not listed yet"
"""The words in place of the pod's name where Allocate has just given the device."""


class Holder(Struct, frozen=True, order=True):
    """A container that was given a device of ``resource``. Without a pod it is not listed yet."""

    namespace: str
    pod: str
    container: str
    resource: ResourceName


def pod_names(holders: Iterable[Holder]) -> list[str]:
    """The holders' pods as ``namespace/name``, each once, sorted."""
    return sorted({f"{holder.namespace}/{holder.pod}" if holder.pod else UNLISTED for holder in holders})


def shown(pods: Sequence[str]) -> str:
    """The names of pods for a sentence: the first eight, and how many more."""
    return ", ".join(pods[:SHOWN_PODS]) + (f" and {len(pods) - SHOWN_PODS} more" if len(pods) > SHOWN_PODS else "")


Claimed = Callable[[str, str, str, str], DeviceId | None]
"""A function from a driver, a claim's namespace and name, and the device's name in it to the device; None for a device
that is not ours.
"""


def nothing(*_: str) -> None:
    """The ``Claimed`` of a node without claims: no device is held by claim."""


def holders_of(
    answer: pb.ListPodResourcesResponse, units: Collection[str], claimed: Claimed = nothing
) -> dict[DeviceId, Holder]:
    """Our devices' holders in one List answer, by plugin and by claim. ``units`` are the UUIDs of our GPUs and MIG
    instances: a device counts in whatever shape it was given, also in one that is no longer offered. Other plugins'
    devices are passed over. A device held by claim counts as of a resource that is called like its driver.
    """
    by_device: dict[DeviceId, Holder] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for group in container.devices:
                holder = Holder(pod.namespace, pod.name, container.name, ResourceName(group.resource_name))
                ours = (DeviceId(device) for device in group.device_ids if physical_id(DeviceId(device)) in units)
                by_device.update((device, holder) for device in ours)
            for claim in container.dynamic_resources:
                for resource in claim.claim_resources:
                    device = claimed(
                        resource.driver_name, claim.claim_namespace, claim.claim_name, resource.device_name
                    )
                    if device is not None:
                        by_device[device] = Holder(
                            pod.namespace, pod.name, container.name, ResourceName(resource.driver_name)
                        )
    return by_device


def shown_of(answer: pb.ListPodResourcesResponse) -> set[Shown]:
    """All devices of device plugins in one List answer."""
    return {
        (ResourceName(group.resource_name), DeviceId(device))
        for pod in answer.pod_resources
        for container in pod.containers
        for group in container.devices
        for device in group.device_ids
    }


def sharers_of(answer: pb.ListPodResourcesResponse, claimed: Claimed = nothing) -> dict[DeviceId, tuple[Holder, ...]]:
    """The containers that have one device by claim together, in the kubelet's order; no
    entry for a device that one container has.
    """
    by_device: dict[DeviceId, dict[Holder, None]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for claim in container.dynamic_resources:
                for given in claim.claim_resources:
                    device = claimed(given.driver_name, claim.claim_namespace, claim.claim_name, given.device_name)
                    if device is not None:
                        holder = Holder(pod.namespace, pod.name, container.name, ResourceName(given.driver_name))
                        by_device.setdefault(device, {})[holder] = None
    return {device: tuple(holders) for device, holders in by_device.items() if len(holders) > 1}


class Look(Struct, frozen=True):
    """One answer that is kept nowhere: the holders of our devices, and the pods that hold none of them."""

    holders: dict[DeviceId, Holder]
    without: frozenset[tuple[str, str]]


class Newcomers:
    """Pods under admission that no news of the API server explains yet.

    The time at which each pod that holds nothing and is not explained was first listed. News of it comes within
    ``news_s`` or never, as for a static pod that the API server refused.
    """

    def __init__(self, news_s: float) -> None:
        self._news_s = news_s
        self._since_s: dict[PodKey, float] = {}

    def listed(self, without: Iterable[PodKey], explained: Callable[[PodKey], bool], now_s: float) -> None:
        """Take in that the kubelet lists these pods, which hold none of our devices, and no others that hold none."""
        self._since_s = {pod: self._since_s.get(pod, now_s) for pod in without if not explained(pod)}

    def awaited(self, explained: Callable[[PodKey], bool], now_s: float) -> float:
        """The seconds that news may still take to come; 0 where none is awaited."""
        since_s = (since_s for pod, since_s in self._since_s.items() if not explained(pod))
        return max(0.0, max(since_s, default=-self._news_s) + self._news_s - now_s)
