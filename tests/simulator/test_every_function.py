"""Every simulated function answers through pynvml, on every kind of board, with a value or an NVML error."""

import inspect
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from simulator.fleet.orders import Ecc, Lost, Reset, Xid
from simulator.nvml.library import FUNCTIONS
from tests.simulator.conftest import Simulate, gpu, node

NOT_IN_PYNVML = {
    "nvmlInit",
    "nvmlInit_v2",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetHandleByPciBusId",
    "nvmlDeviceGetPciInfo_v2",
    "nvmlDeviceGetRetiredPages_v1",
    "nvmlEventSetWait",
}
"""Names that the C library has and pynvml does not call."""

BOARDS = ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla T4", "NVIDIA RTX A6000", "NVIDIA GB200"]


def test_every_name_is_one_that_pynvml_calls() -> None:
    called = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', inspect.getsource(pynvml)))
    assert set(FUNCTIONS) - called == NOT_IN_PYNVML


def getters() -> list[tuple[str, Callable[..., Any]]]:
    """pynvml's functions of a device, whose other arguments may be 0."""
    found = []
    for name, function in sorted(vars(pynvml).items()):
        if not name.startswith("nvmlDeviceGet") or "Handle" in name or "Vgpu" in name:
            continue
        first = next(iter(inspect.signature(function).parameters), "")
        if first in ("handle", "device"):
            found.append((name, function))
    return found


def call(function: Callable[..., Any], handle: Any) -> object:
    """The answer or the error's class, for zeros as further arguments."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    zeros = [0 for parameter in parameters if parameter.default is inspect.Parameter.empty]
    try:
        return function(handle, *zeros)
    except pynvml.NVMLError as error:
        return type(error)
    except (TypeError, AttributeError) as error:  # structs that only a caller can make
        return type(error)


@pytest.mark.parametrize("board", BOARDS)
def test_every_getter_answers_or_refuses(simulate: Simulate, caplog: pytest.LogCaptureFixture, board: str) -> None:
    simulate(node(2, board, "load:\n- {gpu: 0, smUtil: 0.5, pid: 3}\n"))
    answered = 0
    with caplog.at_level(logging.ERROR):
        for _, function in getters():
            answer = call(function, gpu())
            answered += not isinstance(answer, type)
    # Zeros are wrong where a struct is wanted: those calls are logged and refused, none is let through.
    assert all("cannot take" in record.message for record in caplog.records)
    assert answered > 70


def test_a_lost_gpu_answers_nothing_but_that_it_is_lost(simulate: Simulate) -> None:
    simulation = simulate(node(2))
    handle = gpu(0)
    simulation.order(Lost(gpu=0))
    answers = {name: call(function, handle) for name, function in getters()}
    refusals = {pynvml.NVMLError_FunctionNotFound, pynvml.NVMLLibraryMismatchError, AttributeError, TypeError}
    assert set(answers.values()) <= {pynvml.NVMLError_GpuIsLost, *refusals}
    assert answers["nvmlDeviceGetName"] is pynvml.NVMLError_GpuIsLost


def test_many_threads_and_faults_at_once_keep_the_state_whole(simulate: Simulate) -> None:
    simulation = simulate(node(4, "NVIDIA H100 80GB HBM3"))
    stop = threading.Event()
    wrong: list[BaseException] = []

    def read(index: int) -> None:
        while not stop.wait(0.0005):
            try:
                handle = gpu(index)
                assert pynvml.nvmlDeviceGetIndex(handle) == index
                pynvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0)
            except pynvml.NVMLError_GpuIsLost:
                continue
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                wrong.append(error)
                return

    threads = [threading.Thread(target=read, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for i in range(60):
        simulation.order(Ecc(gpu=i % 4, uncorrected=1))
        simulation.order(Xid(gpu=i % 4, xid=79))
        simulation.order(Reset(gpu=i % 4))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [state.ecc.aggregate_uncorrected for state in simulation.hardware.gpus] == [15] * 4


def test_a_waiter_hears_the_xid_before_it_finds_the_gpu_lost(simulate: Simulate) -> None:
    simulation = simulate(node(1))
    heard: list[object] = []
    for _ in range(20):
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(gpu(), pynvml.nvmlEventTypeXidCriticalError, events)

        def listen(events: Any = events) -> None:
            while True:
                try:
                    heard.append(pynvml.nvmlEventSetWait(events, 1).eventData)
                except pynvml.NVMLError_Timeout:
                    continue
                except pynvml.NVMLError_GpuIsLost:
                    return

        thread = threading.Thread(target=listen)
        thread.start()
        simulation.order(Xid(gpu=0, xid=79))
        thread.join()
        pynvml.nvmlEventSetFree(events)
        simulation.order(Reset(gpu=0))
    assert heard == [79] * 20
