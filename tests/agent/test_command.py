"""The process around the agent: its start and end, signals, the config file, and what it says when it cannot start."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec import structs

from agent import command
from agent.config.load import load_or_last_good
from agent.kubelet.devicefiles import required_channel_problem
from deviceplugin.testing import StandInKubelet
from hack.agents import AgentProcess
from kube.testing import eventually
from tests.support.agent.node import EAGER, GPU, Lab, fleet
from tests.support.hang import HANG_S

SHARED = EAGER + f"sharing: {{timeSlicing: {{resources: [{{name: {GPU}, replicas: 3}}]}}}}\n"
BAD = "version: v1\nhealth: {probationSeconds: soon}\n"


@pytest.fixture
async def kubelet(short_folder: Path) -> AsyncIterator[StandInKubelet]:
    kubelet = StandInKubelet(short_folder / "kubelet")
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
def agent(short_folder: Path) -> Iterator[AgentProcess]:
    """Not started yet, on three GPUs."""
    path = short_folder / "fleet.yaml"
    path.write_text(fleet(3))
    agent = AgentProcess(short_folder, path, short_folder / "kubelet", config=EAGER)
    yield agent
    if agent.process is not None:
        agent.kill()


async def healthy(kubelet: StandInKubelet, count: int, resource: str = GPU) -> None:
    await kubelet.wait_for(
        lambda: resource in kubelet.endpoints and len(kubelet.endpoints[resource].healthy) == count, HANG_S
    )


def driver_up(agent: AgentProcess) -> Callable[[], bool]:
    def up() -> bool:
        with contextlib.suppress(click.ClickException):
            return agent.report().driver_up
        return False

    return up


# Life of the process


async def test_killed_and_started_again_it_serves_what_it_knew(agent: AgentProcess, kubelet: StandInKubelet) -> None:
    agent.start()
    await healthy(kubelet, 3)
    victim = list(kubelet.endpoints[GPU].devices)[1]
    grant = await kubelet.allocate(GPU, 1, pod="trainer")
    checkpoint = agent.state_dir / "checkpoint.json"
    await eventually(checkpoint.exists, within_s=HANG_S)
    agent.sim(gpu=1, xid=79)
    await kubelet.wait_for(lambda: victim not in kubelet.endpoints[GPU].healthy, HANG_S)
    await eventually(lambda: "fallen off" in checkpoint.read_text(), within_s=HANG_S)
    agent.kill()
    half_written = [checkpoint.with_name(".checkpoint.json.0a1b2c3d"), agent.state_dir / "mig" / ".GPU-1.json.0a1b2c3d"]
    half_written += [agent.state_dir / "mps" / "a-device" / ".compute-mode.0a1b2c3d"]
    cdi_dir = agent.folder / "cdi"
    half_written += [cdi_dir / ".k8s.device-plugin.nvidia.com-gpu.json.0a1b2c3d"]
    others = cdi_dir / ".vendor.com-gpu.json.0a1b2c3d"
    for path in (*half_written, others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    agent.sim(slow={"call": "*", "seconds": 3600})  # NVML will not answer before the test is over
    agent.start()
    await kubelet.wait_for(lambda: kubelet.registrations == [GPU, GPU], HANG_S)
    await kubelet.wait_for(lambda: bool(kubelet.endpoints[GPU].devices), HANG_S)
    endpoint = kubelet.endpoints[GPU]
    assert endpoint.devices.keys() - endpoint.healthy == {victim}
    assert not agent.report().driver_up
    assert [path for path in half_written if path.exists()] == []
    assert others.exists()
    await eventually(lambda: bool(agent.report().holders), within_s=HANG_S)
    assert [held.device for held in agent.report().holders] == list(grant.devices)
    # It has needed nothing of NVML for all this (the benchmark measures how long it takes), nor does it for its end.
    assert agent.stop() == 0


async def test_with_a_new_driver_the_process_starts_itself_anew(agent: AgentProcess, kubelet: StandInKubelet) -> None:
    agent.start()
    await healthy(kubelet, 3)
    assert agent.process is not None
    pid = agent.process.pid
    agent.sim(driver="up", version="999.1.2")
    await kubelet.wait_for(lambda: kubelet.registrations == [GPU, GPU], HANG_S)
    await healthy(kubelet, 3)
    assert agent.process.poll() is None
    assert agent.process.pid == pid
    await eventually(lambda: driver_up(agent)() and agent.report().node.driver_version == "999.1.2", within_s=HANG_S)
    assert agent.stop() == 0
    assert list(kubelet.folder.glob("tessera-*.sock")) == []


class Process:
    """The agent's process in this one, on a lab's hardware: signals and the config file are the real ones."""

    def __init__(self, lab: Lab) -> None:
        self.path = lab.folder / "config.yaml"
        self._lab = lab
        self._task: asyncio.Task[None] | None = None
        self.reporter = lab.reporter

    @property
    def flags(self) -> dict[str, str]:
        """Those of the lab, without a file that was never written."""
        return {name: text for name, text in self._lab.all_flags.items() if name != "--config" or self.path.exists()}

    def start(self, config: str | None = None) -> None:
        """With ``config`` as the file of ``--config``, without one with a folder of named ones alone."""
        if config is not None:
            self.path.write_text(config)
        flags = self.flags
        loaded = command._named(load_or_last_good(None, {}, flags), {}, flags)
        self._process = command._Process(loaded.settings, loaded, {}, flags)
        self._task = asyncio.create_task(self._process.run())

    async def stop(self) -> None:
        """Raises what ended it, if that was not this."""
        task, self._task = self._task, None
        if task is not None:
            self._process._stop.set()
            await asyncio.wait_for(task, HANG_S)

    def named(self, name: str | None) -> None:
        """The node's label names that configuration."""
        self._process._on_name(name)

    async def healthy(self, count: int) -> None:
        await healthy(self._lab.kubelet, count)


@pytest.fixture
async def process(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    monkeypatch.setattr(command, "CONFIG_POLL_S", 0.02)
    monkeypatch.setattr(command, "configure", lambda _: None)
    monkeypatch.setattr(command, "make_reporter", lambda _: lab.reporter)
    lab.power_on(fleet(3))
    await lab.kubelet.start()
    process = Process(lab)
    yield process
    await process.stop()


async def test_a_hangup_and_another_file_are_taken_up_and_nothing_else_is_touched(lab: Lab, process: Process) -> None:
    process.start(EAGER)
    await process.healthy(3)
    socket_name = lab.endpoint().registration.endpoint
    process.path.write_text(SHARED)
    os.kill(os.getpid(), signal.SIGHUP)
    await process.healthy(9)
    # Without a signal: by another file in its place, as a ConfigMap's is swapped.
    new = process.path.with_name("next.yaml")
    new.write_text(SHARED.replace("replicas: 3", "replicas: 2"))
    new.replace(process.path)
    await process.healthy(6)
    assert lab.endpoint().registration.endpoint == socket_name
    assert lab.kubelet.registrations == [GPU]
    assert lab.reporter.problems == []


async def test_the_configuration_that_the_nodes_label_names_is_taken_up_and_remembered(
    lab: Lab, process: Process, tmp_path: Path
) -> None:
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "shared").write_text(SHARED)
    lab.flags["--config-dir"] = str(configs)
    process.start(EAGER)
    await process.healthy(3)
    process.named("shared")
    await process.healthy(9)
    (configs / "shared").write_text(SHARED.replace("replicas: 3", "replicas: 2"))
    await process.healthy(6)
    process.named("missing")
    await lab.until(lambda: any("configs/missing: found no such file" in one for one in lab.reporter.problems))
    assert len(lab.endpoint().healthy) == 6
    process.named("shared")
    loaded = load_or_last_good(None, {}, lab.all_flags)
    assert command._named(loaded, {}, lab.all_flags).path == configs / "shared", "an agent that starts anew"
    process.named(None)
    await process.healthy(3)


@pytest.fixture
def configs(lab: Lab, tmp_path: Path) -> Path:
    """A folder of named configurations, and no ``--config``."""
    folder = tmp_path / "configs"
    folder.mkdir()
    lab.flags["--config-dir"] = str(folder)
    return folder


async def test_the_only_file_of_the_folder_holds_without_a_label_or_a_default(
    lab: Lab, process: Process, configs: Path
) -> None:
    (configs / "any-name.yaml").write_text(SHARED)
    process.start()
    await process.healthy(9)
    (configs / "any-name.yaml").write_text(SHARED.replace("replicas: 3", "replicas: 2"))
    await process.healthy(6)
    (configs / "another").write_text(EAGER)
    await lab.until(lambda: any("found another, any-name.yaml" in one for one in lab.reporter.problems))
    assert len(lab.endpoint().healthy) == 6, "nobody chose another: the old one stays"
    process.named("another")
    await process.healthy(3)


async def test_an_agent_that_starts_where_nothing_chooses_takes_what_was_in_use_last(
    lab: Lab, process: Process, configs: Path
) -> None:
    (configs / "a").write_text(SHARED)
    process.start()
    await process.healthy(9)
    (configs / "b").write_text(EAGER)
    flags = process.flags
    again = command._named(load_or_last_good(None, {}, flags), {}, flags)
    assert again.rejected is not None
    assert again.settings.layout.replication is not None
    (lab.state_dir / "config.last-good").unlink()
    first = command._named(load_or_last_good(None, {}, flags), {}, flags)
    assert first.rejected is None
    assert first.settings.layout.replication is None
    assert "found a, b, expected one of them chosen by the node's label" in first.warnings[-1]


async def test_a_bad_config_at_reload_leaves_the_old_one_and_is_named(lab: Lab, process: Process) -> None:
    process.start(SHARED)
    await process.healthy(9)
    process.path.write_text(BAD)
    os.kill(os.getpid(), signal.SIGHUP)
    await lab.until(lambda: bool(lab.reporter.problems))
    (problem,) = lab.reporter.problems
    assert problem.startswith("Config rejected, the old one stays: ")
    assert f"{process.path}:2: health.probationSeconds: found 'soon', expected" in problem
    process.path.unlink()
    await lab.until(lambda: len(lab.reporter.problems) == 2, "a config file that is gone was not noticed")
    assert len(lab.endpoint().healthy) == 9
    process.path.write_text(EAGER)
    await process.healthy(3)


async def test_a_reload_that_requires_what_the_host_lacks_leaves_the_old_settings(
    lab: Lab, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.start(SHARED)
    await process.healthy(9)
    # Simulated GPUs lack no channel: this host is taken for a real one.
    monkeypatch.setattr(
        command,
        "required_channel_problem",
        lambda found: required_channel_problem(structs.replace(found, simulate=None)),
    )
    process.path.write_text(EAGER + "imex: {channelIDs: [0], required: true}\n")
    os.kill(os.getpid(), signal.SIGHUP)
    await lab.until(lambda: bool(lab.reporter.problems))
    assert lab.reporter.problems[0].startswith("Config rejected, the old one stays: Requested IMEX channel")
    assert len(lab.endpoint().healthy) == 9


async def test_a_bad_config_at_the_start_gives_way_to_the_last_good_one(lab: Lab, process: Process) -> None:
    process.start(SHARED)
    await process.healthy(9)
    await process.stop()
    process.start(BAD)
    await lab.until(lambda: lab.kubelet.registrations == [GPU, GPU])
    await process.healthy(9)
    (problem,) = lab.reporter.problems
    assert "health.probationSeconds" in problem
    # And it stays the last good one: a second bad start finds it too.
    await process.stop()
    process.start(BAD)
    await lab.until(lambda: lab.kubelet.registrations == [GPU, GPU, GPU])
    await process.healthy(9)


async def test_a_failure_while_following_the_config_ends_the_process(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.start(EAGER)
    await process.healthy(3)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(command, "changed", broken)
    os.kill(os.getpid(), signal.SIGHUP)
    with pytest.raises(ZeroDivisionError):
        await process.stop()


# What cannot start. In this process: nothing is left running by it.


@pytest.fixture
def start(
    short_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, str]]]:
    """``start(flags...)``: the exit code and what was said on stderr."""
    go_on = command._Process.run

    async def bounded(process: command._Process) -> None:
        async with asyncio.timeout(HANG_S):  # one that starts after all must not go on for ever
            await go_on(process)

    monkeypatch.setattr(command._Process, "run", bounded)
    # The agent takes the root logger over; the tests want it back.
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    (short_folder / "fleet.yaml").write_text(fleet(1))

    def run(*flags: str, env: dict[str, str] | None = None, simulate: bool = True) -> tuple[int, str]:
        argv = ["--node-name", "node-1", "--state-dir", str(short_folder / "state"), "--kubeconfig", "none"]
        argv += ["--kubelet-dir", str(short_folder / "kubelet"), "--metrics-address", "none"]
        argv += ["--simulate", str(short_folder / "fleet.yaml"), *flags] if simulate else flags
        code = command.run(argv, env or {})
        return code, capsys.readouterr().err

    yield run
    root.handlers[:] = handlers
    root.setLevel(level)


Start = Callable[..., tuple[int, str]]


def test_a_required_imex_channel_that_is_not_there_is_exit_1_and_one_line(start: Start, short_folder: Path) -> None:
    (short_folder / "config.yaml").write_text("version: v1\nimex: {channelIDs: [0], required: true}\n")
    code, said = start(
        "--config", str(short_folder / "config.yaml"), "--dev-root", str(short_folder / "dev"), simulate=False
    )
    assert code == 1
    channel = "/dev/nvidia-caps-imex-channels/channel0"
    assert said.splitlines()[-1] == (
        f"tessera-agent: Requested IMEX channel {channel} does not exist (imex.required), expected a character device"
    )


def test_a_bad_config_without_a_good_one_is_exit_2_and_one_line(start: Start, short_folder: Path) -> None:
    (short_folder / "bad.yaml").write_text(BAD)
    code, text = start("--config", str(short_folder / "bad.yaml"))
    assert code == 2
    (line,) = text.splitlines()
    assert line.startswith(f"tessera-agent: {short_folder}/bad.yaml:2: health.probationSeconds: found 'soon', expected")


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--mig-strategy", "sometimes"], "--mig-strategy: found 'sometimes', expected none, single or mixed"),
        (["--metrics-address", "here"], "--metrics-address: found 'here'"),
        (["--config", "/nonexistent/config.yaml"], "/nonexistent/config.yaml: found no such file or directory"),
        (["--simulate", "/nonexistent/fleet.yaml"], "/nonexistent/fleet.yaml"),
    ],
)
def test_what_was_asked_wrongly_is_exit_2_and_one_line(start: Start, flags: list[str], part: str) -> None:
    code, text = start(*flags)
    assert code == 2
    (line,) = text.splitlines()
    assert line.startswith("tessera-agent: ")
    assert part in line


def test_a_fleet_of_unknown_products_is_exit_2_and_names_file_and_line(start: Start, short_folder: Path) -> None:
    (short_folder / "fleet.yaml").write_text(fleet(1, "NVIDIA Nothing"))
    code, text = start()
    assert code == 2
    assert text.startswith(f"tessera-agent: {short_folder}/fleet.yaml:4")


def test_a_bad_variable_is_exit_2_and_named(start: Start) -> None:
    code, text = start(env={"TESSERA_LOG_LEVEL": "loud"})
    assert code == 2
    assert "TESSERA_LOG_LEVEL: found 'loud'" in text


def test_a_second_agent_on_the_same_state_folder_is_exit_1_and_one_line(start: Start, short_folder: Path) -> None:
    lock, _ = command._claim(short_folder / "state")
    assert lock is not None
    with lock:
        code, text = start()
    assert code == 1
    assert text == f"tessera-agent: --state-dir: {short_folder}/state is in use by another agent\n"


def test_an_unknown_flag_is_exit_2(start: Start) -> None:
    with pytest.raises(SystemExit) as ended:
        start("--no-such-flag")
    assert ended.value.code == 2


def test_broken_hardware_state_is_exit_1_and_one_line(start: Start, short_folder: Path) -> None:
    (short_folder / "state").mkdir()
    (short_folder / "state" / "simulated-hardware.json").write_text("{")
    code, text = start()
    assert code == 1
    (line,) = text.splitlines()
    assert "simulated-hardware.json" in line


def test_simulated_hardware_needs_a_state_folder_and_says_so(start: Start, short_folder: Path) -> None:
    (short_folder / "file").write_text("")
    code, text = start("--state-dir", str(short_folder / "file" / "state"))
    assert code == 1
    assert text.splitlines()[-1].startswith("tessera-agent: --simulate: ")


def test_a_state_folder_too_deep_for_sockets_is_exit_1_and_one_line(start: Start, short_folder: Path) -> None:
    code, text = start("--state-dir", str(short_folder / ("d" * 100)))
    assert code == 1
    (line,) = text.splitlines()
    assert "path too long" in line


def test_a_port_that_is_taken_is_exit_1_and_one_line(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, text = start("--metrics-address", f"127.0.0.1:{port}")
    assert code == 1
    line = text.splitlines()[-1]
    assert "cannot go on" in line
    assert str(port) in line


def test_a_kubeconfig_that_cannot_be_used_is_exit_2_and_says_what_to_do(start: Start) -> None:
    code, text = start("--kubeconfig", "/nonexistent/kubeconfig")
    assert code == 2
    (line,) = text.splitlines()
    assert "/nonexistent/kubeconfig" in line
    assert "--kubeconfig none" in line


def test_help_and_version_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    for flag, expected in (("--help", "examples:"), ("--version", "tessera-agent ")):
        with pytest.raises(SystemExit) as ended:
            command.run([flag], {})
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out


@pytest.fixture
def too_many(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], list[int]]:
    """Have the next opens of a file fail as they do for a process that has too many open; the list has what is left."""

    def fail(path: Path, times: int) -> list[int]:
        left, real = [times], Path.open

        def opened(self: Path, *args: Any, **more: Any) -> Any:
            if self == path and left[0] and "w" not in more.get("mode", ""):
                left[0] -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(self))
            return real(self, *args, **more)

        monkeypatch.setattr(Path, "open", opened)
        return left

    return fail


async def test_a_config_that_cannot_be_read_for_a_moment_is_not_rejected_and_is_read_again(
    lab: Lab, process: Process, monkeypatch: pytest.MonkeyPatch, too_many: Callable[[Path, int], list[int]]
) -> None:
    monkeypatch.setattr(command, "FIRST_RETRY_S", 0.01)
    process.start(EAGER)
    await process.healthy(3)
    left = too_many(process.path, 3)
    process.path.write_text(SHARED)
    await process.healthy(9)
    assert left == [0]
    (problem,) = lab.reporter.problems
    assert problem == (
        f"Config cannot be read, what was in use stays: {process.path}: found too many open files, "
        "expected a readable file. It is read again until it can be"
    )


async def test_a_config_that_could_not_be_read_at_the_start_is_read_again(
    process: Process, monkeypatch: pytest.MonkeyPatch, too_many: Callable[[Path, int], list[int]]
) -> None:
    monkeypatch.setattr(command, "FIRST_RETRY_S", 0.01)
    process.start(EAGER)
    await process.healthy(3)
    await process.stop()
    process.path.write_text(SHARED)
    too_many(process.path, 2)
    process.start()
    await process.healthy(9)


async def test_a_folder_of_configurations_that_cannot_be_listed_for_a_moment_changes_nothing(
    lab: Lab, process: Process, configs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "FIRST_RETRY_S", 0.01)
    (configs / "any-name.yaml").write_text(SHARED)
    process.start()
    await process.healthy(9)
    real = Path.iterdir

    def refused(self: Path) -> Iterator[Path]:
        if self == configs:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(self))
        yield from real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refused)
        await lab.until(lambda: any("too many open files" in one for one in lab.reporter.problems))
        assert len(lab.endpoint().healthy) == 9
    (configs / "any-name.yaml").write_text(EAGER)
    await process.healthy(3)


def test_a_state_folder_that_cannot_be_written_is_claimed_for_nobody_and_the_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    lock, without = command._claim(tmp_path / "file" / "state")
    assert lock is None
    assert str(tmp_path / "file") in without


def test_a_state_folder_that_can_be_read_alone_has_one_agent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.lock").touch()
    real = Path.open

    def read_only(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        if "w" in mode:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))
        return real(self, mode, *args, **more)

    monkeypatch.setattr(Path, "open", read_only)
    lock, without = command._claim(tmp_path)
    assert lock is not None
    assert "Read-only file system" in without
    with pytest.raises(command.StateDirInUse):
        command._claim(tmp_path)
    lock.close()


async def test_an_agent_whose_state_folder_cannot_be_written_runs_on_and_says_so(
    agent: AgentProcess, kubelet: StandInKubelet, short_folder: Path
) -> None:
    """A process of its own, without simulated hardware: that would need the folder."""
    assert kubelet.endpoints == {}
    (short_folder / "file").write_text("no folder can be made here")
    agent.fleet = None
    agent.flags = ["--state-dir", str(short_folder / "file" / "state")]
    agent.start()
    assert agent.process is not None

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", agent.port), 5) as client:
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return b" 200 " in client.recv(100)
        return False

    await eventually(answers, within_s=HANG_S)
    assert agent.process.poll() is None
    said = [line for line in agent.log().splitlines() if "the state folder cannot be written" in line]
    assert len(said) == 1
    assert agent.stop() == 0
