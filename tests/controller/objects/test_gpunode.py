"""The GpuNode as the agent writes it, and as nobody should."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cluster.gpunode import HolderView, build
from controller.objects.decode import DecodeError, read_gpu_node
from controller.scheduler.devices.board import Board
from controller.scheduler.model.resources import ResourceName
from inventory.devices import DeviceId, Gpu, GpuUuid, MigInstance, MigUuid, NodeInventory, NodeName
from inventory.layout.entries import PERCENT_RESOURCE, Fractional, FractionPlacement
from inventory.layout.layout import plan
from inventory.layout.sharing import LayoutSpec, MigStrategy
from inventory.links import Link, PcieLevel
from tests.support.controller.gpunodes import full_status, observed
from tests.support.engine.boards import gpu_node

GPU, MIG = ResourceName("nvidia.com/gpu"), ResourceName("nvidia.com/mig-3g.40gb")


def test_a_suspect_gpu_is_given_to_containers_and_one_on_probation_is_not() -> None:
    """As the agent does it."""
    for state, room in (("Healthy", 1), ("Suspect", 1), ("Probation", 0), ("Unhealthy", 0), ("unheard of", 0)):
        device = {"uuid": "g", "index": 0, "offers": [{"resource": GPU}], "health": {"state": state}}
        board = Board(observed("n", devices=[device]))
        assert board.ceilings == {GPU: room}, state


class Holder(msgspec.Struct):
    namespace: str
    pod: str
    container: str


def hardware() -> NodeInventory:
    """Two GPUs joined by NVLink, and one that is cut into two instances."""
    instances = tuple(
        MigInstance(MigUuid(f"MIG-{at}"), at, at + 1, 0, "3g.40gb", 3, 3, 40192, 42, start=4 * at, size=4)
        for at in range(2)
    )
    gpus = tuple(
        Gpu(
            uuid=GpuUuid(f"GPU-{at}"),
            index=at,
            minor=at,
            product="NVIDIA A100-SXM4-80GB",
            pci_bus_id=f"0000:0{at}:00.0",
            memory_mib=81920,
            numa_node=0,
            mig_capable=True,
            mig_enabled=at == 2,
            mig_instances=instances if at == 2 else (),
        )
        for at in range(3)
    )
    near, far = Link(PcieLevel.PIX, nvlinks=12), Link(PcieLevel.SYS)
    links = ((Link(), near, far), (near, Link(), far), (far, far, Link()))
    return NodeInventory(name=NodeName("node-1"), gpus=gpus, links=links)


@pytest.mark.parametrize("placement", FractionPlacement)
def test_how_percents_are_to_be_given_is_known_from_the_agent(placement: FractionPlacement) -> None:
    node = hardware()
    modes = {gpu.uuid: Fractional(10, placement) for gpu in node.gpus[:2]}
    layout = plan(node, LayoutSpec(mig_strategy=MigStrategy.MIXED), modes)
    board = Board(read_gpu_node(msgspec.json.encode(build(node=node, layout=layout))))
    pool = board.pools[ResourceName(PERCENT_RESOURCE)]
    assert [(make.replicas, make.granularity) for make in pool.kind.makes] == [(100, 10)] * 2
    left = pool.free({"GPU-1": 50})
    assert pool.kind.choose(left, 25, None) == (), "no multiple"
    assert set(pool.kind.choose(left, 30, None)) == {1 if placement is FractionPlacement.PACKED else 0}


def test_what_the_agent_writes_is_read() -> None:
    node = hardware()
    holders: dict[DeviceId, HolderView] = {DeviceId("GPU-1::0"): Holder("ml", "train-0", "main")}
    written = build(node=node, layout=plan(node, LayoutSpec(mig_strategy=MigStrategy.MIXED)), holders=holders)
    found = read_gpu_node(msgspec.json.encode(written))
    assert found.metadata.name == "node-1"
    assert [(one.pod_key, one.physical) for one in found.status.holders] == [("ml/train-0", "GPU-1")]
    board = Board(found)
    assert board.pools[GPU].uuids == ("GPU-0", "GPU-1")
    assert board.pools[MIG].uuids == ("MIG-0", "MIG-1")
    assert [(make.gpu, make.memory_mib) for make in board.pools[MIG].kind.makes] == [(2, 40192)] * 2
    assert board.ceilings == {GPU: 2, MIG: 2}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metadata": {}}, "metadata.name: expected a node's name"),
        ({"status": {"devices": [{"uuid": "a", "index": -1}]}}, "status.devices"),
        ({"status": {"devices": [{"uuid": "a" * 300, "index": 0}]}}, "status.devices"),
        ({"status": {"devices": [{"uuid": "a", "index": 0}] * 2}}, "expected each uuid once, found 'a' twice"),
        ({"status": {"devices": [{"uuid": "a", "index": 0}, {"uuid": "b", "index": 0}]}}, "each index once"),
        ({"status": {"devices": [{"uuid": str(i), "index": i} for i in range(65)]}}, "status.devices"),
        ({"status": {"devices": [{"uuid": "a", "index": 0, "offers": [{"resource": "r", "replicas": 10**9}]}]}}, "rep"),
        ({"status": {"holders": [{"device": "a", "namespace": "n"}]}}, "pod"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(DecodeError) as refused:
        read_gpu_node({"metadata": {"name": "n"}, **change, "status": full_status(change.get("status", {}))})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_links_and_holders_of_what_is_not_there_say_nothing() -> None:
    found = observed(
        "n",
        devices=[{"uuid": "a", "index": 3, "offers": [{"resource": GPU}]}],
        links=[{"a": 3, "b": 3, "nvlinks": 9}, {"a": 3, "b": 7, "pcie": "WORMHOLE"}],
        holders=[{"device": "z::1", "namespace": "n", "pod": "p"}],
    )
    board = Board(found)
    assert board.links.count == 1
    assert board.pools[GPU].free({}) == (1,)


KEYS = st.sampled_from(["devices", "uuid", "index", "links", "a", "b", "holders", "mig"])
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(JSON)
def test_whatever_arrives_is_read_or_refused(status: object) -> None:
    try:
        Board(read_gpu_node({"metadata": {"name": "n"}, "status": status}))
    except DecodeError as refused:
        said = str(refused)
    else:
        said = ""
    assert "\n" not in said


def test_boards_of_one_make_share_what_is_worked_out() -> None:
    one, other = Board(gpu_node("a", 8)), Board(gpu_node("b", 8))
    assert one.pools[ResourceName("gpu")].kind is other.pools[ResourceName("gpu")].kind
