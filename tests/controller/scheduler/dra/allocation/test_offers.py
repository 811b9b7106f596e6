"""What slices offer by node: which of them count, in what order, and who hears of a change."""

from typing import Any

import msgspec
import pytest

from controller.objects.deviceclaims import ResourceSlice
from controller.scheduler.dra.allocation.offers import Offer, Slices, attribute_of
from tests.support.engine.claimsupply import offered
from tests.support.engine.deviceclaims import DRIVER, device, node_slice, slice_of


def made(given: object) -> ResourceSlice:
    assert isinstance(given, ResourceSlice)
    return given


def devices(offer: Offer) -> list[str]:
    return [each.name for each in offer.devices]


def part_of(name: str, *names: str, generation: int = 1, count: int = 1, pool: str = "n") -> ResourceSlice:
    return made(slice_of(name, *map(device, names), pool=pool, node="n", generation=generation, count=count))


# -- pools -------------------------------------------------------------------------------------------------------------


def test_a_pool_counts_when_as_many_slices_of_its_newest_generation_are_there_as_each_says() -> None:
    first, second = part_of("s1", "a", count=2), part_of("s2", "b", count=2)
    assert devices(offered(first)) == []
    assert devices(offered(first, second)) == ["a", "b"]
    assert devices(offered(first, second, part_of("s3", "c", count=2))) == []
    assert devices(offered(first, part_of("s2", "b", count=1))) == []
    older, newer = part_of("s1", "a", generation=2), part_of("s2", "b", generation=3)
    assert devices(offered(older, newer)) == ["b"]
    assert devices(offered(older, part_of("s2", "b", generation=2))) == []


def test_a_name_that_stands_twice_in_a_pool_voids_it_and_in_two_pools_does_not() -> None:
    twice = offered(part_of("s1", "a", count=2), part_of("s2", "a", count=2))
    assert (twice.devices, twice.incomplete) == ((), True)
    both = offered(part_of("s1", "a"), part_of("s2", "a", pool="m"))
    assert (devices(both), both.incomplete) == (["a", "a"], False)
    assert (both.place((DRIVER, "m", "a")), both.place((DRIVER, "n", "a"))) == (0, 1)
    assert both.place((DRIVER, "n", "b")) is None
    assert both.place((DRIVER, "o", "a")) is None
    assert both.place(("other", "n", "a")) is None


def test_counter_sets_of_one_name_void_their_pool_and_those_of_two_pools_are_apart() -> None:
    def counters(name: str, units: int, pool: str = "n", count: int = 3) -> object:
        return slice_of(name, pool=pool, node="n", count=count, counters={"units": units})

    def users(name: str, pool: str = "n", count: int = 3) -> object:
        return slice_of(name, device("x", counters={"units": "2"}), pool=pool, node="n", count=count)

    assert offered(counters("s1", 1), counters("s2", 1), users("s3")).incomplete
    apart = offered(*(counters("s1", 4, "p", 2), users("s2", "p", 2), counters("s3", 5, "q", 2), users("s4", "q", 2)))
    assert apart.layout.limits == (4 * 10**9, 5 * 10**9)
    assert apart.layout.consumes == (((0, 2 * 10**9),), ((1, 2 * 10**9),))


def test_each_counter_of_a_set_has_a_place_of_its_own() -> None:
    counted = slice_of("s1", pool="n", node="n", count=2, counters={"units": 4, "gb": 9})
    user = slice_of("s2", device("x", counters={"gb": "3", "units": "1"}), pool="n", node="n", count=2)
    layout = offered(counted, user).layout
    assert layout.limits == (4 * 10**9, 9 * 10**9)
    assert layout.consumes == (((1, 3 * 10**9), (0, 10**9)),)


def test_a_broken_pool_leaves_its_counters_and_devices_out_and_another_in() -> None:
    broken = slice_of("s1", device("x", counters={"no": "1"}), pool="a", node="n", counters={"units": 7})
    good = node_slice("n", device("y", counters={"units": "1"}), counters={"units": 8})
    offer = offered(broken, good)
    assert (devices(offer), offer.layout.limits, offer.incomplete) == (["y"], (8 * 10**9,), True)
    assert offer.pools == ((DRIVER, "n"),)
    assert offer.drivers == (DRIVER,)


def test_devices_alike_but_for_names_and_attributes_have_one_content() -> None:
    plain = [
        device("a", model="x"),
        device("b", model="y"),
        device("c", capacity={"memory": "1"}),
        device("d", taint="t"),
    ]
    contents = offered(node_slice("n", *plain, device("e", shared=True))).layout.contents
    assert contents[0] == contents[1]
    assert len(set(contents)) == len(plain)


def test_nodes_of_one_hardware_share_their_layout() -> None:
    slices = Slices()
    for node in ("n", "m"):
        slices.put(made(node_slice(node, device("a", uuid=node), counters={"units": 1})))
    one, other = slices.offer("n").layout, slices.offer("m").layout
    assert one.places is other.places
    assert one.contents is other.contents
    assert one.consumes is other.consumes
    assert one.limits is other.limits
    assert slices.offer("n").drivers is slices.offer("m").drivers
    assert one.places == {(0, "a"): 0}


def test_a_node_without_devices_offers_none_and_spoils_no_other() -> None:
    slices = Slices()
    slices.put(made(node_slice("n")))
    slices.put(made(node_slice("m", device("a"))))
    empty, other = slices.offer("n"), slices.offer("m")
    assert empty.layout == ({}, (), (), ())
    assert empty.place((DRIVER, "n", "a")) is None
    assert (other.layout.limits, other.layout.consumes) == ((), ((),))
    assert slices.offer("unknown").place((DRIVER, "n", "a")) is None


# -- changes -----------------------------------------------------------------------------------------------------------


def test_a_slice_that_says_the_same_changes_nothing() -> None:
    slices = Slices()
    assert not slices
    first = made(node_slice("n", device("a")))
    assert slices.put(first) == ("n",)
    assert slices
    offer = slices.offer("n")
    assert slices.put(msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, uid="u"))) == ()
    assert slices.offer("n") is offer
    assert slices.put(made(node_slice("n", device("b")))) == ("n",)
    assert devices(slices.offer("n")) == ["b"]


def test_a_pool_of_two_nodes_is_of_none_until_one_of_them_goes() -> None:
    slices = Slices()
    first, second = part_of("s1", "a", count=2), made(slice_of("s2", device("b"), pool="n", node="m", count=2))
    pool = DRIVER, "n"
    assert not slices.knows(pool)
    assert slices.node_of(pool) == ""
    assert slices.put(first) == ("n",)
    assert (slices.node_of(pool), slices.nodes, tuple(slices.pools("n"))) == ("n", ["n"], (pool,))
    assert slices.put(second) == ("n", "")
    assert slices.knows(pool)
    assert (slices.node_of(pool), slices.nodes, tuple(slices.pools("n"))) == ("", [], ())
    assert devices(slices.offer("")) == ["a", "b"]
    slices.validate()
    assert slices.drop("s2") == ("", "n")
    assert slices.drop("s1") == ("n",)
    assert slices.drop("s1") == ()
    assert not slices.knows(pool)
    assert not slices
    slices.validate()


def test_a_slice_that_moves_to_another_pool_leaves_the_first() -> None:
    slices = Slices()
    slices.put(part_of("s1", "a"))
    assert slices.put(made(slice_of("s1", device("a"), pool="m", node="m"))) == ("n", "m")
    assert (devices(slices.offer("n")), devices(slices.offer("m"))) == ([], ["a"])
    slices.validate()


def test_drift_of_offers_is_found() -> None:
    slices = Slices()
    slices.put(part_of("s1", "a"))
    slices._node_of[DRIVER, "n"] = "m"
    with pytest.raises(AssertionError, match="pools of n"):
        slices.validate()
    slices._node_of[DRIVER, "n"] = "n"
    slices.validate()
    del slices._slices["s1"]
    with pytest.raises(AssertionError, match="pools and slices do not agree"):
        slices.validate()


def test_an_attribute_without_a_domain_is_the_drivers_own() -> None:
    attributes: dict[str, Any] = {"plain": "1", "other.com/far": "2"}
    (given,) = offered(node_slice("n", device("a", **attributes))).devices
    assert attribute_of(DRIVER, given, "plain") == given.attributes["plain"]
    assert attribute_of(DRIVER, given, f"{DRIVER}/plain") == given.attributes["plain"]
    assert attribute_of(DRIVER, given, "other.com/far") == given.attributes["other.com/far"]
    assert attribute_of(DRIVER, given, "other.com/plain") is None
    assert attribute_of(DRIVER, given, f"{DRIVER}/far") is None
