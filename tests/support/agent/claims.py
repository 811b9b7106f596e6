"""The other side of claims: an API server with Nodes, slices and claims, and the kubelet's plugin watcher."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from agent.cluster.reporter import Follower
from agent.dra.claim import RESOURCE_CLAIMS
from agent.dra.devices import DRIVER
from agent.dra.slices import RESOURCE_SLICES
from inventory.devices import GpuUuid
from kube.client import Client
from kube.resources import NODES
from kube.testing import FakeApiServer
from kubeletapi import dra_v1_pb2 as pb
from kubeletapi import dra_v1_pb2_grpc as pb_grpc
from kubeletapi import dra_v1beta1_pb2 as beta
from kubeletapi import dra_v1beta1_pb2_grpc as beta_grpc
from kubeletapi import drahealth_v1alpha1_pb2 as health
from kubeletapi import drahealth_v1alpha1_pb2_grpc as health_grpc
from kubeletapi import pluginregistration_v1_pb2 as registration
from kubeletapi import pluginregistration_v1_pb2_grpc as registration_grpc
from tests.support.agent.node import Lab, Notebook

NODE = "node-1"
TEAM = "team"
CALL_S = 20.0


class FollowingNotebook(Notebook):
    """A reporter whose followers follow ``server``; it publishes nothing."""

    def __init__(self, server: FakeApiServer) -> None:
        super().__init__()
        self._server = server
        self._followers: list[Follower] = []

    def follow(self, follower: Follower) -> None:
        self._followers.append(follower)

    async def run(self) -> None:
        async with Client(self._server.config, user_agent="test") as client, asyncio.TaskGroup() as tasks:
            for follower in self._followers:
                tasks.create_task(follower.follow(client, NODE, lambda: 0.5))


class PluginWatcher:
    """As the kubelet does: finds a registration socket, asks what it is, says that it is registered, and calls it."""

    def __init__(self, folder: Path) -> None:
        self.registry = folder / "plugins_registry"
        self.registry.mkdir(parents=True)
        self.info = registration.PluginInfo()

    @property
    def sockets(self) -> list[Path]:
        return sorted(self.registry.glob("*.sock"))

    async def register(self, error: str = "") -> registration.PluginInfo:
        """The only plugin there."""
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
    async def health(self) -> AsyncIterator[Callable[[], "asyncio.Future[Any]"]]:
        """A stream; call it for the next list."""
        async with self._channel() as channel:
            stub = health_grpc.DRAResourceHealthStub(channel)
            stream = stub.NodeWatchResources(health.NodeWatchResourcesRequest())
            yield lambda: asyncio.ensure_future(stream.read())
            stream.cancel()

    def _channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"unix:{self.info.endpoint}")


class ClaimLab:
    """An agent on ``lab`` with an API server and a plugin watcher."""

    def __init__(self, lab: Lab, server: FakeApiServer) -> None:
        self.lab = lab
        self.server = server
        self.watcher = PluginWatcher(lab.folder / "kubelet")
        lab.reporter = FollowingNotebook(server)
        server.install(RESOURCE_SLICES)
        server.create(NODES, NODE, {"metadata": {}})

    async def serve(self, fleet: str, config: str) -> None:
        """Up to a registered driver with its slices published."""
        self.lab.power_on(fleet)
        await self.lab.kubelet.start()
        await self.lab.start(config)
        await self.registered()

    async def registered(self) -> None:
        await self.lab.until(lambda: len(self.watcher.sockets) == 1, "a registration socket")
        await self.watcher.register()
        await self.lab.until(lambda: self.lab.agent.dra.publisher.settled and bool(self.slices), "slices published")

    @property
    def slices(self) -> list[dict[str, Any]]:
        return self.server.list_all(RESOURCE_SLICES)

    @property
    def devices(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for one in self.slices for each in one["spec"]["devices"]}

    @property
    def specs(self) -> list[str]:
        """The CDI files of claims, by name."""
        return sorted(path.name for path in (self.lab.folder / "cdi").glob("*claim*"))

    def claim(self, uid: str, *devices: str, **more: Any) -> None:
        """An allocated claim called by its UID, reserved for a pod of the same name."""
        results = [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": each, **more} for each in devices]
        status = {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{uid}", "uid": "p"}],
        }
        body = self.server.create(RESOURCE_CLAIMS, uid, {"metadata": {}, "status": status}, namespace=TEAM)
        self.server.store.objects[(RESOURCE_CLAIMS.path(), TEAM, uid)].body["metadata"]["uid"] = uid
        assert body["metadata"]["name"] == uid

    def held(self) -> dict[GpuUuid, str]:
        """The pod that holds each GPU by claim, as the agent reports it."""
        return {GpuUuid(each.device): each.holder.pod for each in self.lab.report().holders}
