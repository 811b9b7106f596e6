"""What a user asks of a topology, and where the pods then are."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controller.objects.decode import decode
from controller.objects.meta import Condition
from controller.objects.queues import ResourceFlavor
from controller.scheduler.model.resources import FlavorName
from controller.scheduler.topology.nodes import LEAVING
from controller.scheduler.topology.port import PlacementNoFit
from tests.support.engine.topologylab import BLOCK, FLAVOR, GPU, HOST, RACK, Lab, ask, even, node, pod, usage

NO_ROW = f"topology dc has no level dc/row, expected one of {BLOCK}, {RACK}, {HOST}"
TAINT: dict[str, Any] = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}


def test_required_pods_are_in_one_domain_and_in_the_tightest_that_holds_them() -> None:
    lab = Lab({"b/r1/a": 8, "b/r1/b": 8, "b/r2/c": 4, "b/r2/d": 2})
    assert lab.main(ask(6, required=RACK)) == {"c": 4, "d": 2}
    assert lab.main(ask(7, required=RACK)) == {"a": 7}
    assert lab.main(ask(17, required=RACK)) is None


def test_what_is_left_goes_to_the_tightest_that_holds_it() -> None:
    lab = Lab({"b/r/a": 4, "b/r/b": 3, "b/r/c": 1, "b/r/d": 2})
    assert lab.main(ask(5, required=RACK)) == {"a": 4, "c": 1}
    assert lab.main(ask(6, required=RACK)) == {"a": 4, "d": 2}


@pytest.mark.parametrize("mixed", [False, True])
def test_the_order_of_a_racks_hosts_is_that_of_what_is_left_in_them(mixed: bool) -> None:
    lab = Lab(even(1, 3, 4, 4), {"TASProfileMixed": mixed})
    asks = ask(2, required=RACK), ask(2, podSetSliceRequiredTopology=RACK, podSetSliceSize=2)
    for request in asks:
        lab.main(request)
    lab.hold({"b0r0h2": 2})
    assert lab.main(asks[0]) == {"b0r0h2": 2}
    lab.hold({"b0r0h3": 1})
    lab.hold({"b0r0h2": 2})
    assert lab.main(asks[0]) == {"b0r0h3": 2}
    for request in asks:
        lab.main(request)
        lab.topologies.validate_trees()


def test_what_a_topology_cannot_be_asked_is_never_there() -> None:
    lab = Lab(even(1, 1, 2, 4))
    assert lab.topologies.can_place([ask(2, required=RACK)])
    assert not lab.topologies.can_place([ask(2, required="dc/row")])


def test_what_an_empty_cluster_offers_changes_with_its_nodes_alone() -> None:
    lab, request = Lab(even(1, 2, 4, 4)), ask(13, required=RACK)
    held = usage({f"b0r0h{at}": 4 for at in range(4)})
    lab.topologies.add(FLAVOR, held)
    before = lab.place(request, empty=True)
    assert lab.place(request, empty=True) == before == {"main": {"b0r0h0": 4, "b0r0h1": 4, "b0r0h2": 4, "b0r0h3": 1}}
    lab.topologies.remove_node("b0r0h3")
    after = {"main": {"b0r1h0": 4, "b0r1h1": 4, "b0r1h2": 4, "b0r1h3": 1}}
    assert lab.place(request, empty=True) == after
    lab.topologies.set_node(node("b0/b0r1/b0r1h0", 0))
    assert isinstance(lab.place(request, empty=True), str)


def test_a_pod_set_that_asks_for_more_of_each_pod_is_asked_for_anew() -> None:
    lab = Lab(even(1, 1, 2, 4))
    first = ask(2, 2, required=RACK)
    large = msgspec.structs.replace(first, single_pod={GPU: 4})
    assert lab.main(first) == {"b0r0h0": 2}
    assert lab.main(large) == {"b0r0h0": 1, "b0r0h1": 1}


def test_preferred_pods_climb_and_at_the_top_spread() -> None:
    lab = Lab(even(2, 2, 2, 2))
    assert lab.main(ask(4, preferred=RACK)) == {"b0r0h0": 2, "b0r0h1": 2}
    found = lab.main(ask(6, preferred=RACK))
    assert found is not None
    assert {host[:2] for host in found} == {"b0"}
    spread = lab.main(ask(16, preferred=HOST))
    assert spread is not None
    assert (sum(spread.values()), len(spread)) == (16, 8)


def test_preferred_pods_that_no_rack_holds_stay_in_one_block_though_emptier_racks_are_elsewhere() -> None:
    lab = Lab({"b/r1/a": 5, "c/r2/c": 3, "c/r3/d": 4})
    assert lab.main(ask(7, preferred=RACK)) == {"c": 3, "d": 4}
    assert lab.main(ask(8, preferred=RACK)) == {"a": 5, "c": 3}


def test_unconstrained_pods_fill_the_fullest_hosts_first() -> None:
    lab = Lab({"b/r/a": 8, "b/r/b": 8})
    lab.hold({"b": 6})
    assert lab.main(ask(2, unconstrained=True)) == {"b": 2}
    assert lab.main(ask(1, implied=True)) == {"b": 1}
    # No host holds three: they spread over hosts, though the second rack would hold them all.
    assert Lab({"b/r1/a": 1, "b/r2/b": 2, "b/r2/c": 2}).main(ask(3, unconstrained=True)) == {"a": 1, "b": 2}
    emptiest_first = Lab({"b/r/a": 8, "b/r/b": 4}, {"TASProfileMixed": False})
    assert emptiest_first.main(ask(9, unconstrained=True)) == {"a": 8, "b": 1}


def test_slices_are_never_torn() -> None:
    lab = Lab({"b/r1/a": 3, "b/r1/b": 3, "b/r2/c": 3, "b/r2/d": 0})
    sliced: dict[str, Any] = {"podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2}
    assert lab.main(ask(4, required=RACK, **sliced)) == {"a": 2, "b": 2}
    assert lab.main(ask(6, required=BLOCK, **sliced)) == {"a": 2, "b": 2, "c": 2}
    assert lab.main(ask(8, required=BLOCK, **sliced)) is None
    assert "cannot be cut into slices of 2" in str(lab.place(ask(3, required=BLOCK, **sliced)))


def test_slices_alone_may_be_anywhere() -> None:
    lab = Lab(even(2, 1, 2, 2))
    found = lab.main(ask(8, podSetSliceRequiredTopology=RACK, podSetSliceSize=4))
    assert found == {"b0r0h0": 2, "b0r0h1": 2, "b1r0h0": 2, "b1r0h1": 2}


def test_layers_of_slices_lie_in_each_other() -> None:
    layers: list[dict[str, Any]] = [{"topology": RACK, "size": 4}, {"topology": HOST, "size": 2}]
    lab = Lab({"b/r1/a": 3, "b/r1/b": 3, "b/r2/c": 5, "b/r2/d": 1})
    found = lab.main(ask(8, required=BLOCK, podsetSliceRequiredTopologyConstraints=layers))
    assert found == {"a": 2, "b": 2, "c": 4}
    # Four pods fit into this rack, and no two pairs.
    torn = Lab({"b/r1/a": 3, "b/r1/b": 1})
    assert torn.main(ask(4, required=BLOCK, podsetSliceRequiredTopologyConstraints=layers)) is None
    assert "cannot be cut" in str(
        lab.place(
            ask(8, required=BLOCK, podsetSliceRequiredTopologyConstraints=[layers[0], {"topology": HOST, "size": 3}])
        )
    )


def test_a_leader_and_its_workers_share_their_domain_and_the_leader_costs_no_worker_its_place() -> None:
    lab = Lab({"b/r1/a": 2, "b/r1/b": 4, "b/r1/c": 3, "b/r2/d": 4})
    group: dict[str, Any] = {"required": RACK, "podSetGroupName": "g"}
    found = lab.place(ask(1, 1, name="leader", **group), ask(4, 2, name="workers", **group))
    assert found == {"leader": {"c": 1}, "workers": {"a": 1, "b": 2, "c": 1}}


def test_a_tighter_domain_without_room_for_the_leader_is_passed_over() -> None:
    lab = Lab({"b/r1/a": 2, "b/r2/b": 7, "b/r3/c": 6})
    group: dict[str, Any] = {"required": HOST, "podSetGroupName": "g"}
    found = lab.place(ask(1, 3, name="leader", **group), ask(2, name="workers", **group))
    assert found == {"leader": {"c": 1}, "workers": {"c": 2}}


def test_a_leader_that_has_finished_takes_no_room_and_neither_do_workers_that_have() -> None:
    lab = Lab({"b/r1/a": 3})
    group: dict[str, Any] = {"required": RACK, "podSetGroupName": "g"}
    for leader, workers in ((0, 3), (1, 0), (0, 0)):
        asked = ask(leader, 2, name="leader", **group), ask(workers, name="workers", **group)
        expected = {"leader": {"a": leader} if leader else {}, "workers": {"a": workers} if workers else {}}
        assert lab.place(*asked) == expected
        assert lab.topologies.can_place(asked)


def test_what_is_no_group_is_refused_and_does_not_run_without_places() -> None:
    lab = Lab(even(1, 1, 2, 8))
    group: dict[str, Any] = {"required": RACK, "podSetGroupName": "g"}
    for counts in ((1, 2, 3), (2, 2)):
        asked = [ask(count, name=f"s{at}", **group) for at, count in enumerate(counts)]
        assert "a pod set group is two pod sets, one of them with one pod" in str(lab.place(*asked))
        assert not lab.topologies.can_place(asked)


def test_a_slice_of_which_a_pod_has_finished_is_placed_as_a_whole() -> None:
    lab = Lab({"b/r1/a": 2, "b/r1/b": 2, "b/r2/d": 3, "b/r3/e": 4})
    whole = ask(8, podSetSliceRequiredTopology=RACK, podSetSliceSize=4)
    assert lab.main(msgspec.structs.replace(whole, count=7)) == {"a": 2, "b": 2, "e": 3}
    assert lab.main(msgspec.structs.replace(whole, count=3)) == {"a": 2, "b": 1}


def test_pod_sets_of_one_workload_do_not_get_the_same_room() -> None:
    lab = Lab({"b/r/a": 4, "b/r/b": 3})
    two = (ask(3, name="one", required=HOST), ask(3, name="two", required=HOST))
    assert lab.place(*two) == {"one": {"b": 3}, "two": {"a": 3}}
    assert lab.place(*two, empty=True) == {"one": {"b": 3}, "two": {"a": 3}}
    assert isinstance(lab.place(*two, ask(2, name="three", required=HOST), empty=True), str)
    lab.topologies.validate([])


def test_an_empty_cluster_is_one_without_placed_pods_and_with_foreign_ones() -> None:
    lab = Lab({"b/r/a": 4})
    lab.hold({"a": 3})
    lab.topologies.set_pod(pod("daemon", "a", 1))
    assert lab.main(ask(3, required=HOST)) is None
    assert lab.place(ask(3, required=HOST), empty=True) == {"main": {"a": 3}}
    assert isinstance(lab.place(ask(4, required=HOST), empty=True), str)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"b": 1}),
        ({"tolerations": [{"key": "broken", "operator": "Exists"}]}, {"a": 1}),
        ({"nodeSelector": {"disk": "ssd"}}, {"c": 1}),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                        }
                    }
                }
            },
            {"c": 1},
        ),
        ({"nodeSelector": {"disk": "tape"}}, None),
    ],
)
def test_only_nodes_open_to_the_pods_are_taken(spec: dict[str, Any], expected: dict[str, int] | None) -> None:
    lab = Lab({})
    lab.topologies.set_node(node("b/r/a", 1, **TAINT))
    lab.topologies.set_node(node("b/r/b", 2))
    lab.topologies.set_node(node("b/r/c", 3, labels={"disk": "ssd"}))
    assert lab.main(ask(1, required=HOST, spec=spec)) == expected


def test_a_node_that_is_tainted_later_takes_no_more_pods() -> None:
    lab = Lab({"b/r/a": 4})
    assert lab.main(ask(1, required=HOST)) == {"a": 1}
    lab.topologies.set_node(node("b/r/a", 4, **TAINT))
    assert lab.main(ask(1, required=HOST)) is None
    lab.topologies.set_node(node("b/r/a", 4))
    assert lab.main(ask(1, required=HOST)) == {"a": 1}


def needs(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def field(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        ((label("disk", "In", "ssd", "tape"),), "c"),
        ((label("disk", "NotIn", "ssd"),), "ab"),
        ((label("disk", "DoesNotExist"),), "a"),
        ((label("gen", "Gt", "4"),), "c"),
        ((label("gen", "Lt", "5"),), "b"),
        ((label("gen", "Gt", "four"),), ""),
        ((label("disk", "Gt", "1"),), ""),
        ((label("gen", "Near", "4"),), ""),
        ((field("In", "a", "c"),), "ac"),
        ((field("NotIn", "a"),), "bc"),
        ((field("In", "a", key="metadata.uid"),), ""),
        ((label("disk", "DoesNotExist"), label("gen", "Gt", "4")), "ac"),
        (({**label("disk", "Exists"), **field("In", "a", "b")},), "b"),
        (({},), ""),
        (({}, label("disk", "In", "hdd")), "b"),
    ],
)
def test_required_affinity_is_read_as_the_scheduler_reads_it(terms: tuple[dict[str, Any], ...], nodes: str) -> None:
    lab = Lab({"b/r/a": 1})
    lab.topologies.set_node(node("b/r/b", 1, labels={"disk": "hdd", "gen": "4"}))
    lab.topologies.set_node(node("b/r/c", 1, labels={"disk": "ssd", "gen": "5"}))
    found = lab.main(ask(len(nodes), required=BLOCK, spec=needs(*terms))) if nodes else {}
    assert found == dict.fromkeys(nodes, 1)
    assert lab.main(ask(len(nodes) + 1, required=BLOCK, spec=needs(*terms))) is None


@pytest.mark.parametrize(("effect", "open_"), [("NoSchedule", False), ("NoExecute", False), ("PreferNoSchedule", True)])
def test_a_taint_that_only_discourages_keeps_nobody_away(effect: str, open_: bool) -> None:
    lab = Lab({})
    lab.topologies.set_node(node("b/r/a", 1, taints=[{"key": "broken", "effect": effect}]))
    assert (lab.main(ask(1, required=HOST)) is not None) == open_
    only = {"tolerations": [{"key": "broken", "operator": "Exists", "effect": "NoSchedule"}]}
    assert (lab.main(ask(1, required=HOST, spec=only)) is not None) == (effect != "NoExecute")


def test_a_flavors_tolerations_count_and_its_labels_choose_the_nodes() -> None:
    lab = Lab({})
    lab.flavor("f", nodeLabels={"kind": "gpu"}, tolerations=[{"key": "broken", "operator": "Exists"}])
    lab.topologies.set_node(node("b/r/a", 1, labels={"kind": "gpu"}, **TAINT))
    lab.topologies.set_node(node("b/r/b", 8))
    assert lab.main(ask(1, required=HOST)) == {"a": 1}
    assert lab.main(ask(2, required=BLOCK)) is None


def test_nodes_that_cannot_take_pods_have_no_room() -> None:
    lab = Lab({"b/r/a": 4})
    lab.topologies.set_node(node("b/r/a", 4, ready=False))
    assert lab.main(ask(1, required=HOST)) is None
    lab.topologies.set_node(node("b/r/a", 4, unschedulable=True))
    assert lab.main(ask(1, required=HOST)) is None
    lab.topologies.set_node(node("b/r/a", 4))
    assert lab.main(ask(1, required=HOST)) == {"a": 1}


def test_a_node_that_is_being_deleted_has_no_room_though_its_pods_still_run() -> None:
    lab = Lab({"b/r/a": 4})
    going = node("b/r/a", 4)
    at = datetime(2025, 1, 1, tzinfo=UTC)
    meta = msgspec.structs.replace(going.metadata, deletion_timestamp=at, finalizers=("karpenter.sh/termination",))
    lab.topologies.set_node(msgspec.structs.replace(going, metadata=meta))
    assert lab.main(ask(1, required=HOST)) is None


@pytest.mark.parametrize("taint", sorted(LEAVING))
def test_a_node_that_leaves_gets_no_pod_even_one_that_tolerates_everything(taint: str) -> None:
    tolerant = {"tolerations": [{"operator": "Exists"}]}
    going = node("b/r/a", 4, taints=[{"key": taint, "value": "1", "effect": "NoSchedule"}])
    for leaving, places in ((LEAVING, None), (frozenset[str](), {"a": 1})):
        lab = Lab({}, leaving=leaving)
        lab.topologies.set_node(going)
        assert lab.main(ask(1, required=HOST, spec=tolerant)) == places
        lab.topologies.set_node(node("b/r/a", 4))
        assert lab.main(ask(1, required=HOST)) == {"a": 1}


def test_a_node_whose_maintenance_is_planned_gets_no_pod() -> None:
    for leaving, places in ((LEAVING, None), (frozenset[str](), {"a": 1})):
        lab = Lab({}, leaving=leaving)
        planned = node("b/r/a", 4)
        conditions = (*planned.status.conditions, Condition(type="MaintenancePlanned", status="True"))
        status = msgspec.structs.replace(planned.status, conditions=conditions)
        lab.topologies.set_node(msgspec.structs.replace(planned, status=status))
        assert lab.main(ask(1, required=HOST)) == places


def test_a_node_that_moves_to_another_rack_and_back_is_found_where_it_is() -> None:
    lab = Lab({"b/r1/a": 4, "b/r1/b": 1})
    lab.hold({"a": 1})
    for rack in ("r2", "r1", "r2"):
        lab.topologies.set_node(node(f"b/{rack}/a", 4))
        lab.topologies.validate_trees()
        assert lab.topologies.domains("a", [FLAVOR]) == {BLOCK: "b", RACK: rack}
        assert lab.main(ask(3, required=HOST)) == {"a": 3}
        assert lab.topologies.fits([(FLAVOR, usage({"a": 3}))])
        assert not lab.topologies.fits([(FLAVOR, usage({"a": 4}))])


def test_a_foreign_pod_takes_room_until_it_ends_and_one_of_ours_is_counted_by_its_assignment() -> None:
    lab = Lab({"b/r/a": 4})
    assert lab.topologies.set_pod(pod("p", "a", 2)) == {FLAVOR}
    assert lab.main(ask(3, required=HOST)) is None
    assert lab.topologies.set_pod(pod("p", "a", 2)) == frozenset()
    lab.topologies.set_pod(pod("p", "a", 2, "Succeeded"))
    lab.topologies.set_pod(pod("ours", "a", 4, annotations={"kueue.x-k8s.io/podset-required-topology": HOST}))
    assert lab.main(ask(4, required=HOST)) == {"a": 4}


def test_every_pod_counts_against_the_nodes_pods() -> None:
    lab = Lab({"b/r/a": 500})
    found = lab.main(ask(110, required=HOST))
    assert (found, lab.main(ask(111, required=HOST))) == ({"a": 110}, None)
    lab.hold({"a": 109}, 0)
    assert (lab.main(ask(1, required=HOST)), lab.main(ask(2, required=HOST))) == ({"a": 1}, None)


def test_flavors_over_the_same_nodes_see_each_others_pods() -> None:
    lab = Lab({"b/r/a": 4})
    lab.flavor("other")
    lab.hold({"a": 3}, flavor=FlavorName("other"))
    assert lab.main(ask(2, required=HOST)) is None
    apart = Lab({"b/r/a": 4}, {"TASHandleOverlappingFlavors": False})
    apart.flavor("other")
    apart.hold({"a": 3}, flavor=FlavorName("other"))
    assert apart.main(ask(2, required=HOST)) == {"a": 2}
    place = usage({"a": 2})
    for flavor_ in ("other", "f"):
        apart.topologies.add(FlavorName(flavor_), place)
    assert apart.main(ask(3, required=HOST)) is None


def test_without_hosts_among_the_levels_a_rack_is_the_sum_of_its_nodes_and_usage_is_the_flavors_own() -> None:
    lab = Lab({"b/r1/a": 2, "b/r1/b": 2, "b/r2/c": 1})
    lab.topology(BLOCK, RACK)
    assert lab.main(ask(3, required=RACK)) == {"b/r1": 3}
    found = lab.topologies.place((ask(3, required=RACK),), on_empty=False)
    assert not isinstance(found, PlacementNoFit)
    lab.topologies.add(FLAVOR, found.topologies["main"])
    assert lab.main(ask(2, required=RACK)) is None


def test_what_is_held_outlives_its_node_and_its_flavor() -> None:
    lab = Lab({"b/r/a": 4})
    lab.hold({"a": 3})
    lab.topologies.remove_node("a")
    assert lab.main(ask(1, required=HOST)) is None
    lab.topologies.remove_flavor(FLAVOR)
    assert isinstance(lab.place(ask(1, required=HOST)), str)
    lab.flavor("f")
    lab.topologies.set_node(node("b2/r2/a", 4))
    assert (lab.main(ask(1, required=HOST)), lab.main(ask(2, required=HOST))) == ({"a": 1}, None)


def test_a_fit_check_sums_the_pod_sets_that_meet_on_a_node() -> None:
    lab = Lab({"b/r/a": 4})
    assert lab.topologies.fits([(FLAVOR, usage({"a": 4}))])
    assert not lab.topologies.fits([(FLAVOR, usage({"a": 2})), (FLAVOR, usage({"a": 1}, 3))])
    assert not lab.topologies.fits([(FLAVOR, usage({"gone": 1}))])


def test_counts_that_were_not_asked_for_in_a_long_time_are_right() -> None:
    lab = Lab({"b/r/a": 4, **{f"b/r/b{at}": 1 for at in range(9)}})
    assert lab.main(ask(4, required=HOST)) == {"a": 4}
    lab.hold({"a": 1})
    for _ in range(600):
        lab.hold({"b0": 1})
        lab.topologies.remove(FLAVOR, usage({"b0": 1}))
    assert lab.main(ask(4, required=HOST)) is None


def test_a_sentence_says_what_was_looked_for_and_the_largest_block_there_is() -> None:
    lab = Lab({"b/r1/a": 2, "b/r2/b": 3})
    assert lab.place(ask(4, required=RACK)) == (
        "no room for 4 pods in one domain of dc/rack of topology dc: at most 3 fit"
    )
    lab.topologies.set_node(node("b/r3/c", 9, **TAINT))
    assert lab.place(ask(6, preferred=RACK)) == (
        "no room for 6 pods on the nodes of topology dc: at most 5 fit; 1 of 3 nodes are closed to these pods: "
        "1 with the taint broken:NoSchedule"
    )
    assert lab.place(ask(1, required="dc/row")) == NO_ROW


def test_a_sentence_counts_what_closes_nodes_and_which_are_full() -> None:
    lab = Lab({"b/r/full": 2, "b/r/free": 2})
    lab.hold({"full": 2})
    lab.topologies.set_node(node("b/r/down1", 8, ready=False))
    lab.topologies.set_node(node("b/r/down2", 8, ready=False))
    lab.topologies.set_node(node("b/r/cordoned", 8, unschedulable=True))
    lab.topologies.set_node(node("b/r/tainted", 8, **TAINT))
    assert lab.place(ask(9, required=RACK)) == (
        "no room for 9 pods in one domain of dc/rack of topology dc: at most 2 fit; "
        "4 of 6 nodes are closed to these pods: 2 not ready, 1 cordoned, 1 with the taint broken:NoSchedule; "
        "1 of 2 open nodes have no room for one of them"
    )
    lab.topologies.set_node(node("b/r/down1", 8))
    lab.topologies.remove_node("down2")
    sentence = lab.place(ask(11, required=RACK))
    assert isinstance(sentence, str)
    assert "2 of 5 nodes are closed to these pods: 1 cordoned, 1 with the taint broken:NoSchedule;" in sentence
    lab.topologies.validate_trees()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "1 not selected by their node selector"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                        }
                    }
                }
            },
            "1 not matched by their node affinity",
        ),
    ],
)
def test_what_the_pods_themselves_ask_of_nodes_is_told(spec: dict[str, Any], reason: str) -> None:
    lab = Lab({"b/r/a": 2})
    lab.topologies.set_node(node("b/r/b", 2, labels={"disk": "ssd"}))
    sentence = lab.place(ask(3, required=RACK, spec=spec))
    assert isinstance(sentence, str)
    assert sentence.endswith(f"at most 2 fit; 1 of 2 nodes are closed to these pods: {reason}")


def test_a_taint_is_told_with_its_value() -> None:
    lab = Lab({"b/r/a": 2})
    taint = {"key": "pool", "value": "batch", "effect": "NoExecute"}
    lab.topologies.set_node(node("b/r/b", 2, labels={"disk": "ssd"}, taints=[taint]))
    sentence = lab.place(ask(3, required=RACK, spec={"nodeSelector": {"disk": "tape"}}))
    assert isinstance(sentence, str)
    assert "1 with the taint pool=batch:NoExecute" in sentence
    assert "1 not selected by their node selector" in sentence


def test_nodes_that_are_all_closed_are_told_with_the_reason() -> None:
    lab = Lab({})
    for at in range(5):
        lab.topologies.set_node(node(f"b/r/n{at}", 8, ready=False))
    sentence = lab.place(ask(2, required=RACK))
    assert isinstance(sentence, str)
    assert sentence.endswith("at most 0 fit; 5 of 5 nodes are closed to these pods: 5 not ready")


def flavor(**spec: Any) -> ResourceFlavor:
    return decode({"metadata": {"name": "f"}, "spec": spec}, ResourceFlavor)


def test_a_flavor_is_no_match_for_a_level_that_its_topology_lacks() -> None:
    lab = Lab({})
    on_dc, bare = flavor(topologyName="dc"), flavor()
    assert lab.topologies.mismatch(ask(1, required=RACK).asked, on_dc) is None
    assert lab.topologies.mismatch(ask(1, required="dc/row").asked, on_dc) == NO_ROW
    assert lab.topologies.mismatch(ask(1, required=RACK).asked, bare) is not None
    assert lab.topologies.mismatch(ask(1).asked, bare) is None
    assert lab.topologies.needs(ask(1).asked, on_dc, implied=True)
    assert not lab.topologies.needs(ask(1).asked, on_dc, implied=False)
    assert not lab.topologies.needs(ask(1, required=RACK).asked, bare, implied=False)


def test_preferred_affinity_goes_before_size_where_its_gate_is_on() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}]}
    }
    asked = ask(2, required=HOST, spec={"affinity": affinity})
    for on, expected in ((True, {"big": 2}), (False, {"small": 2})):
        lab = Lab({"b/r/small": 2}, {"TASRespectNodeAffinityPreferred": on})
        lab.topologies.set_node(node("b/r/big", 8, labels={"disk": "ssd"}))
        assert lab.main(asked) == expected


def test_a_preferred_node_that_is_gone_recommends_its_rack_no_more() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": term}]}
    }
    asked = ask(2, required=RACK, spec={"affinity": affinity})
    lab = Lab({"b/r/a": 4, "b/s/b": 2}, {"TASRespectNodeAffinityPreferred": True})
    lab.topologies.set_node(node("b/r/big", 8, labels={"disk": "ssd"}))
    assert lab.main(asked) == {"big": 2}
    lab.topologies.remove_node("big")
    assert lab.main(asked) == {"b": 2}, "the tightest rack: none is preferred"
    lab.topologies.validate_trees()


def test_balanced_placement_loads_as_few_hosts_evenly() -> None:
    hosts = {f"b/r{rack}/r{rack}h{host}": 4 for rack in range(3) for host in range(2)}
    greedy = Lab(hosts).main(ask(10, preferred=RACK))
    balanced = Lab(hosts, {"TASBalancedPlacement": True}).main(ask(10, preferred=RACK))
    assert [sorted((found or {}).values()) for found in (greedy, balanced)] == [[2, 4, 4], [3, 3, 4]]


def test_balanced_placement_counts_what_the_leader_takes() -> None:
    """One rack holds just all five pods, three and one of the workers on two hosts; in the other two and two do."""
    hosts = {"b/r/a": 4, "b/r/b": 0, "b/r/c": 1, "b/s/d": 4, "b/s/e": 2, "b/s/f": 3}
    asked: dict[str, Any] = {"preferred": RACK, "podSetGroupName": "g"}
    found = Lab(hosts, {"TASBalancedPlacement": True}).place(ask(1, name="leader", **asked), ask(4, **asked))
    assert found == {"main": {"e": 2, "f": 2}, "leader": {"f": 1}}
