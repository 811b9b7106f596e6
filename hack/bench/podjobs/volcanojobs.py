"""Volcano Jobs from created to running to Completed, against batch Jobs: ``python -m hack.bench volcano-jobs``.

A thousand jobs of four pods on nodes that kwok plays, the same number of batch Jobs beside them. Tessera queues both,
and makes the pods of Volcano Jobs itself, where the controller manager makes those of batch Jobs: writes of whoever
makes the pods and keeps the jobs' statuses are therefore counted together with Tessera's.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from hack.bench.podjobs.load import LIVED, PARALLEL, PODS_OF_A_JOB, Lived, PodJobs, Result, setting
from hack.bench.throughput.drain import CRDS, apply_all, apply_crds
from hack.bench.throughput.drainjobs import COMMANDS
from hack.bench.throughput.drainload import AGENT
from hack.bench.throughput.measuring import ROOT, audited, cpu_s, of_ours, peak_mib, started, writes_by
from hack.cluster.cluster import Cluster
from kube.client import Client
from kube.kubeconfig import from_kubeconfig

SHARED = Path(os.environ.get("TESSERA_SHARED") or ROOT.parent / "shared") / "crds" / "volcano"
PODS_OF_A_NODE = 100
MAKERS = ("kube-controller-manager",)
"""Clients whose writes about jobs and pods are those of batch Jobs' own controller."""
WRITTEN = ("jobs", "jobs/status", "pods", "pods/status")
WARM_UP_S = 90.0
CONFIG = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: -1}
integrations: {frameworks: [batch/job, batch.volcano.sh/job]}
tessera: {policy: tessera}
"""


@dataclass(frozen=True)
class Run:
    load: Result
    writes: Counter[str]
    """Tessera's, by resource and subresource; of the first job too."""
    made: Counter[str]
    """Those of jobs and pods by the controller manager."""
    cpu_s: float
    server_cpu_s: float
    peak_mib: float


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    runs: dict[str, Run] = {}
    for name in LIVED:
        runs[name] = run = asyncio.run(_measured(name, options))
        told = f"{name}: {options.jobs} jobs ran after {run.load.running_s:.1f} s"
        print(f"volcano-jobs: {time.strftime('%H:%M:%S')} {told}", file=sys.stderr, flush=True)
    show(options.jobs, {"batch Jobs": runs["batch"], "Volcano Jobs": runs["volcano"]})


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench volcano-jobs", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--jobs", type=int, default=1000, help="of each kind (default %(default)s)")
    parser.add_argument("--crds", type=Path, default=SHARED, help="folder of Volcano's CRDs (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds before a run is given up")
    return parser.parse_args(words)


async def _measured(name: str, options: argparse.Namespace) -> Run:
    nodes = nodes_for(options.jobs)
    with (
        tempfile.TemporaryDirectory(prefix="tessera-volcano-") as folder,
        audited(f"volcano-{name}", Path(folder), kwok_nodes=nodes) as cluster,
    ):
        apply_crds(cluster, CRDS, *sorted(options.crds.glob("*.yaml")))
        return await measured(cluster, Path(folder), LIVED[name], options.jobs, config=CONFIG, limit_s=options.limit)


def nodes_for(jobs: int) -> int:
    return -(-jobs * PODS_OF_A_JOB // PODS_OF_A_NODE)


async def measured(cluster: Cluster, folder: Path, kind: Lived, jobs: int, *, config: str, limit_s: float) -> Run:
    """One run in a cluster of ``audited``, which has the CRDs. ``folder`` is the audit log's; ``config``: Tessera's."""
    apply_all(cluster, setting(jobs))
    file = folder / "controller.yaml"
    file.write_text(config)
    servers = [psutil.Process(cluster.state.processes[program].pid) for program in ("apiserver", "etcd")]
    command = [*COMMANDS["tessera"], "--config", str(file), "--kubeconfig", str(cluster.kubeconfig)]
    with started("tessera", command, cluster.log("controller")) as controller:
        access = from_kubeconfig(cluster.kubeconfig)
        async with Client(access, user_agent=AGENT, timeout_s=60.0, connections=PARALLEL) as client:
            # Through the whole way once, so that the start of the controller is not in the figures.
            first = await PodJobs(client, kind, 1, "warm-up").run(WARM_UP_S)
            before_s, own_s = sum(map(cpu_s, servers)), cpu_s(controller)
            result = await PodJobs(client, kind, jobs).run(limit_s)
            server_cpu_s, used_s = sum(map(cpu_s, servers)) - before_s, cpu_s(controller) - own_s
        peak = peak_mib(controller)
    found = writes_by(folder / "audit.log", AGENT, expected=first.writes + result.writes)
    ours = of_ours(found, AGENT)
    others = sum((found.get(maker, Counter()) for maker in MAKERS), Counter())
    made = Counter({what: count for what, count in others.items() if what in WRITTEN})
    return Run(result, ours, made, used_s, server_cpu_s, peak)


FIGURES: dict[str, Callable[[Run], float]] = {
    "created to running, s": lambda run: run.load.running_s,
    "told to end to Completed, s": lambda run: run.load.ending_s,
    "wall time, s": lambda run: run.load.running_s + run.load.ending_s,
    "writes of Tessera and of who makes the pods": lambda run: float(run.writes.total() + run.made.total()),
    "writes of Tessera": lambda run: float(run.writes.total()),
    "CPU of Tessera, s": lambda run: run.cpu_s,
    "CPU of API server and etcd, s": lambda run: run.server_cpu_s,
    "peak memory of Tessera, MiB": lambda run: run.peak_mib,
}


def show(jobs: int, runs: Mapping[str, Run]) -> None:
    """The table of two runs, by what stands over their columns."""
    print(f"\n{jobs} jobs of {PODS_OF_A_JOB} pods")
    base, other = runs.values()
    lines = [["", *runs, "ratio"]]
    lines += [_line(what, of, base, other) for what, of in FIGURES.items()]
    for what in sorted({*base.writes, *other.writes}):
        lines.append(_line(f"  Tessera: {what}", partial(_written, what), base, other))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    for line in lines:
        print("  " + "   ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _line(what: str, of: Callable[[Run], float], base: Run, other: Run) -> list[str]:
    before, found = of(base), of(other)
    return [what, f"{before:.1f}", f"{found:.1f}", f"{found / before:.2f}" if before else ""]


def _written(resource: str, run: Run) -> float:
    return float(run.writes[resource])
