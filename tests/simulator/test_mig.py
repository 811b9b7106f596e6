from ctypes import byref, c_uint
from pathlib import Path
from typing import Any

import pynvml
import pytest

from simulator.boards.migprofiles import gpu_instance_id
from simulator.boards.products import PRODUCTS
from simulator.fleet.orders import End, Reboot, Reset
from simulator.hardware.status import describe
from tests.simulator.conftest import Simulate, gpu, node

MIG_PRODUCTS = [name for name, product in PRODUCTS.items() if product.mig]

H100 = "NVIDIA H100 80GB HBM3"


def profile(name: str, handle: Any) -> Any:
    """The GPU instance profile of a name, found as an agent finds it."""
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number)
        except pynvml.NVMLError_NotSupported:
            continue
        if info.name == f"MIG {name}":
            return info
    raise AssertionError(name)


def placements(handle: Any, info: Any) -> list[tuple[int, int]]:
    count = c_uint(info.instanceCount + 8)
    array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, array, byref(count))
    return [(array[i].start, array[i].size) for i in range(count.value)]


def create(handle: Any, name: str, start: int | None = None) -> Any:
    """A GPU instance filled by one compute instance."""
    info = profile(name, handle)
    if start is None:
        instance = pynvml.nvmlDeviceCreateGpuInstance(handle, info.id)
    else:
        size = placements(handle, info)[0][1]
        placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
        instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, info.id, byref(placement))
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            compute = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, number, 0)
        except pynvml.NVMLError_NotSupported:
            continue
        if compute.sliceCount == info.sliceCount:
            pynvml.nvmlGpuInstanceCreateComputeInstance(instance, compute.id)
            return instance
    raise AssertionError(name)


def devices(handle: Any) -> list[Any]:
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        except pynvml.NVMLError_NotFound:
            break
    return found


def names(handle: Any) -> list[str]:
    return [pynvml.nvmlDeviceGetName(mig).partition(" MIG ")[2] for mig in devices(handle)]


@pytest.mark.parametrize("product", MIG_PRODUCTS)
def test_every_profile_can_be_created_as_often_as_it_says(simulate: Simulate, product: str) -> None:
    simulate(node(1, product, "  migEnabled: [0]\n"))
    board = PRODUCTS[product]
    for expected in board.mig:
        info = profile(expected.name, gpu())
        assert placements(gpu(), info) == [(start, expected.size) for start in expected.starts]
        created = []
        for left in range(info.instanceCount, 0, -1):
            assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(), info.id) == left
            created.append(create(gpu(), expected.name))
        assert names(gpu()) == [expected.name] * info.instanceCount
        with pytest.raises(pynvml.NVMLError_InsufficientResources):
            pynvml.nvmlDeviceCreateGpuInstance(gpu(), info.id)
        for instance in created:
            destroy(instance)


def destroy(instance: Any) -> None:
    ci = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlGpuInstanceDestroy(instance)
    pynvml.nvmlComputeInstanceDestroy(ci)
    pynvml.nvmlGpuInstanceDestroy(instance)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlGpuInstanceGetInfo(instance)


def test_a_placement_is_kept_and_excludes_what_overlaps(simulate: Simulate) -> None:
    simulate(node(1, H100, "  migEnabled: [0]\n"))
    instance = create(gpu(), "3g.40gb", 4)
    info = pynvml.nvmlGpuInstanceGetInfo(instance)
    assert (info.placement.start, info.placement.size, info.profileId) == (4, 4, 9)
    assert pynvml.nvmlDeviceGetUUID(info.device) == pynvml.nvmlDeviceGetUUID(gpu())
    with pytest.raises(pynvml.NVMLError_InsufficientResources):
        create(gpu(), "2g.20gb", 4)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        create(gpu(), "2g.20gb", 1)
    create(gpu(), "4g.40gb", 0)
    assert sorted(names(gpu())) == ["3g.40gb", "4g.40gb"]
    assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(), 19) == 0


def test_a_mig_device_tells_of_itself_and_of_its_parent(simulate: Simulate) -> None:
    simulation = simulate(
        node(2, H100, "  mig: {1: [1g.20gb, 3g.40gb]}\nload:\n- {gpu: 1, gi: 2, pid: 9, memUsedMiB: 512}\n")
    )
    by_name = {pynvml.nvmlDeviceGetName(mig): mig for mig in devices(gpu(1))}
    mig = by_name[f"{H100} MIG 3g.40gb"]
    assert pynvml.nvmlDeviceIsMigDeviceHandle(mig).value == 1
    assert pynvml.nvmlDeviceIsMigDeviceHandle(gpu(1)).value == 0
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(gpu(1))
    attributes = pynvml.nvmlDeviceGetAttributes(mig)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 3)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (60, 40448)
    uuid = pynvml.nvmlDeviceGetUUID(mig)
    assert uuid.startswith("MIG-")
    told = {each["profile"]: each["uuids"] for each in describe(simulation.hardware, 0.0)["gpus"][1]["mig"]}
    assert told["3g.40gb"] == [uuid]
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == uuid
    memory = pynvml.nvmlDeviceGetMemoryInfo(mig)
    assert (memory.total, memory.used) == (40448 * 2**20, 512 * 2**20)
    assert [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(mig)] == [9]
    (whole,) = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu(1))
    assert (whole.gpuInstanceId, whole.computeInstanceId) == (2, 0)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetUtilizationRates(mig)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetUtilizationRates(gpu(1))


def test_compute_instances_share_one_gpu_instance(simulate: Simulate) -> None:
    simulate(node(1, more="  mig: {0: [1c.3g.40gb, 2c.3g.40gb]}\n"))
    assert names(gpu()) == ["1c.3g.40gb", "2c.3g.40gb"]
    first, second = devices(gpu())
    assert pynvml.nvmlDeviceGetGpuInstanceId(first) == pynvml.nvmlDeviceGetGpuInstanceId(second)
    assert [pynvml.nvmlDeviceGetComputeInstanceId(mig) for mig in (first, second)] == [0, 1]
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu(), pynvml.nvmlDeviceGetGpuInstanceId(first))
    info = pynvml.nvmlComputeInstanceGetInfo(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 1))
    assert (info.placement.start, info.placement.size) == (1, 2)
    assert pynvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, 0) == 0


def test_instances_in_use_are_not_destroyed(simulate: Simulate) -> None:
    simulate(node(1, more="  mig: {0: [7g.80gb]}\nload:\n- {gpu: 0, gi: 0, ci: 0, pid: 5}\n"))
    instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu(), 0)
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0))
    with pytest.raises(pynvml.NVMLError_InUse):
        pynvml.nvmlDeviceSetMigMode(gpu(), pynvml.NVML_DEVICE_MIG_DISABLE)


def test_ampere_in_use_changes_its_mode_at_the_next_reset(simulate: Simulate) -> None:
    simulation = simulate(node(1, more="load:\n- {gpu: 0, pid: 5}\n"))
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_ERROR_IN_USE
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    simulation.order(Reset(gpu=0))
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]


@pytest.mark.parametrize(("product", "after"), [("NVIDIA A100-SXM4-80GB", [1, 1]), (H100, [0, 0])])
def test_a_reboot_ends_instances_and_only_ampere_keeps_the_mode(
    simulate: Simulate, product: str, after: list[int]
) -> None:
    simulation = simulate(node(1, product, "  mig: {0: [3g.40gb]}\n"))
    assert names(gpu()) == ["3g.40gb"]
    simulation.order(Reboot())
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == after
    assert names(gpu()) == []


def test_a_reset_keeps_instances_unless_it_is_told_to_drop_them(simulate: Simulate) -> None:
    simulation = simulate(node(1, more="  mig: {0: [3g.40gb]}\n"))
    simulation.order(Reset(gpu=0))
    assert names(gpu()) == ["3g.40gb"]
    simulation.order(Reset(gpu=0, destroy_mig=True))
    assert names(gpu()) == []
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]


def test_instances_outlive_the_agent(simulate: Simulate) -> None:
    simulate(node(1, more="  migEnabled: [0]\n"))
    create(gpu(), "2g.20gb")
    uuid = pynvml.nvmlDeviceGetUUID(devices(gpu())[0])
    simulate()
    assert [pynvml.nvmlDeviceGetUUID(mig) for mig in devices(gpu())] == [uuid]


def test_capability_files_come_and_go_with_instances(simulate: Simulate, tmp_path: Path) -> None:
    simulate(node(2, more="  mig: {1: [3g.40gb]}\n"), proc_root=tmp_path)
    base = tmp_path / "driver/nvidia/capabilities/gpu1/mig"

    def files() -> list[str]:
        return sorted(str(path.relative_to(base)) for path in base.rglob("access"))

    gi = pynvml.nvmlDeviceGetGpuInstanceId(devices(gpu(1))[0])
    assert files() == [f"gi{gi}/access", f"gi{gi}/ci0/access"]
    instance = create(gpu(1), "1g.10gb")
    assert len(files()) == 4
    minors = {path.read_text().split()[1] for path in base.rglob("access")}
    assert len(minors) == 4
    destroy(instance)
    assert files() == [f"gi{gi}/access", f"gi{gi}/ci0/access"]


def test_a_board_without_mig_says_so(simulate: Simulate) -> None:
    simulate(node(1, "Tesla T4"))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetMigMode(gpu())
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu()) == 0
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu(), 0)


def test_profiles_that_need_a_clever_order_are_placed(simulate: Simulate) -> None:
    simulate(node(1, more="  mig: {0: [1g.10gb, 1g.10gb, 2g.20gb, 3g.40gb]}\n"))
    assert sorted(names(gpu())) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]


def test_instance_ids_are_the_hardware_s_own() -> None:
    assert [gpu_instance_id(8, start, 1) for start in range(7)] == [11, 12, 13, 14, 7, 8, 9]
    assert [gpu_instance_id(8, start, 4) for start in (0, 4)] == [2, 1]
    assert gpu_instance_id(8, 0, 8) == 0


@pytest.mark.parametrize(("product", "code"), [("NVIDIA A30", pynvml.NVML_ERROR_IN_USE), (H100, pynvml.NVML_SUCCESS)])
def test_a_client_that_runs_nothing_keeps_only_ampere_from_its_mode(
    simulate: Simulate, product: str, code: int
) -> None:
    simulation = simulate(node(1, product, "load:\n- {gpu: 0, pid: 5, type: client}\n"))
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == code
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [int(code == pynvml.NVML_SUCCESS), 1]
    simulation.order(End(gpu=0, pid=5))
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_SUCCESS
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]


def test_events_that_the_process_listens_to_keep_ampere_from_its_mode(simulate: Simulate) -> None:
    simulate(node(1))
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(gpu(), pynvml.nvmlEventTypeXidCriticalError, events)
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_ERROR_IN_USE
    pynvml.nvmlEventSetFree(events)
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_SUCCESS


def test_a_running_process_keeps_hopper_from_its_mode(simulate: Simulate) -> None:
    simulation = simulate(node(1, H100, "load:\n- {gpu: 0, pid: 5}\n"))
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_ERROR_IN_USE
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [0, 1]
    simulation.order(End(gpu=0, pid=6))
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_ERROR_IN_USE
    simulation.order(End(gpu=0, pid=5))
    assert pynvml.nvmlDeviceSetMigMode(gpu(), 1) == pynvml.NVML_SUCCESS
