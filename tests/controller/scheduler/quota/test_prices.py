"""Flavors that are tried by what an hour of their nodes costs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.meta import KubernetesObject
from controller.objects.queues import ClusterQueue, ResourceFlavor
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.quota.prices import by_price, hourly_price, price_problem
from inventory.api.names import FLAVOR_ORDER, HOURLY_PRICE
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
