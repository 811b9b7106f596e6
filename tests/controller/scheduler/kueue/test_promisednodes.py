"""Workloads that await nodes of an autoscaler: they take places that come free, and their nodes are kept for them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Node
from controller.objects.decode import KUEUE, decode_object
from controller.objects.provisioning import PROVISIONING
from controller.objects.workload import AdmissionCheckState, CheckState, PodSetUpdate, Workload
from controller.scheduler.model.config import Consolidation, EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import FLAVORS_GIVEN_UP
from tests.controller.scheduler.topology.test_topology_in_cycles import gang, places, topology
from tests.support.engine.topologylab import RACK, node
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue

CHECK = {
    "kind": "AdmissionCheck",
    "apiVersion": KUEUE,
    "metadata": {"name": "make"},
    "spec": {"controllerName": PROVISIONING},
    "status": {"conditions": [{"type": "Active", "status": "True"}]},
}


def world_of(hosts: dict[str, int], *, on: bool = True, **more: Any) -> World:
    """Queue ``q`` makes nodes by its check, queue ``plain`` does not; both have the same flavor."""
    world = World(EngineConfig(extensions=Extensions(requests_withdrawn=on, **more)))
    checks: dict[str, Any] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "make"}]}}
    world.put(
        decode_object(CHECK),
        topology(),
        flavor("default", topologyName="dc"),
        cluster_queue("q", 100, **checks),
        cluster_queue("plain", 100),
        local_queue("q"),
        local_queue("plain"),
        *(node(path, gpus) for path, gpus in hosts.items()),
    )
    return world


def new(path: str, gpus: int, **more: Any) -> Node:
    """A node that was created after the workloads got their quota."""
    made = node(path, gpus, **more)
    created = datetime.fromtimestamp(NOW_S + 60, UTC)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, creation_timestamp=created))


def said(world: World, state: CheckState, name: str = "w", **update: Any) -> None:
    known = world.workloads[WorkloadKey(f"ns/{name}")]
    updates = (PodSetUpdate(name="main", annotations={"consume": "r"}, **update),) if state == "Ready" else ()
    states = (AdmissionCheckState(name="make", state=state, pod_set_updates=updates),)
    world.put(msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, admission_checks=states)))
    world.settle()


def plain(name: str, count: int, gpus: int = 1) -> Workload:
    made = gang(name, count, gpus, created_s=1)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, queue_name="plain"))


def asking(world: World, name: str = "w", pods: int = 4, gpus: int = 1) -> None:
    """A workload that holds quota and waits for nodes."""
    world.put(gang(name, pods, gpus, RACK))
    world.settle()
    world.now_s += 10.0


def placed(world: World, name: str) -> bool:
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    return admission is not None and all(each.topology_assignment is not None for each in admission.pod_set_assignments)


def holds(world: World, name: str) -> bool:
    return world.workloads[WorkloadKey(f"ns/{name}")].status.admission is not None


def test_a_workload_that_waits_for_its_request_takes_places_that_come_free() -> None:
    world = world_of({"b/r/a": 4})
    world.put(plain("runs", 4))
    world.settle()
    asking(world)
    said(world, "Pending")
    assert not placed(world, "w")
    world.finish("runs")
    world.settle()
    assert places(world, "w") == {"a": 4}
    assert world.condition("w", "Admitted") == "False/UnsatisfiedAdmissionChecks", "its request is to be taken back"


def test_under_kueues_policy_it_waits_for_its_check() -> None:
    world = world_of({"b/r/a": 4}, on=False)
    asking(world)
    said(world, "Pending")
    world.now_s += 60.0
    world.settle()
    assert not placed(world, "w")


def test_a_pass_that_finds_no_places_yet_is_no_failure() -> None:
    world = world_of({"b/r/a": 2})
    asking(world)
    said(world, "Pending")
    for _ in range(5):
        world.now_s += 40.0
        world.settle()
    assert "SecondPassFailed" not in [what for what, _ in world.log]


def test_another_check_that_is_not_ready_comes_before_places() -> None:
    world = world_of({"b/r/a": 4})
    other = {**CHECK, "metadata": {"name": "license"}, "spec": {"controllerName": "example.com/license"}}
    checks: dict[str, Any] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "make"}, {"name": "license"}]}}
    world.put(decode_object(other), cluster_queue("q", 100, **checks))
    asking(world)
    world.now_s += 60.0
    world.settle()
    assert not placed(world, "w")


def test_nodes_that_come_one_by_one_are_kept_for_the_gang_that_they_were_promised_to() -> None:
    world = world_of({})
    asking(world, pods=2, gpus=4)
    said(world, "Ready")
    world.put(new("b/r/n1", 4))
    world.put(plain("small", 1))
    world.now_s += 1.0
    world.settle()
    assert not placed(world, "w")
    assert not holds(world, "small")
    world.put(new("b/r/n2", 4))
    world.settle()
    assert places(world, "w") == {"n1": 1, "n2": 1}


def test_what_the_gang_leaves_is_free_again() -> None:
    world = world_of({})
    asking(world, pods=2, gpus=3)
    said(world, "Ready")
    world.put(new("b/r/n1", 4), plain("small", 1))
    world.settle()
    assert not holds(world, "small")
    world.put(new("b/r/n2", 4))
    world.settle()
    world.now_s += 1.0
    world.settle()
    assert places(world, "small") in ({"n1": 1}, {"n2": 1})


def test_nothing_moves_while_promised_nodes_come() -> None:
    """The node that has come would make room for the wide one, if the narrow one moved there."""
    moves = Consolidation(every_queue=True, minimum_runtime_s=0.0)
    world = world_of({"b/r/a": 4}, consolidation=moves, reserve_for_preemptor=True, no_eviction_cycles=True)
    world.put(plain("narrow", 1))
    world.settle()
    asking(world, pods=2, gpus=4)
    said(world, "Ready")
    world.put(new("b/r/n1", 4), plain("wide", 1, 4))
    world.now_s += 600.0
    world.settle()
    assert world.leaving() == []
    world.finish("w")
    world.settle()
    assert holds(world, "wide"), "the node is free for it now"


def test_a_workload_is_tried_again_without_the_flavor_that_it_gave_up() -> None:
    world = world_of({"b/r/a": 4})
    first, second = flavor("never", topologyName="dc", nodeLabels={"no": "such"}), flavor("default", topologyName="dc")
    world.put(first, second, cluster_queue("two", 100, flavors=("never", "default")), local_queue("two"))
    made = gang("w", 4)
    made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, queue_name="two"))
    notes = msgspec.structs.replace(made.metadata, annotations={FLAVORS_GIVEN_UP: "never,default"})
    world.put(msgspec.structs.replace(made, metadata=notes))
    world.settle()
    assert not holds(world, "w")
    notes = msgspec.structs.replace(made.metadata, annotations={FLAVORS_GIVEN_UP: "never"})
    known = world.workloads[WorkloadKey("ns/w")]
    world.put(msgspec.structs.replace(known, metadata=notes))
    world.settle()
    assert places(world, "w") == {"a": 4}


def test_nodes_from_before_the_promise_are_kept_for_nobody() -> None:
    world = world_of({"b/r/old": 4})
    asking(world, pods=2, gpus=4)
    said(world, "Ready")
    world.put(plain("small", 1))
    world.settle()
    assert places(world, "small") == {"old": 1}


def test_nodes_with_other_labels_than_the_check_added_are_kept_for_nobody() -> None:
    world = world_of({})
    asking(world, pods=2, gpus=4)
    said(world, "Ready", node_selector={"for": "w"})
    world.put(new("b/r/mine", 4, labels={"for": "w"}), new("b/r/other", 4), plain("small", 1))
    world.settle()
    assert places(world, "small") == {"other": 1}


@pytest.mark.parametrize("state", ["Pending", "Retry"])
def test_a_workload_that_nothing_was_promised_to_keeps_no_node(state: CheckState) -> None:
    world = world_of({})
    asking(world, pods=2, gpus=4)
    said(world, state)
    world.put(new("b/r/n1", 4), plain("small", 1))
    world.settle()
    assert places(world, "small") == {"n1": 1}


def test_a_promise_ends_with_the_quota_and_those_that_waited_are_tried_again() -> None:
    world = world_of({})
    asking(world, pods=2, gpus=4)
    said(world, "Ready")
    world.put(new("b/r/n1", 4), plain("small", 1))
    world.settle()
    assert not holds(world, "small")
    world.finish("w")
    world.settle()
    assert places(world, "small") == {"n1": 1}


def test_one_that_only_asked_does_not_take_what_was_promised_to_another() -> None:
    world = world_of({})
    asking(world, "w", pods=2, gpus=4)
    asking(world, "later", pods=1, gpus=4)
    said(world, "Ready", "w")
    said(world, "Pending", "later")
    world.put(new("b/r/n1", 4))
    world.now_s += 30.0
    world.settle()
    assert not placed(world, "later")
    world.put(new("b/r/n2", 4))
    world.settle()
    assert places(world, "w") == {"n1": 1, "n2": 1}


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "promise", "node", "plain", "finish", "wait"]), st.integers(0, 5)), max_size=24
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_no_other_workload_is_ever_placed_on_a_node_that_came_for_one(steps: list[tuple[str, int]]) -> None:
    world = world_of({"b/r/old": 2})
    created: dict[str, float] = {}
    for number, (what, at) in enumerate(steps):
        waiting = {name: reserved(world, name) for name in unplaced(world)}
        before = {name for name in world.running() if holds(world, name) and placed(world, name)}
        _do(world, what, at, number, created)
        world.now_s += 1.0
        world.settle()
        world.engine.validate()
        still = unplaced(world) & waiting.keys()
        for name in world.running() - before:
            if not placed(world, name) or name.startswith("ask"):
                continue
            hosts = [host for host in places(world, name) if host in created]
            kept = [host for host in hosts if any(waiting[one] < created[host] for one in still)]
            assert not kept, f"{name} is on {kept}, for which {sorted(still)} wait"


def unplaced(world: World) -> set[str]:
    """Workloads that were promised nodes and have no places yet."""
    return {key.partition("/")[2] for key in world.engine.state.cluster.promised}


def reserved(world: World, name: str) -> float:
    return world.engine.state.cluster.holders[WorkloadKey(f"ns/{name}")].reserved_at_s


def _do(world: World, what: str, at: int, number: int, created: dict[str, float]) -> None:
    asked = sorted(name for name in world.running() if name.startswith("ask"))
    running = sorted(world.running())
    match what:
        case "ask":
            world.put(gang(f"ask{number}", 1 + at % 2, 2, RACK, created_s=number))
        case "promise" if asked:
            name = asked[at % len(asked)]
            said(world, "Ready", name)
        case "node":
            made = node(f"b/r/n{number}", 2)
            created[f"n{number}"] = world.now_s
            meta = msgspec.structs.replace(made.metadata, creation_timestamp=datetime.fromtimestamp(world.now_s, UTC))
            world.put(msgspec.structs.replace(made, metadata=meta))
        case "plain":
            world.put(plain(f"plain{number}", 1, 1 + at % 2))
        case "finish" if running:
            world.finish(running[at % len(running)])
        case "wait":
            world.now_s += 40.0
