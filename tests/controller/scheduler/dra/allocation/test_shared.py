"""Claims by name that several pod sets or workloads have: one set of devices, on one node that all of them reach."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.workload import Workload
from tests.support.engine.boards import hosts, settled
from tests.support.engine.claimlab import Lab, owner_of, usage
from tests.support.engine.claimsupply import cluster, fitting_pods, gang, gpus, said
from tests.support.engine.deviceclaims import GPUS, asks, claim, node_slice, template
from tests.support.engine.topologylab import HOST, RACK
from tests.support.engine.world import World, cluster_queue, flavor

ONE = template("one", asks())
SHARED = claim("shared", asks())


def sets(name: str, *gangs: Workload, group: str = "", **more: Any) -> Workload:
    """One workload of all their pod sets: ``s0``, ``s1``, in their order."""
    found = []
    for at, each in enumerate(gangs):
        pod_set = msgspec.structs.replace(each.spec.pod_sets[0], name=f"s{at}")
        if group and pod_set.topology_request is not None:
            asked = msgspec.structs.replace(pod_set.topology_request, pod_set_group_name=group)
            pod_set = msgspec.structs.replace(pod_set, topology_request=asked)
        found.append(pod_set)
    whole = gang(name, 1, **more)
    return msgspec.structs.replace(whole, spec=msgspec.structs.replace(whole.spec, pod_sets=tuple(found)))


def places(world: World, name: str, number: int = 2) -> list[dict[str, int]]:
    return [hosts(world, name, at) for at in range(number)]


def test_pod_sets_that_share_a_claim_go_to_the_node_with_room_for_all_of_them() -> None:
    world = cluster({"b/r/a": gpus("a", 2), "b/r/b": gpus("b", 3), "b/r/c": gpus("c", 1)}, ONE, SHARED)
    world.put(sets("w", gang("x", 1, claims=["shared"]), gang("y", 2, claims=["shared"], templates=["one"])))
    settled(world)
    assert places(world, "w") == [{"b": 1}, {"b": 2}]
    assert fitting_pods(world, "b", "one") == 0
    assert fitting_pods(world, "a", "one") == 2


def test_claims_that_chain_pod_sets_bring_all_of_them_to_one_node() -> None:
    world = cluster({"b/r/a": gpus("a", 3), "b/s/b": gpus("b", 4)}, ONE, SHARED, claim("other", asks()))
    first, last = gang("x", 1, claims=["shared"]), gang("z", 2, claims=["other"], templates=["one"])
    world.put(sets("w", first, gang("y", 1, claims=["shared", "other"]), last))
    settled(world)
    assert places(world, "w", 3) == [{"b": 1}, {"b": 1}, {"b": 2}]


def test_pod_sets_with_claims_of_their_own_go_where_each_finds_room() -> None:
    world = cluster({"b/r/a": gpus("a", 1), "b/r/b": gpus("b", 1)}, SHARED, claim("other", asks()))
    world.put(sets("w", gang("x", 1, claims=["shared"]), gang("y", 1, claims=["other"])))
    settled(world)
    assert sorted(node for each in places(world, "w") for node in each) == ["a", "b"]


def test_pod_sets_that_find_no_node_for_all_of_them_wait_and_say_for_which_claim() -> None:
    world = cluster({"b/r/a": gpus("a", 2), "b/r/b": gpus("b", 2)}, ONE, SHARED)
    world.put(sets("w", gang("x", 1, claims=["shared"]), gang("y", 2, claims=["shared"], templates=["one"])))
    settled(world)
    assert places(world, "w") == [{}, {}]
    assert "no node has room for all pods of pod sets s0, s1, which share ResourceClaim ns/shared" in said(world, "w")
    world.put(node_slice("b", *gpus("b", 3)))
    settled(world)
    assert places(world, "w") == [{"b": 1}, {"b": 2}]


def test_pods_with_nothing_but_a_claim_that_others_are_charged_go_where_those_are() -> None:
    world = cluster({"b/r/a": gpus("a", 1), "b/r/b": gpus("b", 2)}, ONE, SHARED)
    world.put(sets("w", gang("x", 1, claims=["shared"], templates=["one"]), gang("y", 3, claims=["shared"])))
    settled(world)
    assert places(world, "w") == [{"b": 1}, {"b": 3}]


def test_pod_sets_that_share_a_claim_have_the_flavor_with_room_for_all_of_them() -> None:
    """The first flavor has quota for the claim, and not for the devices that the second pod set has beside it."""
    world = cluster({"b/r/a": gpus("a", 1), "b/s/b": gpus("b", 3)}, ONE, SHARED)
    quotas = [
        {"name": name, "resources": [{"name": GPUS.resource, "nominalQuota": amount}]}
        for name, amount in (("left", 1), ("right", 3))
    ]
    groups = [{"coveredResources": [GPUS.resource], "flavors": quotas}]
    world.put(
        flavor("left", topologyName="dc", nodeLabels={RACK: "r"}),
        flavor("right", topologyName="dc", nodeLabels={RACK: "s"}),
        cluster_queue("q", resourceGroups=groups),
    )
    world.put(sets("w", gang("x", 1, claims=["shared"]), gang("y", 2, claims=["shared"], templates=["one"])))
    settled(world)
    assert places(world, "w") == [{"b": 1}, {"b": 2}]


def test_a_leader_and_its_only_worker_share_a_claim_on_one_node() -> None:
    world = cluster({"b/r/a": gpus("a", 1), "b/r/b": gpus("b", 2)}, ONE, SHARED)
    leader, worker = gang("x", 1, claims=["shared"]), gang("y", 1, claims=["shared"], templates=["one"])
    world.put(sets("w", leader, worker, group="g"))
    settled(world)
    assert places(world, "w") == [{"b": 1}, {"b": 1}]


def test_a_gangs_own_domain_holds_for_pod_sets_that_share_a_claim() -> None:
    world = cluster({"b/r/a": gpus("a", 3), "b/s/b": gpus("b", 2)}, ONE, SHARED)
    wide = gang("y", 2, claims=["shared"], templates=["one"], level=RACK)
    world.put(sets("w", gang("x", 1, claims=["shared"], level=RACK), wide))
    settled(world)
    assert places(world, "w") == [{"a": 1}, {"a": 2}]


def test_the_next_user_keeps_the_planned_devices_of_one_that_is_taken_away_in_a_trial() -> None:
    lab = Lab(ONE, SHARED, node_slice("a", *gpus("a", 2)))
    one, other = usage(claims=["shared"], a=1), usage(claims=["shared"], a=2)
    lab.place("v", one)
    lab.place("w", other)
    with lab.undo.trial():
        lab.supply.remove(one, owner_of("v"))
        assert lab.fitting_pods("a", "one") == 1
        lab.supply.validate()
        lab.supply.remove(other, owner_of("w"))
        assert lab.fitting_pods("a", "one") == 2
    assert lab.fitting_pods("a", "one") == 1
    lab.supply.validate()


def test_planned_devices_are_free_in_a_trial_without_any_other_user_of_their_claim() -> None:
    lab = Lab(ONE, SHARED, claim("other", asks()), node_slice("a", *gpus("a", 4)))
    last = usage(claims=["shared"], a=1)
    for owner, there in {"t": usage("one", a=1), "v": last, "w": usage(claims=["other"], a=1)}.items():
        lab.place(owner, there)
    with lab.undo.trial():
        lab.supply.remove(last, owner_of("v"))
        assert lab.fitting_pods("a", "one") == 2
        lab.supply.validate()
    assert lab.fitting_pods("a", "one") == 1


def test_evicting_one_user_of_a_planned_claim_makes_no_room_for_its_devices() -> None:
    lower = {"withinClusterQueue": "LowerPriority"}
    world = cluster({"b/r/a": gpus("a", 1)}, ONE, SHARED, preemption=lower)
    world.put(gang("low", 1, claims=["shared"]))
    settled(world)
    world.put(gang("kept", 1, claims=["shared"], priority=20))
    settled(world)
    world.put(gang("high", 1, templates=["one"], priority=10, level=HOST))
    settled(world)
    assert world.stop_evicted() == 0
    assert (hosts(world, "low"), hosts(world, "high")) == ({"a": 1}, {})


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 2), st.booleans()), min_size=1, max_size=3),
    st.booleans(),
)
def test_sharers_are_placed_exactly_where_some_node_has_room_for_all(
    sizes: list[int], more: list[tuple[int, bool]], own: bool
) -> None:
    """``more``: pods of each pod set but the first, and whether each has a device beside the claim, as ``own`` says of
    the first's one pod.
    """
    world = cluster({f"b/r/n{at}": gpus(f"n{at}", number) for at, number in enumerate(sizes)}, ONE, SHARED)
    asked = [(1, own), *more]
    world.put(sets("w", *(gang("x", n, claims=["shared"], templates=["one"] if each else []) for n, each in asked)))
    settled(world)
    needed = 1 + sum(number for number, each in asked if each)
    found, pods = places(world, "w", len(asked)), [number for number, _ in asked]
    assert len({node for each in found for node in each}) == (1 if max(sizes) >= needed else 0)
    assert [sum(each.values()) for each in found] in (pods, [0] * len(asked))
    world.engine.validate()
