"""Claims on Kubernetes before 1.36 as it comes: without counters, shares, taints and extended resources of classes.

The gates of those are off in all parts of a cluster of its own. Whole GPUs are given out all the same, and the agent
says what is not.
"""

import json
import os
from collections.abc import Iterator

import pytest

from agent.words import node as words
from hack.cluster.cluster import Cluster
from hack.cluster.programs import binaries
from tests.support.e2e import kubernetes
from tests.support.e2e.claimpods import claim_template, claims_agent, devices, run, slices
from tests.support.e2e.lab import FAST, GPU, Agent, Lab, fleet, holders, ready, until

pytestmark = pytest.mark.e2e

H100 = "NVIDIA H100 80GB HBM3"
CONFIG = f"""
version: v1
layout: [{{gpus: [0, 1], mode: dra}}, {{gpus: [2], mode: dra, shares: {{granularity: 10}}}}]
health: {FAST}
"""
ALL = CONFIG.replace("[2]", "[2, 3]")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    for program in ("kubernetes", "containerd"):
        binaries.build(program)
    with Cluster.up(f"gates-{os.getpid()}", kubernetes.claims(on=False)) as cluster:
        yield ready(cluster)


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Two GPUs that can be divided, one with shares, and one of the device plugin's."""
    folder = tmp_path_factory.mktemp("rights")
    with claims_agent(lab, folder, fleet(folder / "fleet.yaml", gpus=4, product=H100), CONFIG) as agent:
        lab.await_amounts({GPU: 1})
        until(lambda: sorted(devices(lab)) == ["gpu-0", "gpu-1"], "two whole GPUs are published")
        yield agent


@pytest.fixture(scope="module", autouse=True)
def whole(lab: Lab, agent: Agent) -> dict[str, str]:  # noqa: ARG001 - its DeviceClasses
    """What a pod says to have a whole GPU by claim."""
    return claim_template(lab, "whole", "gpu.nvidia.com")


def told(lab: Lab, pod: str) -> str:
    """All that Events say of a pod."""
    found = lab.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return "\n".join(one["note"] for one in found if one["regarding"].get("name") == pod)


def test_neither_counters_nor_shares_are_kept_and_the_agent_says_so(lab: Lab, agent: Agent) -> None:
    assert not any("sharedCounters" in each["spec"] for each in slices(lab))
    assert {"consumesCounters", "allowMultipleAllocations"}.isdisjoint(
        key for each in devices(lab).values() for key in each
    )
    agent.until(lambda found: {words.no_counters(), words.no_shares()} <= set(found.problems), "both are told")


def test_a_gpu_that_could_be_divided_is_given_out_whole_and_comes_back(
    lab: Lab, agent: Agent, whole: dict[str, str]
) -> None:
    first, second = (run(lab, name, whole) for name in ("first", "second"))
    assert sorted([*first.device_nodes, *second.device_nodes]) == ["/dev/nvidia0", "/dev/nvidia1"]
    third = run(lab, "third", whole, wait=False)
    until(lambda: "cannot allocate all claims" in json.dumps(third.status), "the GPU with shares is nobody's")
    agent.until(lambda found: set(holders(found).values()) == {"first", "second"}, "the holders are known")
    lab.delete_pods("first")
    third.await_ready()
    assert third.device_nodes == first_nodes(agent, "third")
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")


def first_nodes(agent: Agent, pod: str) -> list[str]:
    """The device files of the GPU that the agent says this pod holds."""
    report = agent.until(lambda found: pod in holders(found).values(), f"{pod} holds a GPU")
    (uuid,) = [device for device, holder in holders(report).items() if holder == pod]
    return [f"/dev/nvidia{gpu.minor}" for gpu in report.node.gpus if gpu.uuid == uuid]


def test_a_pod_on_a_gpu_that_is_lost_stays_and_the_next_waits_with_a_sentence(
    lab: Lab, agent: Agent, whole: dict[str, str]
) -> None:
    """No taint keeps the scheduler from it: the agent refuses the claim until the GPU is back."""
    there = run(lab, "there", whole)
    (node,) = there.device_nodes
    lost = int(node.removeprefix("/dev/nvidia"))
    agent.sim(gpu=lost, lost=True)
    agent.until(lambda found: words.field_dropped("taints") in found.problems, "the taint is dropped, and that is told")
    assert not any("taints" in each for each in devices(lab).values())
    assert there.status["phase"] == "Running"
    lab.delete_pods("there")
    free = run(lab, "free", whole, wait=False)
    other = run(lab, "other", whole, wait=False)
    until(lambda: f"gpu-{lost}" in told(lab, "free") + told(lab, "other"), "the claim is refused by the GPU's name")
    agent.sim(gpu=lost, reset=True)
    for pod in (free, other):
        pod.await_ready()
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")


def test_the_class_has_no_extended_resource_and_who_asks_for_one_waits(lab: Lab, agent: Agent) -> None:
    found = lab.get("/apis/resource.k8s.io/v1/deviceclasses/gpu.nvidia.com")
    assert "extendedResourceName" not in found["spec"]
    agent.take_up(ALL)
    lab.await_amounts({GPU: 0})
    pod = lab.run("old-way", {GPU: 1}, wait=False)
    until(lambda: f"Insufficient {GPU}" in json.dumps(pod.status), "the scheduler knows no such resource")
    lab.delete_pods()
    agent.take_up(CONFIG)
    lab.await_amounts({GPU: 1})
