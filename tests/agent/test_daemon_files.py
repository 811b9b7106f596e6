"""An agent on a host that lacks what containers were promised: what it says, and what it does when that comes."""

from pathlib import Path

import grpc
import grpc.aio
import pytest
from msgspec import structs

from agent import deviceaccess
from agent.config.settings import DriverSettings
from agent.kubelet.devicefiles import DeviceFiles
from tests.support.agent import hosts as hostlab
from tests.support.agent.node import EAGER, GPU, Lab, fleet
from tests.support.deviceplugin.fakes import allocating

CDI = EAGER + "flags: {plugin: {deviceListStrategy: [cdi-cri]}}\n"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"


async def serve(lab: Lab, host: hostlab.Host, config: str) -> None:
    """The agent on simulated GPUs, whose files are looked for on ``host`` as real ones' are."""
    lab.power_on(fleet(2))
    await lab.kubelet.start()
    agent = await lab.start(config)
    driver = DriverSettings(
        driver_root=host.driver_root, dev_root=host.dev_root, container_driver_root=host.root / "not-in-a-container"
    )
    settings = structs.replace(lab.settings(config), simulate=None, driver=driver)
    agent.access.files = DeviceFiles(settings)  # before its first step
    await lab.listed()


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviceaccess, "FILES_POLL_S", 0.05)


@pytest.fixture(params=sorted(hostlab.LAYOUTS))
def host(request: pytest.FixtureRequest, tmp_path: Path) -> hostlab.Host:
    """A host of each kind, without the driver's libraries."""
    return hostlab.LAYOUTS[request.param](tmp_path, libraries=False)


async def test_without_libcuda_devices_are_unhealthy_until_it_comes(lab: Lab, host: hostlab.Host) -> None:
    await serve(lab, host, CDI)
    await lab.until(lambda: len(lab.down()) == 2)
    assert not list((lab.folder / "cdi").glob("*"))
    (problem,) = [one for one in lab.report().problems if "No CDI spec" in one]
    assert f"below the driver root {host.driver_root}" in problem
    with pytest.raises(grpc.aio.AioRpcError, match="is unhealthy: No CDI spec: found no libcuda"):
        await lab.endpoint().stub.Allocate(allocating([lab.uuid(0)]))
    hostlab.install(host.driver_root / "lib64", version=lab.simulation.driver_version)
    await lab.until(lambda: not lab.down())
    assert list((lab.folder / "cdi").glob("*"))
    assert not lab.report().problems


async def test_without_a_cdi_strategy_libraries_are_the_runtimes_affair(lab: Lab, host: hostlab.Host) -> None:
    await serve(lab, host, EAGER)
    await lab.until(lambda: lab.discoveries > 0)
    assert not lab.down()


async def test_an_imex_channel_that_is_not_required_is_given_once_it_comes(lab: Lab, host: hostlab.Host) -> None:
    await serve(lab, host, EAGER + "imex: {channelIDs: [0]}\n")
    grant = await lab.kubelet.allocate(GPU, 1)
    assert "NVIDIA_IMEX_CHANNELS" not in grant.response.envs
    host.devices(CHANNEL)
    await lab.until(lambda: bool(lab.agent.node_state.access.extras.get("imex-channel")))
    grant = await lab.kubelet.allocate(GPU, 1)
    assert grant.response.envs["NVIDIA_IMEX_CHANNELS"] == "0"


async def test_a_required_channel_that_goes_later_leaves_devices_unhealthy(lab: Lab, host: hostlab.Host) -> None:
    host.devices(CHANNEL)
    await serve(lab, host, EAGER + "imex: {channelIDs: [0], required: true}\n")
    assert not lab.down()
    (host.dev_root / CHANNEL[1:]).unlink()
    await lab.look_again()
    await lab.until(lambda: len(lab.down()) == 2)
    assert [one for one in lab.report().problems if "does not exist" in one]


@pytest.mark.parametrize(("given", "down"), [("passDeviceSpecs: true", 1), ("deviceListStrategy: envvar", 0)])
async def test_an_instance_whose_capabilities_are_nowhere_is_unhealthy_where_files_are_given(
    lab: Lab, tmp_path: Path, given: str, down: int
) -> None:
    lab.power_on(fleet(1, more="  migEnabled: [0]\n  mig: {0: [3g.20gb]}\n"))
    lab.flags["--proc-root"] = str(tmp_path)
    await lab.kubelet.start()
    await lab.start(EAGER + f"flags: {{migStrategy: mixed, plugin: {{{given}}}}}\n")
    await lab.listed("nvidia.com/mig-3g.20gb")
    await lab.until(lambda: lab.discoveries > 0)
    assert len(lab.down("nvidia.com/mig-3g.20gb")) == down
    assert len([one for one in lab.report().problems if "names its capability files" in one]) == down


def told(lab: Lab) -> list[str]:
    return [problem for problem in lab.reporter.problems if problem.startswith("State folder: ")]


async def test_without_a_state_folder_devices_are_served_and_it_is_said_once(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made here")
    lab.flags["--state-dir"] = str(tmp_path / "file" / "state")
    await lab.serve(fleet(2))
    assert len((await lab.kubelet.allocate(GPU, 2)).devices) == 2
    await lab.until(lambda: bool(told(lab)))
    for _ in range(3):
        await lab.look_again()
    assert len(told(lab)) == 1
    assert any("Not a directory" in problem for problem in lab.report().problems)


async def test_a_state_folder_that_is_full_for_a_while_is_a_problem_as_long(lab: Lab) -> None:
    await lab.serve(fleet(1))
    checkpoint = lab.state_dir / "checkpoint.json"
    await lab.until(checkpoint.exists)
    checkpoint.unlink()
    checkpoint.mkdir()
    (checkpoint / "in-the-way").touch()
    lab.agent._files.changed()
    await lab.until(lambda: bool(told(lab)))
    (checkpoint / "in-the-way").unlink()
    checkpoint.rmdir()
    lab.agent._files.changed()
    await lab.until(lambda: not lab.report().problems)
    assert len(told(lab)) == 1


async def test_without_a_state_folder_no_mig_layout_is_changed(lab: Lab, tmp_path: Path) -> None:
    """A change that could not be written down first could not be undone after a crash."""
    (tmp_path / "file").write_text("no folder can be made here")
    lab.flags["--state-dir"] = str(tmp_path / "file" / "state")
    lab.power_on(fleet(2))
    await lab.kubelet.start()
    await lab.start(EAGER + "layout:\n- {gpus: [0], mode: mig, profiles: [3g.20gb]}\n")
    await lab.until(lambda: any("Not a directory" in problem for problem in lab.agent.node_state.problems))
    await lab.until(lambda: bool(lab.agent.mig.statuses) and lab.agent.mig.statuses[0].state.value == "Failed")
    assert not lab.simulation.hardware.gpus[0].mig.enabled
    await lab.until(lambda: GPU in lab.kubelet.endpoints and lab.endpoint().healthy == {lab.uuid(1)})
