"""What people who look at the page cost the controller: ``python -m hack.bench viewers [--viewers N] [--seconds N]``.

The port with its TLS, rounds, rows by their encoder, forecasts and questions of rights, as the controller runs them;
1,000 nodes of 8 GPUs and 10,000 workloads of which some twenty rows change each second. The viewers and the API server
are another process, and the engine's own decisions are not counted.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from controller.cluster.config.settings import Address
from controller.cluster.process.view import Forecasts
from controller.cluster.webhooks.keeper import OwnCertificates, SecretName
from controller.cluster.webhooks.service import service_names
from controller.insight.forecast.service_shell import ForecastService
from controller.objects.core import Namespace
from controller.objects.decode import GpuNode, decode
from controller.objects.queues import LocalQueue
from controller.objects.workload import Workload
from controller.people.page.events_shell import Hub
from controller.people.page.live import State
from controller.people.page.server_shell import PageServer, Source
from controller.people.page.session import Seals
from controller.people.visibility.answers import Answers
from controller.people.visibility.identity import User
from controller.people.visibility.reviews_shell import Reviews
from controller.people.visibility.server_shell import Leader, RefusedError, ViewServer
from controller.people.visibility.service_shell import ViewService
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from hack.bench.decisions.engineload import NOW_S, POLICIES, engine_of, read_workload, workload
from hack.bench.decisions.forecasttrace import SIZES
from hack.bench.decisions.page import GPUS, node
from hack.bench.table import Row, show
from inventory.api.names import RUNTIME
from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.config import ClusterConfig

SERVICE = ("tessera-system", "tessera-controller")
TEAMS = 20
ENDS, NODES = 5, 10
"""Each second so many workloads end, as many come, and the holders of so many nodes change."""
_LINE = 1 << 20


def main(words: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog=".venv/bin/python -m hack.bench viewers", description=__doc__.split("\n")[0])
    parser.add_argument("--viewers", type=int, default=200, help="people with the page open")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each of the two runs is measured")
    parser.add_argument("--quick", action="store_true", help="a tenth of the fleet and of the time")
    options = parser.parse_args(words)
    scale = 10 if options.quick else 1
    # As the controller does once it has started.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    rows = []
    for teams in (0, TEAMS):
        fleet = Fleet(1_000 // scale, 10_000 // scale)
        rows += asyncio.run(measured(fleet, options.viewers, teams, options.seconds / scale))
    title = f"{options.viewers} viewers: {1_000 // scale:,} nodes of {GPUS} GPUs, {10_000 // scale:,} workloads"
    show(title, rows)


@dataclass
class Fleet:
    """The controller's state, and what changes in it. Namespaces are ``team-0`` to ``team-19``, a queue each."""

    nodes: int
    workloads: int
    engine: Engine = field(init=False)
    gpu_nodes: dict[str, GpuNode] = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(1)
        self._came = 0
        self.engine = engine_of(POLICIES["tessera"], TEAMS, 2, nominal=GPUS * self.nodes // TEAMS)
        for team in range(TEAMS):
            name, spec = f"team-{team}", {"clusterQueue": f"cq-{team}"}
            self.engine.put(decode({"metadata": {"name": name}}, Namespace), NOW_S)
            local = {"metadata": {"name": f"cq-{team}", "namespace": name}, "spec": spec}
            self.engine.put(decode(local, LocalQueue), NOW_S)
        for _ in range(self.workloads):
            self.come()
        self._settle()
        self.gpu_nodes = {f"node-{number}": self._node(number, GPUS) for number in range(self.nodes)}

    @property
    def namespaces(self) -> list[str]:
        return [f"team-{team}" for team in range(TEAMS)]

    def workload_of(self, pod: str) -> str | None:
        """As the annotation of a pod says it."""
        namespace, _, name = pod.partition("/")
        return f"{namespace}/job-{name}"

    def come(self) -> None:
        team, number = self._draw.randrange(TEAMS), self._came
        self._came += 1
        job = read_workload(workload(f"job-{number}", f"cq-{team}", self._draw.choice(SIZES), 0, at=number))
        told_s = self._draw.lognormvariate(8.0, 1.3) * self._draw.uniform(0.3, 5.0)
        metadata = msgspec.structs.replace(
            job.metadata, namespace=f"team-{team}", annotations={RUNTIME: f"{round(told_s) + 1}s"}
        )
        self.engine.put(msgspec.structs.replace(job, metadata=metadata), NOW_S)

    def change(self) -> None:
        """One second of life."""
        holders = list(self.engine.state.cluster.holders.values())
        for holder in self._draw.sample(holders, min(ENDS, len(holders))):
            meta = holder.info.workload.metadata
            self.engine.drop(Workload, meta.namespace, meta.name, NOW_S)
            self.come()
        for number in self._draw.sample(range(self.nodes), min(NODES, self.nodes)):
            self.gpu_nodes[f"node-{number}"] = self._node(number, self._draw.randrange(GPUS + 1))
        self._settle()

    def _settle(self) -> None:
        while not self.engine.settled(NOW_S):
            self.engine.cycle(NOW_S)

    def _node(self, number: int, held: int) -> GpuNode:
        return node(number, held=held, namespace=f"team-{number % TEAMS}")


async def measured(fleet: Fleet, viewers: int, teams: int, seconds: float) -> list[Row]:
    """CPU of this process while so many look."""
    command = [sys.executable, "-m", "hack.bench.web.watching", str(viewers), str(teams)]
    others = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LINE
    )
    try:
        return await _measured(fleet, _Pipe(others), teams, seconds)
    finally:
        with suppress(ProcessLookupError):
            others.kill()
        await others.wait()


class _Pipe:
    def __init__(self, others: asyncio.subprocess.Process) -> None:
        assert others.stdin is not None
        assert others.stdout is not None
        self._in, self._out = others.stdin, others.stdout

    async def told(self) -> dict[str, Any]:
        line = await self._out.readline()
        if not line:
            raise RuntimeError("the viewers' process came to an end")
        found: dict[str, Any] = json.loads(line)
        return found

    def say(self, told: dict[str, Any]) -> None:
        self._in.write(json.dumps(told).encode() + b"\n")


async def _measured(fleet: Fleet, pipe: _Pipe, teams: int, seconds: float) -> list[Row]:
    config = ClusterConfig(server=(await pipe.told())["server"])
    async with Client(config) as client:
        service, hub, forecasts = _served(fleet, client)
        forecasting = asyncio.create_task(forecasts.run())
        await service.round()
        try:
            begun_s = time.process_time()
            pipe.say({"port": service.server.port, "authority": service.server.trust.own.decode()})
            first, opened_s = await pipe.told(), time.process_time() - begun_s
            whole_s, decided_s, rounds_s = time.process_time(), 0.0, hub.spent_s
            begun_s = time.monotonic()
            while time.monotonic() < begun_s + seconds:
                await asyncio.sleep(1.0)
                before_s = time.thread_time()
                fleet.change()
                decided_s += time.thread_time() - before_s
            took_s = time.monotonic() - begun_s
            whole_s, rounds_s = time.process_time() - whole_s - decided_s, hub.spent_s - rounds_s
            pipe.say({"end": True})
            last = await pipe.told()
        finally:
            forecasting.cancel()
            await hub.close()
            await service.server.stop()
            await asyncio.gather(forecasting, return_exceptions=True)
    name = f"each sees one of {teams} namespaces" if teams else "all see everything"
    sent = f"{last['sent'] / took_s / 1e3:.0f} kB a second to all, {last['marks'] / took_s:.2f} times a second to each"
    return [
        Row(f"{name}: CPU of the server's process", f"{whole_s / took_s:.1%} of a core", "30 %"),
        Row("  of which rounds", f"{rounds_s / took_s:.1%}", ""),
        Row("  sent", f"{sent}; {last['ended']} streams ended", ""),
        Row("  until all had the first snapshot, CPU", f"{opened_s:.1f} s, {first['sent'] / 1e6:.0f} MB", ""),
    ]


def _served(fleet: Fleet, client: Client) -> tuple[ViewService, Hub, ForecastService]:
    """The port as the controller makes it, on an engine that stands still between two changes."""
    clock, engine, known = SystemClock(), fleet.engine, frozenset(fleet.namespaces)
    forecasts = ForecastService(engine, clock)

    def answers() -> Answers:
        return Answers(engine, lambda _: None, clock.wall())

    def state() -> State:
        foretold = Forecasts(forecasts.latest(), clock.wall()).of
        return State(engine, dict, lambda: fleet.gpu_nodes, fleet.workload_of, {}, foretold)

    async def ask(_path: str, _user: User, _body: bytes | None) -> tuple[int, bytes]:
        raise RefusedError(503, "there is one replica")

    async def relay(_request: web.Request, _path: str, _user: User) -> web.StreamResponse:
        raise RefusedError(503, "there is one replica")

    reviews = Reviews(client, clock)
    server = ViewServer(Address("127.0.0.1", 0), reviews, Leader(answers, lambda: known, ask), clock)
    certificates = OwnCertificates(client, SecretName(SERVICE[0], "web"), names=service_names(*SERVICE), clock=clock)
    service = ViewService(client, server, certificates, SERVICE, clock=clock, backoff=Backoff(random=random.random))
    hub = Hub(state, lambda: known, lambda: _queue_of, clock)
    source = Source(answers, state, lambda: fleet.namespaces, relay, Seals(lambda: service.secrets).of)
    server.page = PageServer(server, reviews, source, hub, clock)
    return service, hub, forecasts


def _queue_of(key: str) -> str | None:
    return "cq-" + WorkloadKey(key).partition("/")[0].rpartition("-")[2]
