"""From thousands of waiting workloads to none, on a real API server: ``python -m hack.bench drain --factor 0.2``.

Each controller gets a fresh control plane of its own, the same load, and is a separate process started by the same
command line: ours (``python -m controller --only core --kubeconfig FILE``) under either policy, one that admits on
sight without any quota (``nullcontroller``), and the same with quota and priorities. The ratio to the first tells what
these and deciding cost, the ratio to the second what deciding costs; all share the machine with the API server. The
cost of preemption is the number of evicted workloads and how long they had run. Writes are counted in the API server's
audit log, by user agent; the generator's own are known, and must be found there.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from hack.bench.throughput import drainload
from hack.bench.throughput.drainshape import COHORTS, PUBLISHED, Class, Shape, nodes, setting, shape
from hack.bench.throughput.measuring import (
    CORES,
    ROOT,
    audited,
    cpu_s,
    established,
    machine_cpu_s,
    peak_mib,
    started,
    writes_in,
)
from hack.cluster import Cluster, waiting
from kube.client import Client
from kube.kubeconfig import from_kubeconfig

CRDS = ROOT / "charts" / "tessera" / "crds"
KUEUE_POLICY = ROOT / "hack" / "bench" / "kueue-policy.yaml"
COMMANDS = {
    "null": [sys.executable, "-m", "hack.bench.throughput.nullcontroller"],
    "quota": [sys.executable, "-m", "hack.bench.throughput.nullcontroller", "--quota"],
    "tessera": [sys.executable, "-m", "controller"],
    "kueue-policy": [sys.executable, "-m", "controller", "--config", str(KUEUE_POLICY)],
}
"""The last two are ours, under ``policy: tessera`` and ``policy: kueue``."""
LEAST = {"null": "the null controller", "quota": "the null controller with quota and priorities"}
"""What ours are compared with."""
CHOICES = {
    **{name: (name,) for name in COMMANDS},
    "both": ("null", "tessera"),
    "three": (*LEAST, "tessera"),
    "all": tuple(COMMANDS),
}
PUBLISHED_FACTOR = 0.2
KUEUE = {
    "wall time": "83 s",
    "against the floor": "6.3 x",
    "wait, large": "13.0 s",
    "wait, medium": "24.7 s",
    "wait, small": "39.9 s",
    "controller, CPU": "19.8 s",
    "controller, peak memory": "151 MiB",
    "evictions": "31 (19 to 123)",
}
"""Published for a fifth of the shape, unthrottled, on two cores; evictions: of rounds on its own runner."""
KUEUE_TOPOLOGY = {
    "wall time": "112.6 s",
    "wait, large": "27 s",
    "wait, medium": "38 s",
    "wait, small": "57 s",
    "controller, CPU": "26.7 s",
    "controller, peak memory": "183 MiB",
}
"""The same with a topology."""
TARGET = {
    "wall time": "0.7 of Kueue's",
    "against the null controller with quota and priorities": "1.15 x; in racks 1.2 x",
    "controller, writes a workload": "3",
    "evictions": "30",
}
_UNWATCHED: dict[str, Any] = {
    "without": ("node-lifecycle-controller",),
    "flags": {"disable-admission-plugins": "TaintNodesByCondition"},
}
"""The leases of the bench's nodes are not renewed and the taint of a new node stays on: the nodes stay as made."""
START_S = 60.0
QUIET = 0.1
"""Share of the machine that others may use before wall times are no results."""


@dataclass(frozen=True)
class Run:
    """What one controller did."""

    load: drainload.Result
    writes: Counter[str]
    """The controller's, by resource and subresource."""
    cpu_s: float
    peak_mib: float
    server_cpu_s: float
    """Of the API server and etcd, during the load."""
    others_cpu_s: float
    """Of everything else on the machine, during the load: more than a little of it spoils the wall time."""


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    load = shape(options.factor, topology=options.topology, cohorts=options.cohorts)
    names = CHOICES[options.controller]
    rounds = []
    for turn in range(options.rounds):
        runs = {}
        # A machine that is slower the longer it works must not be always so for the same controller.
        for name in names[:: -1 if turn % 2 else 1]:
            _tell(f"{load.workloads} workloads, {name} controller")
            runs[name] = asyncio.run(_measure(name, load, options))
            _tell(f"{name}: {runs[name].load.wall_s:.1f} s")
        whole = options.factor == PUBLISHED_FACTOR and options.cohorts == COHORTS
        _show(load, {name: runs[name] for name in names}, compare=whole)
        rounds.append(runs)
    if len(rounds) > 1:
        _sum_up(rounds)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench drain", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--factor", type=float, default=PUBLISHED_FACTOR, help="of the published counts (default %(default)s)"
    )
    parser.add_argument("--controller", choices=[*CHOICES], default="all")
    parser.add_argument(
        "--cohorts", type=int, default=COHORTS, choices=range(1, COHORTS + 1), help="a slow machine keeps up with fewer"
    )
    parser.add_argument(
        "--crds", type=Path, default=CRDS, help="folder of the kueue.x-k8s.io CRDs (default: the chart's)"
    )
    parser.add_argument("--topology", action="store_true", help="pods in racks, on 640 nodes that nobody plays")
    parser.add_argument("--rounds", type=int, default=1, help="so many pairs of runs, one after the other")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds before a run is given up")
    return parser.parse_args(words)


async def _measure(name: str, load: Shape, options: argparse.Namespace) -> Run:
    with (
        tempfile.TemporaryDirectory(prefix="tessera-drain-") as folder,
        audited(f"drain-{name}", Path(folder), **(_UNWATCHED if load.topology else {})) as cluster,
    ):
        prepare(cluster, load, options.crds)
        servers = [psutil.Process(cluster.state.processes[program].pid) for program in ("apiserver", "etcd")]
        config = from_kubeconfig(cluster.kubeconfig)
        command = [*COMMANDS[name], "--only", "core", "--kubeconfig", str(cluster.kubeconfig)]
        with started(name, command, cluster.log(f"controller-{name}")) as controller:
            agent = Client(config, user_agent=drainload.AGENT, timeout_s=30.0, connections=drainload.CONNECTIONS)
            async with agent as client:
                # Through the whole way once, so that the start of the controller is not in the drain.
                first = await drainload.Load(client).run(warm_up(load), START_S)
                before_s, own_s, machine_s = sum(map(cpu_s, servers)), cpu_s(controller), machine_cpu_s()
                result = await drainload.Load(client).run(load, options.limit)
                server_cpu_s = sum(map(cpu_s, servers)) - before_s
                others_cpu_s = machine_cpu_s() - machine_s - server_cpu_s - (cpu_s(controller) - own_s) - result.cpu_s
            used_s, peak = cpu_s(controller), peak_mib(controller)
        writes = writes_in(Path(folder) / "audit.log", drainload.AGENT, expected=first.writes + result.writes)
        return Run(result, writes, used_s, peak, server_cpu_s, max(0.0, others_cpu_s))


def prepare(cluster: Cluster, load: Shape, crds: Path) -> None:
    apply_crds(cluster, crds)
    if load.topology:
        cluster.kubectl("create", "-f", "-", input="\n---\n".join(map(json.dumps, nodes())))
    apply_all(cluster, setting(load))


def apply_crds(cluster: Cluster, *paths: Path) -> None:
    """Files, or folders with those of kueue.x-k8s.io among them."""
    found = [file for path in paths for file in (sorted(path.glob("*.yaml")) if path.is_dir() else [path])]
    files = [file for file in found if file in paths or "kueue.x-k8s.io" in file.read_text()]
    if not files or not all(file.is_file() for file in files):
        raise SystemExit(f"drain: {', '.join(map(str, paths))}: no CRDs there; name their folder with --crds")
    cluster.kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))
    waiting.until(lambda: established(cluster), "the CRDs to be established", timeout_s=60.0, every_s=0.3)


def apply_all(cluster: Cluster, bodies: Iterable[dict[str, Any]]) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", input="\n---\n".join(map(json.dumps, bodies)))


def warm_up(load: Shape) -> Shape:
    return Shape(load.queues[:1], (Class("warm-up", 1, 1, 0.0, 1000, 0.0, 1),), load.topology)


def _show(load: Shape, runs: dict[str, Run], *, compare: bool) -> None:
    rows: list[tuple[str, Callable[[Run], str]]] = [
        ("wall time", lambda run: f"{run.load.wall_s:.1f} s"),
        ("against the floor", lambda run: f"{run.load.wall_s / load.floor_s:.2f} x"),
    ]
    rows += [(f"against {said}", partial(_against, runs[least])) for least, said in LEAST.items() if least in runs]
    rows += [(f"wait, {kind.name}", partial(_wait, kind.name)) for kind in PUBLISHED]
    rows += [
        ("controller, CPU", lambda run: f"{run.cpu_s:.1f} s"),
        ("controller, peak memory", lambda run: f"{run.peak_mib:.0f} MiB"),
        ("controller, writes a workload", lambda run: f"{run.writes.total() / (load.workloads + 1):.2f}"),
        *((f"  of which {what}", partial(_share, what, load)) for what in _written(runs)),
        ("evictions", lambda run: f"{run.load.evictions}"),
        ("run time lost by these", lambda run: f"{run.load.lost_s:.1f} s"),
        ("  times their cpus", lambda run: f"{run.load.lost_cpu_s:.1f} cpu s"),
        ("API server and etcd, CPU", lambda run: f"{run.server_cpu_s:.1f} s"),
        ("generator, CPU", lambda run: f"{run.load.cpu_s:.1f} s"),
        ("generator, last creation late by", lambda run: f"{run.load.late_s:.1f} s"),
        ("all of these, CPU by core", lambda run: f"{_cores_s(run):.1f} s"),
        ("the rest of the machine, CPU by core", lambda run: f"{run.others_cpu_s / CORES:.1f} s"),
    ]
    lines = [["", *runs, "Kueue", "target"]]
    for what, measured in rows:
        published = (KUEUE_TOPOLOGY if load.topology else KUEUE).get(what, "") if compare else ""
        lines.append([what, *map(measured, runs.values()), published, TARGET.get(what, "")])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    print(f"\nDrain: {load.workloads} workloads in {len(load.queues)} ClusterQueues, floor {load.floor_s:.1f} s")
    for line in lines:
        print("  " + "   ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    _warn(runs)


def _sum_up(rounds: Sequence[dict[str, Run]]) -> None:
    """The machine's own speed changes from minute to minute: a ratio counts within its round, then their median."""
    print()
    for name in (name for name in rounds[0] if name != "null"):
        evictions = [runs[name].load.evictions for runs in rounds]
        print(f"Evictions, {name}: {', '.join(map(str, evictions))}; median {median(evictions):g}")
        for least, words in LEAST.items():
            if least in rounds[0] and least != name:
                ratios = [_ratio(runs[least], runs[name]) for runs in rounds]
                told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                print(f"Against {words}, {name}: {told}; median {median(ratios):.2f} x")


def _ratio(least: Run, run: Run) -> float:
    return run.load.wall_s / least.load.wall_s


def _against(least: Run, run: Run) -> str:
    return f"{_ratio(least, run):.2f} x"


def _wait(kind: str, run: Run) -> str:
    return f"{run.load.waits_s[kind]:.1f} s"


def _cores_s(run: Run) -> float:
    """The wall time that this work takes on these cores at least."""
    return (run.server_cpu_s + run.cpu_s + run.load.cpu_s) / CORES


def _warn(runs: dict[str, Run]) -> None:
    for name, run in runs.items():
        share = run.others_cpu_s / CORES / run.load.wall_s
        if share > QUIET:
            print(f"  Others used {share:.0%} of the machine in the {name} run: its wall time and waits say little.")


def _written(runs: dict[str, Run]) -> list[str]:
    """The resources that any controller wrote, the most written first."""
    totals: Counter[str] = Counter()
    for run in runs.values():
        for what, count in run.writes.items():
            totals[what.split("/")[0]] += count
    return [what for what, _ in totals.most_common()]


def _share(resource: str, load: Shape, run: Run) -> str:
    found = sum(count for what, count in run.writes.items() if what.split("/")[0] == resource)
    return f"{found / (load.workloads + 1):.2f}"


def _tell(what: str) -> None:
    print(f"drain: {time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
