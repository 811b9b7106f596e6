"""A new leader decides nothing before its watch has brought all that its predecessor wrote."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from controller.runtime.catchup import catch_up
from controller.runtime.kinds import WORKLOADS
from kube.backoff import Backoff
from kube.client import Client
from kube.clock import SystemClock
from kube.reflector import Reflector
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
        await asyncio.wait_for(waiting, 5.0)
        following.cancel()


async def test_what_has_gone_meanwhile_is_not_waited_for() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.create(WORKLOADS, "a", namespace="ns")
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: bool(server.seen("GET", "workloads")))
        server.delete(WORKLOADS, "a", namespace="ns")
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, 5.0)
        following.cancel()


async def test_an_api_server_that_is_away_is_waited_for() -> None:
    async with FakeApiServer() as server, Client(server.config) as client, mirror(client) as reflector:
        server.down = True
        waiting = asyncio.create_task(catch_up(client, reflector, SystemClock()))
        await eventually(lambda: bool(server.seen("GET", "workloads")))
        server.down = False
        following = asyncio.create_task(reflector.run())
        await asyncio.wait_for(waiting, 5.0)
        following.cancel()
