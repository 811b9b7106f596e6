"""GPUs by claim, from outside: how fast a claim is prepared, how soon slices are there, what the driver costs.

The kubelet and the API server are stand-ins; the claims are allocated beforehand.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from agent.dra.claim import RESOURCE_CLAIMS
from agent.dra.publishing.devices import DRIVER
from agent.dra.publishing.slices import RESOURCE_SLICES
from agent.dra.testing import TEAM, PluginWatcher
from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess, plain_kubeconfig
from hack.bench.node.agent import A100, FLEET, latency
from hack.bench.table import Row, show
from kube.resources import NODES
from kube.testing import FakeApiServer, eventually

NODE = "node-1"
ROUNDS = 40
GPUS = 8
BY_CLAIM = f"version: v1\nlayout: [{{gpus: {{product: {A100}}}, mode: dra}}]\n"
SETTLED_S = 5.0


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        rows, with_driver = await _claims(Path(name) / "claims", BY_CLAIM)
        _, without = await _claims(Path(name) / "plain", None)
        more = (with_driver - without) / (1 << 20)
        rows.append(Row("memory of the agent, claims served against not", f"{more:+.1f} MiB", "4 MiB more"))
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
            _allocate(server, index)
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
            await asyncio.sleep(SETTLED_S)  # what a start leaves behind is freed
            assert agent.process is not None
            return rows, psutil.Process(agent.process.pid).memory_info().rss
        finally:
            agent.stop()
            await kubelet.stop()


async def _served(server: FakeApiServer, watcher: PluginWatcher, start: float) -> list[Row]:
    await eventually(lambda: bool(server.list_all(RESOURCE_SLICES)), what="slices")
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
    return [
        Row("start of the process to slices of 8 GPUs on the API server", f"{published:.2f} s", ""),
        latency("NodePrepareResources, one claim (its GET included)", prepared, ""),
        latency("NodeUnprepareResources, one claim", ended, ""),
    ]


def _allocate(server: FakeApiServer, index: int) -> None:
    uid = f"claim-{index}"
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": f"gpu-{index}"}
    status: dict[str, Any] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "pod", "uid": "p"}],
    }
    server.create(RESOURCE_CLAIMS, uid, {"metadata": {}, "status": status}, namespace=TEAM)
    server.store.objects[(RESOURCE_CLAIMS.path(), TEAM, uid)].body["metadata"]["uid"] = uid
