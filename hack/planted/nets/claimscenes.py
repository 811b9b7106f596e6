"""Scenes of claims: each is given back, and what it had is free for the next."""

import json
from pathlib import Path
from typing import Any, Final

import grpc.aio

from agent.dra.testing import DRIVER, TEAM, PluginWatcher
from hack.planted.nets.nodejudge import Finding, left_specs
from hack.planted.nets.nodeworld import NODE, PROMISED_S, START_S, CannotJudgeError, Node, layout
from kube.resources import NODES, Resource
from kube.testing import FakeApiServer

SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
PROFILE: Final = "1g.5gb"

Json = dict[str, Any]


class ClaimNode:
    """A node whose GPUs are given out by claim, and the API server that the agent reads claims from."""

    def __init__(self, node: Node, server: FakeApiServer) -> None:
        self.node, self._server = node, server
        self._watcher = PluginWatcher(node.folder / "kubelet")
        self.findings: list[Finding] = []
        self.live: set[str] = set()

    async def start(self) -> None:
        await self.node.start(layout("{gpus: [0, 1], mode: dra}"))
        if not await self.node.becomes(self._registered, START_S):
            raise CannotJudgeError("the driver does not register")
        await self.node.until(lambda: {"gpu-0", "gpu-1"} <= self.devices().keys(), "two GPUs to claim")

    async def _registered(self) -> bool:
        """A socket is there before it is listened to."""
        if len(self._watcher.sockets) != 1:
            return False
        try:
            await self._watcher.register()
        except grpc.aio.AioRpcError:
            return False
        return True

    def devices(self) -> dict[str, Json]:
        slices = self._server.list_all(SLICES)
        return {each["name"]: each for one in slices for each in one["spec"].get("devices", ())}

    async def prepare(self, uid: str, device: str, units: list[str]) -> bool:
        """A pod starts with the claim; ``units`` are the UUIDs that it holds."""
        result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{uid}", "uid": "p"}],
        }
        self._server.create(CLAIMS, uid, {"metadata": {}, "status": status}, namespace=TEAM)
        self._server.store.objects[(CLAIMS.path(), TEAM, uid)].body["metadata"]["uid"] = uid
        error = (await self._watcher.prepare(uid))[uid].error
        if error:
            self.findings.append(Finding("kubelet", f"{device} is free and refused to claim {uid}: {error}"))
            return False
        self.live.add(uid)
        self.node.note_claim("NodePrepareResources", uid, units)
        return True

    async def give_back(self, uid: str) -> None:
        error = (await self._watcher.unprepare(uid))[uid]
        if error:
            self.findings.append(Finding("kubelet", f"claim {uid} is not taken back: {error}"))
        self.live.discard(uid)
        self.node.note_claim("NodeUnprepareResources", uid)
        self.findings += left_specs(self._specs(), self.live)

    def _specs(self) -> list[str]:
        return sorted(path.name for path in (self.node.folder / "cdi").glob("*claim*.json"))


async def given_back(node: Node, server: FakeApiServer) -> list[Finding]:
    """A whole GPU is claimed twice, one claim after the other, and a part of another GPU."""
    claims = ClaimNode(node, server)
    await claims.start()
    uuids = [each["uuid"] for each in await node.gpus()]
    for uid in ("first", "second"):
        if await claims.prepare(uid, "gpu-0", uuids[:1]):
            await claims.give_back(uid)
    part = next(
        name
        for name, each in sorted(claims.devices().items())
        if name.startswith("gpu-1-mig") and each["attributes"]["profile"]["string"] == PROFILE
    )
    if await claims.prepare("part", part, []):
        made = (await node.gpus())[1]["mig"] or []
        if [each["profile"] for each in made] != [PROFILE]:
            claims.findings.append(Finding("hardware", f"{part} is claimed, and GPU 1 has {len(made)} instances"))
        await claims.give_back("part")

    async def gone() -> bool:
        return not (await node.gpus())[1]["mig"]

    if not await node.becomes(gone):
        text = f"the instance of {part} is there {PROMISED_S:g} s after its claim was given back"
        claims.findings.append(Finding("hardware", text))
    return claims.findings


def kubeconfig(path: Path, server: FakeApiServer) -> Path:
    """A file for a client of ``server``, which has the node."""
    server.install(SLICES)
    server.create(NODES, NODE, {"metadata": {}})
    context = {"cluster": "net", "user": "net"}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "net",
                "clusters": [{"name": "net", "cluster": {"server": server.config.server}}],
                "users": [{"name": "net", "user": {"token": "net"}}],
                "contexts": [{"name": "net", "context": context}],
            }
        )
    )
    return path
