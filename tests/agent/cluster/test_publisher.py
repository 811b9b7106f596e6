"""What reaches the API server, through outages and against other writers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent.cluster.gpunode import GPU_NODES, GpuNode, HealthView, build
from agent.cluster.publisher import KubePublisher
from agent.config.settings import FIELD_MANAGER
from agent.process.spread import Spread
from inventory.devices import Gpu, GpuUuid, NodeInventory, NodeName, unknown_links
from inventory.layout.layout import Layout
from kube.resources import EVENTS, NODES
from kube.testing import FakeApiServer, VirtualClock, eventually

COUNT, PRODUCT, MIG_COUNT = "nvidia.com/gpu.count", "nvidia.com/gpu.product", "nvidia.com/mig-1g.10gb.count"


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.create(NODES, "node-1", {"metadata": {"labels": {"kubernetes.io/hostname": "node-1"}}})
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def publisher(server: FakeApiServer, clock: VirtualClock) -> AsyncIterator[KubePublisher]:
    publisher = KubePublisher(server.config, node_name="node-1", clock=clock, random=lambda: 0.5)
    task = asyncio.create_task(publisher.run())
    yield publisher
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def labels(server: FakeApiServer) -> dict[str, str]:
    found: dict[str, str] = server.get(NODES, "node-1")["metadata"]["labels"]
    return found


def by(manager_labels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"labels": manager_labels}}


def gpunode(state: str = "Healthy") -> GpuNode:
    gpu = Gpu(uuid=GpuUuid("GPU-0"), index=0, minor=0, product="T4", pci_bus_id="0000:01:00.0", memory_mib=1)
    node = NodeInventory(name=NodeName("node-1"), gpus=(gpu,), links=unknown_links(1))
    return build(node=node, layout=Layout(), health={"GPU-0": HealthView(state=state)})


def state(server: FakeApiServer) -> Callable[[], str | None]:
    def found() -> str | None:
        for body in server.list_all(GPU_NODES):
            text: str = body["status"]["devices"][0]["health"]["state"]
            return text
        return None

    return found


def read_again(server: FakeApiServer, before: int) -> Callable[[], bool]:
    return lambda: len(server.seen("GET", "nodes/node-1")) > before


def arrived(publisher: KubePublisher) -> Callable[[], bool]:
    return lambda: publisher.settled


async def idle() -> None:
    """Let everything that can happen at this instant happen, loopback requests included."""
    for _ in range(30):
        await asyncio.sleep(0.001)


async def test_labels_are_set_and_what_no_longer_holds_goes(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_labels({COUNT: "8", PRODUCT: "T4"})
    await eventually(lambda: publisher.settled)
    assert labels(server) == {"kubernetes.io/hostname": "node-1", COUNT: "8", PRODUCT: "T4"}
    publisher.publish_labels({COUNT: "7"})
    clock.advance(1.1)
    await eventually(lambda: publisher.settled)
    assert labels(server) == {"kubernetes.io/hostname": "node-1", COUNT: "7"}


async def test_a_label_that_another_manager_also_owns_is_removed(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    server.apply(NODES, "node-1", by({COUNT: "8"}), manager="gfd")
    publisher.publish_labels({COUNT: "8"})
    await eventually(lambda: publisher.settled)
    publisher.publish_labels({})
    clock.advance(1.1)
    await eventually(lambda: publisher.settled)
    assert COUNT not in labels(server)


async def test_a_removed_label_that_comes_back_is_told_once_naming_who_writes_it(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    server.apply(NODES, "node-1", by({MIG_COUNT: "7"}), manager="gfd")
    publisher.publish_labels({COUNT: "8"})
    await eventually(lambda: publisher.settled)
    assert MIG_COUNT not in labels(server)
    server.apply(NODES, "node-1", by({MIG_COUNT: "7"}), manager="gfd")
    for _ in range(3):
        before = len(server.seen("GET", "nodes/node-1"))
        clock.advance(1201)
        await eventually(read_again(server, before))
        # A turn that is not over when the clock moves begins its next pause after that.
        await eventually(lambda: publisher.settled)
    (event,) = server.list_all(EVENTS)
    assert event["reason"] == "LabelContested"
    assert "by gfd" in event["note"]
    assert labels(server)[MIG_COUNT] == "7"


async def test_a_value_that_another_manager_sets_back_is_written_again_and_told(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_labels({COUNT: "8"})
    await eventually(lambda: publisher.settled)
    server.apply(NODES, "node-1", by({COUNT: "4"}), manager="gfd")
    clock.advance(1201)
    await eventually(lambda: labels(server)[COUNT] == "8")
    await eventually(lambda: len(server.list_all(EVENTS)) == 1)
    assert f"{COUNT}=4" in server.list_all(EVENTS)[0]["note"]


async def test_labels_of_others_are_never_touched(server: FakeApiServer, publisher: KubePublisher) -> None:
    foreign = {"nvidia.com/gpu.present": "true", "nvidia.com/mig.config": "all-1g.10gb", "tessera.dev/config": "a"}
    server.merge(NODES, "node-1", by(foreign))
    publisher.publish_labels({})
    await eventually(lambda: publisher.settled)
    assert labels(server).items() >= foreign.items()
    with pytest.raises(AssertionError):
        publisher.publish_labels({"example.com/x": "1"})


async def test_right_labels_are_not_written_again(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_labels({COUNT: "8"})
    await eventually(lambda: publisher.settled)
    written = len(server.seen("PATCH", "nodes"))
    read = len(server.seen("GET", "nodes"))
    publisher.publish_labels({COUNT: "8"})
    clock.advance(10)
    await idle()
    assert len(server.seen("GET", "nodes")) == read, "nothing changed, so nothing is asked"
    clock.advance(1201)
    await eventually(lambda: len(server.seen("GET", "nodes")) > read)
    await idle()
    assert len(server.seen("PATCH", "nodes")) == written


async def test_a_node_that_is_gone_is_not_made_anew_and_its_successor_gets_the_labels(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    server.delete(NODES, "node-1")
    publisher.publish_labels({COUNT: "8"})
    publisher.publish_gpunode(gpunode())
    await eventually(lambda: len(server.seen("GET", "nodes")) >= 2)
    await idle()
    assert server.list_all(NODES) == []
    assert server.list_all(GPU_NODES) == []
    server.create(NODES, "node-1")
    clock.advance(61)
    await eventually(lambda: publisher.settled)
    assert labels(server) == {COUNT: "8"}


async def test_a_node_replaced_between_reading_and_writing_is_a_conflict_not_a_write(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    def replace_before_patch(method: str, path: str) -> int | None:
        if method == "PATCH" and path.endswith("nodes/node-1") and "gpu" not in path:
            server.refuse = lambda _method, _path: None
            server.delete(NODES, "node-1")
            server.create(NODES, "node-1")
        return None

    server.refuse = replace_before_patch
    publisher.publish_labels({COUNT: "8"})
    await eventually(lambda: len(server.seen("PATCH", "nodes")) == 1)
    await idle()
    assert "labels" not in server.get(NODES, "node-1")["metadata"]
    clock.advance(5)
    await eventually(lambda: publisher.settled)
    assert labels(server) == {COUNT: "8"}


async def test_the_gpunode_belongs_to_its_node(server: FakeApiServer, publisher: KubePublisher) -> None:
    publisher.publish_gpunode(gpunode())
    await eventually(lambda: publisher.settled)
    body = server.get(GPU_NODES, "node-1")
    (owner,) = body["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-0001"}
    assert (body["apiVersion"], body["kind"]) == ("tessera.dev/v1alpha1", "GpuNode")
    assert body["status"]["observedAt"] == "2023-11-14T22:13:20Z"
    assert body["metadata"]["managedFields"][0]["manager"] == FIELD_MANAGER


async def test_the_gpunode_is_written_on_change_only_and_at_most_once_a_second(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_gpunode(gpunode())
    await eventually(lambda: publisher.settled)
    publisher.publish_gpunode(gpunode())
    clock.advance(10)
    await idle()
    assert len(server.seen("PATCH", "gpunodes")) == 1
    publisher.publish_gpunode(gpunode("Suspect"))
    await eventually(lambda: state(server)() == "Suspect" and publisher.settled)
    publisher.publish_gpunode(gpunode("Unhealthy"))
    publisher.publish_gpunode(gpunode("Probation"))
    clock.advance(0.9)
    await idle()
    assert state(server)() == "Suspect"
    clock.advance(0.2)
    await eventually(lambda: state(server)() == "Probation")
    assert len(server.seen("PATCH", "gpunodes")) == 3


async def test_the_latest_state_survives_an_outage(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_gpunode(gpunode())
    await eventually(lambda: publisher.settled)
    server.down = True
    for n, text in enumerate(("Unhealthy", "Probation", "Suspect")):
        publisher.publish_gpunode(gpunode(text))
        publisher.publish_labels({COUNT: str(n)})
        publisher.event(reason="GpuHealth", action="Probe", note=text, type_="Warning")
        clock.advance(70)
        await idle()
    server.down = False
    clock.advance(130)
    await eventually(lambda: publisher.settled)
    assert state(server)() == "Suspect"
    assert labels(server)[COUNT] == "2"
    assert {event["note"] for event in server.list_all(EVENTS)} == {"Unhealthy", "Probation", "Suspect"}


async def test_a_missing_crd_does_not_hold_up_labels_or_events(server: FakeApiServer, publisher: KubePublisher) -> None:
    server.unknown = {"gpunodes"}
    publisher.publish_gpunode(gpunode())
    publisher.publish_labels({COUNT: "8"})
    publisher.event(reason="Started", action="Start", note="The agent started")
    await eventually(lambda: labels(server).get(COUNT) == "8")
    await eventually(lambda: len(server.list_all(EVENTS)) == 1)
    assert not publisher.settled


async def test_an_agent_that_restarts_does_not_write_what_is_there(server: FakeApiServer, clock: VirtualClock) -> None:
    for _ in range(2):
        publisher = KubePublisher(server.config, node_name="node-1", clock=clock, random=lambda: 0.5)
        task = asyncio.create_task(publisher.run())
        publisher.publish_gpunode(gpunode())
        await eventually(arrived(publisher))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        clock.advance(100)
    assert len(server.seen("PATCH", "gpunodes")) == 1


async def test_a_deleted_gpunode_comes_back(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_gpunode(gpunode())
    await eventually(lambda: publisher.settled)
    server.delete(GPU_NODES, "node-1")
    clock.advance(1201)
    await eventually(lambda: state(server)() == "Healthy")


async def test_a_deleted_gpunode_comes_back_at_once_where_it_is_watched_and_its_node_is_there(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_gpunode(gpunode())
    await eventually(lambda: publisher.settled)
    clock.advance(2)
    server.delete(GPU_NODES, "node-1")
    publisher.gpunode_gone()
    await eventually(lambda: state(server)() == "Healthy")
    clock.advance(2)
    server.delete(GPU_NODES, "node-1")
    server.delete(NODES, "node-1")
    before = len(server.seen("GET", "nodes/node-1"))
    publisher.gpunode_gone()
    await eventually(read_again(server, before))
    await idle()
    assert server.list_all(GPU_NODES) == []


async def test_an_event_is_one_series_whether_the_node_was_read_before_or_not(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.event(reason="GpuUnhealthy", action="Probe", note="XID 79", type_="Warning")
    publisher.publish_labels({})
    await eventually(arrived(publisher))
    publisher.event(reason="GpuUnhealthy", action="Probe", note="XID 79", type_="Warning")
    clock.advance(61)
    await eventually(arrived(publisher))
    (event,) = server.list_all(EVENTS)
    assert event["series"]["count"] == 2
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}


async def test_a_label_that_the_watch_sees_undone_is_set_again_after_five_minutes_at_the_earliest(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_labels({COUNT: "8"})
    await eventually(lambda: publisher.settled)
    read = len(server.seen("GET", "nodes/node-1"))
    publisher.heard("uid-0001", {"kubernetes.io/hostname": "node-1", COUNT: "8"})
    clock.advance(310)
    await idle()
    assert len(server.seen("GET", "nodes/node-1")) == read, "its own write is no news"
    server.merge(NODES, "node-1", by({COUNT: "4"}))
    publisher.heard("uid-0001", labels(server))
    await eventually(lambda: labels(server)[COUNT] == "8" and publisher.settled)
    server.merge(NODES, "node-1", by({COUNT: "4"}))
    publisher.heard("uid-0001", labels(server))
    clock.advance(290)
    await idle()
    assert labels(server)[COUNT] == "4"
    clock.advance(11)
    await eventually(lambda: labels(server)[COUNT] == "8")


async def test_labels_that_a_client_takes_with_it_when_it_leaves_are_there_again_at_once(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    """Node feature discovery does so with labels of NVIDIA's feature discovery, seconds after the agent came."""
    publisher.publish_labels({COUNT: "8", PRODUCT: "T4"})
    await eventually(lambda: publisher.settled)
    clock.advance(2)
    server.merge(NODES, "node-1", {"metadata": {"labels": {COUNT: None, PRODUCT: None}}})
    publisher.heard("uid-0001", labels(server))
    await eventually(lambda: labels(server).get(COUNT) == "8" and publisher.settled)
    server.merge(NODES, "node-1", by({COUNT: "4"}))
    publisher.heard("uid-0001", labels(server))
    clock.advance(290)
    await idle()
    assert labels(server)[COUNT] == "4", "two clients do not race"
    clock.advance(11)
    await eventually(lambda: labels(server)[COUNT] == "8")


async def test_a_gpunode_is_compared_by_reading_and_written_where_another_client_has_changed_it(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_gpunode(gpunode())
    await eventually(lambda: publisher.settled)
    clock.advance(1201)
    await eventually(lambda: len(server.seen("GET", "gpunodes")) == 2)
    await idle()
    assert len(server.seen("PATCH", "gpunodes")) == 1
    server.delete(GPU_NODES, "node-1")
    clock.advance(1201)
    await eventually(lambda: state(server)() == "Healthy")


async def test_an_agent_that_restarts_publishes_at_its_place_in_the_window(
    server: FakeApiServer, clock: VirtualClock
) -> None:
    spread = Spread("node-1", 10.0)
    publisher = KubePublisher(server.config, node_name="node-1", clock=clock, random=lambda: 0.5, spread=spread)
    publisher.restarted()
    publisher.publish_labels({COUNT: "8"})
    task = asyncio.create_task(publisher.run())
    await eventually(lambda: clock.sleeping > 0)
    clock.advance(spread.pause_s("labels") - 0.1)
    await idle()
    assert not server.requests
    clock.advance(0.2)
    await eventually(lambda: labels(server).get(COUNT) == "8")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_controllers_grants_are_no_difference(
    server: FakeApiServer, clock: VirtualClock, publisher: KubePublisher
) -> None:
    publisher.publish_gpunode(gpunode())
    await eventually(arrived(publisher))
    grant = {"gpu": "GPU-0", "generation": 1, "action": "reset", "granted": "2026-01-01T00:00:00Z"}
    server.apply(GPU_NODES, "node-1", {"status": {"remediationGrants": [grant]}}, manager="controller")
    before = len(server.seen("GET", "gpunodes/node-1"))
    clock.advance(1300.0)
    await eventually(lambda: len(server.seen("GET", "gpunodes/node-1")) > before)
    await eventually(arrived(publisher))
    assert len(server.seen("PATCH", "gpunodes/node-1")) == 1
    assert server.get(GPU_NODES, "node-1")["status"]["remediationGrants"] == [grant]
