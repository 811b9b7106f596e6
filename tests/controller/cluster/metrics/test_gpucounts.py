"""The metric counts what the page shows, and counts a node anew only when it has changed."""

from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

from controller.cluster.metrics import gpucounts
from controller.cluster.metrics.gpucounts import GpuCounts
from controller.insight.forecast.parts import finished
from controller.objects.core import Node
from controller.objects.decode import GpuNode
from inventory.api.gpunode import Health
from inventory.gpustates import GpuState
from tests.support.page.state import made


def test_all_views_count_the_same_gpus() -> None:
    state, counts = made(nodes=10, workloads=60), GpuCounts()
    nodes, gpu_nodes = state.nodes.values(), state.gpu_nodes

    def shown() -> Counter[str]:
        # The metric does not know who is idle: that is measured elsewhere.
        found = Counter(gpu["state"] for row in state.rows("fleet") for gpu in row["gpus"])
        found["held"] += found.pop("idle", 0)
        return found

    found = finished(counts.read(nodes, gpu_nodes.values()))
    assert {each.value: number for each, number in found.items() if number} == shown()
    before = gpu_nodes["node-3"]
    failed = msgspec.structs.replace(before.status.devices[0], health=Health(state="Unhealthy", reasons=("XID 79",)))
    status = msgspec.structs.replace(before.status, devices=(failed, *before.status.devices[1:]))
    gpu_nodes["node-3"] = msgspec.structs.replace(before, status=status)
    after = finished(counts.read(nodes, gpu_nodes.values()))
    assert after[GpuState.FAULT] == found[GpuState.FAULT] + 1
    assert sum(after.values()) == sum(found.values()) == 80
    assert {each.value: number for each, number in after.items() if number} == shown()


def test_a_node_that_did_not_change_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state, counts = made(nodes=4, workloads=0), GpuCounts()
    finished(counts.read(state.nodes.values(), state.gpu_nodes.values()))
    asked: list[str] = []
    real = gpucounts._of_node

    def asking(node: Node | None, found: GpuNode) -> Mapping[GpuState, int]:
        asked.append(found.metadata.name)
        return real(node, found)

    monkeypatch.setattr(gpucounts, "_of_node", asking)
    state.gpu_nodes["node-2"] = msgspec.structs.replace(state.gpu_nodes["node-2"])
    finished(counts.read(state.nodes.values(), state.gpu_nodes.values()))
    assert asked == ["node-2"]
