import math
from itertools import pairwise

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.boards.loads import Load, value_at
from simulator.boards.products import PRODUCTS
from simulator.boards.telemetry import Meter, read_meter
from simulator.fleet.orders import Reset, SetLoad
from tests.simulator.conftest import Simulate, gpu, node

A100 = PRODUCTS["NVIDIA A100-SXM4-80GB"]
LOAD = (
    "load:\n- {gpu: 0, smUtil: 0.9, memUsedMiB: 40960, powerW: 380, pid: 4242, name: train, throttle: [swPowerCap]}\n"
)

moments = st.floats(0, 1000, allow_nan=False)


@st.composite
def curves(draw: st.DrawFn, most: float) -> tuple[tuple[float, float], ...]:
    times = sorted(draw(st.sets(st.integers(0, 1000), min_size=1, max_size=5)))
    return tuple((float(t), draw(st.floats(0, most))) for t in times)


@st.composite
def loads(draw: st.DrawFn) -> tuple[Load, ...]:
    return tuple(
        Load(gpu=0, pid=pid, sm_util=draw(curves(0.3)), nvlink_tx_mib_s=draw(curves(100)))
        for pid in range(1, draw(st.integers(1, 3)) + 1)
    )


@given(loads(), st.lists(moments, min_size=1, max_size=6))
def test_counters_do_not_depend_on_when_they_are_read(work: tuple[Load, ...], reads: list[float]) -> None:
    meter = Meter()
    for t in sorted(reads):
        later = read_meter(meter, work, A100, 400, t)
        assert later.energy_mj >= meter.energy_mj
        meter = later
    once = read_meter(Meter(), work, A100, 400, max(reads))
    assert math.isclose(meter.energy_mj, once.energy_mj, rel_tol=1e-6, abs_tol=1e-3)
    assert math.isclose(meter.nvlink_tx_kib, once.nvlink_tx_kib, rel_tol=1e-6, abs_tol=1e-3)


@given(curves(1.0), moments)
def test_a_curve_stays_between_its_neighbouring_points(curve: tuple[tuple[float, float], ...], t: float) -> None:
    value = value_at(curve, t)
    if t <= curve[0][0]:
        assert value == curve[0][1]
    elif t >= curve[-1][0]:
        assert value == curve[-1][1]
    else:
        (_, low), (_, high) = next((a, b) for a, b in pairwise(curve) if a[0] <= t <= b[0])
        assert min(low, high) - 1e-9 <= value <= max(low, high) + 1e-9


def test_an_idle_board_draws_its_idle_power() -> None:
    assert read_meter(Meter(), (), A100, 400, 10.0).energy_mj == pytest.approx(55 * 10 * 1000)


def test_a_load_shows_in_every_figure(simulate: Simulate) -> None:
    simulate(node(2, more=LOAD))
    rates = pynvml.nvmlDeviceGetUtilizationRates(gpu())
    assert (rates.gpu, rates.memory) == (90, 45)
    assert pynvml.nvmlDeviceGetPowerUsage(gpu()) == 380_000
    assert pynvml.nvmlDeviceGetPowerUsage(gpu(1)) == 55_000
    assert pynvml.nvmlDeviceGetTemperature(gpu(), 0) > pynvml.nvmlDeviceGetTemperature(gpu(1), 0)
    assert pynvml.nvmlDeviceGetTemperatureV(gpu(), 0) == pynvml.nvmlDeviceGetTemperature(gpu(), 0)
    assert pynvml.nvmlDeviceGetClockInfo(gpu(), pynvml.NVML_CLOCK_SM) == 1410
    assert pynvml.nvmlDeviceGetClockInfo(gpu(1), pynvml.NVML_CLOCK_SM) == 345
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu()) == pynvml.nvmlClocksEventReasonSwPowerCap
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu(1)) == pynvml.nvmlClocksEventReasonGpuIdle
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu())
    assert (process.pid, process.usedGpuMemory, process.gpuInstanceId) == (4242, 40960 * 2**20, 0xFFFFFFFF)
    (sample,) = pynvml.nvmlDeviceGetProcessUtilization(gpu(), 0)
    assert (sample.pid, sample.smUtil, sample.memUtil) == (4242, 90, 45)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetProcessUtilization(gpu(), sample.timeStamp + 10**9)
    (info,) = pynvml.nvmlDeviceGetProcessesUtilizationInfo(gpu(), 0)
    assert (info.pid, info.smUtil) == (4242, 90)
    assert pynvml.nvmlSystemGetProcessName(4242) == "train"
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(gpu(1)) == []


def test_counters_restart_at_a_reset_and_go_on_over_a_restart(simulate: Simulate) -> None:
    simulation = simulate(node(1, more=LOAD))
    first = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu())
    simulation = simulate()
    second = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu())
    assert second > first
    simulation.change_gpu(0, lambda state, t: replace(state, meter=older(t)))
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) > 10**9
    simulation.order(Reset(gpu=0))
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) < 10**6


def older(t: float) -> Meter:
    """Counters of a board that has run for long."""
    return Meter(at=0, read_at=t, energy_mj=2e9)


def test_a_new_load_replaces_the_same_process_and_none_leaves_it_idle(simulate: Simulate) -> None:
    simulation = simulate(node(1, more=LOAD))
    simulation.order(SetLoad(gpu=0, load=Load(gpu=0, pid=4242, sm_util=((0.0, 0.1),))))
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu()).gpu == 10
    simulation.order(SetLoad(gpu=0, load=Load(gpu=0, pid=1, sm_util=((0.0, 0.2),))))
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu()).gpu == 30
    simulation.order(SetLoad(gpu=0, load=None))
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu()).gpu == 0


def test_fields_agree_with_their_functions(simulate: Simulate) -> None:
    simulate(node(1, "NVIDIA H100 80GB HBM3", "load:\n- {gpu: 0, smUtil: 0.5, nvlinkTxMiBs: 1800, pid: 1}\n"))
    wanted = [3, 4, 5, 6, 74, 75, 76, 77, 78, 79, 82, 83, 91, 94, 142, 143, 144, 145, 185, 186, 230]
    values = {value.fieldId: value for value in pynvml.nvmlDeviceGetFieldValues(gpu(), wanted)}
    assert all(value.nvmlReturn == pynvml.NVML_SUCCESS for value in values.values())
    assert values[186].value.uiVal == pynvml.nvmlDeviceGetPowerUsage(gpu())
    assert values[91].value.uiVal == 18
    assert values[82].value.uiVal > pynvml.nvmlDeviceGetTemperature(gpu(), 0)
    total, one = pynvml.nvmlDeviceGetFieldValues(gpu(), [(138, 0xFFFFFFFF), (138, 3)])
    assert total.value.ullVal == pytest.approx(18 * one.value.ullVal, abs=100)


def test_an_unknown_field_fails_alone(simulate: Simulate) -> None:
    simulate(node(1, "Tesla T4"))
    values = pynvml.nvmlDeviceGetFieldValues(gpu(), [83, 271, 138, 145, 4])
    codes = [value.nvmlReturn for value in values]
    unsupported = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert codes == [0, unsupported, unsupported, unsupported, 0]


def test_the_power_limit_is_kept_within_its_bounds(simulate: Simulate) -> None:
    simulate(node(1))
    least, most = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu())
    pynvml.nvmlDeviceSetPowerManagementLimit(gpu(), least)
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu()) == least
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetPowerManagementLimit(gpu(), most + 1000)
