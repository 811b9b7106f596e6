"""Many agents that come back to a real API server, from the recorded requests of one: more each time, until it is full.

Each played agent does on the wire what the recorded one did: a list and a watch of each kind on connections of their
own, which stay, and the two comparisons. Only its node's name differs. All come within the window, by their places.
"""

import asyncio
import os
import re
import ssl
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import psutil

from agent.process.spread import SOON, Spread
from hack.bench.agents.exchanges import Exchange
from hack.bench.agents.traffic import NODE
from hack.bench.table import Row
from hack.bench.throughput.measuring import CORES, cpu_s, machine_cpu_s, memory_mib
from hack.cluster.cluster import Cluster
from hack.cluster.controlplane.pki import Pki

FIRST_A_SECOND: Final = 20
"""Agents for each second of the window, in the smallest fleet."""
SLOW_S: Final = 1.0
"""A server whose 99th answer of 100 takes longer is full."""
GIVE_UP_S: Final = 60.0
HELD_S: Final = 5.0
KINDS: Final = (("nodes", "Node", 1.0), ("gpulayouts", "GpuLayouts", 1.0), ("pods", "Pods", SOON))
COMPARED: Final = (("nodes", "labels"), ("gpunodes", "GpuNode"))


@dataclass(frozen=True)
class Script:
    """The recorded requests by kind, as bytes."""

    lists: dict[str, bytes]
    watches: dict[str, bytes]
    gets: dict[str, bytes]

    def of(self, raw: bytes, node: str) -> bytes:
        """The same request of another node's agent; none of these has a body."""
        return raw.replace(NODE.encode(), node.encode())


def script(exchanges: Iterable[Exchange]) -> Script:
    """The last of each kind. Raises KeyError with what was not recorded."""
    last = {each.kind: each.raw for each in exchanges}
    lists = {kind: _once(last[f"LIST {kind}"]) for kind, _, _ in KINDS}
    watches = {kind: last[f"WATCH {kind}"] for kind, _, _ in KINDS}
    return Script(lists, watches, {kind: _once(last[f"GET {kind}"]) for kind, _ in COMPARED})


def _once(raw: bytes) -> bytes:
    """The connection of this request is closed by its answer: its end says that the answer is whole."""
    return raw.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


@dataclass
class Fleet:
    """``took_s``: from asking until a watch is there, or a comparison's answer. ``held`` are the watches."""

    target: tuple[str, int]
    tls: ssl.SSLContext
    script: Script
    window_s: float
    took_s: list[float] = field(default_factory=list)
    failed: int = 0
    held: list[asyncio.StreamWriter] = field(default_factory=list)

    async def come(self, agents: int) -> None:
        """All of them, within the window; returns when each has its answers."""
        async with asyncio.timeout(GIVE_UP_S + self.window_s), asyncio.TaskGroup() as tasks:
            for number in range(agents):
                spread = Spread(f"gpu-{number:05}", self.window_s)
                for kind, what, share in KINDS:
                    tasks.create_task(self._timed(spread.pause_s(what, share), self._watch(kind, spread.node)))
                for kind, what in COMPARED:
                    get = self.script.of(self.script.gets[kind], spread.node)
                    tasks.create_task(self._timed(spread.pause_s(what), self._ask(get)))

    async def _timed(self, pause_s: float, work: Coroutine[Any, Any, object]) -> None:
        await asyncio.sleep(pause_s)
        begun_s = time.monotonic()
        try:
            await work
        except (OSError, ValueError, asyncio.IncompleteReadError):
            self.failed += 1
        self.took_s.append(time.monotonic() - begun_s)

    async def _watch(self, kind: str, node: str) -> None:
        listed = await self._ask(self.script.of(self.script.lists[kind], node))
        version = re.search(rb'"resourceVersion":"(\d+)"', listed)
        if version is None:
            raise ValueError("a list without a version")
        raw = self.script.of(self.script.watches[kind], node)
        reader, writer = await self._open()
        self.held.append(writer)
        writer.write(re.sub(rb"resourceVersion=\d*", b"resourceVersion=" + version[1], raw))
        _refuse(await reader.readuntil(b"\r\n\r\n"))

    async def _ask(self, raw: bytes) -> bytes:
        reader, writer = await self._open()
        try:
            writer.write(raw)
            answer = await reader.read()
        finally:
            writer.transport.abort()
        _refuse(answer, absent=True)
        return answer

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.target, ssl=self.tls)

    async def leave(self) -> None:
        for writer in self.held:
            writer.transport.abort()
        self.held.clear()
        await asyncio.sleep(1.0)


def _refuse(answer: bytes, *, absent: bool = False) -> None:
    """Raises ValueError for an answer that is none; the played Nodes are not there."""
    code = answer[9:12]
    if code != b"200" and not (absent and code == b"404"):
        raise ValueError(f"the API server answered {code!r}")


@dataclass(frozen=True)
class Load:
    """One size: seconds of CPU while they came, of a core at rest, memory; ``busy`` is the machine's share."""

    agents: int
    requests: int
    failed: int
    p99_s: float
    server_cpu_s: float
    own_cpu_s: float
    rest_share: float
    memory_mib: float
    busy: float

    @property
    def full(self) -> bool:
        return self.failed > 0 or self.p99_s > SLOW_S


async def _measure(cluster: Cluster, fleet: Fleet, agents: int) -> Load:
    server = psutil.Process(cluster.state.processes["apiserver"].pid)
    own = psutil.Process(os.getpid())
    before, begun_s = (cpu_s(server), cpu_s(own), machine_cpu_s()), time.monotonic()
    fleet.took_s, fleet.failed = [], 0
    try:
        await fleet.come(agents)
    except TimeoutError:
        fleet.failed += 1
    lasted_s = time.monotonic() - begun_s
    after = cpu_s(server), cpu_s(own), machine_cpu_s()
    await asyncio.sleep(HELD_S)
    rest_share = (cpu_s(server) - after[0]) / HELD_S
    took = sorted(fleet.took_s)
    return Load(
        agents,
        agents * (2 * len(KINDS) + len(COMPARED)),
        fleet.failed,
        took[len(took) * 99 // 100] if took else float("inf"),
        after[0] - before[0],
        after[1] - before[1],
        rest_share,
        memory_mib(server, "VmRSS"),
        (after[2] - before[2]) / lasted_s / CORES,
    )


async def _grow(cluster: Cluster, exchanges: Sequence[Exchange], window_s: float, most: int) -> list[Load]:
    address = urlsplit(cluster.server)
    tls = ssl.create_default_context(cafile=Pki(cluster.paths.pki).ca)
    fleet = Fleet((str(address.hostname), int(address.port or 0)), tls, script(exchanges), window_s)
    loads: list[Load] = []
    agents = max(1, int(FIRST_A_SECOND * window_s))
    while agents <= most and not (loads and loads[-1].full):
        loads.append(await _measure(cluster, fleet, agents))
        await fleet.leave()
        agents *= 2
    return loads


def rows(cluster: Cluster, exchanges: Sequence[Exchange], window_s: float, most: int) -> list[Row]:
    """A row for each size, and the reason for the last one."""
    loads = asyncio.run(_grow(cluster, exchanges, window_s, most))
    table = []
    for load in loads:
        rate = load.requests / window_s
        table += [
            Row(
                f"{load.agents} agents come within {window_s:g} s ({rate:.0f} requests a second): p99; failed",
                f"{load.p99_s * 1000:.0f} ms; {load.failed}",
                "",
            ),
            Row(
                "  CPU of the API server; of the generator; of the machine",
                f"{load.server_cpu_s:.1f} s; {load.own_cpu_s:.1f} s; {load.busy * 100:.0f} %",
                "",
            ),
            Row(
                f"  held: {3 * load.agents} watches; API server's CPU, memory",
                f"{load.rest_share * 100:.0f} % of a core; {load.memory_mib:.0f} MiB",
                "",
            ),
        ]
    return [*table, Row("the wall", wall(loads, window_s), "")]


def wall(loads: Sequence[Load], window_s: float) -> str:
    """Why no more agents came, in a line."""
    last = loads[-1]
    if not last.full:
        return f"none up to {last.agents} agents"
    cost_ms = 1000 * last.server_cpu_s / last.requests
    borne = max((load.agents for load in loads if not load.full), default=0)
    each = f"{borne} agents borne in {window_s:g} s; {cost_ms:.1f} ms of the server's CPU a request"
    if last.busy > 0.9:  # noqa: PLR2004 - nothing is left of the machine
        return f"CPU: {last.busy * 100:.0f} % of {CORES} cores; {each}"
    return f"answers of {last.p99_s:.1f} s with {last.failed} failed; {each}"
