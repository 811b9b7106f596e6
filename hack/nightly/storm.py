"""A storm of faults over a fleet of a real API server: ``python -m hack.nightly.storm --nodes 1000``.

Nodes and GpuNodes are objects alone, written as agents write them; the controller is a process with the chart's rights.
First each GPU has an application's XIDs: nobody is cordoned and nothing is granted. Then one GPU of each node asks for
its reset: the breaker trips, and the budget acts. The next leader grants no more. Once the agents ask no more the
breaker heals by itself. Exits with 0 where all of that is seen.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from controller.cluster.watching.kinds import FLAVORS, GPU_NODES, NODES
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from hack.cluster.state import Spec
from inventory.api.names import REMEDIATION_TRIPPED
from tests.support.e2e.lab import GPU, WAIT_S
from tests.support.e2e.queuelab import ALONE, CONFIG, Controller, Json, QueueLab, install, lab

GPUS: Final = 8
BUDGET: Final = 20
AT_ONCE: Final = 32
SINCE: Final = "2026-01-01T00:00:00Z"
TRIPPED: Final = "tessera_gpu_repair_breaker_tripped"
POOL: Final = {"pool": "storm"}
NOT_READY: Final = "node.kubernetes.io/not-ready"
"""The API server gives it to each new Node, and the controller takes it off that does not run here."""
NO_LIFECYCLE: Final = "--controllers=*,-node-lifecycle-controller"
"""A flag of kube-controller-manager: no kubelet renews these nodes' leases, and they stay Ready."""


def body(name: str) -> Json:
    """A GpuNode as its agent writes it, with application faults on each GPU: a program's, over the whole fleet."""
    devices = [
        {
            "uuid": f"GPU-{name}-{index}",
            "index": index,
            "product": "NVIDIA H100 80GB HBM3",
            "memoryMiB": 81559,
            "pciBusId": f"0000:{index:02}:00.0",
            "offers": [{"resource": GPU}],
            "health": {"state": "Healthy"},
        }
        for index in range(GPUS)
    ]
    counts = {"xid": 31, "count": 9, "first": SINCE, "last": SINCE, "programs": ["team/train"], "culprit": "program"}
    faults = [{"gpu": each["uuid"], **counts} for each in devices]
    summary = {"gpus": GPUS, "healthy": GPUS, "product": "NVIDIA H100 80GB HBM3"}
    status = {"summary": summary, "devices": devices, "applicationFaults": faults}
    return {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": name}, "status": status}


async def each(names: list[str], act: Callable[[str], Awaitable[Any]]) -> None:
    """Do something about each name, AT_ONCE at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with room:
            await act(name)

    await asyncio.gather(*(one(name) for name in names))


async def says(scene: QueueLab, name: str, *, asks: bool) -> None:
    """The agent of the node asks for the reset of its first GPU, or has nothing in repair."""
    repair = {"gpu": f"GPU-{name}-0", "state": "Draining", "generation": 1, "asks": "reset", "reason": "Xid119"}
    patch = {"status": {"repairs": [{**repair, "since": SINCE}] if asks else []}}
    await scene.client.merge_patch(GPU_NODES, name, patch, dict[str, Any], field_manager="tessera-agent")


async def granted(scene: QueueLab) -> dict[str, str]:
    """The action that each GPU was granted, as the API server has it."""
    found = (await scene.client.list_all(GPU_NODES, dict[str, Any])).items
    return {one["gpu"]: one["action"] for node in found for one in node["status"].get("remediationGrants", ())}


async def is_tripped(scene: QueueLab) -> bool:
    found = await scene.client.get(FLAVORS, "gpus", dict[str, Any])
    return REMEDIATION_TRIPPED in (found["metadata"].get("annotations") or {})


def has_decided(controller: Controller) -> bool:
    """Whether the process has decided on repairs and holds some back."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{controller.port}/metrics", timeout=30) as answer:
            families = text_string_to_metric_families(answer.read().decode())
    except OSError:
        return False
    samples = (sample for family in families for sample in family.samples if sample.name == TRIPPED)
    return any(sample.labels["flavor"] == "gpus" and sample.value == 1 for sample in samples)


async def come(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not await condition():
        assert time.monotonic() < deadline_s, f"not within {WAIT_S:.0f} s: {what}"
        await asyncio.sleep(0.5)


def node(name: str) -> Json:
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {GPU: str(GPUS)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": POOL}, "status": status}


async def storm(cluster: Cluster, folder: Path, nodes: int) -> None:
    """Raises AssertionError where something is not as it is to be."""
    config = CONFIG.replace("policy: tessera,", f"policy: tessera, remediation: {{budget: {BUDGET}}},")
    (folder / "controller.yaml").write_text(config)
    names = [f"n{number:04}" for number in range(nodes)]
    async with lab(cluster, {}) as scene:
        await scene.share(FLAVORS, "gpus", spec={"nodeLabels": POOL})
        await each(names, lambda name: scene.client.create(NODES, node(name), dict[str, Any]))
        await each(names, lambda name: scene.client.create(GPU_NODES, body(name), dict[str, Any]))
        say(f"{nodes} nodes of {GPUS} GPUs, each with an application's XIDs")
        with scene.controllers(folder, "one", flags=ALONE) as (controller,):
            await each(names, lambda name: says(scene, name, asks=True))
            say("a GPU of each asks for its reset")
            await come(lambda: is_tripped(scene), "the breaker has tripped")
            await come(lambda: asyncio.to_thread(has_decided, controller), "it has decided")
            before = await granted(scene)
            assert set(before.values()) == {"reset"}
            assert len(before) == BUDGET, f"{len(before)} GPUs were granted a reset, and {BUDGET} may be"
            say(f"the breaker has tripped, {BUDGET} GPUs were granted their reset")
            controller.kill()
            controller.start()
            await come(lambda: asyncio.to_thread(has_decided, controller), "the next leader has decided")
            await each(names[::2], lambda name: says(scene, name, asks=False))
            assert await is_tripped(scene), "half of them wait"
            assert await granted(scene) == before, "the next leader granted more"
            await each(names[1::2], lambda name: says(scene, name, asks=False))

            async def is_healed() -> bool:
                return not await is_tripped(scene)

            await come(is_healed, "nothing waits any more: it has healed")
            assert await granted(scene) == before, "more than the budget was granted a reset"
            say("it has healed, and nothing more was granted")
            for found in (await scene.client.list_all(NODES, dict[str, Any])).items:
                taints = [each["key"] for each in found["spec"].get("taints", ()) if each["key"] != NOT_READY]
                assert not taints, f"{found['metadata']['name']} was tainted: {taints}"
                assert not found["spec"].get("unschedulable"), f"{found['metadata']['name']} was cordoned"


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="hack.nightly.storm", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    options = parser.parse_args(words)
    for program in ("kubernetes", "helm"):
        binaries.build(program)
    spec = Spec(nodes=(), controller_manager_args=(NO_LIFECYCLE,))
    with Cluster.up(f"storm-{os.getpid()}", spec) as cluster, tempfile.TemporaryDirectory() as folder:
        install(cluster)
        asyncio.run(storm(cluster, Path(folder), options.nodes))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
