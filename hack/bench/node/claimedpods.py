"""Pods with a GPU each, from created to ready: by claim, and beside it by the device plugin.

API server, scheduler, controller manager, kubelet and containerd are real, GPUs are simulated: half of them are given
out each way, by one agent. Rounds alternate, so that both meet the same machine: ``python -m hack.bench claimed-pods``.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.dra.publishing.slices import RESOURCE_SLICES
from agent.dra.testing import DRIVER
from controller.cluster.watching.kinds import CLAIM_TEMPLATES, DEVICE_CLASSES, PODS
from hack.agents import AgentProcess
from hack.bench.node.agent import A100, FLEET, GPU
from hack.bench.table import Row, show
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.render import TEST_IMAGE
from hack.cluster.layout import MARK_ENV
from hack.cluster.state import Spec
from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.kubeconfig import from_kubeconfig
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed, Undecodable
from kube.resources import NODES

NODE: Final = "node-1"
GPUS: Final = 8
EACH: Final = GPUS // 2
CONFIG: Final = f"version: v1\nlayout: [{{gpus: {[*range(EACH, GPUS)]}, mode: dra}}]\n"
PLUGIN, CLAIM = WAYS = ("device plugin", "claim")
WAIT_S: Final = 300.0
Json = dict[str, Any]


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench claimed-pods", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=10, help="of each way and size (default %(default)s)")
    options = parser.parse_args(words)
    asyncio.run(_measure(max(1, options.rounds)))


def body(name: str, way: str) -> Json:
    """A pod that waits, and ends at once."""
    container: Json = {
        "name": "main",
        "image": TEST_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait"],
        "resources": {"limits": {GPU: "1"}} if way == PLUGIN else {"claims": [{"name": "gpu"}]},
    }
    spec: Json = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    if way == CLAIM:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


class Seen:
    """When each pod was ready, by the watch of one that follows them."""

    def __init__(self) -> None:
        self.ready_s: dict[str, float] = {}
        self.there: set[str] = set()
        self.changed = asyncio.Event()

    def hear(self, change: Change[Json]) -> None:
        match change:
            case Added(key=key, new=new) | Changed(key=key, new=new):
                self.there.add(key.name)
                conditions = new.object.get("status", {}).get("conditions", ())
                if any((each["type"], each["status"]) == ("Ready", "True") for each in conditions):
                    self.ready_s.setdefault(key.name, time.monotonic())
            case Removed(key=key) | Undecodable(key=key):
                self.there.discard(key.name)
        self.changed.set()

    async def all_ready(self, names: Sequence[str]) -> None:
        while not self.ready_s.keys() >= set(names):
            await self._next()

    async def all_gone(self, names: Sequence[str]) -> None:
        while self.there & set(names):
            await self._next()

    async def _next(self) -> None:
        self.changed.clear()
        await asyncio.wait_for(self.changed.wait(), WAIT_S)


async def _measure(rounds: int) -> None:
    name = f"clpods-{os.getpid()}"  # kubelet sockets lie below it, whose paths must be short
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder, Cluster.up(name, Spec()) as cluster:
        host = cluster.node(NODE)
        fleet = Path(folder) / "fleet.yaml"
        fleet.write_text(FLEET.format(gpus=GPUS, product=A100, nvlink="full", more=""))
        agent = AgentProcess(
            host.agent_dir / "bench",
            fleet,
            host.kubelet_dir,
            kubeconfig=str(cluster.kubeconfig),
            cdi_dir=host.cdi_dir,
            config=CONFIG,
            flags=("--log-level", "warning"),
            environment={MARK_ENV: str(cluster.paths.home)},
        )
        async with Client(from_kubeconfig(cluster.kubeconfig), timeout_s=60.0, connections=EACH) as client:
            await _prepare(client)
            agent.start()
            try:
                await _offered(client)
                found = await _rounds(client, rounds)
            finally:
                agent.stop()
    show("Pods with a GPU, from created to ready", [row for size in found for row in _rows(size, found[size])])


async def _prepare(client: Client) -> None:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    selectors = [{"cel": {"expression": expression}}]
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    await client.create(
        DEVICE_CLASSES, {"metadata": {"name": DRIVER}, "spec": {"selectors": selectors}}, dict[str, Any]
    )
    template = {"metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    await client.create(CLAIM_TEMPLATES, template, dict[str, Any], namespace="default")


async def _offered(client: Client) -> None:
    """Until the node has GPUs to give either way."""
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        node = await client.get(NODES, NODE, dict[str, Any])
        slices = await client.list_all(RESOURCE_SLICES, dict[str, Any])
        if node["status"].get("allocatable", {}).get(GPU) == str(EACH) and slices.items:
            return
        await asyncio.sleep(0.5)
    raise TimeoutError(f"the node did not offer {EACH} GPUs each way within {WAIT_S:.0f} s")


async def _rounds(client: Client, rounds: int) -> dict[int, dict[str, list[float]]]:
    """Seconds until all of a burst are ready, by its size and the way; the first round of each is not counted."""
    seen = Seen()
    backoff = Backoff(random=lambda: 0.5, initial_s=0.2, maximum_s=1.0)
    pods = Reflector(client, PODS, msgspec.json.decode, seen.hear, clock=SystemClock(), backoff=backoff)
    task = asyncio.create_task(pods.run())
    await pods.wait_synced()
    by_size: dict[int, dict[str, list[float]]] = {size: {way: [] for way in WAYS} for size in (1, EACH)}
    try:
        for size, times in by_size.items():
            for number in range(-1, rounds):
                for way in WAYS if number % 2 else reversed(WAYS):
                    took_s = await _burst(
                        client, seen, way, [f"{way[0]}-{size}-{number + 1}-{at}" for at in range(size)]
                    )
                    if number >= 0:
                        times[way].append(took_s)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return by_size


async def _burst(client: Client, seen: Seen, way: str, names: Sequence[str]) -> float:
    start = time.monotonic()
    await asyncio.gather(*(client.create(PODS, body(name, way), dict[str, Any], namespace="default") for name in names))
    await seen.all_ready(names)
    took_s = max(seen.ready_s[name] for name in names) - start
    await asyncio.gather(*(client.delete(PODS, name, namespace="default") for name in names))
    await seen.all_gone(names)
    return took_s


def _rows(size: int, times: dict[str, list[float]]) -> list[Row]:
    what = "one pod" if size == 1 else f"{size} pods at once"
    medians = {way: statistics.median(found) for way, found in times.items()}
    rows = [
        Row(f"{what}, by {way}", f"median {medians[way]:.2f} s ({min(found):.2f} to {max(found):.2f})", "")
        for way, found in times.items()
    ]
    return [*rows, Row(f"{what}, claim against device plugin", f"{medians[CLAIM] / medians[PLUGIN]:.2f} x", "")]
