"""The example on the page of second passes is what the engine does."""

import re
from pathlib import Path

import msgspec
import pytest

from controller.objects.core import Node
from controller.objects.decode import KUEUE, decode_object
from controller.objects.placeencoding import decode as decode_places
from controller.objects.workload import PodSetTopologyRequest, UnhealthyNode
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.topologylab import BLOCK, HOST, RACK, node
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload
from tests.support.pagetables import numbers, table

PAGE = Path(__file__).resolve().parents[3] / "docs/scheduler/second-passes.md"
NODES, EVENTS = table(PAGE, "node"), table(PAGE, "at")
LEVELS = {"rack": RACK, "node": HOST}
FAIL_FAST = "TASFailedNodeReplacementFailFast"


def data_centre(*, fail_fast: bool) -> World:
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
    world = World(EngineConfig(gates=FeatureGates({FAIL_FAST: fail_fast})))
    world.put(
        decode_object(
            {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "dc"}, "spec": {"levels": levels}}
        ),
        flavor("default", topologyName="dc"),
        cluster_queue("q", 100),
        local_queue("q"),
        *(node(f"b1/{row['rack']}/{row['node']}", int(row["GPUs"])) for row in NODES),
    )
    return world


def happens(world: World, event: str) -> None:
    if arrives := re.fullmatch(r"(\w+) arrives: (\d+) pods, one (\w+)", event):
        name, pods, level = arrives.groups()
        made = workload(name, "q", 1, count=int(pods), created_s=len(world.workloads))
        asked = PodSetTopologyRequest(required=LEVELS[level])
        sets = (msgspec.structs.replace(made.spec.pod_sets[0], topology_request=asked),)
        world.put(msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets)))
    elif lost := re.fullmatch(r"node (\w+) is lost", event):
        world.engine.drop(Node, "", lost[1], world.now_s)
        train = world.workloads[WorkloadKey("ns/train")]
        status = msgspec.structs.replace(train.status, unhealthy_nodes=(UnhealthyNode(name=lost[1]),))
        world.put(msgspec.structs.replace(train, status=status))
    elif ends := re.fullmatch(r"(\w+) ends", event):
        world.finish(ends[1])
    else:
        assert event == "time passes"


def places(world: World) -> dict[str, int]:
    admission = world.workloads[WorkloadKey("ns/train")].status.admission
    assert admission is not None
    found = admission.pod_set_assignments[0].topology_assignment
    assert found is not None
    return {values[-1]: pods for values, pods in decode_places(found)}


def due(world: World) -> str:
    passes = world.engine.state.notes.passes.values()
    return ", ".join(f"{each.due_s - NOW_S:.0f}" for each in passes) or "-"


@pytest.mark.parametrize("fail_fast", [False, True])
def test_a_second_pass_ends_as_the_page_says(fail_fast: bool) -> None:
    world = data_centre(fail_fast=fail_fast)
    for row in EVENTS:
        world.now_s = NOW_S + float(row["at"])
        happens(world, row["event"])
        before = len(world.log)
        used = world.engine.state.cluster.queues
        quota = {name: queue.node.used() for name, queue in used.items()}
        world.settle()
        made = ", ".join(kind for kind, _ in world.log[before:]) or "-"
        if fail_fast and "SecondPassFailed" in row["decisions"]:
            assert made == "Evicted"
            assert world.condition("train", "Evicted") == "True/NodeFailures"
            return
        assert (row["at"], made, places(world), due(world)) == (
            row["at"],
            row["decisions"],
            numbers(row["train on"]),
            row["due"],
        )
        if row["event"] == "time passes":
            assert {name: queue.node.used() for name, queue in used.items()} == quota
    assert not fail_fast
