import threading

import pynvml
import pytest

from simulator.fleet.orders import Add, Driver, Ecc, Fail, Lost, Reboot, RemapFailure, Remove, Reset, Slow, Xid
from tests.simulator.conftest import Simulate, gpu, node
from tests.support.hang import HANG_S

RECOVERY = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION


def recovery(index: int = 0) -> int:
    return int(pynvml.nvmlDeviceGetFieldValues(gpu(index), [RECOVERY])[0].value.uiVal)


def uncorrected(index: int = 0) -> int:
    return int(
        pynvml.nvmlDeviceGetTotalEccErrors(
            gpu(index), pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    )


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_an_application_xid_leaves_nothing(simulate: Simulate, xid: int) -> None:
    simulation = simulate(node())
    before = simulation.hardware.gpus[0]
    simulation.order(Xid(gpu=0, xid=xid))
    after = simulation.hardware.gpus[0]
    assert (recovery(), uncorrected()) == (0, 0)
    assert (after.ecc, after.remap, after.lost, after.epoch) == (before.ecc, before.remap, False, before.epoch)


@pytest.mark.parametrize("xid", [48, 74, 95, 119, 120])
def test_a_fatal_xid_asks_for_a_reset_until_there_was_one(simulate: Simulate, xid: int) -> None:
    simulation = simulate(node())
    simulation.order(Xid(gpu=0, xid=xid))
    assert recovery() == pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    simulation.order(Xid(gpu=0, xid=13))
    assert recovery() == pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    assert recovery(1) == 0
    simulation.order(Reset(gpu=0))
    assert recovery() == 0


def test_after_a_reset_old_handles_are_lost_and_new_ones_work(simulate: Simulate) -> None:
    simulation = simulate(node())
    old, other = gpu(0), gpu(1)
    simulation.order(Ecc(gpu=0, uncorrected=3))
    assert uncorrected() == 3
    simulation.order(Reset(gpu=0))
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetName(old)
    assert pynvml.nvmlDeviceGetName(other) == pynvml.nvmlDeviceGetName(gpu(0))
    assert uncorrected() == 0
    aggregate = pynvml.nvmlDeviceGetTotalEccErrors(gpu(0), 1, pynvml.NVML_AGGREGATE_ECC)
    assert aggregate == 3


def test_a_lost_gpu_stays_in_the_list_and_delays_no_other(simulate: Simulate) -> None:
    simulation = simulate(node(3))
    handle = gpu(1)
    simulation.order(Xid(gpu=1, xid=79))
    assert pynvml.nvmlDeviceGetCount() == 3
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetName(handle)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        gpu(1)
    assert pynvml.nvmlDeviceGetIndex(gpu(2)) == 2
    simulation.order(Reset(gpu=1))
    assert pynvml.nvmlDeviceGetIndex(gpu(1)) == 1


def test_a_removed_gpu_leaves_the_list_and_an_added_one_has_no_history(simulate: Simulate) -> None:
    simulation = simulate(node(3))
    uuids = [pynvml.nvmlDeviceGetUUID(gpu(i)) for i in range(3)]
    old = gpu(0)
    simulation.order(RemapFailure(gpu=0))
    simulation.order(Remove(gpu=0))
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetUUID(gpu(0)) == uuids[1]
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetName(old)
    simulation.order(Add(gpu=0))
    assert [pynvml.nvmlDeviceGetUUID(gpu(i)) for i in range(3)] == uuids
    assert pynvml.nvmlDeviceGetRemappedRows(gpu(0)) == (0, 0, 0, 0)


def test_a_pending_remapping_is_done_by_a_reset_and_a_failed_one_stays(simulate: Simulate) -> None:
    simulation = simulate(node())
    simulation.order(Xid(gpu=0, xid=63))
    assert pynvml.nvmlDeviceGetRemappedRows(gpu()) == (0, 0, 1, 0)
    simulation.order(Xid(gpu=0, xid=64))
    assert pynvml.nvmlDeviceGetRemappedRows(gpu()) == (0, 0, 1, 1)
    simulation.order(Reset(gpu=0))
    assert pynvml.nvmlDeviceGetRemappedRows(gpu()) == (0, 1, 0, 1)
    histogram = pynvml.nvmlDeviceGetRowRemapperHistogram(gpu())
    assert (histogram.high, histogram.none) == (1, 1)


def test_boards_before_ampere_retire_pages_in_place_of_rows(simulate: Simulate) -> None:
    simulation = simulate(node(1, "Tesla T4"))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetRemappedRows(gpu())
    assert pynvml.nvmlDeviceGetRetiredPages(gpu(), 1) == []
    simulation.order(Xid(gpu=0, xid=63))
    assert pynvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu()) == 1
    simulation.order(Reset(gpu=0))
    assert len(pynvml.nvmlDeviceGetRetiredPages(gpu(), 1)) == 1


def test_an_xid_of_one_instance_leaves_the_whole_gpu_alone(simulate: Simulate) -> None:
    simulation = simulate(node(1, more="  mig: {0: [3g.40gb, 3g.40gb]}\n"))
    mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 0)
    other = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 1)
    simulation.order(Xid(gpu=0, xid=48, gi=pynvml.nvmlDeviceGetGpuInstanceId(mig), ci=0))
    assert (recovery(), uncorrected()) == (0, 0)
    counts = [pynvml.nvmlDeviceGetTotalEccErrors(handle, 1, pynvml.NVML_VOLATILE_ECC) for handle in (mig, other)]
    assert counts == [1, 0]


def test_without_a_driver_nothing_answers(simulate: Simulate) -> None:
    simulation = simulate(node())
    old = gpu()
    simulation.order(Driver(up=False))
    for call in (pynvml.nvmlDeviceGetCount, pynvml.nvmlInit, lambda: pynvml.nvmlDeviceGetName(old)):
        with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
            call()
    simulation.order(Driver(up=True, version="575.51.03"))
    assert pynvml.nvmlSystemGetDriverVersion() == "575.51.03"
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetName(old)
    assert pynvml.nvmlDeviceGetName(gpu())


def test_a_call_fails_with_the_error_that_was_ordered_and_no_other_call_or_gpu_does(simulate: Simulate) -> None:
    simulation = simulate(node())
    failing, well = gpu(0), gpu(1)
    simulation.order(Fail(call="nvmlDeviceGetTemperature", code=999, gpu=0))
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceGetTemperature(failing, 0)
    assert pynvml.nvmlDeviceGetTemperature(well, 0) > 0
    assert pynvml.nvmlDeviceGetName(failing)
    simulation.order(Fail(call="nvmlDeviceGetTemperature", code=0, gpu=0))
    assert pynvml.nvmlDeviceGetTemperature(failing, 0) > 0


@pytest.mark.parametrize("end", [Fail(call="*", code=0), Reboot()])
def test_calls_that_fail_on_all_gpus_do_until_that_is_ended(simulate: Simulate, end: Fail | Reboot) -> None:
    simulation = simulate(node())
    simulation.order(Fail(call="*", code=10))
    for call in (pynvml.nvmlDeviceGetCount, pynvml.nvmlInit, pynvml.nvmlShutdown):
        with pytest.raises(pynvml.NVMLError_Timeout):
            call()
    simulation.order(end)
    assert pynvml.nvmlDeviceGetCount() == len(simulation.hardware.gpus)


def test_a_slow_call_on_one_gpu_delays_no_other(simulate: Simulate) -> None:
    simulation = simulate(node())
    slow, quick = gpu(0), gpu(1)
    simulation.order(Slow(call="nvmlDeviceGetTemperature", seconds=3600, gpu=0))
    done = threading.Event()

    def hang() -> None:
        pynvml.nvmlDeviceGetTemperature(slow, 0)
        done.set()

    thread = threading.Thread(target=hang, daemon=True)
    thread.start()
    assert pynvml.nvmlDeviceGetTemperature(quick, 0) > 0
    assert pynvml.nvmlDeviceGetName(slow)
    assert not done.is_set()
    simulation.order(Lost(gpu=1))
    simulation.close()
    thread.join(HANG_S)
    assert done.is_set()
    simulate()


def test_a_gpu_that_waits_for_a_reset_takes_no_changes(simulate: Simulate) -> None:
    simulation = simulate(node())
    simulation.order(Xid(gpu=0, xid=119))
    with pytest.raises(pynvml.NVMLError_ResetRequired):
        pynvml.nvmlDeviceSetComputeMode(gpu(), pynvml.NVML_COMPUTEMODE_PROHIBITED)
