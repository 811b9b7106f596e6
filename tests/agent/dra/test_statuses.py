"""What claims say of their devices, and that it is written where it differs and nowhere else."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from agent.dra.claim import RESOURCE_CLAIMS, Condition, DeviceStatus, Ref, read
from agent.dra.ledger import GivenDevice, Prepared, Stage
from agent.dra.statuses import same, statuses_of, timed
from agent.dra.statuses_shell import REFUSED_S, StatusWriter
from agent.dra.testing import DRIVER, TEAM
from agent.words import node as words
from inventory.mig.parts import Part
from inventory.mig.plan import Slot
from kube.client import Client
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.support.inventory.builders import gpu, mig_instance, node

SLOT = Slot("1g.5gb", 2, 1, (Part(0, 1),))
WHOLE = GivenDevice("gpu", "node-1", "gpu-0", gpu(0).uuid)
PART = GivenDevice("gpu", "node-1", "gpu-1-mig", gpu(1).uuid, slot=SLOT)


def claim(*devices: GivenDevice, uid: str = "u1", stage: Stage = Stage.COMPLETED) -> Prepared:
    return Prepared(uid, TEAM, uid, devices, stage=stage)


def said(*devices: GivenDevice, wrong: str = "", cut: bool = True) -> tuple[DeviceStatus, ...]:
    instance = structs.replace(mig_instance(1, 0, "1g.5gb"), profile="1g.5gb", start=2, gi_id=9, ci_id=3)
    second = structs.replace(gpu(1), mig_enabled=True, mig_instances=(instance,) if cut else ())
    found = statuses_of([claim(*devices)], DRIVER, node([gpu(0), second]), lambda _: wrong)
    return found["u1"][1]


def test_a_device_says_what_nvml_calls_it_and_that_it_is_ready() -> None:
    whole, part = said(WHOLE, PART)
    assert whole.data == {"uuid": gpu(0).uuid, "minor": gpu(0).minor}
    assert part.data["parentUUID"] == gpu(1).uuid
    assert (part.data["gpuInstanceId"], part.data["computeInstanceId"]) == (9, 3)
    assert part.data["uuid"].startswith("MIG-")
    assert whole.conditions == part.conditions == (Condition("Ready", "True", "Prepared"),)


def test_a_device_that_is_ill_or_gone_says_so() -> None:
    ((ill,),) = (each.conditions or () for each in said(WHOLE, wrong="x" * 5000))
    assert (ill.status, ill.reason, ill.message) == ("False", "Unhealthy", "x" * 1024)
    (gone,) = said(PART, wrong="XID 79", cut=False)
    assert gone.data is None
    assert [(each.status, each.reason) for each in gone.conditions or ()] == [("False", "NotThere")]


def test_a_claim_that_is_being_prepared_says_nothing_and_each_device_speaks_once() -> None:
    assert statuses_of([claim(WHOLE, stage=Stage.STARTED)], DRIVER, node([gpu(0)]), lambda _: "") == {}
    watched = structs.replace(WHOLE, request="other", admin=True)
    assert [each.device for each in said(WHOLE, watched)] == ["gpu-0"]
    shares = [structs.replace(WHOLE, share_id=each) for each in ("a", "b")]
    assert [each.share_id for each in said(*shares)] == ["a", "b"]


def test_a_condition_keeps_its_time_until_its_status_is_another() -> None:
    before = timed(said(WHOLE), (), 0.0)
    assert [each.last_transition_time for each in before[0].conditions or ()] == ["1970-01-01T00:00:00Z"]
    again = timed(said(WHOLE), before, 60.0)
    assert again == before
    assert same(again, said(WHOLE))
    ill = timed(said(WHOLE, wrong="lost"), before, 60.0)
    assert [each.last_transition_time for each in ill[0].conditions or ()] == ["1970-01-01T00:01:00Z"]
    assert not same(ill, before)
    worse = timed(said(WHOLE, wrong="lost and found"), ill, 120.0)
    assert [each.last_transition_time for each in worse[0].conditions or ()] == ["1970-01-01T00:01:00Z"]


class World:
    """A writer that follows a server with claims."""

    def __init__(self, server: FakeApiServer, clock: VirtualClock) -> None:
        self.server = server
        self.clock = clock
        self.lines: list[tuple[str, ...]] = []
        self.writer = StatusWriter(DRIVER, self.lines.append, clock)

    def claim(self, uid: str, devices: list[dict[str, Any]] | None = None) -> None:
        status: dict[str, Any] = {} if devices is None else {"devices": devices}
        self.server.create(RESOURCE_CLAIMS, uid, {"metadata": {}, "status": status}, namespace=TEAM)
        self.server.store.objects[RESOURCE_CLAIMS.path(), TEAM, uid].body["metadata"]["uid"] = uid

    def show(self, *uids: str, wrong: str = "", read: bool = True) -> None:
        for uid in uids if read else ():
            self.writer.seen(Ref(TEAM, uid, uid), ())
        claims = [claim(WHOLE, uid=uid) for uid in uids]
        self.writer.show(statuses_of(claims, DRIVER, node([gpu(0)]), lambda _: wrong))

    def devices(self, uid: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.get(RESOURCE_CLAIMS, uid, namespace=TEAM)["status"].get("devices", [])
        return found

    async def settled(self) -> None:
        await self.until(lambda: self.writer.settled)

    async def until(self, condition: Callable[[], bool]) -> None:
        def met() -> bool:
            if not condition() and (due_s := self.clock.next_wake_s) is not None and due_s < 60.0:
                self.clock.advance(due_s)
            return condition()

        await eventually(met)

    @property
    def requests(self) -> list[str]:
        return [f"{request.method} {request.path.rsplit('/', 2)[-1]}" for request in self.server.requests]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as found:
        yield found


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    async with FakeApiServer() as server:
        found = World(server, VirtualClock())
        async with Client(server.config, user_agent="test") as client:
            task = asyncio.create_task(found.writer.follow(client, lambda: 0.5))
            yield found
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_what_is_said_is_written_once_changed_and_taken_away(world: World) -> None:
    world.claim("a")
    world.show("a")
    await world.settled()
    (entry,) = world.devices("a")
    assert (entry["driver"], entry["pool"], entry["device"]) == (DRIVER, "node-1", "gpu-0")
    assert entry["data"] == {"uuid": gpu(0).uuid, "minor": 0}
    assert entry["conditions"][0]["lastTransitionTime"].endswith("Z")
    assert "shareID" not in entry
    assert len(world.requests) == 1
    world.show("a", read=False)
    await world.settled()
    assert len(world.requests) == 1, "nothing has changed"
    world.show("a", wrong="XID 79", read=False)
    await world.settled()
    assert world.devices("a")[0]["conditions"][0]["message"] == "XID 79"
    world.show()
    await world.settled()
    assert world.devices("a") == []
    assert len(world.requests) == 3
    assert world.lines == []


async def test_what_an_earlier_agent_wrote_is_read_and_not_written_again(world: World) -> None:
    world.claim("a")
    world.show("a")
    await world.settled()
    there = world.devices("a")
    world.claim("b", there)
    world.show("a", "b", read=False)
    await world.settled()
    assert world.requests[1:] == ["GET b"]
    assert world.devices("b") == there
    world.show("a")
    await world.settled()
    assert len(world.server.written("/b/status")) == 1


async def test_a_claim_that_is_gone_or_replaced_is_left_alone(world: World) -> None:
    world.claim("a")
    world.writer.seen(Ref(TEAM, "a", "other"), ())
    world.writer.seen(Ref(TEAM, "gone", "gone"), ())
    replaced = structs.replace(claim(WHOLE, uid="other"), name="a")
    claims = [replaced, *(claim(WHOLE, uid=uid) for uid in ("gone", "unread"))]
    world.writer.show(statuses_of(claims, DRIVER, node([gpu(0)]), lambda _: ""))
    await world.settled()
    assert world.devices("a") == []
    before = len(world.requests)
    world.show()
    await world.settled()
    assert len(world.requests) == before


async def test_a_server_that_keeps_nothing_is_told_of_once_and_asked_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = world.server.store.apply

    def dropping(key: Any, body: dict[str, Any], manager: str, *, force: bool) -> dict[str, Any]:
        return apply(key, {**body, "status": {}}, manager, force=force)

    monkeypatch.setattr(world.server.store, "apply", dropping)
    world.claim("a")
    world.claim("b")
    world.show("a", "b")
    await world.settled()
    assert world.lines == [(words.statuses_not_kept(),)]
    world.show("b", wrong="lost")
    assert world.writer.settled
    assert len(world.server.written("/status")) == 1
    world.writer.seen(Ref(TEAM, "c", "c"), ())
    assert world.writer._there == {}, "nothing is kept of claims that nobody will write"


async def test_a_refusal_is_told_once_and_tried_again_after_a_while_without_holding_up_anything(world: World) -> None:
    forbidden = True
    world.server.refuse = lambda method, _: 403 if forbidden and method == "PATCH" else None
    for uid in ("a", "b"):
        world.claim(uid)
    world.show("a", "b")
    await world.settled()
    assert len(world.server.written("/status")) == 2
    (line,) = {line for lines in world.lines for line in lines}
    assert line.startswith("Mode dra: status.devices of ResourceClaims cannot be written, claims are served without: ")
    assert len(world.lines) == 1
    forbidden = False
    world.show("a", "b", wrong="XID 79")
    await world.settled()
    assert [len(world.devices(uid)) for uid in ("a", "b")] == [1, 1]
    assert world.lines[-1] == ()
    forbidden = True
    world.show("a", "b", read=False)
    count = len(world.requests)
    for tries in (2, 4):
        await world.until(lambda: world.clock.next_wake_s == pytest.approx(REFUSED_S))
        assert len(world.requests) == count + tries
        world.clock.advance(REFUSED_S)
        await world.until(lambda: not world.writer.settled)
    assert [bool(lines) for lines in world.lines] == [True, False, True], "told once each time that it begins"
    forbidden = False
    await world.until(lambda: world.devices("b")[0]["conditions"][0]["status"] == "True")


async def test_a_server_that_is_away_is_asked_again_and_gets_the_newest_alone(world: World) -> None:
    world.claim("a")
    world.server.down = True
    world.show("a", wrong="first")
    await eventually(lambda: bool(world.requests))
    world.show("a", wrong="second")
    world.server.down = False
    await world.settled()
    assert world.devices("a")[0]["conditions"][0]["message"] == "second"


def test_what_other_writers_say_is_read_as_it_is() -> None:
    theirs: dict[str, Any] = {
        "driver": "x",
        "pool": "p",
        "device": "d",
        "conditions": None,
        "data": [1],
        "networkData": {},
    }
    found = read(
        json.dumps({"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "status": {"devices": [theirs]}}).encode()
    )
    assert found.status.said_by(DRIVER) == ()
    (status,) = found.status.said_by("x")
    assert timed([status], [status], 0.0)[0].conditions == ()
