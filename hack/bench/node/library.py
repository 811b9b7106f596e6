"""What the agent's start and idling cost on the C library of tests/e2e/nvml: two GPUs, no simulator or API server.

The start is CPU time, with the image's bytecode. The library looks for orders once a second, so that
what is measured is the agent.
"""

import asyncio
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess
from hack.bench.compiled import as_in_the_image
from hack.bench.table import Row

GPU = "nvidia.com/gpu"
SOURCE = Path(__file__).parents[3] / "tests/e2e/nvml/nvml_stub.c"
STARTS, RESTARTS = 7, 5
SETTLE_S, IDLE_S = 6.0, 60.0
LOOK_S = 0.002


async def rows(folder: Path) -> list[Row]:
    """A row that says so, where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return [Row("on a C library of NVML", "no C compiler", "")]
    folder.mkdir(parents=True)
    library = folder / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE)]
    await asyncio.to_thread(subprocess.run, command, check=True)
    await _start(folder / "compiles")
    starts = [await _start(folder / str(number)) for number in range(STARTS)]
    share, rss_mib, again_s = await _rest(folder / "rest")
    return [
        Row("CPU from start to listed, C library", f"{statistics.median(starts):.2f} s", "0.45 s"),
        Row("CPU while idle, C library", f"{share * 100:.2f} % of a core", "0.5 %"),
        Row("resident memory, C library (no API server)", f"{rss_mib:.1f} MiB", "52 MiB"),
        Row("from a kubelet's restart to listed again", f"{again_s:.3f} s", "0.2 s"),
    ]


class _Node:
    """An agent on the library under a kubelet stand-in, from its start to its first list."""

    def __init__(self, folder: Path) -> None:
        (folder / "orders").mkdir(parents=True)
        self.kubelet = StandInKubelet(folder / "k")
        self.agent = AgentProcess(
            folder / "a",
            None,
            folder / "k",
            flags=("--log-level", "warning"),
            environment={
                **as_in_the_image(),
                "LD_LIBRARY_PATH": str(folder.parent),
                "TESSERA_STUB_DIR": str(folder / "orders"),
                "TESSERA_STUB_STEP_MS": "1000",
            },
        )

    async def start(self) -> float:
        """CPU until the devices are listed, s."""
        await self.kubelet.start()
        self.agent.start()
        await self.until_listed()
        return self.agent.cpu_s()

    async def until_listed(self) -> None:
        async with asyncio.timeout(30):
            while not (GPU in self.kubelet.endpoints and self.kubelet.endpoints[GPU].healthy):  # noqa: ASYNC110 - timed
                await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        self.agent.stop()
        await self.kubelet.stop()


async def _start(folder: Path) -> float:
    node = _Node(folder)
    try:
        return await node.start()
    finally:
        await node.stop()


async def _rest(folder: Path) -> tuple[float, float, float]:
    """Share of a core while idle, resident MiB, and seconds from a kubelet's restart to the list."""
    node = _Node(folder)
    try:
        await node.start()
        await asyncio.sleep(SETTLE_S)
        before_s, start_s = node.agent.cpu_s(), time.monotonic()
        await asyncio.sleep(IDLE_S)
        share = (node.agent.cpu_s() - before_s) / (time.monotonic() - start_s)
        rss_mib, times = node.agent.rss_mib(), []
        for _ in range(RESTARTS):
            await node.kubelet.stop()
            node.kubelet.endpoints.clear()
            start_s = time.monotonic()
            await node.kubelet.start()
            await node.until_listed()
            times.append(time.monotonic() - start_s)
        return share, rss_mib, statistics.median(times)
    finally:
        await node.stop()
