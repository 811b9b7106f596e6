"""From thousands of waiting workloads to none, on a real API server: ``python -m hack.bench drain --factor 0.2``.

Each controller gets a fresh control plane of its own, the same load, and is a separate process started by the same
command line: ours (``python -m controller --only core --kubeconfig FILE``) under either policy, and one that admits on
sight without any quota (``nullcontroller``). The ratio to that one tells what deciding costs; all share the machine
with the API server. The cost of preemption is the number of evicted workloads and how long they had run. Writes are
counted in the API server's audit log, by user agent; the generator's own are known, and must be found there.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from hack.bench.throughput import drainload
from hack.bench.throughput.drainshape import COHORTS, PUBLISHED, Class, Shape, nodes, setting, shape
from hack.cluster import Cluster, Spec, waiting
from kube.client import Client
from kube.config import from_kubeconfig

ROOT = Path(__file__).parents[3]
CRDS = ROOT / "charts" / "tessera" / "crds"
KUEUE_POLICY = ROOT / "hack" / "bench" / "kueue-policy.yaml"
COMMANDS = {
    "null": [sys.executable, "-m", "hack.bench.throughput.nullcontroller"],
    "tessera": [sys.executable, "-m", "controller"],
    "kueue-policy": [sys.executable, "-m", "controller", "--config", str(KUEUE_POLICY)],
}
"""The last two are ours, under ``policy: tessera`` and ``policy: kueue``."""
CHOICES = {**{name: (name,) for name in COMMANDS}, "both": ("null", "tessera"), "all": tuple(COMMANDS)}
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
    "against the null controller": "1.3 x",
    "controller, writes a workload": "3",
    "evictions": "30",
}
POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
"""
START_S = 60.0
CORES = psutil.cpu_count() or 1
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
    parser = argparse.ArgumentParser(prog="python -m hack.bench drain", description=__doc__.split("\n")[0])
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
    with tempfile.TemporaryDirectory(prefix="tessera-drain-") as folder, _cluster(name, Path(folder), load) as cluster:
        prepare(cluster, load, options.crds)
        servers = [psutil.Process(cluster.state.processes[program].pid) for program in ("apiserver", "etcd")]
        config = from_kubeconfig(cluster.kubeconfig)
        with _controller(name, cluster) as controller:
            agent = Client(config, user_agent=drainload.AGENT, timeout_s=30.0, connections=drainload.CONNECTIONS)
            async with agent as client:
                # Through the whole way once, so that the start of the controller is not in the drain.
                first = await drainload.Load(client).run(_warm_up(load), START_S)
                before_s, own_s, machine_s = sum(map(_cpu_s, servers)), _cpu_s(controller), _machine_cpu_s()
                result = await drainload.Load(client).run(load, options.limit)
                server_cpu_s = sum(map(_cpu_s, servers)) - before_s
                others_cpu_s = _machine_cpu_s() - machine_s - server_cpu_s - (_cpu_s(controller) - own_s) - result.cpu_s
            cpu_s, peak_mib = _cpu_s(controller), _peak_mib(controller)
        writes = _writes(Path(folder) / "audit.log", expected=first.writes + result.writes)
        return Run(result, writes, cpu_s, peak_mib, server_cpu_s, max(0.0, others_cpu_s))


@contextmanager
def _cluster(name: str, folder: Path, load: Shape) -> Iterator[Cluster]:
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    flags: dict[str, object] = {
        "audit-policy-file": policy,
        "audit-log-path": folder / "audit.log",
        "audit-log-mode": "batch",
        "audit-log-batch-max-wait": "1s",
        "audit-log-batch-buffer-size": 100_000,
    }
    unwatched: tuple[str, ...] = ()
    if load.topology:
        # The leases of the bench's nodes are not renewed and the taint of a new node stays on: the nodes stay as made.
        unwatched = ("--controllers=*,-node-lifecycle-controller",)
        flags["disable-admission-plugins"] = "TaintNodesByCondition"
    spec = Spec(
        nodes=(),
        apiserver_args=tuple(f"--{key}={value}" for key, value in flags.items()),
        controller_manager_args=unwatched,
    )
    with Cluster.up(f"drain-{name}", spec) as cluster:
        yield cluster


def prepare(cluster: Cluster, load: Shape, crds: Path) -> None:
    files = [file for file in sorted(crds.glob("*.yaml")) if "kueue.x-k8s.io" in file.read_text()]
    if not files:
        raise SystemExit(f"drain: {crds}: no CRD of kueue.x-k8s.io there; name their folder with --crds")
    cluster.kubectl("apply", "--server-side", *(word for file in files for word in ("-f", str(file))))
    waiting.until(lambda: _established(cluster), "the CRDs to be established", timeout_s=60.0, every_s=0.3)
    if load.topology:
        cluster.kubectl("create", "-f", "-", input="\n---\n".join(map(json.dumps, nodes())))
    items = list(setting(load))
    cluster.kubectl("apply", "--server-side", "-f", "-", input="\n---\n".join(map(json.dumps, items)))


def _established(cluster: Cluster) -> bool:
    """`kubectl wait` will not do: it fails on a CRD that has no conditions yet."""
    found = json.loads(cluster.kubectl("get", "crd", "-o", "json"))["items"]
    holds = [
        any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in (crd.get("status") or {}).get("conditions") or ()
        )
        for crd in found
    ]
    return bool(holds) and all(holds)


def _warm_up(load: Shape) -> Shape:
    return Shape(load.queues[:1], (Class("warm-up", 1, 1, 0.0, 1000, 0.0, 1),), load.topology)


@contextmanager
def _controller(name: str, cluster: Cluster) -> Iterator[psutil.Process]:
    """The controller's process until the block ends. Its log goes with the cluster's."""
    log = cluster.log(f"controller-{name}")
    command = [*COMMANDS[name], "--only", "core", "--kubeconfig", str(cluster.kubeconfig)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT)
    try:
        yield psutil.Process(process.pid)
    except BaseException:
        print(f"drain: the end of the {name} controller's log:\n{log.read_text()[-3000:]}", file=sys.stderr)
        raise
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _machine_cpu_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _peak_mib(process: psutil.Process) -> float:
    """The kernel's own high-water mark: ``ru_maxrss`` would count the parent from before the exec."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM:")) / 1024


def _writes(log: Path, *, expected: int) -> Counter[str]:
    """The controller's writes. The log is complete when the generator's are all in it."""
    found: dict[str, Counter[str]] = {}

    def complete() -> bool:
        found.clear()
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            agent = entry.get("userAgent", "").split("/")[0].split(" ")[0]
            where = entry.get("objectRef", {})
            what = "/".join(filter(None, (where.get("resource"), where.get("subresource"))))
            found.setdefault(agent, Counter())[what] += 1
        return found.get(drainload.AGENT, Counter()).total() >= expected

    waiting.until(complete, f"{expected} writes of the generator in the audit log", timeout_s=30.0, every_s=0.5)
    if (seen := found[drainload.AGENT].total()) != expected:
        raise RuntimeError(f"the audit log has {seen} writes of the generator, who made {expected}")
    # Beside ours there are the control plane's own parts and kubectl.
    ours = (agent for agent in found if agent != drainload.AGENT and not agent.startswith("kube"))
    return sum((found[agent] for agent in ours), Counter())


def _show(load: Shape, runs: dict[str, Run], *, compare: bool) -> None:
    rows: list[tuple[str, Callable[[Run], str]]] = [
        ("wall time", lambda run: f"{run.load.wall_s:.1f} s"),
        ("against the floor", lambda run: f"{run.load.wall_s / load.floor_s:.2f} x"),
    ]
    if "null" in runs:
        null_s = runs["null"].load.wall_s
        rows.append(("against the null controller", lambda run: f"{run.load.wall_s / null_s:.2f} x"))
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
        if "null" in rounds[0]:
            ratios = [runs[name].load.wall_s / runs["null"].load.wall_s for runs in rounds]
            told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"Against the null controller, {name}: {told}; median {median(ratios):.2f} x")


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
