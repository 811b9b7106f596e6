"""Leadership beside a loop that stands still: on a thread, against the fake API server on the test's own loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kube.client import Client
from kube.clock import SystemClock
from kube.election.apart_shell import LeadershipApart
from kube.election.lease import Identity, LeaseRef, LeaseTiming
from kube.resources import LEASES
from kube.testing import FakeApiServer, eventually
from tests.support.hang import HANG_S

OURS = LeaseRef("tessera", "tessera-controller")
QUICK = LeaseTiming(lease_s=1.5, renew_s=1.0, retry_s=0.1)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


def apart(server: FakeApiServer, name: str = "a", timing: LeaseTiming = QUICK) -> LeadershipApart:
    def connect() -> Client:
        return Client(server.config, timeout_s=HANG_S)

    return LeadershipApart(connect, (OURS,), me=Identity(name), clock=SystemClock(), random=lambda: 0.5, timing=timing)


class Replica:
    """A process whose loop, in a thread, can be made to stand still."""

    def __init__(self, server: FakeApiServer, name: str) -> None:
        self.name = name
        self.leadership = apart(server, name)
        self.working = False
        self.ended: list[bool] = []
        self.writes: list[bool] = []
        """Whether it might write, right after it stood still."""
        self.still = threading.Event()
        self._go_on = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._campaign())

    async def _campaign(self) -> None:
        self._task = asyncio.current_task()
        async with self.leadership:
            try:
                while True:
                    self.ended.append(await self.leadership.lead(self._work))
            except asyncio.CancelledError:
                return

    async def _work(self) -> None:
        self.working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    def _stand_still(self) -> None:
        self.still.set()
        self._go_on.wait(HANG_S)
        self.writes.append(self.leadership.leading)

    @contextmanager
    def running(self) -> Iterator["Replica"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._go_on.set()
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
            self._thread.join(HANG_S)
            assert not self._thread.is_alive()

    def stand_still(self) -> None:
        self._loop.call_soon_threadsafe(self._stand_still)

    def go_on(self) -> None:
        self._go_on.set()


def spec(server: FakeApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.get(LEASES, OURS.name, namespace=OURS.namespace)["spec"]
    return found


def one_at_most(*replicas: Replica) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """A condition that is looked at while it holds that never two may write."""

    def checked(condition: Callable[[], bool]) -> Callable[[], bool]:
        def both() -> bool:
            assert sum(replica.leadership.leading for replica in replicas) <= 1
            return condition()

        return both

    return checked


async def test_a_loop_that_stands_still_loses_the_lease_and_writes_nothing_after(server: FakeApiServer) -> None:
    with Replica(server, "a").running() as a:
        await eventually(lambda: a.working)
        with Replica(server, "b").running() as b:
            alone = one_at_most(a, b)
            a.stand_still()
            await eventually(a.still.is_set)
            await eventually(alone(lambda: b.working), what="b leads while a stands still")
            assert a.working, "nothing could end its work"
            assert not a.leadership.leading
            a.go_on()
            await eventually(alone(lambda: a.ended == [False] and not a.working))
            assert a.writes == [False]
            assert spec(server)["holderIdentity"] == "b"


async def test_a_lease_lost_by_a_loop_that_stands_still_is_not_let_go_before_its_work_has_ended(
    server: FakeApiServer,
) -> None:
    with Replica(server, "a").running() as a:
        await eventually(lambda: a.working)
        a.stand_still()
        await eventually(a.still.is_set)
        await eventually(lambda: not a.leadership.leading)
        assert spec(server)["holderIdentity"] == "a", "requests may be under way: others wait until it runs out"
        a.go_on()
        await eventually(lambda: a.working and a.ended == [False], what="it leads again")


async def test_a_loop_that_is_busy_for_less_keeps_it(server: FakeApiServer) -> None:
    with Replica(server, "a").running() as a:
        await eventually(lambda: a.working)
        for _ in range(3):
            before = spec(server)["renewTime"]
            await eventually(lambda before=before: spec(server)["renewTime"] != before)  # type: ignore[misc]
        assert a.ended == []


async def test_it_leads_lets_go_and_says_what_it_waits_for(server: FakeApiServer) -> None:
    async with apart(server) as first, apart(server, "b") as second:
        ending = asyncio.Event()

        async def until_told() -> None:
            assert first.leading
            await ending.wait()

        leading = asyncio.create_task(first.lead(until_told))
        await eventually(lambda: first.leading)
        waiting = asyncio.create_task(second.lead(until_told))
        await eventually(lambda: second.waiting_for == "lease tessera/tessera-controller: held by a")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        ending.set()
        assert await leading is True
        assert not first.leading
        assert spec(server)["holderIdentity"] == ""


async def test_what_the_work_raises_comes_through_after_the_lease_was_let_go(server: FakeApiServer) -> None:
    async def broken() -> None:
        raise LookupError("work")

    async with apart(server) as leadership:
        with pytest.raises(LookupError):
            await leadership.lead(broken)
        assert spec(server)["holderIdentity"] == ""


async def test_a_client_that_cannot_be_opened_is_said() -> None:
    def connect() -> Client:
        raise OSError("no certificate")

    leadership = LeadershipApart(connect, (OURS,), me=Identity("a"), clock=SystemClock(), random=lambda: 0.5)
    with pytest.raises(OSError, match="no certificate"):
        await leadership.__aenter__()
