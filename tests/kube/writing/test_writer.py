"""Order for one object, side by side for many, and what becomes of each write."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.client import Client
from kube.clock import SystemClock
from kube.objects import Metadata
from kube.resources import NODES, PODS, Resource
from kube.testing import FakeApiServer, VirtualClock, eventually
from kube.writing.writer import Tuning, Writer
from kube.writing.writes import Abandoned, Conflicted, Missing, Outcome, Refused, Superseded, Verb, Write, Written
from tests.support.hang import HANG_S

THINGS = Resource("example.org", "v1", "things", "Thing")
SWIFT = Tuning(parallel=4, first_pause_s=0.002, longest_pause_s=0.02)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with Client(server.config, timeout_s=HANG_S) as client:
        yield client


@pytest.fixture
async def writer(client: Client) -> AsyncIterator[Writer]:
    async with Writer(client, clock=SystemClock(), random=lambda: 0.5, tuning=SWIFT) as writer:
        yield writer


def state(name: str, value: int, *, slot: str | None = None) -> Write[Metadata]:
    body = {"apiVersion": "example.org/v1", "kind": "Thing", "status": {"value": value}}
    return Write(verb=Verb.APPLY, resource=THINGS, name=name, body=body, kind=Metadata, slot=slot)


def create(name: str, resource: Resource = THINGS, namespace: str | None = None) -> Write[Metadata]:
    body = {"metadata": {"name": name}}
    return Write(verb=Verb.CREATE, resource=resource, name=name, namespace=namespace, body=body, kind=Metadata)


def values(server: FakeApiServer, name: str) -> list[int]:
    """What ``name`` held, one after the other."""
    return [
        change.body["status"]["value"] for change in server.store.changes if change.body["metadata"]["name"] == name
    ]


async def test_writes_of_one_object_arrive_in_the_order_of_their_submission(
    server: FakeApiServer, writer: Writer
) -> None:
    names = ("a", "b", "c", "d", "e")
    for value in range(10):
        for name in names:
            await writer.submit(state(name, value))
    await writer.drain()
    assert all(values(server, name) == list(range(10)) for name in names)


async def test_different_objects_are_written_side_by_side_up_to_the_limit(
    server: FakeApiServer, writer: Writer
) -> None:
    server.hold = asyncio.Event()
    for number in range(10):
        writer.put(state(f"n{number}", 1))
        writer.put(state(f"n{number}", 2))
    await eventually(lambda: writer.in_flight == SWIFT.parallel)
    await eventually(lambda: len(server.requests) == SWIFT.parallel)
    assert len({request.path for request in server.requests}) == SWIFT.parallel, "one object only once at a time"
    server.hold.set()
    await writer.drain()
    assert len(server.requests) == 20


async def test_of_the_states_that_wait_only_the_newest_is_sent(server: FakeApiServer, writer: Writer) -> None:
    server.hold = asyncio.Event()
    first = writer.put(state("a", 0, slot="status"))
    await eventually(lambda: writer.in_flight == 1)
    older = [writer.put(state("a", value, slot="status")) for value in range(1, 5)]
    other = writer.put(state("a", 50))
    newest = writer.put(state("a", 5, slot="status"))
    server.hold.set()
    await writer.drain()
    assert values(server, "a") == [0, 50, 5]
    assert [future.result() for future in older] == [Superseded()] * 4
    assert all(isinstance(future.result(), Written) for future in (first, other, newest))


async def test_a_state_is_replaced_while_the_server_is_away(server: FakeApiServer, writer: Writer) -> None:
    server.down = True
    older = writer.put(state("a", 1, slot="status"))
    await eventually(lambda: len(server.requests) > 2)
    newest = writer.put(state("a", 2, slot="status"))
    await eventually(older.done)
    server.down = False
    assert isinstance(await newest, Written)
    assert older.result() == Superseded()
    assert values(server, "a") == [2]


async def test_what_the_caller_must_decide_is_handed_back(server: FakeApiServer, writer: Writer) -> None:
    server.create(NODES, "taken")
    conflict = await writer.put(create("taken", NODES))
    assert isinstance(conflict, Conflicted)
    assert conflict.error.reason == "AlreadyExists"
    gone: Write[Metadata] = Write(
        verb=Verb.MERGE_PATCH, resource=PODS, name="p", namespace="n", body={"metadata": {}}, kind=Metadata
    )
    assert isinstance(await writer.put(gone), Missing)
    test = [{"op": "test", "path": "/metadata/labels/a", "value": "0"}]
    failing: Write[Metadata] = Write(verb=Verb.JSON_PATCH, resource=NODES, name="taken", body=test, kind=Metadata)
    assert isinstance(await writer.put(failing), Refused)
    server.refuse = lambda _method, _path: 403
    assert isinstance(await writer.put(state("a", 1)), Refused)
    assert writer.pending == 0


async def test_a_delete_names_the_object_it_means(server: FakeApiServer, writer: Writer) -> None:
    server.create(NODES, "a")
    wrong: Write[Metadata] = Write(verb=Verb.DELETE, resource=NODES, name="a", body="uid-other", kind=Metadata)
    right: Write[Metadata] = Write(verb=Verb.DELETE, resource=NODES, name="a", body="uid-0001", kind=Metadata)
    assert isinstance(await writer.put(wrong), Conflicted)
    assert await writer.put(right) == Written(None)
    assert server.list_all(NODES) == []


async def test_a_delete_in_the_foreground_waits_for_what_the_object_owns(server: FakeApiServer, writer: Writer) -> None:
    server.store.finalizers = True
    server.create(NODES, "a")
    write: Write[Metadata] = Write(
        verb=Verb.DELETE, resource=NODES, name="a", body="uid-0001", kind=Metadata, foreground=True
    )
    assert await writer.put(write) == Written(None)
    meta = server.get(NODES, "a")["metadata"]
    assert (meta["finalizers"], "deletionTimestamp" in meta) == (["foregroundDeletion"], True)


async def test_a_body_is_made_when_its_turn_has_come(writer: Writer) -> None:
    versions: list[str] = []
    first = writer.put(state("a", 1))
    first.add_done_callback(lambda done: versions.append(version(done.result())))

    def conditional() -> dict[str, Any]:
        return {"metadata": {"resourceVersion": versions[-1], "labels": {"x": "1"}}}

    second: Write[Metadata] = Write(verb=Verb.MERGE_PATCH, resource=THINGS, name="a", body=conditional, kind=Metadata)
    assert isinstance(await writer.put(second), Written)
    assert len(versions) == 1


def version(outcome: Outcome[Metadata]) -> str:
    assert isinstance(outcome, Written)
    assert outcome.object is not None
    return outcome.object.metadata.resource_version


async def test_a_body_that_cannot_be_made_is_refused_and_the_writer_goes_on(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> dict[str, Any]:
        raise KeyError("admission")

    caplog.set_level(logging.CRITICAL)
    for body in (broken, {"status": object()}):
        write: Write[Metadata] = Write(verb=Verb.APPLY, resource=THINGS, name="a", body=body, kind=Metadata)
        assert isinstance(await writer.put(write), Refused)
    assert isinstance(await writer.put(state("a", 1)), Written)


async def test_a_restart_of_the_server_loses_and_reorders_nothing(server: FakeApiServer, writer: Writer) -> None:
    names = [f"n{number}" for number in range(8)]
    futures = []
    for value in range(12):
        if value in (3, 7):
            server.cut()
        futures += [await writer.submit(state(name, value)) for name in names]
        await asyncio.sleep(0.005)
        server.down = False
    await writer.drain()
    assert all(isinstance(future.result(), Written) for future in futures)
    for name in names:
        seen = values(server, name)
        assert seen == sorted(seen), "an older state arrived after a newer one"
        assert seen[-1] == 11


async def test_a_lost_answer_is_tried_again_and_the_echo_says_so(server: FakeApiServer, writer: Writer) -> None:
    lost = iter([True])
    server.lose_answer = lambda _method, _path: next(lost, False)
    outcome = await writer.put(create("a"))
    assert isinstance(outcome, Conflicted)
    assert outcome.attempts == 2


async def test_a_refusal_after_a_lost_answer_is_not_believed_until_the_server_has_its_roles(
    server: FakeApiServer, writer: Writer
) -> None:
    """The write was done before the API server went; one that has just come up refuses whatever it is asked."""
    answers = iter([None, 403, 403])
    lost = iter([True])
    server.refuse = lambda _method, _path: next(answers, None)
    server.lose_answer = lambda _method, _path: next(lost, False)
    outcome = await writer.put(state("a", 1))
    assert isinstance(outcome, Written)
    assert outcome.attempts == 4


async def test_a_refusal_is_believed_at_once_where_every_attempt_was_answered(
    server: FakeApiServer, writer: Writer
) -> None:
    answers = iter([500, 403])
    server.refuse = lambda _method, _path: next(answers, None)
    outcome = await writer.put(state("a", 1))
    assert isinstance(outcome, Refused)
    assert outcome.attempts == 2


async def test_one_object_that_the_server_fails_on_does_not_hold_up_the_others(
    server: FakeApiServer, client: Client
) -> None:
    clock = VirtualClock()
    async with Writer(client, clock=clock, random=lambda: 0.5, tuning=Tuning(parallel=1, first_pause_s=1.0)) as writer:
        server.refuse = lambda _method, path: 500 if path.endswith("/sick") else None
        sick = writer.put(state("sick", 1))
        others = [writer.put(state(f"n{number}", 1)) for number in range(5)]
        await eventually(lambda: all(other.done() for other in others))
        assert clock.next_wake_s == 1.0
        server.refuse = lambda _method, _path: None
        clock.advance(1.01)
        outcome = await sick
        assert isinstance(outcome, Written)
        assert outcome.attempts == 2


async def test_a_full_queue_makes_the_caller_wait(server: FakeApiServer, client: Client) -> None:
    tuning = Tuning(parallel=2, limit=5)
    async with Writer(client, clock=SystemClock(), random=lambda: 0.5, tuning=tuning) as writer:
        server.hold = asyncio.Event()
        for number in range(5):
            await writer.submit(state(f"n{number}", 1))
        late = asyncio.create_task(writer.submit(state("late", 1)))
        await eventually(lambda: writer.in_flight == 2)
        assert not late.done()
        assert not writer.has_room
        server.hold.set()
        assert isinstance(await (await late), Written)


async def test_who_is_not_the_leader_writes_nothing(server: FakeApiServer, client: Client) -> None:
    leading = True
    async with Writer(
        client, clock=SystemClock(), random=lambda: 0.5, tuning=Tuning(parallel=1), may_write=lambda: leading
    ) as writer:
        server.hold = asyncio.Event()
        first = writer.put(state("a", 1))
        await eventually(lambda: len(server.requests) == 1, what="the first has left: it is past the fence")
        waiting = [writer.put(state("a", 2)), writer.put(state("b", 1))]
        leading = False
        server.hold.set()
        await writer.drain()
        assert isinstance(first.result(), Written)
        assert all(isinstance(future.result(), Abandoned) for future in waiting)
        assert len(server.requests) == 1


async def test_closing_settles_what_was_not_written(server: FakeApiServer, client: Client) -> None:
    server.hold = asyncio.Event()
    async with Writer(client, clock=SystemClock(), random=lambda: 0.5, tuning=Tuning(parallel=1)) as writer:
        futures = [writer.put(state(name, 1)) for name in "abc"]
        await eventually(lambda: writer.in_flight == 1)
    assert [future.result() for future in futures] == [
        Abandoned("closed", 1),
        Abandoned("closed", 0),
        Abandoned("closed", 0),
    ]
    assert writer.pending == 0
    assert (await writer.submit(state("d", 1))).result() == Abandoned("closed")


async def test_the_server_decides_how_long_to_stay_away(server: FakeApiServer, client: Client) -> None:
    clock = VirtualClock()
    async with Writer(
        client, clock=clock, random=lambda: 0.5, tuning=Tuning(parallel=3, first_pause_s=1.0, longest_pause_s=4.0)
    ) as writer:
        server.refuse = lambda _method, _path: 429
        for name in "abcdef":
            writer.put(state(name, 1))
        for pause_s in (1.0, 2.0, 4.0, 4.0):
            await eventually(lambda pause=pause_s: clock.next_wake_s == pause and writer.in_flight == 0)  # type: ignore[misc]
            clock.advance(pause_s / 2)
            seen = len(server.requests)
            await asyncio.sleep(0.01)
            assert len(server.requests) == seen, "asked again before the pause was over"
            clock.advance(pause_s / 2 + 0.001)
        server.refuse = lambda _method, _path: None
        await eventually(lambda: clock.next_wake_s is not None)
        clock.advance(4.1)
        await writer.drain()


class Tally:
    def __init__(self) -> None:
        self.statuses: list[int | None] = []
        self.outcomes: list[str] = []
        self.waits_s: list[float] = []

    def attempted(self, _write: Write[Any], latency_s: float, status: int | None) -> None:
        self.statuses.append(status)
        self.waits_s.append(latency_s)

    def finished(self, _write: Write[Any], outcome: Outcome[Any], waited_s: float) -> None:
        self.outcomes.append(type(outcome).__name__)
        self.waits_s.append(waited_s)


async def test_every_attempt_and_every_outcome_is_counted(server: FakeApiServer, client: Client) -> None:
    tally = Tally()
    async with Writer(client, clock=SystemClock(), random=lambda: 0.5, tuning=SWIFT, observer=tally) as writer:
        await writer.put(state("a", 1))
        statuses = iter([500, 404])
        server.refuse = lambda _method, _path: next(statuses, None)
        await writer.put(state("a", 2))
    assert tally.statuses == [200, 500, 404]
    assert tally.outcomes == ["Written", "Missing"]
    assert all(wait_s >= 0 for wait_s in tally.waits_s)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([None, "status", "spec"]), st.booleans()), max_size=25
    ),
    faults=st.lists(st.sampled_from([None, 500, 503, "lost"]), max_size=15),
)
def test_whatever_fails_each_slot_ends_with_its_newest_state_and_none_goes_back(
    steps: list[tuple[str, str | None, bool]], faults: list[int | str | None]
) -> None:
    asyncio.run(_anything_may_fail(steps, faults))


async def _anything_may_fail(steps: list[tuple[str, str | None, bool]], faults: list[int | str | None]) -> None:
    async with FakeApiServer() as server, Client(server.config, timeout_s=HANG_S) as client:
        drawn = iter(faults)
        current: list[int | str | None] = [None]

        def refuse(_method: str, _path: str) -> int | None:
            current[0] = next(drawn, None)
            return current[0] if isinstance(current[0], int) else None

        server.refuse = refuse
        server.lose_answer = lambda _method, _path: current[0] == "lost"
        newest: dict[tuple[str, str | None], int] = {}
        async with Writer(client, clock=SystemClock(), random=lambda: 0.5, tuning=SWIFT) as writer:
            futures = []
            for value, (name, slot, pause) in enumerate(steps):
                newest[name, slot] = value
                futures.append(await writer.submit(state(name, value, slot=slot)))
                if pause:
                    await asyncio.sleep(0)
            await writer.drain()
        assert all(isinstance(future.result(), Written | Superseded) for future in futures)
        for name in {name for name, _ in newest}:
            seen = values(server, name)
            assert seen == sorted(seen)
            assert set(seen) >= {value for (at, _), value in newest.items() if at == name}
