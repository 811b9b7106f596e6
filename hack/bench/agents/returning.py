"""How a fleet comes back: the agents' own followers and writers, thousands of them, on virtual time.

The API server is played: it is away, or it is there and answers at once. What counts is when each request comes.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

from agent.cluster.nodewatch import NodeWatch
from agent.cluster.publisher import RESYNC_S
from agent.kubelet.podwatch import PodWatch
from agent.process.spread import Spread, fleet_backoff
from hack.bench.throughput.virtual import LoopClock, run
from kube.client import Client, Listing, WatchEvent
from kube.errors import ExpiredError, UnavailableError
from kube.writing.latest import LatestWriter


@dataclass
class PlayedServer:
    """``asked`` are the seconds in which requests came that it answered, ``refused`` those that found it away.

    ``away`` is set while it is. A restart forgets versions: a watch that goes on from an older one is told to list.
    """

    asked: list[float] = field(default_factory=list)
    refused: int = 0
    away: bool = False
    term: int = 0
    cuts: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        """Raises UnavailableError."""
        if self.away:
            self.refused += 1
            raise UnavailableError("connection refused")
        self.asked.append(asyncio.get_running_loop().time())

    def cut(self) -> None:
        """End all watches; it is away from now on."""
        self.away = True
        self.term += 1
        self.cuts.set()
        self.cuts = asyncio.Event()


class PlayedClient:
    """What followers use of ``kube.client.Client``."""

    def __init__(self, server: PlayedServer) -> None:
        self._server = server

    async def list_pages(self, *_words: object, **_options: object) -> AsyncGenerator[Listing[Any]]:
        self._server.ask()
        yield Listing((), str(self._server.term))

    async def watch_decoded(
        self, *_words: object, resource_version: str, timeout_s: int, **_options: object
    ) -> AsyncIterator[WatchEvent[Any]]:
        self._server.ask()
        if resource_version != str(self._server.term):
            raise ExpiredError("too old a version")
        yield WatchEvent("BOOKMARK", resource_version, None)
        try:
            async with asyncio.timeout(timeout_s):
                await self._server.cuts.wait()
        except TimeoutError:
            return
        raise UnavailableError("cut")


@dataclass(frozen=True)
class Returned:
    """Requests that were answered once the server was there. ``peak`` is the worst second's number of them."""

    requests: int
    refused: int
    peak: int
    lasted_s: float

    @property
    def mean(self) -> float:
        """Requests a second, over the time in which 99 of 100 came."""
        return self.requests / max(1.0, self.lasted_s)

    @property
    def ratio(self) -> float:
        return self.peak / self.mean if self.requests else 0.0


def returned(asked: list[float], since_s: float, refused: int) -> Returned:
    """What came after ``since_s``. A last hundredth, which back-offs stretch, makes the time no longer."""
    after = sorted(at_s for at_s in asked if at_s >= since_s)
    if not after:
        return Returned(0, refused, 0, 0.0)
    kept = after[: max(1, len(after) * 99 // 100)]
    seconds = Counter(int(at_s - kept[0]) for at_s in kept)
    return Returned(len(kept), refused, max(seconds.values()), max(1.0, kept[-1] - kept[0]))


def agent_of(number: int, window_s: float, *, restarted: bool) -> Spread:
    return Spread(f"gpu-pool-a-{number:05}", window_s, restarted)


def follow(server: PlayedServer, spread: Spread, *, writes: bool) -> list[Coroutine[Any, Any, None]]:
    """What one agent runs. ``writes``: it publishes labels and its GpuNode, each read and then written."""
    clock, random = LoopClock(), Random(spread.node).random
    client = cast("Client", PlayedClient(server))
    works = [
        PodWatch(clock=clock, spread=spread).follow(client, spread.node, random),
        NodeWatch(lambda: None, clock, spread).follow(client, spread.node, random),
    ]
    for what in ("labels", "GpuNode") if writes else ():
        writer = _writer(server, spread, what, clock, random)
        writer.put(what)
        works.append(writer.run(spread.start_s(what)))
    return works


def _writer(
    server: PlayedServer, spread: Spread, what: str, clock: LoopClock, random: Callable[[], float]
) -> LatestWriter[str]:
    async def write(_value: str) -> None:
        server.ask()  # it is read
        server.ask()  # and written

    return LatestWriter(
        what, write, clock=clock, backoff=fleet_backoff(random), resync_s=spread.every_s(what, *RESYNC_S)
    )


async def _fleet(agents: int, window_s: float, story: "Story") -> Returned:
    server = PlayedServer()
    async with asyncio.TaskGroup() as tasks:
        started = [
            tasks.create_task(work)
            for number in range(agents)
            for work in follow(server, agent_of(number, window_s, restarted=story.restarted), writes=story.restarted)
        ]
        since_s = 0.0
        if story.away_s is not None:
            await asyncio.sleep(60.0)
            server.cut()
            await asyncio.sleep(story.away_s)
            server.away = False
            since_s = asyncio.get_running_loop().time()
        await asyncio.sleep(story.look_s)
        for task in started:
            task.cancel()
    return returned(server.asked, since_s, server.refused)


@dataclass(frozen=True)
class Story:
    """``away_s``: for so long the server is away, None: it is there. ``restarted``: all agents start in one second."""

    what: str
    away_s: float | None = None
    restarted: bool = False
    look_s: float = 300.0


STORIES: Final = (
    Story("API server away for 3 s", 3.0),
    Story("API server away for 30 s", 30.0),
    Story("API server away for 5 min", 300.0),
    Story("driver upgraded, all agents start in one second", None, restarted=True),
)


def fleet(agents: int, window_s: float, story: Story) -> Returned:
    """What became of ``agents`` agents with that window."""
    return run(_fleet(agents, window_s, story))
