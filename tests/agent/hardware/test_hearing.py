"""One thread waits for the events of all GPUs, and no XID is lost or told twice when that changes."""

import asyncio
import threading
from collections import Counter

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hardware import driver as session
from agent.hardware import hearing, worker
from agent.hardware.driver import Driver
from agent.hardware.hearing import Once
from agent.hardware.query import CallTimedOut, GpuLost
from agent.hardware.worker import XidEvent
from inventory.devices import Gpu, NodeInventory
from kube.testing import eventually
from simulator.fleet import orders
from simulator.simulation import Simulation
from tests.agent.hardware.conftest import Heard, Simulate
from tests.support.hang import HANG_S

WAIT = "nvmlEventSetWait_v2"


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch, impatient: float) -> None:  # noqa: ARG001 - what it patches, too
    """What hangs is noticed soon."""
    monkeypatch.setattr(session, "CLOSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(worker, "HANGS_AFTER_S", 0.2)
    monkeypatch.setattr(hearing, "RETIRE_TIMEOUT_S", 0.2)


async def listening(simulate: Simulate, driver: Driver, gpus: int = 3, more: str = "") -> tuple[Simulation, list[Gpu]]:
    simulation = simulate(gpus, more=more)
    await driver.open()
    found = (await driver.discover(())).node
    await driver.watch()
    assert together(driver)
    return simulation, list(found.gpus)


def together(driver: Driver) -> bool:
    return driver._hearing._thread is not None and not any(slot.worker.listens for slot in driver._slots)


def apart(driver: Driver) -> bool:
    return driver._hearing._thread is None and all(slot.worker.listens for slot in driver._slots)


async def tended(driver: Driver, simulation: Simulation) -> None:
    """The looks that come every few seconds, until GPUs are listened to one by one."""

    def look() -> bool:
        driver._hearing.tend()
        return driver._hearing._thread is None

    await eventually(look)
    assert simulation.sets


async def test_one_set_and_one_wait_are_for_all_gpus(simulate: Simulate, driver: Driver, heard: Heard) -> None:
    simulation, gpus = await listening(simulate, driver, 8)
    assert len(simulation.sets) == 1
    for index in (7, 0, 3):
        simulation.order(orders.Xid(gpu=index, xid=31 + index))
    await eventually(lambda: len(heard.xids) == 3)
    assert heard.xids == [(gpus[7].uuid, 38), (gpus[0].uuid, 31), (gpus[3].uuid, 34)]


async def test_a_gpus_calls_do_not_wait_for_a_wait_to_end(
    simulate: Simulate, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "EVENT_WAIT_MS", 600_000)
    simulation, gpus = await listening(simulate, driver)
    for gpu in gpus * 3:
        assert not (await driver.probe(gpu.uuid, 10)).reset
    monkeypatch.setattr(worker, "EVENT_WAIT_MS", 20)
    simulation.order(orders.Xid(gpu=0, xid=31))  # ends the long wait


async def test_an_xid_of_an_instance_is_its_parents_with_the_instance(
    simulate: Simulate, driver: Driver, heard: Heard
) -> None:
    simulation, gpus = await listening(simulate, driver, 2, "  migEnabled: [1]\n  mig: {1: [3g.20gb]}\n")
    (instance,) = gpus[1].mig_instances
    simulation.order(orders.Xid(gpu=1, xid=94, gi=instance.gi_id, ci=0))
    await eventually(lambda: heard.events == [(gpus[1].uuid, XidEvent(94, gi=instance.gi_id, ci=0))])


async def test_another_look_at_the_same_gpus_changes_nothing(simulate: Simulate, driver: Driver) -> None:
    simulation, gpus = await listening(simulate, driver)
    before = simulation.sets
    await driver.discover(gpus)
    await driver.watch()
    assert simulation.sets == before


async def test_a_lost_gpu_costs_the_others_no_xid(simulate: Simulate, driver: Driver, heard: Heard) -> None:
    simulation, gpus = await listening(simulate, driver)
    told = []
    for xid in (31, 43, 45, 48):
        if xid == 43:
            simulation.order(orders.Lost(gpu=1))
        simulation.order(orders.Xid(gpu=0, xid=xid))
        told.append((gpus[0].uuid, xid))
        await asyncio.sleep(0)
    await eventually(lambda: len(heard.xids) == len(told))
    assert heard.xids == told
    await eventually(lambda: driver._slots[0].worker.listens)
    simulation.order(orders.Xid(gpu=2, xid=62))
    await eventually(lambda: heard.xids[-1] == (gpus[2].uuid, 62))
    with pytest.raises(GpuLost):
        await driver.probe(gpus[1].uuid, 5)


async def test_after_a_reset_all_are_heard_by_one_again(simulate: Simulate, driver: Driver, heard: Heard) -> None:
    simulation, gpus = await listening(simulate, driver)
    simulation.order(orders.Reset(gpu=1))
    assert (await driver.probe(gpus[1].uuid, 5)).reset
    assert apart(driver)
    await driver.discover(gpus)
    await driver.watch()
    assert together(driver)
    assert len(simulation.sets) == 1
    for index in range(3):
        simulation.order(orders.Xid(gpu=index, xid=31))
    await eventually(lambda: heard.xids == [(gpu.uuid, 31) for gpu in gpus])


async def test_every_xid_is_told_once_while_the_sets_change(simulate: Simulate, driver: Driver, heard: Heard) -> None:
    simulation, gpus = await listening(simulate, driver)
    sent: list[tuple[str, int]] = []

    async def send() -> None:
        for number in range(300):
            simulation.order(orders.Xid(gpu=number % 3, xid=500 + number))
            sent.append((gpus[number % 3].uuid, 500 + number))
            await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    changes = 0
    while not sending.done() or changes < 4:
        await driver._hearing.renew(driver._slots[0])
        assert apart(driver)
        await driver.watch()
        assert together(driver)
        changes += 2
    await sending
    await eventually(lambda: len(heard.xids) >= len(sent))
    await driver.watch()
    assert Counter(heard.xids) == Counter(sent)


@pytest.mark.usefixtures("brisk")
async def test_a_wait_that_hangs_for_one_gpu_leaves_the_others_heard_and_is_that_gpus_fault(
    simulate: Simulate, driver: Driver, heard: Heard
) -> None:
    simulation, gpus = await listening(simulate, driver)
    simulation.order(orders.Slow(call=WAIT, seconds=600, gpu=1))
    await tended(driver, simulation)
    await eventually(lambda: driver._slots[0].worker.listens and driver._slots[2].worker.listens)
    for index in (0, 2):
        assert not (await driver.probe(gpus[index].uuid, 10)).reset
        simulation.order(orders.Xid(gpu=index, xid=31))
    await eventually(lambda: Counter(heard.xids) == Counter([(gpus[0].uuid, 31), (gpus[2].uuid, 31)]))
    with pytest.raises(CallTimedOut):
        await driver.probe(gpus[1].uuid, 0.2)


@pytest.mark.usefixtures("brisk")
async def test_beside_a_wait_that_hangs_no_other_wait_for_all_is_begun(simulate: Simulate, driver: Driver) -> None:
    simulation, _ = await listening(simulate, driver)
    simulation.order(orders.Slow(call=WAIT, seconds=600, gpu=1))
    await tended(driver, simulation)
    simulation.order(orders.Slow(call=WAIT, seconds=0, gpu=1))
    await eventually(lambda: driver._slots[0].worker.listens)
    await driver.watch()
    assert driver._hearing._thread is None


async def test_once_all_answers_again_they_are_heard_by_one_after_some_time(
    simulate: Simulate, driver: Driver, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation, gpus = await listening(simulate, driver)
    simulation.order(orders.Fail(call=WAIT, code=pynvml.NVML_ERROR_UNKNOWN))
    await tended(driver, simulation)
    simulation.order(orders.Fail(call=WAIT, code=0))
    driver._hearing.tend()
    assert driver._hearing._thread is None, "that was a moment ago"
    monkeypatch.setattr(hearing, "TOGETHER_AGAIN_S", 0)

    def look() -> bool:
        driver._hearing.tend()
        return together(driver)

    await eventually(look)
    simulation.order(orders.Xid(gpu=2, xid=31))
    await eventually(lambda: heard.xids == [(gpus[2].uuid, 31)])


async def test_a_gpu_that_hangs_as_it_joins_leaves_the_others_heard(
    simulate: Simulate, driver: Driver, heard: Heard, impatient: float
) -> None:
    simulation = simulate(3)
    await driver.open()
    gpus = (await driver.discover(())).node.gpus
    simulation.order(orders.Slow(call="nvmlDeviceRegisterEvents", seconds=600, gpu=1))
    await driver.watch()
    assert driver._hearing._thread is None
    for index in (0, 2):
        simulation.order(orders.Xid(gpu=index, xid=31))
    told = Counter([(gpus[0].uuid, 31), (gpus[2].uuid, 31)])  # by a thread each, in no order
    await eventually(lambda: Counter(heard.xids) == told, within_s=10 * impatient)


@pytest.mark.usefixtures("brisk")
async def test_a_session_is_not_shut_down_under_a_wait_that_hangs(
    simulate: Simulate, driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    simulation, _ = await listening(simulate, driver)
    simulation.order(orders.Slow(call=WAIT, seconds=600, gpu=0))
    thread = driver._hearing._thread
    assert thread is not None
    await eventually(lambda: thread.late)
    await driver.close()
    assert any("NVML stays open" in record.getMessage() for record in caplog.records)
    assert pynvml.nvmlDeviceGetCount() == 3


async def test_a_session_is_not_shut_down_under_a_call_beside_the_probes_and_the_next_end_shuts_both_down(
    simulate: Simulate, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation, gpus = await listening(simulate, driver)
    begun, goes_on = threading.Event(), threading.Event()

    def change(_: object) -> None:
        begun.set()
        goes_on.wait(HANG_S)

    call = asyncio.create_task(driver.on_gpu(gpus[0].uuid, change, HANG_S))
    await asyncio.to_thread(begun.wait, HANG_S)
    monkeypatch.setattr(session, "CLOSE_TIMEOUT_S", 0.05)
    await driver.close()
    assert pynvml.nvmlDeviceGetCount() == 3
    goes_on.set()
    await call
    monkeypatch.undo()
    await driver.open()
    await driver.close()
    assert simulation.opened == frozenset()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


@pytest.mark.parametrize("steps", [0, 1, 2, 4, 8, 16])
async def test_a_change_that_the_sessions_end_cuts_off_leaves_no_thread_in_a_wait(
    simulate: Simulate, driver: Driver, steps: int
) -> None:
    simulation, _ = await listening(simulate, driver)
    for change in (driver._hearing._apart, driver._hearing._together):
        driver._hearing._mending = asyncio.create_task(driver._hearing._mend(change))
        for _ in range(steps):
            await asyncio.sleep(0)
    await driver._hearing.close()
    await asyncio.gather(*(slot.worker.unwatch(5) for slot in driver._slots))
    await eventually(lambda: not driver._hearing._still_stuck() and simulation.sets == frozenset())


async def test_between_sessions_nothing_is_heard(simulate: Simulate, driver: Driver, heard: Heard) -> None:
    simulation, _ = await listening(simulate, driver)
    await driver.close()
    assert simulation.sets == frozenset()
    simulation.order(orders.Xid(gpu=0, xid=31))
    await driver.open()
    node: NodeInventory = (await driver.discover(())).node
    await driver.watch()
    simulation.order(orders.Xid(gpu=0, xid=43))
    await eventually(lambda: bool(heard.xids))
    assert heard.xids == [(node.gpus[0].uuid, 43)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40))
def test_of_several_tellers_each_event_counts_as_often_as_one_of_them_says_it(told: list[tuple[int, int]]) -> None:
    once = Once()
    passed = Counter(event for source, event in told if once.is_first(source, event))
    by_source = Counter(told)
    events = {event for _, event in told}
    assert passed == {event: max(by_source[source, event] for source in range(3)) for event in events}
