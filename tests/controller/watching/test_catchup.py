"""A new leader decides nothing before its watch has brought all that its predecessor wrote."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from controller.watching.catchup import catch_up
from controller.watching.kinds import PODS, QUEUED_PODS, WORKLOADS
from kube.client import Client, Selection
from kube.clock import Backoff, SystemClock
from kube.reading.reflector import Reflector
from kube.testing import FakeApiServer, eventually


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
        await asyncio.wait_for(waiting, 60.0)
        following.cancel()


async def test_what_has_gone_meanwhile_is_not_waited_for() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.create(WORKLOADS, "a", namespace="ns")
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: bool(server.seen("GET", "workloads")))
        server.delete(WORKLOADS, "a", namespace="ns")
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, 60.0)
        following.cancel()


async def test_an_api_server_that_is_away_is_waited_for() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.down = True
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: bool(server.seen("GET", "workloads")))
        server.down = False
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, 60.0)
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
        await asyncio.wait_for(waiting, 60.0)
        assert [key.name for key in reflector] == ["ours"]
        following.cancel()
