"""``tessera doctor``: each fault of a node is one line that names it, and a sound node has none."""

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pynvml
import pytest

from agent.config.load import load
from agent.config.settings import MpsSettings, Settings
from agent.mps.core import DaemonState, Phase
from agent.mps.folders import SharedMemory, make, open_up
from agent.mps.runner import programs
from agent.report import NodeReport
from cli.doctor.checks import Patient, examine, waiting_user
from deviceplugin.manager import ServerStatus
from inventory.devices import NodeInventory, NodeName, ResourceName
from tests.cli.conftest import AgentSocket, Run
from tests.simulator.conftest import Simulate, fleet, node, simulate  # noqa: F401 - fixtures
from tests.support.cli.shell import terminal

MPS = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
GPU = "GPU-00000000-0000-0000-0000-000000000000"
READY = DaemonState(GPU, "GPU 0", Phase.READY, "", 0.0, 1, wanted=True)
STARTING = DaemonState(GPU, "GPU 0", Phase.WAITING, "cannot run nvidia-cuda-mps-control", 0.0, 3, wanted=True)


class Site:
    """A node's folders below ``base``, sound unless a test says otherwise."""

    def __init__(self, base: Path, stack: ExitStack) -> None:
        self.base = base
        self._stack = stack
        base.chmod(0o755)
        (base / "state").mkdir(mode=0o711)
        self.socket = base / "kubelet/device-plugins/kubelet.sock"
        self.listen(self.socket)
        self.listen(base / "kubelet/pod-resources/kubelet.sock")
        self.report: NodeReport | None = self.reported()

    def listen(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()

    def reported(self, *mps: DaemonState, **more: object) -> NodeReport:
        found = NodeReport(
            "0.1.0", 0.0, simulated=False, driver_up=True, node=NodeInventory(name=NodeName("a")), mps=mps
        )
        return msgspec.structs.replace(found, **more)

    def settings(self, config: str = "", *, simulated: bool = True) -> Settings:
        (self.base / "config.yaml").write_text(config)
        flags = {"--config": "config.yaml", "--state-dir": "state", "--kubelet-dir": "kubelet"}
        flags |= {"--simulate": "fleet.yaml"} if simulated else {}
        return load(None, {}, {flag: str(self.base / value) for flag, value in flags.items()}).settings

    def wrong(self, config: str = "", *, simulated: bool = True) -> list[str]:
        """What is found and not ok."""
        patient = Patient(
            self.settings(config, simulated=simulated),
            self.report,
            "no answer",
            control=programs(MpsSettings(), simulated=True).control,
            containerd=self.base / "containerd.toml",
            default_pipe=self.base / "nvidia-mps",
        )
        return [f"{one.check}: {one.text}" for one in examine(patient) if one.level != "ok"]


@pytest.fixture
def site(state_dir: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(state_dir, stack)


def test_a_sound_node_has_nothing_wrong(site: Site) -> None:
    assert site.wrong() == []
    site.report = site.reported(READY)
    assert site.wrong(MPS) == []


def test_an_agent_that_does_not_answer_is_an_error(site: Site) -> None:
    site.report = None
    assert site.wrong() == ["agent: the agent does not answer: no answer"]


def test_what_the_agent_says_is_passed_on(site: Site) -> None:
    server = ServerStatus(ResourceName("nvidia.com/gpu"), "x", registered=False, streams=0, last_error="refused")
    site.report = site.reported(problems=("GPU 1 cannot be read",), servers=(server,), driver_up=False)
    assert site.wrong() == [
        "agent: GPU 1 cannot be read",
        "kubelet: nvidia.com/gpu is not registered with the kubelet: refused",
        "driver: the agent has no NVML session",
    ]


def test_a_missing_kubelet_and_a_second_plugin_are_told(site: Site) -> None:
    site.socket.unlink()
    folder = site.socket.parent
    for name in ("nvidia-gpu.sock", "tessera-9.sock"):
        site.listen(folder / name)
    assert site.wrong() == [
        f"kubelet: {site.socket}: nothing listens",
        "device plugins: another device plugin serves nvidia-gpu.sock",
        "device plugins: another agent serves tessera-9.sock",
    ]


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ("version = 2\n", True),
        ("version = 2\n[plugins.cri]\n  enable_cdi = true\n", False),
        ("version = 3\n", False),
        ("version = 3\nenable_cdi = false # off\n", True),
    ],
)
def test_cdi_is_enabled_where_answers_rest_on_it(site: Site, config: str, wrong: bool) -> None:
    (site.base / "containerd.toml").write_text(config)
    assert bool(site.wrong("flags: {plugin: {deviceListStrategy: cdi-cri}}")) is wrong
    assert site.wrong() == []


def test_a_missing_mps_program_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(site.base))
    assert "mps: nvidia-cuda-mps-control is not there" in site.wrong(MPS, simulated=False)
    program = site.base / "nvidia-cuda-mps-control"
    program.touch(mode=0o755)
    assert f"mps: nvidia-cuda-mps-server is not beside {program.name}" in site.wrong(MPS, simulated=False)
    (site.base / "nvidia-cuda-mps-server").touch(mode=0o755)
    assert not [line for line in site.wrong(MPS, simulated=False) if line.startswith("mps")]


def test_folders_that_other_users_cannot_pass_are_told_and_the_agent_opens_them(site: Site) -> None:
    state = site.base / "state"
    state.chmod(0o700)
    assert site.wrong(MPS) == [], "the agent opens its own folder when it starts a daemon"
    site.report = site.reported(READY)
    (found,) = site.wrong(MPS)
    assert found.startswith(f"mps: {state} lets no other user pass")
    open_up(state, state / "mps")
    assert site.wrong(MPS) == []
    assert stat.S_IMODE(state.stat().st_mode) == 0o711


def test_a_root_too_long_for_sockets_is_told(site: Site) -> None:
    (found,) = site.wrong(f"flags: {{mpsRoot: /{'m' * 60}}}\n{MPS}")
    assert found.endswith("19 bytes too long: the sockets below it would pass 107 bytes")


def test_daemons_that_are_not_ready_and_folders_nobody_looks_after_are_told(site: Site) -> None:
    site.report = site.reported(STARTING)
    assert site.wrong(MPS) == ["mps: GPU 0: cannot run nvidia-cuda-mps-control"]
    site.report = site.reported()
    make(site.base / "state/mps", GPU, SharedMemory.NONE, None)
    assert site.wrong(MPS) == [f"mps: there is a stale MPS folder of {GPU}, which no agent looks after"]


def test_a_daemon_in_cudas_default_folder_is_somebody_elses(site: Site) -> None:
    (site.base / "nvidia-mps").mkdir()
    (site.base / "nvidia-mps/nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    (found,) = site.wrong()
    assert f"an MPS daemon that is not the agent's (pid {os.getpid()})" in found


def test_who_waits_is_the_last_one_that_nobody_served() -> None:
    pending = "[x Control 1] NEW CLIENT 9 from user {}: Server is not ready, push client to pending list\n"
    assert waiting_user("") is None
    assert waiting_user(pending.format(0) + "NEW SERVER 12: Ready\n") is None
    assert waiting_user(pending.format(0) + "NEW SERVER 12: Ready\n" + pending.format(1000)) == 1000


def test_a_compute_mode_that_nobody_needs_is_told(site: Site, simulate: Simulate) -> None:  # noqa: F811
    simulate(node(1))
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    pynvml.nvmlDeviceSetComputeMode(handle, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    found = [line for line in site.wrong(simulated=False) if line.startswith("compute")]
    line = f"compute mode: {uuid}: the compute mode is EXCLUSIVE_PROCESS and no MPS daemon is there"
    assert found == [f"{line}: one process at most gets the GPU"]
    site.report = site.reported(msgspec.structs.replace(READY, device=uuid))
    assert not [line for line in site.wrong(simulated=False) if line.startswith("compute")]


def test_the_command_tells_programs_too_and_its_exit_code(run: Run, agent: AgentSocket, site: Site) -> None:
    agent.answer = (200, msgspec.json.encode(site.reported()))
    words = ("doctor", "--kubelet-dir", str(site.base / "kubelet"), "--simulate", "fleet.yaml")
    sound = run(*words, "-o", "json")
    assert (sound.exit_code, {one["level"] for one in json.loads(sound.output)["findings"]}) == (0, {"ok"})
    (site.base / "bad.yaml").write_text("mps: {shm: 1}\n")
    ill = run(*words, "--config", str(site.base / "bad.yaml"))
    assert ill.exit_code == 1
    assert "ERROR    config: " in ill.output
    assert "mps.shm: found an unknown key" in ill.output


def test_on_a_terminal_its_lines_fold_at_spaces(
    run: Run, agent: AgentSocket, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.answer = (200, msgspec.json.encode(site.reported()))
    (site.base / "bad.yaml").write_text("mps: {shm: 1}\n")
    words = ["doctor", "--kubelet-dir", str(site.base / "kubelet"), "--simulate", "fleet.yaml"]
    words += ["--config", str(site.base / "bad.yaml")]
    whole = run(*words).output.split()
    for name, value in terminal(60).items():
        monkeypatch.setenv(name, value)
    folded = run(*words).output
    assert folded.split() == whole, "no word is lost or broken"
    assert all(len(line) <= 60 for line in folded.splitlines() if len(line.split()) > 1)
    assert len(folded.splitlines()) > 4
