"""GPUs and MIG instances by claim, from outside: how fast a claim is prepared, how soon slices are there, what the
driver costs. Instances are cut on simulated hardware: what the hardware itself takes comes on top.

The kubelet and the API server are stand-ins; the claims are allocated beforehand.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from agent.dra.claim import RESOURCE_CLAIMS
from agent.dra.publishing.slices import RESOURCE_SLICES
from agent.dra.testing import DRIVER, TEAM, PluginWatcher
from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess, plain_kubeconfig
from hack.bench.node.agent import A100, FLEET, latency
from hack.bench.table import Row, show
from kube.resources import NODES
from kube.testing import FakeApiServer, eventually

NODE = "node-1"
ROUNDS = 40
PARTS = 7
"""MIG instances on each GPU."""
GPUS = 8
BY_CLAIM = f"version: v1\nlayout: [{{gpus: {{product: {A100}}}, mode: dra}}]\n"
SETTLED_S = 30.0
"""From the start of the agent to the measure of its memory."""


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        rows, with_driver = await _claims(Path(name) / "claims", BY_CLAIM)
        _, without = await _claims(Path(name) / "plain", None)
        more = (with_driver - without) / (1 << 20)
        rows.append(Row("memory of the agent, claims of GPUs served against not", f"{more:+.1f} MiB", "4 MiB more"))
    show("GPUs by claim", rows)


async def _claims(folder: Path, config: str | None) -> tuple[list[Row], int]:
    """Figures, and the agent's resident bytes after them."""
    folder.mkdir(parents=True)
    fleet = folder / "fleet.yaml"
    fleet.write_text(FLEET.format(gpus=GPUS, product=A100, nvlink="full", more=""))
    kubelet = StandInKubelet(folder / "k")
    watcher = PluginWatcher(folder / "k")
    async with FakeApiServer() as server:
        server.create(NODES, NODE, {"metadata": {}})
        server.install(RESOURCE_SLICES)
        for index in range(GPUS):
            _allocate(server, f"claim-{index}", f"gpu-{index}")
            for place in range(PARTS):
                _allocate(server, f"part-{index}-{place}", f"gpu-{index}-mig-1g10gb-19-{place}")
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(plain_kubeconfig(server.config.server))
        agent = AgentProcess(
            folder / "a",
            fleet,
            folder / "k",
            config=config,
            kubeconfig=str(kubeconfig),
            flags=("--log-level", "warning"),
        )
        await kubelet.start()
        start = time.monotonic()
        agent.start()
        try:
            rows = [] if config is None else await _served(server, watcher, start)
            await asyncio.sleep(start + SETTLED_S - time.monotonic())  # what a start leaves behind is freed
            assert agent.process is not None
            resident = int(psutil.Process(agent.process.pid).memory_info().rss)
            return [*rows, *([] if config is None else await _parts(watcher))], resident
        finally:
            agent.stop()
            await kubelet.stop()


async def _served(server: FakeApiServer, watcher: PluginWatcher, start: float) -> list[Row]:
    await eventually(lambda: len(server.list_all(RESOURCE_SLICES)) == GPUS + 1, what="slices")
    published = time.monotonic() - start
    await eventually(lambda: len(watcher.sockets) == 1, what="a registration socket")
    await watcher.register()
    prepared, ended = [], []
    for number in range(ROUNDS * GPUS):
        uid = f"claim-{number % GPUS}"
        begin = time.perf_counter()
        answer = (await watcher.prepare(uid))[uid]
        between = time.perf_counter()
        errors = await watcher.unprepare(uid)
        assert not answer.error, answer.error
        assert not any(errors.values()), errors
        prepared.append(between - begin)
        ended.append(time.perf_counter() - between)
    slices = server.list_all(RESOURCE_SLICES)
    devices = sum(len(each["spec"].get("devices", ())) for each in slices)
    return [
        Row(f"start of the process to slices of 8 GPUs with all places ({devices} devices)", f"{published:.2f} s", ""),
        latency("NodePrepareResources, one claim of a GPU (its GET included)", prepared, ""),
        latency("NodeUnprepareResources, one claim of a GPU", ended, ""),
    ]


async def _parts(watcher: PluginWatcher) -> list[Row]:
    """56 instances one after another, and 8 of as many GPUs at once."""
    uids = [f"part-{index}-{start}" for start in range(PARTS) for index in range(GPUS)]
    cut, removed = [], []
    for uid in uids:
        begin = time.perf_counter()
        answer = (await watcher.prepare(uid))[uid]
        assert not answer.error, answer.error
        cut.append(time.perf_counter() - begin)
    for uid in uids:
        begin = time.perf_counter()
        assert await watcher.unprepare(uid) == {uid: ""}
        removed.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    answers = await asyncio.gather(*(watcher.prepare(uid) for uid in uids[:GPUS]))
    together = time.perf_counter() - begin
    assert not any(answer.error for found in answers for answer in found.values())
    await asyncio.gather(*(watcher.unprepare(uid) for uid in uids[:GPUS]))
    return [
        latency("NodePrepareResources, one MIG instance cut, 56 one after another", cut, ""),
        latency("NodeUnprepareResources, one MIG instance removed", removed, ""),
        Row("8 claims of an instance on 8 GPUs, at once", f"{together:.2f} s", ""),
    ]


def _allocate(server: FakeApiServer, uid: str, device: str) -> None:
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
    status: dict[str, Any] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "pod", "uid": "p"}],
    }
    server.create(RESOURCE_CLAIMS, uid, {"metadata": {}, "status": status}, namespace=TEAM)
    server.store.objects[(RESOURCE_CLAIMS.path(), TEAM, uid)].body["metadata"]["uid"] = uid
