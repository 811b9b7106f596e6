"""Pods get GPUs: what the node offers, who gets which, and what a container finds inside."""

from collections.abc import Callable, Iterator
from itertools import combinations

import pytest

from tests.support.e2e.lab import EXAMPLES, FAST, GPU, SHARED, Agent, Lab, held_by, holders

pytestmark = pytest.mark.e2e

Switch = Callable[[str], None]

WHOLE = f"""
version: v1
sharing: {{timeSlicing: {{resources: [{{name: {GPU}, rename: {SHARED}, devices: [7], replicas: 4}}]}}}}
health: {FAST}
"""


def strategy(name: str, more: str = "") -> str:
    return f"{WHOLE}flags: {{plugin: {{deviceListStrategy: [{name}]{more}}}}}\n"


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    with lab.agent(EXAMPLES / "fleets/dgx1.yaml", strategy("envvar")) as agent:
        lab.await_amounts({GPU: 7, SHARED: 4})
        yield agent


@pytest.fixture
def take_up(agent: Agent) -> Iterator[Switch]:
    """Switch the agent to another strategy for one test."""

    def switch(config: str) -> None:
        reloads = agent.metric('tessera_agent_config_reloads_total{result="ok"}')
        agent.reload(config)
        agent.until(lambda _: agent.metric('tessera_agent_config_reloads_total{result="ok"}') > reloads, "reloaded")

    yield switch
    switch(strategy("envvar"))


def test_the_node_offers_its_gpus(lab: Lab, agent: Agent) -> None:
    assert lab.amounts() == {GPU: 7, SHARED: 4}
    # Capacity still shows for five minutes what an earlier plugin had.
    assert {GPU: 7, SHARED: 4}.items() <= lab.amounts("capacity").items()
    assert [gpu.product for gpu in agent.report().node.gpus] == ["Tesla V100-SXM2-16GB"] * 8


def test_every_device_is_given_once(lab: Lab, agent: Agent) -> None:
    pods = [lab.run(f"one-{number}", {GPU: 1}, wait=False) for number in range(7)]
    for pod in pods:
        pod.await_ready()
    given = [uuid for pod in pods for uuid in pod.visible]
    assert sorted(given) == sorted(gpu.uuid for gpu in agent.report().node.gpus[:7])
    one_too_many = lab.run("one-too-many", {GPU: 1}, wait=False)
    agent.until(lambda report: len(holders(report)) == 7, "seven holders")
    assert one_too_many.status["phase"] == "Pending"


def test_four_gpus_come_linked_among_themselves(lab: Lab, agent: Agent) -> None:
    pod = lab.run("four", {GPU: 4})
    report = agent.report()
    index = {str(gpu.uuid): gpu.index for gpu in report.node.gpus}
    given = sorted(index[uuid] for uuid in pod.visible)
    assert len(given) == 4
    assert all(report.node.links[a][b].nvlinks >= 1 for a, b in combinations(given, 2)), given
    # A DGX-1 has sets of four without NVLink between some of them: the claim above can fail.
    assert any(report.node.links[a][b].nvlinks == 0 for a, b in combinations(range(7), 2))


def test_two_pods_share_one_gpu(lab: Lab, agent: Agent) -> None:
    pods = [lab.run(name, {SHARED: 1}) for name in ("left", "right")]
    shared = agent.report().node.gpus[7].uuid
    assert [pod.visible for pod in pods] == [[shared], [shared]]
    report = agent.until(lambda found: len(holders(found)) == 2, "two holders")
    replicas = held_by(report, "left") + held_by(report, "right")
    assert len(set(replicas)) == 2
    assert all(replica.startswith(f"{shared}::") for replica in replicas)


def test_envvar_names_the_gpus_and_device_specs_bring_their_files(lab: Lab, agent: Agent, take_up: Switch) -> None:
    plain = lab.run("plain", {GPU: 1})
    assert plain.device_nodes == []
    take_up(strategy("envvar", ", passDeviceSpecs: true, deviceIDStrategy: index"))
    pod = lab.run("specs", {GPU: 2})
    report = agent.until(lambda found: len(held_by(found, "specs")) == 2, "its two devices")
    held = [gpu for gpu in report.node.gpus if gpu.uuid in held_by(report, "specs")]
    assert sorted(pod.visible) == [str(gpu.index) for gpu in held]
    assert pod.device_nodes == [f"/dev/nvidia{gpu.minor}" for gpu in held]


@pytest.mark.parametrize("name", ["cdi-cri", "cdi-annotations"])
def test_cdi_brings_the_device_files(lab: Lab, agent: Agent, take_up: Switch, name: str) -> None:
    take_up(strategy(name))
    pod = lab.run("cdi", {GPU: 2})
    report = agent.until(lambda found: len(held_by(found, "cdi")) == 2, "its two devices")
    held = held_by(report, "cdi")
    assert pod.device_nodes == [f"/dev/nvidia{gpu.minor}" for gpu in report.node.gpus if gpu.uuid in held]
    # Nothing in the environment can ask the container toolkit for more.
    assert pod.environment == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_volume_mounts_name_the_gpus_by_path(lab: Lab, agent: Agent, take_up: Switch) -> None:
    take_up(strategy("volume-mounts"))
    pod = lab.run("mounts", {GPU: 2})
    report = agent.until(lambda found: len(held_by(found, "mounts")) == 2, "its two devices")
    folder = "/var/run/nvidia-container-devices"
    assert pod.environment == {"NVIDIA_VISIBLE_DEVICES": folder}
    assert pod.sh(f"ls {folder}").split() == sorted(held_by(report, "mounts"))
