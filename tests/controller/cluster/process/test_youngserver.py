"""A start behind an API server that is young itself: its lists are refused while it reads its store."""

import asyncio

import pytest

from kube.errors import KubeError, StartingError, UnavailableError
from kube.testing import VirtualClock, eventually
from kube.testing.server import parse_path
from tests.support.controller.stage import Stage, stage

YOUNG_S = 13.0


class YoungServer:
    """Refuses lists and watches for its first seconds. Single objects come from the store, as a real one's do."""

    def __init__(self, scene: Stage, clock: VirtualClock, refusal: KubeError) -> None:
        self.begun_s = clock.monotonic()
        self._clock = clock
        self._refusal = refusal
        scene.server.refuse = self.refuse

    @property
    def age_s(self) -> float:
        return self._clock.monotonic() - self.begun_s

    def refuse(self, method: str, path: str) -> KubeError | None:
        listed = method == "GET" and path.count("/") > 2 and parse_path(path)[2] is None
        return self._refusal if listed and self.age_s < YOUNG_S else None


@pytest.mark.parametrize("drawn", [0.0, 0.999])
async def test_a_server_that_sets_up_storage_for_thirteen_seconds_is_decided_for_within_fifteen(
    drawn: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: drawn)
    young = StartingError("storage is (re)initializing", status=429, reason="TooManyRequests", retry_after_s=1.0)
    async with stage() as scene:
        scene.queue(cpus=2)
        scene.workload("a", 2)
        clock = VirtualClock()
        server = YoungServer(scene, clock, young)
        async with scene.controller(clock=clock, until_deciding=False) as process:
            await passed(clock, YOUNG_S - 0.1)
            assert process.core is None
            assert scene.server.seen("GET", "/workloads")
            await passed(clock, 1.9)
            assert server.age_s < 15.0
            await eventually(lambda: scene.admitted("a"), what="admitted")


async def test_a_server_that_refuses_is_asked_ever_less_often() -> None:
    busy = UnavailableError("Too many requests, please try again later.", status=429, retry_after_s=1.0)
    async with stage() as scene:
        scene.queue()
        clock = VirtualClock()
        YoungServer(scene, clock, busy)
        async with scene.controller(clock=clock, until_deciding=False):
            await passed(clock, YOUNG_S - 0.1)
            assert 3 <= len(scene.server.seen("GET", "/clusterqueues")) <= 7


async def passed(clock: VirtualClock, seconds: float) -> None:
    """Let time pass in small steps, each until everything waits for time: a request takes some turns of the loop."""
    until_s = clock.monotonic() + seconds
    while clock.monotonic() < until_s:
        clock.advance(min(0.1, until_s - clock.monotonic()))
        before, alike = -1.0, 0
        for _ in range(200):
            await asyncio.sleep(0.001)
            due_s = clock.next_wake_s
            alike = alike + 1 if due_s is not None and due_s > 0 and due_s == before else 0
            if alike == 4:
                break
            before = due_s if due_s is not None else -1.0
