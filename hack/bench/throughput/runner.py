"""As Kueue's published performance runner measures: ``python -m hack.bench runner --rounds 5``, on a real API server.

The generator is that of ``runnerload``: it creates in turn, tells of ends by five at a time under its client's limit,
and is done when the statuses of the ClusterQueues say so. It runs beside a controller under test, once with both
versions of Workload served and once with v1beta2 alone, each time on a fresh control plane. The base is the null
controller with quota and priorities, which writes no statuses: its run is over with the last end. Evictions of
workloads whose run time was over are counted apart: they run again for nothing. A round whose ends are seen less than
10 s late in the median is no measure of these.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from hack.bench.throughput import drainload
from hack.bench.throughput.drain import COMMANDS, CRDS, START_S, prepare, warm_up
from hack.bench.throughput.drainshape import COHORTS, Shape, shape
from hack.bench.throughput.measuring import audited, cpu_s, peak_mib, started, writes_in
from hack.bench.throughput.runnerload import Ends, Limits, RunnerLoad
from hack.cluster import Cluster
from kube.client import Client
from kube.kubeconfig import from_kubeconfig

CONTROLLERS: Final = ("quota", "tessera", "kueue-policy")
SERVED: Final = {"both": "v1beta1 served", "off": "v1beta2 alone"}
LATE_S: Final = 10.0
QPS: Final = 30.0
"""With it an end is seen 10 s late or more on two cores, as it is on the published runner."""
EVICTIONS: Final = 29
KUEUE: Final = {
    "wall time": "107 s",
    "writes a workload": "3.77",
    "wait, half of all": "18 s",
    "wait, nine of ten": "39 s",
    "wait, longest": "56 s",
    "peak memory": "183 MiB",
    "evictions": "29 and 23",
}
"""On its own runner, two runs on two quiet cores."""
_LEAST: Final = 0.05
"""A ratio to less says nothing."""
_CRD: Final = "workloads.kueue.x-k8s.io"
_FLAGS: Final = {"max-requests-inflight": 800, "max-mutating-requests-inflight": 400}
"""The published runner's."""


@dataclass(frozen=True)
class Run:
    wall_s: float
    ends: Ends
    waits_s: list[float]
    evictions: int
    lost_s: float
    writes: float
    """Of the controller, a workload."""
    controller_cpu_s: float
    server_cpu_s: float
    generator_cpu_s: float
    peak_mib: float

    @property
    def cpu_s(self) -> float:
        return self.controller_cpu_s + self.server_cpu_s + self.generator_cpu_s

    @property
    def counts(self) -> bool:
        return self.ends.median_late_s >= LATE_S


Runs = dict[tuple[str, str], Run]
"""By controller and what is served."""


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    load = shape(options.factor, cohorts=options.cohorts)
    wanted = [(name, served) for served in options.served for name in options.controller]
    rounds: list[Runs] = []
    for turn in range(options.rounds):
        runs: Runs = {}
        for name, served in wanted[:: -1 if turn % 2 else 1]:
            load_said = ", ".join(f"{each:.1f}" for each in psutil.getloadavg())
            _tell(f"{load.workloads} workloads, {name} controller, {SERVED[served]}; load of the machine {load_said}")
            runs[name, served] = run = asyncio.run(_measure(name, served, load, options))
            _tell(f"{name}: {run.wall_s:.1f} s, {run.evictions} evictions, ends {run.ends.median_late_s:.1f} s late")
        show(load, {each: runs[each] for each in wanted})
        rounds.append(runs)
    if len(rounds) > 1:
        sum_up(rounds, wanted)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench runner", description=__doc__.split("\n")[0])
    parser.add_argument("--factor", type=float, default=0.2, help="of the published counts (default %(default)s)")
    parser.add_argument("--controller", choices=CONTROLLERS, nargs="+", default=["quota", "tessera"])
    parser.add_argument("--served", choices=SERVED, nargs="+", default=list(SERVED), help="of Workload's versions")
    parser.add_argument(
        "--qps", type=float, default=QPS, help="of the client that tells of ends (default %(default)s); 0: no limit"
    )
    parser.add_argument("--cohorts", type=int, default=COHORTS, choices=range(1, COHORTS + 1))
    parser.add_argument("--crds", type=Path, default=CRDS, help="folder of the kueue.x-k8s.io CRDs")
    parser.add_argument("--config", type=Path, help="of the tessera controller (default: none)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds before a run is given up")
    return parser.parse_args(words)


async def _measure(name: str, served: str, load: Shape, options: argparse.Namespace) -> Run:
    with (
        tempfile.TemporaryDirectory(prefix="tessera-runner-") as folder,
        audited(f"runner-{name}", Path(folder), flags=_FLAGS) as cluster,
    ):
        prepare(cluster, load, options.crds)
        if served == "off":
            stop_serving(cluster)
        command = [*COMMANDS[name], "--only", "core", "--kubeconfig", str(cluster.kubeconfig)]
        if options.config is not None and name == "tessera":
            command += ["--config", str(options.config)]
        servers = [psutil.Process(cluster.state.processes[program].pid) for program in ("apiserver", "etcd")]
        config = from_kubeconfig(cluster.kubeconfig)
        agent = Client(config, user_agent=drainload.AGENT, timeout_s=30.0, connections=drainload.CONNECTIONS)
        with started(name, command, cluster.log(f"controller-{name}")) as controller:
            async with agent as client:
                # Through the whole way once, so that the start of the controller is not in the run.
                first = await drainload.Load(client).run(warm_up(load), START_S)
                generator = RunnerLoad(client, limits=Limits(options.qps or None), statuses=name != "quota")
                with _cpu_of(servers) as server_s, _cpu_of([controller]) as own_s:
                    result = await generator.run(load, options.limit)
            peak = peak_mib(controller)
        writes = writes_in(Path(folder) / "audit.log", drainload.AGENT, expected=first.writes + result.writes)
        return Run(
            wall_s=result.wall_s,
            ends=generator.ends,
            waits_s=generator.waits_s,
            evictions=result.evictions,
            lost_s=result.lost_s,
            writes=writes.total() / (load.workloads + 1),
            controller_cpu_s=own_s[0],
            server_cpu_s=server_s[0],
            generator_cpu_s=result.cpu_s,
            peak_mib=peak,
        )


@contextmanager
def _cpu_of(processes: Sequence[psutil.Process]) -> Iterator[list[float]]:
    """What they use until the block ends, as the list's one item."""
    found: list[float] = []
    before_s = sum(map(cpu_s, processes))
    yield found
    found.append(sum(map(cpu_s, processes)) - before_s)


def stop_serving(cluster: Cluster) -> None:
    """v1beta1 of Workload."""
    versions = json.loads(cluster.kubectl("get", "crd", _CRD, "-o", "json"))["spec"]["versions"]
    at = next(number for number, version in enumerate(versions) if version["name"] == "v1beta1")
    patch = [{"op": "replace", "path": f"/spec/versions/{at}/served", "value": False}]
    cluster.kubectl("patch", "crd", _CRD, "--type", "json", "-p", json.dumps(patch))


def _part(share: float) -> Callable[[Run], float]:
    """Of the waits, the one that is longer than this share of all."""
    return lambda run: run.waits_s[min(len(run.waits_s) - 1, int(share * len(run.waits_s)))]


ROWS: Final[tuple[tuple[str, Callable[[Run], float], str], ...]] = (
    ("wall time", lambda run: run.wall_s, "{:.1f} s"),
    ("  statuses after the last end", lambda run: run.ends.statuses_s, "{:.1f} s"),
    ("total CPU", lambda run: run.cpu_s, "{:.1f} s"),
    ("  API server and etcd", lambda run: run.server_cpu_s, "{:.1f} s"),
    ("  controller", lambda run: run.controller_cpu_s, "{:.1f} s"),
    ("  generator", lambda run: run.generator_cpu_s, "{:.1f} s"),
    ("writes a workload", lambda run: run.writes, "{:.2f}"),
    ("wait, half of all", _part(0.5), "{:.1f} s"),
    ("wait, nine of ten", _part(0.9), "{:.1f} s"),
    ("wait, longest", _part(1.0), "{:.1f} s"),
    ("peak memory", lambda run: run.peak_mib, "{:.0f} MiB"),
    ("evictions", lambda run: float(run.evictions), "{:.0f}"),
    ("  of workloads that had ended", lambda run: float(run.ends.evicted_ended), "{:.0f}"),
    ("  run time lost", lambda run: run.lost_s, "{:.1f} s"),
    ("an end is seen late by", lambda run: run.ends.median_late_s, "{:.1f} s"),
)


def show(load: Shape, runs: Runs) -> None:
    """Each row with its ratio to the null controller with quota, where that ran under the same versions."""
    print(f"\nRunner: {load.workloads} workloads in {len(load.queues)} ClusterQueues, floor {load.floor_s:.1f} s")
    lines = [["", *(word for name, served in runs for word in (f"{name}, {SERVED[served]}", "of quota")), "Kueue"]]
    for what, of, form in ROWS:
        line = [what]
        for (name, served), run in runs.items():
            base = runs.get(("quota", served))
            told = base is not None and name != "quota" and of(base) >= _LEAST
            line += [form.format(of(run)), f"{of(run) / of(base):.2f}" if base is not None and told else ""]
        lines.append([*line, KUEUE.get(what, "")])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  " + "   ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    for (name, served), run in runs.items():
        if not run.counts:
            print(f"  {name}, {SERVED[served]}: ends are seen {run.ends.median_late_s:.1f} s late: it does not count.")


def sum_up(rounds: Sequence[Runs], wanted: Sequence[tuple[str, str]]) -> None:
    """Ratios count within their round, then their median; evictions of rounds that count."""
    print()
    for name, served in wanted:
        if name == "quota":
            continue
        found = [runs[name, served] for runs in rounds]
        told = ", ".join(f"{run.evictions}{'' if run.counts else ' (does not count)'}" for run in found)
        print(f"Evictions, {name}, {SERVED[served]}: {told}; target: {EVICTIONS} of 3000 at most in each")
        if ("quota", served) in wanted:
            for what in ("wall time", "total CPU"):
                of = next(of for named, of, _ in ROWS if named == what)
                ratios = [of(runs[name, served]) / of(runs["quota", served]) for runs in rounds]
                shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                print(f"{what} of quota's, {name}, {SERVED[served]}: {shown}; median {median(ratios):.2f} x")


def _tell(what: str) -> None:
    print(f"runner: {time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
