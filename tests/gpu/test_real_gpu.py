"""The agent on this machine's own GPUs, against the kubelet stand-in; run by ``make gpu``.

Nothing here resets a GPU or changes a setting of it. What NVIDIA's own nvidia-smi says is the reference.
"""

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess

pytestmark = pytest.mark.gpu

GPU = "nvidia.com/gpu"
WAIT_S = 60.0
SETTINGS = ("persistence_mode", "compute_mode", "ecc.mode.current", "mig.mode.current", "power.limit", "clocks.max.sm")


def smi(*fields: str) -> list[list[str]]:
    """The fields of every GPU, as nvidia-smi prints them without units. Fails the test where it cannot."""
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.fail("no nvidia-smi on PATH: these tests need a machine with an NVIDIA GPU and its driver")
    command = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0 or not done.stdout.strip():
        pytest.fail(f"nvidia-smi finds no GPU: {(done.stderr or done.stdout).strip()}")
    return [[value.strip() for value in row] for row in csv.reader(done.stdout.splitlines())]


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[StandInKubelet]:
    kubelet = StandInKubelet(tmp_path / "kubelet")
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
async def agent(kubelet: StandInKubelet, tmp_path: Path) -> AsyncIterator[AgentProcess]:
    count = len(smi("uuid"))
    agent = AgentProcess(
        folder=tmp_path / "agent",
        fleet=None,
        kubelet_dir=tmp_path / "kubelet",
        config="version: v1\nflags: {migStrategy: none, plugin: {passDeviceSpecs: true}}\n",
        flags=["--log-level", "debug"],
    )
    agent.start()
    try:
        await kubelet.wait_for(
            lambda: GPU in kubelet.endpoints and len(kubelet.endpoints[GPU].healthy) == count, WAIT_S
        )
        yield agent
    finally:
        assert agent.stop() == 0, agent.log()


def test_discovery_equals_nvidia_smi(agent: AgentProcess) -> None:
    found = [
        [str(gpu.index), gpu.uuid, gpu.product, str(gpu.memory_mib), gpu.pci_bus_id] for gpu in agent.report().node.gpus
    ]
    said = smi("index", "uuid", "name", "memory.total", "pci.bus_id")
    assert found == [
        [*row[:4], f"{row[4].lower().partition(':')[0][-4:]}:{row[4].lower().partition(':')[2]}"] for row in said
    ]
    assert {agent.report().node.driver_version} == {version for (version,) in smi("driver_version")}


async def test_allocate_names_the_gpu_and_its_files(kubelet: StandInKubelet, agent: AgentProcess) -> None:
    grant = await kubelet.allocate(GPU, 1)
    (gpu,) = [one for one in agent.report().node.gpus if one.uuid == grant.devices[0]]
    assert grant.response.envs["NVIDIA_VISIBLE_DEVICES"] == gpu.uuid
    files = {device.host_path for device in grant.response.devices}
    assert f"/dev/nvidia{gpu.minor}" in files
    missing = [path for path in files if not Path(path).exists()]
    assert not missing


async def test_every_gpu_of_the_kubelet_s_choice_can_be_had(kubelet: StandInKubelet, agent: AgentProcess) -> None:
    gpus = agent.report().node.gpus
    grant = await kubelet.allocate(GPU, len(gpus))
    assert sorted(grant.devices) == sorted(gpu.uuid for gpu in gpus)


def test_probes_find_every_gpu_healthy_and_events_can_be_had(agent: AgentProcess) -> None:
    report = agent.report()
    assert report.driver_up
    assert not report.faults
    assert {one.state for one in report.health} == {"Healthy"}
    assert "no XID events" not in agent.log()
    assert "level=error" not in agent.log()


def test_nothing_about_the_gpus_was_changed(tmp_path: Path) -> None:
    before = smi(*SETTINGS)
    agent = AgentProcess(folder=tmp_path / "agent", fleet=None, kubelet_dir=tmp_path / "kubelet")
    agent.start()
    assert agent.process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        agent.process.wait(5)  # probes of the first seconds
    assert agent.stop() == 0, agent.log()
    assert smi(*SETTINGS) == before


def test_the_program_that_verifies_a_gpu_finds_each_of_them_well() -> None:
    """It writes only memory that is free, and changes no setting."""
    before = smi(*SETTINGS)
    for (uuid,) in smi("uuid"):
        done = subprocess.run(
            [sys.executable, "-m", "agent.verify", "--memory", "0.8"],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("well\n"), done.stdout
        sys.stdout.write(done.stdout)  # what it measured
    assert smi(*SETTINGS) == before
