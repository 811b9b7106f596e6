"""A node whose GPUs are each in their own mode, on a real kubelet: pods of every kind side by side, what they see from
inside, and a layout that changes under them."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack import show
from tests.support.e2e.lab import EXAMPLES, GPU, SHARED, Agent, Lab, until

pytestmark = pytest.mark.e2e

FLEET = EXAMPLES / "fleets/h100-8.yaml"
CONFIG = (EXAMPLES / "configs/layout.yaml").read_text()
PERCENT, LARGEST = "tessera.dev/gpu-percent", "tessera.dev/gpu-percent-largest"
LARGE, SMALL = "nvidia.com/gpu-large", "nvidia.com/gpu-small"
HALF, SLICE = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb.shared"
OFFERED = {GPU: 2, SHARED: 4, LARGE: 1, SMALL: 1, HALF: 4, SLICE: 4}


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    with lab.agent(FLEET, CONFIG) as agent:
        yield agent


@pytest.fixture(autouse=True)
def as_at_first(lab: Lab, agent: Agent) -> None:
    if agent.config_path.read_text() != CONFIG:
        agent.take_up(CONFIG)
    lab.await_amounts(OFFERED)
    until(lambda: percents(lab) == 100, "the fractional GPU's daemon is ready")


def percents(lab: Lab) -> int:
    return int(lab.node["status"]["allocatable"].get(PERCENT, 0))


def environment(pod: Any) -> Mapping[str, str]:
    pairs = (line.partition("=") for line in pod.sh("env").splitlines())
    return {name: value for name, _, value in pairs if name.startswith(("NVIDIA", "CUDA"))}


def uuids(agent: Agent, index: int) -> set[str]:
    gpu = agent.report().node.gpus[index]
    return {mig.uuid for mig in gpu.mig_instances} or {gpu.uuid}


def test_pods_of_every_kind_run_side_by_side_each_on_the_gpus_of_its_kind(lab: Lab, agent: Agent) -> None:
    kinds = {"whole": GPU, "sliced": SHARED, "large": LARGE, "small": SMALL, "half": HALF, "slice": SLICE}
    pods = {name: lab.run(name, {resource: 1}) for name, resource in kinds.items()}
    pods["part"] = lab.run("part", {PERCENT: 30})
    seen = {name: environment(pod) for name, pod in pods.items()}
    on = {"whole": (0, 7), "sliced": (1,), "large": (2,), "small": (2,), "part": (3,), "half": (4, 5), "slice": (6,)}
    for name, indexes in on.items():
        (device,) = seen[name]["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert device in set().union(*(uuids(agent, index) for index in indexes)), name
    caps = {
        name: (env.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
        for name, env in seen.items()
        if "CUDA_MPS_PIPE_DIRECTORY" in env
    }
    assert caps == {
        "large": ("0=40960M", "50"),
        "small": ("0=20480M", "25"),
        "part": (f"0={memory_mib(agent, 3) * 30 // 100}M", "30"),
    }
    for name in caps:
        # The daemon of that very GPU, reached from inside.
        assert "control" in pods[name].sh(f"ls {seen[name]['CUDA_MPS_PIPE_DIRECTORY']}").split()


def memory_mib(agent: Agent, index: int) -> int:
    return agent.report().node.gpus[index].memory_mib


def test_the_node_says_the_mode_of_each_gpu_and_who_enforces_it(lab: Lab) -> None:
    def told() -> bool:
        return [one.get("mode") for one in lab.gpunode().get("devices", [])] == [
            "whole", "timeSlicing", "mps", "fractional", "mig", "mig", "mig", "whole",
        ]  # fmt: skip

    until(told, "the modes in the GpuNode")
    wanted = {
        GPU: "hardware",
        SHARED: "nobody",
        LARGE: "daemon, by client",
        SMALL: "daemon, by client",
        PERCENT: "daemon, by client",
        HALF: "hardware",
        SLICE: "nobody",
    }
    until(
        lambda: {one["name"]: one["enforcement"] for one in lab.gpunode()["resources"]} == wanted, "who enforces them"
    )


def test_fractions_share_one_gpu_up_to_all_of_it_and_what_is_left_is_on_the_node(lab: Lab, agent: Agent) -> None:
    def largest() -> str:
        return str(lab.node["metadata"]["labels"].get(LARGEST))

    until(lambda: largest() == "100", "an empty GPU")
    pods = [lab.run(f"part-{size}", {PERCENT: size}) for size in (30, 50)]
    assert {environment(pod)["NVIDIA_VISIBLE_DEVICES"] for pod in pods} == uuids(agent, 3)
    until(lambda: largest() == "20", "a fifth left")
    lab.run("part-20", {PERCENT: 20})
    until(lambda: largest() == "0", "nothing left")


def test_a_request_that_no_gpu_can_give_fails_with_the_sentence_why(lab: Lab) -> None:
    pod = lab.run("odd", {PERCENT: 15}, wait=False)
    until(lambda: pod.status.get("phase") == "Failed", "refused")
    assert "found a request for 15, expected a multiple of 10, the granularity of this node's layout" in str(pod.status)


def test_a_layout_changes_under_pods_that_run(lab: Lab, agent: Agent) -> None:
    whole, sliced = lab.run("whole", {GPU: 1}), lab.run("sliced", {SHARED: 1})
    ran = {pod.name: pod.container for pod in (whole, sliced)}
    sockets = agent.sockets()
    more = CONFIG.replace("replicas: 4", "replicas: 8").replace("[3g.40gb, 3g.40gb]", "[3g.40gb, 2g.20gb]")
    agent.reload(more)
    lab.await_amounts({**OFFERED, SHARED: 8, HALF: 2, "nvidia.com/mig-2g.20gb": 2})
    assert {pod.name: pod.container for pod in (whole, sliced)} == ran
    kept = {name: socket for name, socket in agent.sockets().items() if name in (GPU, SHARED, LARGE, PERCENT)}
    assert kept == {name: sockets[name] for name in kept}


def test_a_change_that_a_pod_is_in_the_way_of_is_refused_by_its_name_and_comes_when_it_is_gone(
    lab: Lab, agent: Agent
) -> None:
    pod = lab.run("guest", {SHARED: 1})
    until(lambda: any(one["pod"] == "guest" for one in lab.gpunode().get("holders", [])), "the holder is known")
    agent.reload(CONFIG.replace("{gpus: [1], mode: timeSlicing, replicas: 4}", "{gpus: [1], mode: whole}"))
    until(
        lambda: any("is held by default/guest" in one for one in lab.gpunode().get("problems", [])),
        "the pod is named in the GpuNode",
    )
    lab.await_amounts(OFFERED)
    assert pod.container
    lab.delete_pods()
    lab.await_amounts({**OFFERED, GPU: 3, SHARED: 0})
    until(lambda: not lab.gpunode().get("problems"), "the GpuNode has no problem any more")


@pytest.fixture
def layouts(lab: Lab) -> Iterator[Lab]:
    yield lab
    lab.cluster.kubectl("delete", "gpulayouts", "--all")
    lab.cluster.kubectl("label", "node", lab.host.name, "example.com/pool-")


@pytest.mark.usefixtures("agent")
def test_a_gpulayout_that_selects_the_node_stands_in_the_files_place(layouts: Lab) -> None:
    lab = layouts
    lab.apply(*sorted((EXAMPLES / "layouts").glob("*.yaml")))
    lab.await_amounts(OFFERED)
    lab.cluster.kubectl("label", "node", lab.host.name, "example.com/pool=notebooks")
    lab.await_amounts({**dict.fromkeys(OFFERED, 0), GPU: 6}, timeout_s=300)
    until(lambda: percents(lab) == 200, "two fractional GPUs")
    second = yaml.safe_load((EXAMPLES / "layouts/notebooks.yaml").read_text())
    second["metadata"]["name"] = "rival"
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps(second))
    until(
        lambda: any("notebooks, rival all select this node" in one["note"] for one in lab.events() if "note" in one),
        "both are named in an Event",
    )
    until(
        lambda: any(
            "notebooks, rival all select this node" in problem for problem in lab.gpunode().get("problems", [])
        ),
        "both are named in the GpuNode",
    )
    assert percents(lab) == 200
    lab.cluster.kubectl("delete", "gpulayouts", "notebooks", "rival")
    lab.await_amounts(OFFERED, timeout_s=300)


def command(lab: Lab, *words: str) -> tuple[int, str]:
    """Exit code and output of ``tessera layout``."""
    where = ["--kubeconfig", str(lab.cluster.kubeconfig)]
    done = subprocess.run(
        [show.script("tessera"), "layout", *words, *where], capture_output=True, text=True, check=False, timeout=240
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("agent")
def test_the_command_names_whom_a_layout_would_disturb_and_writes_it_once_nobody_is_in_the_way(
    layouts: Lab, tmp_path: Path
) -> None:
    lab = layouts
    changed = CONFIG.replace("{gpus: [1], mode: timeSlicing, replicas: 4}", "{gpus: [1], mode: whole}")
    spec = {"nodeSelector": {"example.com/pool": "desk"}, "layout": yaml.safe_load(changed)["layout"]}
    manifest = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuLayout", "metadata": {"name": "desk"}, "spec": spec}
    file = tmp_path / "desk.yaml"
    file.write_text(yaml.safe_dump(manifest))
    lab.cluster.kubectl("label", "node", lab.host.name, "example.com/pool=desk")
    lab.run("guest", {SHARED: 1})
    until(lambda: any(one["pod"] == "guest" for one in lab.gpunode().get("holders", [])), "the holder is known")
    for word in ("plan", "apply"):
        code, said = command(lab, word, "-f", str(file))
        assert code == 1, said
        assert "GPU 1: timeSlicing x 4 -> whole" in said
        assert "in the way: default/guest" in said
    assert not lab.get("/apis/tessera.dev/v1alpha1/gpulayouts/desk"), "nothing was written"
    lab.delete_pods()
    until(lambda: not lab.gpunode().get("holders"), "nobody holds anything")
    code, said = command(lab, "apply", "-f", str(file))
    assert code == 0, said
    lab.await_amounts({**OFFERED, GPU: 3, SHARED: 0})


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"gpus": [0], "mode": "timeSlicing"}, "timeSlicing needs 2 or more replicas"),
        ({"gpus": [0], "mode": "mps"}, "mps needs either replicas or clients"),
        ({"gpus": [0], "mode": "mps", "clients": [{"threads": 50}, {"threads": 20}]}, "clients of unequal size"),
        ({"gpus": [0], "mode": "fractional", "granularity": 30}, "granularity divides 100"),
        ({"gpus": [0], "mode": "whole", "replicas": 2}, "replicas stands with mode"),
        ({"gpus": [0], "mode": "mig"}, "mig needs profiles"),
        ({"gpus": [0], "mode": "hole"}, "Unsupported value"),
        ({"gpus": [0], "mode": "whole", "replcas": 2}, "unknown field"),
    ],
)
def test_the_api_server_refuses_a_layout_that_cannot_be(lab: Lab, entry: dict[str, Any], why: str) -> None:
    body = {"apiVersion": "tessera.dev/v1alpha1", "kind": "GpuLayout", "metadata": {"name": "wrong"}}
    text = json.dumps({**body, "spec": {"layout": [entry]}})
    with pytest.raises(Exception, match=why):
        lab.cluster.kubectl("create", "--validate=strict", "-f", "-", input=text)
