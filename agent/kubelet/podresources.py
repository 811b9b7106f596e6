"""The holder of each device, from the kubelet's pod resources API (v1).

The kubelet allows all its clients together 100 calls a second: List is asked at most once a second, with backoff. The
answer names pods and containers, no UIDs.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import grpc
import grpc.aio
from msgspec import Struct

from inventory.devices import DeviceId, ResourceName
from kube.clock import Clock, SystemClock, sleep
from kubeletapi import podresources_v1_pb2 as pb
from kubeletapi import podresources_v1_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

SOCKET = "kubelet.sock"
CALL_TIMEOUT_S = 10.0
SHORTEST_INTERVAL_S = 1.0
IDLE_INTERVAL_S = 10.0
SETTLE_S = 0.1
"""From an Allocate until the kubelet lists it: it does so when it has taken our answer."""
LONGEST_RETRY_S = 30.0
MAX_ANSWER_BYTES = 16 << 20
SHOWN_PODS = 8


class Holder(Struct, frozen=True, order=True):
    """A container that was given a device of ``resource``."""

    namespace: str
    pod: str
    container: str
    resource: ResourceName


def pod_names(holders: Iterable[Holder]) -> list[str]:
    """The holders' pods as ``namespace/name``, each once, sorted."""
    return sorted({f"{holder.namespace}/{holder.pod}" for holder in holders})


def shown(pods: Sequence[str]) -> str:
    """Names of pods for a sentence: the first eight, and how many more."""
    return ", ".join(pods[:SHOWN_PODS]) + (f" and {len(pods) - SHOWN_PODS} more" if len(pods) > SHOWN_PODS else "")


Claimed = Callable[[str, str, str, str], DeviceId | None]
"""Of a driver, the claim's namespace and name, and the device's name in it: the device that this is, None for none of
ours."""


def _nothing(*_: str) -> None:
    """By claim nothing is held."""


def holders_of(
    answer: pb.ListPodResourcesResponse, devices: set[DeviceId], claimed: Claimed = _nothing
) -> dict[DeviceId, Holder]:
    """Our devices' holders in one List answer, by plugin and by claim. Other plugins' devices are passed over, whatever
    they call them. What a claim brought is held of a resource that is called like its driver.
    """
    found: dict[DeviceId, Holder] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for group in container.devices:
                holder = Holder(pod.namespace, pod.name, container.name, ResourceName(group.resource_name))
                found.update((DeviceId(device), holder) for device in group.device_ids if DeviceId(device) in devices)
            for claim in container.dynamic_resources:
                for given in claim.claim_resources:
                    device = claimed(given.driver_name, claim.claim_namespace, claim.claim_name, given.device_name)
                    if device is not None:
                        found[device] = Holder(pod.namespace, pod.name, container.name, ResourceName(given.driver_name))
    return found


def sharers_of(answer: pb.ListPodResourcesResponse, claimed: Claimed = _nothing) -> dict[DeviceId, tuple[Holder, ...]]:
    """The containers that have one device by claim together, in the kubelet's order; not of a device that one has."""
    found: dict[DeviceId, dict[Holder, None]] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for claim in container.dynamic_resources:
                for given in claim.claim_resources:
                    device = claimed(given.driver_name, claim.claim_namespace, claim.claim_name, given.device_name)
                    if device is not None:
                        holder = Holder(pod.namespace, pod.name, container.name, ResourceName(given.driver_name))
                        found.setdefault(device, {})[holder] = None
    return {device: tuple(holders) for device, holders in found.items() if len(holders) > 1}


class PodResources:
    """Client of the kubelet at ``folder/kubelet.sock``. Each call opens its own channel: the kubelet may be new."""

    def __init__(self, folder: Path) -> None:
        self._target = f"unix:{folder / SOCKET}"

    async def list(self) -> pb.ListPodResourcesResponse:
        """All pods of the node with what they hold. Raises grpc.aio.AioRpcError."""
        async with self._channel() as channel:
            stub = pb_grpc.PodResourcesListerStub(channel)
            return await stub.List(pb.ListPodResourcesRequest(), timeout=CALL_TIMEOUT_S)

    async def get(self, namespace: str, pod: str) -> pb.PodResources:
        """What one pod holds. Raises grpc.aio.AioRpcError (NOT_FOUND where there is no such pod)."""
        async with self._channel() as channel:
            stub = pb_grpc.PodResourcesListerStub(channel)
            request = pb.GetPodResourcesRequest(pod_name=pod, pod_namespace=namespace)
            return (await stub.Get(request, timeout=CALL_TIMEOUT_S)).pod_resources

    async def allocatable(self) -> dict[ResourceName, set[DeviceId]]:
        """What the kubelet believes it may hand out, by resource. Raises grpc.aio.AioRpcError."""
        async with self._channel() as channel:
            stub = pb_grpc.PodResourcesListerStub(channel)
            answer = await stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=CALL_TIMEOUT_S)
        found: dict[ResourceName, set[DeviceId]] = {}
        for group in answer.devices:
            found.setdefault(ResourceName(group.resource_name), set()).update(map(DeviceId, group.device_ids))
        return found

    def _channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self._target, options=[("grpc.max_receive_message_length", MAX_ANSWER_BYTES)])


class HolderWatch:
    """Keeps the last known holders. ``changed`` is called after each answer that differs.

    ``nudge`` asks soon (an Allocate just happened); without one it asks every ten seconds, since the kubelet
    does not tell when a pod ends.
    """

    def __init__(
        self,
        client: PodResources,
        devices: Callable[[], set[DeviceId]],
        changed: Callable[[], None],
        clock: Clock | None = None,
        claimed: Callable[[], Claimed] = lambda: _nothing,
    ) -> None:
        self._clock = clock or SystemClock()
        self._client = client
        self._devices = devices
        self._claimed = claimed
        self._changed = changed
        self._nudged = asyncio.Event()
        self.holders: dict[DeviceId, Holder] = {}
        """One container of each device: the last of those that have it by one claim."""
        self.sharers: dict[DeviceId, tuple[Holder, ...]] = {}
        """All of them, where these are several."""
        self.allocatable: dict[ResourceName, set[DeviceId]] = {}
        self.reachable = False
        self._asked_about: set[DeviceId] = set()
        self._complained = False

    def nudge(self) -> None:
        self._nudged.set()

    async def run(self) -> None:
        """Ask until cancelled. Failures keep what was known."""
        retry_s = SHORTEST_INTERVAL_S
        again = False
        while True:
            try:
                await self.refresh()
            except grpc.aio.AioRpcError as failed:
                self._fail(failed)
                await sleep(self._clock, retry_s)
                retry_s = min(retry_s * 2, LONGEST_RETRY_S)
                continue
            retry_s = SHORTEST_INTERVAL_S
            await sleep(self._clock, SHORTEST_INTERVAL_S)
            # Kubelet lists a holder only after it took our answer to Allocate: a nudge is worth a second look.
            nudged = self._nudged.is_set()
            again = nudged if again else await self._clock.wait(self._nudged, IDLE_INTERVAL_S)
            if again and not nudged:
                await sleep(self._clock, SETTLE_S)
            self._nudged.clear()

    async def refresh(self) -> None:
        """Ask once. Raises grpc.aio.AioRpcError."""
        answer = await self._client.list()
        allocatable = await self._client.allocatable()
        # Which devices are ours is asked after the answers: a discovery may have come in between.
        devices = self._devices()
        holders = holders_of(answer, devices, self._claimed())
        sharers = sharers_of(answer, self._claimed())
        # An empty answer is news of devices that were not asked about before.
        known = self.holders, self.sharers, self.allocatable, self._asked_about
        same = (holders, sharers, allocatable, devices) == known
        differs = not same or not self.reachable
        self.holders, self.sharers, self.allocatable, self.reachable = holders, sharers, allocatable, True
        self._asked_about = devices
        if differs:
            self._changed()

    def _fail(self, failed: grpc.aio.AioRpcError) -> None:
        if self.reachable or not self._complained:
            log.info(
                "pod resources not read",
                extra={"error": f"{failed.code().name}: {failed.details()}"},
            )
        self.reachable, self._complained = False, True
