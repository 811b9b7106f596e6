"""From a label on the Node to devices in the kubelet's list: ``python -m hack.bench label``.

The agent, on simulated GPUs, watches an API server stand-in; the clock runs from the label's change there until the
kubelet stand-in has every device of the new layout, healthy, and none of the old. MIG instances are destroyed and made
by NVML calls; what a real driver takes for each comes on top.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from agent.cluster.gpulayouts import GPU_LAYOUTS
from agent.mig.choice import LABEL as MIG_CONFIG
from deviceplugin.testing import StandInKubelet
from hack.agents import plain_kubeconfig
from hack.bench.node.agent import Bench
from hack.bench.table import Row, show
from kube.resources import NODES
from kube.testing import FakeApiServer

NODE = "node-1"
H100 = "NVIDIA H100 80GB HBM3"
CHANGES = 10
POOL = "example.com/pool"
PARTED = """
version: v1
mig-configs:
  halves: [{devices: all, mig-enabled: true, mig-devices: {"3g.40gb": 2}}]
  sevenths: [{devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}]
"""
SHARED = {"layout": [{"gpus": {"any": 4}, "mode": "timeSlicing", "replicas": 4}], "nodeSelector": {POOL: "shared"}}

Offered = Mapping[str, int]
"""Healthy devices by resource."""


async def main(changes: int = CHANGES) -> None:
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        folder = Path(name)
        rows = [await _cut(folder / str(gpus), gpus, changes) for gpus in (1, 8)]
        rows.append(await _shared(folder / "shared", changes))
    show("From label to advertised", rows)


async def _cut(folder: Path, gpus: int, changes: int) -> Row:
    """mig-parted's label, all GPUs of the node from one cut to another."""
    halves, sevenths = {"nvidia.com/mig-3g.40gb": 2 * gpus}, {"nvidia.com/mig-1g.10gb": 7 * gpus}
    values: list[tuple[str, Offered]] = [("sevenths", sevenths), ("halves", halves)]
    mig = "{" + ", ".join(f"{gpu}: [3g.40gb, 3g.40gb]" for gpu in range(gpus)) + "}"
    more = f", migEnabled: {list(range(gpus))}, mig: {mig}"
    folder.mkdir()
    (folder / "parted.yaml").write_text(PARTED)
    config = f"version: v1\nflags: {{migStrategy: mixed}}\nmig: {{configFile: {folder / 'parted.yaml'}}}\n"
    return await _timed(
        f"{MIG_CONFIG}, {gpus} H100 cut anew", folder, gpus, more, config, (MIG_CONFIG, values), changes
    )


async def _shared(folder: Path, changes: int) -> Row:
    """A label that a GpuLayout selects nodes by, put on and taken off."""
    values: list[tuple[str, Offered]] = [
        ("shared", {"nvidia.com/gpu": 4, "nvidia.com/gpu.shared": 16}),
        ("none", {"nvidia.com/gpu": 8}),
    ]
    folder.mkdir()
    what = "a GpuLayout's label, 4 of 8 GPUs time-sliced"
    return await _timed(what, folder, 8, "", "version: v1\n", (POOL, values), changes)


async def _timed(
    what: str,
    folder: Path,
    gpus: int,
    more: str,
    config: str,
    label: tuple[str, list[tuple[str, Offered]]],
    changes: int,
) -> Row:
    key, values = label
    times_s: list[float] = []
    async with FakeApiServer() as server:
        server.create(NODES, NODE, {"metadata": {"labels": {key: values[-1][0]}}})
        server.create(GPU_LAYOUTS, "shared", {"metadata": {}, "spec": SHARED})
        (folder / "kubeconfig").write_text(plain_kubeconfig(server.config.server))
        wiring = {"gpus": gpus, "product": H100, "more": more, "config": config}
        async with Bench(folder / "node", **wiring, kubeconfig=str(folder / "kubeconfig")) as bench:  # type: ignore[arg-type] # of several types
            await _offered(bench.kubelet, values[-1][1])
            for value, wanted in itertools.islice(itertools.cycle(values), changes):
                start_s = time.monotonic()
                server.merge(NODES, NODE, {"metadata": {"labels": {key: value}}})
                await _offered(bench.kubelet, wanted)
                times_s.append(time.monotonic() - start_s)
    return Row(what, f"median {statistics.median(times_s):.2f} s, worst {max(times_s):.2f} s", "")


async def _offered(kubelet: StandInKubelet, wanted: Offered) -> None:
    def holds() -> bool:
        found = {name: len(one.healthy) for name, one in kubelet.endpoints.items()}
        return {name: count for name, count in found.items() if count} == wanted

    await kubelet.wait_for(holds, 60)


if __name__ == "__main__":
    asyncio.run(main())
