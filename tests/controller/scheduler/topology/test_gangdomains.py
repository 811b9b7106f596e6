"""Trees of gangs in the engine: the subgroups' minimums fit together, each in its domain, or none starts."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import pytest

from controller.objects.core import Node
from controller.objects.workload import PodSet, PodSetTopologyRequest, Workload
from controller.scheduler.model.gangshape import GangShape, Subgroup, written
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.topology.gangdomains import path_bounds, placed_within
from controller.scheduler.topology.nodes import NodeFacts
from controller.scheduler.topology.port import Bound, Placed, PlacementNoFit, PlacementRequest
from controller.scheduler.topology.requests import TopologyRequest
from inventory.api.names import ABOVE_MINIMUM_OF, GANG, SUBGROUP
from tests.support.engine.foreignqueues import asks, evicted, kai_queue, node, rest, volcano_queue
from tests.support.engine.world import World
from tests.support.seeds import histories

ZONE, RACK = "example.com/zone", "example.com/rack"
HOST = "kubernetes.io/hostname"
QUEUES: dict[str, Any] = {"kai": lambda: kai_queue("q", quota=99), "volcano": lambda: volcano_queue("q")}
TWO = (Subgroup(name="a", minimum=3, required_level=RACK), Subgroup(name="b", minimum=3, required_level=RACK))
NESTED = (
    Subgroup(name="decode", required_level=ZONE),
    Subgroup(name="a", parent="decode", minimum=2, required_level=RACK),
    Subgroup(name="b", parent="decode", minimum=2, required_level=RACK),
    Subgroup(name="prefill", minimum=2, required_level=ZONE),
)


def at(name: str, gpus: int = 2) -> Node:
    """``<zone>-<rack>-<node>``."""
    made = node(name, gpus)
    zone, rack, _ = name.split("-")
    labels = {**made.metadata.labels, ZONE: zone, RACK: f"{zone}-{rack}"}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def lab(*nodes: Node, system: str = "kai") -> World:
    world = World()
    world.put(*nodes, QUEUES[system]())
    return world


def gang(name: str, shape: GangShape, counts: dict[str, int], gpus: int = 1, **more: Any) -> Workload:
    """A pod set of so many pods for each leaf, called as it."""
    whole = msgspec.structs.replace(shape, members={leaf: leaf for leaf in counts})
    made = asks(name, "q", gpus, marks={GANG: written(whole)}, **more)
    (one,) = made.spec.pod_sets
    sets = tuple(msgspec.structs.replace(one, name=leaf, count=count) for leaf, count in counts.items())
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


def above(name: str, leaf: str) -> Workload:
    """A pod above the minimum of the gang ``g``."""
    made = asks(name, "q", marks={ABOVE_MINIMUM_OF: "g"}, created_s=9)
    (one,) = made.spec.pod_sets
    metadata = msgspec.structs.replace(one.template.metadata, annotations={SUBGROUP: leaf})
    template = msgspec.structs.replace(one.template, metadata=metadata)
    sets = (msgspec.structs.replace(one, template=template),)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets))


def where(world: World, name: str, level: str = RACK) -> dict[str, Counter[str]]:
    """By pod set the pods in each domain of the level."""
    found: dict[str, Counter[str]] = {}
    for pod_set in world.engine.state.cluster.holders[WorkloadKey(f"ns/{name}")].info.pod_sets:
        assert pod_set.topology is not None
        pods = found.setdefault(pod_set.name, Counter())
        for values, count in pod_set.topology.domains:
            zone, rack, _ = values[-1].split("-")
            pods[zone if level == ZONE else f"{zone}-{rack}"] += count
    return found


def hosts(world: World, name: str) -> set[str]:
    (pod_set,) = world.engine.state.cluster.holders[WorkloadKey(f"ns/{name}")].info.pod_sets
    assert pod_set.topology is not None
    return {domain.values[-1] for domain in pod_set.topology.domains}


def told(world: World, name: str) -> str:
    found = world.engine.explain(WorkloadKey(f"ns/{name}"), world.now_s)
    assert found is not None
    return next(one.message for one in found.status().status.conditions if one.type == "QuotaReserved")


@pytest.mark.parametrize("system", QUEUES)
def test_each_subgroup_lies_in_one_rack(system: str) -> None:
    world = lab(*(at(f"z1-{rack}-{number}") for rack in "rst" for number in (1, 2)), system=system)
    world.put(gang("g", GangShape(groups=TWO), {"a": 3, "b": 3}))
    rest(world)
    assert [len(racks) for racks in where(world, "g").values()] == [1, 1]


@pytest.mark.parametrize("system", QUEUES)
def test_one_subgroup_without_a_rack_keeps_all_of_them_out(system: str) -> None:
    world = lab(at("z1-r-1"), at("z1-r-2"), at("z1-s-1"), at("z1-t-1"), system=system)
    world.put(gang("g", GangShape(groups=TWO), {"a": 3, "b": 3}))
    rest(world)
    assert world.running() == set()
    assert "no domain of example.com/rack has room for subgroup b" in told(world, "g")
    world.put(at("z1-s-2"))
    rest(world)
    assert where(world, "g") == {"a": {"z1-r": 3}, "b": {"z1-s": 3}}


def test_a_parents_domain_holds_all_below_it() -> None:
    # Racks of two GPUs: the first zone has one, the second two.
    world = lab(at("z1-r-1"), at("z1-s-1", 1), at("z2-r-1"), at("z2-s-1"))
    world.put(gang("g", GangShape(groups=NESTED), {"a": 2, "b": 2, "prefill": 2}))
    rest(world)
    found = where(world, "g", ZONE)
    assert found == {"a": {"z2": 2}, "b": {"z2": 2}, "prefill": {"z1": 2}}
    assert {len(racks) for name, racks in where(world, "g").items() if name != "prefill"} == {1}


def test_racks_that_the_first_subgroup_could_have_are_left_to_one_that_has_no_other() -> None:
    world = lab(at("z1-r-1", 3), at("z1-s-1", 2))
    shape = (Subgroup(name="a", minimum=2, required_level=RACK), Subgroup(name="b", minimum=3, required_level=RACK))
    world.put(gang("g", GangShape(groups=shape), {"a": 2, "b": 3}))
    rest(world)
    assert where(world, "g") == {"a": {"z1-s": 2}, "b": {"z1-r": 3}}


def test_the_whole_gang_may_be_bound_beside_its_subgroups() -> None:
    world = lab(*(at(f"z{zone}-{rack}-1") for zone in (1, 2) for rack in "rs"))
    world.put(gang("g", GangShape(required_level=ZONE, groups=TWO[:1]), {"a": 2, "": 2}))
    rest(world)
    assert len({zone for zones in where(world, "g", ZONE).values() for zone in zones}) == 1


@pytest.mark.parametrize("system", QUEUES)
def test_pods_of_no_subgroup_are_bound_as_the_whole_gang_is(system: str) -> None:
    world = lab(*(at(f"z1-{rack}-1", 3) for rack in "rs"), system=system)
    world.put(asks("g", "q", count=4, marks={GANG: written(GangShape(required_level=RACK))}))
    rest(world)
    assert world.running() == set()
    assert told(world, "g").endswith("no domain of example.com/rack has room for the gang")
    world.put(at("z1-s-2"))
    rest(world)
    assert where(world, "g") == {"main": {"z1-s": 4}}


def test_what_is_preferred_is_got_where_it_can_be_and_else_goes_without() -> None:
    wish = GangShape(groups=(Subgroup(name="a", minimum=3, required_level=ZONE, preferred_level=RACK),))
    near = lab(at("z1-r-1"), at("z1-s-1"), at("z1-s-2"))
    near.put(gang("g", wish, {"a": 3}))
    rest(near)
    assert where(near, "g") == {"a": {"z1-s": 3}}
    far = lab(at("z1-r-1"), at("z1-s-1"), at("z2-s-1"))
    far.put(gang("g", wish, {"a": 3}))
    rest(far)
    assert where(far, "g", ZONE) == {"a": {"z1": 3}}


def test_a_group_that_is_below_itself_is_no_group_and_ends_nothing() -> None:
    world = lab(at("z1-r-1"))
    world.put(asks("g", "q", marks={GANG: '{"groups":[{"name":""}]}'}))
    rest(world)
    assert world.running() == {"g"}


def test_full_domains_before_the_free_one_cost_no_tries() -> None:
    world = lab(*(at(f"z1-r-{number:03}", 1) for number in range(270)), at("z1-r-300", 2))
    world.put(gang("g", GangShape(required_level=HOST), {"": 2}))
    rest(world)
    assert hosts(world, "g") == {"z1-r-300"}


def fake(pod_set: str, *within: Bound) -> PlacementRequest:
    made = gang("g", GangShape(), {pod_set: 1}).spec.pod_sets[0]
    return PlacementRequest(
        pod_set=made, asked=TopologyRequest(), count=1, flavor=FlavorName("f"), single_pod={}, within=within
    )


@cache
def racks(count: int) -> list[tuple[NodeFacts, int]]:
    return [(NodeFacts(at(f"z1-{rack:04}-1"), {}, {}), 1) for rack in range(count)]


def search(requests: list[PlacementRequest], count: int, good: Any) -> tuple[Any, int]:
    """``good`` says by the racks of the requests, None for any, whether these have places."""
    asked: list[list[str | None]] = []

    def place(given: Sequence[PlacementRequest]) -> Placed | PlacementNoFit:
        asked.append([request.pod_set.template.spec.node_selector.get(RACK) for request in given])
        return Placed({}) if good(asked[-1]) else PlacementNoFit(given[0].pod_set.name, "full")

    return placed_within(requests, lambda _: racks(count), place), len(asked)


STRICT, WISH = Bound(group="", level=RACK, required=True), Bound(group="", level=RACK, required=False)


def test_domains_without_room_are_no_tries() -> None:
    found, asked = search([fake("a", STRICT)], 300, lambda racks: racks == ["z1-0299"])
    assert (isinstance(found, Placed), asked) == (True, 301)


@pytest.mark.parametrize("fruitless", [True, False])
def test_a_wish_keeps_no_gang_out_however_many_domains_there_are(fruitless: bool) -> None:
    requests = [fake("a", WISH), fake("b")]
    found, asked = search(requests, 1100, lambda racks: racks[0] is None or (not fruitless and len(racks) == 1))
    assert (isinstance(found, Placed), asked) == (True, 1025 if fruitless else 513)


@pytest.mark.parametrize(("fruitless", "tries"), [(True, 1024), (False, 512)])
def test_a_strict_bound_is_tried_so_often_at_most(fruitless: bool, tries: int) -> None:
    requests = [fake("a", STRICT), fake("b")]
    found, asked = search(requests, 1100, lambda racks: not fruitless and len(racks) == 1)
    assert isinstance(found, PlacementNoFit)
    assert (found.problem, asked) == (f"no domain of {RACK} has room for the gang, after 256 tries", tries)


def test_a_pods_own_node_selector_stands() -> None:
    world = lab(at("z1-r-1"), at("z1-s-1"))
    made = gang("g", GangShape(required_level=RACK), {"": 2})
    (one,) = made.spec.pod_sets
    spec = msgspec.structs.replace(one.template.spec, node_selector={RACK: "z1-s"})
    template = msgspec.structs.replace(one.template, spec=spec)
    sets = (msgspec.structs.replace(one, template=template),)
    world.put(msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=sets)))
    rest(world)
    assert where(world, "g") == {"": {"z1-s": 2}}


def test_a_pod_above_the_minimum_joins_its_own_subgroups_rack() -> None:
    world = lab(at("z1-r-1", 3), at("z1-s-1", 4))
    shape = (Subgroup(name="a", minimum=2, required_level=RACK), Subgroup(name="b", minimum=2, required_level=RACK))
    world.put(gang("g", GangShape(groups=shape), {"a": 2, "b": 2}))
    rest(world)
    ((home, _),) = where(world, "g")["b"].items()
    used = sum((where(world, "g")[leaf] for leaf in "ab"), Counter[str]())
    for number in range(4):
        world.put(above(f"g-{number}", "b"))
    rest(world)
    joined = world.running() - {"g"}
    assert len(joined) == {"z1-r": 3, "z1-s": 4}[home] - used[home]
    assert {rack for name in joined for rack in where(world, name)["main"]} == {home}


def on_one_host(gpus: int, *, name: str = "main", count: int = 1) -> PodSet:
    (made,) = asks("any", "q", gpus).spec.pod_sets
    return msgspec.structs.replace(made, name=name, count=count, topology_request=PodSetTopologyRequest(required=HOST))


def of(made: Workload, *pod_sets: PodSet) -> Workload:
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, pod_sets=pod_sets))


def test_a_pod_above_the_minimum_is_bound_to_the_domain_of_its_own_role() -> None:
    """Without one that asks for the same it is bound to none."""
    world = lab(at("z1-r-1", 2), at("z1-r-2", 8))
    world.put(of(asks("g", "q"), on_one_host(1, name="a", count=2), on_one_host(4, name="b")))
    rest(world)
    world.put(at("z1-r-3", 5))
    for name, gpus in (("like-b", 4), ("like-a", 1), ("other", 3)):
        world.put(of(asks(name, "q", marks={ABOVE_MINIMUM_OF: "g"}, created_s=9), on_one_host(gpus)))
        rest(world)
    assert world.running() == {"g", "like-b", "other"}
    assert (hosts(world, "like-b"), hosts(world, "other")) == ({"z1-r-2"}, {"z1-r-3"})


def test_victims_leave_a_rack_for_a_subgroup_and_none_leaves_in_vain() -> None:
    world = World()
    world.put(at("z1-r-1", 2), at("z1-r-2", 2), kai_queue("d", quota=4), kai_queue("q", "d", quota=4))
    world.put(kai_queue("p", "d"))
    for number in range(4):
        world.put(asks(f"old{number}", "p", created_s=number))
    rest(world)
    world.put(gang("never", GangShape(groups=TWO), {"a": 3, "b": 3}, created_s=20))
    rest(world)
    assert evicted(world) == []
    world.put(gang("g", GangShape(groups=TWO[:1]), {"a": 3}, created_s=21))
    rest(world)
    assert len(evicted(world)) == 3
    assert where(world, "g") == {"a": {"z1-r": 3}}


def test_an_annotation_that_is_not_the_controllers_binds_nothing() -> None:
    world = lab(at("z1-r-1"))
    world.put(asks("g", "q", 2, marks={GANG: "nonsense"}))
    rest(world)
    assert world.running() == {"g"}


def test_the_path_of_a_leaf_goes_from_the_outermost_in_and_ends_in_a_circle() -> None:
    shape = GangShape(required_level="dc", groups=NESTED)
    assert path_bounds(shape, "a") == (
        Bound(group="", level="dc", required=True),
        Bound(group="decode", level=ZONE, required=True),
        Bound(group="a", level=RACK, required=True),
    )
    circle = (Subgroup(name="x", parent="y", required_level=RACK), Subgroup(name="y", parent="x"))
    assert path_bounds(GangShape(groups=circle), "x") == (Bound(group="x", level=RACK, required=True),)


@histories(1, 2)
def test_no_history_breaks_a_subgroups_domain_or_starts_half_a_tree(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"z{zone}-{rack}-{number}" for zone in (1, 2) for rack in "rs" for number in (1, 2)]
    world = lab(*(at(name, 3) for name in names), system=rng.choice(list(QUEUES)))
    shapes = (GangShape(groups=NESTED), GangShape(groups=TWO), GangShape(required_level=RACK))
    for number in range(6):
        shape = rng.choice(shapes)
        counts = {leaf.name: rng.randint(1, 3) for leaf in shape.leaves} or {"": rng.randint(1, 5)}
        world.put(gang(f"g{number}", shape, counts, rng.choice((1, 2)), created_s=number))
        rest(world)
        for name in sorted(world.running()):
            said = {each.name: each.count for each in world.workloads[WorkloadKey(f"ns/{name}")].spec.pod_sets}
            racks, zones = where(world, name), where(world, name, ZONE)
            assert {pod_set: sum(pods.values()) for pod_set, pods in racks.items()} == said
            assert all(len(pods) == 1 for pod_set, pods in racks.items() if pod_set != "prefill")
            assert all(len(pods) == 1 for pods in zones.values())
            assert "prefill" not in zones or zones["a"].keys() == zones["b"].keys()
            if rng.random() < 0.4:
                world.finish(name)
