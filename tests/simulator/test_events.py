import threading
import time
from typing import Any

import pynvml
import pytest

from simulator.fleet.orders import Ecc, Lost, Reset, Xid
from simulator.hardware.hardware import WHOLE_GPU
from tests.simulator.conftest import Simulate, gpu, node
from tests.support.hang import HANG_S

XID = pynvml.nvmlEventTypeXidCriticalError


def listen(*indexes: int, kinds: int = XID) -> Any:
    events = pynvml.nvmlEventSetCreate()
    for index in indexes:
        pynvml.nvmlDeviceRegisterEvents(gpu(index), kinds, events)
    return events


def next_event(events: Any, timeout_ms: int = 0) -> Any:
    return pynvml.nvmlEventSetWait(events, timeout_ms)


def test_an_event_says_which_gpu_and_what(simulate: Simulate) -> None:
    simulation = simulate(node(3))
    events = listen(0, 1, 2)
    simulation.order(Xid(gpu=1, xid=31))
    event = next_event(events)
    assert (event.eventType, event.eventData) == (XID, 31)
    assert (event.gpuInstanceId, event.computeInstanceId) == (WHOLE_GPU, WHOLE_GPU)
    assert pynvml.nvmlDeviceGetUUID(event.device) == pynvml.nvmlDeviceGetUUID(gpu(1))
    with pytest.raises(pynvml.NVMLError_Timeout):
        next_event(events)


def test_an_event_of_an_instance_names_it(simulate: Simulate) -> None:
    simulation = simulate(node(1, more="  mig: {0: [3g.40gb]}\n"))
    events = listen(0)
    simulation.order(Xid(gpu=0, xid=94, gi=2, ci=0))
    event = next_event(events)
    assert (event.eventData, event.gpuInstanceId, event.computeInstanceId) == (94, 2, 0)


def test_only_registered_gpus_and_kinds_are_heard(simulate: Simulate) -> None:
    simulation = simulate(node(2))
    events = listen(0)
    simulation.order(Xid(gpu=1, xid=31))
    simulation.order(Ecc(gpu=0, uncorrected=1))
    with pytest.raises(pynvml.NVMLError_Timeout):
        next_event(events)
    both = listen(0, kinds=XID | pynvml.nvmlEventTypeDoubleBitEccError)
    simulation.order(Xid(gpu=0, xid=48))
    assert {next_event(both).eventType, next_event(both).eventType} == {XID, pynvml.nvmlEventTypeDoubleBitEccError}


def test_a_stray_event_comes_once_and_to_the_set_of_another_gpu(simulate: Simulate) -> None:
    simulation = simulate(node(2, more="  strayEvents: true\n"))
    mine, other = listen(1), listen(0)
    simulation.order(Xid(gpu=1, xid=62))
    event = next_event(other)
    assert pynvml.nvmlDeviceGetUUID(event.device) == pynvml.nvmlDeviceGetUUID(gpu(1))
    assert event.eventData == 62
    with pytest.raises(pynvml.NVMLError_Timeout):
        next_event(mine)


def test_a_stray_event_with_one_set_only_comes_to_that(simulate: Simulate) -> None:
    simulation = simulate(node(2, more="  strayEvents: true\n"))
    events = listen(0, 1)
    simulation.order(Xid(gpu=1, xid=31))
    assert next_event(events).eventData == 31


def test_an_event_ends_a_wait_that_is_under_way(simulate: Simulate) -> None:
    simulation = simulate(node())
    events = listen(0)
    heard: list[int] = []
    thread = threading.Thread(target=lambda: heard.append(next_event(events, 60_000).eventData))
    thread.start()
    simulation.order(Xid(gpu=0, xid=13))
    thread.join(HANG_S)
    assert heard == [13]


def test_a_wait_lasts_as_long_as_it_was_told(simulate: Simulate) -> None:
    simulate(node())
    events = listen(0)
    started = time.monotonic()
    with pytest.raises(pynvml.NVMLError_Timeout):
        next_event(events, 60)
    assert time.monotonic() - started >= 0.06


def test_after_a_reset_an_old_registration_hears_nothing(simulate: Simulate) -> None:
    simulation = simulate(node())
    events = listen(0)
    simulation.order(Reset(gpu=0))
    simulation.order(Xid(gpu=0, xid=31))
    with pytest.raises(pynvml.NVMLError_Timeout):
        next_event(events)
    pynvml.nvmlDeviceRegisterEvents(gpu(0), XID, events)
    simulation.order(Xid(gpu=0, xid=43))
    assert next_event(events).eventData == 43


def test_a_set_with_a_lost_gpu_tells_what_it_has_and_then_that_it_is_lost(simulate: Simulate) -> None:
    simulation = simulate(node())
    events = listen(0, 1)
    simulation.order(Xid(gpu=0, xid=79))
    assert next_event(events).eventData == 79
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        next_event(events, 60_000)
    simulation.order(Reset(gpu=0))
    simulation.order(Xid(gpu=1, xid=31))
    assert next_event(events).eventData == 31


def test_a_gpu_that_is_lost_during_a_wait_ends_it(simulate: Simulate) -> None:
    simulation = simulate(node())
    events = listen(0)
    codes: list[int] = []

    def wait() -> None:
        try:
            next_event(events, 60_000)
        except pynvml.NVMLError as error:
            codes.append(error.value)

    thread = threading.Thread(target=wait)
    thread.start()
    simulation.order(Lost(gpu=0))
    thread.join(HANG_S)
    assert codes == [pynvml.NVML_ERROR_GPU_IS_LOST]


def test_freeing_a_set_ends_its_waits_and_its_handle(simulate: Simulate) -> None:
    simulate(node())
    events = listen(0)
    pynvml.nvmlEventSetFree(events)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        next_event(events)


def test_unknown_kinds_are_not_supported(simulate: Simulate) -> None:
    simulate(node())
    assert pynvml.nvmlDeviceGetSupportedEventTypes(gpu()) & XID
    with pytest.raises(pynvml.NVMLError_NotSupported):
        listen(0, kinds=1 << 40)


def test_timed_events_of_the_fleet_are_heard(simulate: Simulate) -> None:
    simulate(node(2, more="events:\n- {at: 0.15, gpu: 1, xid: 45}\n- {at: 0.1, gpu: 0, xid: 13}\n"))
    events = listen(0, 1)
    assert [next_event(events, 5000).eventData for _ in range(2)] == [13, 45]
