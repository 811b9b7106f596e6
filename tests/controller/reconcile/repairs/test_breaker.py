"""The breaker of repairs: a budget for each flavor, one node of a domain, and a record that the next leader reads."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.config.settings import RemediationRules, RepairBudget
from controller.reconcile.repairs.breaker import (
    FORMER,
    Decisions,
    RepairBreaker,
    RepairFlavor,
    Why,
)
from controller.reconcile.repairs.grants import Ask, Grant, entries, moment_s, node_repairs
from inventory.api.gpunode import GRANT_LASTS_S, MAX_GPUS, GpuNodeStatus, RepairEntry
from inventory.api.names import NO_FLAVOR, NVSENTINEL_MANAGED
from tests.support.controller.gpunodes import full_status
from tests.support.controller.repairfleet import BEGIN_S, Fleet, why


def one(gpus: int = 1) -> RemediationRules:
    return RemediationRules(budget=RepairBudget(gpus=gpus))


def test_an_ask_is_granted_with_its_action_and_generation() -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 2, "drain", generation=7)
    found = fleet.decide()
    assert found.granted == (("n1", Grant("n1-2", 7, "drain", BEGIN_S)),)
    assert found.lists == {"n1": (Grant("n1-2", 7, "drain", BEGIN_S),)}
    fleet.land()
    assert fleet.decide() == Decisions(), "nothing is due any more"


def test_a_tenth_of_the_flavor_is_the_budget_and_at_least_one_gpu() -> None:
    for gpus, expected in ((4, 1), (7, 2), (30, 9)):
        fleet = Fleet(RemediationRules(), gpus=gpus)
        for node in fleet.labels:
            for gpu in range(gpus):
                fleet.asks(node, gpu)
        assert len(fleet.step()) == expected


@given(st.floats(1e9, 4e9))
def test_a_time_is_read_back_as_it_was_written(now_s: float) -> None:
    grant = Grant("g", 1, "reset", moment_s(now_s))
    status = full_status({"remediationGrants": msgspec.to_builtins(entries([grant]))})
    assert node_repairs("n", msgspec.convert(status, GpuNodeStatus)).grants == {"g": grant}
    assert now_s - 0.002 < grant.granted_s <= now_s


def test_the_oldest_ask_comes_first() -> None:
    fleet = Fleet(one())
    fleet.asks("n3", 1)
    fleet.now_s += 5.0
    fleet.asks("n1", 0)
    assert fleet.step() == ["n3-1"]
    assert fleet.step(GRANT_LASTS_S - 1.0) == []
    fleet.well("n3", 1)
    assert fleet.step(1.0) == ["n1-0"], "the window of the first is over"


def test_a_gpu_in_action_takes_no_more_of_the_budget_with_its_next_step() -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0, "drain")
    fleet.asks("n2", 0, "drain")
    assert fleet.step() == ["n1-0"]
    fleet.asks("n1", 0, "reset")
    found = fleet.decide(60.0)
    assert [(node, grant.action, grant.generation) for node, grant in found.granted] == [("n1", "reset", 2)]
    assert found.lists["n1"] == (Grant("n1-0", 2, "reset", BEGIN_S + 60.0),), "the list has the newest of each GPU"


def test_what_is_under_way_counts_though_nobody_granted_it() -> None:
    fleet = Fleet(one())
    fleet.works("n1", 0)
    fleet.asks("n2", 0)
    found = fleet.decide(100_000.0)
    assert found.granted == ()
    assert why(found) == {"n2-0": Why.BUDGET}
    fleet.well("n1", 0)
    assert fleet.step() == ["n2-0"]


def test_a_drain_that_lasts_longer_than_its_grant_is_granted_anew_before_older_asks() -> None:
    fleet = Fleet(one())
    fleet.asks("n2", 0)
    fleet.labels["n2"] = {**fleet.labels["n2"], NVSENTINEL_MANAGED: "false"}
    fleet.tell("n2")
    fleet.now_s += 5.0
    fleet.asks("n1", 0, "drain")
    assert fleet.step() == ["n1-0"]
    fleet.labels["n2"] = {"pool": "a"}
    fleet.tell("n2")
    assert fleet.step(GRANT_LASTS_S) == ["n1-0"]


@pytest.mark.parametrize("before", [True, False], ids=["before-it-ends", "when-it-has-ended"])
def test_a_drain_that_is_asked_for_with_a_new_generation_keeps_its_place(before: bool) -> None:
    fleet = Fleet(one())
    fleet.labels["n2"] = {"pool": "a", NVSENTINEL_MANAGED: "false"}
    fleet.asks("n2", 0)
    fleet.now_s += 5.0
    fleet.asks("n1", 0, "drain")
    assert fleet.step() == ["n1-0"]
    fleet.labels["n2"] = {"pool": "a"}
    fleet.tell("n2")
    fleet.now_s += GRANT_LASTS_S - (1.0 if before else 0.0)
    fleet.asks("n1", 0, "drain")
    assert fleet.step() == ["n1-0"]
    assert fleet.decide(1.0).granted == ()


def test_only_one_node_of_a_domain_is_repaired_at_a_time() -> None:
    fleet = Fleet(RemediationRules(budget=RepairBudget(gpus=9), levels=("rack",)))
    for node, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        fleet.labels[node] = {"pool": "a", "rack": rack}
        fleet.tell(node)
        fleet.asks(node, 0)
    fleet.asks("n1", 1)
    found = fleet.decide()
    assert sorted(grant.gpu for _, grant in found.granted) == ["n1-0", "n1-1", "n3-0"]
    (held,) = found.held_back
    assert (held.ask.gpu, held.why, held.level, held.other) == ("n2-0", Why.LEVEL, "rack", "n1")
    assert found.tripped == {}, "no budget is spent"


def test_nodes_without_the_label_of_a_level_are_no_domain() -> None:
    fleet = Fleet(RemediationRules(budget=RepairBudget(gpus=9), levels=("rack",)))
    fleet.asks("n1", 0)
    fleet.asks("n2", 0)
    assert fleet.step() == ["n1-0", "n2-0"]


def test_each_flavor_has_a_budget_of_its_own_and_nodes_of_none_have_one_together() -> None:
    fleet = Fleet(one(), ("n1", "n2", "n3", "n4"))
    fleet.labels |= {"n2": {"pool": "b"}, "n3": {}, "n4": {}}
    fleet.flavors["b"] = RepairFlavor(node_labels={"pool": "b"})
    fleet.take_over()
    for node in fleet.labels:
        fleet.asks(node, 0)
    assert fleet.step() == ["n1-0", "n2-0", "n3-0"]


def test_a_node_of_two_flavors_needs_room_in_both() -> None:
    fleet = Fleet(one())
    fleet.flavors["all"] = RepairFlavor()
    fleet.take_over()
    fleet.labels["n2"] = {}
    fleet.asks("n1", 0)
    fleet.asks("n2", 0)
    found = fleet.decide()
    assert [grant.gpu for _, grant in found.granted] == ["n1-0"]
    assert {flavor: each.waiting for flavor, each in found.tripped.items()} == {"all": 1}


@pytest.mark.parametrize("leads", ["the same", "a new one"])
def test_the_breaker_trips_heals_by_itself_and_says_since_when(leads: str) -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0)
    fleet.step()
    fleet.now_s += 30.0
    fleet.asks("n2", 0)
    fleet.asks("n2", 1)
    if leads == "a new one":
        fleet.take_over()
    tripped = fleet.decide(30.0).tripped["a"]
    assert (tripped.since_s, tripped.budget, tripped.waiting) == (BEGIN_S + 30.0, 1, 2)
    assert fleet.core.next_due_s() == BEGIN_S + GRANT_LASTS_S
    for node, gpu in (("n1", 0), ("n2", 0)):
        fleet.well(node, gpu)
    assert fleet.step(GRANT_LASTS_S) == ["n2-1"]
    assert fleet.decide().tripped == {}


def test_a_person_lifts_it_and_the_window_counts_anew() -> None:
    fleet = Fleet(one())
    for number in range(3):
        fleet.asks(f"n{number + 1}", 0)
    assert fleet.step() == ["n1-0"]
    fleet.now_s += 10.0
    fleet.flavors["a"] = RepairFlavor(node_labels={"pool": "a"}, resumed_s=fleet.now_s)
    fleet.core.set_flavor("a", fleet.flavors["a"])
    assert fleet.step() == ["n2-0"], "the budget again, and no more than that"
    fleet.take_over()
    assert fleet.decide().granted == (), "a new leader reads it from the flavor"


def test_a_person_lifts_the_breaker_of_nodes_of_no_flavor_at_any_of_their_gpunodes() -> None:
    fleet = Fleet(one())
    fleet.labels = {"n1": {}, "n2": {}, "n3": {"pool": "a"}}
    fleet.take_over()
    fleet.asks("n3", 0)
    fleet.asks("n3", 1)
    fleet.asks("n1", 0)
    fleet.asks("n2", 0)
    assert fleet.step() == ["n1-0", "n3-0"]
    assert fleet.decide().tripped.keys() == {NO_FLAVOR, "a"}
    fleet.now_s += 10.0
    fleet.lifted["n2"] = fleet.now_s
    fleet.tell("n2")
    assert fleet.step() == ["n2-0"], "and no GPU of a flavor"
    fleet.lifted["n1"] = fleet.now_s + 1e9
    fleet.take_over()
    fleet.asks("n1", 1)
    assert why(fleet.decide())["n1-1"] is Why.BUDGET, "a time to come lifts nothing"


def test_a_breaker_that_is_lifted_in_the_future_counts_as_before() -> None:
    fleet = Fleet(one())
    fleet.flavors["a"] = RepairFlavor(node_labels={"pool": "a"}, resumed_s=BEGIN_S + 1e9)
    fleet.take_over()
    fleet.asks("n1", 0)
    fleet.asks("n2", 0)
    assert fleet.step() == ["n1-0"]


def test_a_budget_of_none_repairs_nothing() -> None:
    fleet = Fleet(one(0))
    fleet.asks("n1", 0)
    found = fleet.decide()
    assert why(found) == {"n1-0": Why.BUDGET}
    assert found.tripped["a"].budget == 0


def test_a_node_whose_label_says_so_is_repaired_by_nobody() -> None:
    fleet = Fleet(one(9))
    fleet.labels["n1"] = {"pool": "a", NVSENTINEL_MANAGED: "false"}
    fleet.labels["n2"] = {"pool": "a", NVSENTINEL_MANAGED: "true"}
    for node in ("n1", "n2"):
        fleet.tell(node)
        fleet.asks(node, 0)
    found = fleet.decide()
    assert [node for node, _ in found.granted] == ["n2"]
    assert why(found) == {"n1-0": Why.UNMANAGED}


def test_a_gpunode_without_a_node_gets_no_grant() -> None:
    fleet = Fleet(one())
    fleet.core.set_node("n1", None)
    fleet.repairs["n1", "n1-0"] = RepairEntry(gpu="n1-0", state="Draining", generation=1, asks="reset")
    fleet.core.set_repairs("n1", node_repairs("n1", fleet.status("n1")))
    assert why(fleet.decide()) == {"n1-0": Why.NO_NODE}


def test_a_reboot_is_granted_once_and_counts_for_one_window() -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0, "reboot", state="RebootWanted")
    assert fleet.step() == ["n1-0"]
    fleet.maintenance.add("n1")
    fleet.tell("n1")
    fleet.asks("n2", 0)
    assert fleet.step(GRANT_LASTS_S) == ["n2-0"]
    assert "n1" not in {node for node, grants in fleet.lists.items() if grants}


def test_a_grant_that_could_not_be_written_does_not_count() -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0)
    fleet.decide()
    assert fleet.decide().granted == (), "it counts while it is on its way"
    fleet.core.failed("n1", fleet.pending["n1"])
    fleet.core.validate()
    assert [node for node, _ in fleet.decide().granted] == ["n1"]


def test_a_grant_stays_in_the_list_for_a_longer_window_but_holds_no_longer() -> None:
    fleet = Fleet(RemediationRules(budget=RepairBudget(gpus=1), window_s=3600.0))
    fleet.asks("n1", 0)
    fleet.step()
    ask = Ask("n1", "n1-0", 1, "reset")
    assert fleet.core.answer(ask, fleet.now_s + GRANT_LASTS_S - 1.0) is not None
    assert fleet.core.answer(ask, fleet.now_s + GRANT_LASTS_S) is None
    fleet.well("n1", 0)
    assert fleet.decide(3599.0).lists == {}
    assert fleet.decide(1.0).lists == {"n1": ()}


def test_a_grant_holds_for_its_generation_and_action_alone() -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0, "drain", generation=3)
    fleet.step()
    assert fleet.core.answer(Ask("n1", "n1-0", 3, "drain"), fleet.now_s) is not None
    for ask in (Ask("n1", "n1-0", 4, "drain"), Ask("n1", "n1-0", 3, "reset"), Ask("n2", "n1-0", 3, "drain")):
        assert fleet.core.answer(ask, fleet.now_s) is None


def test_a_time_of_a_clock_that_is_ahead_becomes_now() -> None:
    fleet = Fleet(one())
    fleet.lists["n1"] = (Grant("n1-0", 1, "reset", BEGIN_S + 1e6),)
    fleet.tell("n1")
    assert fleet.decide().lists == {"n1": (Grant("n1-0", 1, "reset", BEGIN_S),)}


def test_the_list_has_no_more_entries_than_its_schema_allows() -> None:
    fleet = Fleet(one(1000))
    fleet.lists["n1"] = tuple(Grant(f"gone-{n}", 1, "reset", BEGIN_S) for n in range(MAX_GPUS))
    fleet.asks("n1", 0)
    assert why(fleet.decide()) == {"n1-0": Why.FULL}


@pytest.mark.parametrize("gpunode_first", [True, False])
@pytest.mark.parametrize("writes", ["has been written", "is on its way"])
def test_a_node_that_goes_and_comes_back_counts_as_long_as_it_would_have(gpunode_first: bool, writes: str) -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0)
    fleet.decide()
    if writes == "has been written":
        fleet.land()
    fleet.leaves("n1", gpunode_first=gpunode_first)
    fleet.asks("n2", 0)
    assert why(fleet.decide(60.0)) == {"n2-0": Why.BUDGET}, "of the flavor that its Node had"
    fleet.comes("n1")
    found = fleet.decide(60.0)
    assert found.lists == {"n1": (Grant("n1-0", FORMER, "reset", BEGIN_S),)}
    fleet.land()
    fleet.take_over()
    assert why(fleet.decide()) == {"n2-0": Why.BUDGET}, "the next leader counts the same"
    assert fleet.step(GRANT_LASTS_S - 121.0) == []
    assert fleet.step(1.0) == ["n2-0"]


def test_a_grant_of_before_permits_nothing_on_a_node_that_comes_back() -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0)
    fleet.step()
    fleet.leaves("n1")
    fleet.comes("n1")
    fleet.asks("n1", 0, generation=1)
    ask = Ask("n1", "n1-0", 1, "reset")
    assert fleet.core.answer(ask, fleet.now_s) is None
    assert fleet.step(5.0) == ["n1-0"], "it takes no more of the budget"
    assert fleet.core.answer(ask, fleet.now_s) == Grant("n1-0", 1, "reset", BEGIN_S + 5.0)


@pytest.mark.parametrize("gpunode_first", [False, True])
def test_a_leader_that_begins_while_a_node_is_away_counts_its_grant_until_the_window_is_over(
    gpunode_first: bool,
) -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0)
    assert fleet.step() == ["n1-0"]
    fleet.leaves("n1", gpunode_first=gpunode_first)
    fleet.take_over()
    fleet.asks("n2", 0)
    found = fleet.decide()
    assert (found.granted, why(found)) == ((), {"n2-0": Why.BUDGET})
    fleet.comes("n1")
    found = fleet.decide()
    assert found.lists == {"n1": (Grant("n1-0", FORMER, "reset", BEGIN_S),)}
    fleet.land()
    assert fleet.decide(GRANT_LASTS_S).granted != ()
    assert fleet.texts["a"] is None or "n1" not in fleet.texts["a"]


def test_what_a_flavor_says_of_a_gpu_adds_nothing_to_what_its_gpunode_says() -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0)
    fleet.step()
    fleet.take_over()
    assert fleet.decide() == Decisions(), "the list stays as it is, with the generation that permits the step"


def test_a_node_that_stays_away_counts_in_its_domain_for_a_window_and_is_forgotten_then() -> None:
    fleet = Fleet(RemediationRules(budget=RepairBudget(gpus=9), levels=("rack",)))
    for node in ("n1", "n2"):
        fleet.labels[node] = {"pool": "a", "rack": "r1"}
        fleet.tell(node)
    fleet.asks("n1", 0)
    fleet.step()
    fleet.leaves("n1")
    fleet.asks("n2", 0)
    assert why(fleet.decide()) == {"n2-0": Why.LEVEL}
    assert fleet.step(GRANT_LASTS_S) == ["n2-0"]
    assert (fleet.core._gone, fleet.core._busy) == ({}, {"n2"})


def forgotten_node(core: RepairBreaker) -> None:
    core._busy.clear()


def stale_group(core: RepairBreaker) -> None:
    core._groups["n1"] = ("b",)


def stale_total(core: RepairBreaker) -> None:
    core._totals = {"a": 11}


def stale_lift(core: RepairBreaker) -> None:
    core._lifted["n1"] = BEGIN_S


def grant_of_nobody(core: RepairBreaker) -> None:
    core._ours["n9"] = {"g": Grant("g", 1, "reset", BEGIN_S)}
    core._busy.add("n9")


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (forgotten_node, "nodes with repairs"),
        (stale_group, "groups have drifted"),
        (stale_total, "GPUs of the groups"),
        (stale_lift, "times of lifted breakers"),
        (grant_of_nobody, "without a GpuNode"),
    ],
)
def test_a_breaker_that_drifts_is_seen(plant: Callable[[RepairBreaker], None], said: str) -> None:
    fleet = Fleet(one())
    fleet.asks("n1", 0)
    fleet.decide()
    fleet.core.validate()
    plant(fleet.core)
    with pytest.raises(AssertionError, match=said):
        fleet.core.validate()
