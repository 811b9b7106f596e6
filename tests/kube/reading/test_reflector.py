"""Each object comes, changes and goes once, whatever the server does in between."""

import asyncio
import contextlib
import gc
import itertools
import logging
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kube.client
from kube.client import Client, Selection
from kube.clock import Backoff, Clock, SystemClock
from kube.config import ClusterConfig
from kube.reading.entries import ObjectKey
from kube.reading.reflector import Added, Change, Changed, Reflector, Removed, Synced, Undecodable
from kube.resources import NODES, PODS
from kube.testing import FakeApiServer, VirtualClock, eventually


class Labels(msgspec.Struct, frozen=True):
    labels: dict[str, str] = {}


class Thing(msgspec.Struct, frozen=True):
    metadata: Labels


def size_of(raw: bytes) -> str:
    """The label ``size``; a decoder with a mind of its own."""
    size = msgspec.json.decode(raw, type=Thing).metadata.labels.get("size", "0")
    if not size.isdigit():
        raise ValueError(f"metadata.labels.size:\n found {size!r}, expected a number")
    return size


class Listener:
    """Replays what it is told, and fails on anything that does not follow from what was told before."""

    def __init__(self) -> None:
        self.told: list[Change[str]] = []
        self.sizes: dict[str, str] = {}
        self.uids: dict[str, str] = {}

    def tell(self, change: Change[str]) -> None:
        self.told.append(change)
        match change:
            case Added(key=key, new=new):
                assert key.name not in self.sizes, "added twice"
                self.sizes[key.name], self.uids[key.name] = new.object, new.uid
            case Changed(key=key, old=old, new=new):
                assert self.sizes[key.name] == old.object, "a gap in its story"
                assert self.uids[key.name] == old.uid == new.uid, "another object under an old name"
                assert int(new.resource_version) > int(old.resource_version), "an old version after a new one"
                self.sizes[key.name] = new.object
            case Removed(key=key, old=old):
                assert self.sizes.pop(key.name) == old.object
            case Synced() | Undecodable():
                pass

    def of(self, kind: type[Any]) -> list[Any]:
        return [change for change in self.told if isinstance(change, kind)]


def sized(size: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"size": size}}}


def reflector(client: Client, listener: Listener, clock: Clock, selection: Selection | None = None) -> Reflector[str]:
    backoff = Backoff(random=lambda: 0.5, initial_s=0.001, maximum_s=0.01)
    return Reflector(
        client, NODES, size_of, listener.tell, clock=clock, backoff=backoff, selection=selection or Selection()
    )


@contextlib.asynccontextmanager
async def following(one: Reflector[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(one.run())
    try:
        yield
    finally:
        assert not task.done(), "it ended by itself"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.create(NODES, "a", sized("1"))
        yield server


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
async def mirror(server: FakeApiServer, listener: Listener) -> AsyncIterator[Reflector[str]]:
    async with Client(server.config) as client:
        one = reflector(client, listener, SystemClock())
        async with following(one):
            await one.wait_synced()
            yield one


async def test_what_has_come_of_a_first_list_is_told_before_its_end(
    server: FakeApiServer, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is gone when the list is read anew is told as removed."""
    monkeypatch.setattr(kube.client, "_PAGE", 1)
    monkeypatch.setattr(kube.client, "_PAGE_BYTES", 0)
    server.create(NODES, "b", sized("2"))
    asked = itertools.count(1)
    server.refuse = lambda _method, _path: 500 if next(asked) > 1 else None
    async with Client(server.config) as client, following(reflector(client, listener, SystemClock())):
        await eventually(lambda: listener.sizes == {"a": "1"} and len(server.seen("GET", "nodes")) > 2)
        assert not listener.of(Synced)
        server.delete(NODES, "a")
        server.refuse = lambda _method, _path: None
        await eventually(lambda: listener.sizes == {"b": "2"})
    assert [type(change) for change in listener.told] == [Added, Added, Removed, Synced]


async def test_everything_there_is_told_before_synced(listener: Listener, mirror: Reflector[str]) -> None:
    assert [type(change) for change in listener.told] == [Added, Synced]
    entry = mirror.get(ObjectKey("", "a"))
    assert entry is not None
    assert (entry.object, entry.uid) == ("1", "uid-0001")
    assert mirror.synced


async def test_each_difference_is_told_with_what_was_before(
    server: FakeApiServer, listener: Listener, mirror: Reflector[str]
) -> None:
    server.merge(NODES, "a", sized("2"))
    server.delete(NODES, "a")
    await eventually(lambda: len(mirror) == 0)
    changed, removed = listener.told[2:]
    assert isinstance(changed, Changed)
    assert (changed.old.object, changed.new.object) == ("1", "2")
    assert isinstance(removed, Removed)


async def test_after_a_gap_too_old_to_watch_the_differences_alone_are_told(
    server: FakeApiServer, listener: Listener, mirror: Reflector[str]
) -> None:
    for name in ("same", "changed", "replaced"):
        server.create(NODES, name, sized("1"))
    await eventually(lambda: len(mirror) == 4)
    before = len(listener.told)
    server.cut()
    server.delete(NODES, "a")
    server.merge(NODES, "changed", sized("2"))
    server.delete(NODES, "replaced")
    server.create(NODES, "replaced", sized("1"))
    server.create(NODES, "new", sized("1"))
    server.store.compact()
    server.down = False
    await eventually(lambda: ObjectKey("", "new") in set(mirror))
    told = [
        (type(change).__name__, change.key.name) for change in listener.told[before:] if not isinstance(change, Synced)
    ]
    assert sorted(told) == [
        ("Added", "new"),
        ("Added", "replaced"),
        ("Changed", "changed"),
        ("Removed", "a"),
        ("Removed", "replaced"),
    ]
    assert told.index(("Removed", "replaced")) < told.index(("Added", "replaced"))


async def test_an_object_that_cannot_be_understood_is_told_once_and_stays_as_it_was(
    server: FakeApiServer, listener: Listener, mirror: Reflector[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    server.merge(NODES, "a", sized("huge"))
    server.create(NODES, "b", sized("1"))
    await eventually(lambda: len(mirror) == 2)
    assert listener.sizes == {"a": "1", "b": "1"}
    (bad,) = listener.of(Undecodable)
    assert (bad.key.name, bad.why) == ("a", "metadata.labels.size: found 'huge', expected a number")
    server.cut()
    server.store.compact()
    server.create(NODES, "c", sized("1"))
    server.down = False
    await eventually(lambda: len(mirror) == 3)
    assert len(listener.of(Undecodable)) == 1, "a relist is no news"
    assert mirror.undecodable == 1
    server.merge(NODES, "a", sized("3"))
    await eventually(lambda: listener.sizes["a"] == "3")
    assert mirror.undecodable == 0


async def test_an_object_that_was_never_understood_goes_without_a_word(
    server: FakeApiServer, listener: Listener, mirror: Reflector[str]
) -> None:
    server.create(NODES, "bad", sized("huge"))
    await eventually(lambda: mirror.undecodable == 1)
    server.delete(NODES, "bad")
    await eventually(lambda: mirror.undecodable == 0)
    assert listener.of(Removed) == []


async def test_a_restart_of_the_server_is_invisible(
    server: FakeApiServer, listener: Listener, mirror: Reflector[str]
) -> None:
    before = len(listener.told)
    for _ in range(3):
        server.cut()
        await asyncio.sleep(0.003)
        server.down = False
    server.create(NODES, "b", sized("1"))
    await eventually(lambda: len(mirror) == 2)
    assert [type(change) for change in listener.told[before:]] == [Added]
    assert len([request for request in server.requests if request.path.endswith("/nodes")]) >= 2


async def test_the_lag_grows_with_silence_and_a_bookmark_ends_it(server: FakeApiServer, listener: Listener) -> None:
    clock = VirtualClock()
    async with Client(server.config) as client:
        one = reflector(client, listener, clock)
        assert one.lag_s is None
        async with following(one):
            await eventually(lambda: server.watchers == 1)
            clock.advance(90)
            assert one.lag_s == 90
            version = one.resource_version
            server.create(PODS, "elsewhere", namespace="n")
            server.bookmark()
            await eventually(lambda: one.lag_s == 0)
            assert int(one.resource_version) > int(version)


async def test_a_bookmark_spares_the_list_after_a_cut(
    server: FakeApiServer, listener: Listener, mirror: Reflector[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await eventually(lambda: server.watchers == 1)
    server.create(PODS, "elsewhere", namespace="n")
    server.bookmark()
    await eventually(lambda: mirror.resource_version == str(server.store.version))
    server.store.changes = server.store.changes[-1:]  # all that came before the bookmark is forgotten
    server.cut()
    server.create(NODES, "b", sized("1"))
    monkeypatch.setattr(server.store, "find", None)
    server.down = False
    await eventually(lambda: len(mirror) == 2)
    assert [change.key.name for change in listener.of(Added)] == ["a", "b"]


async def test_a_listener_that_is_slow_misses_nothing(server: FakeApiServer) -> None:
    slow = Listener()
    async with Client(server.config) as client:
        one = reflector(client, slow, SystemClock())
        async with following(one):
            await one.wait_synced()
            for size in range(2, 200):
                server.merge(
                    NODES, "a", {"metadata": {"labels": {"size": str(size)}, "annotations": {"x": "y" * 9000}}}
                )
                if size == 100:
                    server.cut()
                    server.down = False
            await eventually(lambda: slow.sizes["a"] == "199")
    assert [change.new.object for change in slow.of(Changed)] == [str(size) for size in range(2, 200)]


class Canned(Client):
    """Answers lists from memory, 500 objects a page; its watches never say anything."""

    def __init__(self, count: int) -> None:
        super().__init__(ClusterConfig(server="http://127.0.0.1:1"))
        one = '{"metadata":{"name":"node-%d","uid":"u-%d","resourceVersion":"1"},"x":"%s"}'
        self._items = [one % (number, number, "x" * 500) for number in range(count)]

    async def _request(self, method: str, path: str, *, params: Any = None, **_: Any) -> bytes:  # noqa: ARG002
        first = int(params.get("continue", "0"))
        more = str(first + 500) if first + 500 < len(self._items) else ""
        page = ",".join(self._items[first : first + 500])
        return f'{{"metadata":{{"resourceVersion":"7","continue":"{more}"}},"items":[{page}]}}'.encode()

    async def watch_decoded(self, *_: Any, **__: Any) -> AsyncGenerator[Any]:
        await asyncio.Event().wait()
        yield


async def test_ten_thousand_objects_cost_what_the_caller_keeps_of_them(listener: Listener) -> None:
    one = reflector(Canned(10_000), listener, SystemClock())
    tracemalloc.start()
    try:
        async with following(one):
            await one.wait_synced()
            listener.told.clear()
            gc.collect()
            held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(one) == 10_000
    assert held / 10_000 < 900, f"{held / 10_000:.0f} bytes an object"
    assert peak / 10_000 < 2000, f"{peak / 10_000:.0f} bytes an object while listing"


async def test_names_of_an_object_that_has_its_metadata_are_kept_once() -> None:
    class Named(msgspec.Struct, frozen=True, rename="camel"):
        name: str
        uid: str
        resource_version: str
        namespace: str = ""

    class Whole(msgspec.Struct, frozen=True):
        metadata: Named

    read = msgspec.json.Decoder(Whole).decode
    one: Reflector[Whole] = Reflector(
        Canned(3), NODES, read, lambda _: None, clock=SystemClock(), backoff=Backoff(random=lambda: 0.5)
    )
    async with following(one):
        await one.wait_synced()
    assert len(one) == 3
    for key in one:
        entry = one.get(key)
        assert entry is not None
        assert entry.uid is entry.object.metadata.uid
        assert entry.resource_version is entry.object.metadata.resource_version


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["create", "change", "spoil", "delete", "cut", "compact", "bookmark", "let it run"]),
            st.sampled_from("ab"),
        ),
        max_size=30,
    )
)
def test_the_copy_ends_as_the_original_whatever_happens(steps: list[tuple[str, str]]) -> None:
    asyncio.run(_mirrored(steps))


async def _mirrored(steps: list[tuple[str, str]]) -> None:
    logging.getLogger("kube").setLevel(logging.ERROR)
    async with FakeApiServer() as server, Client(server.config) as client:
        listener = Listener()
        one = reflector(client, listener, SystemClock())
        async with following(one):
            for number, (step, name) in enumerate(steps):
                await _do(server, step, name, str(number))
            server.down = False
            for name in "ab":
                await _do(server, "create", name, "7")
                await _do(server, "change", name, "8")
            await eventually(lambda: listener.sizes == {"a": "8", "b": "8"})
    assert {key.name: one.get(key).uid for key in one} == {  # type: ignore[union-attr]
        item["metadata"]["name"]: item["metadata"]["uid"] for item in server.list_all(NODES)
    }


async def _do(server: FakeApiServer, step: str, name: str, size: str) -> None:
    exists = (NODES.path(), "", name) in server.store.objects
    if step == "create" and not exists:
        server.create(NODES, name, sized(size))
    elif step == "change" and exists:
        server.merge(NODES, name, sized(size))
    elif step == "spoil" and exists:
        server.merge(NODES, name, sized("huge"))
    elif step == "delete" and exists:
        server.delete(NODES, name)
    elif step == "cut":
        server.cut()
    elif step == "compact":
        server.store.compact()
    elif step == "bookmark":
        server.bookmark()
    elif step == "let it run":
        server.down = False
        await asyncio.sleep(0.002)
