"""MIG instances by ResourceClaim on a real cluster: the scheduler chooses places, the agent cuts, all comes back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.e2e.claimpods import (
    claim_template,
    claims_agent,
    config,
    devices,
    inside,
    request,
    run,
    run_all,
    slices,
    template,
)
from tests.support.e2e.hands import Hands
from tests.support.e2e.lab import EXAMPLES, FAST, GPU, Agent, Lab, Pod, fleet, holders, until

pytestmark = pytest.mark.e2e

H100 = "NVIDIA H100 80GB HBM3"
GPUS = 2
"""Given out by claim; one more is the device plugin's."""
CONFIG = f"""
version: v1
layout: [{{gpus: [0, 1], mode: dra}}]
health: {FAST}
"""


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """With the rights of the chart's account, whose DeviceClasses are there."""
    folder = tmp_path_factory.mktemp("rights")
    hardware = fleet(folder / "fleet.yaml", gpus=GPUS + 1, product=H100)
    with claims_agent(lab, folder, hardware, CONFIG) as agent:
        lab.await_amounts({GPU: 1})
        until(lambda: len(devices(lab)) == GPUS * 26, "every place is published")
        yield agent


@pytest.fixture(scope="module", autouse=True)
def of_all_kinds(hands: Hands) -> Iterator[None]:
    """Hands were there to look at."""
    hands.seen.clear()
    yield
    assert hands.seen >= {"claim", "mig"}, f"{hands.looks} looks saw {hands.seen}"


@pytest.fixture(scope="module", autouse=True)
def templates(lab: Lab) -> Iterator[None]:
    """One for each size: a pod names it and gets an instance of its own."""
    for name in ("1g.10gb", "3g.40gb", "7g.80gb"):
        claim_template(lab, f"mig-{name}", "mig.nvidia.com", f"device.attributes['gpu.nvidia.com'].profile == '{name}'")
    claim_template(lab, "whole", "gpu.nvidia.com")
    yield
    lab.cluster.kubectl("delete", "resourceclaimtemplate", "--all")


def instances(agent: Agent) -> list[tuple[int, str, int]]:
    """The hardware's: GPU, profile, first memory slice."""
    found = agent.sim(status=True)["status"]["gpus"]
    return sorted((gpu["index"], each["profile"], each["start"]) for gpu in found for each in gpu["mig"] or ())


def mig(lab: Lab, name: str, profile: str, *, wait: bool = True) -> Pod:
    return run(lab, name, {"resourceClaimTemplateName": f"mig-{profile}"}, wait=wait)


def all_back(lab: Lab, agent: Agent) -> None:
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")
    until(lambda: instances(agent) == [], "no instance is left")
    assert list(lab.host.cdi_dir.glob("*claim*")) == []


def test_counters_and_devices_stand_in_slices_of_their_own(lab: Lab, agent: Agent) -> None:
    found = sorted(slices(lab), key=lambda each: each["metadata"]["name"])
    assert [(len(each["spec"].get("sharedCounters", ())), len(each["spec"].get("devices", ()))) for each in found] == [
        (GPUS, 0),
        *[(0, 26)] * GPUS,
    ]
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in found} == {GPUS + 1}
    (part,) = [each for name, each in devices(lab).items() if name == "gpu-1-mig-3g40gb-9-4"]
    assert part["attributes"]["parentUUID"] == {"string": agent.report().node.gpus[1].uuid}
    assert instances(agent) == []


def test_two_parts_of_one_gpu_come_into_the_containers_that_name_them(lab: Lab, agent: Agent) -> None:
    written = [each["metadata"]["resourceVersion"] for each in slices(lab)]
    lab.apply(EXAMPLES / "claims/mig-parts.yaml")
    pod = Pod(lab, "claims-mig-parts")
    pod.await_ready()
    cut = instances(agent)
    assert len({gpu for gpu, _, _ in cut}) == 1, "matchAttribute keeps them on one card"
    assert sorted(profile for _, profile, _ in cut) == ["1g.10gb", "3g.40gb"]
    nodes = {name: files(lab, pod.name, name) for name in ("train", "serve")}
    (gpu,) = {gpu for gpu, _, _ in cut}
    for found in nodes.values():
        assert f"/dev/nvidia{agent.report().node.gpus[gpu].minor}" in found
    assert nodes["train"] != nodes["serve"], "each has the capabilities of its own instance"
    agent.until(lambda report: set(holders(report).values()) == {"claims-mig-parts"}, "its holder is known")
    all_back(lab, agent)
    assert [each["metadata"]["resourceVersion"] for each in slices(lab)] == written, "slices were never written"
    lab.cluster.kubectl("delete", "resourceclaimtemplate", "mig-parts")


def files(lab: Lab, pod: str, container: str) -> set[str]:
    words = ("exec", pod, "-c", container, "--", "sh", "-c", "find /dev -path '*nvidia*' -type c")
    return set(lab.cluster.kubectl(*words).split())


def test_the_containers_of_a_claim_share_its_part_under_mps(lab: Lab, agent: Agent) -> None:
    """As NVIDIA's configuration asks for it: the daemon is the instance's own, and ends with it."""
    limits = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "4Gi"}
    sharing = config("MigDeviceConfig", "gpu", sharing={"strategy": "MPS", "mpsConfig": limits})
    part = request("gpu", "mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'")
    claims = {"part": template(lab, "mig-mps", [part], config=[sharing])}
    pod = run_all(lab, "mps", claims, dict.fromkeys(("left", "right"), ("part", "")))
    ((gpu, profile, _),) = instances(agent)
    report = agent.until(lambda found: len(found.holders) == 2, "both containers hold it")
    (instance,) = report.node.gpus[gpu].mig_instances
    (daemon,) = agent.report().mps
    assert (profile, daemon.device) == ("3g.40gb", instance.uuid)
    for container in ("left", "right"):
        assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in inside(pod, container, "env")
        assert "control" in inside(pod, container, "ls /tmp/nvidia-mps")
    mig(lab, "beside", "3g.40gb")
    assert [state.device for state in agent.report().mps] == [instance.uuid], "another claim's part has no daemon"
    lab.delete_pods("mps")
    agent.until(lambda found: len(found.holders) == 1 and not found.mps, "the daemon has ended")
    all_back(lab, agent)


def test_two_pods_have_four_parts_of_a_card_each(lab: Lab, agent: Agent) -> None:
    """What NVIDIA's example of MIG devices asks: four sizes of one card by matchAttribute, for each pod."""
    sizes = {"a": "1g.10gb", "b": "1g.10gb", "c": "2g.20gb", "d": "3g.40gb"}
    requests = [
        request(name, "mig.nvidia.com", f"device.attributes['gpu.nvidia.com'].profile == '{profile}'")
        for name, profile in sizes.items()
    ]
    together = [{"requests": [], "matchAttribute": "gpu.nvidia.com/parentUUID"}]
    claims = {"parts": template(lab, "mig-four", requests, constraints=together)}
    pods = [run_all(lab, f"four-{number}", claims, {name: ("parts", name) for name in sizes}) for number in range(2)]
    cut = instances(agent)
    assert [sorted(profile for gpu, profile, _ in cut if gpu == card) for card in range(GPUS)] == [
        sorted(sizes.values())
    ] * GPUS
    found = [files(lab, pod.name, name) for pod in pods for name in sizes]
    assert len(set(map(frozenset, found))) == 2 * len(sizes), "each has the capabilities of its own instance"
    all_back(lab, agent)


def test_a_part_is_asked_for_as_an_extended_resource_of_a_class(lab: Lab, agent: Agent) -> None:
    """In the old way, under the name that the device plugin would have: the agent's plugin has no such resource."""
    resource = "nvidia.com/mig-1g.10gb"
    expression = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?profile.orValue('') == "
    spec = {"selectors": [{"cel": {"expression": f"{expression}'1g.10gb'"}}], "extendedResourceName": resource}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "mig-small"}}
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps({**made, "spec": spec}))
    try:
        lab.run("extended", {resource: 2})
        assert [profile for _, profile, _ in instances(agent)] == ["1g.10gb", "1g.10gb"]
        all_back(lab, agent)
    finally:
        lab.cluster.kubectl("delete", "deviceclass", "mig-small")


def test_every_place_is_filled_and_none_twice_and_the_whole_gpu_waits_for_its_parts(lab: Lab, agent: Agent) -> None:
    pods = [mig(lab, f"part-{number}", "1g.10gb", wait=False) for number in range(7 * GPUS)]
    for pod in pods:
        pod.await_ready()
    assert len(set(instances(agent))) == 7 * GPUS
    whole = run(lab, "whole", {"resourceClaimTemplateName": "whole"}, wait=False)
    over = mig(lab, "over", "1g.10gb", wait=False)
    until(
        lambda: all("cannot allocate all claims" in json.dumps(pod.status) for pod in (whole, over)),
        "neither finds a device",
    )
    first = {index for index in range(7 * GPUS) if _gpu_of(lab, f"part-{index}") == 0}
    lab.delete_pods("over", *(f"part-{index}" for index in sorted(first)))
    whole.await_ready()
    assert {gpu for gpu, _, _ in instances(agent)} == {1}
    assert [node for node in whole.device_nodes if node.removeprefix("/dev/nvidia").isdigit()] == ["/dev/nvidia0"]
    all_back(lab, agent)


def _gpu_of(lab: Lab, pod: str) -> int:
    """The GPU whose part the pod's claim was given."""
    (entry,) = Pod(lab, pod).status["resourceClaimStatuses"]
    claim = lab.get(f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{entry['resourceClaimName']}")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return int(str(result["device"]).split("-")[1])


def test_parts_stay_with_their_pods_when_agent_and_kubelet_are_killed(lab: Lab, agent: Agent) -> None:
    pod = mig(lab, "stays", "3g.40gb")
    before, cut = pod.container, instances(agent)
    agent.kill()
    agent.start()
    until(agent.answers, "it serves again")
    lab.host.kill_kubelet()
    lab.host.restart_kubelet()
    until(lambda: len(devices(lab)) == GPUS * 26, "slices are published again")
    assert (pod.container, instances(agent)) == (before, cut)
    mig(lab, "second", "3g.40gb")
    assert set(cut) < set(instances(agent))
    all_back(lab, agent)


def test_an_agent_killed_while_it_cuts_leaves_nothing_and_the_pod_runs_in_the_end(lab: Lab, agent: Agent) -> None:
    call = "nvmlGpuInstanceCreateComputeInstanceWithPlacement"
    agent.sim(gpu=0, slow={"call": call, "seconds": 5})
    pod = mig(lab, "cut", "7g.80gb", wait=False)
    until(lambda: '"started"' in _ledger(agent) and len(instances(agent)) == 1, "half an instance is there")
    agent.kill()
    agent.sim(gpu=0, slow={"call": call, "seconds": 0})
    agent.start()
    pod.await_ready()
    assert [profile for _, profile, _ in instances(agent)] == ["7g.80gb"]
    all_back(lab, agent)


def _ledger(agent: Agent) -> str:
    path = agent.state_dir / "claims.json"
    return path.read_text() if path.exists() else ""


def test_an_instance_that_no_claim_has_goes_at_the_next_start(lab: Lab, agent: Agent) -> None:
    mig(lab, "orphan", "3g.40gb")
    agent.kill()
    (agent.state_dir / "claims.json").unlink()
    agent.start()
    until(agent.answers, "it serves again")
    assert len(instances(agent)) == 1, "the kubelet says that a container has it"
    all_back(lab, agent)


def test_a_fault_of_the_gpu_taints_all_its_parts_until_it_is_over(lab: Lab, agent: Agent) -> None:
    agent.sim(gpu=0, xid=48)
    tainted: dict[str, Any] = {}

    def all_of_it() -> bool:
        tainted.clear()
        tainted.update({name: each for name, each in devices(lab).items() if "taints" in each})
        return len(tainted) == 26

    until(all_of_it, "the GPU and its parts are tainted")
    assert all(name.startswith("gpu-0") for name in tainted)
    mig(lab, "elsewhere", "1g.10gb")
    assert {gpu for gpu, _, _ in instances(agent)} == {1}
    agent.sim(gpu=0, reset=True)
    until(lambda: not any("taints" in each for each in devices(lab).values()), "no taint is left")
    all_back(lab, agent)
