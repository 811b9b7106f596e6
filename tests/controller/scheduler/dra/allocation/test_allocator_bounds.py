"""What is taken and given back, exactly: capacities and counters at their limits, the bound of steps, kept devices."""

from dataclasses import dataclass
from typing import Any

import pytest

from controller.scheduler.dra.allocation.allocator import STEPS, sets_of, still_free, with_sets
from controller.scheduler.dra.allocation.offers import Offer
from controller.scheduler.dra.allocation.requests import MOST_DEVICES, PodClaimsRequest
from controller.scheduler.dra.allocation.views import Given, State, View
from tests.support.engine.claimsupply import asked, names, offered, sets_for
from tests.support.engine.deviceclaims import DRIVER, GPU_CLASS, asks, device, node_slice, slice_of, template

PAIRED = [{"matchAttribute": f"{DRIVER}/pair"}]
APART = [{"distinctAttribute": f"{DRIVER}/pair"}]
ONE = asked(template("t", asks()))
TWO = asked(template("t", asks(count=2)))


def of_type(kind: str, count: int = 1, **more: Any) -> dict[str, Any]:
    return asks(GPU_CLASS, count, f"device.attributes['{DRIVER}'].type == '{kind}'", **more)


def part(memory: int, count: int = 1, *selectors: str) -> dict[str, Any]:
    return asks(GPU_CLASS, count, *selectors, capacity={"requests": {"memory": str(memory)}})


def shared(name: str, memory: int = 10, **more: Any) -> dict[str, Any]:
    return device(name, shared=True, capacity={"memory": str(memory)}, **more)


def counting(limit: int, *devices: dict[str, Any]) -> Offer:
    counters = slice_of("a", pool="n", node="n", count=2, counters={"units": limit})
    return offered(counters, slice_of("b", *devices, pool="n", node="n", count=2))


# -- what is given away ------------------------------------------------------------------------------------------------


def test_an_answer_is_kept_for_what_is_given_away() -> None:
    view = View(ONE, offered(node_slice("n", device("a"))))
    assert sets_of(view, State()) is sets_of(view, State())
    assert sets_of(view, State(devices=1)) == ()


def test_pods_without_claims_of_their_own_are_given_nothing() -> None:
    assert sets_of(View(PodClaimsRequest(()), offered(node_slice("n", device("a")))), State()) == ()


def test_what_is_given_away_adds_up_and_admin_access_is_none() -> None:
    memory = (0, "memory")
    taken = (Given(0, "r0", 0, False, ((memory, 3),)), Given(0, "r1", 1, True, ()))
    assert with_sets(State(4, ((memory, 5),)), [taken]) == State(5, ((memory, 8),))
    assert with_sets(State(), [taken]) == State(1, ((memory, 3),))


@pytest.mark.parametrize(("units", "fits"), [("1", True), ("2", False)])
def test_counters_of_devices_in_use_are_charged_up_to_the_limit(units: str, *, fits: bool) -> None:
    devices = [device("x"), device("a", counters={"units": "2"}), device("b", counters={"units": units})]
    assert sets_for(ONE, counting(3, *devices), State(devices=0b011)) == ([["b"]] if fits else [])


def test_parts_of_a_device_are_given_up_to_all_of_it() -> None:
    offer = offered(node_slice("n", shared("a")))
    assert sets_for(asked(template("t", part(5))), offer) == [["a"], ["a"]]
    assert sets_for(asked(template("t", part(6))), offer) == [["a"]]
    used = State(1, (((0, "memory"), 5 * 10**9),))
    assert sets_for(asked(template("t", part(5))), offer, used) == [["a"]]
    assert sets_for(asked(template("t", part(6))), offer, used) == []


def test_a_device_may_serve_one_request_more_than_once_only_where_it_is_shared() -> None:
    thrice = asked(template("t", part(3, 3)))
    assert sets_for(thrice, offered(node_slice("n", device("p", capacity={"memory": "10"}), shared("s")))) == [
        ["p", "s", "s"]
    ]
    assert sets_for(thrice, offered(node_slice("n", shared("s", 8), device("p", capacity={"memory": "10"})))) == [
        ["s", "s", "p"]
    ]
    assert sets_for(thrice, offered(node_slice("n", device("p", capacity={"memory": "10"})))) == []


def test_all_is_each_device_once() -> None:
    every = asked(template("t", part(2) | {"allocationMode": "All"}))
    assert sets_for(every, offered(node_slice("n", shared("a", 4), shared("b", 9)))) == [["a", "b"], ["a", "b"]]
    assert sets_for(every, offered(node_slice("n", shared("a", 4), shared("b", 9))), State(2)) == [
        ["a", "b"],
        ["a", "b"],
    ]
    whole = asked(template("t", asks(allocationMode="All")))
    assert sets_for(whole, offered(node_slice("n", device("a"), device("b"), device("c"))), State(2)) == []
    assert sets_for(whole, offered(node_slice("n", device("a"), device("b"), device("c")))) == [["a", "b", "c"]]
    assert sets_for(asked(template("t", of_type("gpu", allocationMode="All"))), offered(node_slice("n", OTHER))) == []


OTHER = device("m", type="mig")


def test_admin_access_is_to_different_devices_within_a_claim_and_to_the_same_in_two() -> None:
    watch = template("t", asks(adminAccess=True), asks(adminAccess=True))
    assert sets_for(asked(watch), offered(node_slice("n", device("a")))) == []
    both = sets_for(asked(watch), offered(node_slice("n", device("a"), device("b"))), State(3))
    assert both[0] == ["a", "b"]
    single = template("t", asks(adminAccess=True))
    assert sets_for(asked(single, single), offered(node_slice("n", device("a"))))[0] == ["a", "a"]
    assert sets_for(asked(single, template("u", asks())), offered(node_slice("n", device("a")))) == [["a", "a"]]
    seen = sets_of(View(asked(single), offered(node_slice("n", shared("s")))), State(1, (((0, "memory"), 10**10),)))
    assert seen[0] == (Given(0, "r0", 0, True, ()),)


def test_a_claim_has_as_many_devices_as_are_allowed_and_no_more() -> None:
    offer = offered(node_slice("n", *(device(f"d{at:02}") for at in range(MOST_DEVICES + 2))))
    half = MOST_DEVICES // 2
    assert len(sets_for(asked(template("t", asks(count=half), asks(count=half))), offer)[0]) == MOST_DEVICES
    assert sets_for(asked(template("t", asks(count=half), asks(count=half + 1))), offer) == []
    two = asked(template("t", asks(count=2)), template("u", asks(count=MOST_DEVICES)))
    assert len(sets_for(two, offer)[0]) == MOST_DEVICES + 2
    assert len(sets_for(asked(template("t", asks(count=MOST_DEVICES))), offer)[0]) == MOST_DEVICES
    assert sets_for(asked(template("t", asks(count=MOST_DEVICES + 1))), offer) == []


# -- constraints -------------------------------------------------------------------------------------------------------


def test_devices_without_the_attribute_of_a_constraint_are_not_given() -> None:
    lacking = offered(node_slice("n", device("a"), device("b")))
    for constraints in (PAIRED, APART):
        assert sets_for(asked(template("t", asks(), constraints=constraints)), lacking) == []
    some = offered(node_slice("n", device("a"), device("b", pair="1"), device("c", pair="1"), device("d", pair="2")))
    assert sets_for(asked(template("t", asks(count=2), constraints=PAIRED)), some) == [["b", "c"]]
    assert sets_for(asked(template("t", asks(count=2), constraints=APART)), some) == [["b", "d"]]


def test_a_constraint_holds_within_a_claim_for_its_requests_alone() -> None:
    pair = template("t", asks(count=2), constraints=PAIRED)
    offer = offered(node_slice("n", *(device(f"d{at}", pair=str(at // 2)) for at in range(4))))
    assert sets_for(asked(pair, pair), offer) == [["d0", "d1", "d2", "d3"]]
    ends = [{"distinctAttribute": f"{DRIVER}/pair", "requests": ["r0", "r2"]}]
    assert sets_for(asked(template("t", asks(), asks(), asks(), constraints=ends)), offer) == [["d0", "d1", "d2"]]


# -- steps back --------------------------------------------------------------------------------------------------------


def test_a_step_back_gives_back_its_counters_once() -> None:
    devices = [
        device(name, pair=pair, counters={"units": units})
        for name, pair, units in (("a", "1", "2"), ("b", "2", "2"), ("c", "2", "1"), ("d", "3", "1"), ("e", "3", "1"))
    ]
    assert sets_for(asked(template("t", asks(count=2), constraints=PAIRED)), counting(3, *devices)) == [["b", "c"]]


def test_a_step_back_gives_back_parts_once() -> None:
    devices = [shared("s1", pair="1", type="s"), shared("s2", pair="2", type="s"), device("g", pair="2", type="g")]
    offer = offered(node_slice("n", *devices))
    seven = template("t", part(7, 1, f"device.attributes['{DRIVER}'].type == 's'"), of_type("g"), constraints=PAIRED)
    assert sets_for(asked(seven, template("u", part(10))), offer) == [["s2", "g", "s1"]]
    assert sets_for(asked(seven, template("u", part(10)), template("v", part(4))), offer) == []


def test_a_step_back_leaves_a_shared_device_to_its_first_user() -> None:
    """The second user of ``s`` steps back: the counters of ``s`` stay charged, and ``s`` in use."""
    devices = [
        shared("s", pair="1", type="s", counters={"units": "2"}),
        shared("t", pair="2", type="t", counters={"units": "1"}),
        device("g", pair="2", type="g"),
        device("h", type="h", counters={"units": "1"}),
    ]
    either = f"device.attributes['{DRIVER}'].type in ['s', 't']"
    first, second = (
        template("t", of_type("s")),
        template("u", asks(GPU_CLASS, 1, either), of_type("g"), constraints=PAIRED),
    )
    assert sets_for(asked(first, second), counting(3, *devices)) == [["s", "t", "g"]]
    assert sets_for(asked(first, second, template("v", of_type("h"))), counting(3, *devices)) == []
    assert sets_for(asked(first, second, template("v", of_type("h"))), counting(4, *devices)) == [["s", "t", "g", "h"]]


# -- the bound ---------------------------------------------------------------------------------------------------------


@dataclass
class Busy:
    """A node whose devices are in use but for some."""

    used: int
    free_before: int
    free_after: int

    def offer(self) -> Offer:
        number = self.free_before + self.used + self.free_after
        few = [device(f"a{at}", type="few") for at in range(2)]
        return offered(node_slice("n", *(device(f"d{at:04}", type="many") for at in range(number)), *few))

    @property
    def state(self) -> State:
        return State(((1 << self.used) - 1) << self.free_before)


def test_the_last_step_that_is_allowed_may_find_the_device() -> None:
    """Three of two are not looked for at all, and a device that was given is not tried again."""
    best = {"name": "few", **of_type("few", 3)}
    less = {"name": "many", **of_type("many", 2)}
    ask = asked(template("t", {"firstAvailable": [best, less]}))
    just, more = Busy(STEPS - 2, 1, 1), Busy(STEPS - 1, 1, 1)
    assert sets_for(ask, just.offer(), just.state) == [["d0000", f"d{STEPS - 1}"]]
    assert sets_for(ask, more.offer(), more.state) == []


def test_the_steps_of_all_pods_together_are_bounded() -> None:
    """1501 steps for the first pod, one more for each that follows: after 13 of them 409 are left of 20000."""
    busy = Busy(1500, 0, 15)
    assert len(sets_for(asked(template("t", of_type("many"))), busy.offer(), busy.state)) == 13


def test_claims_too_deep_to_search_find_nothing() -> None:
    many = [template(f"t{at}", asks(count=MOST_DEVICES, adminAccess=True)) for at in range(40)]
    offer = offered(node_slice("n", *(device(f"d{at:02}") for at in range(MOST_DEVICES))))
    assert sets_for(asked(*many), offer) == []
    assert len(sets_for(asked(*many[:2]), offer)[0]) == 2 * MOST_DEVICES


# -- devices that were chosen before -----------------------------------------------------------------------------------

FOUR = offered(node_slice("n", *(device(f"d{at}", type="gpu", pair=str(at // 2)) for at in range(4))))


def test_chosen_devices_stay_while_they_are_free() -> None:
    pair = template("t", asks(count=2), constraints=PAIRED)
    view = View(asked(pair, pair), FOUR)
    (one,) = sets_of(view, State())
    assert names(FOUR, one) == ["d0", "d1", "d2", "d3"]
    assert still_free(view, State(), one)
    for at in range(4):
        assert not still_free(view, State(1 << at), one)
    swapped = (one[0], one[2], one[1], one[3])
    assert not still_free(view, State(), swapped)
    apart = tuple(given._replace(device=at) for given, at in zip(one, (0, 2, 1, 3), strict=True))
    assert not still_free(view, State(), apart)


@pytest.mark.parametrize(
    "asks_now",
    [
        [asks(count=1)],
        [asks(count=3)],
        [asks(count=2), asks()],
        [of_type("mig", 2)],
        [asks(count=2, adminAccess=True)],
        [asks(allocationMode="All")],
        [],
        [{"firstAvailable": [{"name": "a", **asks(count=2)}]}],
    ],
)
def test_chosen_devices_go_when_something_else_is_asked(asks_now: list[dict[str, Any]]) -> None:
    (one, _) = sets_of(View(TWO, FOUR), State())
    assert still_free(View(TWO, FOUR), State(), one)
    assert not still_free(View(asked(template("t", *asks_now)), FOUR), State(), one)


def test_all_devices_and_those_of_the_alternative_that_was_taken_stay() -> None:
    every = View(asked(template("t", asks(allocationMode="All"))), FOUR)
    (one,) = sets_of(every, State())
    assert still_free(every, State(), one)
    assert not still_free(every, State(), one[:3])
    best, less = {"name": "a", **of_type("mig")}, {"name": "b", **of_type("gpu")}
    second = View(asked(template("t", {"firstAvailable": [best, less]}, asks())), FOUR)
    (first, _) = sets_of(second, State())
    assert [given.label for given in first] == ["r0/b", "r1"]
    assert still_free(second, State(), first)
    other_claim = tuple(given._replace(claim=1) for given in first)
    assert not still_free(second, State(), other_claim)


def test_a_part_of_a_device_stays_while_it_is_the_part_that_is_asked() -> None:
    view = View(asked(template("t", part(5))), offered(node_slice("n", shared("a"))))
    one = sets_of(view, State())[0]
    assert still_free(view, State(1, one[0].parts), one)
    assert not still_free(view, State(1, (((0, "memory"), 6 * 10**9),)), one)
    assert not still_free(View(asked(template("t", part(4))), offered(node_slice("n", shared("a")))), State(), one)
