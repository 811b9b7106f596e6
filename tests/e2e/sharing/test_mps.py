"""MPS on a real kubelet: a pod is a client of its GPU's daemon; the daemon is killed under it, told, and replaced.

One node for all claims: GPUs 0 and 1 shared by two MPS clients each, GPU 2 whole.
"""

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from agent.config.settings import MpsSettings
from agent.mps.core import Phase
from agent.mps.paths import DevicePaths, device_paths
from agent.mps.runner import programs
from inventory.layout.layout import physical_id
from tests.support.e2e.lab import FAST, GPU, SHARED, Agent, Lab, Pod, fleet, held_by, until

pytestmark = pytest.mark.e2e

CONFIG = f"""
version: v1
sharing: {{mps: {{resources: [{{name: {GPU}, rename: {SHARED}, devices: [0, 1], replicas: 2}}]}}}}
health: {FAST}
mps: {{probeIntervalSeconds: 1}}
"""
ALL_WELL = {GPU: 1, SHARED: 4}


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    path = fleet(tmp_path_factory.mktemp("mps") / "fleet.yaml", gpus=3, product="NVIDIA A100-SXM4-80GB")
    with lab.agent(path, CONFIG) as agent:
        yield agent


@pytest.fixture
def pod(lab: Lab, agent: Agent) -> Pod:
    """A client, on a node where every daemon is ready."""
    del agent
    lab.await_amounts(ALL_WELL)
    return lab.run("client", {SHARED: 1})


def device_of(agent: Agent, pod: Pod) -> str:
    """The UUID of the pod's GPU, once the agent knows who holds it."""
    report = agent.until(lambda one: bool(held_by(one, pod.name)), f"{pod.name} is known to hold a device")
    (device,) = held_by(report, pod.name)
    return physical_id(device)


def paths_of(agent: Agent, device: str) -> DevicePaths:
    return device_paths(Path(agent.environment["MPS_ROOT"]), device)


def kill(paths: DevicePaths) -> int:
    daemon = int(paths.pid_file.read_text())
    os.kill(daemon, signal.SIGKILL)
    return daemon


def client_of(paths: DevicePaths) -> subprocess.Popen[str]:
    """A program that is a client of the daemon, as one in a container with that pipe folder is."""
    words = [*programs(MpsSettings(), simulated=True).canary, "--hold"]
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(paths.pipe)}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)


def test_a_pod_sees_its_daemon_and_gets_its_share(agent: Agent, pod: Pod) -> None:
    found = dict(line.split("=", 1) for line in pod.sh("env | grep ^CUDA").splitlines())
    assert found == {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}
    device = device_of(agent, pod)
    assert pod.visible == [device]
    paths = paths_of(agent, device)

    # Clients come and go in it: both are looked at until they are the same.
    def inside() -> set[str]:
        return set(pod.sh("ls /tmp/nvidia-mps").split())

    until(lambda: inside() == {path.name for path in paths.pipe.iterdir()}, "the daemon's folder inside")
    assert "control" in inside()
    pod.sh("echo seen > /dev/shm/mark && test -S /tmp/nvidia-mps/control")
    assert (paths.shm / "mark").read_text() == "seen\n"
    with client_of(paths) as client:
        assert client.stdout is not None
        given = json.loads(client.stdout.readline())
        client.kill()
    assert (given["threads"], given["memoryMib"], given["device"]) == (50.0, 40960, device)


def test_a_daemon_that_is_killed_under_a_pod_is_told_and_replaced(lab: Lab, agent: Agent, pod: Pod) -> None:
    device = device_of(agent, pod)
    paths = paths_of(agent, device)
    with client_of(paths) as client:
        assert client.stdout is not None
        client.stdout.readline()
        before = next(one.restarts for one in agent.report().mps if one.device == device)
        first = kill(paths)
        assert client.wait(120) == 3, "its connection went with the daemon"
    agent.until(
        lambda report: any(
            (one.device, one.phase) == (device, Phase.READY) and one.restarts > before for one in report.mps
        ),
        "the daemon is back",
    )
    assert int(paths.pid_file.read_text()) != first
    lab.await_amounts(ALL_WELL)
    notes = [one.get("note") for one in lab.events() if one["reason"] == "MpsDaemonLost"]
    until(
        lambda: any("default/client have lost it" in one.get("note", "") for one in lab.events()),
        f"an Event ({notes})",
    )
    # The container goes on with the same pipe folder: its next CUDA context finds the new daemon.
    assert pod.sh("test -S /tmp/nvidia-mps/control && echo there") == "there\n"
    with client_of(paths) as client:
        assert client.stdout is not None
        assert json.loads(client.stdout.readline())["threads"] == 50.0
        client.kill()


def test_while_one_daemon_cannot_start_the_other_gpus_are_given(lab: Lab, agent: Agent, pod: Pod) -> None:
    device = device_of(agent, pod)
    paths = paths_of(agent, device)
    blocked = paths.pipe / "control"
    # The holder of the lock keeps a daemon from starting: the GPU stays out, for as long as it takes.
    with (paths.pipe / "control_lock").open("w") as lock:
        with agent.paused():
            kill(paths)
            until(lambda: _locked(lock), "the lock")
        agent.until(
            lambda report: any(one.restarts > 1 and one.phase is not Phase.READY for one in report.mps), "tries"
        )
        lab.await_amounts({GPU: 1, SHARED: 2})
        other = lab.run("other", {SHARED: 1})
        assert other.visible != [device]
        fcntl.flock(lock, fcntl.LOCK_UN)
    lab.await_amounts(ALL_WELL)
    assert blocked.is_socket()


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_an_agent_that_is_killed_leaves_its_daemons_and_its_successor_takes_them_over(
    lab: Lab, agent: Agent, pod: Pod
) -> None:
    paths = paths_of(agent, device_of(agent, pod))
    daemon = paths.pid_file.read_text()
    with client_of(paths) as client:
        assert client.stdout is not None
        client.stdout.readline()
        agent.kill()
        agent.start()
        until(agent.serves, "the successor serves")
        lab.await_amounts(ALL_WELL)
        assert paths.pid_file.read_text() == daemon
        assert client.poll() is None
        client.kill()
    assert Path(f"/proc/{daemon}").exists()
