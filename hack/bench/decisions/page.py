"""What the page costs the controller: ``python -m hack.bench page [--quick]``.

1,000 nodes of 8 linked GPUs and 10,000 workloads: CPU time of rounds, of what is sent, and its bytes. Sockets and TLS
are not part of it.
"""

import argparse
import time
from collections.abc import Iterator, Sequence

from controller.objects.decode import GpuNode, read_gpu_node
from controller.objects.workload import Workload
from controller.people.page.frames import Frame
from controller.people.page.live import TOPICS, Live, State
from controller.people.page.visiblenamespaces import Variants, VisibleNamespaces
from controller.scheduler.engine import Engine
from hack.bench.decisions.engineload import NOW_S
from hack.bench.decisions.forecast import crowded
from hack.bench.table import Row, show

GPUS = 8
CHANGED = 20
"""Workloads that end between two rounds, and nodes whose holders change."""


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench page", description=__doc__.split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    nodes, workloads = (100, 1_000) if parser.parse_args(words).quick else (1_000, 10_000)
    engine = crowded(20, workloads)
    fleet = {f"node-{number}": node(number) for number in range(nodes)}
    show(f"the page: {nodes:,} nodes of {GPUS} GPUs, {workloads:,} workloads", list(costs(engine, fleet)))


def costs(engine: Engine, fleet: dict[str, GpuNode]) -> Iterator[Row]:
    live, state = Live(), State(engine, dict, lambda: fleet, lambda _: None, {}, lambda _: None)
    first_s, longest_s = round_s(live, state)
    yield Row("the first round, CPU", f"{first_s * 1000:.0f} ms, the longest part {longest_s * 1000:.0f} ms", "")
    quiet_s, longest_s = round_s(live, state)
    yield Row("a round without a change", f"{quiet_s * 1000:.0f} ms, the longest part {longest_s * 1000:.0f} ms", "")
    before = {topic: table.revision for topic, table in live.tables.items()}
    change(engine, fleet)
    busy_s, _ = round_s(live, state)
    yield Row(f"a round after {CHANGED} ends and {CHANGED} changed nodes", f"{busy_s * 1000:.0f} ms", "")
    yield from _sent(live, "all", VisibleNamespaces(None), before)
    yield from _sent(live, "nothing", VisibleNamespaces(frozenset()), before)


def _sent(live: Live, name: str, visible: VisibleNamespaces, before: dict[str, int]) -> Iterator[Row]:
    variants = Variants()
    for what, since in (("snapshots", dict.fromkeys(TOPICS)), ("deltas", dict[str, int | None](before))):
        begun_s, plain, packed = time.process_time(), 0, 0
        for topic, table in live.tables.items():
            changes = table.since(since[topic])
            if changes is not None:
                frame = Frame.of(
                    topic, changes, variants.rows(visible, topic, changes, frozenset({"ns"}), lambda _: "cq-0")
                )
                plain, packed = plain + len(frame.body), packed + len(frame.packed)
        took_ms = (time.process_time() - begun_s) * 1000
        said = f"{took_ms:.0f} ms once, {plain / 1e6:.2f} MB, compressed {packed / 1e6:.2f} MB"
        yield Row(f"{what} for those who see {name}", said, "")


def round_s(live: Live, state: State) -> tuple[float, float]:
    """CPU time of one round, and of its longest part."""
    begun_s = last_s = time.process_time()
    longest_s = 0.0
    for _ in live.round(state, TOPICS):
        now_s = time.process_time()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    end_s = time.process_time()
    return end_s - begun_s, max(longest_s, end_s - last_s)


def change(engine: Engine, fleet: dict[str, GpuNode]) -> None:
    for holder in list(engine.state.cluster.holders.values())[:CHANGED]:
        meta = holder.info.workload.metadata
        engine.drop(Workload, meta.namespace, meta.name, NOW_S)
    while not engine.settled(NOW_S):
        engine.cycle(NOW_S)
    for number in range(CHANGED):
        fleet[f"node-{number}"] = node(number, held=1)


def node(number: int, held: int = GPUS, namespace: str = "ns") -> GpuNode:
    """``held``: GPUs that a pod of this namespace holds."""
    uuids = [f"GPU-{number:08x}-{index:04x}-4a3b-9c8d-0123456789ab" for index in range(GPUS)]
    offers = [{"resource": "nvidia.com/gpu"}]
    device = {"product": "NVIDIA H100 80GB HBM3", "memoryMiB": 81559, "pciBusId": "", "mode": "whole", "offers": offers}
    pairs = [{"a": a, "b": b, "nvswitch": 18} for a in range(GPUS) for b in range(a + 1, GPUS)]
    pod = {"namespace": namespace, "container": "main"}
    status = {
        "summary": {"gpus": GPUS, "healthy": GPUS, "product": "H100"},
        "observedAt": "2026-01-01T00:00:00Z",
        "devices": [{**device, "uuid": uuid, "index": index} for index, uuid in enumerate(uuids)],
        "links": pairs,
        "holders": [{**pod, "device": uuid, "pod": f"train-{number}-{at}"} for at, uuid in enumerate(uuids[:held])],
    }
    return read_gpu_node({"metadata": {"name": f"node-{number}"}, "status": status})
