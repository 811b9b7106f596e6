"""A kubelet stand-in: the kubelet's half of the device plugin and pod resources APIs, in this process.

It behaves as the real one does where it matters: it sweeps the folder when it starts, asks for the options, offers its
devices in no particular order, checks what it is told, hands out healthy devices only, on a restart ends the streams
and forgets the plugins but not what pods hold. Up to 1.36, when any stream of a resource ends, it drops the plugin that
is registered under that name by then. Since 1.37 (``several``) it keeps apart the plugins of a name by their sockets,
refuses a socket that it is connected to, and from then on does not notice the end of that one's stream. For tests and
for trying the agent without a cluster.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc.aio
from msgspec import Struct

from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from kubeletapi import podresources_v1_pb2 as pr
from kubeletapi import podresources_v1_pb2_grpc as pr_grpc

HANG_S = 120.0
"""The seconds after which a wait counts as a hang, also on a machine that others keep busy."""


class Grant(Struct, frozen=True):
    """The devices that one container was given, and the plugin's answer."""

    resource: str
    devices: tuple[str, ...]
    response: pb.ContainerAllocateResponse


class Endpoint:
    """One registered plugin and its last list: ``devices`` maps id to health, ``numa`` id to NUMA nodes."""

    def __init__(self, registration: pb.RegisterRequest, channel: grpc.aio.Channel) -> None:
        self.registration = registration
        self.channel = channel
        self.stub = pb_grpc.DevicePluginStub(channel)
        self.options = pb.DevicePluginOptions()
        self.devices: dict[str, str] = {}
        self.numa: dict[str, tuple[int, ...]] = {}
        self.lists = 0
        self.task: asyncio.Task[None] | None = None
        self.forgotten = False
        """Whether the kubelet no longer follows its stream."""

    @property
    def healthy(self) -> set[str]:
        return {device for device, health in self.devices.items() if health == "Healthy"}


class StandInKubelet(pb_grpc.RegistrationServicer, pr_grpc.PodResourcesListerServicer):
    """A kubelet below ``kubelet_dir``. ``endpoints`` holds the plugins by resource, ``registrations`` counts them."""

    def __init__(self, kubelet_dir: Path, seed: int = 0, *, several: bool = True) -> None:
        self.several = several
        self.folder = kubelet_dir / "device-plugins"
        self.pod_resources_folder = kubelet_dir / "pod-resources"
        self.endpoints: dict[str, Endpoint] = {}
        self.registrations: list[str] = []
        self.pods: dict[tuple[str, str], list[Grant]] = {}
        self.unlisted: set[tuple[str, str]] = set()
        """Pods that List does not show: their answer is not taken in yet, or a new kubelet has not heard of them."""
        self._admitted: list[tuple[str, str]] = []
        """Pods that are being given their devices: the kubelet has a pod before it admits it."""
        self._random = random.Random(seed)  # noqa: S311 - the order of a test, not a secret
        self._changed = asyncio.Condition()
        self._servers: list[grpc.aio.Server] = []
        self._followed: list[Endpoint] = []
        self._connected: dict[str, dict[str, Endpoint]] = {}
        """The plugins by resource and socket; those that the kubelet no longer follows stay."""

    async def start(self) -> None:
        """Sweep the folder and serve."""
        for folder in (self.folder, self.pod_resources_folder):
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                path.unlink()
        registry, lister = grpc.aio.server(), grpc.aio.server()
        pb_grpc.add_RegistrationServicer_to_server(self, registry)
        pr_grpc.add_PodResourcesListerServicer_to_server(self, lister)
        registry.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        lister.add_insecure_port(f"unix:{self.pod_resources_folder / 'kubelet.sock'}")
        self._servers = [registry, lister]
        for server in self._servers:
            await server.start()

    async def stop(self) -> None:
        """End every stream and stop serving; the devices that pods hold stay theirs."""
        self.endpoints, self._connected = {}, {}
        followed, self._followed = self._followed, []
        for endpoint in followed:
            await self._drop(endpoint)
        for server in self._servers:
            await server.stop(None)
        self._servers = []

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def wait_for(self, condition: Callable[[], bool], timeout_s: float = HANG_S) -> None:
        """Return once ``condition`` holds; it is checked after each registration and list. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(condition)

    async def allocate(self, resource: str, count: int, *, pod: str = "pod", namespace: str = "default") -> Grant:
        """Admit a container that asks for ``count``. Raises LookupError (too few free) or AioRpcError (refused)."""
        endpoint = self.endpoints[resource]
        free = sorted(endpoint.healthy - self.held())
        self._random.shuffle(free)
        if len(free) < count:
            raise LookupError(f"{resource}: found {len(free)} free devices, expected {count}")
        with self._admitting((namespace, pod)):
            chosen = await self._preferred(endpoint, free, count)
            request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=chosen)])
            answer = await endpoint.stub.Allocate(request, timeout=HANG_S)
            grant = Grant(resource, tuple(chosen), answer.container_responses[0])
            self.pods.setdefault((namespace, pod), []).append(grant)
        return grant

    @contextmanager
    def _admitting(self, key: tuple[str, str]) -> Iterator[None]:
        """A context in which List has the pod, still without devices."""
        self._admitted.append(key)
        try:
            yield
        finally:
            self._admitted.remove(key)

    def delete(self, pod: str, namespace: str = "default") -> None:
        """End the pod; its devices are free again, without a word to the plugin."""
        self.pods.pop((namespace, pod), None)

    def held(self) -> set[str]:
        return {device for grants in self.pods.values() for grant in grants for device in grant.devices}

    async def _preferred(self, endpoint: Endpoint, free: Sequence[str], count: int) -> list[str]:
        if not endpoint.options.get_preferred_allocation_available:
            return list(free[:count])
        asked = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=count)
        request = pb.PreferredAllocationRequest(container_requests=[asked])
        answer = await endpoint.stub.GetPreferredAllocation(request, timeout=HANG_S)
        # As the kubelet does, usable devices of the hint come first, then the rest.
        hint = [deviceid for deviceid in answer.container_responses[0].deviceIDs if deviceid in set(free)]
        return list(dict.fromkeys([*hint, *free]))[:count]

    # Registration

    async def Register(self, request: pb.RegisterRequest, context: object) -> pb.Empty:
        channel = grpc.aio.insecure_channel(f"unix:{self.folder / request.endpoint}")
        endpoint = Endpoint(request, channel)
        endpoint.options = await endpoint.stub.GetDevicePluginOptions(pb.Empty(), timeout=HANG_S)
        connected = self._connected.setdefault(request.resource_name, {})
        if self.several and (before := connected.get(request.endpoint)) is not None:
            before.forgotten = True
            raise ValueError(f"device plugin already connected: {self.folder / request.endpoint}")
        connected[request.endpoint] = endpoint
        # The stream of an earlier plugin of that name is left to itself.
        self.endpoints[request.resource_name] = endpoint
        self.registrations.append(request.resource_name)
        self._followed.append(endpoint)
        endpoint.task = asyncio.create_task(self._follow(endpoint))
        return pb.Empty()

    async def _follow(self, endpoint: Endpoint) -> None:
        name = endpoint.registration.resource_name
        try:
            async for message in endpoint.stub.ListAndWatch(pb.Empty()):
                endpoint.devices = {device.ID: device.health for device in message.devices}
                endpoint.numa = {d.ID: tuple(node.ID for node in d.topology.nodes) for d in message.devices}
                endpoint.lists += 1
                await self._tell()
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass  # cancelled: its channel was closed
        await self._ended(name, endpoint)
        await self._tell()

    async def _ended(self, name: str, endpoint: Endpoint) -> None:
        """Drop a plugin as the kubelet does: the devices of the last one of a name stay listed as Unhealthy."""
        if self.several and endpoint.forgotten:
            return
        gone = endpoint if self.several else self.endpoints.get(name, endpoint)
        connected = self._connected.get(name, {})
        connected.pop(gone.registration.endpoint, None)
        if self.several and connected:
            self.endpoints[name] = next(iter(connected.values()))
        else:
            gone.devices = dict.fromkeys(gone.devices, "Unhealthy")
        await gone.channel.close()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    @staticmethod
    async def _drop(endpoint: Endpoint) -> None:
        if endpoint.task is not None:
            endpoint.task.cancel()
            await asyncio.gather(endpoint.task, return_exceptions=True)
        await endpoint.channel.close()

    # Pod resources

    async def List(self, request: object, context: object) -> pr.ListPodResourcesResponse:
        listed = [self._pod(*key) for key in {**self.pods, **dict.fromkeys(self._admitted)} if key not in self.unlisted]
        return pr.ListPodResourcesResponse(pod_resources=listed)

    async def Get(
        self,
        request: pr.GetPodResourcesRequest,
        context: grpc.aio.ServicerContext[pr.GetPodResourcesRequest, pr.GetPodResourcesResponse],
    ) -> pr.GetPodResourcesResponse:
        if (request.pod_namespace, request.pod_name) not in self.pods:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such pod")
        return pr.GetPodResourcesResponse(pod_resources=self._pod(request.pod_namespace, request.pod_name))

    async def GetAllocatableResources(self, request: object, context: object) -> pr.AllocatableResourcesResponse:
        devices = [
            pr.ContainerDevices(resource_name=name, device_ids=sorted(endpoint.healthy))
            for name, endpoint in self.endpoints.items()
        ]
        return pr.AllocatableResourcesResponse(devices=devices)

    def _pod(self, namespace: str, name: str) -> pr.PodResources:
        devices = [
            pr.ContainerDevices(resource_name=grant.resource, device_ids=grant.devices)
            for grant in self.pods.get((namespace, name), ())
        ]
        return pr.PodResources(
            name=name, namespace=namespace, containers=[pr.ContainerResources(name="main", devices=devices)]
        )
