"""The Node says whether its GPUs are ready and healthy, beside what others say there."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.cluster import conditions_shell, publisher
from agent.cluster.conditions import MOST_NAMED, Told, told
from agent.cluster.conditions_shell import FORBIDDEN_S, UNREADY_S, NodeConditions
from agent.health.events import XidSeen
from agent.health.repairstate import Repair, RepairState
from agent.nodestate import Choices, NodeState, ShownRepair
from deviceplugin.strategy import NodeAccess
from inventory.api.names import GPU_READY, GPUS_HEALTHY
from inventory.devices import GpuUuid, NodeName
from kube.client import Client
from kube.clock import Backoff
from kube.resources import NODES
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.support.agent.granting import GrantedNode
from tests.support.agent.node import EAGER, Lab, fleet
from tests.support.inventory.builders import gpu, node, uuid

DISK = {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"}


def node_state(gpus: int = 2) -> NodeState:
    state = NodeState(NodeName("node-1"), Choices())
    state.discovered(node([gpu(i) for i in range(gpus)]), NodeAccess(), 1.0)
    return state


def ready(holds: bool = True) -> Told:
    return Told(type=GPU_READY, holds=holds, reason="R", message="m")


def healthy(holds: bool = True, message: str = "m") -> Told:
    return Told(type=GPUS_HEALTHY, holds=holds, reason="R", message=message)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.create(NODES, "node-1", {"metadata": {}, "status": {"conditions": [DISK]}})
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def conditions(server: FakeApiServer, clock: VirtualClock) -> AsyncIterator[NodeConditions]:
    async with Client(server.config, user_agent="test", clock=clock) as client:
        backoff = Backoff(random=lambda: 0.5)
        made = NodeConditions(client, "node-1", clock=clock, backoff=backoff, resync_s=900.0)
        task = asyncio.create_task(made.run())
        yield made
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def there(server: FakeApiServer) -> dict[str, Any]:
    return {each["type"]: each for each in server.get(NODES, "node-1")["status"]["conditions"]}


def statuses(server: FakeApiServer) -> dict[str, str]:
    return {type_: each["status"] for type_, each in there(server).items()}


def test_a_gpu_that_is_not_handed_out_is_named_with_its_reason() -> None:
    state = node_state(3)
    assert [each.holds for each in told(state, "")] == [True, True]
    state.apply(XidSeen(uuid(1), 79), 2.0)
    gpu_2 = Repair(gpu=GpuUuid(uuid(2)), state=RepairState.RETIRED, since_s=1.0, fault_s=1.0, reason="R")
    state.repairs = (ShownRepair(gpu_2, None),)
    first, second = told(state, "")
    assert (first.holds, second.holds, second.status) == (True, False, "False")
    assert "GPU 1: " in second.message
    assert "GPU 2: in repair" in second.message
    assert "GPU 0" not in second.message


def test_of_many_the_first_are_named_and_the_others_counted() -> None:
    state = node_state(MOST_NAMED + 3)
    for index in range(MOST_NAMED + 3):
        state.apply(XidSeen(GpuUuid(uuid(index)), 79), 2.0)
    message = told(state, "")[1].message
    assert message.endswith("; and 3 more")
    assert len(message) < 4096


def test_what_is_not_registered_is_said() -> None:
    first, _ = told(node_state(), "not registered with the kubelet: nvidia.com/gpu")
    assert (first.status, first.message) == ("False", "not registered with the kubelet: nvidia.com/gpu")


async def test_they_stand_beside_the_kubelets_and_their_time_is_that_of_the_status(
    server: FakeApiServer, clock: VirtualClock, conditions: NodeConditions
) -> None:
    conditions.want((ready(), healthy()))
    await eventually(lambda: conditions.settled)
    assert statuses(server) == {"DiskPressure": "False", GPU_READY: "True", GPUS_HEALTHY: "True"}
    since = there(server)[GPUS_HEALTHY]["lastTransitionTime"]
    clock.advance(60.0)
    conditions.want((ready(), healthy(message="others")))
    await eventually(lambda: conditions.settled)
    assert there(server)[GPUS_HEALTHY]["message"] == "others"
    assert there(server)[GPUS_HEALTHY]["lastTransitionTime"] == since
    conditions.want((ready(), healthy(holds=False)))
    clock.advance(2.0)
    await eventually(lambda: statuses(server)[GPUS_HEALTHY] == "False")
    assert there(server)[GPUS_HEALTHY]["lastTransitionTime"] > since


async def test_what_is_there_already_is_not_written_again(
    server: FakeApiServer, clock: VirtualClock, conditions: NodeConditions
) -> None:
    conditions.want((ready(), healthy()))
    await eventually(lambda: conditions.settled)
    clock.advance(1000.0)
    await eventually(lambda: len(server.seen("GET", "nodes/node-1")) > 1)
    assert len(server.written("node-1")) == 1


async def test_a_restart_is_not_shown_as_unready_and_what_lasts_is(
    server: FakeApiServer, clock: VirtualClock, conditions: NodeConditions
) -> None:
    conditions.want((ready(), healthy()))
    await eventually(lambda: conditions.settled)
    clock.advance(2.0)
    conditions.want((ready(holds=False), healthy(holds=False)))
    await eventually(lambda: statuses(server)[GPUS_HEALTHY] == "False")
    assert statuses(server)[GPU_READY] == "True"
    clock.advance(UNREADY_S + 1)
    await eventually(lambda: statuses(server)[GPU_READY] == "False")


async def test_a_node_that_has_none_gets_none_where_no_gpu_is_known(
    server: FakeApiServer, clock: VirtualClock, conditions: NodeConditions
) -> None:
    conditions.want((ready(holds=False), healthy()), only_there=True)
    await eventually(lambda: bool(server.seen("GET", "nodes/node-1")))
    clock.advance(UNREADY_S + 1)
    await eventually(lambda: conditions.settled)
    assert statuses(server) == {"DiskPressure": "False"}


async def test_what_another_client_changes_is_written_again(
    server: FakeApiServer, clock: VirtualClock, conditions: NodeConditions
) -> None:
    conditions.want((ready(), healthy()))
    await eventually(lambda: conditions.settled)
    unknown = [{**each, "status": "Unknown"} for each in there(server).values() if each != DISK]
    server.apply(NODES, "node-1", {"status": {"conditions": unknown}}, manager="controller")
    conditions.heard(statuses(server))
    clock.advance(conditions_shell.CONTESTED_S + 1)
    await eventually(lambda: statuses(server)[GPU_READY] == statuses(server)[GPUS_HEALTHY] == "True")


async def test_an_agent_that_may_not_write_them_says_so_once_and_waits(
    server: FakeApiServer, clock: VirtualClock, conditions: NodeConditions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    refused = [True]
    server.refuse = lambda method, _: 403 if refused[0] and method == "PATCH" else None
    conditions.want((ready(), healthy()))
    await eventually(lambda: bool(server.written("node-1")))
    await eventually(lambda: conditions.settled)
    conditions.want((ready(), healthy(holds=False)))
    clock.advance(FORBIDDEN_S / 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(server.written("node-1")) == 1
    clock.advance(FORBIDDEN_S)
    # The server has the request before the agent has its answer, from which the next wait counts.
    await eventually(lambda: len(server.written("node-1")) == 2 and conditions.settled)
    assert [record.message for record in caplog.records] == ["node conditions may not be written"]
    refused[0] = False
    clock.advance(FORBIDDEN_S + 1)
    await eventually(lambda: statuses(server).get(GPUS_HEALTHY) == "False")


async def test_an_agent_says_that_its_gpus_are_ready_and_which_one_is_ill(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions_shell, "INTERVAL_S", 0.02)
    monkeypatch.setattr(publisher, "GPUNODE_INTERVAL_S", 0.02)
    async with FakeApiServer() as server:
        here = GrantedNode(lab, server)
        await here.serve(fleet(2), EAGER)

        def shown() -> dict[str, str]:
            found = server.get(NODES, "node-1").get("status", {}).get("conditions", ())
            return {each["type"]: each["status"] for each in found}

        await lab.until(lambda: shown() == {GPU_READY: "True", GPUS_HEALTHY: "True"})
        lab.sim(gpu=1, xid=79)
        await lab.until(lambda: shown() == {GPU_READY: "True", GPUS_HEALTHY: "False"})
        lab.sim(gpu=1, reset=True)
        await lab.until(lambda: shown() == {GPU_READY: "True", GPUS_HEALTHY: "True"})
        await lab.stop()
