"""One node with whole, time-sliced, MPS, fractional and MIG GPUs, a pod on each kind, and an agent with the chart's
rights: whatever happens to one kind, the pods and the streams of the others do not notice it."""

import fcntl
import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from agent.mps.core import Phase
from agent.mps.paths import device_paths
from hack.cluster.controlplane.render import TEST_IMAGE
from inventory.layout.layout import physical_id
from tests.support.e2e.agentrights import chart_token
from tests.support.e2e.lab import EXAMPLES, GPU, SHARED, Agent, Lab, Pod, held_by, until

pytestmark = pytest.mark.e2e

FLEET = EXAMPLES / "fleets/h100-8.yaml"
CONFIG = (EXAMPLES / "configs/layout.yaml").read_text() + (
    "flags: {plugin: {deviceListStrategy: [envvar, cdi-cri]}}\n"
    "health: {probationSeconds: 1, probeIntervalSeconds: 0.5}\n"
    "mps: {probeIntervalSeconds: 1}\n"
)
PERCENT = "tessera.dev/gpu-percent"
LARGE, SMALL = "nvidia.com/gpu-large", "nvidia.com/gpu-small"
HALF, SLICE = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb.shared"
QUARTER, ALL = "nvidia.com/mig-2g.20gb", "nvidia.com/mig-7g.80gb"
OFFERED = {GPU: 2, SHARED: 4, LARGE: 1, SMALL: 1, HALF: 4, SLICE: 4, QUARTER: 0, ALL: 0}
KINDS = {
    "whole": ({GPU: 1}, (0, 7)),
    "sliced": ({SHARED: 1}, (1,)),
    "large": ({LARGE: 1}, (2,)),
    "small": ({SMALL: 1}, (2,)),
    "part": ({PERCENT: 30}, (3,)),
    "half": ({HALF: 1}, (4, 5)),
    "slice": ({SLICE: 1}, (6,)),
}
"""What each pod asks for, and the GPUs that are in that mode."""
LET_GO = "until test -e /dev/shm/go; do sleep 0.2; done; exit 0"
SLOW = "nvmlDeviceCreateGpuInstanceWithPlacement"


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("rights")
    with chart_token(lab, folder) as token:
        rights = lab.kubeconfig(folder / "kubeconfig", token=token)
        with lab.agent(FLEET, CONFIG, api=False, kubeconfig=str(rights)) as agent:
            yield agent
            assert "orbidden" not in agent.log()


@pytest.fixture(autouse=True)
def as_at_first(lab: Lab, agent: Agent) -> None:
    agent.take_up(CONFIG)
    lab.await_amounts(OFFERED)
    until(lambda: percents(lab) == 100, "the fractional GPU's daemon is ready")


@pytest.fixture
def pods(lab: Lab, agent: Agent) -> dict[str, Pod]:
    """One of each kind, all running."""
    started = {name: lab.run(name, limits, wait=False) for name, (limits, _) in KINDS.items()}
    for pod in started.values():
        pod.await_ready()
    agent.until(lambda report: all(held_by(report, name) for name in KINDS), "who holds what is known")
    return started


def reload(agent: Agent, config: str) -> None:
    agent.config = config
    agent.reload(config)


def locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def percents(lab: Lab) -> int:
    return int(lab.node["status"]["allocatable"].get(PERCENT, 0))


def seen_by(pods: Mapping[str, Pod]) -> dict[str, tuple[Any, ...]]:
    """What must not change under a pod that runs: its container, and what it sees from inside."""
    found = {}
    for name, pod in pods.items():
        lines = pod.sh("env | sort; find /dev -name 'nvidia*' -type c | sort").splitlines()
        found[name] = (pod.container, *(one for one in lines if one.startswith(("NVIDIA", "CUDA", "/dev"))))
    return found


def streams(agent: Agent, *but: str) -> dict[str, tuple[str, int]]:
    """Socket and registrations of each resource: the same while its stream is never ended."""
    return {name: (at, agent.registrations(name)) for name, at in agent.sockets().items() if name not in but}


def uuids(agent: Agent, index: int) -> set[str]:
    gpu = agent.report().node.gpus[index]
    return {mig.uuid for mig in gpu.mig_instances} or {gpu.uuid}


def device(agent: Agent, pod: str) -> str:
    """The UUID of what a pod holds."""
    (found,) = {physical_id(one) for one in held_by(agent.report(), pod)}
    return found


def test_each_pod_sees_the_device_files_of_its_own_gpu_and_of_no_other(agent: Agent, pods: dict[str, Pod]) -> None:
    for name, (_, indexes) in KINDS.items():
        (index,) = [index for index in indexes if device(agent, name) in uuids(agent, index)]
        files = [file for file in pods[name].device_nodes if file.removeprefix("/dev/nvidia").isdigit()]
        assert files == [f"/dev/nvidia{index}"], name


def test_instances_change_beside_the_one_that_is_held_and_nobody_else_notices(
    lab: Lab, agent: Agent, pods: dict[str, Pod]
) -> None:
    before, listened = seen_by(pods), streams(agent)
    reload(agent, CONFIG.replace("[3g.40gb, 3g.40gb]", "[3g.40gb, 2g.20gb]"))
    lab.await_amounts({**OFFERED, HALF: 2, QUARTER: 2})
    assert seen_by(pods) == before
    assert streams(agent, QUARTER) == listened
    assert percents(lab) == 100
    lab.run("quarter", {QUARTER: 1})
    agent.until(lambda report: bool(held_by(report, "quarter")), "who holds what is known")
    assert device(agent, "quarter") in uuids(agent, 4) | uuids(agent, 5)


def test_a_change_of_many_kinds_is_refused_as_a_whole_by_the_names_of_all_in_the_way(
    lab: Lab, agent: Agent, pods: dict[str, Pod]
) -> None:
    before, listened = seen_by(pods), streams(agent)
    wanted = CONFIG.replace("{gpus: [1], mode: timeSlicing, replicas: 4}", "{gpus: [1], mode: whole}")
    reload(
        agent, wanted.replace("{gpus: [3], mode: fractional, granularity: 10}", "{gpus: [3], mode: mps, replicas: 2}")
    )
    gpus = agent.report().node.gpus
    ends = "the layout is not applied until they are gone"
    lines = (
        f"GPU 1 ({gpus[1].uuid}) is to be whole and is held by default/sliced: {ends}",
        f"GPU 3 ({gpus[3].uuid}) is to be mps and is held by default/part: {ends}",
    )
    agent.until(lambda report: all(any(line in one for one in report.problems) for line in lines), "both are named")
    until(
        lambda: all(any(line in one for one in lab.gpunode().get("problems", [])) for line in lines),
        "in the GpuNode too",
    )
    assert seen_by(pods) == before
    assert streams(agent) == listened
    lab.await_amounts(OFFERED)
    assert percents(lab) == 100


def test_instances_that_a_pod_holds_are_not_removed_and_the_pod_is_named(agent: Agent, pods: dict[str, Pod]) -> None:
    before, listened = seen_by(pods), streams(agent)
    reload(
        agent,
        CONFIG.replace(
            "{gpus: [6], mode: mig, profiles: [1g.10gb, 1g.10gb], replicas: 2}",
            "{gpus: [6], mode: mig, profiles: [7g.80gb], replicas: 2}",
        ),
    )
    agent.until(
        lambda report: any("in use by default/slice: nothing was changed" in one for one in report.problems),
        "default/slice is named",
    )
    assert seen_by(pods) == before
    assert streams(agent) == listened


def test_an_agent_killed_in_the_middle_of_a_change_finishes_it_under_pods_of_every_kind(
    lab: Lab, agent: Agent, pods: dict[str, Pod]
) -> None:
    before = seen_by(pods)
    index = next(index for index in (4, 5) if device(agent, "half") in uuids(agent, index))
    agent.sim(gpu=index, slow={"call": SLOW, "seconds": 600})
    reload(agent, CONFIG.replace("[3g.40gb, 3g.40gb]", "[3g.40gb, 2g.20gb]"))
    until(lambda: len(agent.sim(status=True)["status"]["gpus"][index]["mig"]) == 1, "the free half is gone")
    agent.kill()
    agent.sim(gpu=index, slow={"call": SLOW, "seconds": 0})
    agent.start()
    until(agent.serves, f"registered (log: {agent.log_path})")
    lab.await_amounts({**OFFERED, HALF: 2, QUARTER: 2})
    until(lambda: percents(lab) == 100, "the daemon was taken over")
    assert seen_by(pods) == before


def test_a_daemon_killed_under_a_pod_takes_out_its_own_gpu_alone(lab: Lab, agent: Agent, pods: dict[str, Pod]) -> None:
    before, listened = seen_by(pods), streams(agent)
    device = agent.report().node.gpus[2].uuid
    paths = device_paths(Path(agent.environment["MPS_ROOT"]), device)
    lock = paths.pipe / "control_lock"
    with lock.open("w") as file:
        with agent.paused():
            os.kill(int(paths.pid_file.read_text()), signal.SIGKILL)
            until(lambda: locked(file), "no daemon can start")
        lab.await_amounts({**OFFERED, LARGE: 0, SMALL: 0})
        assert percents(lab) == 100
        fcntl.flock(file, fcntl.LOCK_UN)
    lab.await_amounts(OFFERED)
    agent.until(lambda r: all(one.phase is Phase.READY for one in r.mps), "all daemons are ready")
    notes = [one.get("note") for one in lab.events() if one["reason"] == "MpsDaemonLost"]
    until(
        lambda: any("default/large, default/small have lost it" in one.get("note", "") for one in lab.events()),
        f"both are named ({notes})",
    )
    assert seen_by(pods) == before
    assert streams(agent) == listened


def test_a_drain_evicts_those_in_the_way_with_the_chart_s_rights_and_leaves_the_others(
    lab: Lab, agent: Agent, pods: dict[str, Pod]
) -> None:
    going = ("sliced", "half")
    staying = {name: pod for name, pod in pods.items() if name not in going}
    before, listened = seen_by(staying), streams(agent)
    reload(
        agent,
        CONFIG.replace(
            "{gpus: [1], mode: timeSlicing, replicas: 4}", "{gpus: [1], mode: whole, whenBusy: drain}"
        ).replace("[3g.40gb, 3g.40gb]}", "[7g.80gb], whenBusy: drain}"),
    )
    lab.await_amounts({GPU: 3, SHARED: 0, LARGE: 1, SMALL: 1, HALF: 0, ALL: 2, SLICE: 4}, timeout_s=300)
    until(lambda: not any(lab.get(f"/api/v1/namespaces/default/pods/{name}") for name in going), "both are gone")

    def untold() -> list[str]:
        notes = [one.get("note", "") for one in lab.events()]
        return [name for name in going if not any(f"Pod default/{name} is evicted" in note for note in notes)]

    until(lambda: not untold(), "an Event for each")
    assert seen_by(staying) == before
    assert streams(agent, ALL, GPU) == {name: at for name, at in listened.items() if name not in (GPU, SHARED, HALF)}


@pytest.fixture
def replicas(lab: Lab) -> Iterator[None]:
    """A ReplicaSet whose one pod holds a slice, and does not end before it is let go."""
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "steady"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "steady"}},
            "template": {
                "metadata": {"labels": {"app": "steady"}},
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 900,
                    "nodeSelector": {"kubernetes.io/hostname": lab.host.name},
                    "containers": [
                        {
                            "name": "main",
                            "image": TEST_IMAGE,
                            "imagePullPolicy": "Never",
                            "command": ["sh", "-c", f"trap '{LET_GO}' TERM; sleep 86400 & wait"],
                            "resources": {"limits": {SHARED: "1"}},
                        }
                    ],
                },
            },
        },
    }
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps(body))
    yield
    lab.cluster.kubectl("delete", "replicaset", "steady", "--wait")


def of_replica_set(lab: Lab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lab.get("/api/v1/namespaces/default/pods?labelSelector=app=steady")["items"]
    return found


@pytest.mark.usefixtures("replicas")
def test_who_comes_for_an_evicted_pod_does_not_get_the_gpu_that_is_drained(lab: Lab, agent: Agent) -> None:
    agent.until(lambda report: any(one.holder.pod.startswith("steady") for one in report.holders), "a slice is held")
    (first,) = of_replica_set(lab)
    reload(
        agent,
        CONFIG.replace("{gpus: [1], mode: timeSlicing, replicas: 4}", "{gpus: [1], mode: whole, whenBusy: drain}"),
    )

    def ending() -> bool:
        return any("deletionTimestamp" in one["metadata"] for one in of_replica_set(lab))

    until(ending, "it is evicted")
    # While it ends nothing of its GPU is on offer, under the old name or the new one.
    lab.await_amounts({SHARED: 0, GPU: 2})
    assert ending(), "it ended before anybody could look"
    lab.cluster.kubectl("exec", first["metadata"]["name"], "--", "touch", "/dev/shm/go")
    lab.await_amounts({SHARED: 0, GPU: 3})

    def others() -> list[dict[str, Any]]:
        return [one for one in of_replica_set(lab) if one["metadata"]["uid"] != first["metadata"]["uid"]]

    until(lambda: bool(others()), "another comes in its place")
    assert not any(one["status"].get("containerStatuses") for one in others()), "one of them was let in"
