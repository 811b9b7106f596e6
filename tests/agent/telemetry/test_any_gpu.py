"""What must hold of any GPU's figures: on simulated ones always, on the machine's own with ``-m gpu``."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from agent.hardware.gpus import read_gpu
from agent.telemetry import usage
from agent.telemetry.fields import BY_NAME, FIELDS, FieldKind
from agent.telemetry.reading.reader import GpuReader
from agent.telemetry.reading.readings import GpuReading, Values
from agent.telemetry.series import Scene, write
from inventory.devices import Gpu, NodeInventory, NodeName
from inventory.links import UNKNOWN_LINK
from tests.agent.telemetry.conftest import Board

ALWAYS = {"DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP"}
GIB = 2**30


def claims(handle: Any, gpu: Gpu, look: Callable[[], float]) -> GpuReading:
    """Two passes: figures are plausible, counters do not fall, everything adds up and can be written."""
    reader = GpuReader(frozenset(field.name for field in FIELDS))
    first = reader.read(handle, gpu, 1, look())
    second = reader.read(handle, gpu, 1, look())
    assert first.first
    assert not second.first
    for values in (second.values, *(one.values for one in second.instances)):
        plausible(values)
    assert second.values.keys() >= ALWAYS
    for name, value in second.values.items():
        assert BY_NAME[name].kind is not FieldKind.COUNTER or value >= first.values.get(name, 0), f"{name} fell"
    assert second.links_up <= second.links
    assert all(one.memory_mib is None or one.memory_mib <= gpu.memory_mib for one in second.processes)
    node = NodeInventory(name=NodeName("this"), gpus=(gpu,), links=((UNKNOWN_LINK,),))
    found = usage.usages(node, {gpu.uuid: second}, {}, {})
    usage.validate(found, {gpu.uuid: second})
    assert write(Scene(node=node, usages=found, readings={gpu.uuid: second})).text().count(b"\n") > len(ALWAYS)
    reader.close()
    return second


def plausible(values: Values) -> None:
    for name, value in values.items():
        assert math.isfinite(value), name
        assert value >= 0, name
        if name.startswith("DCGM_FI_PROF_"):
            assert value <= (4096 * GIB if name.endswith("_BYTES") else 1), name
        if name.endswith("_UTIL"):
            assert value <= 100, name
        if BY_NAME[name].kind is FieldKind.GAUGE and not name.endswith("_BYTES"):
            assert value < 0x7FFFFFF0, name
    if "DCGM_FI_DEV_FB_RESERVED" in values:
        parts = sum(values[f"DCGM_FI_DEV_FB_{part}"] for part in ("USED", "FREE", "RESERVED"))
        assert parts == pytest.approx(values["DCGM_FI_DEV_FB_TOTAL"], rel=0.01)


@pytest.mark.parametrize("product", ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla T4", "NVIDIA RTX A6000"])
def test_simulated_gpus_hold_what_any_must(board: Callable[..., Board], product: str) -> None:
    one = board(product)

    def look() -> float:
        one.now_s += 1
        return one.now_s

    claims(one.handle, one.gpu, look)


@pytest.fixture
def driver() -> Iterator[None]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as missing:
        pytest.fail(f"no NVIDIA driver here: {missing}")
    yield
    pynvml.nvmlShutdown()


@pytest.mark.gpu
@pytest.mark.usefixtures("driver")
def test_the_machines_own_gpus_hold_what_any_must() -> None:
    def look() -> float:
        time.sleep(1)  # the hardware's own time: nothing can be waited for
        return time.monotonic()

    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = read_gpu(handle, index, Path("/sys"))
        found = claims(handle, gpu, look)
        if gpu.architecture in ("hopper", "blackwell") and not gpu.mig_enabled:
            assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in found.values
