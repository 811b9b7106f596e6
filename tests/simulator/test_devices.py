import ctypes
from pathlib import Path

import pynvml
import pytest

from simulator.boards.products import PRODUCTS
from simulator.nvml.library import SimulatedLibrary
from tests.simulator.conftest import Simulate, gpu, node


def test_identity_is_what_the_fleet_and_the_product_say(simulate: Simulate) -> None:
    simulate(node(2, "NVIDIA H100 80GB HBM3", "  uuidPrefix: GPU-\ndriver: {version: '550.54.15', cuda: '12.4'}\n"))
    assert pynvml.nvmlSystemGetDriverVersion() == "550.54.15"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 12040
    assert pynvml.nvmlDeviceGetCount() == 2
    handle = gpu(1)
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA H100 80GB HBM3"
    assert pynvml.nvmlDeviceGetUUID(handle) == "GPU-000000000001"
    assert pynvml.nvmlDeviceGetIndex(handle) == 1
    assert pynvml.nvmlDeviceGetMinorNumber(handle) == 1
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    assert pynvml.nvmlDeviceGetArchitecture(handle) == pynvml.NVML_DEVICE_ARCH_HOPPER
    assert pynvml.nvmlDeviceGetBrand(handle) == pynvml.NVML_BRAND_NVIDIA
    assert len(pynvml.nvmlDeviceGetSerial(handle)) == 13
    pci = pynvml.nvmlDeviceGetPciInfo(handle)
    assert (pci.busId, pci.pciDeviceId) == ("00000000:0E:00.0", 0x233010DE)
    assert pynvml.nvmlDeviceGetNumGpuCores(handle) == 132 * 128


def test_a_handle_is_found_by_uuid_address_and_serial(simulate: Simulate) -> None:
    simulate(node(3))
    uuid = pynvml.nvmlDeviceGetUUID(gpu(2))
    for handle in (
        pynvml.nvmlDeviceGetHandleByUUID(uuid),
        pynvml.nvmlDeviceGetHandleByPciBusId("00000000:15:00.0"),
        pynvml.nvmlDeviceGetHandleByPciBusId("0000:15:00.0"),
        pynvml.nvmlDeviceGetHandleBySerial(pynvml.nvmlDeviceGetSerial(gpu(2))),
    ):
        assert pynvml.nvmlDeviceGetUUID(handle) == uuid
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetHandleByUUID("GPU-nobody")
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        gpu(3)


def test_calls_before_init_and_after_shutdown_are_uninitialised(simulate: Simulate) -> None:
    simulate(node())
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 2
    pynvml.nvmlShutdown()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_a_function_that_is_not_simulated_is_not_found(simulate: Simulate) -> None:
    simulate(node())
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        pynvml.nvmlDeviceGetHostVgpuMode(gpu())


def test_every_attribute_of_the_library_is_a_plain_function(simulate: Simulate) -> None:
    library = SimulatedLibrary(simulate(node()))
    functions = [value for name, value in vars(library).items() if name.startswith("nvml")]
    assert len(functions) > 150
    for function in functions:
        function.restype = ctypes.c_char_p
    assert pynvml.nvmlErrorString(pynvml.NVML_ERROR_GPU_IS_LOST) == "GPU is lost"


def test_garbage_for_a_handle_is_an_invalid_argument(simulate: Simulate) -> None:
    simulate(node())
    for garbage in (pynvml.c_nvmlDevice_t(), None, 7, "GPU-0"):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetName(garbage)


def test_a_wrong_struct_version_is_told(simulate: Simulate) -> None:
    simulate(node())
    with pytest.raises(pynvml.NVMLError) as error:
        pynvml.nvmlDeviceGetMemoryInfo(gpu(), version=0x03000028)
    assert error.value.value == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


@pytest.mark.parametrize("product", PRODUCTS)
def test_memory_adds_up_in_both_versions(simulate: Simulate, product: str) -> None:
    simulate(node(1, product, "load:\n- {gpu: 0, memUsedMiB: 1000, pid: 1}\n"))
    old = pynvml.nvmlDeviceGetMemoryInfo(gpu())
    new = pynvml.nvmlDeviceGetMemoryInfo(gpu(), version=pynvml.nvmlMemory_v2)
    assert old.total == new.total == PRODUCTS[product].memory_mib * 2**20
    assert old.used == new.used + new.reserved
    assert new.used == 1000 * 2**20
    assert new.free + new.used + new.reserved == new.total


def test_only_grace_has_a_numa_node_of_its_own(simulate: Simulate) -> None:
    simulate(node(1, "NVIDIA GB200"))
    assert pynvml.nvmlDeviceGetNumaNodeId(gpu()) == 2
    simulate(node(1))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetNumaNodeId(gpu())


def test_cpu_affinity_follows_the_numa_node(simulate: Simulate) -> None:
    simulate(node(8))
    assert pynvml.nvmlDeviceGetCpuAffinity(gpu(0), 1)[0] == 0xFFFFFFFF
    assert pynvml.nvmlDeviceGetCpuAffinity(gpu(7), 1)[0] == 0xFFFFFFFF00000000


def test_compute_mode_is_set_and_stays(simulate: Simulate) -> None:
    simulate(node())
    pynvml.nvmlDeviceSetComputeMode(gpu(), pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    simulate()
    assert pynvml.nvmlDeviceGetComputeMode(gpu()) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    assert pynvml.nvmlDeviceGetComputeMode(gpu(1)) == pynvml.NVML_COMPUTEMODE_DEFAULT
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetComputeMode(gpu(), 9)


def test_the_trees_hold_what_an_agent_reads(simulate: Simulate, tmp_path: Path) -> None:
    simulation = simulate(node(8), sys_root=tmp_path / "sys", proc_root=tmp_path / "proc")
    folder = tmp_path / "sys/bus/pci/devices/0000:38:00.0"
    assert {path.name: path.read_text().strip() for path in folder.iterdir()} == {
        "numa_node": "1",
        "class": "0x030200",
        "device": "0x20b2",
        "vendor": "0x10de",
    }
    assert (tmp_path / "proc/sys/kernel/random/boot_id").read_text().strip() == simulation.boot_id


def test_closing_gives_pynvml_its_library_back(simulate: Simulate) -> None:
    before = pynvml.nvmlLib
    simulation = simulate(node())
    assert pynvml.nvmlLib is not before
    simulation.close()
    assert pynvml.nvmlLib is before
    simulate()
