"""GPUs by ResourceClaim: what the node publishes, what a claim brings into containers, and what comes back."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.config.settings import MpsSettings
from agent.mps.paths import device_paths
from agent.mps.runner import programs
from hack.cluster.errors import ClusterError
from tests.support.e2e.agentrights import as_agent
from tests.support.e2e.claimpods import claim_template, claims_agent, devices, ready, run, said, slices
from tests.support.e2e.hands import Hands
from tests.support.e2e.lab import EXAMPLES, FAST, GPU, Agent, Lab, Pod, holders, until

pytestmark = pytest.mark.e2e

EXAMPLE = "claims-one-gpu"
SHARED = "gpu-2-shares"
LIMITS = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=40", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=6144M"}
CONFIG = f"""
version: v1
layout: [{{gpus: [0, 1], mode: dra}}]
health: {FAST}
"""
ADMIN = "resource.kubernetes.io/admin-access"


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """With the rights of the chart's account, whose DeviceClasses are there."""
    folder = tmp_path_factory.mktemp("rights")
    with claims_agent(lab, folder, EXAMPLES / "fleets/dgx1.yaml", CONFIG) as agent:
        lab.await_amounts({GPU: 6})
        until(lambda: len(devices(lab)) == 2, "two devices published")
        yield agent


@pytest.fixture(scope="module", autouse=True)
def of_all_kinds(hands: Hands) -> Iterator[None]:
    """Hands were there to look at."""
    hands.seen.clear()
    yield
    assert hands.seen >= {"claim", GPU}, f"{hands.looks} looks saw {hands.seen}"


@pytest.fixture
def template(lab: Lab) -> Iterator[str]:
    """The example's template; its pod is there and runs."""
    lab.apply(EXAMPLES / "claims/one-gpu.yaml")
    Pod(lab, EXAMPLE).await_ready()
    yield "one-gpu"
    lab.cluster.kubectl("delete", "resourceclaimtemplate", "one-gpu")


def test_under_another_name_the_agent_serves_the_classes_of_that_name(lab: Lab, tmp_path: Path) -> None:
    """First, while no agent of the module runs."""
    name = "gpu.example.com"
    lab.cluster.kubectl("delete", "resourceslices", "--all")  # Another module's agent may have left some.
    with claims_agent(lab, tmp_path, EXAMPLES / "fleets/dgx1.yaml", CONFIG, driver=name) as agent:
        lab.await_amounts({GPU: 6})
        pod = run(lab, "other", claim_template(lab, "other", name, f"device.attributes['{name}'].type == 'gpu'"))
        assert pod.device_nodes == ["/dev/nvidia0"]
        held = agent.until(lambda found: len(found.holders) == 1, "a holder").holders
        assert [each.holder.resource for each in held] == [name]
        found = lab.get("/apis/resource.k8s.io/v1/resourceslices")["items"]
        assert {each["spec"]["driver"] for each in found} == {name}
        lab.delete_pods()
        agent.until(lambda found: not found.holders, "given back")
    lab.cluster.kubectl("delete", "resourceclaimtemplate", "other")
    lab.cluster.kubectl("delete", "resourceslices", "--all")


def test_the_node_publishes_the_gpus_of_its_layout_and_offers_the_others(lab: Lab, agent: Agent) -> None:
    assert lab.amounts() == {GPU: 6}
    found = devices(lab)
    assert sorted(found) == ["gpu-0", "gpu-1"]
    attributes = found["gpu-0"]["attributes"]
    gpu = agent.report().node.gpus[0]
    assert attributes["type"] == {"string": "gpu"}
    assert attributes["uuid"] == {"string": gpu.uuid}
    assert attributes["productName"] == {"string": "Tesla V100-SXM2-16GB"}
    assert attributes["driverVersion"] == {"version": "535.104.5"}
    assert attributes["tessera.dev/linkGroup"] == {"int": 0}
    (only,) = slices(lab)
    assert only["spec"]["pool"] == {"name": lab.host.name, "generation": 1, "resourceSliceCount": 1}


def test_a_claim_brings_one_gpu_into_the_container_and_gives_it_back(lab: Lab, agent: Agent, template: str) -> None:
    pod = Pod(lab, EXAMPLE)
    report = agent.until(lambda found: len(holders(found)) == 1, "a holder")
    ((device, holder),) = holders(report).items()
    assert holder == EXAMPLE
    (held,) = [gpu for gpu in report.node.gpus if gpu.uuid == device]
    assert held.index in (0, 1)
    assert pod.device_nodes == [f"/dev/nvidia{held.minor}"]
    assert pod.environment == {"NVIDIA_VISIBLE_DEVICES": "void"}
    until(lambda: ready(lab) == {f"gpu-{held.minor}": "True"}, "the claim says that its device is ready")
    assert said(lab)[f"gpu-{held.minor}"]["data"] == {"uuid": held.uuid, "minor": held.minor}
    other = run(lab, "other", {"resourceClaimTemplateName": template})
    assert other.device_nodes == [f"/dev/nvidia{1 - held.minor}"]
    third = run(lab, "third", {"resourceClaimTemplateName": template}, wait=False)
    until(lambda: "cannot allocate all claims" in json.dumps(third.status), "the third finds no device")
    lab.delete_pods(EXAMPLE)
    third.await_ready()
    assert third.device_nodes == [f"/dev/nvidia{held.minor}"]
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")
    assert list(lab.host.cdi_dir.glob("*claim*")) == []


def test_two_gpus_come_linked_and_two_pods_share_one_claim(lab: Lab, agent: Agent) -> None:
    lab.apply(EXAMPLES / "claims/linked-gpus.yaml")
    left, right = (Pod(lab, f"claims-{side}") for side in ("left", "right"))
    for pod in (left, right):
        pod.await_ready()
    assert left.device_nodes == right.device_nodes == ["/dev/nvidia0", "/dev/nvidia1"]
    lab.delete_pods("claims-left")
    assert right.device_nodes == ["/dev/nvidia0", "/dev/nvidia1"]
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")
    lab.cluster.kubectl("delete", "resourceclaim", "linked-gpus")


@pytest.mark.usefixtures("agent")
def test_an_agent_writes_the_slices_of_its_own_node_alone(lab: Lab) -> None:
    (own,) = slices(lab)
    agent = as_agent(lab.cluster, lab.host.name)
    foreign = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "foreign"},
        "spec": {**own["spec"], "nodeName": "node-2"},
    }
    with pytest.raises(ClusterError, match="may not write slices of node"):
        lab.cluster.kubectl("create", "-f", "-", agent, input=json.dumps(foreign))
    others = {**foreign, "metadata": {"name": "others"}, "spec": {**own["spec"], "driver": "gpu.another.example"}}
    with pytest.raises(ClusterError, match="writes slices of the driver"):
        lab.cluster.kubectl("create", "-f", "-", agent, input=json.dumps(others))
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps(others))
    with pytest.raises(ClusterError, match="writes slices of the driver"):
        lab.cluster.kubectl("delete", "resourceslice", "others", agent)
    lab.cluster.kubectl("delete", "resourceslice", "others")


def test_a_pod_that_asks_for_nvidia_gpu_is_served_by_claim_where_the_plugin_has_none(lab: Lab, agent: Agent) -> None:
    every = CONFIG.replace("[0, 1]", "{product: Tesla V100-SXM2-16GB}")
    agent.take_up(every)
    lab.await_amounts({GPU: 0})
    until(lambda: len(devices(lab)) == 8, "eight devices published")
    pod = lab.run("extended", {GPU: 2}, wait=False)
    pod.await_ready()
    assert len(pod.device_nodes) == 2
    report = agent.until(lambda found: len(holders(found)) == 2, "two holders")
    assert set(holders(report).values()) == {"extended"}
    lab.delete_pods()
    agent.take_up(CONFIG)
    lab.await_amounts({GPU: 6})


def test_a_lost_gpu_is_tainted_its_pod_evicted_and_no_other_comes_until_it_is_back(
    lab: Lab, agent: Agent, template: str
) -> None:
    pods = [Pod(lab, EXAMPLE), run(lab, "other", {"resourceClaimTemplateName": template})]
    lost = agent.report().node.gpus[0]
    held = holders(agent.until(lambda found: len(found.holders) == 2, "two holders"))
    agent.sim(gpu=0, lost=True)
    until(lambda: "taints" in devices(lab)["gpu-0"], "tainted")
    until(lambda: ready(lab).get("gpu-0") in (None, "False"), "its claim says so, or is gone with its pod")
    assert devices(lab)["gpu-0"]["taints"][0]["effect"] == "NoExecute"
    gone = held[lost.uuid]
    until(lambda: gone not in names(lab), "evicted by the taint")
    assert {pod.name for pod in pods} - {gone} <= names(lab)
    agent.sim(gpu=0, reset=True)
    until(lambda: "taints" not in devices(lab)["gpu-0"], "no taint is left")
    assert run(lab, "after", {"resourceClaimTemplateName": template}).device_nodes == [f"/dev/nvidia{lost.minor}"]


def test_plugin_and_claims_serve_side_by_side_on_one_node(lab: Lab, agent: Agent, template: str) -> None:
    plain = [lab.run(f"plain-{number}", {GPU: 3}) for number in range(2)]
    other = run(lab, "other", {"resourceClaimTemplateName": template})
    claimed = [Pod(lab, EXAMPLE), other]
    files = [node for pod in claimed for node in pod.device_nodes]
    assert sorted(files) == ["/dev/nvidia0", "/dev/nvidia1"]
    given = [uuid for pod in plain for uuid in pod.visible]
    assert sorted(given) == sorted(gpu.uuid for gpu in agent.report().node.gpus[2:])
    assert len(agent.until(lambda found: len(found.holders) == 8, "all eight are held").holders) == 8


def test_a_claim_stays_with_its_pod_when_agent_and_kubelet_are_killed(lab: Lab, agent: Agent, template: str) -> None:
    pod = Pod(lab, EXAMPLE)
    before = pod.container
    agent.kill()
    agent.start()
    until(agent.serves, "it serves again")
    report = agent.until(lambda found: len(holders(found)) == 1, "it knows the holder")
    assert set(holders(report).values()) == {EXAMPLE}
    lab.host.kill_kubelet()
    lab.host.restart_kubelet()
    until(lambda: len(devices(lab)) == 2, "slices are published again")
    assert pod.container == before
    assert len(run(lab, "second", {"resourceClaimTemplateName": template}).device_nodes) == 1
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")


def test_who_watches_with_admin_access_sees_all_gpus_beside_their_holders(
    lab: Lab, agent: Agent, template: str
) -> None:
    """In a namespace that may: what is watched is in nobody's hand, and is given to others meanwhile."""
    asked = {"allocationMode": "All", "adminAccess": True}
    with pytest.raises(ClusterError, match="admin access to devices requires"):
        claim_template(lab, "monitor", "gpu.nvidia.com", **asked)
    lab.cluster.kubectl("label", "namespace", "default", f"{ADMIN}=true")
    try:
        monitor = run(lab, "monitor", claim_template(lab, "monitor", "gpu.nvidia.com", **asked))
        assert monitor.device_nodes == ["/dev/nvidia0", "/dev/nvidia1"]
        other = run(lab, "other", {"resourceClaimTemplateName": template})
        holding = [Pod(lab, EXAMPLE), other]
        assert sorted(node for pod in holding for node in pod.device_nodes) == monitor.device_nodes
        report = agent.until(lambda found: len(found.holders) == 2, "two holders")
        assert set(holders(report).values()) == {EXAMPLE, "other"}
        lab.delete_pods("monitor")
        assert len(agent.report().holders) == 2
        assert [len(pod.device_nodes) for pod in holding] == [1, 1]
    finally:
        lab.cluster.kubectl("delete", "resourceclaimtemplate", "monitor", "--ignore-not-found")
        lab.cluster.kubectl("label", "namespace", "default", f"{ADMIN}-")


@pytest.fixture
def sharing(lab: Lab, agent: Agent) -> Iterator[Pod]:
    """The example's pod, for a share of GPU 2."""
    agent.take_up(CONFIG.replace("mode: dra}", "mode: dra}, {gpus: [2], mode: dra, shares: {granularity: 10}}"))
    lab.await_amounts({GPU: 5})
    until(lambda: "taints" not in devices(lab).get(SHARED, {"taints": ()}), "the daemon is ready")
    assert sorted(devices(lab)) == ["gpu-0", "gpu-1", SHARED]
    assert devices(lab)[SHARED]["allowMultipleAllocations"] is True
    lab.apply(EXAMPLES / "claims/gpu-share.yaml")
    yield Pod(lab, "claims-gpu-share")
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")
    lab.cluster.kubectl("delete", "resourceclaimtemplate", "gpu-share")
    agent.take_up(CONFIG)
    lab.await_amounts({GPU: 6})


def test_claims_have_percents_of_one_gpu_within_the_limits_of_its_daemon(lab: Lab, agent: Agent, sharing: Pod) -> None:
    """By consumable capacity: the scheduler adds them up, and the third finds no room until one is back."""
    first = sharing
    first.await_ready()
    template = {"resourceClaimTemplateName": "gpu-share"}
    second = run(lab, "second", template)
    for pod in (first, second):
        assert pod.device_nodes == ["/dev/nvidia2"]
        assert set(pod.sh("env").splitlines()) >= LIMITS
    third = run(lab, "third", template, wait=False)
    until(lambda: "cannot allocate all claims" in json.dumps(third.status), "120 percent are too many")
    report = agent.until(lambda found: len(found.holders) == 2, "two holders")
    assert sorted(holders(report).values()) == ["claims-gpu-share", "second"]
    until(lambda: ready(lab) == {SHARED: "True"}, "shares are ready")
    agent.kill()
    agent.start()
    until(agent.serves, "it serves again")
    lab.delete_pods("second")
    third.await_ready()
    assert set(third.sh("env").splitlines()) >= LIMITS


def test_the_containers_of_a_claim_share_its_gpu_under_mps(lab: Lab, agent: Agent) -> None:
    """As NVIDIA's configuration asks for it: a daemon with the limits, as long as the claim is held."""
    lab.apply(EXAMPLES / "claims/gpu-mps.yaml")
    pod = Pod(lab, "claims-gpu-mps")
    pod.await_ready()
    report = agent.until(lambda found: len(holders(found)) == 1, "a holder")
    (state,) = report.mps
    assert list(state.devices) == list(holders(report))
    until(lambda: list(ready(lab).values()) == ["True"], "ready, though its configuration stands in the allocation")
    for container in ("left", "right"):
        env = lab.cluster.kubectl("exec", pod.name, "-c", container, "--", "env").splitlines()
        assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in env
        lab.cluster.kubectl("exec", pod.name, "-c", container, "--", "test", "-S", "/tmp/nvidia-mps/control")
    pipe = device_paths(Path(agent.environment["MPS_ROOT"]), state.device).pipe
    client = [*programs(MpsSettings(), simulated=True).canary]
    given = subprocess.run(
        client, env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}, capture_output=True, text=True, check=True, timeout=60
    )
    assert (json.loads(given.stdout)["threads"], json.loads(given.stdout)["memoryMib"]) == (50.0, 8192)
    lab.delete_pods()
    agent.until(lambda found: not found.holders and not found.mps, "given back, and the daemon has ended")
    lab.cluster.kubectl("delete", "resourceclaimtemplate", "gpu-mps")


def names(lab: Lab) -> set[str]:
    return {pod["metadata"]["name"] for pod in lab.get("/api/v1/namespaces/default/pods")["items"]}
