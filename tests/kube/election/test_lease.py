"""Leadership on the fake API server: one acts, fail-over is quick, and nobody acts on a lease that ran out."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kube.client import Client
from kube.election.lease import Identity, Leadership, LeaseRef
from kube.errors import KubeError
from kube.resources import LEASES
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.support.hang import HANG_S

OURS = LeaseRef("tessera", "tessera-controller")
KUEUES = LeaseRef("kueue-system", "c1f6bfd2.kueue.x-k8s.io", absent_is_held=True)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class Replica:
    """A process that leads as long as it may, and says so."""

    def __init__(self, name: str, server: FakeApiServer, clock: VirtualClock, *leases: LeaseRef) -> None:
        self.client = Client(server.config, timeout_s=HANG_S)
        self.leadership = Leadership(self.client, leases or (OURS,), me=Identity(name), clock=clock, random=lambda: 0.5)
        self.working = False
        self.ended: list[bool] = []
        self.task: asyncio.Task[None] | None = None

    async def work(self) -> None:
        self.working = True
        try:
            await asyncio.Event().wait()
        finally:
            self.working = False

    async def run(self) -> None:
        async with self.client:
            while True:
                self.ended.append(await self.leadership.lead(self.work))

    def start(self) -> "Replica":
        self.task = asyncio.create_task(self.run())
        return self

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@contextlib.asynccontextmanager
async def running(*replicas: Replica) -> AsyncIterator[None]:
    for replica in replicas:
        replica.start()
    try:
        yield
    finally:
        await asyncio.gather(*(replica.stop() for replica in replicas))


async def step(clock: VirtualClock, seconds: float, *replicas: Replica) -> None:
    """Let time pass in small steps, each settled: never more than one may act."""
    for _ in range(round(seconds / 0.5)):
        clock.advance(0.5)
        await settled(clock)
        assert sum(replica.leadership.leading for replica in replicas) <= 1


async def stepped_until(found: Callable[[], bool], clock: VirtualClock, *replicas: Replica) -> None:
    """Let a minute pass at most."""
    for _ in range(60):
        if found():
            return
        await step(clock, 1, *replicas)


async def settled(clock: VirtualClock) -> None:
    """Until every task waits for time, or for an answer that does not come.

    A request to the server in this process takes some turns of the loop, and on a busy machine a sleep is one turn.
    """
    before, alike = -1.0, 0
    for _ in range(200):
        await asyncio.sleep(0.001)
        due = clock.next_wake_s
        alike = alike + 1 if due is not None and due > 0 and due == before else 0
        if alike == 4:
            return
        before = due if due is not None else -1.0


def holder(server: FakeApiServer, ref: LeaseRef = OURS) -> str:
    spec: dict[str, Any] = server.get(LEASES, ref.name, namespace=ref.namespace)["spec"]
    return str(spec["holderIdentity"])


async def test_one_leads_and_the_other_follows_two_seconds_after_it_leaves(
    server: FakeApiServer, clock: VirtualClock
) -> None:
    a, b = Replica("a", server, clock), Replica("b", server, clock)
    async with running(a):
        await eventually(lambda: a.working)
        async with running(b):
            await step(clock, 20, a, b)
            assert (a.working, b.working) == (True, False)
            assert b.leadership.waiting_for == "lease tessera/tessera-controller: held by a"
            await a.stop()
            assert holder(server) == ""
            await step(clock, 3, b)
            assert b.working
            assert holder(server) == "b"
            a.start()


async def test_after_a_crash_the_lease_must_run_out(server: FakeApiServer, clock: VirtualClock) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 4}
    server.create(LEASES, OURS.name, {"metadata": {}, "spec": spec}, namespace=OURS.namespace)
    a, b = Replica("a", server, clock), Replica("b", server, clock)
    async with running(a, b):
        await step(clock, 14, a, b)
        assert not a.working
        assert not b.working
        await step(clock, 5, a, b)
        assert a.working != b.working
    assert server.get(LEASES, OURS.name, namespace=OURS.namespace)["spec"]["leaseTransitions"] == 5


async def test_who_cannot_renew_stops_before_the_lease_can_be_taken(server: FakeApiServer, clock: VirtualClock) -> None:
    a, b = Replica("a", server, clock), Replica("b", server, clock)
    async with running(a):
        await eventually(lambda: a.working)
        cut_off = clock.monotonic()
        server.mute = True  # a's requests hang; nothing tells it that they are lost
        while a.working:
            await step(clock, 0.5, a)
        assert not a.leadership.leading
        assert 7.0 <= clock.monotonic() - cut_off <= 10.0
        server.mute = False
        async with running(b):
            await step(clock, 25, a, b)
            assert a.working != b.working


async def test_leadership_ends_by_the_clock_alone(server: FakeApiServer, clock: VirtualClock) -> None:
    """A process that stood still does not act on what it held before, not even once."""
    a = Replica("a", server, clock)
    async with running(a):
        await eventually(lambda: a.working)
        clock._now_s += 11  # nothing of the process has run
        assert not a.leadership.leading
        assert a.leadership.held_for_s == 0


async def test_an_outage_shorter_than_the_deadline_costs_nothing(server: FakeApiServer, clock: VirtualClock) -> None:
    a = Replica("a", server, clock)
    async with running(a):
        await eventually(lambda: a.working)
        server.down = True
        await step(clock, 6, a)
        server.down = False
        await step(clock, 30, a)
        assert a.working
        assert a.ended == []


async def test_a_lost_leadership_is_campaigned_for_anew(server: FakeApiServer, clock: VirtualClock) -> None:
    a = Replica("a", server, clock)
    async with running(a):
        await eventually(lambda: a.working)
        server.down = True
        await step(clock, 15, a)
        assert not a.working
        server.down = False
        await step(clock, 20, a)
        assert a.working
        assert a.ended == [False]


async def test_nobody_starts_beside_a_live_holder_of_the_second_lease(
    server: FakeApiServer, clock: VirtualClock
) -> None:
    kueue, ours, spare = (
        Replica("kueue", server, clock, KUEUES),
        Replica("ours", server, clock, OURS, KUEUES),
        Replica("spare", server, clock, OURS, KUEUES),
    )
    async with running(kueue):
        await eventually(lambda: kueue.working)
        async with running(ours, spare):
            await step(clock, 30, ours, spare, kueue)
            assert kueue.working
            assert not ours.working
            assert not spare.working
            waiting = {ours.leadership.waiting_for, spare.leadership.waiting_for}
            assert "lease kueue-system/c1f6bfd2.kueue.x-k8s.io: held by kueue" in waiting
            await kueue.stop()
            await stepped_until(lambda: ours.working or spare.working, clock, ours, spare)
            assert ours.working != spare.working
            assert holder(server) == holder(server, KUEUES)
            kueue.start()
            await step(clock, 30, ours, spare, kueue)
            assert not kueue.working, "and it stays out as long as we hold its lease"


async def test_all_leases_are_let_go_together(server: FakeApiServer, clock: VirtualClock) -> None:
    a = Replica("a", server, clock, OURS, KUEUES)
    async with running(a):
        await eventually(lambda: a.working)
    assert (holder(server), holder(server, KUEUES)) == ("", "")


async def test_losing_one_of_several_is_losing_all(server: FakeApiServer, clock: VirtualClock) -> None:
    a = Replica("a", server, clock, OURS, KUEUES)
    async with running(a):
        await eventually(lambda: a.working)
        server.merge(LEASES, KUEUES.name, {"spec": {"holderIdentity": "kueue"}}, namespace=KUEUES.namespace)
        await step(clock, 4, a)
        assert not a.working
        assert not a.leadership.leading


async def test_labels_and_fields_that_we_do_not_know_stay(server: FakeApiServer, clock: VirtualClock) -> None:
    body = {"metadata": {"labels": {"team": "x"}}, "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"}}
    server.create(LEASES, OURS.name, body, namespace=OURS.namespace)
    a = Replica("a", server, clock)
    async with running(a):
        await eventually(lambda: a.working)
        await step(clock, 5, a)
    lease = server.get(LEASES, OURS.name, namespace=OURS.namespace)
    assert lease["metadata"]["labels"] == {"team": "x"}
    assert lease["spec"]["strategy"] == "OldestEmulationVersion"


async def test_work_that_ends_ends_the_term(server: FakeApiServer, clock: VirtualClock) -> None:
    a = Replica("a", server, clock)

    async def brief() -> None:
        assert a.leadership.leading

    async def broken() -> None:
        raise LookupError("work")

    async with a.client:
        assert await a.leadership.lead(brief) is True
        assert holder(server) == ""
        with pytest.raises(LookupError):
            await a.leadership.lead(broken)
        assert holder(server) == ""


async def test_missing_rights_are_not_leadership(server: FakeApiServer, clock: VirtualClock) -> None:
    server.refuse = lambda _method, _path: 403
    a = Replica("a", server, clock)
    async with running(a):
        await step(clock, 5, a)
        assert not a.working
        server.refuse = lambda _method, _path: None
        await step(clock, 3, a)
        assert a.working


@pytest.mark.parametrize("ref", [OURS, KUEUES], ids=["own", "kueues"])
async def test_a_namespace_that_is_not_there_is_said_once_and_asked_for_once_a_round(
    server: FakeApiServer, clock: VirtualClock, caplog: pytest.LogCaptureFixture, ref: LeaseRef
) -> None:
    caplog.set_level(logging.INFO)
    missing = KubeError(f'namespaces "{ref.namespace}" not found', status=404, reason="NotFound")
    server.refuse = lambda method, path: missing if method == "POST" and ref.namespace in path else None
    a = Replica("a", server, clock, ref)
    async with running(a):
        await stepped_until(lambda: len(server.seen("POST", ref.namespace)) > 2, clock, a)
        before, read = len(server.seen("POST", ref.namespace)), len(server.seen("GET", ref.namespace))
        await step(clock, 180, a)
        assert 50 < len(server.seen("POST", ref.namespace)) - before <= 90, "once in each two seconds at most"
        assert len(server.seen("GET", ref.namespace)) == read
        assert a.working == ref.absent_is_held
        so = "nobody holds it, which counts as ours" if ref.absent_is_held else "it is waited for"
        said = [record.message for record in caplog.records if "not there" in record.message]
        assert said == [f"lease {ref}: the namespace {ref.namespace} is not there: {so}"]
        server.refuse = lambda _method, _path: None
        await stepped_until(lambda: a.working and bool(server.list_all(LEASES)), clock, a)
        assert holder(server, ref) == "a"


def test_no_lease_is_no_leadership(server: FakeApiServer, clock: VirtualClock) -> None:
    with pytest.raises(ValueError, match="expected at least one"):
        Leadership(Client(server.config), (), me=Identity("a"), clock=clock, random=lambda: 0.5)
