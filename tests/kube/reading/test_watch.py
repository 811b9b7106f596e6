"""List and watch, through gaps."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.errors import ForbiddenError, StartingError
from kube.objects import Metadata
from kube.reading.reflector import Reflector
from kube.reading.watch import Deleted, Listed, Pace, Upserted, _Trouble, follow
from kube.resources import NODES
from kube.testing import FakeApiServer, VirtualClock, eventually


class Follower:
    """Keeps the names that the watch says exist, and how often it listed."""

    def __init__(self) -> None:
        self.labels: dict[str, dict[str, str]] = {}
        self.lists = 0

    async def run(self, client: Client) -> None:
        backoff = Backoff(random=lambda: 0.5, initial_s=0.001, maximum_s=0.01)
        async for change in follow(client, NODES, Metadata, clock=SystemClock(), backoff=backoff):
            match change:
                case Listed(items=items):
                    self.lists += 1
                    self.labels = {item.metadata.name: item.metadata.labels for item in items}
                case Upserted(item=item):
                    self.labels[item.metadata.name] = item.metadata.labels
                case Deleted(item=item):
                    self.labels.pop(item.metadata.name, None)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.create(NODES, "a")
        yield server


@pytest.fixture
async def follower(server: FakeApiServer) -> AsyncIterator[Follower]:
    follower = Follower()
    async with Client(server.config) as client:
        task = asyncio.create_task(follower.run(client))
        await eventually(lambda: "a" in follower.labels)
        yield follower
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_changes_arrive_as_they_happen(server: FakeApiServer, follower: Follower) -> None:
    server.create(NODES, "b")
    server.merge(NODES, "a", {"metadata": {"labels": {"x": "1"}}})
    await eventually(lambda: follower.labels == {"a": {"x": "1"}, "b": {}})
    server.delete(NODES, "b")
    await eventually(lambda: set(follower.labels) == {"a"})
    assert follower.lists == 1


async def test_what_was_deleted_in_a_gap_too_old_to_watch_is_noticed(server: FakeApiServer, follower: Follower) -> None:
    server.cut()
    server.create(NODES, "b")
    server.delete(NODES, "a")
    server.store.compact()
    server.down = False
    await eventually(lambda: set(follower.labels) == {"b"})
    assert follower.lists == 2


async def test_a_short_cut_is_watched_over_without_a_new_list(server: FakeApiServer, follower: Follower) -> None:
    server.cut()
    server.create(NODES, "b")
    server.down = False
    await eventually(lambda: set(follower.labels) == {"a", "b"})
    assert follower.lists == 1


async def test_missing_rights_are_waited_out(server: FakeApiServer, follower: Follower) -> None:
    server.refuse = lambda _method, _path: 403
    server.cut()
    server.down = False
    server.create(NODES, "b")
    await eventually(lambda: len(server.seen("GET", "nodes")) > 5)
    server.refuse = lambda _method, _path: None
    await eventually(lambda: set(follower.labels) == {"a", "b"})


async def test_a_watcher_of_a_fleet_begins_lasts_and_comes_back_at_its_own_pace(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, lasting, watch = VirtualClock(), list[int](), Client.watch_decoded

    def asked(client: Client, *args: Any, timeout_s: int, **options: Any) -> Any:
        lasting.append(timeout_s)
        return watch(client, *args, timeout_s=timeout_s, **options)

    monkeypatch.setattr(Client, "watch_decoded", asked)
    async with Client(server.config) as client:
        watcher = Reflector(
            client,
            NODES,
            msgspec.json.Decoder(Metadata).decode,
            lambda _change: None,
            clock=clock,
            backoff=Backoff(random=lambda: 0.5),
            pace=Pace(lasts_s=2700, after_cut_s=7.0, begin_s=3.0),
        )
        task = asyncio.create_task(watcher.run())
        await eventually(lambda: clock.sleeping == 1)
        assert not server.seen("GET", "nodes"), "a restarted fleet does not list at once"
        clock.advance(3.1)
        await eventually(lambda: watcher.synced and len(server.seen("GET", "nodes")) == 2)
        assert lasting == [2700]
        server.cut()
        server.down = False
        await eventually(lambda: clock.sleeping == 1)
        clock.advance(6.8)
        await asyncio.sleep(0)
        assert len(server.seen("GET", "nodes")) == 2
        clock.advance(0.3)
        await eventually(lambda: len(server.seen("GET", "nodes")) == 3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_a_refusal_behind_a_young_server_is_logged_and_each_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    trouble = _Trouble(NODES)
    young, refused = StartingError("429 storage", status=429), ForbiddenError("403 no", status=403)
    for error in (young, young, refused, refused, young):
        trouble.tell(error)
    assert trouble.is_there
    trouble.end()
    trouble.end()
    trouble.tell(young)
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [
        ("INFO", "cannot follow nodes, trying on: 429 storage"),
        ("WARNING", "cannot follow nodes, trying on: 403 no"),
        ("INFO", "following nodes again"),
        ("INFO", "cannot follow nodes, trying on: 429 storage"),
    ]
