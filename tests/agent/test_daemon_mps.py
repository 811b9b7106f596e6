"""MPS on a node: nothing is given before its daemon serves clients, and a daemon that ends takes nobody else along."""

import fcntl
import json
import os
import signal
from collections import Counter
from pathlib import Path

import grpc.aio
import pynvml
import pytest

from agent.kubelet.plans import BoundPod, Demand
from agent.mps import control, core
from agent.mps.core import DaemonState, Phase
from agent.mps.folders import SharedMemory, make
from agent.mps.paths import device_paths
from agent.persistence import statefiles
from deviceplugin.testing import Endpoint
from inventory.devices import ResourceName
from tests.support.agent.node import EAGER, Lab, fleet, mps_client

SHARED = "nvidia.com/gpu.shared"
MPS = EAGER + "mps: {probeIntervalSeconds: 0.2}\n"
PERCENT = "tessera.dev/gpu-percent"
CONFIG = MPS + "sharing: {mps: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "FIRST_PAUSE_S", 0.05)


def daemon(lab: Lab, index: int) -> DaemonState:
    return next(one for one in lab.agent.mps.states() if one.device == lab.uuid(index))


def pid(lab: Lab, index: int) -> int:
    return int(device_paths(lab.state_dir / "mps", lab.uuid(index)).pid_file.read_text())


def limits(lab: Lab, index: int) -> tuple[float, int | None]:
    """What a client gets now: percent of the threads, MiB of memory."""
    with mps_client(lab, index) as (_, given):
        found = json.loads(given)
        return found["threads"], found["memoryMib"]


async def ready(lab: Lab, resource: str = SHARED) -> None:
    def holds() -> bool:
        there = resource in lab.kubelet.endpoints and bool(lab.endpoint(resource).devices)
        return there and all(one.phase is Phase.READY for one in lab.agent.mps.states()) and not lab.down(resource)

    await lab.until(holds, "every daemon ready")


async def served(lab: Lab, text: str, config: str = CONFIG, resource: str = SHARED) -> Endpoint:
    endpoint = await lab.serve(text, config, resource=resource)
    await ready(lab, resource)
    return endpoint


def compute_mode(lab: Lab, index: int) -> int:
    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(lab.uuid(index))))
    finally:
        pynvml.nvmlShutdown()


async def test_a_container_becomes_a_client_of_its_gpus_daemon_with_an_equal_share(lab: Lab) -> None:
    await served(lab, fleet(1))
    given = (await lab.kubelet.allocate(SHARED, 1)).response
    paths = device_paths(lab.state_dir / "mps", lab.uuid(0))
    assert given.envs["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    assert {one.container_path: one.host_path for one in given.mounts} == {
        "/tmp/nvidia-mps": str(paths.pipe),
        "/dev/shm": str(paths.shm),
    }
    assert paths.control.is_socket()
    assert compute_mode(lab, 0) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    assert "NEW SERVER" in paths.control_log.read_text(), "no client was sent through before"
    await lab.shown()
    # No pod holds the GPU any more: the daemon ends with the agent, and the GPU is as it was.
    lab.kubelet.delete("pod")
    await lab.until(lambda: lab.agent.holders.reachable and not lab.agent.holders.holders, "held by none")
    running = pid(lab, 0)
    await lab.stop()
    assert not Path(f"/proc/{running}").exists()
    assert not paths.base.exists()
    assert compute_mode(lab, 0) == pynvml.NVML_COMPUTEMODE_DEFAULT


async def test_nothing_is_given_before_its_daemon_is_ready(lab: Lab) -> None:
    lab.power_on(fleet(1))
    paths = make(lab.state_dir / "mps", lab.uuid(0), SharedMemory.NONE, None)
    await lab.kubelet.start()
    with (paths.pipe / "control_lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a daemon does that runs here already
        await lab.start(CONFIG)
        await lab.listed(SHARED)
        assert lab.down(SHARED) == lab.on(0, SHARED)
        await lab.until(lambda: daemon(lab, 0).restarts > 0, "a start that failed")
        assert daemon(lab, 0).reason.endswith("An instance of this daemon is already running")
        assert lab.down(SHARED) == lab.on(0, SHARED)
    await ready(lab)
    assert not lab.reporter.warnings, "there were no clients to tell"


async def test_a_daemon_that_is_killed_takes_out_its_gpu_until_it_is_back(lab: Lab) -> None:
    await served(lab, fleet(2))
    pods = {}
    for name in ("first", "second"):
        (device,) = (await lab.kubelet.allocate(SHARED, 1, pod=name)).devices
        pods[device.partition("::")[0]] = name
    await lab.until(lambda: len(lab.agent.holders.holders) == 2, "both held")
    first = pid(lab, 0)
    os.kill(first, signal.SIGKILL)
    await lab.until(lambda: bool(lab.down(SHARED)))
    assert lab.down(SHARED) <= lab.on(0, SHARED)
    await ready(lab)
    assert pid(lab, 0) != first
    (told,) = lab.reporter.warnings
    whom = f"its clients in default/{pods[lab.uuid(0)]} have lost it; it is being restarted"
    text = f"GPU 0 ({lab.uuid(0)}): the MPS daemon was ended by signal 9: {whom}"
    assert told == ("MpsDaemonLost", "Restart", text)
    exposition = lab.agent.metrics.exposition().decode()
    assert f'tessera_agent_mps_daemon_ready{{device="{lab.uuid(0)}"}} 1' in exposition
    assert f'tessera_agent_mps_daemon_restarts{{device="{lab.uuid(0)}"}} 1' in exposition
    assert (daemon(lab, 0).restarts, daemon(lab, 1).restarts) == (1, 0)


async def test_a_daemon_that_hangs_is_replaced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    await served(lab, fleet(1))
    first = pid(lab, 0)
    os.kill(first, signal.SIGSTOP)
    with monkeypatch.context() as impatient:
        impatient.setattr(control, "ASK_TIMEOUT_S", 0.2)
        await lab.until(lambda: bool(lab.down(SHARED)))
    await ready(lab)
    assert pid(lab, 0) != first
    assert any("does not answer" in text for _, _, text in lab.reporter.warnings)


async def test_a_daemon_with_clients_outlives_the_agent_is_taken_over_and_takes_other_limits(lab: Lab) -> None:
    await served(lab, fleet(1))
    running = pid(lab, 0)
    with mps_client(lab, 0) as (held, _):
        log = device_paths(lab.state_dir / "mps", lab.uuid(0)).control_log
        clients = log.read_text().count("NEW CLIENT")
        await lab.restart(CONFIG.replace("replicas: 4", "replicas: 2"))
        await lab.listed(SHARED)
        await ready(lab)
        assert pid(lab, 0) == running
        assert held.poll() is None
        # Another user's would have to wait for those that are there.
        assert log.read_text().count("NEW CLIENT") == clients, "a trial client was sent through"
        assert limits(lab, 0) == (50.0, 20480)


async def test_a_daemon_outlives_the_agent_while_a_pod_that_is_no_client_now_has_its_folder(lab: Lab) -> None:
    await served(lab, fleet(1))
    await lab.kubelet.allocate(SHARED, 1)
    await lab.until(lambda: bool(lab.agent.holders.holders), "held")
    running, folder = pid(lab, 0), device_paths(lab.state_dir / "mps", lab.uuid(0)).pipe.stat().st_ino
    await lab.restart(CONFIG)
    await lab.listed(SHARED)
    await ready(lab)
    assert pid(lab, 0) == running
    assert device_paths(lab.state_dir / "mps", lab.uuid(0)).pipe.stat().st_ino == folder


async def test_an_agent_that_remembers_no_gpu_ends_no_daemon_before_it_has_looked(lab: Lab) -> None:
    await served(lab, fleet(1))
    running = pid(lab, 0)
    with mps_client(lab, 0) as (held, _):
        await lab.stop()
        (lab.state_dir / statefiles.CHECKPOINT).unlink()
        lab.sim(driver="down")
        await lab.start(CONFIG)
        # The kubelet says that nobody holds anything, and only then does NVML say what there is.
        await lab.until(lambda: lab.agent.holders.reachable)
        lab.sim(driver="up")
        await lab.listed(SHARED)
        await ready(lab)
        assert pid(lab, 0) == running
        assert held.poll() is None


async def test_each_mig_instance_has_its_daemon_and_the_gpu_keeps_its_compute_mode(lab: Lab) -> None:
    more = "  migEnabled: [0]\n  mig: {0: [3g.20gb, 3g.20gb]}\n"
    config = MPS + (
        "flags: {migStrategy: mixed}\nsharing: {mps: {resources: [{name: nvidia.com/mig-3g.20gb, replicas: 2}]}}\n"
    )
    await served(lab, fleet(1, more=more), config, "nvidia.com/mig-3g.20gb")
    assert len(lab.agent.mps.states()) == 2
    assert all(one.device.startswith("MIG-") for one in lab.agent.mps.states())
    assert compute_mode(lab, 0) == pynvml.NVML_COMPUTEMODE_DEFAULT


async def test_more_clients_than_the_driver_serves_are_refused_with_the_number(lab: Lab) -> None:
    await lab.serve(fleet(1), CONFIG.replace("replicas: 4", "replicas: 61"), resource=SHARED)
    assert len(lab.down(SHARED)) == 61
    (state,) = lab.agent.mps.states()
    assert (state.phase, state.reason) == (
        Phase.REFUSED,
        "no MPS daemon: found 61 MPS clients, expected 48 at most on NVIDIA A100-SXM4-40GB with this driver",
    )


async def test_uneven_shares_and_percents_bring_their_limits_to_daemons_that_have_none(lab: Lab) -> None:
    config = MPS + (
        "layout:\n"
        "- {gpus: [0], mode: mps, clients: [{memory: 20Gi, threads: 50, resource: nvidia.com/gpu.large},"
        " {memory: 10Gi, threads: 25, resource: nvidia.com/gpu.small}]}\n"
        "- {gpus: [1], mode: fractional, granularity: 10}\n"
    )
    await served(lab, fleet(2), config, "tessera.dev/gpu-percent")
    caps = {}
    for resource, count in (("nvidia.com/gpu.large", 1), ("nvidia.com/gpu.small", 1), ("tessera.dev/gpu-percent", 30)):
        await ready(lab, resource)
        given = (await lab.kubelet.allocate(resource, count, pod=resource)).response
        caps[resource] = {name.removeprefix("CUDA_MPS_"): value for name, value in given.envs.items() if "MPS" in name}
        assert {one.container_path for one in given.mounts} == {"/tmp/nvidia-mps", "/dev/shm"}
    pipe = {"PIPE_DIRECTORY": "/tmp/nvidia-mps"}
    assert caps == {
        "nvidia.com/gpu.large": pipe | {"ACTIVE_THREAD_PERCENTAGE": "50", "PINNED_DEVICE_MEM_LIMIT": "0=20480M"},
        "nvidia.com/gpu.small": pipe | {"ACTIVE_THREAD_PERCENTAGE": "25", "PINNED_DEVICE_MEM_LIMIT": "0=10240M"},
        "tessera.dev/gpu-percent": pipe | {"ACTIVE_THREAD_PERCENTAGE": "30", "PINNED_DEVICE_MEM_LIMIT": "0=12288M"},
    }
    # Both daemons limit nobody of themselves.
    assert [limits(lab, 0), limits(lab, 1)] == [(100.0, None), (100.0, None)]
    await lab.shown()
    # Without its clients a GPU is whole again, its daemon gone and its compute mode given back.
    for pod in caps:
        lab.kubelet.delete(pod)
    lab.agent.holders.nudge()
    await lab.until(lambda: not lab.agent.holders.holders, "nobody holds anything")
    await lab.agent.reconfigure(lab.settings(MPS))
    await lab.listed()
    await lab.until(lambda: not lab.down() and not lab.agent.mps.states(), "both whole")
    assert compute_mode(lab, 0) == pynvml.NVML_COMPUTEMODE_DEFAULT


async def test_equal_parts_of_two_gpus_have_one_daemon_and_a_limit_on_each(lab: Lab) -> None:
    """What the pod asks for is known from the watch alone: without it a request lies on one GPU."""
    joint = MPS + "layout:\n- {gpus: [0, 1], mode: fractional, granularity: 10, oneDaemon: true}\n"
    await served(lab, fleet(3), joint, PERCENT)
    (daemon,) = lab.agent.mps.states()
    assert (daemon.name, daemon.devices) == ("GPU 0, 1", (lab.uuid(0), lab.uuid(1)))
    with pytest.raises(grpc.aio.AioRpcError, match="found a request for 120, expected 100 at most") as refused:
        await lab.kubelet.allocate(PERCENT, 120, pod="unknown")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    demand = Demand(ResourceName(PERCENT), 120, 2)
    lab.agent.pods.plans.bound(BoundPod(uid="u", key=("default", "two"), age=1, demands=(demand,)))
    grant = await lab.kubelet.allocate(PERCENT, 120, pod="two")
    assert Counter(device.partition("::")[0] for device in grant.devices) == {lab.uuid(0): 60, lab.uuid(1): 60}
    envs = grant.response.envs
    assert set(envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == {lab.uuid(0), lab.uuid(1)}
    assert envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "60"
    limit = 40960 * 60 // 100
    assert envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={limit}M,1={limit}M"
    mounts = {mount.container_path: mount.host_path for mount in grant.response.mounts}
    assert mounts[envs["CUDA_MPS_PIPE_DIRECTORY"]] == str(lab.state_dir / "mps" / lab.uuid(0) / "pipe")
    other = (await lab.kubelet.allocate(PERCENT, 40, pod="one")).response
    assert {mount.host_path for mount in other.mounts} == set(mounts.values()), "whichever GPU it is of"
    assert [compute_mode(lab, index) for index in (0, 1)] == [pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS] * 2
    await lab.shown()
    for pod in ("two", "one"):
        lab.kubelet.delete(pod)
    lab.agent.holders.nudge()
    await lab.until(lambda: not lab.agent.holders.holders, "nobody holds anything")
    await lab.agent.reconfigure(lab.settings(joint.replace(", oneDaemon: true", "")))
    await lab.until(lambda: {one.device for one in lab.agent.mps.states()} == {lab.uuid(0), lab.uuid(1)})
    await ready(lab, PERCENT)
    assert [len(one.devices) for one in lab.agent.mps.states()] == [1, 1]
    await lab.agent.reconfigure(lab.settings(MPS))
    await lab.until(lambda: not lab.agent.mps.states(), "both whole")
    assert [compute_mode(lab, index) for index in (0, 1)] == [pynvml.NVML_COMPUTEMODE_DEFAULT] * 2


async def test_where_it_is_configured_a_container_gets_replicas_of_two_gpus_and_one_daemon(lab: Lab) -> None:
    shared = "{failRequestsGreaterThanOne: false, resources: [{name: nvidia.com/gpu, replicas: 4}]}"
    await served(lab, fleet(2), f"{MPS}sharing: {{mps: {shared}}}\n", "nvidia.com/gpu")
    (only,) = lab.agent.mps.states()
    assert set(only.devices) == {lab.uuid(0), lab.uuid(1)}
    grant = await lab.kubelet.allocate("nvidia.com/gpu", 2)
    assert {device.partition("::")[0] for device in grant.devices} == {lab.uuid(0), lab.uuid(1)}, "distributed"
    pipe, _ = grant.response.mounts
    assert pipe.host_path == str(device_paths(lab.state_dir / "mps", only.device).pipe)
    assert set(grant.response.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == {lab.uuid(0), lab.uuid(1)}
    with mps_client(lab, 0) as (_, given):
        assert json.loads(given)["threads"] == 25
    # Back to one daemon a GPU: what the container holds goes on being served by its own.
    await lab.agent.reconfigure(lab.settings(CONFIG.replace("renameByDefault: true, ", "")))
    await lab.until(lambda: len(lab.agent.mps.states()) >= 1)
    assert Path(pipe.host_path).exists()
