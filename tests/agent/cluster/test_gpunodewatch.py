"""An agent hears what stands in its own GpuNode, whoever wrote it, and takes off the orders that it answered."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from agent.cluster.gpunode import GPU_NODES
from agent.cluster.gpunodewatch_shell import AGAIN_S, GpuNodeWatch, read
from agent.health.grants import Grant
from inventory.api.gpunode import MAX_GPUS
from inventory.api.names import REMEDIATION_ORDER
from kube.client import Client
from kube.testing import FakeApiServer, VirtualClock, eventually

NODE = "node-1"
GRANT = {"gpu": "GPU-a", "generation": 3, "action": "reset", "granted": "2026-01-01T00:00:10Z"}


def raw(grants: Any = None, annotations: Any = None) -> bytes:
    meta = {"name": NODE, **({} if annotations is None else {"annotations": annotations})}
    return json.dumps({"metadata": meta, "status": {} if grants is None else {"remediationGrants": grants}}).encode()


def test_a_grant_is_read_and_what_is_none_is_left_out() -> None:
    nonsense: list[Any] = [
        5,
        None,
        [],
        "GPU-a",
        {},
        {**GRANT, "granted": "2026-01-01T00:00:00"},
        {**GRANT, "generation": 2**60},
        {**GRANT, "gpu": "x" * 300},
    ]
    found = read(raw([*nonsense, GRANT]))
    assert found.grants == (Grant(gpu=found.grants[0].gpu, generation=3, action="reset", granted_s=1767225610.0),)
    assert len(read(raw([GRANT] * 1000)).grants) == MAX_GPUS


def test_orders_are_told_from_other_annotations() -> None:
    annotations = {f"{REMEDIATION_ORDER}GPU-a": "start", REMEDIATION_ORDER: "stop", "a": "b"}
    assert read(raw(annotations=annotations)).orders == {"GPU-a": "start"}


@pytest.mark.parametrize(
    "text", [b"[]", b"5", b'{"metadata": {"annotations": {"a": 5}}}', raw({"a": "b"}), b"[" * 9000]
)
def test_what_is_no_gpunode_is_refused_as_that(text: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        read(text)


class Listener:
    """A receiver of grants and orders; ``meanwhile`` is called while an order is obeyed."""

    def __init__(self) -> None:
        self.wanted = True
        self.wanted_changed = asyncio.Event()
        self.grants: list[tuple[Grant, ...]] = []
        self.orders: list[Mapping[str, str]] = []
        self.gone = asyncio.Event()
        self.late: list[Mapping[str, str]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def granted(self, grants: tuple[Grant, ...]) -> None:
        self.grants.append(grants)

    async def obey(self, orders: Mapping[str, str], *, late: bool = False) -> None:
        (self.late if late else self.orders).append(orders)
        does, self.meanwhile = self.meanwhile, lambda: None
        does()


class Here:
    def __init__(self, server: FakeApiServer, clock: VirtualClock, listener: Listener) -> None:
        self.server = server
        self.clock = clock
        self.listener = listener

    def order(self, value: str | None) -> None:
        patch = {"metadata": {"annotations": {f"{REMEDIATION_ORDER}GPU-a": value}}}
        self.server.merge(GPU_NODES, NODE, patch, manager="kubectl")

    def stands(self) -> dict[str, str]:
        return dict(self.server.get(GPU_NODES, NODE)["metadata"].get("annotations", {}))


@pytest.fixture
async def here() -> AsyncIterator[Here]:
    async with FakeApiServer() as server:
        clock, listener = VirtualClock(), Listener()
        watch = GpuNodeWatch(listener, clock, gone=listener.gone.set)
        async with Client(server.config, user_agent="test", clock=clock) as client:
            task = asyncio.create_task(watch.follow(client, NODE, lambda: 0.5))
            yield Here(server, clock, listener)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_without_a_gpunode_there_is_no_grant(here: Here) -> None:
    await eventually(lambda: here.listener.grants == [()])


async def test_one_that_is_deleted_is_told(here: Here) -> None:
    here.server.create(GPU_NODES, NODE, {"status": {"remediationGrants": [GRANT]}})
    await eventually(lambda: any(here.listener.grants))
    assert not here.listener.gone.is_set()
    here.server.delete(GPU_NODES, NODE)
    await eventually(here.listener.gone.is_set)


async def test_one_that_cannot_be_read_says_nothing_of_grants() -> None:
    async with FakeApiServer() as server:
        server.create(GPU_NODES, NODE, {"metadata": {}, "status": {"remediationGrants": "all"}})
        clock, listener = VirtualClock(), Listener()
        async with Client(server.config, user_agent="test", clock=clock) as client:
            watch = GpuNodeWatch(listener, clock, gone=listener.gone.set)
            task = asyncio.create_task(watch.follow(client, NODE, lambda: 0.5))
            await eventually(lambda: bool(server.seen("GET", "gpunodes")))
            server.merge(GPU_NODES, NODE, {"status": {"remediationGrants": [GRANT]}})
            await eventually(lambda: bool(listener.grants))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert [len(grants) for grants in listener.grants] == [1]


async def test_an_order_is_obeyed_once_and_taken_off(here: Here) -> None:
    here.server.create(GPU_NODES, NODE)
    here.order("start")
    await eventually(lambda: here.stands() == {})
    here.server.merge(GPU_NODES, NODE, {"status": {"summary": {}}})
    await eventually(lambda: len(here.listener.grants) > 2)
    assert here.listener.orders == [{"GPU-a": "start"}]


async def test_an_order_that_came_meanwhile_stays_and_is_obeyed(here: Here) -> None:
    here.server.create(GPU_NODES, NODE)
    stood: list[dict[str, str]] = []
    here.listener.meanwhile = lambda: here.order("return")

    def looked(method: str, _path: str) -> bool:
        if method == "PATCH":
            stood.append(here.stands())
        return False

    here.server.lose_answer = looked
    here.order("retire")
    await eventually(lambda: here.stands() == {})
    assert here.listener.orders == [{"GPU-a": "retire"}, {"GPU-a": "return"}]
    assert stood[0] == {f"{REMEDIATION_ORDER}GPU-a": "return"}, "the newer one was not taken for the older"


async def test_an_order_that_cannot_be_taken_off_is_not_obeyed_again(here: Here) -> None:
    here.server.create(GPU_NODES, NODE)
    here.server.refuse = lambda method, _: 503 if method == "PATCH" else None
    here.order("start")
    await eventually(lambda: len(here.server.written(NODE)) == 1)
    here.server.refuse = lambda _method, _path: None

    def later() -> bool:
        here.clock.advance(AGAIN_S + 1)
        return here.stands() == {}

    await eventually(later)
    assert here.listener.orders == [{"GPU-a": "start"}]


@pytest.mark.parametrize("how", ["told by the GpuNode", "known by the process"])
async def test_an_order_from_before_orders_were_taken_is_refused_and_the_next_one_is_not(how: str) -> None:
    async with FakeApiServer() as server:
        clock, listener = VirtualClock(), Listener()
        there = Here(server, clock, listener)
        status = {"resetMode": "never"} if how == "told by the GpuNode" else {}
        server.create(GPU_NODES, NODE, {"metadata": {}, "status": status})
        listener.wanted = how == "told by the GpuNode"
        there.order("start")
        async with Client(server.config, user_agent="test", clock=clock) as client:
            watch = GpuNodeWatch(listener, clock, gone=listener.gone.set)
            task = asyncio.create_task(watch.follow(client, NODE, lambda: 0.5))
            for _ in range(20):
                await asyncio.sleep(0)
            listener.wanted = True
            listener.wanted_changed.set()
            await eventually(lambda: there.stands() == {})
            assert (listener.late, listener.orders) == ([{"GPU-a": "start"}], [])
            there.order("start")
            await eventually(lambda: there.stands() == {})
            assert (listener.late, listener.orders) == ([{"GPU-a": "start"}], [{"GPU-a": "start"}])
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_nothing_is_watched_while_it_is_not_wanted() -> None:
    async with FakeApiServer() as server:
        clock, listener = VirtualClock(), Listener()
        listener.wanted = False
        async with Client(server.config, user_agent="test", clock=clock) as client:
            watch = GpuNodeWatch(listener, clock, gone=listener.gone.set)
            task = asyncio.create_task(watch.follow(client, NODE, lambda: 0.5))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not server.requests
            listener.wanted = True
            listener.wanted_changed.set()
            # The list and the watch after it.
            await eventually(lambda: bool(listener.grants) and len(server.requests) == 2)
            listener.wanted = False
            listener.wanted_changed.set()
            before = len(server.requests)
            clock.advance(10000.0)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(server.requests) == before
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
