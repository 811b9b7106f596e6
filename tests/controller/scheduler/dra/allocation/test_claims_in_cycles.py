"""Gangs that ask for devices by claim, through whole cycles: what nodes can still give decides where they go."""

from controller.objects.deviceclaims import ResourceClaim, ResourceSlice
from tests.support.engine.boards import hosts, settled
from tests.support.engine.claimsupply import cluster, fitting_pods, gang, gpus, made_for, pod_of, said
from tests.support.engine.deviceclaims import DRIVER, asks, claim, device, node_slice, template
from tests.support.engine.topologylab import HOST, RACK

ONE = template("one", asks())
TWO = template("two", asks(count=2))
PAIR = template("pair", asks(count=2), constraints=[{"matchAttribute": f"{DRIVER}/pair"}])


def test_a_gang_goes_where_its_claims_find_devices() -> None:
    world = cluster({"b/r/a": gpus("a", 1), "b/r/b": gpus("b", 4)}, TWO)
    world.put(gang("w", 2, templates=["two"]))
    settled(world)
    assert hosts(world, "w") == {"b": 2}


def test_a_gangs_claims_fit_together_or_not_at_all() -> None:
    world = cluster({"b/r/a": gpus("a", 3), "b/r/b": gpus("b", 3)}, TWO, ONE)
    world.put(gang("w", 3, templates=["two"]))
    settled(world)
    assert hosts(world, "w") == {}
    world.put(gang("v", 6, templates=["one"]))
    settled(world)
    assert hosts(world, "v") == {"a": 3, "b": 3}


def test_four_free_gpus_in_two_pairs_hold_two_pairs_and_three_hold_one() -> None:
    world = cluster({"b/r/a": gpus("a", 4), "b/r/b": gpus("b", 3)}, PAIR)
    world.put(gang("w", 4, templates=["pair"]), gang("v", 3, templates=["pair"]))
    settled(world)
    assert hosts(world, "w") == {}
    assert hosts(world, "v") == {"a": 2, "b": 1}


def test_what_was_placed_is_taken_until_it_ends() -> None:
    world = cluster({"b/r/a": gpus("a", 2)}, ONE)
    world.put(gang("early", 2, templates=["one"]), gang("late", 1, templates=["one"]))
    settled(world)
    assert (hosts(world, "early"), hosts(world, "late")) == ({"a": 2}, {})
    world.finish("early")
    settled(world)
    assert hosts(world, "late") == {"a": 1}


def test_devices_that_another_pods_claim_has_are_not_free() -> None:
    world = cluster({"b/r/a": gpus("a", 2)}, ONE)
    world.put(claim("x", asks(), given=["r0"], at="a", devices=["gpu-1"], **made_for("other")))
    world.put(gang("w", 2, templates=["one"]))
    settled(world)
    assert hosts(world, "w") == {}
    world.engine.drop(ResourceClaim, "ns", "x", world.now_s)
    settled(world)
    assert hosts(world, "w") == {"a": 2}


def test_what_a_pod_of_the_gang_was_given_counts_once() -> None:
    world = cluster({"b/r/a": gpus("a", 3)}, ONE)
    world.put(gang("w", 2, templates=["one"]))
    settled(world)
    world.put(pod_of("p", "w", "a"))
    world.put(claim("p-gpu", asks(), given=["r0"], at="a", devices=["gpu-2"], **made_for("p")))
    settled(world)
    assert fitting_pods(world, "a", "one") == 1
    world.put(gang("early", 1, templates=["one"]), gang("late", 1, templates=["one"]))
    settled(world)
    assert (hosts(world, "early"), hosts(world, "late")) == ({"a": 1}, {})


def test_a_pod_on_its_way_out_keeps_nothing() -> None:
    world = cluster({"b/r/a": gpus("a", 1)}, ONE)
    world.put(gang("w", 1, templates=["one"]))
    settled(world)
    world.put(pod_of("p", "w", "a"))
    world.put(claim("p-gpu", asks(), given=["r0"], at="a", devices=["gpu-0"], **made_for("p")))
    settled(world)
    assert fitting_pods(world, "a", "one") == 0
    world.finish("w")
    world.put(gang("v", 1, templates=["one"]))
    settled(world)
    assert hosts(world, "v") == {"a": 1}


def test_slices_that_come_later_wake_the_gang_and_slices_that_go_lower_the_room() -> None:
    world = cluster({"b/r/a": gpus("a", 1), "b/r/b": []}, ONE)
    world.put(gang("w", 2, templates=["one"]))
    settled(world)
    assert hosts(world, "w") == {}
    world.put(node_slice("b", *gpus("b", 1)))
    settled(world)
    assert hosts(world, "w") == {"a": 1, "b": 1}
    world.engine.drop(ResourceSlice, "", "slice-a", world.now_s)
    world.put(gang("v", 1, templates=["one"]))
    settled(world)
    assert hosts(world, "v") == {}


def test_a_claim_by_name_brings_all_its_pods_to_one_node() -> None:
    world = cluster({"b/r/a": gpus("a", 1), "b/s/b": gpus("b", 4)}, ONE, claim("shared", asks(count=2)))
    world.put(gang("w", 3, claims=["shared"], templates=["one"]))
    settled(world)
    assert hosts(world, "w") == {}
    world.put(gang("v", 2, claims=["shared"], templates=["one"]))
    settled(world)
    assert hosts(world, "v") == {"b": 2}
    assert fitting_pods(world, "b", claims=["shared"]) > 100
    assert fitting_pods(world, "a", claims=["shared"]) == 0
    assert fitting_pods(world, "b", "one") == 0


def test_a_claim_by_name_that_has_its_devices_holds_its_pods_to_their_node() -> None:
    given = claim("shared", asks(), given=["r0"], at="b", devices=["gpu-0"])
    world = cluster({"b/r/a": gpus("a", 2), "b/r/b": gpus("b", 1)}, given)
    world.put(gang("w", 5, claims=["shared"], level=RACK))
    settled(world)
    assert hosts(world, "w") == {"b": 5}


def test_a_second_user_of_a_claim_follows_the_first() -> None:
    world = cluster({"b/r/a": gpus("a", 1), "b/r/b": gpus("b", 1)}, ONE, claim("shared", asks()))
    world.put(gang("v", 1, claims=["shared"]))
    settled(world)
    first = hosts(world, "v")
    world.put(gang("w", 2, claims=["shared"]))
    settled(world)
    assert list(hosts(world, "w")) == list(first)
    world.finish("v")
    settled(world)
    assert fitting_pods(world, next(iter(first)), "one") == 0


def test_preemption_frees_the_devices_of_claims() -> None:
    lower = {"withinClusterQueue": "LowerPriority"}
    world = cluster({"b/r/a": gpus("a", 2)}, TWO, ONE, preemption=lower)
    world.put(gang("low", 1, templates=["one"]))
    settled(world)
    world.put(gang("high", 1, templates=["two"], priority=10, level=HOST))
    settled(world)
    assert world.stop_evicted() == 1
    settled(world)
    assert (hosts(world, "high"), hosts(world, "low")) == ({"a": 1}, {})


def test_a_rebuilt_engine_plans_the_same() -> None:
    world = cluster({"b/r/a": gpus("a", 4)}, ONE, TWO)
    world.put(gang("w", 1, templates=["one"]), gang("v", 1, templates=["two"]))
    settled(world)
    world.rebuild()
    world.engine.validate()
    assert fitting_pods(world, "a", "one") == 1


def test_a_gang_without_devices_says_which_class_lacks_how_many_on_what_nodes() -> None:
    world = cluster({"b/r/a": gpus("a", 3), "b/r/b": gpus("b", 1), "b/r/c": gpus("c", 4)}, PAIR, TWO)
    world.put(gang("early", 2, templates=["two"]))
    settled(world)
    assert hosts(world, "early") == {"c": 2}
    world.put(gang("late", 2, templates=["pair"]))
    settled(world)
    assert said(world, "late").endswith(
        "no room for 2 pods on the nodes of topology dc: at most 1 fits; 2 of 3 open nodes have no room for one of"
        " them; their claims find no devices on 2 of 3 open nodes: 2 with at most 1 of the 2 of class gpu.example.com"
        " that a pod needs"
    )


def test_free_devices_that_do_not_go_together_are_told_as_such() -> None:
    odd = [device(f"g{at}", type="gpu", pair=str(at)) for at in range(2)]
    world = cluster({"b/r/a": odd}, PAIR)
    world.put(gang("w", 1, templates=["pair"]))
    settled(world)
    assert said(world, "w").endswith("on 1 those that are free do not go together as they ask")


def test_a_claim_by_name_says_where_its_devices_are() -> None:
    given = claim("shared", asks(), given=["r0"], at="gone", devices=["gpu-0"])
    world = cluster({"b/r/a": gpus("a", 2)}, given)
    world.put(node_slice("gone", *gpus("gone", 1)))
    world.put(gang("w", 1, claims=["shared"]))
    settled(world)
    assert said(world, "w").endswith("open node: ResourceClaim ns/shared has its devices on gone")
