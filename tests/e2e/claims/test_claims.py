"""GPUs by ResourceClaim: what the node publishes, what a claim brings into containers, and what comes back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.e2e.lab import EXAMPLES, FAST, GPU, Agent, Lab, Pod, holders, until

pytestmark = pytest.mark.e2e

DRIVER = "gpu.nvidia.com"
CONFIG = f"""
version: v1
layout: [{{gpus: [0, 1], mode: dra}}]
health: {FAST}
"""
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [
            {"cel": {"expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"}}
        ]
    },
}


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    lab.cluster.kubectl("apply", "-f", "-", input=json.dumps(CLASS))
    with lab.agent(EXAMPLES / "fleets/dgx1.yaml", CONFIG) as agent:
        lab.await_amounts({GPU: 6})
        until(lambda: len(devices(lab)) == 2, "two devices published")
        yield agent


def slices(lab: Lab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lab.get("/apis/resource.k8s.io/v1/resourceslices")["items"]
    return [each for each in found if each["spec"]["driver"] == DRIVER]


def devices(lab: Lab) -> dict[str, dict[str, Any]]:
    return {device["name"]: device for each in slices(lab) for device in each["spec"].get("devices", ())}


def claim_spec(count: int = 1, linked: bool = False) -> dict[str, Any]:
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}
    spec: dict[str, Any] = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    if linked:
        spec["devices"]["constraints"] = [{"requests": ["gpu"], "matchAttribute": "tessera.dev/linkGroup"}]
    return spec


def create(lab: Lab, body: dict[str, Any]) -> None:
    lab.cluster.kubectl("create", "-f", "-", input=json.dumps(body))


def run(lab: Lab, name: str, claim: dict[str, Any], *, wait: bool = True) -> Pod:
    """A pod with one claim: ``claim`` is what stands in ``spec.resourceClaims``."""
    body = lab.pod_body(name, {})
    body["spec"]["resourceClaims"] = [{"name": "gpus", **claim}]
    body["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
    create(lab, body)
    pod = Pod(lab, name)
    if wait:
        pod.await_ready()
    return pod


@pytest.fixture
def template(lab: Lab) -> Iterator[str]:
    name = "one-gpu"
    body = {"metadata": {"name": name}, "spec": {"spec": claim_spec()}}
    create(lab, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", **body})
    yield name
    lab.cluster.kubectl("delete", "resourceclaimtemplate", name)


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
    pod = run(lab, "claimed", {"resourceClaimTemplateName": template})
    report = agent.until(lambda found: len(holders(found)) == 1, "a holder")
    ((device, holder),) = holders(report).items()
    assert holder == "claimed"
    (held,) = [gpu for gpu in report.node.gpus if gpu.uuid == device]
    assert held.index in (0, 1)
    assert pod.device_nodes == [f"/dev/nvidia{held.minor}"]
    assert pod.environment == {"NVIDIA_VISIBLE_DEVICES": "void"}
    other = run(lab, "other", {"resourceClaimTemplateName": template})
    assert other.device_nodes == [f"/dev/nvidia{1 - held.minor}"]
    third = run(lab, "third", {"resourceClaimTemplateName": template}, wait=False)
    until(lambda: "cannot allocate all claims" in json.dumps(third.status), "the third finds no device")
    lab.delete_pods("claimed")
    third.await_ready()
    assert third.device_nodes == [f"/dev/nvidia{held.minor}"]
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")
    assert list(lab.host.cdi_dir.glob("*claim*")) == []


def test_two_gpus_come_linked_and_two_pods_share_one_claim(lab: Lab, agent: Agent) -> None:
    body = {"metadata": {"name": "pair"}, "spec": claim_spec(2, linked=True)}
    create(lab, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **body})
    left = run(lab, "left", {"resourceClaimName": "pair"})
    right = run(lab, "right", {"resourceClaimName": "pair"})
    assert left.device_nodes == right.device_nodes == ["/dev/nvidia0", "/dev/nvidia1"]
    lab.delete_pods("left")
    assert right.device_nodes == ["/dev/nvidia0", "/dev/nvidia1"]
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")
    lab.cluster.kubectl("delete", "resourceclaim", "pair")
