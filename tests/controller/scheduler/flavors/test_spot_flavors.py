"""A job, or its ClusterQueue, may keep to flavors whose nodes no provider takes away."""

from typing import Any

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.objects.core import SPOT_LABELS
from controller.objects.meta import KubernetesObject
from controller.objects.workload import Workload
from controller.scheduler.flavors.spot import floor_of, floor_problem
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ON_DEMAND_FLOOR, SPOT
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

TWO = ("spot", "fixed")


def noted(made: Any, word: str | None) -> Any:
    notes = {} if word is None else {SPOT: word}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=notes))


def world_of(*, labels: dict[str, str], of_queue: str | None = None, on: bool = True) -> World:
    world = World(EngineConfig(extensions=Extensions(spot_words=on)))
    queue: KubernetesObject = noted(cluster_queue("q", flavors=TWO), of_queue)
    world.put(flavor("spot", nodeLabels=labels), flavor("fixed"), queue, local_queue("q"))
    return world


def given(world: World, name: str, word: str | None) -> str:
    """The flavor that a job with this word gets."""
    made: Workload = noted(workload(name, "q"), word)
    world.put(made)
    world.settle()
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    return "" if admission is None else str(admission.pod_set_assignments[0].flavors["gpu"])


@pytest.mark.parametrize("label", SPOT_LABELS.items())
def test_a_flavor_is_spot_by_the_label_of_its_provider(label: tuple[str, str]) -> None:
    world = world_of(labels=dict([label]))
    assert given(world, "any", None) == "spot"
    assert given(world, "safe", "never") == "fixed"
    assert given(world, "cheap", "allowed") == "spot"


def test_a_site_may_have_a_label_of_its_own_for_spot() -> None:
    labels = {"site.example/lifecycle": "Ec2Spot"}
    world = World(EngineConfig(extensions=Extensions(spot_words=True, spot_labels=tuple(labels.items()))))
    world.put(flavor("spot", nodeLabels=labels), flavor("fixed"), cluster_queue("q", flavors=TWO), local_queue("q"))
    assert given(world, "safe", "never") == "fixed"
    assert given(world, "any", None) == "spot"


def test_the_word_of_the_job_counts_before_that_of_its_queue() -> None:
    world = world_of(labels={"karpenter.sh/capacity-type": "spot"}, of_queue="never")
    assert given(world, "as-the-queue", None) == "fixed"
    assert given(world, "own", "allowed") == "spot"
    world.put(noted(cluster_queue("q", flavors=TWO), None))
    assert given(world, "later", None) == "spot", "the queue has changed its word"


def test_a_flavor_on_demand_is_open_to_all() -> None:
    world = world_of(labels={"karpenter.sh/capacity-type": "on-demand"})
    assert given(world, "safe", "never") == "spot"


def test_under_kueues_policy_the_word_is_none() -> None:
    world = world_of(labels={"karpenter.sh/capacity-type": "spot"}, on=False)
    assert given(world, "safe", "never") == "spot"


# -- an order, and a floor ---------------------------------------------------------------------------------------------

LABEL = {"karpenter.sh/capacity-type": "spot"}
EIGHT = 8


def annotated(made: Any, **notes: str) -> Any:
    found = {f"tessera.dev/{name.replace('_', '-')}": text for name, text in notes.items()}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=found))


def with_floor(floor: str, *, of_local: bool = False) -> World:
    """Eight GPUs on spot, which is tried first, and eight on demand."""
    world = World(EngineConfig(extensions=Extensions(spot_words=True)))
    world.put(flavor("spot", nodeLabels=LABEL), flavor("fixed"), local_queue("other", "q"))
    queue, local = cluster_queue("q", EIGHT, flavors=TWO), local_queue("q")
    world.put(queue if of_local else annotated(queue, on_demand_floor=floor))
    world.put(annotated(local, on_demand_floor=floor) if of_local else local)
    return world


def flavor_of(world: World, name: str) -> str:
    admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
    return "" if admission is None else str(admission.pod_set_assignments[0].flavors["gpu"])


@pytest.mark.parametrize(("text", "part"), [("25%", 0.25), ("0%", 0.0), ("100%", 1.0), ("12.5%", 0.125)])
def test_a_floor_is_a_percentage(text: str, part: float) -> None:
    assert (floor_of({ON_DEMAND_FLOOR: text}), floor_problem({ON_DEMAND_FLOOR: text})) == (part, "")


@pytest.mark.parametrize("text", ["25", "101%", "-1%", "", "a%", "1 %"])
def test_anything_else_is_refused(text: str) -> None:
    assert 'expected a percentage from "0%" to "100%"' in floor_problem({ON_DEMAND_FLOOR: text})
    assert floor_of({ON_DEMAND_FLOOR: text}) == 0.0
    assert floor_problem({}) == ""


def test_who_prefers_spot_gets_it_though_it_is_the_queues_last_flavor() -> None:
    world = World(EngineConfig(extensions=Extensions(spot_words=True)))
    world.put(flavor("spot", nodeLabels=LABEL), flavor("fixed"), local_queue("q"))
    world.put(cluster_queue("q", EIGHT, flavors=("fixed", "spot")))
    for number, (word, wanted) in enumerate((("preferred", "spot"), (None, "fixed"), ("preferred", "spot"))):
        assert given(world, f"w{number}", word) == wanted
    world.put(workload("fills", "q", gpus=6))
    world.settle()
    assert given(world, "large", "preferred") == "spot"
    world.put(annotated(local_queue("q"), spot="preferred"))
    assert given(world, "by-its-local-queue", None) == "spot"


@pytest.mark.parametrize("of_local", [False, True])
def test_a_part_of_a_queues_gpus_stays_on_demand(*, of_local: bool) -> None:
    world = with_floor("25%", of_local=of_local)
    for name, gpus, wanted in (
        ("first", 1, "fixed"),
        ("second", 3, "spot"),
        ("third", 1, "fixed"),
        ("last", 3, "spot"),
    ):
        world.put(workload(name, "q", gpus=gpus))
        world.settle()
        assert flavor_of(world, name) == wanted, name
    world.put(workload("through-another", "other", gpus=2))
    world.settle()
    assert flavor_of(world, "through-another") == ("spot" if of_local else "fixed")


def test_what_goes_on_demand_opens_spot_to_who_waits() -> None:
    world = with_floor("50%")
    world.put(workload("large", "q", gpus=4), workload("waits", "q", gpus=5, created_s=1))
    world.settle()
    assert flavor_of(world, "waits") == "", "4 of 9 GPUs are not half of them"
    assert given(world, "safe", "never") == "fixed"
    assert flavor_of(world, "waits") == "spot"


def test_a_floor_that_keeps_spot_from_a_workload_is_said() -> None:
    world = with_floor("50%")
    world.put(workload("large", "q", gpus=8), workload("waits", "q", gpus=9, created_s=1))
    world.settle()
    said = [one.message for one in world.workloads[WorkloadKey("ns/waits")].status.conditions]
    assert any("flavor spot is spot, and tessera.dev/on-demand-floor would not be kept" in one for one in said), said


def test_a_floor_that_is_taken_away_lets_go_who_waited_for_it() -> None:
    world = with_floor("100%")
    world.put(workload("first", "q", gpus=8), workload("waits", "q", gpus=8, created_s=1))
    world.settle()
    assert flavor_of(world, "waits") == ""
    world.put(cluster_queue("q", EIGHT, flavors=TWO))
    world.settle()
    assert flavor_of(world, "waits") == "spot"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("come", "safe", "go")), st.integers(0, 5), st.integers(1, 5), st.sampled_from(("q", "other"))
    ),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@drawn(st.sampled_from(("10%", "25%", "50%", "100%")), st.booleans(), STEPS)
def test_in_any_order_floors_are_kept_and_nobody_waits_who_may_go(
    floor: str,
    of_local: bool,
    steps: list[tuple[str, int, int, str]],
) -> None:
    """The model knows the workloads alone: those of the queue with the floor, their GPUs, and where they are."""
    world, part = with_floor(floor, of_local=of_local), float(floor[:-1]) / 100
    sizes: dict[str, tuple[int, str]] = {}
    safe: set[str] = set()
    on: dict[str, str] = {}
    for kind, number, gpus, through in steps:
        name = f"w{number}"
        if kind != "go" and name not in sizes:
            sizes[name] = (gpus, through)
            safe = safe | {name} if kind == "safe" else safe - {name}
            world.put(noted(workload(name, through, gpus=gpus), "never" if kind == "safe" else None))
        elif kind == "go" and name in sizes:
            world.delete(name)
            del sizes[name]
        world.settle()
        world.engine.validate()
        before, on = on, {each: flavor_of(world, each) for each in sizes}
        mine = [each for each in sizes if not of_local or sizes[each][1] == "q"]
        held = {one: sum(sizes[each][0] for each in mine if on[each] == one) for one in TWO}
        if any(on[each] == "spot" != before.get(each) for each in mine):
            assert held["fixed"] >= part * (held["fixed"] + held["spot"]) - 1e-9
        free = {one: EIGHT - sum(sizes[each][0] for each in sizes if on[each] == one) for one in TWO}
        for each in (each for each in sizes if not on[each]):
            more = sizes[each][0]
            opens = each not in mine or held["fixed"] >= part * (held["fixed"] + held["spot"] + more) - 1e-9
            assert more > free["fixed"], each
            assert more > free["spot"] or not opens or each in safe, each
        assert all(on[each] != "spot" for each in sizes if each in safe)
