"""Jobs of several kinds, from submitted to finished, against as many batch Jobs: ``python -m hack.bench drain-jobs``.

The load is that of ``drain``, each workload submitted as a job that the whole controller queues, starts, preempts and
finishes. The kinds' own controllers are played, for batch Jobs too, and make no pods: what is left is Tessera's share.

Jobs of other kinds have two or three pod sets (``mixed``), or one, as a batch Job has (``plain``). The same without
Tessera (``nulljobs``) shows what is the API server's share: its work grows with the objects, whoever writes them.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from hack.bench.throughput import drainload
from hack.bench.throughput.drain import CRDS, apply_all, apply_crds
from hack.bench.throughput.drainshape import COHORTS, Class, Shape, setting, shape
from hack.bench.throughput.jobload import JobLoad
from hack.bench.throughput.jobshape import KINDS, WARM_UP, priorities
from hack.bench.throughput.measuring import ROOT, audited, cpu_s, peak_mib, started, writes_in
from kube.client import Client
from kube.kubeconfig import from_kubeconfig

SHARED = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds"
KIND_CRDS = ("jobset/jobsets.yaml", "kubeflow/pytorchjobs.yaml", "kuberay/rayjobs.yaml", "kuberay/rayclusters.yaml")
COMMANDS = {
    "tessera": (
        sys.executable,
        "-m",
        "controller",
        "--no-leader-elect",
        "--metrics-address",
        "0",
        "--web-address",
        "0",
    ),
    "null": (sys.executable, "-m", "hack.bench.throughput.nulljobs"),
}
START_S = 90.0
TARGET = "1.3 x"


@dataclass(frozen=True)
class Run:
    load: drainload.Result
    writes: Counter[str]
    """The controller's, by resource and subresource; of the first job too."""
    cpu_s: float
    """Of the controller, and ``server_cpu_s`` of API server and etcd, during the load."""
    server_cpu_s: float
    peak_mib: float


Runs = dict[tuple[str, str], Run]
"""By controller and what was submitted."""


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    load = shape(options.factor, cohorts=options.cohorts)
    kinds = options.kinds or ["mixed", "plain"]
    controllers = ("tessera",) if options.only else tuple(COMMANDS)
    wanted = [(controller, name) for controller in controllers for name in ("batch", *kinds)]
    rounds = []
    for turn in range(options.rounds):
        runs: Runs = {}
        for controller, name in wanted[:: -1 if turn % 2 else 1]:
            runs[controller, name] = run = asyncio.run(_measure(controller, name, load, options))
            _tell(f"{controller}, {name}: {load.workloads} jobs in {run.load.wall_s:.1f} s")
        _show(load, runs, kinds)
        rounds.append(runs)
    if len(rounds) > 1:
        _sum_up(rounds, kinds)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench drain-jobs", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--factor", type=float, default=0.2, help="of the published counts (default %(default)s)")
    choices = [name for name in KINDS if name != "batch"]
    parser.add_argument("--kinds", choices=choices, action="append", help="default: mixed and plain")
    parser.add_argument("--only", choices=["tessera"], help="not the same without Tessera")
    parser.add_argument("--cohorts", type=int, default=COHORTS, choices=range(1, COHORTS + 1))
    parser.add_argument("--crds", type=Path, default=SHARED, help="folder of the kinds' CRDs (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds before a run is given up")
    return parser.parse_args(words)


async def _measure(by: str, name: str, load: Shape, options: argparse.Namespace) -> Run:
    kinds = KINDS[name]
    with (
        tempfile.TemporaryDirectory(prefix="tessera-drain-") as folder,
        audited(f"drain-{name}", Path(folder), without=("job-controller",)) as cluster,
    ):
        apply_crds(cluster, CRDS)
        apply_crds(cluster, *(options.crds / file for file in KIND_CRDS))
        apply_all(cluster, [*setting(load, memory=True), *priorities()])
        servers = [psutil.Process(cluster.state.processes[program].pid) for program in ("apiserver", "etcd")]
        command = [*COMMANDS[by], "--kubeconfig", str(cluster.kubeconfig)]
        with started(name, command, cluster.log(f"controller-{name}")) as controller:
            config = from_kubeconfig(cluster.kubeconfig)
            agent = Client(config, user_agent=drainload.AGENT, timeout_s=30.0, connections=drainload.CONNECTIONS)
            async with agent as client:
                # Through the whole way once, so that the start of the controller is not in the drain.
                first = await JobLoad(client, kinds).run(_warm_up(load, len(kinds)), START_S)
                before_s, own_s = sum(map(cpu_s, servers)), cpu_s(controller)
                result = await JobLoad(client, kinds).run(load, options.limit)
                server_cpu_s, used_s = sum(map(cpu_s, servers)) - before_s, cpu_s(controller) - own_s
            peak = peak_mib(controller)
        writes = writes_in(Path(folder) / "audit.log", drainload.AGENT, expected=first.writes + result.writes)
        return Run(result, writes, used_s, server_cpu_s, peak)


def _warm_up(load: Shape, kinds: int) -> Shape:
    return Shape(load.queues[:1], (Class(WARM_UP, kinds, 1, 0.0, 1000, 0.0, 1),), load.topology)


RATIOS: dict[str, Callable[[Run], float]] = {
    "wall time": lambda run: run.load.wall_s,
    "controller, CPU": lambda run: run.cpu_s,
    "controller, writes": lambda run: float(run.writes.total()),
    "API server and etcd, CPU": lambda run: run.server_cpu_s,
}


def _show(load: Shape, runs: Runs, kinds: Sequence[str]) -> None:
    print(f"\nDrain: {load.workloads} jobs in {len(load.queues)} ClusterQueues, floor {load.floor_s:.1f} s")
    lines = [["", "batch", *(word for name in kinds for word in (name, "ratio")), "target"]]
    lines += [_line(what, "tessera", of, runs, kinds, TARGET) for what, of in RATIOS.items()]
    ours = [run for (by, _), run in runs.items() if by == "tessera"]
    for what in sorted(set().union(*(run.writes for run in ours))):
        lines.append(_line(f"  {what}", "tessera", partial(_written, what), runs, kinds))
    more: dict[str, Callable[[Run], float]] = {
        "controller, peak memory, MiB": lambda run: run.peak_mib,
        "evictions": lambda run: run.load.evictions,
        "generator, CPU": lambda run: run.load.cpu_s,
        **{f"wait, {each.name}": partial(_wait, each.name) for each in load.classes},
    }
    lines += [_line(what, "tessera", of, runs, kinds) for what, of in more.items()]
    if ("null", "batch") in runs:
        lines += [_line(f"without Tessera: {what}", "null", of, runs, kinds) for what, of in RATIOS.items()]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  " + "   ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _line(
    what: str, by: str, of: Callable[[Run], float], runs: Runs, kinds: Sequence[str], target: str = ""
) -> list[str]:
    batch = of(runs[by, "batch"])
    found = [of(runs[by, name]) for name in kinds]
    told = [word for each in found for word in (f"{each:.1f}", f"{each / batch:.2f}" if batch else "")]
    return [what, f"{batch:.1f}", *told, target]


def _sum_up(rounds: Sequence[Runs], kinds: Sequence[str]) -> None:
    """The machine's own speed changes from minute to minute: a ratio counts within its round, then their median."""
    for by in dict.fromkeys(by for by, _ in rounds[0]):
        for name in kinds:
            for what, of in RATIOS.items():
                ratios = [of(runs[by, name]) / of(runs[by, "batch"]) for runs in rounds]
                told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                print(f"{by}: {what}, {name} against batch: {told}; median {median(ratios):.2f} x")


def _wait(kind: str, run: Run) -> float:
    return run.load.waits_s[kind]


def _written(resource: str, run: Run) -> float:
    return float(run.writes[resource])


def _tell(what: str) -> None:
    print(f"drain-jobs: {time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
