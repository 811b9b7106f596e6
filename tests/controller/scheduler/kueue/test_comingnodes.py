"""Nodes that can come: a workload that fits with them gets its quota and waits, and nothing is promised twice."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import Node
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.decisions.reasons import NODES_DID_NOT_COME
from controller.scheduler.kueue.comingnodes import coming_places
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import PodSetRequests
from inventory.api.names import NODE_TEMPLATE, PLACEHOLDER_CLASS, PLACEHOLDER_OF
from tests.controller.scheduler.topology.test_topology_in_cycles import gang, places, topology
from tests.support.engine.topologylab import GPU, HOST, RACK, node, pod
from tests.support.engine.world import World, cluster_queue, flavor, local_queue

TEMPLATE: dict[str, Any] = {"allocatable": {GPU: "4"}, "max": 4, "after": "4m"}


def templated(name: str = "default", given_: dict[str, Any] | None = None, **spec: Any) -> KubernetesObject:
    made = flavor(name, topologyName="dc", **spec)
    notes = {NODE_TEMPLATE: json.dumps(TEMPLATE if given_ is None else given_)}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=notes))


def world_of(hosts: dict[str, int], *, on: bool = True, quota: int = 100, **template: Any) -> World:
    world = World(EngineConfig(extensions=Extensions(requests_withdrawn=on, coming_nodes=on)))
    world.put(
        topology(),
        templated(given_=TEMPLATE | template),
        cluster_queue("q", quota, preemption={"withinClusterQueue": "LowerPriority"}),
        local_queue("q"),
        *(node(path, gpus) for path, gpus in hosts.items()),
    )
    return world


def asking(world: World, name: str, pods: int, gpus: int = 4, level: str = HOST, **more: Any) -> None:
    made = gang(name, pods, gpus, level, **more)
    if level == HOST:
        made = anywhere(made)
    world.put(made)
    world.settle()


def anywhere(made: Workload) -> Workload:
    asked = msgspec.structs.replace(made.spec.pod_sets[0], topology_request=None)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=(asked,)))


def holds(world: World, name: str) -> bool:
    return world.workloads[WorkloadKey(f"ns/{name}")].status.admission is not None


def waits(world: World, name: str) -> bool:
    return WorkloadKey(f"ns/{name}") in world.engine.state.cluster.coming


def counted(world: World, name: str) -> tuple[int, int]:
    """The nodes that a workload counts on, and how many of them are to come."""
    found = coming_places(world.engine.state.cluster)[WorkloadKey(f"ns/{name}")]
    return sum(len(each.nodes) for each in found), sum(len(each.nodes_to_come) for each in found)


def ahead(world: World, seconds: float = 60.0) -> None:
    world.now_s += seconds
    world.settle()


def test_a_gang_that_fits_with_nodes_to_come_gets_its_quota_and_waits() -> None:
    world = world_of({"b/r/a": 4})
    asking(world, "w", 3)
    assert holds(world, "w")
    assert world.condition("w", "Admitted").startswith("False")
    assert waits(world, "w")
    assert counted(world, "w") == (3, 2), "the node that is there comes first"
    world.engine.validate()


def test_it_is_placed_exactly_on_the_nodes_that_came() -> None:
    world = world_of({"b/r/a": 4})
    asking(world, "w", 3)
    world.put(node("b/r/n1", 4))
    ahead(world)
    assert not placed(world, "w")
    assert counted(world, "w") == (3, 1)
    world.put(node("b/s/n2", 4))
    ahead(world)
    assert places(world, "w") == {"a": 1, "n1": 1, "n2": 1}
    assert world.condition("w", "Admitted").startswith("True")
    assert not waits(world, "w")
    world.engine.validate()


def placed(world: World, name: str) -> bool:
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    return admission is not None and all(each.topology_assignment is not None for each in admission.pod_set_assignments)


def test_one_that_even_all_nodes_to_come_do_not_hold_gets_no_quota() -> None:
    world = world_of({"b/r/a": 4}, max=3)
    asking(world, "w", 4)
    assert not holds(world, "w")


def test_nodes_that_are_there_count_against_the_most() -> None:
    world = world_of({"b/r/a": 4, "b/r/b": 4}, max=3)
    asking(world, "w", 4)
    assert not holds(world, "w")
    asking(world, "less", 3)
    assert counted(world, "less") == (3, 1)


def test_without_the_feature_it_waits_for_quota_alone() -> None:
    world = world_of({"b/r/a": 4}, on=False)
    asking(world, "w", 3)
    assert not holds(world, "w")


def test_a_node_counts_as_come_once_it_offers_what_the_template_says() -> None:
    """Its GPUs are advertised after it has joined: until then the node to come stands for it."""
    world = world_of({}, max=1)
    asking(world, "w", 1)
    world.put(node("b/r/n1", 0))
    ahead(world)
    assert counted(world, "w") == (1, 1)
    world.put(node("b/r/n1", 4))
    ahead(world)
    assert places(world, "w") == {"n1": 1}


def test_nothing_is_promised_twice() -> None:
    world = world_of({}, max=3)
    asking(world, "first", 2)
    asking(world, "second", 2)
    assert holds(world, "first")
    assert not holds(world, "second"), "one node is left to come"
    asking(world, "third", 1)
    assert waits(world, "third")


def test_two_that_are_decided_in_one_cycle_are_not_promised_the_same() -> None:
    world = world_of({}, max=3)
    world.put(cluster_queue("q2", 100), local_queue("q2"))
    one, other = anywhere(gang("one", 2, 4)), anywhere(gang("other", 2, 4))
    other = msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, queue_name="q2"))
    world.put(one, other)
    world.settle()
    assert sorted([holds(world, "one"), holds(world, "other")]) == [False, True]


def test_a_free_place_beside_the_nodes_to_come_is_kept_too() -> None:
    world = world_of({"b/r/a": 4})
    asking(world, "w", 4)
    asking(world, "small", 1, 1)
    assert not holds(world, "small"), "the free node and all that can come are counted on"


def test_a_node_that_comes_is_kept_for_the_first_that_waits() -> None:
    world = world_of({})
    asking(world, "w", 2)
    ahead(world, 1.0)
    world.put(node("b/r/n1", 4))
    asking(world, "later", 1)
    ahead(world)
    assert not placed(world, "later")
    assert counted(world, "w") == (2, 1)
    world.put(node("b/r/n2", 4))
    ahead(world)
    assert places(world, "w") == {"n1": 1, "n2": 1}


def test_a_higher_priority_of_the_same_queue_does_not_wait_behind_a_promise() -> None:
    world = world_of({"b/r/a": 4}, max=2)
    asking(world, "low", 2)
    assert counted(world, "low") == (2, 1)
    asking(world, "high", 1, priority=10)
    assert places(world, "high") == {"a": 1}
    assert waits(world, "low"), "it keeps its quota, and what is left of its time"
    world.put(cluster_queue("q2", 100), local_queue("q2"))
    world.finish("high")
    world.settle()
    other = anywhere(gang("other", 1, 4, priority=10))
    world.put(msgspec.structs.replace(other, spec=msgspec.structs.replace(other.spec, queue_name="q2")))
    world.settle()
    assert not holds(world, "other"), "what was promised to one queue is not taken by another"


def test_nobody_is_preempted_for_a_place_that_a_node_to_come_gives() -> None:
    world = world_of({"b/r/a": 4})
    asking(world, "low", 1)
    asking(world, "high", 1, priority=10)
    assert waits(world, "high")
    assert world.leaving() == []


def test_it_takes_places_that_come_free_meanwhile() -> None:
    world = world_of({"b/r/a": 4})
    asking(world, "runs", 1)
    asking(world, "w", 1)
    assert waits(world, "w")
    world.finish("runs")
    world.settle()
    assert places(world, "w") == {"a": 1}


def test_a_rack_may_be_required_only_where_the_template_says_which() -> None:
    alone = world_of({})
    asking(alone, "w", 2, level=RACK)
    assert not holds(alone, "w"), "two nodes that come may be in two racks"
    known = world_of({}, labels={RACK: "r", "dc/block": "b"})
    asking(known, "w", 2, level=RACK)
    assert waits(known, "w")


def test_taints_of_the_template_keep_pods_away() -> None:
    world = world_of({}, taints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}])
    asking(world, "w", 1)
    assert not holds(world, "w")
    world.put(
        templated(
            given_=TEMPLATE | {"taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]},
            tolerations=[{"key": "spot", "operator": "Exists"}],
        )
    )
    world.settle()
    assert waits(world, "w")


def test_a_template_that_changes_counts_at_once() -> None:
    world = world_of({}, max=1)
    asking(world, "w", 2)
    assert not holds(world, "w")
    world.put(templated(given_=TEMPLATE | {"max": 2}))
    world.settle()
    assert waits(world, "w")
    world.engine.validate()


def test_an_engine_made_anew_keeps_the_same() -> None:
    world = world_of({"b/r/a": 4})
    asking(world, "w", 3)
    before = coming_places(world.engine.state.cluster)
    objects = [*world.others.values(), *world.workloads.values()]
    world.engine.rebuild(objects, world.now_s)
    world.engine.cycle(world.now_s)
    assert coming_places(world.engine.state.cluster) == before


def given_up(world: World, name: str) -> None:
    """The nodes of the workload did not come in time."""
    known = world.workloads[WorkloadKey(f"ns/{name}")]
    world.put(evicted(known, NODES_DID_NOT_COME, "they did not come", now_s=world.now_s))


def test_after_nodes_that_did_not_come_the_next_flavor_is_tried() -> None:
    world = world_of({})
    world.put(
        templated("second", nodeLabels={"pool": "second"}), cluster_queue("q", 100, flavors=("default", "second"))
    )
    asking(world, "w", 2)
    assert used(world, "w") == {"default"}
    given_up(world, "w")
    world.stop_evicted()
    world.settle()
    assert used(world, "w") == {"second"}


def test_a_flavor_whose_nodes_did_not_come_is_tried_again_after_a_while_that_doubles() -> None:
    world = world_of({})
    asking(world, "w", 2)
    for wait_s in (300.0, 600.0):
        given_up(world, "w")
        world.stop_evicted()
        world.settle()
        assert not holds(world, "w")
        ahead(world, wait_s - 1.0)
        assert not holds(world, "w")
        ahead(world, 2.0)
        assert waits(world, "w")


def test_a_node_that_comes_ends_the_back_off() -> None:
    world = world_of({})
    asking(world, "w", 2)
    given_up(world, "w")
    world.stop_evicted()
    world.settle()
    world.put(node("b/r/n1", 4))
    world.settle()
    assert waits(world, "w")


def used(world: World, name: str) -> set[str]:
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    assert admission is not None
    return {flavor for each in admission.pod_set_assignments for flavor in each.flavors.values()}


@pytest.mark.parametrize("priority_class", [PLACEHOLDER_CLASS, "high"])
def test_a_placeholder_takes_no_room_of_the_pods_that_it_stands_for(priority_class: str) -> None:
    world = world_of({"b/r/a": 4})
    stands = pod("placeholder", "a", 4, labels={PLACEHOLDER_OF: "uid"})
    spec = msgspec.structs.replace(stands.spec, priority_class_name=priority_class)
    world.put(msgspec.structs.replace(stands, spec=spec))
    asking(world, "w", 1)
    assert placed(world, "w") == (priority_class == PLACEHOLDER_CLASS), "a stranger's pod with the label counts"


def test_a_template_that_cannot_be_read_counts_as_none() -> None:
    world = world_of({})
    world.put(templated(given_={"max": "many"}))
    asking(world, "w", 1)
    assert not holds(world, "w")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "node", "half", "lose", "finish", "late", "wait", "template"]), st.integers(0, 5)
    ),
    max_size=24,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_no_capacity_is_ever_promised_twice(steps: list[tuple[str, int]]) -> None:
    """Pods that are placed, and those that count on nodes to come, fit together into all of these nodes."""
    world = world_of({"b/r/old": 4}, max=4)
    most = 4
    for number, (what, at) in enumerate(steps):
        most = _do(world, what, at, number, most)
        world.now_s += 1.0
        world.settle()
        world.engine.validate()
        cluster = world.engine.state.cluster
        coming = max(0, most - len(_nodes(world)))
        asked: dict[str, int] = {}
        for holder in cluster.holders.values():
            for pod_set in holder.info.pod_sets:
                for domain in pod_set.topology.domains if pod_set.topology is not None else ():
                    asked[domain.values[-1]] = asked.get(domain.values[-1], 0) + domain.pods * _gpus(pod_set)
        taken = dict(asked)
        for found in coming_places(cluster).values():
            for place in found:
                for domain in place.usage.domains:
                    name = domain.values[-1]
                    asked[name] = asked.get(name, 0) + domain.pods * place.usage.single_pod[GPU]
        new = {name for name in asked if "/" in name}
        assert len(new) <= coming, f"{sorted(new)} of {coming}"
        over = {name: used_ for name, used_ in asked.items() if used_ > 4 and used_ > taken.get(name, 0)}
        assert not over


def _gpus(pod_set: PodSetRequests) -> int:
    return pod_set.topology.single_pod[GPU] if pod_set.topology is not None else 0


def _nodes(world: World) -> list[str]:
    """The nodes that offer GPUs."""
    nodes = (each for each in world.others.values() if isinstance(each, Node))
    return [each.metadata.name for each in nodes if each.status.allocatable[GPU].nanos > 0]


def _do(world: World, what: str, at: int, number: int, most: int) -> int:
    running = sorted(world.running())
    waiting = sorted(key.partition("/")[2] for key in world.engine.state.cluster.coming)
    match what:
        case "ask":
            made = gang(f"w{number}", 1 + at % 3, 1 + at, created_s=number) if at < 4 else gang(f"w{number}", 2, 4)
            world.put(anywhere(made))
        case "node":
            world.put(node(f"b/r{at % 2}/n{number}", 4))
        case "half":
            world.put(node(f"b/r{at % 2}/n{number}", 0))
        case "lose":
            lost = sorted(key for kind, key in world.others if kind is Node)
            if lost:
                world.drop(Node, lost[at % len(lost)])
        case "finish" if running:
            world.finish(running[at % len(running)])
        case "late" if waiting:
            given_up(world, waiting[at % len(waiting)])
            world.stop_evicted()
        case "wait":
            world.now_s += 300.0
        case "template":
            most = 1 + at
            world.put(templated(given_=TEMPLATE | {"max": most}))
    return most
