"""What must hold on any NVML: run on simulated GPUs always, and on the machine's own with ``-m gpu``."""

import re
from pathlib import Path

import pynvml
import pytest

from agent.hardware.driver import Driver
from agent.hardware.worker import XidEvent
from agent.kubelet.access import Roots, node_access
from inventory.devices import GpuUuid, NodeInventory, NodeName
from inventory.layout.layout import plan
from inventory.layout.sharing import LayoutSpec, MigStrategy
from tests.agent.hardware.conftest import Simulate


async def claims(driver: Driver) -> NodeInventory:
    """Find, probe, listen and find again: nothing is missing, nothing changes by looking."""
    versions = await driver.open()
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", versions.driver)
    assert versions.cuda > (10, 0)
    count = await driver.count()
    discovery = await driver.discover(())
    node = discovery.node
    node.validate()
    assert discovery.problems == ()
    assert len(node.gpus) == count > 0
    for gpu in node.gpus:
        assert gpu.uuid.startswith("GPU-")
        assert gpu.product
        assert gpu.architecture
        assert gpu.compute_capability >= (3, 0)
        assert gpu.memory_mib > 1024
        assert gpu.pci_device_id & 0xFFFF == 0x10DE
        assert re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.0", gpu.pci_bus_id)
        assert all(profile.starts for profile in gpu.mig_profiles)
    await driver.watch()
    for gpu in node.gpus:
        sighting = await driver.probe(gpu.uuid, 10)
        assert not sighting.reset
        assert sighting.probe.mig_errors == {}
    assert (await driver.discover(node.gpus)).node == node
    layout = plan(node, LayoutSpec(mig_strategy=MigStrategy.MIXED))
    layout.validate()
    await driver.close()
    assert (await driver.open()) == versions
    assert await driver.count() == count
    return node


@pytest.mark.parametrize("product", ["NVIDIA H200", "Tesla T4", "NVIDIA RTX A6000"])
async def test_simulated_gpus_hold_what_any_nvml_must(simulate: Simulate, driver: Driver, product: str) -> None:
    simulate(2, product)
    await claims(driver)


@pytest.mark.gpu
async def test_the_machines_own_gpus_hold_what_any_nvml_must() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as missing:
        pytest.fail(f"no NVIDIA driver here: {missing}")
    pynvml.nvmlShutdown()
    heard: list[tuple[GpuUuid, XidEvent]] = []
    driver = Driver(NodeName("this"), Path("/sys"), lambda uuid, event: heard.append((uuid, event)))
    node = await claims(driver)
    access = node_access(node, Roots(Path("/"), Path("/proc"), Path("/sys")), simulated=False)
    for gpu in node.gpus:
        assert all(Path(one.host_path).exists() for one in access.devices[gpu.uuid].nodes)
    assert any(one.container_path == "/dev/nvidiactl" for one in access.shared_nodes)
    assert heard == []
    await driver.close()
