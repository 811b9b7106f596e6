"""Devices that are planned for claims to come, by attributes that a selector can see."""

from typing import Any

from controller.scheduler.dra.allocation.allocator import sets_of
from controller.scheduler.dra.allocation.offers import Offer
from controller.scheduler.dra.allocation.planned import Planned, claim_plan
from controller.scheduler.dra.allocation.views import State, View
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import PART
from tests.support.engine.boards import settled
from tests.support.engine.claimsupply import asked, cluster, gang, gpus, offered
from tests.support.engine.deviceclaims import DRIVER, asks, device, node_slice, template

UUID = f"{DRIVER}/uuid"


def pods(offer: Offer, *claims: Any, number: int = 9) -> list[Planned]:
    """Pods with these claims, as many as find devices."""
    ask = asked(*(template(f"t{at}", *each) for at, each in enumerate(claims)))
    names = tuple(f"c{at}" for at in range(len(claims)))
    return [Planned(ask, offer, one, names) for one in sets_of(View(ask, offer), State())[:number]]


def offer(*devices: Any) -> Offer:
    return offered(node_slice("n", *devices))


def test_devices_of_all_pods_stand_together_by_claim_and_request() -> None:
    there = offer(*gpus("n", 6))
    assert claim_plan(pods(there, [asks(count=2)], [asks()], number=2)) == {
        "c0": {"r0": {UUID: ["n-0", "n-1", "n-3", "n-4"]}},
        "c1": {"r0": {UUID: ["n-2", "n-5"]}},
    }


def test_a_part_is_named_by_its_own_attribute() -> None:
    parts = [device(f"p{at}") | {"attributes": {PART: {"string": f"GPU-0-mig-{at}"}}} for at in (1, 2)]
    assert claim_plan(pods(offer(*parts), [asks()])) == {"c0": {"r0": {PART: ["GPU-0-mig-1", "GPU-0-mig-2"]}}}


def test_a_request_is_not_planned_that_has_a_device_without_an_attribute_of_its_own() -> None:
    there = offer(device("d0", uuid="x"), device("d1"), device("d2", uuid="y"))
    assert claim_plan(pods(there, [asks(count=2)], [asks()])) == {"c1": {"r0": {UUID: ["y"]}}}
    assert claim_plan(pods(offer(device("d0", uuid="x"), device("d1", uuid="x")), [asks()])) == {}
    assert claim_plan(pods(offer(device("d0", uuid='x"')), [asks()])) == {}


def test_requests_for_all_devices_and_with_admin_access_are_not_planned() -> None:
    there = offer(*gpus("n", 2))
    assert claim_plan(pods(there, [asks(allocationMode="All")])) == {}
    assert claim_plan(pods(there, [asks(adminAccess=True)], number=1)) == {}


def test_a_gang_that_was_placed_has_a_plan_until_it_ends() -> None:
    world = cluster({"b/r/n1": gpus("n1", 3), "b/r/n2": gpus("n2", 3)}, template("two", asks(count=2)))
    world.put(gang("w", 2, templates=["two"]))
    settled(world)
    engine = world.engine
    (found,) = engine.claim_plan(WorkloadKey("ns/w"), "main").values()
    assert found == {"r0": {UUID: ["n1-0", "n1-1", "n2-0", "n2-1"]}}
    assert engine.claim_plan(WorkloadKey("ns/w"), "other") == engine.claim_plan(WorkloadKey("ns/v"), "main") == {}
