"""What an agent that starts anew knows: its checkpoint first, then whatever happened while nobody watched."""

import asyncio
import json
import socket

import pytest

from agent.health.states import HealthState
from agent.persistence import statefiles
from tests.support.agent.node import EAGER, GPU, Lab, fleet

MIXED = EAGER + "flags: {migStrategy: mixed}\n"
NO_TRACE = EAGER.replace("health: {", "health: {xids: {13: {class: reset}}, ")
"""XID 13 as a fault of which the driver keeps nothing: only the agent remembers."""


async def saved(lab: Lab, text: str) -> None:
    """Once the checkpoint says that."""
    path = lab.state_dir / statefiles.CHECKPOINT
    await lab.until(lambda: path.exists() and text in path.read_text(), f"{text} was not saved")


async def test_the_checkpoint_is_served_before_nvml_has_answered(lab: Lab) -> None:
    await lab.serve(fleet(3))
    lab.sim(gpu=1, xid=79)
    await saved(lab, "fallen off the bus")
    await lab.stop()
    lab.sim(slow={"call": "*", "seconds": 60})
    await lab.start()
    await lab.until(lambda: lab.kubelet.registrations == [GPU, GPU])
    endpoint = await lab.listed(discoveries=0)
    assert list(endpoint.devices) == [lab.uuid(i) for i in range(3)]
    assert endpoint.healthy == {lab.uuid(0), lab.uuid(2)}
    assert not lab.report().driver_up
    assert lab.agent._unready() is None
    await lab.kubelet.allocate(GPU, 2)


async def test_a_fault_and_its_history_outlive_the_agent(lab: Lab) -> None:
    await lab.serve(fleet(2), NO_TRACE)
    lab.sim(gpu=0, xid=13)
    await saved(lab, '"Xid13"')
    await lab.restart(NO_TRACE)
    await lab.until(lambda: lab.discoveries > 0)
    lab.sim(gpu=1, xid=79)
    lab.sim(gpu=1, reset=True)
    await lab.restored(1)
    assert lab.state(0) is HealthState.UNHEALTHY
    assert [change.reason for change in lab.agent.node_state.health.history(lab.uuid(0))] == ["Xid13"]


async def test_holders_are_known_after_a_restart_and_their_devices_stay_advertised(lab: Lab) -> None:
    await lab.serve(fleet(2))
    grant = await lab.kubelet.allocate(GPU, 1, pod="trainer")
    await lab.restart()
    await lab.until(lambda: [held.device for held in lab.report().holders] == list(grant.devices))
    await lab.until(lambda: len(lab.endpoint().healthy) == 2)
    assert lab.report().holders[0].holder.pod == "trainer"


async def test_a_reset_that_nobody_watched_is_observed(lab: Lab) -> None:
    lab.power_on(fleet(2))
    for index in (0, 1):
        lab.sim(gpu=index, load={"powerW": 400, "smUtil": 1.0})
    await lab.kubelet.start()
    await lab.start(NO_TRACE)
    await lab.listed()
    for index in (0, 1):
        lab.sim(gpu=index, xid=13)
    await lab.until(lambda: len(lab.down()) == 2)
    await asyncio.sleep(0.3)  # the energy counter runs in real time
    await lab.stop()
    lab.sim(gpu=0, reset=True)
    lab.sim(gpu=0, load={})
    await lab.start(NO_TRACE)
    await lab.restored(0)
    assert [change.new for change in lab.reporter.transitions if change.gpu == lab.uuid(0)][-2:] == [
        HealthState.PROBATION,
        HealthState.HEALTHY,
    ]
    assert lab.state(1) is HealthState.UNHEALTHY, "that one was not reset"


async def test_after_a_reboot_only_boards_to_replace_stay_out(lab: Lab) -> None:
    await lab.serve(fleet(3), NO_TRACE)
    lab.sim(gpu=0, xid=13)
    lab.sim(gpu=1, remapFailure=True)
    await lab.until(lambda: lab.down() == {lab.uuid(0), lab.uuid(1)})
    await lab.stop()
    told = len(lab.reporter.transitions)
    lab.sim(reboot=True)
    await lab.start(NO_TRACE)
    await lab.restored(0)
    await lab.until(lambda: lab.endpoint().healthy == {lab.uuid(0), lab.uuid(2)})
    assert lab.state(1) is HealthState.UNHEALTHY
    first = next(change for change in lab.reporter.transitions[told:] if change.gpu == lab.uuid(0))
    assert (first.new, first.reason) == (HealthState.PROBATION, "Rebooted")


async def test_the_state_of_another_boot_is_not_served(lab: Lab) -> None:
    lab.power_on(fleet(2, more="  migEnabled: [0]\n  mig: {0: [3g.20gb]}\n"))
    await lab.kubelet.start()
    await lab.start(MIXED)
    await lab.listed("nvidia.com/mig-3g.20gb")
    await lab.stop()
    lab.sim(reboot=True)
    await lab.start(MIXED)
    assert lab.agent.node_state.views() == ()
    assert lab.agent._unready() is not None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 1}', '{"version": 99}', "\x00" * 64], ids=lambda text: repr(text)[:20]
)
async def test_a_broken_checkpoint_costs_nothing_but_the_head_start(lab: Lab, content: str) -> None:
    lab.state_dir.mkdir()
    (lab.state_dir / statefiles.CHECKPOINT).write_text(content)
    endpoint = await lab.serve(fleet(2))
    assert len(endpoint.healthy) == 2
    await saved(lab, lab.uuid(1))


async def test_another_nodes_checkpoint_is_not_served(lab: Lab) -> None:
    await lab.serve(fleet(2))
    await lab.stop()
    path = lab.state_dir / statefiles.CHECKPOINT
    content = json.loads(path.read_text())
    content["node"]["name"] = "node-2"
    path.write_text(json.dumps(content))
    await lab.start()
    assert lab.agent.node_state.views() == ()


async def test_what_differs_from_the_checkpoint_is_mended(lab: Lab) -> None:
    await lab.serve(fleet(3))
    await lab.stop()
    lab.sim(gpu=2, remove=True)
    await lab.start()
    await lab.until(lambda: lab.kubelet.registrations == [GPU, GPU])
    await lab.until(lambda: set(lab.endpoint().devices) == {lab.uuid(0), lab.uuid(1)})
    assert lab.state(2) is HealthState.UNHEALTHY


async def test_sockets_of_an_agent_that_was_killed_are_swept(lab: Lab) -> None:
    await lab.serve(fleet(1))
    await lab.stop()
    left = lab.kubelet.folder / "tessera-00000001.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    foreign = lab.kubelet.folder / "other-plugin.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(foreign))
    await lab.start()
    await lab.until(lambda: lab.kubelet.registrations == [GPU, GPU])
    assert not left.exists()
    assert foreign.exists()
