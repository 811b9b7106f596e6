"""A new leader decides nothing before its watch has brought all that its predecessor wrote."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.cluster.watching.catchup import catch_up
from controller.cluster.watching.kinds import PODS, QUEUED_PODS, WORKLOADS
from kube.client import Client, Selection
from kube.clock import Backoff, SystemClock
from kube.reading.reflector import Reflector
from kube.testing import FakeApiServer, eventually
from tests.support.hang import HANG_S


@asynccontextmanager
async def mirror(client: Client) -> AsyncIterator[Reflector[Any]]:
    backoff = Backoff(random=random.random, initial_s=0.01, maximum_s=0.02)
    reflector: Reflector[Any] = Reflector(
        client, WORKLOADS, lambda raw: raw, lambda _: None, clock=SystemClock(), backoff=backoff
    )
    yield reflector


async def test_a_watch_that_lags_is_waited_for() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.create(WORKLOADS, "a", namespace="ns")
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: bool(server.seen("GET", "workloads")))
        await asyncio.sleep(0.1)
        assert not waiting.done(), "the watch knows nothing of it yet"
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, HANG_S)
        following.cancel()


async def test_what_has_gone_meanwhile_is_not_waited_for() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.create(WORKLOADS, "a", namespace="ns")
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: bool(server.seen("GET", "workloads")))
        server.delete(WORKLOADS, "a", namespace="ns")
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, HANG_S)
        following.cancel()


async def test_an_api_server_that_is_away_is_waited_for() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.down = True
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: bool(server.seen("GET", "workloads")))
        server.down = False
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, HANG_S)
        following.cancel()


async def test_of_pods_only_those_that_count_are_waited_for() -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        server.create(PODS, "ours", {"metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}}}, namespace="ns")
        server.create(PODS, "theirs", namespace="ns")
        backoff = Backoff(random=random.random, initial_s=0.01, maximum_s=0.02)
        chosen = Selection(label_selector=QUEUED_PODS.selector)
        reflector: Reflector[Any] = Reflector(
            client, PODS, lambda raw: raw, lambda _: None, clock=SystemClock(), backoff=backoff, selection=chosen
        )
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock(), PODS, chosen))
        await eventually(lambda: bool(server.seen("GET", "pods")))
        await asyncio.sleep(0.1)
        assert not waiting.done(), "the watch knows nothing of ours yet"
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, HANG_S)
        assert [key.name for key in reflector] == ["ours"]
        following.cancel()


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """One object is many."""
    monkeypatch.setattr("controller.cluster.watching.catchup._MANY", 1)


@pytest.mark.usefixtures("many")
async def test_of_many_objects_a_second_watch_tells_what_the_first_has_to_bring() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.create(WORKLOADS, "a", namespace="ns")
        following = asyncio.create_task(reflector.run())
        await eventually(lambda: server.watchers == 1)
        before = len(server.seen("GET", "workloads"))
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: server.watchers == 2)
        await asyncio.sleep(0.05)
        assert not waiting.done(), "nobody knows whether there is more"
        server.bookmark()
        await asyncio.wait_for(waiting, HANG_S)
        assert len(server.seen("GET", "workloads")) - before == 2, "the version, and the watch"
        following.cancel()


@pytest.mark.usefixtures("many")
async def test_what_the_first_watch_has_not_brought_is_waited_for_and_what_is_gone_too() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        for name in "ab":
            server.create(WORKLOADS, name, namespace="ns")
        following = asyncio.create_task(reflector.run())
        await eventually(lambda: len(reflector) == 2 and server.watchers == 1)
        following.cancel()  # it has stopped, as if it lagged
        server.delete(WORKLOADS, "a", namespace="ns")
        server.merge(WORKLOADS, "b", {"metadata": {"labels": {"x": "y"}}}, namespace="ns")
        before = len(server.seen("GET", "workloads"))
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: len(server.seen("GET", "workloads")) == before + 2)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, HANG_S)
        assert [key.name for key in reflector] == ["b"]
        following.cancel()


@pytest.mark.usefixtures("many")
async def test_where_the_second_watch_cannot_say_all_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.cluster.watching.catchup._GIVEN_UP_S", 0.1)
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.create(WORKLOADS, "a", namespace="ns")
        following = asyncio.create_task(reflector.run())
        await eventually(lambda: server.watchers == 1)
        await asyncio.wait_for(catch_up(client, reflector, SystemClock()), HANG_S)
        following.cancel()
