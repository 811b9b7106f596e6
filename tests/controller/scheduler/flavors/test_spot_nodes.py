"""Spot nodes and others in one flavor: a job keeps off, or comes to spot first, and floors count nodes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.objects.core import SPOT_LABELS, Node
from controller.objects.workload import Workload
from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import NODE_TEMPLATE, ON_DEMAND_FLOOR, SPOT
from tests.controller.scheduler.topology.test_topology_in_cycles import gang, lose, places, topology
from tests.support.engine.topologylab import GPU, RACK, node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

ON_SPOT = {"karpenter.sh/capacity-type": "spot"}
NOT_THEIRS = "of spot capacity, which is not for them (tessera.dev/spot, tessera.dev/on-demand-floor)"
RULES = Extensions(spot_words=True, coming_nodes=True, requests_withdrawn=True)


def noted(made: Any, **notes: str | None) -> Any:
    names = {"spot": SPOT, "floor": ON_DEMAND_FLOOR, "template": NODE_TEMPLATE}
    annotations = {names[name]: text for name, text in notes.items() if text is not None}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))


def mixed(
    on_spot: dict[str, int], safe: dict[str, int], *, rules: Extensions = RULES, fair: bool = False, **notes: str | None
) -> World:
    """A world of one flavor with nodes of both kinds, by path; ``notes``: those of the ClusterQueue."""
    world = World(EngineConfig(extensions=rules, fair_sharing=FairSharing() if fair else None))
    world.put(topology(), flavor("default", topologyName="dc"), noted(cluster_queue("q", 100, cohort="c"), **notes))
    world.put(local_queue("q"), local_queue("other", "q"))
    world.put(*(node(path, gpus, labels=ON_SPOT) for path, gpus in on_spot.items()))
    world.put(*(node(path, gpus) for path, gpus in safe.items()))
    return world


def beside_another(world: World) -> World:
    """The world with a queue of the same cohort, whose share is higher and whose jobs fit: those of q come before one
    of it, several in a cycle where shares are compared after each.
    """
    world.put(flavor("free"), cluster_queue("lends", 100, cohort="c", flavors=("free",)))
    world.put(cluster_queue("p", 1, cohort="c", flavors=("free",)), local_queue("p"))
    for number in range(3):
        world.put(workload(f"holds{number}", "p", 1))
        world.settle()
    return world


def on(world: World, name: str) -> dict[str, int]:
    """The pods of a workload by node; none while it waits."""
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    placed = admission is not None and admission.pod_set_assignments[0].topology_assignment is not None
    return places(world, name) if placed else {}


def said(world: World, name: str) -> str:
    return " ".join(each.message for each in world.workloads[WorkloadKey(f"ns/{name}")].status.conditions)


def asked(world: World, made: Workload, word: str | None = None) -> dict[str, int]:
    world.put(noted(made, spot=word))
    world.settle()
    world.engine.validate()
    return on(world, made.metadata.name)


@pytest.mark.parametrize("label", SPOT_LABELS.items())
def test_a_job_that_never_takes_spot_is_placed_on_the_other_nodes_of_its_flavor(label: tuple[str, str]) -> None:
    world = mixed({}, {"b/r/z": 4})
    world.put(node("b/r/a", 8, labels=dict([label])))
    assert asked(world, workload("safe", "q", 4), "never") == {"z": 1}
    assert asked(world, workload("late", "q", 1), "never") == {}
    assert NOT_THEIRS in said(world, "late")
    assert asked(world, workload("any", "q", 4)) == {"a": 1}


def test_a_sites_own_label_tells_a_nodes_kind_too() -> None:
    rules = msgspec.structs.replace(RULES, spot_labels=(("site.example/kind", "cheap"),))
    world = mixed({}, {"b/r/z": 4}, rules=rules)
    world.put(node("b/r/a", 4, labels={"site.example/kind": "cheap"}))
    assert asked(world, workload("one", "q", 1), "never") == {"z": 1}


def test_without_the_words_all_nodes_of_a_flavor_are_alike() -> None:
    world = mixed({"b/r/a": 1}, {"b/r/z": 4}, rules=Extensions())
    assert asked(world, workload("one", "q", 1), "never") == {"a": 1}


def test_the_word_of_a_queue_counts_for_nodes_too() -> None:
    world = mixed({"b/r/a": 1}, {"b/r/z": 4}, spot="never")
    assert asked(world, workload("one", "q", 1)) == {"z": 1}
    world.put(noted(local_queue("other", "q"), spot="allowed"))
    assert asked(world, workload("two", "other", 1)) == {"a": 1}


def test_a_gang_that_prefers_spot_goes_there_as_a_whole_or_anywhere() -> None:
    world = mixed({"b/r/s": 2, "b/t/t": 2}, {"b/r/z": 2})
    assert asked(world, gang("rack", 2, 2, RACK), "preferred") == {"s": 1, "z": 1}, "its rack goes before spot"
    assert asked(world, workload("one", "q", 2), "preferred") == {"t": 1}
    other = mixed({"b/r/s": 4}, {"b/r/a": 2, "b/t/b": 2})
    assert asked(other, workload("tight", "q", 2), "preferred") == {"s": 1}, "though a node on demand is tighter"
    assert asked(other, gang("pair", 2, 2, RACK), "preferred") == {"s": 1, "a": 1}
    assert asked(other, workload("last", "q", 2), "preferred") == {"b": 1}


@pytest.mark.parametrize("of_local", [False, True])
def test_a_floor_counts_the_nodes_of_a_flavor(*, of_local: bool) -> None:
    world = mixed({"b/r/a": 8}, {"b/r/z": 8}, floor=None if of_local else "25%")
    if of_local:
        world.put(noted(local_queue("q"), floor="25%"))
    for name, gpus, wanted in (("first", 1, "z"), ("second", 3, "a"), ("third", 1, "z"), ("last", 3, "a")):
        assert asked(world, workload(name, "q", gpus)) == {wanted: 1}, name


def test_what_is_placed_on_demand_opens_spot_nodes_to_who_waits() -> None:
    world = mixed({"b/r/a": 8}, {"b/r/z": 6}, floor="50%")
    assert asked(world, workload("large", "q", 4)) == {"z": 1}
    assert asked(world, workload("waits", "q", 5, created_s=1)) == {}
    assert NOT_THEIRS in said(world, "waits")
    assert asked(world, workload("more", "q", 2, created_s=2), "never") == {"z": 1}
    assert on(world, "waits") == {"a": 1}


def test_a_node_that_turns_to_spot_counts_as_spot_from_then_on() -> None:
    world = mixed({"b/r/a": 8}, {"b/r/z": 4, "b/r/y": 4}, floor="50%")
    assert asked(world, workload("first", "q", 4)) == {"y": 1}
    world.put(node("b/r/y", 4, labels=ON_SPOT))
    assert asked(world, workload("second", "q", 4)) == {"z": 1}


def test_pods_of_a_lost_node_are_placed_by_the_word_of_their_job() -> None:
    world = mixed({"b/r/a": 4}, {"b/r/z": 2})
    assert asked(world, gang("safe", 2, 1, RACK), "never") == {"z": 2}
    world.put(node("b/r/y", 2))
    lose(world, "safe", "z")
    world.settle()
    assert on(world, "safe") == {"y": 2}


def test_a_job_that_waits_for_nodes_counts_on_none_of_spot() -> None:
    world = mixed({"b/r/a": 4}, {})
    world.put(noted(flavor("default", topologyName="dc"), template=json.dumps({"allocatable": {GPU: "4"}, "max": 3})))
    assert asked(world, workload("safe", "q", 4), "never") == {}
    assert WorkloadKey("ns/safe") in world.engine.state.cluster.coming
    assert asked(world, workload("any", "q", 4)) == {"a": 1}
    world.put(node("b/r/new", 4))
    world.now_s += 60
    world.settle()
    assert on(world, "safe") == {"new": 1}
    world.engine.validate()


def test_what_waits_for_its_nodes_is_not_on_demand_yet() -> None:
    world = mixed({"b/r/a": 4}, {}, floor="50%")
    world.put(noted(flavor("default", topologyName="dc"), template=json.dumps({"allocatable": {GPU: "4"}, "max": 3})))
    assert asked(world, workload("first", "q", 4)) == {}
    assert asked(world, workload("second", "q", 4, created_s=1)) == {}, "the first may be spot for all that is known"
    world.put(node("b/r/new", 4))
    world.now_s += 60
    world.settle()
    assert on(world, "first") == {"new": 1}
    assert asked(world, workload("third", "q", 4, created_s=2)) == {}


FAIR = msgspec.structs.replace(RULES, exact_fair_sharing=True)


def test_two_of_one_queue_that_start_in_one_cycle_keep_their_floor_together() -> None:
    world = beside_another(mixed({"b/r/a": 8}, {"b/r/z": 4}, rules=FAIR, fair=True, floor="50%"))
    assert asked(world, workload("first", "q", 4)) == {"z": 1}
    world.put(*(workload(name, "q", 4, created_s=at) for at, name in enumerate(("second", "third"), 1)))
    world.put(workload("last", "p", 1))
    world.settle()
    assert [on(world, name) for name in ("second", "third")] == [{"a": 1}, {}]


SPOTS, SAFES = {"b/r/a": 4, "b/s/b": 4}, {"b/r/y": 4, "b/s/z": 4}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("come", "come", "come", "safe", "fond", "go", "lose", "back")),
        st.integers(0, 9),
        st.sampled_from((1, 2, 4, 4)),
        st.integers(1, 2),
        st.sampled_from(("q", "other")),
    ),
    min_size=1,
    max_size=25,
)


class Model:
    """What may be, from the workloads alone: their words, their GPUs, and the nodes of their pods."""

    def __init__(self, part: float, *, of_local: bool) -> None:
        self.part, self.of_local = part, of_local
        self.sizes: dict[str, tuple[int, int, str]] = {}
        self.safe: set[str] = set()
        self.gone: set[str] = set()
        self._before: dict[str, dict[str, int]] = {}

    def come(self, name: str, kind: str, size: tuple[int, int, str]) -> None:
        self.sizes[name] = size
        self.safe = self.safe | {name} if kind == "safe" else self.safe - {name}

    def check(self, now: dict[str, dict[str, int]]) -> None:
        new = {each for each in now if now[each] and now[each] != self._before.get(each)}
        assert all(now[each].keys() <= {"y", "z"} for each in new & self.safe), now
        mine = {each for each in self.sizes if not self.of_local or self.sizes[each][2] == "q"}
        held = [(at, self.sizes[each][0] * pods) for each in mine for at, pods in now[each].items()]
        every = sum(gpus for _, gpus in held)
        fixed = sum(gpus for at, gpus in held if at in "yz" and at not in self.gone)
        if any(now[each].keys() & {"a", "b"} for each in new & mine):
            assert fixed >= self.part * every - 1e-9, now
        self._before = now
        for each in (each for each in self.sizes if not now[each]):
            size, count, _ = self.sizes[each]
            opens = each not in mine or fixed >= self.part * (every + size * count) - 1e-9
            open_to = "abyz" if opens and each not in self.safe else "yz"
            room = sum((4 - self._used(now, at)) // size for at in open_to if at not in self.gone)
            assert room < count, f"{each} waits, and {room} of its pods have room"

    def _used(self, now: dict[str, dict[str, int]], at: str) -> int:
        return sum(self.sizes[each][0] * where.get(at, 0) for each, where in now.items())


@settings(deadline=None, max_examples=60)
@drawn(st.sampled_from((None, "25%", "50%", "100%")), st.booleans(), st.booleans(), STEPS)
def test_whatever_comes_and_goes_no_pod_is_where_its_word_forbids_and_floors_are_kept(
    floor: str | None, of_local: bool, fair: bool, steps: list[tuple[str, int, int, int, str]]
) -> None:
    world = mixed(SPOTS, SAFES, rules=FAIR if fair else RULES, fair=fair, floor=None if of_local else floor)
    world = beside_another(world) if fair else world
    if of_local and floor is not None:
        world.put(noted(local_queue("q"), floor=floor))
    model = Model(float((floor or "0%")[:-1]) / 100, of_local=of_local)
    paths = {path.split("/")[-1]: path for path in (*SPOTS, *SAFES)}
    for at, (kind, number, gpus, pods, through) in enumerate(steps):
        if fair:
            world.put(workload(f"beside{at}", "p", 1))
        name, host = f"w{number}", "abyz"[number % 4]
        if kind in ("come", "safe", "fond") and name not in model.sizes:
            model.come(name, kind, (gpus, pods, through))
            word = {"safe": "never", "fond": "preferred", "come": None}[kind]
            world.put(noted(workload(name, through, gpus, count=pods), spot=word))
        elif kind == "go" and name in model.sizes:
            world.delete(name)
            del model.sizes[name]
        elif kind == "lose" and host not in model.gone:
            model.gone.add(host)
            world.drop(Node, f"/{host}")
        elif kind == "back" and host in model.gone:
            model.gone.discard(host)
            world.put(node(paths[host], 4, labels=ON_SPOT if paths[host] in SPOTS else None))
        world.settle()
        world.engine.validate()
        model.check({each: on(world, each) for each in model.sizes})
