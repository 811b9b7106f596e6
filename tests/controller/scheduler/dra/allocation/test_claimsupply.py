"""What is free on nodes and what is planned there, as objects, pods and places come and go."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from controller.objects.deviceclaims import ResourceClaim, ResourceSlice
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.quantity import Quantity
from controller.scheduler.dra.allocation.claimsupply import UNBOUNDED
from controller.scheduler.dra.allocation.nodeclaims import NOTHING, merged
from controller.scheduler.dra.allocation.views import State
from tests.support.engine.claimlab import Lab, claim_names, owner_of, usage
from tests.support.engine.claimsupply import made_for
from tests.support.engine.deviceclaims import DRIVER, asks, claim, device, node_slice, slice_of, template
from tests.support.engine.topologylab import RACK

ONE, TWO = template("one", asks()), template("two", asks(count=2))
PAIR = template("pair", asks(count=2), constraints=[{"matchAttribute": f"{DRIVER}/pair"}])
NANO = 10**9


def lab(*objects: Any, **nodes: int) -> Lab:
    offers = [
        node_slice(name, *(device(f"d{at}", pair=str(at // 2)) for at in range(number)))
        for name, number in nodes.items()
    ]
    return Lab(*offers, ONE, TWO, PAIR, *objects)


def held(name: str, *devices: str, at: str = "a", pod: str = "") -> ResourceClaim:
    made = claim(name, asks(), given=["r0"] * len(devices), at=at, devices=devices, **(made_for(pod) if pod else {}))
    assert isinstance(made, ResourceClaim)
    return made


def consuming(name: str, at: str, consumed: Mapping[str, int], *, admin: bool = False) -> ResourceClaim:
    """A claim that has parts of device ``s``."""
    made = held(name, "s", at=at)
    allocation = made.status.allocation
    assert allocation is not None
    amounts = {key: Quantity(number * NANO) for key, number in consumed.items()}
    result = msgspec.structs.replace(allocation.devices.results[0], consumed_capacity=amounts, admin_access=admin)
    replace = msgspec.structs.replace
    given = replace(allocation, devices=replace(allocation.devices, results=(result,)))
    return replace(made, status=replace(made.status, allocation=given))


# -- objects -----------------------------------------------------------------------------------------------------------


def test_the_nodes_are_told_whose_devices_are_given_away_otherwise() -> None:
    known = lab(a=2, b=2)
    assert known.put(held("x", "d0", pod="p")) == ("a",)
    assert known.put(held("x", "d0", pod="p")) == ()
    assert (known.fitting_pods("a", "one"), known.fitting_pods("b", "one")) == (1, 2)
    assert list(known.supply.nodes_of("ns/p")) == ["a"]
    assert known.put(held("x", "d1", at="b", pod="p")) == ("a", "b")
    assert known.put(held("y", "none", at="b", pod="p")) == ()
    assert known.drop(ResourceClaim, "ns", "x") == ("b",)
    assert known.drop(ResourceClaim, "ns", "x") == ()
    assert known.put(node_slice("a", device("d0"))) == ("a",)
    assert known.put(node_slice("a", device("d0"))) == ()
    assert known.drop(ResourceSlice, "", "slice-a") == ("a",)
    assert known.fitting_pods("a", "one") == 0
    assert known.put(slice_of("net", device("x"), pool="net")) == ()


def test_only_what_moves_a_claim_by_name_makes_asks_stale() -> None:
    known = lab(a=2)
    version = known.supply.requests.version
    known.put(held("x", "d0", pod="p"))
    known.put(node_slice("a", device("d0"), device("d1")))
    known.drop(ResourceClaim, "ns", "x")
    assert known.supply.requests.version == version
    known.put(claim("c", asks()))
    version = known.supply.requests.version
    known.put(node_slice("a", device("d0"), device("d1")))
    assert known.supply.requests.version == version
    known.put(node_slice("a", device("d0")))
    assert known.supply.requests.version > version


def test_a_claim_by_name_is_where_its_devices_are() -> None:
    known = lab(claim("c", asks()), a=1, b=1)
    assert [shared.node for shared in known.ask(claims=["c"]).shared] == [""]
    known.put(held("c", "d0", at="b"))
    assert [shared.node for shared in known.ask(claims=["c"]).shared] == ["b"]
    assert (known.fitting_pods("a", claims=["c"]), known.fitting_pods("b", claims=["c"])) == (0, UNBOUNDED)
    known.drop(ResourceSlice, "", "slice-b")
    assert known.supply.ask(claim_names(claims=["c"])) is None
    known.put(node_slice("b", device("d0")))
    assert [shared.node for shared in known.ask(claims=["c"]).shared] == ["b"]
    known.put(claim("c", asks()))
    assert [shared.node for shared in known.ask(claims=["c"]).shared] == [""]


def test_a_claim_by_name_without_devices_takes_its_own_first() -> None:
    known = lab(claim("c", asks(count=2)), claim("d", asks(count=2)), a=1, b=5)
    assert known.fitting_pods("a", claims=["c"]) == 0
    assert known.fitting_pods("b", "one", claims=["c"]) == 3
    assert known.fitting_pods("b", "one", claims=["c", "d"]) == 1
    assert known.fitting_pods("b", "two", claims=["c", "d"]) == 0


def test_a_template_that_changes_is_planned_anew() -> None:
    known = lab(a=3, b=3)
    known.place("w", usage("one", a=1))
    assert known.put(template("one", asks(count=2))) == ("a",)
    assert known.planned("w", "a") == [["d0", "d1"]]
    assert known.put(template("one", asks())) == ("a",)
    assert known.planned("w", "a") == [["d0"]]


# -- parts of devices --------------------------------------------------------------------------------------------------


def test_what_is_given_away_by_two_is_merged() -> None:
    memory, cores = (0, "memory"), (0, "cores")
    one = State(0b01, ((memory, 3),))
    assert merged(one, NOTHING) is one
    assert merged(NOTHING, one) == one
    assert merged(one, State(0b10, ((cores, 2), (memory, 4)))) == State(0b11, ((cores, 2), (memory, 7)))


@pytest.mark.parametrize(
    ("published", "consumed", "left"),
    [
        ("memory", "memory", 1),
        ("memory", f"{DRIVER}/memory", 1),
        (f"{DRIVER}/memory", "memory", 1),
        (f"{DRIVER}/memory", f"{DRIVER}/memory", 1),
        ("memory", "cores", 2),
    ],
)
def test_parts_that_claims_consume_are_given_away(published: str, consumed: str, left: int) -> None:
    shared = node_slice("a", device("s", shared=True, capacity={published: "10"}))
    known = Lab(shared, template("five", asks(capacity={"requests": {"memory": "5"}})))
    assert known.fitting_pods("a", "five") == 2
    known.put(consuming("x", "a", {consumed: 2}))
    known.put(consuming("y", "a", {consumed: 3}))
    assert known.fitting_pods("a", "five") == left
    known.put(consuming("z", "a", {consumed: 1}))
    assert known.fitting_pods("a", "five") == left - (left == 1)


def test_admin_access_and_devices_that_are_offered_no_more_take_nothing() -> None:
    known = Lab(node_slice("a", device("s"), device("d0")), ONE)
    known.put(consuming("x", "a", {}, admin=True))
    assert known.fitting_pods("a", "one") == 2
    known.put(held("y", "gone", "d0"))
    assert known.fitting_pods("a", "one") == 1
    known.put(consuming("x", "a", {"memory": 3}))
    assert known.fitting_pods("a", "one") == 0


def test_parts_that_are_planned_are_taken_from_the_next() -> None:
    shared = node_slice("a", device("s", shared=True, capacity={"memory": "10"}))
    known = Lab(shared, template("five", asks(capacity={"requests": {"memory": "5"}})))
    known.place("w", usage("five", a=1))
    assert known.fitting_pods("a", "five") == 1
    known.place("v", usage("five", a=1))
    assert known.fitting_pods("a", "five") == 0
    known.leave("w", usage("five", a=1))
    assert known.fitting_pods("a", "five") == 1


# -- pods --------------------------------------------------------------------------------------------------------------


def test_what_pods_have_replaces_the_plan_claim_by_claim() -> None:
    known = lab(a=6)
    known.place("w", usage("one", "one", a=2))
    assert known.planned("w", "a") == [["d0", "d1"], ["d2", "d3"]]
    known.pod("p")
    known.put(held("p-0", "d0", pod="p"))
    assert known.planned("w", "a") == [["d2", "d3"], ["d1", "d4"]]
    known.put(held("p-1", "d4", pod="p"))
    assert known.planned("w", "a") == [["d2", "d3"]]
    assert known.fitting_pods("a", "one") == 2
    known.pod("q")
    known.pod("r")
    known.put(held("q-0", "d1", "d2", pod="q"))
    known.put(held("q-1", "d3", pod="q"))
    assert known.planned("w", "a") == []
    known.put(held("r-0", "none", pod="r"))
    known.put(held("r-1", "none", pod="r"))
    assert known.planned("w", "a") == []
    assert known.fitting_pods("a", "one") == 1


def test_pods_that_are_over_or_leaving_keep_nothing_and_those_of_others_do() -> None:
    known = lab(a=3)
    known.put(held("p-0", "d0", pod="p"))
    known.put(held("q-0", "d1", pod="q"))
    known.put(held("c", "d2"))
    assert known.fitting_pods("a", "one") == 0
    assert known.pod("p") == ()
    assert known.fitting_pods("a", "one", empty=True) == 0
    assert known.pod("p", leaving=True) == ("a",)
    assert known.fitting_pods("a", "one") == 1
    known.pod("q")
    assert known.over("q") == ("a",)
    assert known.fitting_pods("a", "one") == 2
    assert known.pod("p") == ("a",)
    assert known.fitting_pods("a", "one") == 1


def test_what_pods_of_a_placed_set_have_is_theirs_until_the_place_is_given_back() -> None:
    known = lab(a=3)
    known.pod("p")
    known.put(held("p-0", "d0", pod="p"))
    assert (known.fitting_pods("a", "one"), known.fitting_pods("a", "one", empty=True)) == (2, 2)
    known.place("w", usage("one", a=2))
    assert known.touched == ["a"]
    assert known.planned("w", "a") == [["d1"]]
    assert (known.fitting_pods("a", "one"), known.fitting_pods("a", "one", empty=True)) == (1, 3)
    known.leave("w", usage("one", a=2))
    assert (known.fitting_pods("a", "one"), known.fitting_pods("a", "one", empty=True)) == (3, 3)
    known.over("p")
    known.drop(ResourceClaim, "ns", "p-0")
    known.pod("p")
    known.put(held("p-0", "d0", pod="p"))
    assert known.fitting_pods("a", "one") == 2


def test_a_device_that_was_planned_for_one_and_given_to_another_is_planned_anew() -> None:
    known = lab(a=3)
    known.place("w", usage("one", a=1))
    known.place("v", usage("one", a=1))
    known.pod("p", "v")
    known.put(held("p-0", "d0", pod="p"))
    assert (known.planned("w", "a"), known.planned("v", "a")) == ([["d1"]], [])
    assert known.fitting_pods("a", "one") == 1
    known.leave("v", usage("one", a=1))
    known.leave("w", usage("one", a=1))
    known.place("w", usage("one", a=1))
    assert (known.planned("w", "a"), known.fitting_pods("a", "one")) == ([["d0"]], 2)
    known.touched.clear()
    known.place("v", usage("one", a=1))
    assert (known.planned("w", "a"), known.planned("v", "a"), known.fitting_pods("a", "one")) == ([["d1"]], [], 1)
    assert known.touched == ["a"]


def test_a_place_whose_pods_have_no_devices_yet_touches_no_node() -> None:
    known = lab(a=3)
    known.place("v", usage("one", a=1))
    known.place("w", usage("one", a=1))
    assert known.touched == []


def test_a_question_leaves_what_pods_have_as_it_was() -> None:
    known = lab(a=3)
    known.pod("p")
    known.put(held("p-0", "d0", pod="p"))
    known.supply.add(usage("one", a=1), owner_of("w"), assumed=True)
    known.supply.remove(usage("one", a=1), owner_of("w"), assumed=True)
    with known.undo.trial():
        known.supply.add(usage("one", a=1), owner_of("w"))
    assert known.touched == []
    known.put(node_slice("a", *(device(f"d{at}") for at in range(4))))
    assert (known.fitting_pods("a", "one"), known.fitting_pods("a", "one", empty=True)) == (3, 3)


# -- places ------------------------------------------------------------------------------------------------------------


def test_only_places_on_nodes_of_pods_with_claims_are_planned() -> None:
    known = lab(a=2)
    on_nodes = usage("one", a=1)
    for other in (msgspec.structs.replace(on_nodes, levels=(RACK,)), msgspec.structs.replace(on_nodes, claims=None)):
        known.place("w", other)
        assert known.fitting_pods("a", "one") == 2
        assert known.supply.complete(other, owner_of("w"))
        known.leave("w", other)
    racks = msgspec.structs.replace(on_nodes, levels=(RACK, HOSTNAME_LABEL))
    known.place("w", racks)
    assert known.fitting_pods("a", "one") == 1
    known.supply.remove(msgspec.structs.replace(on_nodes, levels=(RACK,)), owner_of("w"))
    known.supply.remove(msgspec.structs.replace(on_nodes, claims=None), owner_of("w"))
    assert known.fitting_pods("a", "one") == 1
    known.leave("w", racks)
    assert known.fitting_pods("a", "one") == 2


def test_a_place_that_goes_takes_its_own_plan_alone() -> None:
    known = lab(a=4, b=4)
    first, second = usage("one", a=1, b=2), usage("one", a=2)
    known.place("w", first)
    known.place("v", usage("one", a=1))
    known.place("w", second)
    assert (known.planned("w", "a"), known.planned("w", "b")) == ([["d0"], ["d2"], ["d3"]], [["d0"], ["d1"]])
    known.supply.remove(usage("one", a=1, c=1), owner_of("u"))
    known.leave("w", first)
    assert known.planned("v", "a") == [["d1"]]
    assert len(known.planned("w", "a")) == 2
    assert known.planned("w", "b") == []
    known.leave("w", second)
    assert (known.fitting_pods("a", "one"), known.planned("w", "a")) == (3, [])


def test_what_is_assumed_is_taken_for_the_while_of_a_question() -> None:
    known = lab(a=3)
    known.place("w", usage("one", a=1))
    asked_for = usage("one", a=1)
    known.supply.add(asked_for, owner_of("v"), assumed=True)
    assert (known.fitting_pods("a", "one"), known.fitting_pods("a", "one", empty=True)) == (1, 2)
    with pytest.raises(AssertionError, match="were assumed"):
        known.supply.validate()
    known.supply.remove(asked_for, owner_of("v"), assumed=True)
    known.supply.validate()
    assert (known.fitting_pods("a", "one"), known.fitting_pods("a", "one", empty=True)) == (2, 3)
    known.supply.add(usage("two", a=1), owner_of("v"), assumed=True, empty=True)
    assert (known.fitting_pods("a", "one"), known.fitting_pods("a", "one", empty=True)) == (1, 1)
    known.supply.remove(usage("two", a=1), owner_of("v"), assumed=True)
    assert known.touched == []


def test_a_trial_is_undone_exactly() -> None:
    known = lab(claim("c", asks()), a=4)
    placed, more = usage("one", a=1), usage("two", claims=["c"], a=1)
    known.place("w", placed)
    before = known.supply.state("a", empty=False)
    with known.undo.trial():
        known.supply.add(more, owner_of("v"))
        assert known.fitting_pods("a", "one") == 0
        known.supply.remove(placed, owner_of("w"))
        assert known.fitting_pods("a", "one") == 1
    assert known.supply.state("a", empty=False) == before
    assert known.planned("w", "a") == [["d0"]]
    known.supply.validate()


def test_a_place_is_complete_when_every_pod_of_it_has_devices() -> None:
    known = lab(claim("c", asks()), claim("far", asks()), claim("huge", asks(count=9)), a=2, b=2)
    known.put(held("far", "d0", at="b"))

    def complete(*templates: str, claims: tuple[str, ...] = (), **pods: int) -> bool:
        place = usage(*templates, claims=claims, **pods)
        known.supply.add(place, owner_of("v"), assumed=True)
        found = known.supply.complete(place, owner_of("v"))
        known.supply.remove(place, owner_of("v"), assumed=True)
        return found

    assert complete("one", a=2)
    assert not complete("one", a=3)
    assert not complete("one", a=1, b=2)
    assert complete("one", a=2, b=1)
    assert complete("missing", a=9)
    assert complete(claims=("c",), a=9)
    assert complete("one", claims=("c",), a=1)
    assert not complete("one", claims=("c",), a=2)
    assert not complete("two", claims=("c",), a=1)
    assert complete(claims=("far",), b=9)
    assert not complete(claims=("far",), a=1)
    assert not complete(claims=("huge",), a=1)
    racks = msgspec.structs.replace(usage("one", a=1), levels=(RACK, HOSTNAME_LABEL))
    assert not known.supply.complete(racks, owner_of("v"))
    assert not known.supply.complete(usage("one", a=1), owner_of("v"))
    assert not known.supply.complete(usage("one", unknown=1), owner_of("v"))


def test_a_claim_by_name_is_planned_once_by_its_first_user() -> None:
    known = lab(claim("c", asks()), a=2, b=2)
    first, second = usage(claims=["c"], a=1), usage("one", claims=["c"], a=1)
    known.place("w", first)
    assert known.fitting_pods("a", "one") == 1
    assert [shared.node for shared in known.ask(claims=["c"]).shared] == ["a"]
    assert (known.fitting_pods("a", claims=["c"]), known.fitting_pods("b", claims=["c"])) == (UNBOUNDED, 0)
    known.supply.add(usage(claims=["c"], b=1), owner_of("u"), assumed=True)
    assert known.fitting_pods("b", "one") == 2
    known.supply.remove(usage(claims=["c"], b=1), owner_of("u"), assumed=True)
    known.place("v", second)
    assert known.supply.complete(second, owner_of("v"))
    assert known.fitting_pods("a", "one") == 0
    known.leave("w", first)
    assert known.fitting_pods("a", "one") == 0
    assert [shared.node for shared in known.ask(claims=["c"]).shared] == ["a"]
    known.put(held("c", "d0"))
    assert known.fitting_pods("a", "one") == 0
    known.leave("v", second)
    assert known.fitting_pods("a", "one") == 1
    known.put(claim("c", asks()))
    assert known.fitting_pods("a", "one") == 2
    assert [shared.node for shared in known.ask(claims=["c"]).shared] == [""]


def test_a_claim_by_name_that_gets_devices_elsewhere_is_planned_no_more() -> None:
    known = lab(claim("c", asks()), a=1, b=1)
    known.place("w", usage(claims=["c"], a=1))
    assert known.fitting_pods("a", "one") == 0
    known.put(held("c", "d0", at="b"))
    assert (known.fitting_pods("a", "one"), known.fitting_pods("b", "one")) == (1, 0)


def test_workers_find_what_their_leader_leaves() -> None:
    known = lab(claim("c", asks(count=4)), claim("d", asks(count=2)), claim("e", asks()), a=3)
    one, two, pair = known.ask("one"), known.ask("two"), known.ask("pair")
    beside = known.supply.fitting_workers
    assert beside("a", None, None, empty=False) == UNBOUNDED
    assert beside("a", one, None, empty=False) == UNBOUNDED
    assert beside("a", None, one, empty=False) == 3
    assert beside("a", one, one, empty=False) == 2
    assert beside("a", one, two, empty=False) == 1
    assert beside("a", pair, one, empty=False) == 1
    assert beside("a", two, pair, empty=False) == 0
    assert beside("a", known.ask(claims=["c"]), one, empty=False) is None
    both, named = known.ask("one", claims=["d"]), known.ask(claims=["d"])
    assert beside("a", named, one, empty=False) == 1, "the leader's claim by name has two"
    assert beside("a", both, one, empty=False) == 0
    assert beside("a", named, both, empty=False) == 1, "the workers have the same claim"
    assert beside("a", known.ask(claims=["d", "e"]), named, empty=False) == UNBOUNDED
    assert beside("a", known.ask(claims=["e"]), both, empty=False) == 0
    known.place("w", usage("two", a=1))
    assert beside("a", two, one, empty=False) is None
    assert beside("a", two, one, empty=True) == 1


def test_a_plan_names_the_claims_of_each_pod_and_is_its_owners_alone() -> None:
    known = lab(a=4)
    known.place("w", usage("missing", "one", a=2))
    known.place("v", usage("two", a=1))
    (first, second) = known.supply.plan(owner_of("w"), "a")
    assert (first[0], first[3], second[3]) == (known.ask("missing", "one"), ("t1",), ("t1",))
    assert (known.planned("w", "a"), known.planned("v", "a")) == ([["d0"], ["d1"]], [["d2", "d3"]])
    assert known.planned("w", "b") == []
    known.place("u", usage("missing", a=1))
    assert known.planned("u", "a") == []


# -- names of nodes ----------------------------------------------------------------------------------------------------


def renamed(known: Lab, name: str, label: str) -> None:
    assert known.pods.set_host(name, label)
    known.supply.hosts_changed()


def test_grants_follow_a_node_that_is_known_by_another_name() -> None:
    known = lab(claim("c", asks()), a=3)
    known.place("w", usage("one", claims=["c"], host=1))
    assert known.fitting_pods("a", "one") == 3
    renamed(known, "a", "host")
    assert known.fitting_pods("host", "one") == 1
    known.supply.validate()
    known.supply.add(usage("one", host=1), owner_of("v"), assumed=True)
    assert known.fitting_pods("host", "one") == 0
    known.supply.remove(usage("one", host=1), owner_of("v"), assumed=True)
    assert known.supply.complete(usage("one", claims=["c"], host=1), owner_of("w"))


def test_a_plan_follows_a_node_that_is_known_by_another_name() -> None:
    known = lab(a=3)
    known.place("w", usage("two", host=1))
    assert known.planned("w", "host") == []
    renamed(known, "a", "host")
    renamed(known, "b", "other")
    assert known.planned("w", "host") == [["d0", "d1"]]
    known.leave("w", usage("two", host=1))
    assert known.fitting_pods("a", "one") == 3


# -- drift -------------------------------------------------------------------------------------------------------------


def test_drift_of_what_is_kept_is_found() -> None:
    known = lab(claim("c", asks()), a=3)
    known.place("w", usage("one", claims=["c"], a=1))
    known.fitting_pods("a", "one")
    node = known.supply._nodes["a"]
    good, node.states[False] = node.states[False], State(0b111)
    with pytest.raises(AssertionError, match="what is kept as given away differs"):
        known.supply.validate()
    node.states[False] = good
    known.supply._planned["ns/c"]["a"] += 1
    with pytest.raises(AssertionError, match="claims by name are planned at"):
        known.supply.validate()
    known.supply._planned["ns/c"]["a"] -= 1
    known.supply.validate()
    known.places.clear()
    with pytest.raises(AssertionError, match="devices are planned for"):
        known.supply.validate()


def test_a_node_is_kept_while_it_has_devices_or_a_grant() -> None:
    known = lab(a=1, b=1)
    known.place("w", usage("one", b=1))
    assert known.supply._nodes.keys() == {"a", "b"}
    for name in "ab":
        known.drop(ResourceSlice, "", f"slice-{name}")
    assert known.supply._nodes.keys() == {"b"}
    known.leave("w", usage("one", b=1))
    assert "b" not in known.supply._nodes
