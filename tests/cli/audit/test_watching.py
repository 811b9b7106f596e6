"""The record follows an API server: changes, outages, places that expired, rights that are missing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli.audit.recorder import Recorder
from cli.audit.watching_shell import NEEDED, First, first, record
from controller.cluster.watching.kinds import CLUSTER_QUEUES, COHORTS, JOBS, PODS, WORKLOADS
from history.settings import Settings
from kube.client import Client
from kube.clock import Backoff
from kube.errors import ForbiddenError, NotFoundError
from kube.resources import Resource
from kube.testing import FakeApiServer, VirtualClock, eventually


class Recording:
    """``lines`` grow while it runs."""

    def __init__(self, server: FakeApiServer, found: First, clock: VirtualClock) -> None:
        self.server, self.found, self.clock = server, found, clock
        self.lines: list[dict[str, Any]] = []

    def told(self) -> list[tuple[str, str]]:
        return [
            (each["type"], each.get("what") or each.get("object", {}).get("metadata", {}).get("name", ""))
            for each in self.lines
        ]

    async def until(self, *line: str) -> None:
        await eventually(lambda: line in self.told())


@asynccontextmanager
async def recording(server: FakeApiServer, clock: VirtualClock, for_s: float = 1e6) -> AsyncIterator[Recording]:
    async with Client(server.config) as client:
        found = await first(client)
        running = Recording(server, found, clock)
        recorder = Recorder(lambda line: running.lines.append(json.loads(line)), clock.monotonic())
        backoffs = [Backoff(random=lambda: 0.5, initial_s=1.0) for _ in found.listed]
        end = asyncio.Event()
        task = asyncio.create_task(record(client, found, recorder, Settings(), backoffs, clock, end, for_s))
        await running.until("SETTINGS", "")
        yield running
        end.set()
        await task
        assert running.told()[-1] == ("END", "")


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as found:
        found.create(PODS, "a", {"metadata": {}}, namespace="team")
        found.create(CLUSTER_QUEUES, "cq", {"metadata": {}})
        yield found


async def test_what_is_there_comes_first_and_changes_follow(server: FakeApiServer) -> None:
    clock = VirtualClock()
    async with recording(server, clock) as running:
        assert running.told() == [("SETTINGS", ""), ("ADDED", "cq"), ("ADDED", "a")]
        await eventually(lambda: server.watchers == len(running.found.listed))
        clock.advance(7)
        server.create(PODS, "b", {"metadata": {}}, namespace="team")
        await running.until("ADDED", "b")
        assert running.lines[-1]["t"] == 7.0
        server.merge(PODS, "a", {"spec": {"nodeName": "n1"}}, namespace="team")
        await running.until("MODIFIED", "a")
        server.delete(PODS, "a", namespace="team")
        await running.until("DELETED", "a")


async def test_it_ends_when_its_time_is_over(server: FakeApiServer) -> None:
    clock = VirtualClock()
    async with Client(server.config) as client:
        found, lines = await first(client), list[bytes]()
        recorder = Recorder(lines.append, clock.monotonic())
        backoffs = [Backoff(random=lambda: 0.5) for _ in found.listed]
        task = asyncio.create_task(
            record(client, found, recorder, Settings(), backoffs, clock, asyncio.Event(), for_s=60.0)
        )
        await eventually(lambda: clock.sleeping > 0)
        clock.advance(61)
        await task
    assert json.loads(lines[-1]) == {"t": 61.0, "source": "recorder", "type": "END"}


async def test_through_an_outage_it_is_blind_and_then_tells_what_differs(server: FakeApiServer) -> None:
    clock = VirtualClock()
    async with recording(server, clock) as running:
        await eventually(lambda: server.watchers == len(running.found.listed))
        server.refuse = lambda _method, path: 503 if path.endswith("/pods") else None
        server.cut()
        server.down = False
        await running.until("BLIND", "pods")
        server.delete(PODS, "a", namespace="team")
        server.create(PODS, "b", {"metadata": {}}, namespace="team")
        await until_refused_again(server, clock)
        assert ("SIGHT", "pods") not in running.told()
        server.refuse = lambda _method, _path: None
        await until_seen_again(clock, running)
        told = running.told()
        assert told.index(("BLIND", "pods")) < told.index(("DELETED", "a")) < told.index(("ADDED", "b"))
        assert told.index(("ADDED", "b")) < told.index(("SIGHT", "pods"))


async def until_refused_again(server: FakeApiServer, clock: VirtualClock, path: str = "/pods") -> None:
    asked = len(server.seen("GET", path))

    def is_refused() -> bool:
        clock.advance(30.0)
        return len(server.seen("GET", path)) > asked + 1

    await eventually(is_refused)


async def until_seen_again(clock: VirtualClock, running: Recording) -> None:
    """Back-offs pass until pods are listed again."""

    def is_seen() -> bool:
        clock.advance(30.0)
        return ("SIGHT", "pods") in running.told()

    await eventually(is_seen)


async def test_a_place_that_has_expired_is_left_for_a_list(server: FakeApiServer) -> None:
    clock = VirtualClock()
    async with recording(server, clock) as running:
        await eventually(lambda: server.watchers == len(running.found.listed))
        server.cut()
        await running.until("BLIND", "pods")
        server.create(PODS, "b", {"metadata": {}}, namespace="team")
        server.store.compact()
        server.down = False
        await until_seen_again(clock, running)
        assert ("ADDED", "b") in running.told()


async def test_a_kind_that_is_refused_later_is_done_without_and_one_that_is_needed_is_not(
    server: FakeApiServer,
) -> None:
    clock = VirtualClock()
    async with recording(server, clock) as running:
        await eventually(lambda: server.watchers == len(running.found.listed))
        server.refuse = lambda _method, path: 403 if path.endswith(("/jobsets", "/pods")) else None
        server.cut()
        server.down = False
        await until_refused_again(server, clock)
        await until_refused_again(server, clock, "/jobsets")
        assert any("jobsets: may not be followed" in what for _, what in running.told())
        assert ("BLIND", "pods") in running.told()
        server.refuse = lambda _method, _path: None
        await until_seen_again(clock, running)
        told = running.told()
        assert sum(line == ("BLIND", "jobsets") for line in told) == sum(line == ("SIGHT", "jobsets") for line in told)


@pytest.mark.parametrize("resource", NEEDED, ids=lambda each: each.plural)
async def test_a_needed_kind_that_may_be_listed_and_not_watched_ends_it(
    server: FakeApiServer, resource: Resource
) -> None:
    async with Client(server.config) as client:
        found, lines = await first(client), list[bytes]()
        server.refuse = lambda _method, path: 403 if path.endswith(f"/{resource.plural}") else None
        clock = VirtualClock()
        backoffs = [Backoff(random=lambda: 0.5) for _ in found.listed]
        recorder = Recorder(lines.append, clock.monotonic())
        with pytest.raises(ForbiddenError, match=resource.plural):
            await record(client, found, recorder, Settings(), backoffs, clock, asyncio.Event(), for_s=1e6)


async def test_what_may_not_be_listed_is_said_and_what_is_needed_fails(server: FakeApiServer) -> None:
    server.refuse = lambda _method, path: 403 if path.endswith("/jobs") else None
    server.unknown.add(COHORTS.plural)
    async with Client(server.config) as client:
        found = await first(client)
        assert found.unseen == ["jobs: may not be listed"]
        assert JOBS not in found.listed
        assert COHORTS not in found.listed
        server.refuse = lambda _method, path: 403 if path.endswith("/pods") else None
        with pytest.raises(ForbiddenError):
            await first(client)
        server.refuse = lambda _method, _path: None
        server.unknown.add(WORKLOADS.plural)
        with pytest.raises(NotFoundError):
            await first(client)
