"""What the example manifests of NVIDIA's driver ask, as claims of our own; MIG devices stand in test_mig.py.

Two A100 are given out by claim, two by the device plugin.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.e2e.claimpods import (
    claim_template,
    claims_agent,
    config,
    create,
    devices,
    inside,
    request,
    run,
    run_all,
    template,
)
from tests.support.e2e.lab import FAST, GPU, Agent, Lab, fleet, holders, until

pytestmark = pytest.mark.e2e

CONFIG = f"""
version: v1
layout: [{{gpus: [0, 1], mode: dra}}]
health: {FAST}
"""
PRODUCT = "NVIDIA A100-SXM4-40GB"
CLASS = "gpu.nvidia.com"
FILES = "find /dev -name 'nvidia[0-9]*' -type c | sort"
PIPES = "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("rights")
    hardware = fleet(folder / "fleet.yaml", gpus=4, product=PRODUCT)
    with claims_agent(lab, folder, hardware, CONFIG) as agent:
        lab.await_amounts({GPU: 2})
        until(lambda: {"gpu-0", "gpu-1"} <= devices(lab).keys(), "two GPUs are published")
        yield agent


@pytest.fixture(autouse=True)
def as_at_first(lab: Lab, agent: Agent) -> Iterator[None]:
    """Each test finds no claim, and leaves none."""
    yield
    lab.delete_pods()
    lab.cluster.kubectl("delete", "resourceclaimtemplates,resourceclaims", "--all")
    agent.until(lambda found: not found.holders and not found.mps, "given back")
    assert list(lab.host.cdi_dir.glob("*claim*")) == []


def test_two_pods_have_a_gpu_each_from_one_template(lab: Lab, agent: Agent) -> None:
    """gpu-test1."""
    asked = claim_template(lab, "single-gpu", CLASS)
    pods = [run(lab, f"pod{number}", asked) for number in range(2)]
    assert sorted(node for pod in pods for node in pod.device_nodes) == ["/dev/nvidia0", "/dev/nvidia1"]
    assert sorted(holders(agent.until(lambda found: len(found.holders) == 2, "two holders")).values()) == [
        "pod0",
        "pod1",
    ]


def test_two_containers_have_the_gpu_of_their_pods_claim(lab: Lab, agent: Agent) -> None:
    """gpu-test2."""
    pod = run_all(
        lab, "shared", {"gpu": claim_template(lab, "single-gpu", CLASS)}, dict.fromkeys(("ctr0", "ctr1"), ("gpu", ""))
    )
    first, second = (inside(pod, container, FILES) for container in ("ctr0", "ctr1"))
    assert first == second
    assert len(first) == 1
    report = agent.until(lambda found: len(found.holders) == 2, "both containers hold it")
    assert {held.holder.container for held in report.holders} == {"ctr0", "ctr1"}
    assert len(holders(report)) == 1


def test_two_pods_have_the_gpu_of_one_claim(lab: Lab, agent: Agent) -> None:
    """gpu-test3: it is given back with the last of them."""
    spec = {"devices": {"requests": [request("gpu", CLASS)]}}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "single-gpu"}}
    create(lab, {**made, "spec": spec})
    pods = [run(lab, f"pod{number}", {"resourceClaimName": "single-gpu"}) for number in range(2)]
    assert pods[0].device_nodes == pods[1].device_nodes
    lab.delete_pods("pod0")
    agent.until(lambda found: [held.holder.pod for held in found.holders] == ["pod1"], "the other has it still")
    assert len(pods[1].device_nodes) == 1


def test_four_containers_share_two_gpus_one_in_turns_and_one_under_mps(lab: Lab, agent: Agent) -> None:
    """gpu-test5 and gpu-test-mps: two requests of one claim, each with its config, and two containers on each."""
    limits = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
    turns = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}
    configs = [
        config("GpuConfig", "ts-gpu", sharing=turns),
        config("GpuConfig", "mps-gpu", sharing={"strategy": "MPS", "mpsConfig": limits}),
    ]
    asked = template(lab, "multiple-gpus", [request("ts-gpu", CLASS), request("mps-gpu", CLASS)], config=configs)
    containers = {f"{kind}-{number}": ("gpus", f"{kind}-gpu") for kind in ("ts", "mps") for number in range(2)}
    pod = run_all(lab, "pod", {"gpus": asked}, containers)
    found = {name: (inside(pod, name, FILES), inside(pod, name, "env")) for name in containers}
    assert found["ts-0"][0] == found["ts-1"][0] != found["mps-0"][0] == found["mps-1"][0]
    assert {name for name, (_, env) in found.items() if PIPES in env} == {"mps-0", "mps-1"}
    (daemon,) = agent.report().mps
    (minor,) = [gpu.minor for gpu in agent.report().node.gpus if gpu.uuid == daemon.device]
    assert found["mps-0"][0] == [f"/dev/nvidia{minor}"]


def test_each_container_has_a_claim_of_its_own_and_one_has_two_gpus(lab: Lab, agent: Agent) -> None:
    """gpu-test7, then gpu-test8."""
    one = claim_template(lab, "single-gpu", CLASS)
    pod = run_all(lab, "claims", {"left": one, "right": one}, {"ctr0": ("left", ""), "ctr1": ("right", "")})
    assert sorted(inside(pod, "ctr0", FILES) + inside(pod, "ctr1", FILES)) == ["/dev/nvidia0", "/dev/nvidia1"]
    lab.delete_pods()
    pair = run(lab, "pair", claim_template(lab, "two-gpus", CLASS, count=2))
    assert pair.device_nodes == ["/dev/nvidia0", "/dev/nvidia1"]
    assert len(agent.until(lambda found: len(found.holders) == 2, "two GPUs are held").holders) == 2


@pytest.mark.usefixtures("agent")
def test_a_gpu_is_selected_by_what_nvidias_driver_publishes(lab: Lab) -> None:
    """gpu-test6, without the attribute ``index``, which that driver has no more: a product that is not there waits."""
    chosen = (
        "device.attributes['gpu.nvidia.com'].productName.lowerAscii().matches('^.*a100.*$')",
        "device.attributes['gpu.nvidia.com'].architecture == 'Ampere'",
        "device.attributes['gpu.nvidia.com'].brand == 'Nvidia'",
        "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('1.0.0'))",
        "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('30Gi'))",
    )
    run(lab, "selected", claim_template(lab, "a100", CLASS, *chosen))
    other = run(lab, "other", claim_template(lab, "h100", CLASS, chosen[0].replace("a100", "h100")), wait=False)
    until(lambda: "cannot allocate all claims" in json.dumps(other.status), "no such product is there")


def test_what_is_not_served_is_told_in_a_sentence_and_nothing_is_held(lab: Lab, agent: Agent) -> None:
    """gpu-test6's long time slices, imex's channels, and a misspelt field."""
    asked: dict[str, tuple[dict[str, Any], str]] = {
        "long": (
            config("GpuConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
            "timeSlicingConfig.interval: found Long, expected Default",
        ),
        "imex": (
            config("ComputeDomainChannelConfig", domainID="7"),
            "ComputeDomains need NVIDIA's own driver",
        ),
        "odd": (config("GpuConfig", shraing={}), "shraing"),
    }
    for name, (given, _) in asked.items():
        run(lab, name, template(lab, name, [request("gpu", CLASS)], config=[given]), wait=False)
        if name == "imex":
            lab.delete_pods("long")  # two GPUs are there for three
    told = {name: why for name, (_, why) in asked.items()}

    def events(pod: str) -> str:
        found = lab.get("/apis/events.k8s.io/v1/events")["items"]
        notes = [each.get("note", "") for each in found if each["regarding"].get("name") == pod]
        return " ".join(note for note in notes if "repare" in note)

    for name in ("imex", "odd"):
        until(lambda name=name: told[name] in events(name), f"{name} is told: {events(name)}")  # type: ignore[misc]
    assert agent.report().holders == ()


def test_claims_of_the_driver_before_are_taken_over_with_their_pods_at_work(lab: Lab, agent: Agent) -> None:
    """As on a node that was NVIDIA's: the agent has no word of the claims, and their CDI specs have another name."""
    asked = claim_template(lab, "single-gpu", CLASS)
    pods = {name: run(lab, name, asked) for name in ("stays", "ends")}
    before = pods["stays"].container
    agent.kill()
    (agent.state_dir / "claims.json").unlink()
    for spec in lab.host.cdi_dir.glob("*claim*.json"):
        spec.rename(spec.with_suffix(".yaml"))
    agent.start()
    until(agent.serves, "it serves")
    assert len([*lab.host.cdi_dir.glob("*claim*.yaml")]) == 2, "a container that starts again needs them"
    lab.delete_pods("ends")
    until(lambda: len([*lab.host.cdi_dir.glob("*claim*")]) == 1, "one was given back")
    given = run(lab, "next", asked)
    assert sorted(given.device_nodes + pods["stays"].device_nodes) == ["/dev/nvidia0", "/dev/nvidia1"]
    assert pods["stays"].container == before
    lab.delete_pods()
    until(lambda: not [*lab.host.cdi_dir.glob("*claim*")], "the other too")
