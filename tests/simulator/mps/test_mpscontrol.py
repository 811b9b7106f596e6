"""The stand-in behaves as NVIDIA's documents say of nvidia-cuda-mps-control: commands, files, users, limits."""

import json
import os
import select
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import simulator
from tests.support.hang import HANG_S

HERE = Path(simulator.__file__).parent / "mps"
CONTROL = [sys.executable, "-IS", str(HERE / "mpscontrol.py")]
CLIENT = [sys.executable, "-IS", str(HERE / "mpsclient.py")]


class Folder:
    """A pipe and a log folder, and the programs run with them."""

    def __init__(self, base: Path) -> None:
        self.pipe, self.log = base / "pipe", base / "log"
        self.env = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
            "CUDA_VISIBLE_DEVICES": "GPU-1",
        }

    def start(self) -> int:
        """The daemon in the background, as -d leaves it; its pid."""
        subprocess.run([*CONTROL, "-d"], env=self.env, check=True, timeout=HANG_S)
        return int((self.pipe / "nvidia-cuda-mps-control.pid").read_text())

    def say(self, *commands: str) -> list[str]:
        text = "\n".join(commands)
        done = subprocess.run(
            CONTROL, env=self.env, input=text, text=True, stdout=subprocess.PIPE, timeout=HANG_S, check=False
        )
        return [*done.stdout.splitlines(), *([f"rc {done.returncode}"] if done.returncode else [])]

    def client(self, env: Mapping[str, str] | None = None) -> dict[str, object]:
        done = subprocess.run(
            CLIENT, env={**self.env, **(env or {})}, stdout=subprocess.PIPE, check=True, timeout=HANG_S
        )
        found: dict[str, object] = json.loads(done.stdout)
        return found

    @contextmanager
    def hold(self, words: Sequence[str] = CLIENT) -> "Iterator[subprocess.Popen[str]]":
        """A client that stays."""
        pipe = subprocess.PIPE
        with subprocess.Popen([*words, "--hold"], env=self.env, stdout=pipe, stderr=pipe, text=True) as client:
            try:
                yield client
            finally:
                client.kill()


# The interpreter may lie where another user cannot go: it is another user's only once it runs.
OF_ANOTHER_USER = [
    *(sys.executable, "-IS", "-c"),
    f"import json, os, re, socket, sys, pathlib; text = open({CLIENT[-1]!r}).read(); os.setuid(65534); exec(text)",
]


@pytest.fixture
def folder() -> Iterator[Folder]:
    with tempfile.TemporaryDirectory(prefix="mps-") as base:
        Path(base).chmod(0o755)
        found = Folder(Path(base))
        yield found
        found.say("quit -t 0")


def test_without_a_daemon_a_command_says_so(folder: Folder) -> None:
    assert folder.say("get_server_list") == ["Cannot find MPS control daemon process", "rc 1"]


def test_a_daemon_leaves_the_files_that_clients_look_for(folder: Folder) -> None:
    pid = folder.start()
    kinds = {path.name: stat.S_IFMT(path.stat().st_mode) for path in folder.pipe.iterdir()}
    assert kinds == {
        "control": stat.S_IFSOCK,
        "control_privileged": stat.S_IFSOCK,
        "control_lock": stat.S_IFREG,
        "log": stat.S_IFIFO,
        "nvidia-cuda-mps-control.pid": stat.S_IFREG,
    }
    assert f"Starting control daemon using socket {folder.pipe}/control" in (folder.log / "control.log").read_text()
    assert os.getsid(pid) == pid


def test_a_second_daemon_of_one_folder_is_refused(folder: Folder) -> None:
    folder.start()
    again = subprocess.run(
        [*CONTROL, "-f"], env=folder.env, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (again.returncode, again.stderr) == (1, "An instance of this daemon is already running\n")


def test_defaults_are_told_back_and_reach_the_next_server(folder: Folder) -> None:
    folder.start()
    assert folder.say("get_server_list", "get_default_active_thread_percentage") == ["100.0"]
    assert folder.say(
        "set_default_active_thread_percentage 25",
        "get_default_active_thread_percentage",
        "set_default_device_pinned_mem_limit 0 20G",
        "get_default_device_pinned_mem_limit 0",
    ) == ["25.0", "20G"]
    given = folder.client()
    assert (given["threads"], given["memoryMib"], given["device"]) == (25.0, 20480, "GPU-1")
    assert folder.say("get_server_list") == [str(given["server"])]


def test_a_client_can_only_tighten_its_limits(folder: Folder) -> None:
    folder.start()
    folder.say("set_default_active_thread_percentage 50", "set_default_device_pinned_mem_limit 0 1000M")
    tight = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=300M"}
    wide = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "90", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4G"}
    assert [(one["threads"], one["memoryMib"]) for one in map(folder.client, (tight, wide))] == [
        (10.0, 300),
        (50.0, 1000),
    ]


def test_other_defaults_do_not_reach_a_server_that_runs_unless_it_is_named(folder: Folder) -> None:
    folder.start()
    server = folder.client()["server"]
    folder.say("set_default_active_thread_percentage 10")
    assert folder.client()["threads"] == 100.0
    folder.say(f"set_active_thread_percentage {server} 10", f"set_device_pinned_mem_limit {server} 0 64M")
    assert (folder.client()["threads"], folder.client()["memoryMib"]) == (10.0, 64)


def test_a_limit_by_uuid_is_taken_in_and_has_no_effect(folder: Folder) -> None:
    folder.start()
    assert folder.say("set_default_device_pinned_mem_limit GPU-1 1G", "get_default_device_pinned_mem_limit 0") == []
    assert folder.say("set_default_device_pinned_mem_limit 1 1G") == ["Invalid device 1"]


def test_clients_are_listed_and_cut_off_with_the_daemon(folder: Folder) -> None:
    pid = folder.start()
    with folder.hold() as client:
        assert client.stdout is not None
        server = json.loads(client.stdout.readline())["server"]
        assert folder.say(f"get_client_list {server}") == [str(client.pid)]
        assert str(client.pid) in folder.say("ps")[1]
        os.kill(pid, signal.SIGKILL)
        assert client.wait(HANG_S) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="two users take root")
def test_another_user_waits_until_the_first_has_left(folder: Folder) -> None:
    folder.start()
    with folder.hold() as first:
        assert first.stdout is not None
        servers = [json.loads(first.stdout.readline())["server"]]
        with folder.hold(OF_ANOTHER_USER) as second:
            assert second.stdout is not None
            while "from user 65534: Server is not ready" not in (folder.log / "control.log").read_text():
                assert second.poll() is None
                time.sleep(0.01)
            first.kill()
            servers.append(json.loads(second.stdout.readline())["server"])
            assert servers[0] != servers[1]
            assert f"Uid:\t{65534}" in Path(f"/proc/{servers[1]}/status").read_text()


def test_quit_waits_for_clients_unless_it_is_told_how_long(folder: Folder) -> None:
    folder.start()
    with folder.hold() as client:
        assert client.stdout is not None
        client.stdout.readline()
        folder.say("quit")
        assert client.poll() is None
        client.kill()
    folder.start()
    with folder.hold() as client:
        assert client.stdout is not None
        client.stdout.readline()
        folder.say("quit -t 0")
        assert client.wait(HANG_S) == 3


def test_a_daemon_that_is_asked_to_end_by_a_signal_ends_and_takes_its_files_along(folder: Folder) -> None:
    pid = folder.start()
    watched = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    assert select.select([watched], [], [], HANG_S)[0]
    os.close(watched)
    assert [path.name for path in folder.pipe.iterdir()] == ["control_lock"]


def test_a_command_nobody_knows_is_answered(folder: Folder) -> None:
    folder.start()
    assert folder.say("reboot", "get_client_list 1") == ["Unrecognized command: reboot", "Server 1 not found"]
