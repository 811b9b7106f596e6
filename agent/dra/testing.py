"""The kubelet's side of claims, for tests and benchmarks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from kubeletapi import dra_v1_pb2 as pb
from kubeletapi import dra_v1_pb2_grpc as pb_grpc
from kubeletapi import dra_v1beta1_pb2 as beta
from kubeletapi import dra_v1beta1_pb2_grpc as beta_grpc
from kubeletapi import drahealth_v1alpha1_pb2 as health
from kubeletapi import pluginregistration_v1_pb2 as registration
from kubeletapi import pluginregistration_v1_pb2_grpc as registration_grpc

DRIVER = "gpu.nvidia.com"
"""The driver's name that tests serve under unless they name another."""
TEAM = "team"
"""The namespace of all claims; each is called by its UID."""
CALL_S = 20.0


class PluginWatcher:
    """A kubelet's plugin watcher: finds a registration socket, asks for its info, reports it registered, and calls the
    plugin.
    """

    def __init__(self, folder: Path) -> None:
        self.registry = folder / "plugins_registry"
        self.registry.mkdir(parents=True)
        self.info = registration.PluginInfo()

    @property
    def sockets(self) -> list[Path]:
        return sorted(self.registry.glob("*.sock"))

    async def register(self, error: str = "", at: Path | None = None) -> registration.PluginInfo:
        """Register the plugin behind the socket ``at``; without ``at`` the only plugin there. Returns its info."""
        if at is not None:
            socket = at
        else:
            (socket,) = self.sockets
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            stub = registration_grpc.RegistrationStub(channel)
            self.info = await stub.GetInfo(registration.InfoRequest(), timeout=CALL_S)
            status = registration.RegistrationStatus(plugin_registered=not error, error=error)
            await stub.NotifyRegistrationStatus(status, timeout=CALL_S)
        return self.info

    async def prepare(self, *uids: str) -> dict[str, pb.NodePrepareResourceResponse]:
        async with self._channel() as channel:
            stub = pb_grpc.DRAPluginStub(channel)
            claims = [pb.Claim(namespace=TEAM, name=uid, uid=uid) for uid in uids]
            answer = await stub.NodePrepareResources(pb.NodePrepareResourcesRequest(claims=claims), timeout=CALL_S)
        return dict(answer.claims)

    async def unprepare(self, *uids: str) -> dict[str, str]:
        async with self._channel() as channel:
            stub = pb_grpc.DRAPluginStub(channel)
            claims = [pb.Claim(namespace=TEAM, name=uid, uid=uid) for uid in uids]
            answer = await stub.NodeUnprepareResources(pb.NodeUnprepareResourcesRequest(claims=claims), timeout=CALL_S)
        return {uid: each.error for uid, each in answer.claims.items()}

    async def prepare_beta(self, uid: str) -> beta.NodePrepareResourceResponse:
        async with self._channel() as channel:
            stub = beta_grpc.DRAPluginStub(channel)
            claims = [beta.Claim(namespace=TEAM, name=uid, uid=uid)]
            answer = await stub.NodePrepareResources(beta.NodePrepareResourcesRequest(claims=claims), timeout=CALL_S)
            gone = await stub.NodeUnprepareResources(beta.NodeUnprepareResourcesRequest(claims=claims), timeout=CALL_S)
        assert [each.error for each in gone.claims.values()] == [""]
        return answer.claims[uid]

    @asynccontextmanager
    async def health(self, service: str = "v1.DRAResourceHealth") -> AsyncIterator[Callable[[], "asyncio.Future[Any]"]]:
        """A health stream of that ``service``, as a function to call for the next list."""
        async with self._channel() as channel:
            watch = channel.unary_stream(
                f"/{service}/NodeWatchResources",
                request_serializer=health.NodeWatchResourcesRequest.SerializeToString,
                response_deserializer=health.NodeWatchResourcesResponse.FromString,
            )
            stream = watch(health.NodeWatchResourcesRequest())
            yield lambda: asyncio.ensure_future(stream.read())
            stream.cancel()

    def _channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"unix:{self.info.endpoint}")
