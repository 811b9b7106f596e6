"""Fakes that behave: a kubelet that can be made to refuse, an observer that remembers, a search that never ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import grpc
import grpc.aio

from deviceplugin.choice import Preferrer
from deviceplugin.server import DevicePluginServer, PluginObserver
from deviceplugin.testing import StandInKubelet
from deviceplugin.view import ResourceView
from inventory.devices import DeviceId, GpuUuid, ResourceName
from inventory.layout.layout import Resource
from inventory.layout.sharing import ReplicaPolicy
from inventory.preference.linktable import LinkTable
from inventory.preference.preference import Chooser, PendingPreference, Preference
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc


class FakeKubelet(StandInKubelet):
    """``refusal`` set: registrations are refused with it. ``hold`` cleared: they are not answered; ``deaf``: they are
    taken all the same.
    """

    def __init__(self, kubelet_dir: Path, *, several: bool = True) -> None:
        super().__init__(kubelet_dir, several=several)
        self.refusal: str | None = None
        self.hold = asyncio.Event()
        self.hold.set()
        self.attempts = 0
        self.deaf = False

    @property
    def socket(self) -> Path:
        return self.folder / "kubelet.sock"

    async def serve(self) -> None:
        """Start without sweeping the folder, as no kubelet does today."""
        aside = self.folder.rename(self.folder.with_name("aside"))
        await self.start()
        for path in aside.iterdir():
            path.rename(self.folder / path.name)
        aside.rmdir()

    async def Register(self, request: pb.RegisterRequest, context: object) -> pb.Empty:  # noqa: N802 - gRPC's name
        self.attempts += 1
        await self.hold.wait()
        if self.refusal is not None:
            raise ValueError(self.refusal)
        done = await super().Register(request, context)
        if self.deaf:
            await asyncio.Event().wait()
        return done


class RecordingObserver:
    """What it was told, in order."""

    def __init__(self) -> None:
        self.registrations: list[tuple[str, str | None]] = []
        self.streams = 0
        self.calls: list[tuple[str, str, str | None]] = []

    def registered(self, resource: ResourceName, error: str | None) -> None:
        self.registrations.append((resource, error))

    def stream_opened(self, resource: ResourceName) -> None:  # noqa: ARG002 - the protocol's
        self.streams += 1

    def stream_closed(self, resource: ResourceName) -> None:  # noqa: ARG002 - the protocol's
        self.streams -= 1

    def called(self, resource: ResourceName, method: str, duration_s: float, error: str | None) -> None:
        assert duration_s >= 0
        self.calls.append((resource, method, error))


class IdleContext:
    """A call's context without gRPC: it ends when ``end`` says so."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[IdleContext], None]] = []

    def add_done_callback(self, callback: Callable[["IdleContext"], None]) -> None:
        self._callbacks.append(callback)

    def end(self) -> None:
        for callback in self._callbacks:
            callback(self)


class EndlessSearch(PendingPreference):
    """Has an answer and never stops looking for a better one, until it is told to."""

    def __init__(self, best: Preference) -> None:
        super().__init__(best)
        self.started = asyncio.Event()
        self.enough = False

    def step(self) -> bool:
        self.started.set()
        return self.enough


class EndlessChooser(Chooser):
    """Every search it starts is the one ``search``."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource.devices, LinkTable([], ()))
        first = resource.devices[0].id
        self.search = EndlessSearch(Preference((first,), exact=False, reason="partition"))

    def start(
        self,
        *,
        available: Sequence[DeviceId],  # noqa: ARG002 - as the base class
        required: Sequence[DeviceId],  # noqa: ARG002 - as the base class
        size: int,  # noqa: ARG002 - as the base class
        policy: ReplicaPolicy = ReplicaPolicy.DISTRIBUTED,  # noqa: ARG002 - as the base class
        held: Mapping[GpuUuid, int] | None = None,  # noqa: ARG002 - as the base class
        gpus: int = 1,  # noqa: ARG002 - as the base class
    ) -> PendingPreference:
        return self.search


@contextlib.asynccontextmanager
async def serving(
    view: ResourceView, folder: Path, *, preferrer: Preferrer | None = None, observer: PluginObserver | None = None
) -> AsyncIterator[DevicePluginServer]:
    server = DevicePluginServer(view, preferrer or Preferrer(), observer or RecordingObserver())
    await server.start(folder)
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def dialled(server: DevicePluginServer) -> AsyncIterator["pb_grpc.DevicePluginAsyncStub"]:
    """The kubelet's end of a channel to the server."""
    async with channel_to(server) as channel:
        yield pb_grpc.DevicePluginStub(channel)


def channel_to(server: DevicePluginServer) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(
        f"unix:{server.socket}",
        # A pool of its own: else gRPC hands out an earlier test's connection to the same path.
        options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 64 << 20)],
    )


async def next_list(stream: "grpc.aio.UnaryStreamCall[pb.Empty, pb.ListAndWatchResponse]") -> pb.ListAndWatchResponse:
    """The next message of a ListAndWatch stream, which must not have ended."""
    message = await stream.read()
    assert isinstance(message, pb.ListAndWatchResponse), "the stream has ended"
    return message


async def rest_of(
    stream: "grpc.aio.UnaryStreamCall[pb.Empty, pb.ListAndWatchResponse]",
) -> list[pb.ListAndWatchResponse]:
    """All that still comes, until the server ends the stream."""
    messages = []
    while isinstance(message := await stream.read(), pb.ListAndWatchResponse):
        messages.append(message)
    return messages


def asking(available: Sequence[str], size: int, required: Sequence[str] = ()) -> pb.PreferredAllocationRequest:
    one = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
    )
    return pb.PreferredAllocationRequest(container_requests=[one])


def allocating(*containers: Sequence[str]) -> pb.AllocateRequest:
    return pb.AllocateRequest(
        container_requests=[pb.ContainerAllocateRequest(devices_ids=devices) for devices in containers]
    )
