"""Events: told once, counted, bounded."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.client import Client
from kube.clock import Backoff
from kube.objects import ObjectReference
from kube.resources import EVENTS
from kube.testing import FakeApiServer, VirtualClock, eventually
from kube.writing.events import EventLog, EventRecorder, Occurrence

NODE = ObjectReference(api_version="v1", kind="Node", name="node-1", uid="uid-1")


def happened(reason: str = "GpuUnhealthy", note: str = "GPU 3 fell off the bus") -> Occurrence:
    return Occurrence(regarding=NODE, reason=reason, action="Probe", note=note, type="Warning")


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def recorder(server: FakeApiServer, clock: VirtualClock) -> AsyncIterator[EventRecorder]:
    async with Client(server.config) as client:
        backoff = Backoff(random=lambda: 0.5, initial_s=1.0)
        recorder = EventRecorder(
            client, controller="tessera.dev/agent", instance="node-1", clock=clock, backoff=backoff
        )
        task = asyncio.create_task(recorder.run())
        yield recorder
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_an_event_says_what_happened_to_which_object(server: FakeApiServer, recorder: EventRecorder) -> None:
    recorder.record(happened())
    await eventually(lambda: recorder.settled)
    (event,) = server.list_all(EVENTS)
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == {"kind": "Node", "name": "node-1", "apiVersion": "v1", "uid": "uid-1"}
    assert (event["reason"], event["type"]) == ("GpuUnhealthy", "Warning")
    assert event["reportingController"] == "tessera.dev/agent"
    assert event["eventTime"] == "2023-11-14T22:13:20.000000Z"
    assert "series" not in event


async def test_repeats_become_a_series_of_one_object(
    server: FakeApiServer, clock: VirtualClock, recorder: EventRecorder
) -> None:
    recorder.record(happened())
    await eventually(lambda: recorder.settled)
    for _ in range(5):
        clock.advance(1.0)
        recorder.record(happened())
    clock.advance(60.0)
    await eventually(lambda: recorder.settled)
    (event,) = server.list_all(EVENTS)
    assert event["series"]["count"] == 6
    assert len(server.seen("PATCH", "events")) == 1


async def test_what_happened_in_an_outage_is_told_afterwards_with_its_count(
    server: FakeApiServer, clock: VirtualClock, recorder: EventRecorder
) -> None:
    server.down = True
    recorder.record(happened())
    recorder.record(happened())
    recorder.record(happened(reason="GpuHealthy"))
    await eventually(lambda: len(server.requests) == 1 and clock.next_wake_s is not None)
    server.down = False
    clock.advance(2.0)
    await eventually(lambda: recorder.settled)
    counts = {event["reason"]: event.get("series", {}).get("count", 1) for event in server.list_all(EVENTS)}
    assert counts == {"GpuUnhealthy": 2, "GpuHealthy": 1}


async def test_a_series_whose_object_expired_is_told_anew(
    server: FakeApiServer, clock: VirtualClock, recorder: EventRecorder
) -> None:
    recorder.record(happened())
    await eventually(lambda: recorder.settled)
    (event,) = server.list_all(EVENTS)
    server.delete(EVENTS, event["metadata"]["name"], namespace="default")
    recorder.record(happened())
    clock.advance(60.0)
    await eventually(lambda: recorder.settled)
    (event,) = server.list_all(EVENTS)
    assert event["series"]["count"] == 2


async def test_an_event_that_is_refused_does_not_hold_up_the_next(
    server: FakeApiServer, recorder: EventRecorder
) -> None:
    answers = iter([422])
    server.refuse = lambda _method, _path: next(answers, None)
    recorder.record(happened())
    recorder.record(happened(reason="Next"))
    await eventually(lambda: recorder.settled)
    assert [event["reason"] for event in server.list_all(EVENTS)] == ["Next"]
    assert recorder.dropped == 1


def test_after_the_window_the_same_thing_is_a_new_event() -> None:
    log = EventLog(window_s=600.0)
    log.add(happened(), 0.0)
    (first,) = log.due(0.0)
    log.written(first, 1, 0.0)
    log.add(happened(), 601.0)
    (second,) = log.due(601.0)
    assert (second.name != first.name, second.count) == (True, 1)


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 50)), max_size=120), st.integers(1, 8))
def test_memory_is_bounded_and_every_occurrence_is_waiting_written_or_counted_as_dropped(
    steps: list[tuple[int, float]], capacity: int
) -> None:
    log = EventLog(window_s=100.0, repeat_s=10.0, capacity=capacity)
    now, written = 0.0, 0
    for n, (kind, pause_s) in enumerate(steps):
        now += pause_s
        log.add(happened(note=f"number {kind}"), now)
        assert len(log) <= capacity
        if n % 3 == 0:
            for entry in log.due(now):
                written += entry.count - entry.written_count
                log.written(entry, entry.count, now)
    waiting = sum(entry.count - entry.written_count for entry in log.due(float("inf")))
    assert waiting + written + log.dropped == len(steps)
