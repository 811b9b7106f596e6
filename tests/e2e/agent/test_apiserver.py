"""What the agent tells the API server: labels of the node, and the GpuNode. Events are told of in test_health."""

from collections.abc import Iterator

import pytest

from tests.support.e2e.lab import EXAMPLES, FAST, GPU, Agent, Lab, until

pytestmark = pytest.mark.e2e

CONFIG = f"version: v1\nflags: {{migStrategy: mixed}}\nhealth: {FAST}\n"
MIG_1G = "nvidia.com/mig-1g.10gb"
OFFERED = {GPU: 2, "nvidia.com/mig-3g.40gb": 2, MIG_1G: 7}


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    with lab.agent(EXAMPLES / "fleets/mig.yaml", CONFIG) as agent:
        yield agent


@pytest.mark.usefixtures("agent")
def test_the_node_carries_the_labels_of_its_gpus(lab: Lab) -> None:
    wanted = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/cuda.driver.major": "570",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig-1g.10gb.count": "7",
        "nvidia.com/mig-3g.40gb.count": "2",
    }
    until(lambda: wanted.items() <= lab.labels().items(), f"labels {wanted}")


def test_a_strategy_s_labels_go_with_it(lab: Lab, agent: Agent) -> None:
    until(lambda: "nvidia.com/mig-1g.10gb.count" in lab.labels(), "labels of the mixed strategy")
    agent.reload(CONFIG.replace("mixed", "none"))
    until(lambda: not any("mig-" in name for name in lab.labels()), "no labels of MIG profiles")
    assert lab.labels()["nvidia.com/gpu.count"] == "4"
    agent.reload(CONFIG)
    until(lambda: "nvidia.com/mig-1g.10gb.count" in lab.labels(), "labels of the mixed strategy")
    lab.await_amounts(OFFERED)


def test_the_gpunode_says_what_the_agent_knows(lab: Lab, agent: Agent) -> None:
    def offered() -> dict[str, int]:
        return {one["name"]: one["devices"] for one in lab.gpunode().get("resources", [])}

    until(lambda: offered() == OFFERED, "the resources in the GpuNode")
    report, found = agent.report(), lab.gpunode()
    assert [one["uuid"] for one in found["devices"]] == [gpu.uuid for gpu in report.node.gpus]
    assert found["driver"]["version"] == report.node.driver_version
    links = {(one["a"], one["b"]): one for one in found["links"]}
    assert links[0, 1]["nvswitch"] == report.node.links[0][1].nvswitch > 0
    assert len(links) == 6
    mig = lab.device(3)["mig"]
    assert [one["uuid"] for one in mig["instances"]] == [one.uuid for one in report.node.gpus[3].mig_instances]
    assert {one["profile"] for one in mig["placements"]} >= {"1g.10gb", "3g.40gb", "7g.80gb"}


def test_a_holder_is_shown_while_its_pod_lives(lab: Lab, agent: Agent) -> None:
    lab.run("held", {MIG_1G: 2})

    def held() -> list[str]:
        return [one["device"] for one in lab.gpunode().get("holders", []) if one["pod"] == "held"]

    until(lambda: len(held()) == 2, "its two instances")
    assert set(held()) <= {one.uuid for one in agent.report().node.gpus[3].mig_instances}
    lab.delete_pods()
    until(lambda: not held(), "no holder any more")


def test_a_failing_gpu_is_shown_with_its_reason(lab: Lab, agent: Agent) -> None:
    agent.sim(gpu=0, xid=79)
    until(lambda: lab.device_state(0) == "Unhealthy", "Unhealthy in the GpuNode")
    assert any("79" in reason for reason in lab.device(0)["health"]["reasons"])
    agent.sim(gpu=0, reset=True)
    until(lambda: lab.device_state(0) == "Healthy", "Healthy in the GpuNode")
