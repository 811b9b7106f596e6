"""Thousands of replicas on a real kubelet: as many as it takes in one list, and what becomes of a longer one."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin.choice import Preferrer
from deviceplugin.kubelet import register
from deviceplugin.server import DevicePluginServer
from inventory import listsize
from inventory.devices import DeviceId, GpuUuid, ResourceName
from inventory.layout.layout import LogicalDevice, Resource
from tests.support.deviceplugin.fakes import RecordingObserver
from tests.support.deviceplugin.views import view_of
from tests.support.e2e.lab import FAST, GPU, SHARED, Agent, Lab, fleet, until

pytestmark = pytest.mark.e2e

FEW = ResourceName("nvidia.com/few")
LONG = ResourceName("nvidia.com/long")
ID = GpuUuid("GPU-00000000-0000-0000-0000-000000000000")


def shared(*entries: str) -> str:
    return f"version: v1\nhealth: {FAST}\nsharing: {{timeSlicing: {{resources: [{', '.join(entries)}]}}}}\n"


def of(gpu: int, replicas: int, name: str) -> str:
    return f"{{name: {GPU}, rename: {name}, devices: [{gpu}], replicas: {replicas}}}"


@pytest.fixture(scope="module")
def agent(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    path = fleet(tmp_path_factory.mktemp("many") / "fleet.yaml", gpus=2, product="NVIDIA A100-SXM4-80GB")
    with lab.agent(path, shared(f"{{name: {GPU}, replicas: 16384}}")) as agent:
        yield agent


def test_a_node_offers_16384_replicas_of_each_gpu_and_pods_get_some(lab: Lab, agent: Agent) -> None:
    lab.await_amounts({GPU: 32768})
    pods = [lab.run(name, {GPU: 1}) for name in ("one", "other")]
    assert {uuid for pod in pods for uuid in pod.visible} <= {str(gpu.uuid) for gpu in agent.report().node.gpus}


def test_a_list_that_is_too_long_is_left_out_and_the_number_that_is_said_is_served(lab: Lab, agent: Agent) -> None:
    agent.take_up(shared(of(0, 100_000, SHARED), of(1, 2, FEW)))
    lab.await_amounts({SHARED: 0, FEW: 2})
    (problem,) = [one for one in agent.report().problems if one.startswith(SHARED)]
    largest = int(problem.partition("expected ")[2].partition(" ")[0])
    assert largest > 60_000
    agent.take_up(shared(of(0, largest, SHARED), of(1, 2, FEW)))
    until(lambda: lab.amounts().get(SHARED) == largest, f"{largest} on the node")
    assert lab.amounts()[FEW] == 2
    assert len(lab.run("of-many", {SHARED: 1}).visible) == 1


class Streams(RecordingObserver):
    """Says when the kubelet has ended its stream."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    def stream_closed(self, resource: ResourceName) -> None:
        super().stream_closed(resource)
        self.ended.set()


async def test_a_longer_list_is_dropped_by_the_kubelet_itself(lab: Lab) -> None:
    """The reason for the bound: the kubelet's client reads no message above 4 MiB, and gives the plugin up."""
    count = listsize.MAX_REPLICAS + 5000  # each as Healthy, the shorter word
    devices = tuple(LogicalDevice(id=DeviceId(f"{ID}::{n}"), gpu=ID, replica=n) for n in range(count))
    observer = Streams()
    server = DevicePluginServer(view_of(Resource(LONG, devices)), Preferrer(), observer)
    folder = Path(lab.host.kubelet_dir) / "device-plugins"
    socket = await server.start(folder)
    try:
        await register(folder / "kubelet.sock", LONG, socket.name)
        async with asyncio.timeout(30):
            await observer.ended.wait()
    finally:
        await server.stop()
    assert lab.amounts().get(LONG, 0) == 0
