"""Gangs with domains of their own: no two of a namespace share one, whenever and in whatever queue they are decided."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.objects.core import NodeSelectorTerm
from controller.objects.meta import LabelSelectorRequirement
from controller.objects.workload import Workload
from controller.scheduler.model.gangshape import GangShape, Subgroup, written
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.topology.gangdomains import exclusive_levels, outside
from inventory.api.names import GANG
from tests.controller.scheduler.topology.test_topology_in_cycles import LOWER, places, world_of
from tests.support.engine.topologylab import BLOCK, HOST, RACK
from tests.support.engine.world import World, cluster_queue, local_queue, workload

TWO_RACKS = {"b1/r1/h1": 4, "b1/r1/h2": 4, "b1/r2/h3": 4, "b1/r2/h4": 4}


def alone(name: str, count: int = 2, level: str = RACK, queue: str = "q", **more: Any) -> Workload:
    """A gang that is to be alone in one domain of the level."""
    shape = GangShape(required_level=level, exclusive=True)
    return workload(name, queue, count=count, annotations={GANG: written(shape)}, **more)


def racks(world: World, *names: str) -> list[set[str]]:
    known = {host: rack for rack, host in (path.split("/")[1:] for path in TWO_RACKS)}
    return [{known[host] for host in places(world, name)} for name in names]


def test_a_second_gang_gets_a_rack_of_its_own_and_a_third_waits_for_one() -> None:
    world = world_of(TWO_RACKS)
    world.put(alone("a"), alone("b", created_s=1), alone("c", created_s=2))
    world.settle()
    first, second = racks(world, "a", "b")
    assert first.isdisjoint(second)
    assert world.running() == {"a", "b"}, "there is room beside each of them"
    world.finish("a")
    world.settle()
    assert world.running() == {"b", "c"}
    assert racks(world, "c") == [first]


def test_what_has_no_domain_of_its_own_shares_that_of_another() -> None:
    world = world_of(dict.fromkeys(list(TWO_RACKS)[:2], 4))
    plain = workload("plain", "q", count=2, annotations={GANG: written(GangShape(required_level=RACK))})
    world.put(alone("a"), plain, workload("other", "q", count=2))
    world.settle()
    assert world.running() == {"a", "plain", "other"}


def test_gangs_of_two_queues_that_are_decided_in_one_cycle_are_apart() -> None:
    world = world_of(TWO_RACKS)
    world.put(cluster_queue("p", 100), local_queue("p"))
    world.put(alone("a"), alone("b", queue="p"))
    world.cycle()
    world.settle()
    assert world.running() == {"a", "b"}
    first, second = racks(world, "a", "b")
    assert first.isdisjoint(second)


def test_a_gang_of_another_namespace_is_beside_it() -> None:
    """The affinities that keep groups apart are of one namespace."""
    world = world_of({"b1/r1/h1": 4})
    here, there = alone("a"), alone("b")
    queue = local_queue("q")
    world.put(here, *(elsewhere(each) for each in (queue, there)))
    world.settle()
    assert world.running() == {"a", "b"}


def elsewhere(given_: Any) -> Any:
    metadata = msgspec.structs.replace(given_.metadata, namespace="other")
    return msgspec.structs.replace(given_, metadata=metadata)


def test_levels_of_both_count_where_they_differ() -> None:
    """One is alone in its rack, the other on its host: the second stays out of the first one's rack, and before the
    first was there it would not have come into the rack of the second.
    """
    world = world_of(TWO_RACKS)
    world.put(alone("host", count=1, level=HOST))
    world.settle()
    world.put(alone("rack"))
    world.settle()
    one, two = racks(world, "host", "rack")
    assert one.isdisjoint(two)
    world.put(alone("late", count=1, level=HOST))
    world.settle()
    assert racks(world, "late") == [one]
    assert places(world, "late").keys().isdisjoint(places(world, "host"))


def test_subgroups_of_one_gang_are_apart_from_each_other() -> None:
    world = world_of(TWO_RACKS)
    groups = tuple(Subgroup(name=name, required_level=RACK, exclusive=True) for name in ("a", "b"))
    shape = GangShape(groups=groups, members={"main": "a", "more": "b"})
    world.put(two_sets("g", shape))
    world.settle()
    assert world.running() == {"g"}
    first, second = (set(places(world, "g", at)) for at in (0, 1))
    assert {host in ("h1", "h2") for host in first} != {host in ("h1", "h2") for host in second}


def two_sets(name: str, shape: GangShape) -> Workload:
    made = workload(name, "q", count=2, annotations={GANG: written(shape)})
    (one,) = made.spec.pod_sets
    sets = (one, msgspec.structs.replace(one, name="more"))
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


def test_a_gang_preempts_nobody_for_a_domain_of_its_own() -> None:
    world = world_of(dict.fromkeys(list(TWO_RACKS)[:2], 4), preemption=LOWER)
    world.put(alone("low", priority=1))
    world.settle()
    world.put(alone("high", priority=9))
    world.settle()
    assert world.running() == {"low"}
    world.finish("low")
    world.settle()
    assert world.running() == {"high"}


def test_its_own_rules_for_nodes_stand() -> None:
    (pod_set,) = workload("a", "q").spec.pod_sets
    kept = outside(pod_set, {RACK: {"r2", "r1"}, BLOCK: {"b"}})
    expected = (
        LabelSelectorRequirement(key=BLOCK, operator="NotIn", values=("b",)),
        LabelSelectorRequirement(key=RACK, operator="NotIn", values=("r1", "r2")),
    )
    assert terms(kept) == (NodeSelectorTerm(match_expressions=expected),)
    twice = outside(kept, {HOST: {"h"}})
    assert [len(term.match_expressions) for term in terms(twice)] == [3]
    assert outside(pod_set, {}) is pod_set


def terms(pod_set: Any) -> tuple[NodeSelectorTerm, ...]:
    found = pod_set.template.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return tuple(found.node_selector_terms)


ASKED = st.tuples(
    st.integers(1, 5),
    st.sampled_from([RACK, HOST]),
    st.sampled_from(["q", "p"]),
    st.booleans(),
    st.none() | st.integers(0, 5),
)
"""Pods, level and queue of a gang; whether all is settled then, and which of those that run ends."""


@settings(max_examples=25, deadline=None)
@given(st.lists(ASKED, min_size=2, max_size=6))
def test_no_two_of_them_ever_share_a_rack(asked: list[tuple[int, str, str, bool, int | None]]) -> None:
    world = world_of(TWO_RACKS)
    world.put(cluster_queue("p", 100), local_queue("p"))
    for number, (count, level, queue, settles, ends) in enumerate(asked):
        world.put(alone(f"g{number}", count, level, queue, created_s=number))
        if settles:
            world.settle()
        running = sorted(world.running())
        if running and ends is not None:
            world.finish(running[ends % len(running)])
    world.settle()
    there = sorted(world.running())
    for at, one in enumerate(there):
        for other in there[at + 1 :]:
            both = (world.workloads[WorkloadKey(f"ns/{name}")] for name in (one, other))
            levels = frozenset[str]().union(*map(exclusive_levels, both))
            assert places(world, one).keys().isdisjoint(places(world, other))
            if RACK in levels:
                first, second = racks(world, one, other)
                assert first.isdisjoint(second)
