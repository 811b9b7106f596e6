"""Does the agent's memory stay flat? A full node whose pods come and go, read each second and scraped all the time.

A pass a second ages the agent fifteen times as fast as its default interval. ``--minutes 30`` by hand; CI runs two.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from msgspec import Struct

from hack.bench.node.metricsload import FullNode
from hack.bench.table import Row, show

MINUTES = 30.0
SCRAPES = 4
"""A second."""
MOST_GROWTH_MIB = 1.0
"""Between the second quarter of the run and the last: what comes before is warming up."""


class Soaked(Struct, frozen=True):
    """Resident memory of the agent over the run, one figure a second, and what it did meanwhile."""

    rss_mib: tuple[float, ...]
    scrapes: int
    pods: int
    cpu_share: float

    @property
    def early_mib(self) -> float:
        quarter = len(self.rss_mib) // 4
        return statistics.median(self.rss_mib[quarter : 2 * quarter])

    @property
    def late_mib(self) -> float:
        return statistics.median(self.rss_mib[-(len(self.rss_mib) // 4) :])

    @property
    def flat(self) -> bool:
        return self.late_mib - self.early_mib < MOST_GROWTH_MIB


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench soak")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    minutes = parser.parse_args(words).minutes
    soaked = asyncio.run(soak(minutes * 60))
    show(
        f"Soak: {minutes:g} minutes, a pass a second",
        [
            Row("scrapes; pods that came and went", f"{soaked.scrapes}; {soaked.pods}", ""),
            Row("resident memory, second quarter", f"{soaked.early_mib:.1f} MiB", ""),
            Row("resident memory, last quarter", f"{soaked.late_mib:.1f} MiB", f"+{MOST_GROWTH_MIB:g} MiB"),
            Row("CPU (simulator included)", f"{soaked.cpu_share * 100:.1f} % of a core", ""),
        ],
    )


async def soak(seconds: float) -> Soaked:
    """The whole run: as many turns as there are seconds, each of a second at least. The node is full before it begins.

    On a machine that is slow it takes longer, and the agent has done the same in the end.
    """
    rss: list[float] = []
    scrapes = pods = 0
    with tempfile.TemporaryDirectory(prefix="tessera-soak-") as name:
        async with FullNode(Path(name) / "n", interval_s=1.0) as node, aiohttp.ClientSession() as client:
            url = f"http://127.0.0.1:{node.agent.port}/metrics"
            start, cpu_before = time.monotonic(), node.agent.cpu_s()
            while pods < seconds:
                second = time.monotonic()
                for _ in range(SCRAPES):
                    async with client.get(url) as answer:
                        await answer.read()
                    scrapes += 1
                await node.replace_pod()
                pods += 1
                rss.append(node.agent.rss_mib())
                await asyncio.sleep(max(0.0, second + 1 - time.monotonic()))
            share = (node.agent.cpu_s() - cpu_before) / (time.monotonic() - start)
    return Soaked(tuple(rss), scrapes, pods, share)


if __name__ == "__main__":
    main()
