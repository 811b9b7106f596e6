"""The agent alone repairs GPUs of a real kubelet: only the faulty one leaves, nobody who holds it is disturbed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.e2e.lab import FAST, GPU, Agent, Lab, fleet, held_by, least, until

pytestmark = pytest.mark.e2e

WHOLE, CUT = 4, 4
"""The number of whole GPUs, and the index of the one that is cut."""
MIG = "nvidia.com/mig-3g.40gb"
ALL_WELL = {GPU: WHOLE, MIG: 2}
CONFIG = f"""
version: v1
flags: {{migStrategy: mixed}}
health: {FAST}
remediation: {{reset: when-free}}
layout:
- {{gpus: [{CUT}], mode: mig, profiles: [3g.40gb, 3g.40gb], whenBusy: wait}}
"""
FAULT, LOST = 119, 79
"""The driver asks for a reset after the first; the GPU is off the bus after the second."""


@pytest.fixture
def agent(lab: Lab, tmp_path: Path) -> Iterator[Agent]:
    """One for each test: its breaker lets two GPUs be reset in ten minutes."""
    node = fleet(tmp_path / "fleet.yaml", gpus=WHOLE + 1, product="NVIDIA H100 80GB HBM3")
    with lab.agent(node, CONFIG, api=False) as agent:
        lab.await_amounts(ALL_WELL)
        yield agent


def repairs(agent: Agent) -> dict[str, str]:
    return {str(one.gpu): one.state.value for one in agent.report().repairs}


def index_of(agent: Agent, uuid: str) -> int:
    return next(gpu.index for gpu in agent.report().node.gpus if gpu.uuid == uuid)


def test_a_held_gpu_is_reset_when_its_pod_has_gone_and_no_other_gpu_leaves(lab: Lab, agent: Agent) -> None:
    pod = lab.run("train", {GPU: 1})
    agent.until(lambda found: len(held_by(found, "train")) == 1, "its holder")
    (uuid,) = pod.visible
    ran, index = pod.container, index_of(agent, uuid)
    with least(lab) as seen:
        agent.sim(gpu=index, xid=FAULT)
        lab.await_amounts({**ALL_WELL, GPU: WHOLE - 1})
        agent.until(lambda found: any("default/train" in one.note for one in found.repairs), "the repair waits for it")
        assert (pod.container, sum(agent.resets())) == (ran, 0)
        lab.delete_pods("train")
        agent.until(lambda found: not found.repairs, "the repair is over")
        lab.await_amounts(ALL_WELL)
    assert [agent.resets()[each] for each in range(WHOLE + 1)] == [int(each == index) for each in range(WHOLE + 1)]
    assert {name: seen[name] for name in ALL_WELL} == {GPU: WHOLE - 1, MIG: 2}
    assert uuid in lab.run("all", {GPU: WHOLE}).visible


def test_a_cut_gpu_is_cut_anew_and_its_instances_are_given_again(lab: Lab, agent: Agent) -> None:
    before = {mig.uuid for mig in agent.report().node.gpus[CUT].mig_instances}
    with least(lab) as seen:
        agent.sim(gpu=CUT, xid=FAULT)
        lab.await_amounts({**ALL_WELL, MIG: 0})
        agent.until(lambda found: not found.repairs, "the repair is over")
        lab.await_amounts(ALL_WELL)
    assert seen[GPU] == WHOLE, "a whole GPU has left"
    assert agent.resets()[CUT] == 1
    assert {mig.uuid for mig in agent.report().node.gpus[CUT].mig_instances} == before
    assert set(lab.run("parts", {MIG: 2}).visible) == before


def test_an_agent_that_is_killed_while_a_reset_runs_brings_the_gpu_back_at_its_next_start(
    lab: Lab, agent: Agent
) -> None:
    agent.sim(gpu=0, slow={"call": "reset", "seconds": 20})
    agent.sim(gpu=0, xid=FAULT)
    agent.until(lambda found: any(one.state.value == "Resetting" for one in found.repairs), "the reset runs")
    killed(agent)
    assert repairs(agent) or agent.resets()[0], "the next agent knows nothing of it"
    agent.sim(gpu=0, slow={"call": "reset", "seconds": 0})
    agent.until(lambda found: not found.repairs, "the repair is over")
    lab.await_amounts(ALL_WELL)
    assert agent.resets()[1:] == [0] * WHOLE


def test_an_agent_that_is_killed_in_a_drain_and_in_a_probation_goes_on_from_there(lab: Lab, agent: Agent) -> None:
    agent.take_up(CONFIG.replace(FAST, "{probationSeconds: 8, cleanProbes: 1}"))
    pod = lab.run("train", {GPU: 1})
    agent.until(lambda found: len(held_by(found, "train")) == 1, "its holder")
    (held,) = pod.visible
    index = index_of(agent, held)
    agent.sim(gpu=index, xid=FAULT)
    agent.until(lambda _: repairs(agent) == {held: "Draining"}, "it drains")
    killed(agent)
    agent.until(lambda _: repairs(agent) == {held: "Draining"}, "the next agent knows of it")
    assert sum(agent.resets()) == 0
    lab.delete_pods("train")
    agent.until(lambda _: f"gpu={held} state=Probation" in agent.log(), "it was reset and verified")
    killed(agent)
    agent.until(lambda found: not found.repairs, "the repair is over")
    assert agent.resets()[index] == 1, "its probation is no reason to reset it again"
    lab.await_amounts(ALL_WELL)


def test_an_agent_that_is_killed_with_one_gpu_draining_and_another_lost_resets_the_one_alone(
    lab: Lab, agent: Agent
) -> None:
    pod = lab.run("train", {GPU: 1})
    agent.until(lambda found: len(held_by(found, "train")) == 1, "its holder")
    (held,) = pod.visible
    index = index_of(agent, held)
    lost = (index + 1) % WHOLE
    agent.sim(gpu=index, xid=FAULT)
    agent.sim(gpu=lost, xid=LOST)
    both = {held: "Draining", str(agent.report().node.gpus[lost].uuid): "RebootWanted"}
    agent.until(lambda _: repairs(agent) == both, "one drains, for the other a reboot is wanted")
    killed(agent)
    agent.until(lambda _: repairs(agent) == both, "the next agent knows of both")
    lab.delete_pods("train")
    agent.until(lambda _: held not in repairs(agent), "the repair is over")
    lab.await_amounts({**ALL_WELL, GPU: WHOLE - 1})
    assert agent.resets() == [int(each == index) for each in range(WHOLE + 1)]


def killed(agent: Agent) -> None:
    """The agent is killed, and starts anew."""
    agent.kill()
    agent.start()
    until(agent.serves, "serving again")


def test_the_program_of_verify_ends_with_an_agent_that_is_killed_and_the_next_one_runs_it_anew(
    lab: Lab, agent: Agent, tmp_path: Path
) -> None:
    program, begun, well = (tmp_path / name for name in ("verify", "begun", "well"))
    program.write_text(f"#!/bin/sh\ntest -e {well} && exit 0\ntouch {begun}\nsleep 600\n")
    program.chmod(0o755)
    agent.take_up(CONFIG.replace("when-free", f"when-free, verify: {{command: [{program}], timeout: 10m}}"))
    agent.sim(gpu=0, xid=FAULT)
    until(begun.exists, "the program runs")
    agent.kill()
    until(lambda: not runs(str(program)), "the program has ended with its agent")
    well.touch()
    agent.start()
    agent.until(lambda found: agent.resets()[0] > 0 and not found.repairs, "the repair is over")
    lab.await_amounts(ALL_WELL)


def runs(word: str) -> bool:
    """Whether a process has the word in its command line."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if word in process.cmdline():
                return True
    return False


def test_a_lost_gpu_is_never_reset_and_a_reboot_is_said_to_be_wanted(lab: Lab, agent: Agent) -> None:
    uuid = agent.report().node.gpus[2].uuid
    agent.sim(gpu=2, xid=LOST)
    agent.until(lambda found: [one.state.value for one in found.repairs] == ["RebootWanted"], "a reboot is wanted")
    lab.await_amounts({**ALL_WELL, GPU: WHOLE - 1})
    assert agent.resets() == [0] * (WHOLE + 1)
    assert repairs(agent) == {uuid: "RebootWanted"}
    assert agent.metric('tessera_gpu_repairs_total{step="reboot",result="wanted"}') == 1
    agent.sim(gpu=2, reset=True)
    lab.await_amounts(ALL_WELL)


def test_a_failed_board_that_is_taken_out_and_put_back_has_no_repair_and_is_given(lab: Lab, agent: Agent) -> None:
    failed = agent.report().node.gpus[1].uuid
    agent.sim(gpu=1, xid=LOST)
    agent.until(lambda found: [one.state.value for one in found.repairs] == ["RebootWanted"], "a reboot is wanted")
    agent.sim(gpu=1, remove=True)
    agent.until(lambda found: failed not in {gpu.uuid for gpu in found.node.gpus}, "the board is gone")
    agent.sim(gpu=1, add=True)
    lab.await_amounts(ALL_WELL)
    agent.until(lambda found: not found.repairs, "its repair is over")
    assert "state=Resetting" not in agent.log()
    assert failed in lab.run("all", {GPU: WHOLE}).visible


def test_without_the_section_a_fault_waits_for_a_person(lab: Lab, agent: Agent) -> None:
    agent.take_up(CONFIG.replace("remediation: {reset: when-free}\n", ""))
    agent.sim(gpu=1, xid=FAULT)
    lab.await_amounts({**ALL_WELL, GPU: WHOLE - 1})
    lab.run("others", {GPU: WHOLE - 1})
    assert repairs(agent) == {}
    agent.sim(gpu=1, reset=True)
    lab.await_amounts(ALL_WELL)
    assert agent.resets() == [0, 1, 0, 0, 0], "the person's alone"
