"""Domains of a gang are looked for among nodes that are open to its pods, and have their devices."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller.scheduler.kai.gangs.domains import NodeSet, node_sets
from controller.scheduler.kai.gangs.gang import NodeName, TopologyConstraint
from controller.scheduler.topology.port import Bound, PlacementRequest
from controller.scheduler.topology.requests import topology_request
from inventory.api.names import GPU_PRODUCT
from tests.support.engine.boards import gpu_node
from tests.support.engine.gangworld import gang, queue, session
from tests.support.engine.gangworld import node as kai_node
from tests.support.engine.topologylab import RACK, Lab, ask, node, usage

TAINT = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
TERM = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["good"]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}}
CLOSED = 5


def racks(**closed: Any) -> Lab:
    """Racks of a node with two GPUs: five that are as ``closed`` says, then one that is open to all."""
    lab = Lab({})
    for at in range(CLOSED):
        lab.topologies.set_node(node(f"b/a{at}/a{at}", 2, **closed))
    lab.topologies.set_node(node("b/z/z", 2, labels={"pool": "good"}))
    return lab


def bound(request: PlacementRequest, notes: Mapping[str, str] | None = None) -> PlacementRequest:
    """In one rack, its pods with these annotations."""
    template = request.pod_set.template
    metadata = msgspec.structs.replace(template.metadata, annotations=dict(notes or {}))
    pod_set = msgspec.structs.replace(request.pod_set, template=msgspec.structs.replace(template, metadata=metadata))
    within = (Bound(group="g", level=RACK, required=True),)
    return msgspec.structs.replace(
        request, pod_set=pod_set, asked=topology_request(pod_set), within=within, implied=True
    )


def tries(lab: Lab, request: PlacementRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, int] | None, int]:
    """Where the pods go, and how many times places were looked for."""
    asked: list[object] = []
    place = lab.topologies._place_all

    def counted(requests: Any, *, on_empty: bool) -> Any:
        asked.append(requests)
        return place(requests, on_empty=on_empty)

    monkeypatch.setattr(lab.topologies, "_place_all", counted)
    return lab.main(request), len(asked)


@pytest.mark.parametrize(
    ("closed", "spec"),
    [
        ({"taints": TAINT}, {}),
        ({"labels": {"pool": "bad"}}, {"nodeSelector": {"pool": "good"}}),
        ({}, {"affinity": AFFINITY}),
    ],
    ids=["taint", "selector", "affinity"],
)
def test_no_domain_is_tried_whose_nodes_are_closed_to_the_pods(
    closed: dict[str, Any], spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tries(racks(**closed), bound(ask(2, spec=spec)), monkeypatch) == ({"z": 2}, 2)


def test_taints_that_the_pods_or_the_flavor_tolerate_close_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tolerated = [{"key": "dedicated", "operator": "Exists"}]
    assert tries(racks(taints=TAINT), bound(ask(2, spec={"tolerations": tolerated})), monkeypatch) == ({"a0": 2}, 2)
    lab = racks(taints=TAINT)
    lab.flavor("f", tolerations=tolerated)
    assert tries(lab, bound(ask(2)), monkeypatch) == ({"a0": 2}, 2)


def test_no_domain_is_tried_that_lacks_the_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = racks()
    for at in range(CLOSED):
        lab.topologies.set_gpu_node(gpu_node(f"a{at}", 2, product="NVIDIA T4"))
    lab.topologies.set_gpu_node(gpu_node("z", 2, product="NVIDIA H100"))
    h100 = bound(ask(2), {GPU_PRODUCT: "NVIDIA-H100"})
    assert tries(lab, h100, monkeypatch) == ({"z": 2}, 2)
    lab.hold({"z": 1})
    assert lab.place(h100) == f"no domain of {RACK} has room for subgroup g"


def test_a_domain_has_room_for_as_many_pods_as_fit_its_open_nodes_together() -> None:
    lab = Lab({"b/r/r1": 2, "b/r/r2": 3, "b/s/s1": 4})
    assert lab.main(bound(ask(5))) == {"r1": 2, "r2": 3}
    lab.topologies.set_node(node("b/r/r1", 2, taints=TAINT))
    assert lab.main(bound(ask(5))) is None
    assert lab.main(bound(ask(4))) == {"s1": 4}


def test_pods_that_run_already_keep_their_domain_open() -> None:
    """What they hold is no room for pods, and is theirs."""
    lab = Lab({"b/r/r1": 2})
    lab.hold({"r1": 2})
    places = lab.topologies._fitting_nodes
    request = bound(ask(2))
    assert places(request, on_empty=False) == []
    assert [fitting for _, fitting in places(request, on_empty=True)] == [2]
    assert [fitting for _, fitting in places(bound(ask(2, previous=usage({"r1": 2}))), on_empty=False)] == [2]


def test_kais_gangs_pass_over_domains_that_are_closed_to_their_tasks() -> None:
    nodes = [kai_node(f"{rack}{at}", 1, rack=rack) for rack in "ab" for at in (1, 2)]
    made = gang("g", "q", 2)
    world = session(nodes, [queue("q", 4)], [made])
    tasks = list(made.tasks())
    every = NodeSet(tuple(world.nodes.values()), {})
    constraint = TopologyConstraint(("rack",), required="rack")

    def sets() -> list[list[str]]:
        return [[each.name for each in one.members] for one in node_sets(world, every, constraint, tasks, [])]

    assert sets() == [["a1", "a2"], ["b1", "b2"]]
    for task in tasks:
        task.node_kinds = frozenset(map(NodeName, ("a1", "b1", "b2")))
    assert sets() == [["b1", "b2"]]
    tasks[0].node_kinds = None
    assert sets() == [["a1", "a2"], ["b1", "b2"]], "tasks that differ are left to the trial"
