"""What a scrape of a full node costs, and what it costs to have the figures: time, memory, CPU.

Also the choice that the agent's writer stands on: the library's text writer against one that keeps its text.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.telemetry.exposition import Family, Writer, labels
from hack.bench.node.metricsload import FullNode
from hack.bench.table import Row, show

SCRAPES = 500
IDLE_S = 60.0
SCRAPE_EVERY_S = 15.0
ROUNDS = 30


def main(words: Sequence[str] = ()) -> None:
    quick = "--quick" in words
    asyncio.run(_main(100 if quick else SCRAPES, 20.0 if quick else IDLE_S))


async def _main(scrapes: int, idle_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="tessera-bench-") as name:
        async with FullNode(Path(name) / "n") as node:
            url = f"http://127.0.0.1:{node.agent.port}/metrics"
            async with aiohttp.ClientSession() as client:
                cpu_before = node.agent.cpu_s()
                times, text = await _scrape(client, url, scrapes)
                each_s = (node.agent.cpu_s() - cpu_before) / scrapes
                cpu_before, scraped_before = node.agent.cpu_s(), time.monotonic()
                while time.monotonic() - scraped_before < idle_s:
                    await asyncio.sleep(SCRAPE_EVERY_S)
                    await _scrape(client, url, 1)
                share = (node.agent.cpu_s() - cpu_before) / (time.monotonic() - scraped_before)
            rss, own = node.agent.rss_mib(), node.agent.own_mib()
    series = sum(not line.startswith("#") for line in text.splitlines())
    ordered = sorted(times)
    p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    show(
        "Metrics: 8 GPUs, 56 MIG instances shared by 80 pods",
        [
            Row("series; size of a scrape", f"{series}; {len(text) / 1024:.0f} KiB", ""),
            Row("scrape", f"p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms", "p99 30 ms, better 10"),
            Row("the same, the agent's CPU", f"{each_s * 1000:.1f} ms", ""),
            Row("CPU, read and scraped every 15 s (simulator included)", f"{share * 100:.2f} % of a core", "1 %"),
            Row("resident memory of the agent (simulator included)", f"{rss:.1f} MiB", "64 MiB"),
            Row("of which are no pages of files", f"{own:.1f} MiB", ""),
            *_writers(text),
        ],
    )


async def _scrape(client: aiohttp.ClientSession, url: str, count: int) -> tuple[list[float], str]:
    times, text = [], ""
    for _ in range(count):
        start = time.perf_counter()
        async with client.get(url) as answer:
            text = (await answer.read()).decode()
        times.append(time.perf_counter() - start)
    return times, text


def _writers(text: str) -> list[Row]:
    """The same series through the library's gauges and writer, and through our own: CPU time of one exposition."""
    families = [
        text_string_to_metric_family
        for text_string_to_metric_family in text_string_to_metric_families(text)
        if not text_string_to_metric_family.name.startswith("process_")
    ]
    registry = CollectorRegistry()
    samples: list[tuple[str, str, float]] = []
    for family in families:
        # The library has one set of label names for each metric: empty ones stand for those that are not there.
        every = sorted({name for sample in family.samples for name in sample.labels})
        gauges: dict[str, Gauge] = {}
        for sample in family.samples:
            if sample.name not in gauges:
                gauges[sample.name] = Gauge(sample.name, family.documentation, every, registry=registry)
            gauge = gauges[sample.name]
            (gauge.labels(*(sample.labels.get(name, "") for name in every)) if every else gauge).set(sample.value)
            samples.append((sample.name, labels(sample.labels.items()), sample.value))

    def own() -> bytes:
        writer = Writer([Family(name, "gauge", "x") for name in dict.fromkeys(name for name, *_ in samples)])
        for sample_name, label_text, value in samples:
            writer.add(sample_name, label_text, value)
        return writer.text()

    library_s, own_s = _cpu(lambda: generate_latest(registry)), _cpu(own)
    return [
        Row(f"one exposition of {len(samples)} series by prometheus_client", f"{library_s * 1000:.1f} ms CPU", ""),
        Row("the same by our writer, once a pass", f"{own_s * 1000:.2f} ms CPU ({library_s / own_s:.0f} x less)", ""),
    ]


def _cpu(work: Callable[[], bytes]) -> float:
    work()
    start = time.process_time()
    for _ in range(ROUNDS):
        work()
    return (time.process_time() - start) / ROUNDS


if __name__ == "__main__":
    main()
