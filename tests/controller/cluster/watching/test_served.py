"""Kinds that come and go with their CRD: followed while the API server has them, and nothing waits for them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.cluster.watching.feeds import ASK_S, Feeds
from controller.cluster.watching.inbox import ObjectChange
from controller.cluster.watching.kinds import GPU_NODES, JOBS, PODS, is_custom
from controller.jobs.framework.kind import JobKind
from controller.jobs.kinds.table import JOB_KINDS
from controller.reconcile.jobshell.watched import read_job, resource_of
from kube.client import Client
from kube.reading.reflector import Added, Removed
from kube.resources import Resource
from kube.testing import FakeApiServer, VirtualClock, eventually

THINGS = Resource("example.dev", "v1", "things", "Thing", namespaced=True)
OTHERS = Resource("example.dev", "v1", "others", "Other", namespaced=True)
BODY = {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {}}


class Scene:
    """Feeds of Jobs, Things and Others, of which a cluster may lack the last two."""

    def __init__(self, server: FakeApiServer, client: Client) -> None:
        self.server = server
        self.clock = VirtualClock()
        kinds: dict[Resource, Any] = dict.fromkeys((JOBS, THINGS, OTHERS), read_job)
        self.feeds = Feeds(client, clock=self.clock, random=lambda: 0.5, readers=kinds, may_lack=(THINGS, OTHERS))
        self.told: list[str] = []

    def hear(self, observed: ObjectChange) -> None:
        match observed.change:
            case Added(key=key):
                self.told.append(f"+{observed.resource.plural}/{key.name}")
            case Removed(key=key):
                self.told.append(f"-{observed.resource.plural}/{key.name}")

    async def later(self, condition: Any) -> None:
        """Let time pass until the condition holds."""

        def holds() -> bool:
            self.clock.advance(0.2)
            return bool(condition())

        await eventually(holds)

    async def asked_again(self) -> None:
        before = len(self.server.seen("GET", "/apis"))
        await self.later(lambda: len(self.server.seen("GET", "/apis")) > before + 3)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with FakeApiServer() as server, Client(server.config) as client:
        made = Scene(server, client)
        yield made


async def synced(made: Scene) -> None:
    waiting = asyncio.ensure_future(made.feeds.introduce(made.hear))
    await made.later(waiting.done)
    await waiting


async def test_a_kind_of_the_core_group_is_followed_though_discovery_does_not_name_it() -> None:
    async with scene() as made, made.feeds.running():
        await synced(made)
        await made.feeds.follow(PODS, read_job)
        assert made.feeds.is_served(PODS)
        made.server.create(PODS, "p", {"apiVersion": "v1", "kind": "Pod", "metadata": {}}, namespace="ns")
        await made.later(lambda: "+pods/p" in made.told)


async def test_nothing_waits_for_a_kind_that_is_not_there_and_discovery_alone_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with scene() as made, made.feeds.running():
        await synced(made)
        assert made.feeds.unsynced == ()
        await made.asked_again()
        assert not made.server.seen("GET", "/things")
        assert [record.message for record in caplog.records if "there" in record.message] == [
            "not there: things, others"
        ]


async def test_a_kind_that_is_there_at_the_start_is_listed_before_anything_is_decided() -> None:
    async with scene() as made:
        made.server.create(THINGS, "a", BODY, namespace="team")
        made.server.unknown.add("others")
        async with made.feeds.running():
            await synced(made)
            assert made.told == ["+things/a"]
            assert not made.feeds[OTHERS].synced


async def test_a_kind_that_comes_later_is_followed_within_ten_seconds_and_unreadiness_never_shows() -> None:
    async with scene() as made, made.feeds.running():
        await synced(made)
        made.server.unknown.add("others")
        await eventually(lambda: made.clock.next_wake_s is not None, what="asleep until the next question")
        made.server.install(THINGS)
        made.clock.advance(ASK_S)
        unready: set[str] = set()

        def there() -> bool:
            unready.update(made.feeds.unsynced)
            return made.feeds[THINGS].synced

        await eventually(there)
        assert ASK_S <= 5.0
        assert not unready
        made.server.create(THINGS, "b", BODY, namespace="team")
        await made.later(lambda: made.told == ["+things/b"])


async def test_a_kind_that_goes_takes_its_objects_with_it_once_without_an_error_and_may_come_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with scene() as made:
        made.server.create(THINGS, "a", BODY, namespace="team")
        async with made.feeds.running():
            await synced(made)
            made.server.uninstall(THINGS)
            await made.later(lambda: "things are not served any more" in caplog.text)
            assert made.told == ["+things/a", "-things/a"]
            assert made.feeds.unsynced == ()
            listed = len(made.server.seen("GET", "/things"))
            await made.asked_again()
            assert len(made.server.seen("GET", "/things")) == listed, "a kind that is gone is not listed"
            made.server.install(THINGS)
            made.server.create(THINGS, "a", BODY, namespace="team")
            await made.later(lambda: made.told[2:] == ["+things/a"])
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_one_answer_that_a_kind_is_not_there_does_not_take_its_objects_away() -> None:
    async with scene() as made:
        made.server.create(THINGS, "a", BODY, namespace="team")
        async with made.feeds.running():
            await synced(made)
            answers = iter([404, 404])
            made.server.refuse = lambda _method, path: next(answers, None) if "/things" in path else None
            made.server.store.compact()
            made.server.create(THINGS, "b", BODY, namespace="team")
            await made.later(lambda: made.told == ["+things/a", "+things/b"])


async def test_a_kind_that_may_not_be_read_counts_as_absent_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as made:
        made.server.install(THINGS)
        made.server.refuse = lambda _method, path: 403 if "/things" in path else None
        async with made.feeds.running():
            await synced(made)
            await made.asked_again()
            assert caplog.text.count("things are there and cannot be read") == 1
            made.server.refuse = lambda _method, _path: None
            await made.later(lambda: made.feeds[THINGS].synced)


async def test_a_kind_whose_storage_is_being_set_up_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as made:
        made.server.create(THINGS, "a", BODY, namespace="team")
        made.server.install(OTHERS)
        made.server.refuse = lambda _method, path: 429 if "/others" in path else None
        async with made.feeds.running():
            await synced(made)
            assert made.told == ["+things/a"]
            made.server.refuse = lambda _method, _path: None
            await made.later(lambda: made.feeds[OTHERS].synced)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("for_ever", [False, True])
async def test_a_kind_that_decides_is_waited_for_while_its_storage_is_set_up_but_not_for_ever(for_ever: bool) -> None:
    async with FakeApiServer() as server, Client(server.config) as client:
        made = Scene(server, client)
        kinds: dict[Resource, Any] = {GPU_NODES: read_job}
        made.feeds = Feeds(client, clock=made.clock, random=lambda: 0.5, readers=kinds, may_lack=(GPU_NODES,))
        server.install(GPU_NODES)
        server.refuse = lambda _method, path: 429 if "/gpunodes" in path else None
        async with made.feeds.running():
            waiting = asyncio.ensure_future(made.feeds.synced())
            await made.later(lambda: len(server.seen("GET", "/gpunodes")) >= 3)
            assert not waiting.done()
            if not for_ever:
                server.refuse = lambda _method, _path: None
            await made.later(waiting.done)
            assert made.feeds[GPU_NODES].synced is not for_ever


async def test_where_discovery_is_closed_each_kind_is_tried() -> None:
    async with scene() as made:
        made.server.create(THINGS, "a", BODY, namespace="team")
        made.server.unknown.add("others")
        made.server.refuse = lambda _method, path: 403 if path == "/apis" else None
        async with made.feeds.running():
            await synced(made)
            assert made.told == ["+things/a"]


async def test_a_start_waits_out_an_api_server_that_does_not_say_what_it_has() -> None:
    async with scene() as made:
        made.server.create(THINGS, "a", BODY, namespace="team")
        made.server.refuse = lambda _method, path: 503 if path == "/apis" else None
        async with made.feeds.running():
            await made.asked_again()
            assert made.feeds.unsynced == ("things", "others")
            made.server.refuse = lambda _method, _path: None
            await synced(made)
            assert made.told == ["+things/a"]


@pytest.mark.parametrize("kind", JOB_KINDS, ids=lambda kind: kind.framework)
def test_of_all_kinds_of_jobs_kubernetes_own_alone_is_always_there(kind: JobKind) -> None:
    assert is_custom(resource_of(kind)) == (kind.framework != "batch/job")
