"""A GPU from its fault to its return: ``python -m hack.bench repairs``.

The agent, on simulated GPUs, under the kubelet stand-in. Faults are ordered from outside, each of a GPU that nobody
holds; the kubelet's own lists say when it has left, when it is back, and whether another GPU left meanwhile. The reset
is the simulator's ``nvidia-smi``: what a real one takes (seconds) comes on top. A node's breaker lets two GPUs be reset
in ten minutes, so that each agent repairs two. ``by grant``: a controller in this process grants each reset, by an API
server that behaves.
"""

import asyncio
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from agent.health.repairs import BREAKER_GPUS
from controller.cluster.watching.kinds import GPU_NODES, NODES
from deviceplugin.testing import Endpoint
from hack.agents import plain_kubeconfig
from hack.bench.node.agent import GPU, Bench, latency
from hack.bench.table import Row, show
from kube.testing import eventually
from tests.support.controller.stage import CONFIG as CONTROLLER
from tests.support.controller.stage import config, stage

H100: Final = "NVIDIA H100 80GB HBM3"
XID: Final = 119
AGENTS: Final = 10
CONFIG: Final = "version: v1\nhealth: {probationSeconds: 0, cleanProbes: 1}\nremediation: {reset: when-free}\n"
NODE: Final = "node-1"
RULES: Final = CONTROLLER.replace("tessera:\n", "tessera:\n  remediation: {budget: 100%}\n")
_BEGUN: Final = "state=Resetting"


class Repaired(Struct, frozen=True):
    """One repair, in seconds: from the order of the fault to the kubelet's list without the GPU, from there to the
    begin of the reset, from the order to the list with it again. ``others``: GPUs that left beside it.
    """

    fenced_s: float
    begun_s: float
    returned_s: float
    others: int


async def main(agents: int = AGENTS) -> None:
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        show("From fault to return", rows(await measured(Path(name) / "alone", agents)))
        show("From fault to return, by grant", rows(await granted(Path(name) / "granted", agents), begun="3 s"))


def rows(found: list[Repaired], begun: str = "1 s") -> list[Row]:
    returned = [each.returned_s for each in found]
    return [
        latency(f"XID to the kubelet's list, {len(found)} faults", [each.fenced_s for each in found], "p99 50 ms"),
        latency("from there to the reset's begin, nobody holds the GPU", [each.begun_s for each in found], begun),
        Row(
            "XID to the list with the GPU again, without probation",
            f"median {statistics.median(returned):.2f} s, worst {max(returned):.2f} s",
            "5 s",
        ),
        Row("other GPUs that left the list meanwhile", str(sum(each.others for each in found)), "0"),
    ]


async def measured(folder: Path, agents: int) -> list[Repaired]:
    """Two repairs of each of so many agents."""
    repaired = []
    for number in range(agents):
        async with Bench(folder / str(number), product=H100, config=CONFIG) as bench:
            endpoint = bench.kubelet.endpoints[GPU]
            await asyncio.to_thread(bench.agent.sim, status=True)  # the first order imports its code
            repaired += [await _repaired(bench, endpoint, index) for index in range(BREAKER_GPUS)]
    return repaired


async def granted(folder: Path, agents: int) -> list[Repaired]:
    """Two repairs of each of so many agents, with a controller that grants them."""
    repaired = []
    folder.mkdir(parents=True)
    for number in range(agents):
        async with stage() as scene:
            scene.server.create(NODES, NODE, {"metadata": {"labels": {"kubernetes.io/hostname": NODE}}})
            path = folder / f"{number}.kubeconfig"
            path.write_text(plain_kubeconfig(scene.server.config.server))
            asks = Bench(folder / str(number), product=H100, config=CONFIG, kubeconfig=str(path))
            async with scene.controller(config(RULES), core_only=False), asks as bench:
                endpoint = bench.kubelet.endpoints[GPU]
                await asyncio.to_thread(bench.agent.sim, status=True)
                await eventually(lambda: bool(scene.server.list_all(GPU_NODES)))
                repaired += [await _repaired(bench, endpoint, index) for index in range(BREAKER_GPUS)]
                asked = scene.server.list_all(GPU_NODES)[0]["status"].get("remediationGrants", [])
                assert len(asked) == BREAKER_GPUS, "a reset took no grant"
    return repaired


async def _repaired(bench: Bench, endpoint: Endpoint, index: int) -> Repaired:
    whole, victims = set(endpoint.devices), set[str]()
    others = set[str]()

    def left() -> bool:
        victims.update(whole - endpoint.healthy)
        return bool(victims)

    def back() -> bool:
        others.update(whole - endpoint.healthy - victims)
        return victims <= endpoint.healthy

    resets = bench.agent.log().count(_BEGUN)
    began_s, wall_s = time.monotonic(), time.time()
    await asyncio.to_thread(bench.agent.sim, gpu=index, xid=XID)
    await bench.kubelet.wait_for(left)
    fenced_s = time.monotonic() - began_s
    assert len(victims) == 1, f"{len(victims)} GPUs left at once"
    await bench.kubelet.wait_for(back)
    returned_s = time.monotonic() - began_s
    (begun,) = [line for line in bench.agent.log().splitlines() if _BEGUN in line][resets:]
    begun_s = _wall_s(begun) - wall_s - fenced_s
    return Repaired(fenced_s, max(0.0, begun_s), returned_s, len(others))


def _wall_s(line: str) -> float:
    """The time of a line of the agent's log."""
    stamp = line.partition("ts=")[2].split(" ", 1)[0]
    return datetime.fromisoformat(stamp).timestamp()


if __name__ == "__main__":
    asyncio.run(main())
