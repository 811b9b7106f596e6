"""The drain on a modelled API server and virtual time: ``python -m hack.bench drain-model --seeds 4``.

The controller's term is the live one, from its watches to its writer; so is the load's generator. Only the API server
is a model (``busyserver``), and time is virtual: what the machine does besides changes nothing, and a seed gives the
same run each time. It shows the preemptors and their victims; only ``drain`` measures the controller's speed.
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from controller.cluster.config.load import default, load
from controller.cluster.config.settings import ControllerConfig, Policy
from controller.cluster.metrics.instruments import Instruments
from controller.cluster.metrics.observing import Counting
from controller.cluster.process.term import Replica, Term
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACES
from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Decision, Evicted
from hack.bench.throughput import virtual
from hack.bench.throughput.busyserver import BusyClient, BusyServer, Costs
from hack.bench.throughput.drain import KUEUE_POLICY
from hack.bench.throughput.drainload import CONNECTIONS, Load, Result
from hack.bench.throughput.drainshape import Shape, setting, shape
from hack.bench.throughput.runnerload import Ends, Limits, RunnerLoad

KINDS = {resource.kind: resource for resource in (CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACES)}
LIMIT_S = 3600.0
CONTROLLERS_CONNECTIONS = 12


class Run(NamedTuple):
    load: Result
    writes: int
    """The controller's."""
    server_busy: float
    """Share of the server's cores that was used."""
    victims: Counter[str]
    """Evictions that were written, by class of the victim and of the preemptor: more than the load's own count, which
    leaves out those who ended before they heard of it.
    """
    ends: Ends | None = None
    """Of the runner's load."""


class _Watched(Counting):
    """The usual counts, and the preemptor of each victim."""

    def __init__(self) -> None:
        super().__init__(Instruments(), local_queues=True)
        self.victims: Counter[str] = Counter()

    def carried_out(self, decision: Decision, after: Workload) -> None:
        super().carried_out(decision, after)
        if isinstance(decision, Evicted) and decision.by is not None:
            self.victims[f"{_class(decision.key)} for {_class(decision.by.key)}"] += 1


def _class(key: str) -> str:
    return key.partition("/")[2].partition("-")[0]


def config(policy: Policy, hold_s: float | None = None, at_most_s: float | None = None) -> ControllerConfig:
    """As ``drain`` starts the controller; with these in place of the defaults of ``holdEvictions`` and
    ``holdEvictionsAtMost``.
    """
    found = default() if policy is Policy.TESSERA else load(KUEUE_POLICY)
    given = {"hold_evictions_s": hold_s, "hold_evictions_at_most_s": at_most_s}
    return msgspec.structs.replace(found, **{name: value for name, value in given.items() if value is not None})


def drained(load: Shape, config: ControllerConfig, costs: Costs, seed: int, runner: Limits | None = None) -> Run:
    """One run, from the first creation until every end has been seen. ``runner``: with the load of Kueue's published
    runner under these limits.
    """
    return virtual.run(_drained(load, config, costs, seed, runner))


async def _drained(load: Shape, config: ControllerConfig, costs: Costs, seed: int, runner: Limits | None) -> Run:
    chance = random.Random(seed)
    server = BusyServer(costs, chance.random)
    for item in setting(load):
        server.put(KINDS[item["kind"]], item)
    clock, counting = virtual.LoopClock(), _Watched()
    client = BusyClient(server, "controller", CONTROLLERS_CONNECTIONS)
    feeds = Feeds(client, clock=clock, random=chance.random)
    replica = Replica("one", "tessera-system", None)
    term = Term(config, client, feeds, counting, clock=clock, replica=replica, may_write=lambda: True)
    async with feeds.running():
        working = asyncio.create_task(term.run())
        await asyncio.sleep(1.0)  # the statuses of the queues are written by then
        begun_s, busy_s, writes = clock.monotonic(), server.cores.busy_s, server.writes["controller"]
        agent = BusyClient(server, "generator", CONNECTIONS)
        generator = Load(agent, clock) if runner is None else RunnerLoad(agent, clock, limits=runner)
        result = await generator.run(load, LIMIT_S)
        busy = (server.cores.busy_s - busy_s) / costs.cores / (clock.monotonic() - begun_s)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    ends = generator.ends if isinstance(generator, RunnerLoad) else None
    return Run(result, server.writes["controller"] - writes, busy, counting.victims, ends)


def main(words: Sequence[str] = ()) -> None:
    options = _options(words)
    load = shape(options.factor)
    for write_ms in options.write_ms:
        for policy in list(Policy) if options.policy == "both" else [Policy(options.policy)]:
            costs, given = Costs(write_s=write_ms / 1000), config(policy, options.hold, options.at_most)
            runner = Limits(options.qps) if options.runner else None
            runs = [drained(load, given, costs, seed, runner) for seed in range(options.seeds)]
            _show(f"{policy.value}, {write_ms:g} ms of CPU a write", load, runs)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m hack.bench drain-model", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--factor", type=float, default=0.2, help="of the published counts (default %(default)s)")
    parser.add_argument("--policy", choices=[*Policy, "both"], default="both")
    parser.add_argument(
        "--write-ms", type=float, nargs="+", default=[4.0], help="CPU that a write takes on the server (default 4)"
    )
    parser.add_argument("--hold", type=float, help="seconds, in place of the default of tessera.holdEvictions")
    parser.add_argument("--at-most", type=float, help="the same of tessera.holdEvictionsAtMost")
    parser.add_argument("--runner", action="store_true", help="the load of Kueue's published runner, with its delays")
    parser.add_argument("--qps", type=float, help="of the runner's client that tells of ends (default: no limit)")
    parser.add_argument("--seeds", type=int, default=1, help="so many runs of each (default %(default)s)")
    return parser.parse_args(words)


def _show(title: str, load: Shape, runs: Sequence[Run]) -> None:
    def middle(of: Callable[[Run], float]) -> float:
        return median(map(of, runs))

    evictions = [run.load.evictions for run in runs]
    waits = [(kind, median(run.load.waits_s[kind] for run in runs)) for kind in runs[0].load.waits_s]
    victims = sum((run.victims for run in runs), Counter[str]()).most_common()
    print(f"\n{title}: {load.workloads} workloads, floor {load.floor_s:.1f} s")
    print(f"  wall time              {middle(lambda run: run.load.wall_s):.2f} s")
    print(f"  waits                  {', '.join(f'{kind} {wait_s:.1f} s' for kind, wait_s in waits)}")
    print(f"  evictions              {', '.join(map(str, evictions))}; median {median(evictions):g}")
    print(f"    by class, of a run   {', '.join(f'{what} {count / len(runs):.1f}' for what, count in victims)}")
    all_ends = [run.ends for run in runs if run.ends is not None]
    if all_ends:
        print(f"    of which had ended   {', '.join(str(ends.evicted_ended) for ends in all_ends)}")
        print(f"  ends seen late by      {', '.join(f'{ends.median_late_s:.1f} s' for ends in all_ends)}")
        print(f"  statuses after that    {', '.join(f'{ends.statuses_s:.1f} s' for ends in all_ends)}")
    print(f"  run time lost          {middle(lambda run: run.load.lost_s):.1f} s")
    print(f"    times their cpus     {middle(lambda run: run.load.lost_cpu_s):.1f} cpu s")
    print(f"  writes a workload      {middle(lambda run: run.writes) / load.workloads:.2f}")
    print(f"  last creation late by  {middle(lambda run: run.load.late_s):.1f} s")
    print(f"  server's cores used    {middle(lambda run: run.server_busy):.0%}", flush=True)
