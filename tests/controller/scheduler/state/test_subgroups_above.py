"""Subgroups above a gang's minimum in the engine: whole or not there, beside the minimum, first to go."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from controller.objects.workload import PodSet, Workload
from controller.scheduler.decisions.evictionstatus import evicted as evicted_status
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.turn.gangmodel import GangModel
from controller.scheduler.model.gangshape import GangShape, Subgroup, written
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ABOVE_MINIMUM_OF, GANG, SUBGROUP
from tests.controller.scheduler.topology.test_gangdomains import RACK, ZONE, at, where
from tests.support.engine.foreignqueues import GPU, asks, evicted, kai_queue, node, rest, volcano_queue
from tests.support.engine.world import World
from tests.support.seeds import histories

SYSTEMS: dict[str, Callable[[], Any]] = {"kai": lambda: kai_queue("q", quota=4), "volcano": lambda: volcano_queue("q")}


def unit(name: str, of: str, pods: int = 2, *, leaf: str = "", level: str = "", created_s: int = 9) -> Workload:
    """A subgroup above the minimum of the gang ``of``, or a pod above it."""
    shape = GangShape(groups=(Subgroup(name=leaf, minimum=pods, required_level=level),), members={"main": leaf})
    marks = {ABOVE_MINIMUM_OF: of, **({GANG: written(shape)} if leaf and pods > 1 else {})}
    made = asks(name, "q", count=pods, marks=marks, created_s=created_s)
    return msgspec.structs.replace(
        made,
        spec=msgspec.structs.replace(made.spec, pod_sets=tuple(in_leaf(each, leaf) for each in made.spec.pod_sets)),
    )


def in_leaf(pod_set: PodSet, leaf: str) -> PodSet:
    if not leaf:
        return pod_set
    metadata = msgspec.structs.replace(pod_set.template.metadata, annotations={SUBGROUP: leaf})
    return msgspec.structs.replace(pod_set, template=msgspec.structs.replace(pod_set.template, metadata=metadata))


def lab(system: str, gpus: int) -> World:
    world = World()
    world.put(node("n1", gpus), SYSTEMS[system]())
    world.put(asks("g", "q", count=2, created_s=1))
    return world


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_subgroup_joins_as_a_whole_and_its_pods_above_after_it(system: str) -> None:
    world = lab(system, 3)
    rest(world)
    world.put(unit("g-b", "g"), unit("g-b-3", "g-b", 1, created_s=10))
    rest(world)
    assert world.running() == {"g"}, "one GPU is free, and it needs two"
    world.put(node("n2", 1))
    rest(world)
    assert world.running() == {"g", "g-b"}
    world.put(node("n3", 2))
    rest(world)
    assert world.running() == {"g", "g-b", "g-b-3"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_minimum_takes_all_along_that_is_above_it_however_far(system: str) -> None:
    world = lab(system, 6)
    rest(world)
    world.put(unit("g-b", "g"), unit("g-b-3", "g-b", 1, created_s=10))
    rest(world)
    assert len(world.running()) == 3
    world.put(evicted_status(world.workloads[WorkloadKey("ns/g")], "PodsReadyTimeout", "late", now_s=world.now_s))
    world.cycle()
    assert sorted(evicted(world)) == ["g-b", "g-b-3"], "in one cycle"


def test_a_subgroup_that_leaves_takes_its_own_pods_along_and_leaves_the_minimum() -> None:
    world = lab("kai", 6)
    rest(world)
    world.put(unit("g-b", "g"), unit("g-b-3", "g-b", 1, created_s=10))
    rest(world)
    world.put(evicted_status(world.workloads[WorkloadKey("ns/g-b")], "PodsReadyTimeout", "late", now_s=world.now_s))
    world.settle()
    assert evicted(world) == ["g-b-3"]


def test_what_two_workloads_say_of_each_other_ends_nothing() -> None:
    world = lab("kai", 6)
    world.put(unit("a", "b"), unit("b", "a"), unit("c", "c"))
    rest(world)
    assert world.running() == {"g"}


def test_of_a_kai_gang_pods_go_first_then_subgroups_then_all_of_it() -> None:
    world = World()
    world.put(node("n1", 5), kai_queue("q"), kai_queue("other", quota=5))
    world.put(asks("g", "q", count=2, created_s=1))
    rest(world)
    world.put(unit("g-2", "g", 1, created_s=2), unit("g-b", "g", created_s=3))
    rest(world)
    assert world.running() == {"g", "g-2", "g-b"}
    left: list[set[str]] = []
    for count in (1, 1, 3):
        world.put(asks(f"o{len(left)}", "other", count=count, created_s=20))
        rest(world)
        left.append(world.running() - {f"o{number}" for number in range(3)})
    assert left == [{"g", "g-b"}, {"g", "g-2"}, set()], "of what a subgroup leaves, a pod may come back"


def test_a_kai_gang_gets_pods_first_and_a_subgroup_where_it_has_room_as_a_whole() -> None:
    world = World()
    world.put(node("n1", 4), kai_queue("q", quota=9))
    world.put(asks("g", "q", count=2, created_s=1))
    rest(world)
    world.put(unit("g-b", "g", created_s=2), unit("g-2", "g", 1, created_s=3))
    rest(world)
    assert world.running() == {"g", "g-2"}
    world.put(node("n2", 1))
    rest(world)
    assert world.running() == {"g", "g-2", "g-b"}


def test_workloads_of_a_gang_are_one_for_kai_and_each_subgroup_a_part_of_it() -> None:
    world = lab("kai", 8)
    rest(world)
    world.put(unit("g-b", "g"))
    rest(world)
    world.put(unit("g-b-3", "g-b", 1, created_s=10))
    rest(world)
    cluster = world.engine.state.cluster
    model = GangModel(cluster, None)
    for name in ("g", "g-b", "g-b-3"):
        model.hold(cluster.holders[WorkloadKey(f"ns/{name}")], QueueName("q"))
    (gang,) = model.gangs.values()
    assert [(each.name, each.minimum, each.whole) for each in gang.pod_sets.values()] == [
        ("0", 2, ""),
        ("above/ns/g-b/0", 2, "ns/g-b"),
        ("above", 0, ""),
    ]
    assert model.with_above([WorkloadKey("ns/g")]) == ["ns/g", "ns/g-b", "ns/g-b-3"]
    assert model.with_above([WorkloadKey("ns/g-b")]) == ["ns/g-b", "ns/g-b-3"]
    assert (gang.is_satisfied, gang.is_ready, gang.elasticity()) == (True, True, 1)


def test_a_subgroup_lies_where_the_minimum_is_bound_and_its_own_pods_where_it_is() -> None:
    world = World()
    world.put(*(at(f"z{zone}-{rack}-1", 3) for zone in (1, 2) for rack in "rst"), kai_queue("q", quota=99))
    groups = (Subgroup(name="a", minimum=2, required_level=RACK), Subgroup(name="b", minimum=2, required_level=RACK))
    shape = GangShape(required_level=ZONE, groups=groups, members={"main": "a"})
    made = asks("g", "q", count=2, marks={GANG: written(shape)}, created_s=1)
    world.put(made)
    rest(world)
    ((zone, _),) = where(world, "g", ZONE)["main"].items()
    world.put(unit("g-b", "g", leaf="b", level=RACK))
    rest(world)
    assert where(world, "g-b", ZONE) == {"main": {zone: 2}}
    ((rack, _),) = where(world, "g-b")["main"].items()
    world.put(unit("g-b-3", "g-b", 1, leaf="b", created_s=10), unit("g-b-4", "g-b", 1, leaf="b", created_s=11))
    rest(world)
    joined = world.running() - {"g", "g-b"}
    assert joined
    assert all(where(world, name) == {"main": {rack: 1}} for name in joined)


def test_pods_of_a_subgroup_without_a_level_lie_where_the_minimum_is_bound() -> None:
    world = World()
    world.put(at("z1-r-1", 6), at("z2-r-1", 8), kai_queue("q", quota=99))
    world.put(asks("g", "q", count=2, marks={GANG: written(GangShape(required_level=ZONE))}, created_s=1))
    rest(world)
    ((zone, _),) = where(world, "g", ZONE)["main"].items()
    world.put(unit("g-b", "g"), unit("g-b-3", "g-b", 1, created_s=10))
    rest(world)
    assert where(world, "g-b", ZONE) == {"main": {zone: 2}}
    assert where(world, "g-b-3", ZONE) == {"main": {zone: 1}}


@histories(1, 2, 3)
def test_no_history_breaks_a_floor_or_a_level(seed: int) -> None:
    """The engine's ``validate`` looks at floors after each cycle."""
    rng = random.Random(seed)
    world = World()
    make: Callable[[str], Any] = rng.choice(
        [lambda name: kai_queue(name, quota=6), lambda name: volcano_queue(name, deserved={GPU: "6"})]
    )
    world.put(*(at(f"z{zone}-{rack}-1", 3) for zone in (1, 2) for rack in "rs"), make("q"), make("o"))
    marks = {GANG: written(GangShape(required_level=ZONE))}
    for number in range(16):
        gang = f"g{rng.randint(0, 2)}"
        known = {key.removeprefix("ns/") for key in world.workloads}
        if gang not in known:
            world.put(asks(gang, "q", count=2, marks=marks, created_s=number))
        elif f"{gang}-b" not in known:
            world.put(unit(f"{gang}-b", gang, leaf="b", level=RACK, created_s=number))
        elif rng.random() < 0.5:
            world.put(unit(f"{gang}-b-{number}", f"{gang}-b", 1, leaf="b", created_s=number))
        else:
            world.put(asks(f"o{number}", "o", rng.choice((1, 2)), created_s=number))
        rest(world)
        for name in world.running():
            above = name.rpartition("-")[0]
            if name.startswith("g") and above:
                assert above in world.running()
                level = ZONE if above.startswith("g") and "-" not in above else RACK
                assert where(world, name, level)["main"].keys() == where(world, above, level)["main"].keys()
            assert not name.endswith("-b") or len(where(world, name)["main"]) == 1
