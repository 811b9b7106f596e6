"""A device that fails leaves allocatable and comes back after its repair; everything around it goes on.

One node for all claims: GPU 0 whole, GPU 1 shared by ten, GPUs 2 and 3 cut into MIG instances.
"""

from collections.abc import Iterator

import pytest

from agent.health.states import HealthState
from tests.support.e2e.lab import EXAMPLES, FAST, GPU, SHARED, Agent, Lab, held_by, until

pytestmark = pytest.mark.e2e

MIG_1G, MIG_3G = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
ALL_WELL = {GPU: 1, SHARED: 10, MIG_3G: 2, MIG_1G: 7}
CONFIG = f"""
version: v1
flags: {{migStrategy: mixed}}
sharing: {{timeSlicing: {{resources: [{{name: {GPU}, rename: {SHARED}, devices: [1], replicas: 10}}]}}}}
health: {FAST}
"""


@pytest.fixture(scope="module")
def agent(lab: Lab) -> Iterator[Agent]:
    with lab.agent(EXAMPLES / "fleets/mig.yaml", CONFIG) as agent:
        yield agent


@pytest.fixture(autouse=True)
def everything_is_well(lab: Lab, agent: Agent) -> Iterator[None]:
    lab.await_amounts(ALL_WELL)
    yield
    for gpu in range(4):
        if any(one.gpu_index == gpu and one.state != "Healthy" for one in agent.report().health):
            agent.sim(gpu=gpu, reset=True)


def xids_seen(agent: Agent, gpu: int, xid: int) -> float:
    uuid = agent.report().node.gpus[gpu].uuid
    return agent.metric(f'tessera_gpu_xid_errors_total{{UUID="{uuid}",xid="{xid}"}}')


def test_an_xid_takes_its_gpu_out_and_a_reset_brings_it_back(lab: Lab, agent: Agent) -> None:
    agent.sim(gpu=0, xid=79)
    lab.await_amounts({**ALL_WELL, GPU: 0})
    assert ALL_WELL.items() <= lab.amounts("capacity").items()
    agent.sim(gpu=0, reset=True)
    lab.await_amounts(ALL_WELL)
    history = [change.new for change in agent.report().history if change.gpu == agent.report().node.gpus[0].uuid]
    assert history[-3:] == [HealthState.UNHEALTHY, HealthState.PROBATION, HealthState.HEALTHY]


def test_all_shares_of_a_gpu_go_with_it(lab: Lab, agent: Agent) -> None:
    agent.sim(gpu=1, xid=79)
    lab.await_amounts({**ALL_WELL, SHARED: 0})
    agent.sim(gpu=1, reset=True)
    lab.await_amounts(ALL_WELL)


def test_a_fault_of_a_mig_instance_takes_that_instance_only(lab: Lab, agent: Agent) -> None:
    victim = agent.report().node.gpus[3].mig_instances[2]
    agent.sim(gpu=3, xid=142, gi=victim.gi_id)
    lab.await_amounts({**ALL_WELL, MIG_1G: 6})
    unwell = {one.uuid for one in agent.report().health if one.mig and one.state != "Healthy"}
    assert unwell == {victim.uuid}
    agent.sim(gpu=3, reset=True)
    lab.await_amounts(ALL_WELL)


def test_an_application_s_fault_changes_nothing(lab: Lab, agent: Agent) -> None:
    before, changes = xids_seen(agent, 0, 31), agent.report().history
    agent.sim(gpu=0, xid=31)
    until(lambda: xids_seen(agent, 0, 31) == before + 1, "the XID was heard")
    assert agent.health(0).state == "Healthy"
    assert agent.report().history == changes
    assert lab.amounts() == ALL_WELL


def test_each_change_is_told_as_event_metric_and_log_line(lab: Lab, agent: Agent) -> None:
    series = 'tessera_agent_health_transitions_total{from_state="Healthy",reason="Xid119",to_state="Unhealthy"}'
    assert agent.metric(series) == 0
    agent.sim(gpu=0, xid=119)
    lab.await_amounts({**ALL_WELL, GPU: 0})
    assert agent.metric(series) == 1
    uuid = agent.report().node.gpus[0].uuid
    assert agent.metric(f'tessera_gpu_device_health{{state="Unhealthy",uuid="{uuid}"}}') == 1
    lines = [line for line in agent.log().splitlines() if "msg=health" in line and "Xid119" in line]
    assert len(lines) == 1
    assert "level=warning" in lines[0]

    def told() -> bool:
        events = [one for one in lab.events() if one["reason"] == "Xid119" and uuid in one.get("note", "")]
        return any(one["type"] == "Warning" and "GSP firmware did not answer" in one["note"] for one in events)

    until(told, "an Event on the node")


def test_a_pod_on_another_gpu_goes_on_and_a_failed_gpu_keeps_its_holder(lab: Lab, agent: Agent) -> None:
    pods = {"whole": lab.run("whole", {GPU: 1}), "share": lab.run("share", {SHARED: 1})}
    ran = {name: pod.container for name, pod in pods.items()}
    agent.until(lambda found: all(held_by(found, name) for name in pods), "two holders")
    agent.sim(gpu=0, xid=79)
    lab.await_amounts({**ALL_WELL, GPU: 0})
    assert {name: pod.container for name, pod in pods.items()} == ran
    assert held_by(agent.report(), "whole") == [agent.report().node.gpus[0].uuid]
    more = lab.run("more", {SHARED: 1})
    assert more.visible == [agent.report().node.gpus[1].uuid]


def test_a_hung_gpu_delays_nobody_else(lab: Lab, agent: Agent) -> None:
    agent.sim(gpu=0, slow={"call": "*", "seconds": 600})
    pod = lab.run("elsewhere", {MIG_1G: 1})
    assert pod.visible[0] in {mig.uuid for mig in agent.report().node.gpus[3].mig_instances}
    lab.await_amounts({**ALL_WELL, GPU: 0})
    agent.sim(gpu=0, slow={"call": "*", "seconds": 0})
