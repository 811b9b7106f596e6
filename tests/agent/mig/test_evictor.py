"""Evictions are asked of the API server: once, again where a budget refuses, never without being wanted."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from agent.mig.evictor import AGAIN_S, RETRY_S, Evictor
from kube.client import Client
from kube.resources import Resource
from kube.testing import FakeApiServer, VirtualClock, eventually

PODS = Resource("", "v1", "pods", "Pod", namespaced=True)


class Scene:
    def __init__(self, server: FakeApiServer, clock: VirtualClock) -> None:
        self.server = server
        self.clock = clock
        self.said: list[str] = []
        self.evictor = Evictor(self.said.append, clock)

    def asked(self) -> list[str]:
        """Pods whose eviction was asked for, in that order."""
        return [one.path.split("/pods/")[1].removesuffix("/eviction") for one in self.server.seen("POST", "/eviction")]

    async def pass_(self, seconds: float) -> None:
        """So much time, once the evictor waits for it."""
        await eventually(lambda: bool(self.clock._sleepers))
        self.clock.advance(seconds)

    async def asked_for(self, *pods: str) -> None:
        await eventually(lambda: self.asked() == list(pods), what=f"{pods}")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    clock = VirtualClock()
    async with FakeApiServer() as server, Client(server.config, clock=clock) as client:
        for name in ("a", "b", "c"):
            server.create(PODS, name, namespace="ml")
        scene = Scene(server, clock)
        task = asyncio.create_task(scene.evictor.follow(client, "node-1", lambda: 0.5))
        yield scene
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_each_wanted_pod_is_evicted_once_and_it_is_said(scene: Scene) -> None:
    scene.evictor.want(frozenset({"ml/a", "ml/b"}))
    await scene.asked_for("a", "b")
    scene.evictor.want(frozenset({"ml/a", "ml/b", "ml/c"}))
    await scene.asked_for("a", "b", "c")
    assert scene.server.seen("POST", "/api/v1/namespaces/ml/pods/c/eviction")
    await eventually(lambda: len(scene.said) == 3)
    assert "Pod ml/c is evicted" in scene.said[2]


async def test_a_budget_that_refuses_is_asked_again(scene: Scene) -> None:
    scene.server.refuse = lambda method, path: 429 if method == "POST" and path.endswith("/eviction") else None
    scene.evictor.want(frozenset({"ml/a"}))
    await scene.asked_for("a")
    await scene.pass_(RETRY_S)
    await scene.asked_for("a", "a")
    await eventually(lambda: bool(scene.said))
    assert "Pod ml/a holds a GPU or a part of one that is drained and is not evicted yet: " in scene.said[0]
    scene.server.refuse = lambda _method, _path: None
    await scene.pass_(RETRY_S)
    await scene.asked_for("a", "a", "a")
    await eventually(lambda: len(scene.said) == 2)
    assert "is evicted" in scene.said[1], "a refusal is told once"
    await scene.pass_(RETRY_S)
    assert scene.asked() == ["a", "a", "a"]


async def test_one_that_stays_is_asked_again_much_later_and_one_not_wanted_never(scene: Scene) -> None:
    scene.evictor.want(frozenset({"ml/a"}))
    await scene.asked_for("a")
    await scene.pass_(AGAIN_S)
    await scene.asked_for("a", "a")
    scene.evictor.want(frozenset())
    await scene.pass_(2 * AGAIN_S)
    assert scene.asked() == ["a", "a"]
