"""The same agent on another ``libnvidia-ml.so.1``: one that we compile here, found on the loader's path."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess
from hack.foreignnvml import NAME, compile_stub
from tests.support.e2e.lab import FAST, GPU

pytestmark = pytest.mark.e2e

UUIDS = [f"GPU-5707b000-0000-0000-0000-{index:012d}" for index in range(2)]
WAIT_S = 120.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled library."""
    return compile_stub(tmp_path_factory.mktemp("nvml")).parent


@pytest.fixture
def folder() -> Iterator[Path]:
    """The path of a socket has 107 bytes at most, and tmp_path is long."""
    with tempfile.TemporaryDirectory(prefix="tessera-nvml-") as name:
        yield Path(name)


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[StandInKubelet]:
    kubelet = StandInKubelet(folder / "kubelet")
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
async def agent(kubelet: StandInKubelet, library: Path, folder: Path) -> AsyncIterator[AgentProcess]:
    (folder / "stub").mkdir()
    path = os.pathsep.join(filter(None, [str(library), os.environ.get("LD_LIBRARY_PATH", "")]))
    agent = AgentProcess(
        folder=folder / "agent",
        fleet=None,
        kubelet_dir=folder / "kubelet",
        config=f"health: {FAST}",
        environment={"LD_LIBRARY_PATH": path, "TESSERA_STUB_DIR": str(folder / "stub")},
    )
    agent.start()
    try:
        await kubelet.wait_for(lambda: len(healthy(kubelet)) == 2, WAIT_S)
        yield agent
    finally:
        assert agent.stop() == 0, agent.log()


def healthy(kubelet: StandInKubelet) -> set[str]:
    return kubelet.endpoints[GPU].healthy if GPU in kubelet.endpoints else set()


def steer(agent: AgentProcess, file: str, number: int) -> None:
    """Write a file of the stub's in one step."""
    folder = Path(agent.environment["TESSERA_STUB_DIR"])
    (folder / f".{file}").write_text(str(number))
    (folder / f".{file}").replace(folder / file)


async def test_its_gpus_and_links_are_found_and_advertised(kubelet: StandInKubelet, agent: AgentProcess) -> None:
    assert sorted(healthy(kubelet)) == UUIDS
    report = agent.report()
    assert not report.simulated
    assert [(gpu.product, gpu.memory_mib, gpu.architecture) for gpu in report.node.gpus] == [
        ("Stub GPU", 24 * 1024, "ampere")
    ] * 2
    assert report.node.links[0][1].nvlinks == 1
    grant = await kubelet.allocate(GPU, 2)
    assert sorted(grant.response.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == UUIDS


async def test_below_the_driver_root_it_is_found_where_the_loader_has_none(
    kubelet: StandInKubelet, library: Path, folder: Path
) -> None:
    """As in a container that no NVIDIA runtime made."""
    shutil.copytree(library, folder / "host/usr/lib64")
    # The loader is kept from any other of this machine.
    (folder / "nothing").mkdir()
    (folder / "nothing" / NAME).touch()
    agent = AgentProcess(
        folder=folder / "agent",
        fleet=None,
        kubelet_dir=folder / "kubelet",
        flags=("--driver-root-ctr-path", str(folder / "host")),
        environment={"LD_LIBRARY_PATH": str(folder / "nothing"), "TESSERA_STUB_DIR": str(folder)},
    )
    agent.start()
    try:
        await kubelet.wait_for(lambda: sorted(healthy(kubelet)) == UUIDS, WAIT_S)
    finally:
        assert agent.stop() == 0, agent.log()


async def test_an_xid_takes_one_out_and_a_reset_brings_it_back(kubelet: StandInKubelet, agent: AgentProcess) -> None:
    steer(agent, "xid1", 79)
    await kubelet.wait_for(lambda: healthy(kubelet) == {UUIDS[0]}, WAIT_S)
    steer(agent, "epoch1", 1)
    await kubelet.wait_for(lambda: len(healthy(kubelet)) == 2, WAIT_S)
    assert [change.reason for change in agent.report().history][:1] == ["Xid79"]


async def test_after_a_reset_xids_are_heard_again(kubelet: StandInKubelet, agent: AgentProcess) -> None:
    steer(agent, "xid0", 48)
    await kubelet.wait_for(lambda: healthy(kubelet) == {UUIDS[1]}, WAIT_S)
    steer(agent, "epoch0", 1)
    await kubelet.wait_for(lambda: len(healthy(kubelet)) == 2, WAIT_S)
    steer(agent, "xid0", 62)
    await kubelet.wait_for(lambda: healthy(kubelet) == {UUIDS[1]}, WAIT_S)


async def test_what_it_does_not_have_is_left_out_not_an_error(agent: AgentProcess) -> None:
    gpu = agent.report().node.gpus[0]
    assert (gpu.mig_capable, gpu.clique, gpu.serial) == (False, None, None)
    assert all(f"level={level}" not in agent.log() for level in ("warning", "error"))
