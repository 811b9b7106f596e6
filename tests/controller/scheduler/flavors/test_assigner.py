from typing import Any

import pytest

from controller.scheduler.flavors.assigner import pinned_to
from controller.scheduler.flavors.assignment import Bookmark, Mode, NoFitReason, Possibility
from controller.scheduler.flavors.plan import ALLOWED_FLAVORS
from controller.scheduler.model.config import EngineConfig, Extensions, FairSharing, QuotaCheckStrategy
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, ResourceName
from inventory.api.names import FLAVORS_GIVEN_UP
from tests.support.engine.flavorlab import Lab, chosen, fr, holding, pod_set

NEXT = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}


def two_flavors(config: EngineConfig | None = None, **spec: object) -> Lab:
    """Queue ``q`` with 4 GPUs of each of two flavors; another queue of the cohort lends 4 more of the first."""
    lab = Lab(config)
    lab.flavor("a100")
    lab.flavor("h100")
    lab.queue("q", {"a100": {"gpu": 4}, "h100": {"gpu": 4}}, cohort="all", **spec)
    lab.queue("lender", {"a100": {"gpu": 4}, "h100": {"gpu": 0}}, cohort="all")
    return lab


def gates(**gates: bool) -> EngineConfig:
    return EngineConfig(gates=FeatureGates(gates))


# -- the choice among flavors ------------------------------------------------------------------------------------------


def test_the_first_flavor_with_room_is_taken_and_what_it_takes_is_the_usage() -> None:
    lab = two_flavors()
    found = lab.ask("q", gpu=3)
    assert (chosen(found), found.mode, found.borrowing) == ({"gpu": "a100"}, Mode.FIT, 0)
    assert found.usage == {fr("a100"): 3}
    assert [(one.flavor, one.mode) for one in found.pod_sets[0].attempts] == [("a100", Mode.FIT)]


def test_borrowing_is_good_enough_unless_the_queue_would_rather_try_the_next_flavor() -> None:
    lab = two_flavors()
    lab.use("q", "a100", "gpu", 2)
    assert (chosen(lab.ask("q", gpu=3)), lab.ask("q", gpu=3).borrowing) == ({"gpu": "a100"}, 1)
    lab = two_flavors(flavorFungibility=NEXT)
    lab.use("q", "a100", "gpu", 2)
    assert (chosen(lab.ask("q", gpu=3)), lab.ask("q", gpu=3).borrowing) == ({"gpu": "h100"}, 0)


def test_preemption_is_put_off_for_a_flavor_that_fits_unless_it_may_stop_the_search() -> None:
    for policy, flavor, mode in (("TryNextFlavor", "h100", Mode.FIT), ("MayStopSearch", "a100", Mode.PREEMPT)):
        lab = two_flavors(flavorFungibility={"whenCanPreempt": policy})
        lab.use("q", "a100", "gpu", 8)
        lab.oracle.answers[fr("a100")] = (Possibility.PREEMPT, 0)
        found = lab.ask("q", gpu=3)
        assert (chosen(found), found.mode) == ({"gpu": flavor}, mode)


def test_between_borrowing_and_preempting_the_preference_decides() -> None:
    for preference, flavor, mode in (
        (None, "a100", Mode.FIT),
        ("BorrowingOverPreemption", "a100", Mode.FIT),
        ("PreemptionOverBorrowing", "h100", Mode.PREEMPT),
    ):
        lab = two_flavors(flavorFungibility={**NEXT, "preference": preference} if preference else NEXT)
        lab.use("q", "a100", "gpu", 4)
        lab.use("q", "h100", "gpu", 4)
        lab.oracle.answers[fr("h100")] = (Possibility.PREEMPT, 0)
        found = lab.ask("q", gpu=3)
        assert (chosen(found), found.mode) == ({"gpu": flavor}, mode), preference


def test_no_candidates_is_worse_than_any_preemption_whatever_the_preference() -> None:
    for preference in ("BorrowingOverPreemption", "PreemptionOverBorrowing"):
        lab = two_flavors(flavorFungibility={**NEXT, "preference": preference})
        lab.use("q", "a100", "gpu", 8)
        lab.use("q", "h100", "gpu", 4)
        lab.oracle.answers[fr("h100")] = (Possibility.RECLAIM, 1)
        assert chosen(lab.ask("q", gpu=3)) == {"gpu": "h100"}


def test_reclaiming_is_better_than_preempting() -> None:
    lab = two_flavors()
    lab.use("q", "a100", "gpu", 8)
    lab.use("q", "h100", "gpu", 4)
    lab.oracle.answers = {fr("a100"): (Possibility.PREEMPT, 0), fr("h100"): (Possibility.RECLAIM, 0)}
    found = lab.ask("q", gpu=3)
    assert (chosen(found), found.mode, list(found.preempting())) == ({"gpu": "h100"}, Mode.RECLAIM, [fr("h100")])


def test_among_equals_the_first_flavor_wins_though_all_were_tried() -> None:
    lab = two_flavors()
    lab.use("q", "a100", "gpu", 8)
    lab.use("q", "h100", "gpu", 4)
    lab.oracle.answers = {fr("a100"): (Possibility.PREEMPT, 0), fr("h100"): (Possibility.PREEMPT, 0)}
    found = lab.ask("q", gpu=3)
    assert [one.flavor for one in found.pod_sets[0].attempts] == ["a100", "h100"]
    assert (chosen(found), found.bookmark.more_flavors()) == ({"gpu": "a100"}, False)


def test_a_flavor_is_as_good_as_its_worst_resource_and_all_of_a_group_come_from_one() -> None:
    lab = Lab()
    lab.flavor("a100")
    lab.flavor("h100")
    lab.queue("q", {"a100": {"gpu": 4, "cpu": 4}, "h100": {"gpu": 4, "cpu": 4}})
    lab.use("q", "a100", "cpu", 4000)
    lab.oracle.answers[fr("a100", "cpu")] = (Possibility.PREEMPT, 0)
    assert chosen(lab.ask("q", gpu=1, cpu=1)) == {"gpu": "h100", "cpu": "h100"}
    assert chosen(lab.ask("q", gpu=1)) == {"gpu": "a100"}


def test_each_resource_group_chooses_for_itself() -> None:
    lab = Lab()
    for name in ("a100", "h100", "small", "large"):
        lab.flavor(name)
    lab.queue("q", {"a100": {"gpu": 1}, "h100": {"gpu": 4}}, {"small": {"cpu": 2}, "large": {"cpu": 8}})
    assert chosen(lab.ask("q", gpu=3, cpu=1)) == {"gpu": "h100", "cpu": "small"}
    assert chosen(lab.ask("q", gpu=1, cpu=5)) == {"gpu": "a100", "cpu": "large"}


def test_what_one_pod_set_takes_is_gone_for_the_next() -> None:
    lab = Lab()
    lab.flavor("a100")
    lab.flavor("h100")
    lab.queue("q", {"a100": {"gpu": 4}, "h100": {"gpu": 4}})
    sets = [pod_set(name, requests={"gpu": 3}) for name in ("one", "two")]
    found = lab.assign(lab.incoming("q", *sets))
    assert [chosen(found, index) for index in (0, 1)] == [{"gpu": "a100"}, {"gpu": "h100"}]
    assert found.usage == {fr("a100"): 3, fr("h100"): 3}


def test_a_pod_set_without_a_flavor_ends_the_search_and_leaves_what_came_before_it() -> None:
    lab = Lab()
    lab.flavor("a100")
    lab.queue("q", {"a100": {"gpu": 4}})
    sets = [pod_set(name, requests={"gpu": gpus}) for name, gpus in (("fits", 1), ("large", 9), ("after", 1))]
    found = lab.assign(lab.incoming("q", *sets))
    assert [(one.name, one.mode) for one in found.pod_sets] == [("fits", Mode.FIT), ("large", Mode.NO_FIT)]
    assert (found.mode, found.no_fit_reason) == (Mode.NO_FIT, NoFitReason.ExceedsMaxQuota)
    assert found.usage == {fr("a100"): 1}


def test_pod_sets_of_one_group_share_their_flavor_and_must_fit_together() -> None:
    lab = Lab()
    lab.flavor("a100")
    lab.flavor("h100")
    lab.queue("q", {"a100": {"gpu": 4}, "h100": {"gpu": 9}})
    together: dict[str, Any] = {"topologyRequest": {"podSetGroupName": "group"}}
    found = lab.assign(
        lab.incoming(
            "q",
            pod_set("worker", 4, requests={"gpu": 1}, **together),
            pod_set("alone", requests={"gpu": 1}),
            pod_set("leader", requests={"gpu": 1}, **together),
        )
    )
    assert [one.name for one in found.pod_sets] == ["worker", "alone", "leader"]
    assert [chosen(found, index)["gpu"] for index in range(3)] == ["h100", "a100", "h100"]
    assert found.usage == {fr("h100"): 5, fr("a100"): 1}


# -- why not -----------------------------------------------------------------------------------------------------------


def test_more_than_could_ever_be_had_is_told_from_more_than_is_free() -> None:
    lab = two_flavors()
    assert lab.ask("q", gpu=9).no_fit_reason is NoFitReason.ExceedsMaxQuota
    lab.use("lender", "a100", "gpu", 4)
    found = lab.ask("q", gpu=6)
    assert (found.mode, found.no_fit_reason) == (Mode.NO_FIT, NoFitReason.WaitingForQuota)
    short = found.pod_sets[0].attempts[0].shortfalls[0]
    assert (short.needed, short.available, short.potential, short.nominal, short.used) == (6, 4, 8, 4, 0)


def test_the_least_severe_flavor_speaks_for_a_group_and_the_most_severe_group_for_all() -> None:
    lab = Lab()
    lab.flavor("a100")
    lab.flavor("spot", nodeTaints=[{"key": "spot", "effect": "NoSchedule"}])
    lab.flavor("cpu", nodeTaints=[{"key": "down", "effect": "NoSchedule"}])
    lab.queue("q", {"a100": {"gpu": 4}, "spot": {"gpu": 9}}, {"cpu": {"cpu": 4}})
    assert lab.ask("q", gpu=5).no_fit_reason is NoFitReason.ExceedsMaxQuota
    assert lab.ask("q", gpu=5, cpu=1).no_fit_reason is NoFitReason.NoMatchingFlavor
    lab.queue("turned", {"cpu": {"cpu": 4}}, {"a100": {"gpu": 4}, "spot": {"gpu": 9}})
    assert lab.ask("turned", gpu=5, cpu=1).no_fit_reason is NoFitReason.NoMatchingFlavor


def test_a_resource_without_quota_blocks_unless_undeclared_ones_are_to_be_ignored_and_none_of_it_is_nothing() -> None:
    ignoring = EngineConfig(quota_check_strategy=QuotaCheckStrategy.IGNORE_UNDECLARED)
    for config, mode in ((None, Mode.NO_FIT), (ignoring, Mode.FIT)):
        lab = two_flavors(config)
        assert lab.ask("q", gpu=1, fpga=1).mode is mode
        assert lab.ask("q", gpu=1, fpga=0).mode is Mode.FIT
        assert fr("a100", "fpga") not in lab.ask("q", gpu=1, fpga=0).usage
    assert lab.ask("q", fpga=1).mode is Mode.FIT
    off = EngineConfig(
        gates=FeatureGates({"QuotaCheckStrategy": False}), quota_check_strategy=QuotaCheckStrategy.IGNORE_UNDECLARED
    )
    assert two_flavors(off).ask("q", fpga=1).no_fit_reason is NoFitReason.NoMatchingFlavor


def test_a_flavor_that_is_gone_is_passed_over_and_said_to_be_gone() -> None:
    lab = two_flavors()
    lab.cluster.remove_flavor(FlavorName("a100"))
    found = lab.ask("q", gpu=1)
    assert chosen(found) == {"gpu": "h100"}
    assert found.pod_sets[0].attempts[0].problem == "there is no flavor a100"
    lab.flavor("a100")
    assert chosen(lab.ask("q", gpu=1)) == {"gpu": "a100"}


def test_a_workload_that_names_its_flavors_gets_no_other_while_variants_are_admitted_concurrently() -> None:
    for config, flavor in ((gates(ConcurrentAdmission=True), "h100"), (None, "a100")):
        lab = two_flavors(config)
        sets = pod_set(requests={"gpu": 1})
        found = lab.assign(lab.incoming("q", sets, annotations={ALLOWED_FLAVORS: "h100, other"}))
        assert chosen(found) == {"gpu": flavor}


def test_a_flavor_that_was_given_up_is_passed_over_and_said_to_be() -> None:
    sets, notes = pod_set(requests={"gpu": 1}), {FLAVORS_GIVEN_UP: "a100"}
    lab = two_flavors(EngineConfig(extensions=Extensions(requests_withdrawn=True)))
    found = lab.assign(lab.incoming("q", sets, annotations=notes))
    assert chosen(found) == {"gpu": "h100"}
    assert found.pod_sets[0].attempts[0].problem == "nodes of flavor a100 were requested too often in vain"
    assert chosen(lab.assign(lab.incoming("q", sets))) == {"gpu": "a100"}
    kueues = two_flavors()
    assert chosen(kueues.assign(kueues.incoming("q", sets, annotations=notes))) == {"gpu": "a100"}


def test_pods_count_only_where_the_queue_covers_them() -> None:
    lab = Lab()
    lab.flavor("default")
    lab.queue("counting", {"default": {"cpu": 9, "pods": 3}})
    lab.queue("not", {"default": {"cpu": 9}})
    four = pod_set(count=4, requests={"cpu": 1})
    assert lab.assign(lab.incoming("counting", four)).no_fit_reason is NoFitReason.ExceedsMaxQuota
    assert lab.assign(lab.incoming("not", four)).usage == {fr("default", "cpu"): 4000}
    fewer = lab.assign(lab.incoming("counting", four), counts={"main": 3})
    assert fewer.usage == {fr("default", "cpu"): 3000, fr("default", "pods"): 3}
    assert fewer.pod_sets[0].count == 3


# -- preemption --------------------------------------------------------------------------------------------------------


def test_the_oracle_is_asked_only_where_arithmetic_does_not_settle_it() -> None:
    lab = two_flavors()
    lab.use("q", "a100", "gpu", 2)
    lab.use("lender", "a100", "gpu", 4)
    lab.ask("q", gpu=9)
    lab.ask("q", gpu=2)
    assert lab.oracle.asked == []
    lab.ask("q", gpu=3)
    assert lab.oracle.asked == [(fr("a100"), 3)]


@pytest.mark.parametrize(("monotonic", "asked"), [(True, [3]), (False, [3, 4])])
def test_what_a_smaller_amount_settles_is_not_asked_again_for_the_next_pod_set(
    monotonic: bool, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = two_flavors()
    monkeypatch.setattr(lab.oracle, "is_monotonic", monotonic)
    lab.use("q", "a100", "gpu", 2)
    lab.use("q", "h100", "gpu", 4)
    lab.use("lender", "a100", "gpu", 4)
    sets = [pod_set("head", requests={"gpu": 3}), pod_set("worker", requests={"gpu": 1})]
    found = lab.assign(lab.incoming("q", *sets))
    assert [one.mode for one in found.pod_sets] == [Mode.NO_CANDIDATES] * 2
    assert [amount for one, amount in lab.oracle.asked if one == fr("a100")] == asked


@pytest.mark.parametrize(
    ("fair", "preemption", "mode"),
    [
        (False, None, Mode.NO_FIT),
        (False, {"reclaimWithinCohort": "Any"}, Mode.NO_FIT),
        (False, {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}, Mode.NO_CANDIDATES),
        (True, {"reclaimWithinCohort": "Any"}, Mode.NO_CANDIDATES),
        (True, {"reclaimWithinCohort": "Never"}, Mode.NO_FIT),
        (True, {"withinClusterQueue": "LowerPriority"}, Mode.NO_CANDIDATES),  # a missing policy is not Never here
        (True, None, Mode.NO_FIT),
    ],
)
def test_above_nominal_quota_preemption_is_thought_of_only_if_it_may_borrow(
    fair: bool, preemption: dict[str, object] | None, mode: Mode
) -> None:
    config = EngineConfig(fair_sharing=FairSharing() if fair else None)
    lab = Lab(config)
    lab.flavor("a100")
    lab.queue("q", {"a100": {"gpu": 4}}, cohort="all", **({"preemption": preemption} if preemption else {}))
    lab.queue("lender", {"a100": {"gpu": 4}}, cohort="all")
    lab.use("lender", "a100", "gpu", 4)
    assert lab.ask("q", gpu=6).mode is mode


def test_above_nominal_quota_what_a_smaller_cohort_of_the_tree_can_hold_may_be_reclaimed() -> None:
    for parent, mode in (("root", Mode.NO_CANDIDATES), ("", Mode.NO_FIT)):
        lab = Lab()
        lab.flavor("a100")
        lab.cohort("all", parent)
        lab.queue("q", {"a100": {"gpu": 4}}, cohort="all")
        lab.queue("near", {"a100": {"gpu": 4}}, cohort="all")
        lab.queue("far", {"a100": {"gpu": 0}}, cohort=parent)
        lab.use("far" if parent else "near", "a100", "gpu", 4)
        assert lab.ask("q", gpu=6).mode is mode, parent


def test_each_resource_in_need_is_asked_about_by_itself() -> None:
    lab = Lab()
    lab.flavor("a100")
    lab.queue("q", {"a100": {"gpu": 4, "fpga": 4, "cpu": 4}})
    lab.use("q", "a100", "gpu", 4)
    lab.use("q", "a100", "fpga", 4)
    lab.oracle.answers = {fr("a100"): (Possibility.PREEMPT, 0), fr("a100", "fpga"): (Possibility.RECLAIM, 0)}
    choices = lab.ask("q", gpu=1, fpga=2, cpu=1).pod_sets[0].choices.items()
    assert {str(name): choice.mode for name, choice in choices} == {
        "gpu": Mode.PREEMPT,
        "fpga": Mode.RECLAIM,
        "cpu": Mode.FIT,
    }
    assert lab.oracle.asked == [(fr("a100"), 1), (fr("a100", "fpga"), 2)]


# -- elastic slices, pinned flavors ------------------------------------------------------------------------------------


def test_a_slice_asks_for_its_increase_and_stays_on_its_flavors() -> None:
    lab = two_flavors()
    lab.use("q", "h100", "gpu", 2)
    bigger = pod_set(requests={"gpu": 4})
    found = lab.assign(lab.incoming("q", bigger, replaces=holding("q", main={"gpu": ("h100", 2)})))
    assert (chosen(found), found.usage, found.mode) == ({"gpu": "h100"}, {fr("h100"): 2}, Mode.FIT)
    assert "the slice that this one replaces" in found.pod_sets[0].attempts[0].problem
    smaller = lab.assign(lab.incoming("q", bigger, replaces=holding("q", main={"gpu": ("h100", 6)})))
    assert smaller.usage == {fr("h100"): 0}


def test_pinned_flavors_are_the_only_ones_looked_at_and_the_bookmark_is_handed_on() -> None:
    lab = two_flavors(flavorFungibility={"whenCanPreempt": "MayStopSearch"})
    lab.use("q", "a100", "gpu", 8)
    lab.oracle.answers[fr("a100")] = (Possibility.PREEMPT, 0)
    incoming = lab.incoming("q", pod_set(requests={"gpu": 3}))
    first = lab.assign(incoming)
    lab.oracle.answers.clear()
    bookmark = Bookmark(({ResourceName("gpu"): 0},), cycle=7)
    again = lab.assign(incoming, allowed=pinned_to(first), bookmark=bookmark)
    assert (chosen(again), again.mode) == ({"gpu": "a100"}, Mode.NO_CANDIDATES)
    assert again.bookmark is bookmark


# -- bookmarks ---------------------------------------------------------------------------------------------------------


def test_the_next_try_goes_on_behind_the_last_flavor_and_starts_anew_after_the_last_of_all() -> None:
    lab = two_flavors()
    incoming = lab.incoming("q", pod_set(requests={"gpu": 3}))
    first = lab.assign(incoming, cycle=1)
    assert first.bookmark.tried == ({ResourceName("gpu"): 0},)
    second = lab.assign(incoming, bookmark=first.bookmark, cycle=2)
    assert chosen(second) == {"gpu": "h100"}
    assert not second.bookmark.more_flavors()
    assert chosen(lab.assign(incoming, bookmark=second.bookmark, cycle=3)) == {"gpu": "a100"}


def test_a_bookmark_holds_for_the_next_cycle_and_later_only_while_there_is_not_more_to_be_had() -> None:
    def second(config: EngineConfig | None, *, cycle: int, change: str = "") -> dict[str, str]:
        lab = two_flavors(config)
        lab.use("q", "a100", "gpu", 2)
        if change == "release":
            lab.use("lender", "a100", "gpu", 1)
        incoming = lab.incoming("q", pod_set(requests={"gpu": 3}))
        bookmark = lab.assign(incoming, cycle=1).bookmark
        if change == "usage":
            lab.use("lender", "a100", "gpu", 1)
        elif change == "release":
            lab.cluster.quota.remove_usage(ClusterQueueName("lender"), {fr("a100"): 1})
        elif change == "quota":  # what is free stays the same
            lab.queue("lender", {"a100": {"gpu": 5}, "h100": {"gpu": 0}}, cohort="all")
            lab.use("lender", "a100", "gpu", 1)
        elif change == "flavors":
            lab.queue("q", {"h100": {"gpu": 4}, "a100": {"gpu": 4}}, cohort="all")
        return chosen(lab.assign(incoming, bookmark=bookmark, cycle=cycle))

    off = gates(FlavorFungibilityPreserveScanProgress=False)
    on, started_anew, went_on = None, {"gpu": "a100"}, {"gpu": "h100"}
    assert second(on, cycle=2, change="release") == second(on, cycle=2, change="quota") == went_on
    for change in ("", "usage"):
        assert second(on, cycle=9, change=change) == second(off, cycle=9, change=change) == went_on
    for change in ("release", "quota"):
        assert second(on, cycle=9, change=change) == second(off, cycle=2, change=change) == started_anew
    assert second(on, cycle=2, change="flavors") == went_on  # "h100" comes first now


def test_without_fungibility_the_first_flavor_that_fits_is_taken_and_the_search_never_counts_as_done() -> None:
    """As in Kueue; it begins anew all the same. Under whole searches it is done."""
    whole = EngineConfig(gates=FeatureGates({"FlavorFungibility": False}), extensions=Extensions(whole_searches=True))
    for config, more in ((gates(FlavorFungibility=False), True), (whole, False)):
        lab = two_flavors(config, flavorFungibility=NEXT)
        lab.use("q", "a100", "gpu", 2)
        found = lab.ask("q", gpu=3)
        assert (chosen(found), found.bookmark.more_flavors()) == ({"gpu": "a100"}, more)
        again = lab.assign(lab.incoming("q", pod_set(requests={"gpu": 3})), bookmark=found.bookmark)
        assert chosen(again) == {"gpu": "a100"}
