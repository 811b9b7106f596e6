"""The other side of claims: an API server with Nodes, slices and claims, and the kubelet's plugin watcher."""

import asyncio
from typing import Any

from msgspec import structs

from agent.cluster.reporter import Follower
from agent.dra.claim import RESOURCE_CLAIMS
from agent.dra.publishing.slices import RESOURCE_SLICES
from agent.dra.testing import DRIVER, TEAM, PluginWatcher
from hack.bench.node.migplan import profiles_of
from inventory.devices import Gpu, GpuUuid
from kube.client import Client
from kube.resources import NODES
from kube.testing import FakeApiServer
from simulator.boards.products import PRODUCTS
from tests.support.agent.node import Lab, Notebook
from tests.support.inventory.builders import gpu

NODE = "node-1"
A100 = "NVIDIA A100-SXM4-40GB"


def divided(index: int, product: str = A100) -> Gpu:
    """A GPU whose driver tells its MIG profiles; MIG mode is off."""
    return structs.replace(gpu(index, product=product), mig_profiles=profiles_of(PRODUCTS[product]))


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


class ClaimLab:
    """An agent on ``lab`` with an API server and a plugin watcher."""

    def __init__(self, lab: Lab, server: FakeApiServer, product: str = A100) -> None:
        self.lab = lab
        self.product = product
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
        """Whole GPUs."""
        return self._of_type("gpu")

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        return self._of_type("mig")

    def _of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        every = (each for one in self.slices for each in one["spec"].get("devices", ()))
        return {each["name"]: each for each in every if each["attributes"]["type"]["string"] == kind}

    @property
    def specs(self) -> list[str]:
        """The CDI files of claims, by name."""
        return sorted(path.name for path in (self.lab.folder / "cdi").glob("*claim*"))

    def claim(self, uid: str, *devices: str, config: dict[str, Any] | None = None, **more: Any) -> None:
        """An allocated claim called by its UID, reserved for a pod of the same name; ``config`` is of NVIDIA's."""
        given = {"request": "gpu", "driver": DRIVER, "pool": NODE} | more
        results = [{**given, "device": each} for each in devices]
        version = {"apiVersion": "resource.nvidia.com/v1beta1"}
        opaque = [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": version | (config or {})}}]
        opaque = opaque if config is not None else []
        status = {
            "allocation": {"devices": {"results": results, "config": opaque}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{uid}", "uid": "p"}],
        }
        body = self.server.create(RESOURCE_CLAIMS, uid, {"metadata": {}, "status": status}, namespace=TEAM)
        self.server.store.objects[(RESOURCE_CLAIMS.path(), TEAM, uid)].body["metadata"]["uid"] = uid
        assert body["metadata"]["name"] == uid

    def instances(self, index: int) -> list[tuple[str, int]]:
        """The hardware's MIG devices, by profile and place."""
        mig = self.lab.simulation.hardware.gpus[index].mig
        names = {profile.profile_id: profile.name for profile in divided(0, self.product).mig_profiles}
        return sorted((names[each.profile], each.start) for each in mig.instances if each.computes)

    def held(self) -> dict[GpuUuid, str]:
        """The pod that holds each device by claim, as the agent reports it."""
        return {GpuUuid(each.device): each.holder.pod for each in self.lab.report().holders}
