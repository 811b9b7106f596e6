"""Flavors that are tried by what an hour of their nodes costs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.insight.explain import explained
from controller.objects.meta import KubernetesObject
from controller.objects.queues import ClusterQueue, ResourceFlavor
from controller.people.page.queuerows import tree_rows
from controller.scheduler.model.config import EngineConfig, Extensions, InterruptionRules
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.quota.prices import (
    by_price,
    calm_first,
    hourly_price,
    interruption_rate,
    is_interrupted_often,
    price_problem,
)
from inventory.api.names import FLAVOR_ORDER, HOURLY_PRICE, INTERRUPTED_OFTEN, INTERRUPTION_RATE, SPOT
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

NAMES = ("a", "b", "c")


def noted(made: KubernetesObject, **notes: str | None) -> Any:
    kept = {key: value for key, value in notes.items() if value is not None}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=kept))


def priced(name: str, price: str | None) -> ResourceFlavor:
    made: ResourceFlavor = noted(flavor(name), **{HOURLY_PRICE: price})
    return made


def queue(order: str | None = "hourly-price", nominal: int = 1) -> ClusterQueue:
    made: ClusterQueue = noted(cluster_queue("q", nominal, flavors=NAMES), **{FLAVOR_ORDER: order})
    return made


def world_of(order: str | None = "hourly-price", *, on: bool = True, **prices: str) -> World:
    world = World(EngineConfig(extensions=Extensions(priced_flavors=on)))
    world.put(*(priced(name, prices.get(name)) for name in NAMES), queue(order), local_queue("q"))
    return world


def used(world: World, count: int = 3) -> list[str]:
    """The flavors that one job after the other gets, each of one GPU."""
    found = []
    for _ in range(count):
        world.arrived += 1
        name = f"w{world.arrived}"
        world.put(workload(name, "q", created_s=world.arrived))
        world.settle()
        admission = world.workloads[WorkloadKey(f"ns/{name}")].status.admission
        assert admission is not None
        found.append(str(admission.pod_set_assignments[0].flavors["gpu"]))
    return found


def test_the_cheapest_comes_first_and_one_without_a_price_last() -> None:
    assert used(world_of(a="12.5", c="3")) == ["c", "a", "b"]


def test_without_the_word_of_the_queue_the_order_of_its_spec_counts() -> None:
    assert used(world_of(None, a="12.5", c="3")) == ["a", "b", "c"]
    assert used(world_of("other", a="12.5", c="3")) == ["a", "b", "c"]
    assert used(world_of(a="12.5", c="3", on=False)) == ["a", "b", "c"]


def test_a_price_that_changes_counts_at_once() -> None:
    world = world_of(a="1", b="2", c="3")
    assert used(world, 1) == ["a"]
    world.put(priced("c", "0.5"))
    assert used(world, 1) == ["c"]
    world.put(priced("c", "3"))
    world.finish("w1")
    assert used(world, 2) == ["a", "b"], "equals, and others, come as the spec has them"


def test_a_queue_that_takes_its_word_back_has_its_own_order_again() -> None:
    world = world_of(a="3", b="2", c="1")
    world.put(queue(None))
    assert used(world) == ["a", "b", "c"]


@pytest.mark.parametrize("text", ["dear", "-1", "1e3", "", "1,5"])
def test_what_is_no_price_counts_as_none_and_is_told(text: str) -> None:
    assert hourly_price(priced("a", text)) == float("inf")
    assert HOURLY_PRICE in price_problem({HOURLY_PRICE: text})
    assert price_problem({HOURLY_PRICE: "12.5"}) == price_problem({}) == ""


@given(st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_nothing_but_the_order_changes(prices: list[int]) -> None:
    flavors = {FlavorName(name): priced(name, str(price)) for name, price in zip(NAMES, prices, strict=True)}
    (before,), (after,) = queue().spec.resource_groups, by_price(queue(), flavors).spec.resource_groups
    assert sorted(each.name for each in after.flavors) == [each.name for each in before.flavors]
    assert [each.name for each in after.flavors] == sorted(NAMES, key=lambda name: prices[NAMES.index(name)])


# -- interruptions -----------------------------------------------------------------------------------------------------

SPOT_LABELS = {"karpenter.sh/capacity-type": "spot"}


def world_of_interrupted(
    *often: str, order: str | None = None, on: bool = True, prices: dict[str, str] | None = None
) -> World:
    """One GPU on each of three flavors; nodes of those in ``often`` are taken away too often."""
    rules = InterruptionRules() if on else None
    world = World(EngineConfig(extensions=Extensions(priced_flavors=True, spot_words=True, interruptions=rules)))
    for name in NAMES:
        world.put(interrupted(name, often=name in often, price=(prices or {}).get(name)))
    world.put(queue(order), local_queue("q"))
    return world


def interrupted(name: str, *, often: bool = True, price: str | None = None, **spec: Any) -> ResourceFlavor:
    rate = {INTERRUPTION_RATE: "3.20", INTERRUPTED_OFTEN: "3.20"} if often else {INTERRUPTION_RATE: "0.50"}
    made: ResourceFlavor = noted(flavor(name, **spec), **{HOURLY_PRICE: price, **rate})
    return made


def test_a_flavor_that_is_interrupted_too_often_comes_last_and_is_taken_all_the_same() -> None:
    assert used(world_of_interrupted("a")) == ["b", "c", "a"]
    assert used(world_of_interrupted("a", "b")) == ["c", "a", "b"]
    assert used(world_of_interrupted("a", "b", "c")) == ["a", "b", "c"], "then none is better than another"
    assert used(world_of_interrupted("a", on=False)) == ["a", "b", "c"]


def test_prices_decide_among_those_that_are_interrupted_alike() -> None:
    prices = {"a": "1", "b": "3", "c": "2"}
    assert used(world_of_interrupted("a", order="hourly-price", prices=prices)) == ["c", "b", "a"]
    assert used(world_of_interrupted("a", "b", order="hourly-price", prices=prices)) == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("word", "wanted"),
    [("preferred", ["b", "a", "c"]), ("allowed", ["b", "c", "a"]), ("never", ["c"])],
)
def test_the_words_on_spot_count_before_interruptions(word: str, wanted: list[str]) -> None:
    world = world_of_interrupted()
    world.put(interrupted("a", nodeLabels=SPOT_LABELS), flavor("b", nodeLabels=SPOT_LABELS))
    world.put(noted(local_queue("q"), **{SPOT: word}))
    assert used(world, len(wanted)) == wanted


def test_who_waits_is_tried_again_as_soon_as_a_flavor_is_marked_or_not_any_more() -> None:
    world = world_of_interrupted()
    assert used(world, 1) == ["a"]
    world.put(interrupted("b"))
    assert used(world, 1) == ["c"]
    world.put(interrupted("b", often=False))
    assert used(world, 1) == ["b"]
    world.engine.validate()


def test_the_queues_fungibility_decides_whether_a_calm_flavor_is_borrowed_before_the_next_is_tried() -> None:
    def second(**fungibility: str) -> list[str]:
        world = World(EngineConfig(extensions=Extensions(interruptions=InterruptionRules())))
        two = ("a", "b")
        world.put(interrupted("a"), flavor("b"), local_queue("q"), cluster_queue("lends", 2, cohort="co", flavors=two))
        spec: dict[str, Any] = {"flavorFungibility": fungibility} if fungibility else {}
        world.put(cluster_queue("q", 1, cohort="co", flavors=two, **spec))
        return used(world, 2)

    assert second() == ["b", "b"]
    assert second(whenCanBorrow="TryNextFlavor") == ["b", "a"], "of the last one it has quota of its own"


@given(st.permutations(NAMES), st.sets(st.sampled_from(NAMES)))
def test_of_any_order_each_part_stays_as_it_was(order: list[str], often: set[str]) -> None:
    flavors = {FlavorName(name): interrupted(name, often=name in often) for name in NAMES}
    given: ClusterQueue = noted(cluster_queue("q", 1, flavors=tuple(order)))
    found = calm_first(given, flavors)
    tried = [each.name for each in found.spec.resource_groups[0].flavors]
    assert tried == [name for name in order if name not in often] + [name for name in order if name in often]


@pytest.mark.parametrize(("text", "rate"), [("3.20", 3.2), ("", 0.0), ("-1", 0.0), ("nan", 0.0), ("1e9", 0.0)])
def test_a_rate_that_others_wrote_is_none(text: str, rate: float) -> None:
    assert interruption_rate(noted(flavor("a"), **{INTERRUPTION_RATE: text})) == rate
    assert interruption_rate(None) == 0.0
    assert not is_interrupted_often(None)


def test_explain_and_the_page_name_a_flavor_that_is_tried_after_others() -> None:
    world = world_of_interrupted("a", "b")
    used(world, 1)
    world.put(workload("waits", "q", gpus=2, created_s=9))
    world.settle()
    told = explained(world.engine, world.workloads[WorkloadKey("ns/waits")], 10.0)["passedOver"]
    often = "are taken away 3.2 times per node-day, so other flavors are tried first"
    assert told == {"flavors": ["a", "b"], "sentence": f"Nodes of flavor a {often}. Nodes of flavor b {often}"}
    assert explained(world_of_interrupted().engine, workload("w", "q"), 10.0)["passedOver"] is None
    (row,) = [each for _, each in tree_rows(world.engine) if each["name"] == "q"]
    assert row["interrupted"] == [
        "Nodes of flavor c are taken away 0.5 times per node-day",
        f"Nodes of flavor a {often}",
        f"Nodes of flavor b {often}",
    ]


def test_who_runs_on_such_a_flavor_is_not_told_that_it_was_passed_over() -> None:
    world = world_of_interrupted("a")
    assert used(world) == ["b", "c", "a"]
    on_calm, on_often = (world.workloads[WorkloadKey(f"ns/w{number}")] for number in (1, 3))
    assert explained(world.engine, on_calm, 10.0)["passedOver"]["flavors"] == ["a"]
    assert explained(world.engine, on_often, 10.0)["passedOver"] is None
