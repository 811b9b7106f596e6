"""The placement port in nomination, with a topology of counted slots."""

from typing import Any

from controller.scheduler.flavors.assignment import Assignment, Mode, NoFitReason, Possibility
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.gates import FeatureGates
from tests.support.engine.flavorlab import Lab, Slots, chosen, fr, pod_set

ASKS: dict[str, Any] = {"topologyRequest": {"required": "rack"}}


def lab_of(config: EngineConfig | None = None, *, taken: int = 0, **spec: Any) -> tuple[Lab, Slots]:
    """``racks`` has quota for 9 GPUs and room for 4 pods, ``loose`` has no topology."""
    slots = Slots({"racks": 4})
    slots.taken["racks"] = taken
    lab = Lab(config, slots)
    lab.flavor("loose")
    lab.flavor("racks", topologyName="dc", nodeLabels={"kind": "rack"})
    lab.queue("q", {"loose": {"gpu": 9}, "racks": {"gpu": 9}}, **spec)
    return lab, slots


def ask(lab: Lab, pods: int, **given: Any) -> Assignment:
    return lab.assign(lab.incoming("q", pod_set(count=pods, requests={"gpu": 1}, **(given or ASKS))))


def test_who_asks_for_a_topology_gets_a_flavor_that_has_one_and_a_place_on_it() -> None:
    lab, _ = lab_of()
    found = ask(lab, 3)
    assert (chosen(found), found.mode) == ({"gpu": "racks"}, Mode.FIT)
    topology = found.pod_sets[0].topology
    assert topology is not None
    assert (topology.domains[0].pods, topology.single_pod) == (3, {"gpu": 1})


def test_who_asks_for_none_gets_no_flavor_with_a_topology_beside_others_and_any_where_all_have_one() -> None:
    lab, _ = lab_of()
    lab.use("q", "loose", "gpu", 9)
    assert ask(lab, 1, minCount=1).pod_sets[0].attempts[1].no_fit_reason is NoFitReason.NoMatchingFlavor
    lab.queue("q", {"racks": {"gpu": 9}})
    implied = ask(lab, 1, minCount=1)
    assert (chosen(implied), implied.pod_sets[0].topology is not None) == ({"gpu": "racks"}, True)


def test_no_place_now_means_preemption_though_quota_is_free() -> None:
    lab, _ = lab_of(taken=2)
    found = ask(lab, 3)
    assert (found.mode, list(found.preempting())) == (Mode.PREEMPT, [fr("racks")])
    # The places of an empty cluster: what is kept for it where nobody can go.
    kept = found.pod_sets[0].topology
    assert kept is not None
    assert [one.pods for one in kept.domains] == [3]
    assert found.pod_sets[0].problems == ("no room",)


def test_no_place_even_when_all_go_means_that_it_does_not_fit() -> None:
    lab, _ = lab_of()
    found = ask(lab, 5)
    assert (found.mode, found.no_fit_reason) == (Mode.NO_FIT, NoFitReason.TopologyPlacementFailed)
    assert found.pod_sets[0].attempts[-1].no_fit_reason is NoFitReason.TopologyPlacementFailed


def test_a_pod_set_on_two_topologies_is_refused_with_its_flavors() -> None:
    lab = Lab(placement=Slots({"racks": 4, "other": 4}))
    lab.flavor("racks", topologyName="dc")
    lab.flavor("other", topologyName="dc2")
    lab.queue("q", {"racks": {"gpu": 9}}, {"other": {"cpu": 9}})
    found = lab.assign(lab.incoming("q", pod_set(requests={"gpu": 1, "cpu": 1}, **ASKS)))
    assert (found.mode, found.no_fit_reason) == (Mode.NO_FIT, NoFitReason.NONE)
    assert (chosen(found), found.pod_sets[0].refused) == ({"gpu": "racks", "cpu": "other"}, True)


def test_a_leader_that_asks_for_nothing_is_placed_with_its_workers() -> None:
    lab, _ = lab_of()
    together: dict[str, Any] = {"topologyRequest": {"required": "rack", "podSetGroupName": "group"}}
    found = lab.assign(
        lab.incoming("q", pod_set("leader", **together), pod_set("worker", 3, requests={"gpu": 1}, **together))
    )
    assert found.mode is Mode.FIT
    assert [one.topology is not None for one in found.pod_sets] == [True, True]
    assert found.usage == {fr("racks"): 3}


def test_where_a_check_makes_the_nodes_the_place_comes_later() -> None:
    lab, _ = lab_of(taken=4, admissionChecksStrategy={"admissionChecks": [{"name": "prov", "onFlavors": ["racks"]}]})
    lab.check("prov", "kueue.x-k8s.io/provisioning-request")
    found = ask(lab, 3)
    assert (found.mode, found.pod_sets[0].topology, found.pod_sets[0].delayed_topology) == (Mode.FIT, None, True)
    lab.check("prov", "example.com/audit")
    assert ask(lab, 3).mode is Mode.PREEMPT


def test_with_the_gate_off_topology_is_not_looked_at() -> None:
    lab, _ = lab_of(EngineConfig(gates=FeatureGates({"TopologyAwareScheduling": False})), taken=4)
    found = ask(lab, 3)
    assert (chosen(found), found.mode, found.pod_sets[0].topology) == ({"gpu": "loose"}, Mode.FIT, None)


def test_where_one_resource_is_contested_so_is_all_that_the_placed_pods_ask_for() -> None:
    """What is free by quota may be free in pieces that hold no pod; a pod set that is not placed has no part in it."""
    lab = Lab(placement=Slots({"racks": 4}))
    lab.flavor("loose")
    lab.flavor("racks", topologyName="dc")
    lab.queue("q", {"loose": {"gpu": 9, "cpu": 9}, "racks": {"gpu": 9, "cpu": 9}})
    lab.use("q", "racks", "gpu", 9)
    lab.oracle.answers = {fr("racks"): (Possibility.RECLAIM, 0)}
    placed, other = ({"requests": {"gpu": 1, "cpu": 1}, **asked} for asked in (ASKS, {}))
    found = lab.assign(lab.incoming("q", pod_set("placed", **placed), pod_set("other", **other)))
    assert found.mode is Mode.PREEMPT
    assert found.preempting() == {fr("racks"), fr("racks", "cpu")}
