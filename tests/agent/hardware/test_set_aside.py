"""A GPU that somebody needs alone is let go of, and the others are read on."""

import pynvml
import pytest

from agent.hardware import worker
from agent.hardware.facts_shell import read_facts
from agent.hardware.hearing import Hearing
from agent.hardware.query import CallTimedOut, GpuLost
from agent.hardware.worker import HURRIED_WAIT_MS
from simulator.fleet import orders
from simulator.hardware.hardware import OrderError
from tests.support.agent.node import Lab, fleet

H100 = "NVIDIA H100 80GB HBM3"


async def test_only_that_gpu_is_let_go_of(lab: Lab) -> None:
    await lab.serve(fleet(3, H100))
    lab.sim(gpu=1, persistence=False)
    with pytest.raises(OrderError, match="agent's own NVML"):
        lab.simulation.order(orders.GpuReset(gpu=1))
    before = lab.agent.node_state.node
    await lab.agent.monitor.set_aside(frozenset({lab.uuid(1)}), 10)
    assert lab.simulation.opened == {0, 2}
    lab.simulation.order(orders.GpuReset(gpu=1))
    await lab.look_again()
    assert lab.agent.node_state.node == before, "the inventory has it as it was, with its links"
    assert lab.simulation.opened == {0, 2}
    assert lab.down() == set()


@pytest.mark.parametrize("left_open", [1, 2])
async def test_it_is_let_go_of_also_after_sessions_that_could_not_be_shut_down(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, left_open: int
) -> None:
    await lab.serve(fleet(2, H100))
    lab.sim(gpu=1, persistence=False)
    close, hangs = Hearing.close, [CallTimedOut("a wait hangs")] * left_open

    async def hanging(self: Hearing) -> None:
        await close(self)
        if hangs:
            raise hangs.pop()

    monkeypatch.setattr(Hearing, "close", hanging)
    for _ in range(left_open):
        await lab.agent.monitor.set_aside(frozenset({lab.uuid(1)}), 10)
        with pytest.raises(OrderError, match="agent's own NVML"):
            lab.simulation.order(orders.GpuReset(gpu=1))
    await lab.agent.monitor.set_aside(frozenset({lab.uuid(1)}), 10)
    lab.simulation.order(orders.GpuReset(gpu=1))
    assert not lab.down()


async def test_the_others_are_probed_and_heard_meanwhile(lab: Lab) -> None:
    await lab.serve(fleet(2, H100))
    await lab.agent.monitor.set_aside(frozenset({lab.uuid(1)}), 10)
    lab.sim(gpu=0, xid=95)
    await lab.until(lambda: lab.down() == {lab.uuid(0)})
    with pytest.raises(GpuLost):
        await lab.agent.monitor.on_gpu(lab.uuid(1), pynvml.nvmlDeviceGetName, 1.0)


async def test_it_is_read_again_when_it_is_taken_back(lab: Lab) -> None:
    await lab.serve(fleet(2, H100))
    uuid = lab.uuid(1)
    await lab.agent.monitor.set_aside(frozenset({uuid}), 10)
    await lab.agent.monitor.set_aside(frozenset(), 10)
    gpu = lab.agent.node_state.node.gpus[1]
    facts, _ = await lab.agent.monitor.on_gpu(uuid, lambda handle: read_facts(handle, gpu), 5.0)
    assert (facts.memory_mib, facts.recovery_action, facts.persistence) == (gpu.memory_mib, 0, True)
    assert not facts.virtual


async def test_a_reset_of_our_own_is_seen_by_the_next_probe(lab: Lab) -> None:
    await lab.serve(fleet(1, H100))
    lab.sim(gpu=0, xid=119)
    await lab.until(lambda: bool(lab.down()))
    await lab.agent.monitor.set_aside(frozenset({lab.uuid(0)}), 10)
    lab.sim(gpu=0, persistence=False)
    lab.sim(gpu=0, gpuReset=True)
    lab.agent.monitor.reset_done(lab.uuid(0))
    await lab.agent.monitor.set_aside(frozenset(), 10)
    await lab.restored(0)
    assert "ResetObserved" in {change.reason for change in lab.reporter.transitions}


async def test_the_session_that_begins_meanwhile_waits_in_short_turns_too(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.serve(fleet(2, H100))
    monkeypatch.setattr(worker, "EVENT_WAIT_MS", 1000)
    waits: list[int] = []
    wait = pynvml.nvmlEventSetWait_v2

    def recorded(events: object, wait_ms: int) -> object:
        waits.append(wait_ms)
        return wait(events, wait_ms)

    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", recorded)
    await lab.agent.monitor.set_aside(frozenset({lab.uuid(1)}), 60)
    waits.clear()  # a wait of the session before may have begun in the old way
    await lab.agent.monitor.set_aside(frozenset(), 60)
    await lab.until(lambda: len(waits) > 3)
    assert set(waits) <= {0, HURRIED_WAIT_MS}
