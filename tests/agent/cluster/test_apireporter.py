"""The daemon's state at the API server: labels, GpuNode and Events, and nothing said twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agent.cluster.apireporter import ApiReporter
from agent.cluster.gpunode import GPU_NODES
from agent.cluster.reporter import NoCluster
from agent.config.settings import EventSettings, LabelSettings, Settings
from agent.health.events import XidSeen
from agent.kubelet.holders import Holder
from agent.nodestate import Choices, NodeState
from deviceplugin.strategy import NodeAccess
from inventory.devices import DeviceId, GpuUuid, NodeName, ResourceName
from kube.resources import EVENTS, NODES
from kube.testing import FakeApiServer, VirtualClock, eventually
from tests.support.agent.node import Lab, fleet
from tests.support.inventory.builders import gpu, node, uuid

COUNT, STAMP, PRODUCT = "nvidia.com/gpu.count", "nvidia.com/gfd.timestamp", "nvidia.com/gpu.product"
NODE = "node-1"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.create(NODES, NODE, {"metadata": {"labels": {"kubernetes.io/hostname": NODE}}})
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def kubeconfig(server: FakeApiServer, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
        f"clusters: [{{name: test, cluster: {{server: '{server.config.server}'}}}}]\n"
        "contexts: [{name: test, context: {cluster: test, user: test}}]\nusers: [{name: test, user: {}}]\n"
    )
    return path


@pytest.fixture
def settings(kubeconfig: Path, tmp_path: Path) -> Settings:
    (tmp_path / "machine").write_text("DGX-1\n")
    labels = LabelSettings(machine_type_file=tmp_path / "machine")
    return Settings(node_name=NodeName(NODE), kubeconfig=kubeconfig, labels=labels)


@pytest.fixture
async def reporter(settings: Settings, clock: VirtualClock) -> AsyncIterator[ApiReporter]:
    reporter = ApiReporter(settings, clock)
    task = asyncio.create_task(reporter.run())
    yield reporter
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def node_state(gpus: int = 2) -> NodeState:
    node_state = NodeState(NodeName(NODE), Choices())
    node_state.discovered(
        structs.replace(node([gpu(i) for i in range(gpus)]), name=NodeName(NODE), driver_version="570.1"),
        NodeAccess(),
        1.0,
    )
    return node_state


def labels(server: FakeApiServer) -> dict[str, str]:
    found: dict[str, str] = server.get(NODES, NODE)["metadata"]["labels"]
    return found


def gpunode(server: FakeApiServer) -> Any:
    return next((body for body in server.list_all(GPU_NODES)), None)


def settled(reporter: ApiReporter) -> Callable[[], bool]:
    return lambda: reporter._publisher.settled


async def test_labels_and_gpunode_appear_with_who_holds_what(reporter: ApiReporter, server: FakeApiServer) -> None:
    holder = Holder("team", "trainer", "main", ResourceName("nvidia.com/gpu"))
    reporter.publish(node_state(), {DeviceId(uuid(0)): holder})
    await eventually(settled(reporter))
    assert labels(server)[COUNT] == "2"
    assert labels(server)["nvidia.com/gpu.machine"] == "DGX-1"
    assert labels(server)["kubernetes.io/hostname"] == NODE
    status = gpunode(server)["status"]
    assert [device["uuid"] for device in status["devices"]] == [uuid(0), uuid(1)]
    assert [device["health"]["state"] for device in status["devices"]] == ["Healthy", "Healthy"]
    assert "trainer" in str(status)


async def test_what_is_withheld_and_until_when_is_published(reporter: ApiReporter, server: FakeApiServer) -> None:
    found = node_state()
    found.withhold("mig", {uuid(1): "its MIG layout is being changed, until that is done"})
    found.apply(XidSeen(GpuUuid(uuid(0)), 79), 2.0)
    reporter.publish(found, {})
    await eventually(settled(reporter))
    status = gpunode(server)["status"]
    assert status["withheld"] == [{"device": uuid(1), "why": "its MIG layout is being changed, until that is done"}]
    assert status["devices"][0]["health"]["until"] == "the GPU is reset or the node rebooted"
    assert "until" not in status["devices"][1]["health"]


async def test_publishing_the_same_again_writes_nothing(
    reporter: ApiReporter, server: FakeApiServer, clock: VirtualClock
) -> None:
    reporter.publish(node_state(), {})
    await eventually(settled(reporter))
    before = len(server.requests)
    for _ in range(5):
        clock.advance(3)
        reporter.publish(node_state(), {})
        assert settled(reporter)()
    assert len(server.requests) == before


async def test_gpunode_is_written_at_most_once_in_two_seconds_and_then_the_latest(
    reporter: ApiReporter, server: FakeApiServer, clock: VirtualClock
) -> None:
    shown = node_state()
    reporter.publish(shown, {})
    await eventually(settled(reporter))
    before = len(server.seen("PATCH", "gpunodes"))
    for xid in (48, 79, 74):
        shown.apply(XidSeen(uuid(1), xid), 2.0)
        reporter.publish(shown, {})
    clock.advance(1.9)
    await eventually(lambda: not settled(reporter)())
    assert len(server.seen("PATCH", "gpunodes")) == before
    clock.advance(0.2)
    await eventually(settled(reporter))
    assert len(server.seen("PATCH", "gpunodes")) == before + 1
    health = gpunode(server)["status"]["devices"][1]["health"]
    assert health["state"] == "Unhealthy"
    assert len(health["reasons"]) == 3


async def test_transitions_and_problems_become_events_unless_switched_off(
    reporter: ApiReporter, server: FakeApiServer, settings: Settings
) -> None:
    (change,) = node_state().apply(XidSeen(uuid(1), 79), 5.0)
    reporter.transition(change)
    reporter.problem("GPU 0 matches no pattern")
    await eventually(settled(reporter))
    found = {event["reason"]: event for event in server.list_all(EVENTS)}
    assert found.keys() == {"Xid79", "NotAsConfigured"}
    assert found["Xid79"]["type"] == "Warning"
    assert f"GPU {uuid(1)}: Healthy -> Unhealthy after 4 s" in found["Xid79"]["note"]
    assert found["Xid79"]["note"].endswith(". To do: reboot the node, or reset the GPU where its bus allows it")
    assert found["Xid79"]["regarding"]["name"] == NODE
    reporter.reconfigure(structs.replace(settings, events=EventSettings(enabled=False)))
    reporter.problem("another one")
    assert settled(reporter)()
    assert len(server.list_all(EVENTS)) == 2


async def test_labels_that_are_switched_off_are_taken_away_and_gpunode_stays(
    reporter: ApiReporter, server: FakeApiServer, settings: Settings, clock: VirtualClock
) -> None:
    reporter.publish(node_state(), {})
    await eventually(settled(reporter))
    reporter.reconfigure(structs.replace(settings, labels=LabelSettings(enabled=False)))
    reporter.publish(node_state(), {})
    clock.advance(1.1)
    await eventually(settled(reporter))
    assert labels(server) == {"kubernetes.io/hostname": NODE}
    assert gpunode(server) is not None


async def test_before_anything_is_known_what_an_earlier_agent_said_still_holds(
    reporter: ApiReporter, server: FakeApiServer
) -> None:
    server.merge(NODES, NODE, {"metadata": {"labels": {COUNT: "8"}}})
    reporter.publish(NodeState(NodeName(NODE), Choices()), {})
    await eventually(settled(reporter))
    assert labels(server)[COUNT] == "8"


async def test_a_node_whose_gpus_are_all_gone_says_so(
    reporter: ApiReporter, server: FakeApiServer, clock: VirtualClock
) -> None:
    shown = node_state()
    reporter.publish(shown, {})
    await eventually(settled(reporter))
    shown.discovered(structs.replace(shown.node, gpus=(), links=()), NodeAccess(), 2.0)
    reporter.publish(shown, {})
    clock.advance(2.1)
    await eventually(settled(reporter))
    assert PRODUCT not in labels(server)
    assert gpunode(server)["status"].get("devices", []) == []


async def test_the_timestamp_moves_once_in_its_interval_and_not_with_each_change(
    reporter: ApiReporter, server: FakeApiServer, clock: VirtualClock
) -> None:
    reporter.publish(node_state(2), {})
    await eventually(settled(reporter))
    first = labels(server)[STAMP]
    clock.advance(30)
    reporter.publish(node_state(3), {})
    await eventually(settled(reporter))
    assert (labels(server)[COUNT], labels(server)[STAMP]) == ("3", first)
    clock.advance(31)
    reporter.publish(node_state(3), {})
    await eventually(settled(reporter))
    assert int(labels(server)[STAMP]) == int(first) + 61


async def test_an_outage_loses_nothing_but_what_was_overtaken(
    reporter: ApiReporter, server: FakeApiServer, clock: VirtualClock
) -> None:
    server.down = True
    shown = node_state()
    reporter.publish(shown, {})
    (change,) = shown.apply(XidSeen(uuid(0), 79), 5.0)
    reporter.transition(change)
    reporter.publish(shown, {})
    await eventually(lambda: len(server.requests) > 2)
    server.down = False

    def arrived() -> bool:
        clock.advance(1)
        return settled(reporter)()

    await eventually(arrived)
    assert gpunode(server)["status"]["devices"][0]["health"]["state"] == "Unhealthy"
    assert [event["reason"] for event in server.list_all(EVENTS)] == ["Xid79"]
    assert labels(server)[COUNT] == "2"


def test_no_cluster_is_one_line_with_the_way_out(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=r"absent.*--kubeconfig none") as refused:
        ApiReporter(structs.replace(settings, kubeconfig=tmp_path / "absent"))
    assert "\n" not in str(refused.value)


async def started(lab: Lab, kubeconfig: Path) -> None:
    """The whole agent on two GPUs tells the API server; the kubelet lists them."""
    lab.power_on(fleet(2))
    await lab.kubelet.start()
    lab.flags["--kubeconfig"] = str(kubeconfig)
    await lab.start(reporter=ApiReporter(lab.settings()))
    await lab.listed()


async def test_the_whole_agent_tells_the_cluster_of_a_fault_and_its_end(
    lab: Lab, server: FakeApiServer, kubeconfig: Path
) -> None:
    await started(lab, kubeconfig)
    await lab.until(lambda: labels(server).get(COUNT) == "2" and gpunode(server) is not None)
    lab.sim(gpu=1, xid=79)
    await lab.until(lambda: lab.down() == {lab.uuid(1)})
    lab.sim(gpu=1, reset=True)
    await lab.restored(1)

    def state() -> str:
        found: str = gpunode(server)["status"]["devices"][1]["health"]["state"]
        return found

    reasons = {"Xid79", "ResetObserved", "ProbationPassed"}
    await lab.until(lambda: {event["reason"] for event in server.list_all(EVENTS)} == reasons)
    await lab.until(lambda: state() == "Healthy")


async def test_a_gpu_whose_row_remap_waits_says_that_a_reset_is_due(
    lab: Lab, server: FakeApiServer, kubeconfig: Path
) -> None:
    await started(lab, kubeconfig)

    def health(index: int) -> dict[str, Any]:
        found = gpunode(server)
        return {} if found is None else dict(found["status"]["devices"][index]["health"])

    await lab.until(lambda: bool(health(1)))
    lab.sim(gpu=1, xid=63)
    await lab.until(lambda: health(1).get("resetDue") is True)
    assert health(1)["reasons"][-1] == "a memory row remap waits for a reset"
    assert health(1)["state"] == "Suspect"
    assert "resetDue" not in health(0)
    lab.sim(gpu=1, reset=True)
    await lab.until(lambda: health(1)["state"] == "Healthy" and "resetDue" not in health(1))
