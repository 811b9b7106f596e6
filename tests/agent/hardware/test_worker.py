"""One thread for each GPU: what hangs, fails or is late stays that GPU's own matter."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial

import pynvml
import pytest

from agent.hardware import worker as worker_module
from agent.hardware.query import CallFailed, CallTimedOut, GpuLost
from agent.hardware.worker import QUEUE_LENGTH, GpuWorker, XidEvent
from kube.testing import eventually
from simulator.fleet import orders
from tests.agent.hardware.conftest import Simulate
from tests.support.hang import HANG_S

Start = Callable[..., GpuWorker]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Makes workers whose threads end with the test."""
    workers: list[GpuWorker] = []

    def make(name: str = "gpu0", on_event: Callable[[XidEvent], None] | None = None) -> GpuWorker:
        workers.append(GpuWorker(name, on_event))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


class Hang:
    """A call that returns when it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> str:
        self.entered.set()
        self.release.wait(HANG_S)
        return "late"


@pytest.fixture
def hang() -> Hang:
    return Hang()


async def test_a_call_runs_on_the_workers_own_thread(start: Start) -> None:
    worker = start("gpu7")
    names = {await worker.call(lambda: threading.current_thread().name) for _ in range(3)}
    assert names == {"nvml-gpu7"}


async def test_calls_are_answered_in_order(start: Start) -> None:
    worker = start()
    ran: list[int] = []
    await asyncio.gather(*(worker.call(partial(ran.append, n)) for n in range(QUEUE_LENGTH - 1)))
    assert ran == list(range(QUEUE_LENGTH - 1))


@pytest.mark.parametrize("error", [CallFailed("no"), ValueError("odd"), KeyError("x")])
async def test_what_a_call_raises_reaches_its_caller_and_the_next_call_is_answered(
    start: Start, error: Exception
) -> None:
    worker = start()

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await worker.call(fail)
    assert await worker.call(lambda: 1) == 1


async def test_a_hung_call_times_out_and_delays_no_other_gpu(start: Start, hang: Hang) -> None:
    stuck, free = start("gpu0"), start("gpu1")
    hanging = asyncio.create_task(stuck.call(hang, 0.2))
    for n in range(20):
        assert await free.call(partial(int, n), 5) == n
    assert not hanging.done()
    with pytest.raises(CallTimedOut, match=r"within 0\.2 s"):
        await hanging
    hang.release.set()
    assert await stuck.call(lambda: "again") == "again"


async def test_behind_a_hung_call_the_queue_fills_and_then_refuses_at_once(start: Start, hang: Hang) -> None:
    worker = start()
    hanging = asyncio.create_task(worker.call(hang, 5))
    await eventually(hang.entered.is_set)
    waiting = [asyncio.create_task(worker.call(lambda: None, 5)) for _ in range(QUEUE_LENGTH)]
    await asyncio.sleep(0)
    with pytest.raises(CallTimedOut, match="earlier NVML calls"):
        await worker.call(lambda: None, 60)
    hang.release.set()
    await asyncio.gather(hanging, *waiting)


async def test_a_call_that_nobody_waits_for_any_more_is_not_made(start: Start, hang: Hang) -> None:
    worker = start()
    hanging = asyncio.create_task(worker.call(hang, 5))
    await eventually(hang.entered.is_set)
    made: list[str] = []
    with pytest.raises(CallTimedOut):
        await worker.call(lambda: made.append("stale"), 0.05)
    hang.release.set()
    await hanging
    await worker.call(lambda: made.append("fresh"))
    assert made == ["fresh"]


async def test_closing_ends_the_thread(start: Start) -> None:
    worker = start()
    await worker.call(lambda: None)
    worker.close()
    await eventually(lambda: not worker._thread.is_alive())


async def test_a_thread_that_hung_beside_a_full_queue_ends_once_its_call_has_come_back(
    start: Start, hang: Hang
) -> None:
    worker = start()
    hanging = asyncio.create_task(worker.call(hang, 5))
    await eventually(hang.entered.is_set)
    waiting = [asyncio.create_task(worker.call(lambda: None, 5)) for _ in range(QUEUE_LENGTH)]
    await asyncio.sleep(0)
    worker.close()
    hang.release.set()
    await asyncio.gather(hanging, *waiting)
    await eventually(lambda: worker.ended)


async def test_closing_does_not_wait_for_a_hung_call(start: Start, hang: Hang) -> None:
    worker = start()
    hanging = asyncio.create_task(worker.call(hang, 5))
    await eventually(hang.entered.is_set)
    worker.close()
    assert worker._thread.daemon
    hang.release.set()
    await hanging
    await eventually(lambda: not worker._thread.is_alive())


def test_an_answer_after_the_loops_end_troubles_nobody(hang: Hang) -> None:
    async def leave() -> GpuWorker:
        worker = GpuWorker("gpu0")
        with pytest.raises(CallTimedOut):
            await worker.call(hang, 0.05)
        worker.close()
        return worker

    worker = asyncio.run(leave())
    hang.release.set()
    worker._thread.join(HANG_S)
    assert not worker._thread.is_alive()


# Events, from simulated GPUs.


@pytest.fixture
async def opened(simulate: Simulate) -> AsyncIterator[Simulate]:
    yield simulate
    pynvml.nvmlShutdown()


async def listening(start: Start, heard: list[XidEvent], gpu: int = 0) -> GpuWorker:
    worker = start(f"gpu{gpu}", heard.append)
    assert await worker.watch(pynvml.nvmlDeviceGetHandleByIndex(gpu))
    return worker


def recorded_waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The times in ms for which threads wait for events, as they are asked for."""
    waits: list[int] = []
    wait = pynvml.nvmlEventSetWait_v2

    def recorded(events: object, wait_ms: int) -> object:
        waits.append(wait_ms)
        return wait(events, wait_ms)

    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", recorded)
    return waits


async def test_in_a_hurry_a_call_waits_for_little_and_events_are_still_told(
    opened: Simulate, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "EVENT_WAIT_MS", 30_000)
    simulation = opened(1)
    pynvml.nvmlInit()
    heard: list[XidEvent] = []
    worker = start("gpu0", heard.append)
    worker.hurry(1000)
    assert await worker.watch(pynvml.nvmlDeviceGetHandleByIndex(0))
    for _ in range(3):
        assert await worker.call(lambda: "at once", timeout_s=HANG_S) == "at once"
    simulation.order(orders.Xid(gpu=0, xid=62))
    await eventually(lambda: heard == [XidEvent(62)])


async def test_after_an_event_the_thread_waits_in_short_turns_for_a_while(
    opened: Simulate, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = recorded_waits(monkeypatch)
    monkeypatch.setattr(worker_module, "EVENT_WAIT_MS", 200)
    monkeypatch.setattr(worker_module, "ALERT_S", 0.3)
    simulation = opened(1)
    pynvml.nvmlInit()
    heard: list[XidEvent] = []
    await listening(start, heard)
    await eventually(lambda: waits[-1:] == [200])
    simulation.order(orders.Xid(gpu=0, xid=119))
    await eventually(lambda: heard == [XidEvent(119)] and waits[-1] == worker_module.HURRIED_WAIT_MS)
    await eventually(lambda: waits[-1] == 200)


async def test_an_xid_is_told_with_its_instance(opened: Simulate, start: Start) -> None:
    simulation = opened(2, more="  migEnabled: [0]\n  mig: {0: [3g.20gb]}\n")
    pynvml.nvmlInit()
    heard: list[XidEvent] = []
    await listening(start, heard)
    simulation.order(orders.Xid(gpu=0, xid=31))
    simulation.order(orders.Xid(gpu=0, xid=94, gi=1, ci=0))
    await eventually(lambda: len(heard) == 2)
    assert heard == [XidEvent(31), XidEvent(94, gi=1, ci=0)]


async def test_xids_of_another_gpu_are_not_told(opened: Simulate, start: Start) -> None:
    simulation = opened(2)
    pynvml.nvmlInit()
    heard: list[XidEvent] = []
    await listening(start, heard)
    simulation.order(orders.Xid(gpu=1, xid=79))
    simulation.order(orders.Xid(gpu=0, xid=31))
    await eventually(lambda: bool(heard))
    assert heard == [XidEvent(31)]


async def test_memory_errors_wake_nobody_but_the_counters(opened: Simulate, start: Start) -> None:
    simulation = opened(1)
    pynvml.nvmlInit()
    heard: list[XidEvent] = []
    worker = await listening(start, heard)
    simulation.order(orders.Ecc(gpu=0, corrected=3))
    simulation.order(orders.Xid(gpu=0, xid=31))
    await eventually(lambda: bool(heard))
    assert heard == [XidEvent(31)]
    assert await worker.call(lambda: 1) == 1


async def test_calls_are_answered_while_it_listens(opened: Simulate, start: Start) -> None:
    opened(1)
    pynvml.nvmlInit()
    worker = await listening(start, [])
    assert [await worker.call(partial(int, n)) for n in range(3)] == [0, 1, 2]


async def test_a_lost_gpu_ends_the_listening_without_a_busy_loop(opened: Simulate, start: Start) -> None:
    simulation = opened(1)
    pynvml.nvmlInit()
    worker = await listening(start, [])
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert worker.watches(handle)
    assert not worker.deaf
    simulation.order(orders.Lost(gpu=0))
    await eventually(lambda: worker.deaf)
    assert not worker.watches(handle)
    assert await worker.call(lambda: "blocks in its queue, not in NVML") is not None


async def test_watching_again_after_a_reset_hears_the_new_gpu(opened: Simulate, start: Start) -> None:
    simulation = opened(1)
    pynvml.nvmlInit()
    heard: list[XidEvent] = []
    worker = await listening(start, heard)
    simulation.order(orders.Reset(gpu=0))
    assert await worker.watch(pynvml.nvmlDeviceGetHandleByIndex(0))
    simulation.order(orders.Xid(gpu=0, xid=48))
    await eventually(lambda: bool(heard))
    assert heard == [XidEvent(48)]


async def test_an_xid_just_before_watching_anew_is_still_told(opened: Simulate, start: Start) -> None:
    simulation = opened(1)
    pynvml.nvmlInit()
    heard: list[XidEvent] = []
    worker = await listening(start, heard)
    entered, release = threading.Event(), threading.Event()

    def busy() -> None:
        entered.set()
        release.wait(HANG_S)

    held = asyncio.create_task(worker.call(busy))
    await eventually(entered.is_set)
    again = asyncio.create_task(worker.watch(pynvml.nvmlDeviceGetHandleByIndex(0)))
    await asyncio.sleep(0)
    for xid in (74, 119):
        simulation.order(orders.Xid(gpu=0, xid=xid))
    release.set()
    assert await again
    await held
    await eventually(lambda: len(heard) == 2)
    assert [event.xid for event in heard] == [74, 119]


async def test_unwatched_it_tells_nothing_and_is_not_called_deaf(opened: Simulate, start: Start) -> None:
    simulation = opened(1)
    pynvml.nvmlInit()
    heard: list[XidEvent] = []
    worker = await listening(start, heard)
    await worker.unwatch(5)
    simulation.order(orders.Xid(gpu=0, xid=31))
    await worker.call(lambda: None)
    assert heard == []
    assert not worker.deaf
    assert not worker.watches(pynvml.nvmlDeviceGetHandleByIndex(0))


async def test_a_failed_registration_of_events_is_tried_again(opened: Simulate, start: Start) -> None:
    simulation = opened(1)
    pynvml.nvmlInit()
    worker = start()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    simulation.order(orders.Lost(gpu=0))
    with pytest.raises(GpuLost):
        await worker.watch(handle)
    assert worker.deaf
