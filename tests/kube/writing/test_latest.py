"""Only the newest state is written, and not too often."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable

import pytest

from kube.clock import Backoff
from kube.errors import ForbiddenError, KubeError, UnavailableError
from kube.testing import VirtualClock, eventually
from kube.writing.latest import LatestWriter


class Sink:
    """Takes what is written, or fails."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.attempts = 0
        self.error: KubeError | None = None

    async def write(self, value: str) -> None:
        self.attempts += 1
        if self.error is not None:
            raise self.error
        self.taken.append(value)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
async def writer(clock: VirtualClock, sink: Sink) -> AsyncIterator[LatestWriter[str]]:
    backoff = Backoff(random=lambda: 0.5, initial_s=1.0, maximum_s=8.0)
    writer: LatestWriter[str] = LatestWriter(
        "thing", sink.write, clock=clock, backoff=backoff, min_interval_s=2.0, resync_s=300.0
    )
    task = asyncio.create_task(writer.run())
    yield writer
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def attempts(sink: Sink, n: int) -> Callable[[], bool]:
    return lambda: sink.attempts >= n


async def idle(clock: VirtualClock) -> None:
    """Until the writer sleeps, and nothing it could still do at this instant is left."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert clock is not None


async def test_states_within_the_interval_collapse_into_the_last(
    clock: VirtualClock, sink: Sink, writer: LatestWriter[str]
) -> None:
    writer.put("a")
    await eventually(attempts(sink, 1))
    for value in "bcd":
        writer.put(value)
    clock.advance(1.9)
    await idle(clock)
    assert sink.taken == ["a"]
    clock.advance(0.2)
    await eventually(lambda: sink.taken == ["a", "d"])
    assert writer.settled


async def test_an_outage_is_waited_out_with_growing_pauses_and_the_newest_state_wins(
    clock: VirtualClock, sink: Sink, writer: LatestWriter[str]
) -> None:
    sink.error = UnavailableError("down")
    writer.put("a")
    await eventually(attempts(sink, 1))
    writer.put("b")
    await idle(clock)
    assert sink.attempts == 1, "a new state must not cut the pause short"
    for pause in (2.0, 2.0, 4.0, 8.0):
        before = sink.attempts
        clock.advance(pause + 0.01)
        await eventually(attempts(sink, before + 1))
    sink.error = None
    writer.put("c")
    clock.advance(8.01)
    await eventually(lambda: sink.taken == ["c"])


async def test_a_state_put_while_an_older_one_fails_is_not_lost(clock: VirtualClock) -> None:
    gate = asyncio.Event()
    taken: list[str] = []

    async def write(value: str) -> None:
        if value == "old":
            await gate.wait()
            raise UnavailableError("late")
        taken.append(value)

    writer: LatestWriter[str] = LatestWriter("t", write, clock=clock, backoff=Backoff(random=lambda: 0.5))
    task = asyncio.create_task(writer.run())
    writer.put("old")
    await idle(clock)
    writer.put("new")
    gate.set()
    await idle(clock)
    clock.advance(10)
    await eventually(lambda: taken == ["new"])
    task.cancel()


async def test_the_server_decides_how_long_the_latest_write_stays_away(
    clock: VirtualClock, sink: Sink, writer: LatestWriter[str]
) -> None:
    sink.error = UnavailableError("busy", retry_after_s=20.0)
    writer.put("a")
    await eventually(attempts(sink, 1))
    clock.advance(19.0)
    await idle(clock)
    assert sink.attempts == 1
    clock.advance(5.0)
    await eventually(attempts(sink, 2))


async def test_missing_rights_are_not_hammered(clock: VirtualClock, sink: Sink, writer: LatestWriter[str]) -> None:
    sink.error = ForbiddenError("no")
    writer.put("a")
    await eventually(attempts(sink, 1))
    clock.advance(29.0)
    await idle(clock)
    assert sink.attempts == 1
    clock.advance(2.0)
    await eventually(attempts(sink, 2))


async def test_what_was_written_is_written_again_after_the_resync_time(
    clock: VirtualClock, sink: Sink, writer: LatestWriter[str]
) -> None:
    writer.put("a")
    await eventually(attempts(sink, 1))
    await idle(clock)
    clock.advance(301.0)
    await eventually(lambda: sink.taken == ["a", "a"])


async def test_nothing_is_written_before_something_is_put(
    clock: VirtualClock, sink: Sink, writer: LatestWriter[str]
) -> None:
    await idle(clock)
    clock.advance(10_000.0)
    await idle(clock)
    assert sink.attempts == 0
    assert writer.settled


async def test_a_repeating_failure_is_logged_once_a_minute(
    clock: VirtualClock, sink: Sink, writer: LatestWriter[str], caplog: pytest.LogCaptureFixture
) -> None:
    sink.error = UnavailableError("down")
    writer.put("a")
    for n in range(1, 12):
        await eventually(attempts(sink, n))
        await idle(clock)
        clock.advance(10.0)
    assert 2 <= len(caplog.records) <= 3


def test_backoff_grows_to_its_maximum_and_stays_within_the_jitter() -> None:
    for random in (0.0, 0.5, 1.0):
        backoff = Backoff(random=itertools.repeat(random).__next__, initial_s=1.0, maximum_s=4.0, jitter=0.25)
        pauses = [backoff.next() for _ in range(4)]
        factor = 1 + 0.25 * (2 * random - 1)
        assert pauses == [1.0 * factor, 2.0 * factor, 4.0 * factor, 4.0 * factor]
        backoff.reset()
        assert backoff.next() == 1.0 * factor


async def test_what_is_heard_during_a_write_is_looked_at_after_its_gap(clock: VirtualClock) -> None:
    """It may be what another client did after the write: the writer cannot tell."""
    going, may_end, written = asyncio.Event(), asyncio.Event(), list[str]()

    async def write(value: str) -> None:
        going.set()
        await may_end.wait()
        written.append(value)

    backoff = Backoff(random=lambda: 0.5, initial_s=1.0, maximum_s=8.0)
    writer: LatestWriter[str] = LatestWriter("thing", write, clock=clock, backoff=backoff, resync_s=300.0)
    task = asyncio.create_task(writer.run())
    writer.put("a")
    await going.wait()
    writer.look_again(60.0)
    may_end.set()
    await eventually(lambda: writer.settled)
    clock.advance(59.0)
    await idle(clock)
    assert written == ["a"]
    clock.advance(2.0)
    await eventually(lambda: written == ["a", "a"])
    clock.advance(61.0)
    await idle(clock)
    assert written == ["a", "a"], "the next is the usual one"
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
