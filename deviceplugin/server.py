"""One gRPC server for one resource name, on one Unix socket.

A server lives as long as its socket: after a kubelet restart, or when its socket is removed, the manager makes a new
one under a fresh name. (gRPC unlinks the path when an old server stops, even if a new server owns it by then.)
"""

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from deviceplugin import wire
from deviceplugin.answer import AllocationError, answer, granted, merged
from deviceplugin.choice import Preferrer
from deviceplugin.view import ResourceView
from failpoints import points
from failpoints.names import Failpoint
from inventory.devices import ResourceName
from inventory.preference.preference import PreferenceError
from kubeletapi import deviceplugin_v1beta1_pb2 as pb
from kubeletapi import deviceplugin_v1beta1_pb2_grpc as pb_grpc

log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
Response = TypeVar("Response")

SOCKET = "tessera-{}.sock"
MAX_SOCKET_PATH_BYTES = 107
MAX_REQUEST_BYTES = 4 << 20
MAX_CONTAINERS = 64
"""The most containers in one request. The kubelet names one; thousands would hold the loop for seconds."""
STOP_GRACE_S = 0.5
"""The seconds that calls may still take after the streams have ended."""
LAST_WORD_S = 5.0
"""The seconds that a stream may take to send the last list and end: only a kubelet that does not read takes so long."""


class SocketPathError(OSError):
    """No socket can be bound in that folder: its path is too long for sockaddr_un."""


class Stream(Protocol):
    """The part of gRPC's context that a stream uses: a callback for the end of the call, its end sent or its caller
    gone.
    """

    # Any, because gRPC's types name a class of their own here, which no function is.
    def add_done_callback(self, callback: Any) -> None: ...


class PluginObserver(Protocol):
    """Hears of registrations and calls, for metrics and logs. Every method must return at once and never raise."""

    def registered(self, resource: ResourceName, error: str | None) -> None:
        """Hear that a registration with the kubelet succeeded (``error`` is None) or failed."""

    def stream_opened(self, resource: ResourceName) -> None: ...

    def stream_closed(self, resource: ResourceName) -> None: ...

    def called(self, resource: ResourceName, method: str, duration_s: float, error: str | None) -> None:
        """Hear that an Allocate or GetPreferredAllocation was answered."""


def options() -> pb.DevicePluginOptions:
    return pb.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)


class DevicePluginServer(pb_grpc.DevicePluginServicer):
    """Serves one resource. ``update`` swaps the view; open ListAndWatch streams then send the new list."""

    def __init__(
        self,
        view: ResourceView,
        preferrer: Preferrer,
        observer: PluginObserver,
        ended: Callable[["DevicePluginServer"], None] = lambda _: None,
    ) -> None:
        """``ended`` is called when a stream has ended."""
        self._stream_ended = ended
        self._view = view
        self._preferrer = preferrer
        self._observer = observer
        self._changed = asyncio.Event()
        self._closing = False
        self._open: set[Stream] = set()
        """The streams whose end has not been sent yet."""
        self._server: grpc.aio.Server | None = None
        self.socket: Path | None = None
        self.streams = 0

    @property
    def name(self) -> ResourceName:
        return self._view.resource.name

    @property
    def view(self) -> ResourceView:
        return self._view

    def update(self, view: ResourceView) -> bool:
        """Swap the view; True if the kubelet is sent a new list."""
        changed = not view.lists_same(self._view)
        self._view = view
        if changed:
            self._wake()
        return changed

    def empty(self) -> None:
        """Tell the kubelet that no device is left; there is no unregister."""
        self.update(self._view.without_devices())

    async def start(self, folder: Path) -> Path:
        """Bind a fresh socket (mode 0600) in ``folder`` and serve. Raises OSError when it cannot be bound."""
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_REQUEST_BYTES)])
        pb_grpc.add_DevicePluginServicer_to_server(self, server)
        self.socket = bind_socket(server, folder, SOCKET)
        await server.start()
        self._server = server
        return self.socket

    async def stop(self) -> None:
        """End the streams, stop serving, remove the socket. Every stream sends the present list before it ends."""
        self._closing = True
        self._wake()
        if self._server is not None:
            # gRPC's own grace would do, except that it cuts off what a busy machine has not sent when it is over.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    while self._open:
                        await self._changed.wait()
            await self._server.stop(STOP_GRACE_S)
        if self.socket is not None:
            with contextlib.suppress(FileNotFoundError):
                self.socket.unlink()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _ended(self, context: Stream) -> None:
        self._open.discard(context)
        if self._closing:
            self._wake()

    # The kubelet's calls, in the order of a pod's life.

    async def GetDevicePluginOptions(self, request: pb.Empty, context: object) -> pb.DevicePluginOptions:
        return options()

    async def ListAndWatch(self, request: pb.Empty, context: Stream) -> AsyncIterator[pb.ListAndWatchResponse]:
        self.streams += 1
        self._open.add(context)
        context.add_done_callback(self._ended)
        self._observer.stream_opened(self.name)
        try:
            sent = None
            while not (self._closing and sent is self._view):
                # Both may change while the list is being sent: then that list was not the last one.
                changed, sent = self._changed, self._view
                yield wire.device_list(sent.resource.devices, sent.unhealthy)
                if not self._closing:
                    await changed.wait()
        finally:
            self.streams -= 1
            self._observer.stream_closed(self.name)
            self._stream_ended(self)

    async def GetPreferredAllocation(
        self,
        request: pb.PreferredAllocationRequest,
        context: grpc.aio.ServicerContext[pb.PreferredAllocationRequest, pb.PreferredAllocationResponse],
    ) -> pb.PreferredAllocationResponse:
        async def respond() -> pb.PreferredAllocationResponse:
            _check_containers(len(request.container_requests))
            chosen = [
                await self._preferrer.choose(
                    self._view,
                    container.available_deviceIDs,
                    container.must_include_deviceIDs,
                    container.allocation_size,
                )
                for container in request.container_requests
            ]
            return pb.PreferredAllocationResponse(
                container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in chosen]
            )

        return await self._observed("GetPreferredAllocation", respond, context)

    async def Allocate(
        self,
        request: pb.AllocateRequest,
        context: grpc.aio.ServicerContext[pb.AllocateRequest, pb.AllocateResponse],
    ) -> pb.AllocateResponse:
        async def respond() -> pb.AllocateResponse:
            _check_containers(len(request.container_requests))
            view = self._view
            responses = []
            for container in request.container_requests:
                gpus = self._preferrer.gpus_asked(view, len(container.devices_ids))
                devices = granted(view.resource, view.by_id, view.unhealthy, container.devices_ids, gpus)
                edits = answer(view.spec, view.access, devices, secrets.token_hex(8))
                client = view.client(devices) if devices else None
                if client is not None:
                    edits = merged(edits, client.envs, client.mounts)
                responses.append(wire.container_response(edits))
            # No await stands between the look at the view and this: a change of shape sees the grant, or the view was
            # another one.
            points.before(Failpoint.ALLOCATED)
            for container in request.container_requests:
                if container.devices_ids:
                    self._preferrer.given(view, container.devices_ids)
                log.info("allocated", extra={"resource": self.name, "devices": ",".join(container.devices_ids)})
            points.after(Failpoint.ALLOCATED)
            return pb.AllocateResponse(container_responses=responses)

        return await self._observed("Allocate", respond, context)

    async def PreStartContainer(self, request: object, context: object) -> pb.PreStartContainerResponse:
        return pb.PreStartContainerResponse()

    async def _observed(
        self,
        method: str,
        respond: Callable[[], Awaitable[Response]],
        context: grpc.aio.ServicerContext[RequestT, Response],
    ) -> Response:
        """Answer, and report how long it took. A mistake of the caller becomes INVALID_ARGUMENT."""
        start = time.monotonic()
        error: str | None = None
        try:
            return await respond()
        except (AllocationError, PreferenceError) as wrong:
            error = str(wrong)
            log.warning("refused", extra={"resource": self.name, "method": method, "error": error})
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error)
        finally:
            self._observer.called(self.name, method, time.monotonic() - start, error)


def _check_containers(count: int) -> None:
    if count > MAX_CONTAINERS:
        raise AllocationError(f"found {count} containers in one request, expected {MAX_CONTAINERS} at most")


def _draw(folder: Path, name: str) -> Path:
    # The number always has as many digits: a folder either has room for every socket or for none.
    return folder / name.format(f"{secrets.randbelow(10**8):08d}")


def bind_socket(server: grpc.aio.Server, folder: Path, name: str) -> Path:
    """Bind a fresh socket, mode 0600, and return its path. ``name`` has a ``{}`` for a number that is drawn, so that
    neither an earlier server nor another agent owns the path. Raises OSError.
    """
    path = _draw(folder, name)
    while path.exists():  # gRPC would unlink the file there
        path = _draw(folder, name)
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise SocketPathError(
            f"{folder}: sockets in this folder have paths of {length} bytes, expected {MAX_SOCKET_PATH_BYTES} at most"
        )
    if not folder.is_dir():  # gRPC would print that on stderr, by itself and each time
        raise FileNotFoundError(f"{folder}: cannot bind a socket: no such folder")
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as refused:
        raise OSError(f"{folder}: cannot bind a socket: {refused}") from refused
    finally:
        os.umask(before)
    return path
