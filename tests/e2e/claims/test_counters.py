"""MIG by claim needs an API server that takes counters in slices of their own. Kubernetes 1.34 wants them beside the
devices that consume them, whatever its gate says: there GPUs are given out whole, and the agent says why.
"""

from collections.abc import Iterator

import pytest

from agent.words import node as words
from tests.support.e2e import kubernetes
from tests.support.e2e.claimpods import claim_template, claims_agent, devices, run
from tests.support.e2e.lab import FAST, GPU, Agent, Lab, fleet, holders, until

pytestmark = pytest.mark.e2e

CONFIG = f"""
version: v1
layout: [{{gpus: [0], mode: dra}}]
health: {FAST}
"""
PARTS = 25
"""Places of an H100, for all profiles."""


@pytest.fixture
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("rights")
    hardware = fleet(folder / "fleet.yaml", gpus=2, product="NVIDIA H100 80GB HBM3")
    lab.cluster.kubectl("delete", "resourceslices", "--all")  # Another module's agent may have left some.
    with claims_agent(lab, folder, hardware, CONFIG) as agent:
        lab.await_amounts({GPU: 1})
        yield agent


def test_a_gpu_is_offered_in_parts_or_else_whole_with_a_sentence(lab: Lab, agent: Agent) -> None:
    parts, told = (PARTS, False) if kubernetes.COUNTERS else (0, True)
    until(lambda: len(devices(lab)) == 1 + parts, "what it can be given out as is published")
    agent.until(lambda found: (words.no_counters() in found.problems) is told, "what is not offered is told")
    pod = run(lab, "whole", claim_template(lab, "whole", "gpu.nvidia.com"))
    assert [node for node in pod.device_nodes if node.removeprefix("/dev/nvidia").isdigit()] == ["/dev/nvidia0"]
    agent.until(lambda found: set(holders(found).values()) == {"whole"}, "its holder is known")
    lab.delete_pods()
    agent.until(lambda found: not found.holders, "given back")
    lab.cluster.kubectl("delete", "resourceclaimtemplate", "whole")
