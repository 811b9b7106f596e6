from typing import Any

import pytest

from controller.scheduler.model.config import AdmissionFairSharing, EngineConfig
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import LocalQueueKey
from tests.support.engine.preemptionlab import NOW_S, Lab

LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any"}


def one_queue(preemption: dict[str, Any] | None, config: EngineConfig | None = None) -> Lab:
    lab = Lab(config)
    lab.queue("a", 4, preemption=preemption)
    return lab


def two_queues(preemption: dict[str, Any], *, lent: int = 4) -> Lab:
    """``a`` is owed 4 of the 8; ``b`` has 4 of its own and holds ``lent`` more."""
    lab = Lab()
    lab.queue("a", 4, "all", preemption=preemption)
    lab.queue("b", 4, "all")
    for at in range(4 + lent):
        lab.hold(f"b{at}", "b", 1, ran_s=100.0 - at)
    return lab


def test_lower_priority_goes_and_equal_priority_stays() -> None:
    lab = one_queue(LOWER)
    lab.hold("low", "a", 2, priority=1)
    lab.hold("equal", "a", 2, priority=2)
    assert lab.ask("a", 2, priority=2) == {"low": "InClusterQueue"}
    assert lab.ask("a", 3, priority=2) == {}


def test_who_holds_no_quota_now_may_still_hold_the_places_that_are_wanted() -> None:
    lab = one_queue(LOWER)
    lab.hold("idle", "a", 0, priority=1)
    assert lab.ask("a", 2, priority=2) == {"idle": "InClusterQueue"}


@pytest.mark.parametrize("policy", [None, {}, {"withinClusterQueue": "Never"}])
def test_without_a_policy_nobody_goes(policy: dict[str, Any] | None) -> None:
    lab = one_queue(policy)
    lab.hold("low", "a", 4, priority=-5)
    assert lab.ask("a", 1, priority=100) == {}


def test_among_equals_the_one_that_queued_later_goes_and_only_under_that_policy() -> None:
    lab = one_queue({"withinClusterQueue": "LowerOrNewerEqualPriority"})
    lab.hold("earlier", "a", 2, queued_at_s=10.0)
    lab.hold("later", "a", 2, queued_at_s=30.0)
    assert lab.ask("a", 2, queued_at_s=20.0) == {"later": "InClusterQueue"}
    assert lab.ask("a", 2, queued_at_s=30.0) == {}


def test_among_many_equals_those_that_queued_later_are_found() -> None:
    lab = Lab()
    lab.queue("a", 3000, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    for at in range(3000):
        lab.hold(f"w{at:04}", "a", 1, ran_s=float(at), queued_at_s=float(at))
    assert lab.ask("a", 1, queued_at_s=2998.5) == {"w2999": "InClusterQueue"}
    assert lab.ask("a", 1, queued_at_s=5.5) == {"w0006": "InClusterQueue"}


def test_among_many_that_queued_later_one_of_the_same_time_is_no_candidate() -> None:
    lab = Lab()
    lab.queue("a", 170, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
    for at in range(170):
        later = at >= 100
        lab.hold(f"w{at}", "a", 1, ran_s=float(at), queued_at_s=31.0 if later else 30.0)
    assert lab.ask("a", 1, queued_at_s=30.0) == {"w100": "InClusterQueue"}


def test_lowest_priority_goes_first_then_the_newest_then_by_uid() -> None:
    lab = one_queue(LOWER)
    lab.hold("old", "a", 1, priority=1, ran_s=50.0)
    lab.hold("new-y", "a", 1, priority=1, ran_s=10.0)
    lab.hold("new-x", "a", 1, priority=1, ran_s=10.0)
    lab.hold("lowest", "a", 1, priority=0, ran_s=99.0)
    assert set(lab.ask("a", 1, priority=5)) == {"lowest"}
    assert set(lab.ask("a", 2, priority=5)) == {"lowest", "new-x"}
    assert set(lab.ask("a", 3, priority=5)) == {"lowest", "new-x", "new-y"}


def test_who_has_been_told_to_go_goes_before_anybody_else_is_told() -> None:
    lab = two_queues({**LOWER, **RECLAIM}, lent=3)
    lab.hold("going", "a", 1, priority=3, evicted=True)
    assert lab.ask("a", 1, priority=5) == {"going": "InClusterQueue"}


def test_a_victim_that_turns_out_not_to_be_needed_stays() -> None:
    lab = one_queue(LOWER)
    lab.hold("small", "a", 1, priority=0)
    lab.hold("large", "a", 3, priority=1)
    assert lab.ask("a", 3, priority=5) == {"large": "InClusterQueue"}


def test_quota_lent_out_is_taken_back_until_the_borrower_has_its_own_again() -> None:
    lab = two_queues(RECLAIM)
    assert lab.ask("a", 2) == {"b6": "InCohortReclamation", "b7": "InCohortReclamation"}
    assert len(lab.ask("a", 4)) == 4


def test_who_holds_no_more_than_its_own_is_left_alone_whatever_the_priorities() -> None:
    lab = two_queues(RECLAIM, lent=0)
    assert lab.ask("a", 5, priority=1000) == {}


def test_reclaim_by_priority_takes_back_from_lower_priorities_only() -> None:
    lab = two_queues({"reclaimWithinCohort": "LowerPriority"})
    assert lab.ask("a", 1, priority=0) == {}
    assert len(lab.ask("a", 1, priority=1)) == 1


def test_for_a_borrower_others_go_only_where_borrow_within_cohort_says_so_and_up_to_its_threshold() -> None:
    def asked(borrow: dict[str, Any] | None, victim_priority: int) -> dict[str, str]:
        policies: dict[str, Any] = {**RECLAIM}
        if borrow is not None:
            policies["borrowWithinCohort"] = borrow
        lab = Lab()
        lab.queue("a", 0, "all", preemption=policies)
        lab.queue("b", 0, "all")
        lab.cohort("all", 4)
        lab.hold("b0", "b", 4, priority=victim_priority)
        return lab.ask("a", 2, priority=10)

    # "a" has no quota of its own: all it gets is borrowed. Its share of the cohort's pool gives it no advantage.
    lower = {"policy": "LowerPriority"}
    capped = {"policy": "LowerPriority", "maxPriorityThreshold": 3}
    assert asked(None, 0) == {}
    assert asked(lower, 9) == {"b0": "InCohortReclaimWhileBorrowing"}
    assert asked(lower, 10) == {}
    assert asked(capped, 3) == {"b0": "InCohortReclaimWhileBorrowing"}
    assert asked(capped, 4) == {}
    # Only a policy that says Never is Never.
    assert asked({"maxPriorityThreshold": 3}, 3) == {"b0": "InCohortReclaimWhileBorrowing"}


def test_where_borrowers_may_not_evict_it_is_tried_within_own_quota_first() -> None:
    lab = Lab()
    lab.cohort("all", 3)
    lab.queue("a", 4, "all", preemption={**LOWER, **RECLAIM})
    lab.queue("b", 4, "all")
    for at in range(6):
        lab.hold(f"b{at}", "b", 1)
    lab.hold("low-x", "a", 1)
    lab.hold("low-y", "a", 1)
    # With one of the two gone it would fit beyond its quota.
    assert set(lab.ask("a", 4, priority=5)) == {"low-x", "low-y"}


def test_a_subtree_with_room_in_its_own_quota_takes_it_back_from_outside_without_asking_for_priorities() -> None:
    lab = Lab()
    lab.cohort("root")
    lab.cohort("left", 4, "root")
    lab.queue("a", 0, "left", preemption=RECLAIM)
    lab.queue("b", 0, "root")
    lab.hold("b0", "b", 4, priority=1000)
    assert lab.ask("a", 2) == {"b0": "InCohortReclamation"}


def test_what_a_queue_keeps_to_itself_need_not_fit_into_its_cohorts_quota() -> None:
    lab = Lab()
    lab.cohort("root")
    lab.cohort("left", 1, "root")
    lab.queue("a", 4, "left", preemption=RECLAIM, lending=2)
    lab.queue("b", 0, "root")
    lab.hold("b0", "b", 3)
    assert lab.ask("a", 5) == {"b0": "InCohortReclamation"}
    assert lab.ask("a", 6) == {}


def test_more_than_there_is_asks_for_nobody() -> None:
    lab = two_queues({**LOWER, **RECLAIM})
    assert lab.ask("a", 9, priority=1000) == {}


def test_the_slice_that_is_replaced_is_not_preempted() -> None:
    lab = one_queue(LOWER)
    replaced = lab.hold("replaced", "a", 2, priority=0)
    lab.hold("other", "a", 2, priority=1)
    assert lab.ask("a", 2, priority=5, replaces=replaced) == {"other": "InClusterQueue"}


def afs(*, on: bool) -> EngineConfig:
    return EngineConfig(
        admission_fair_sharing=AdmissionFairSharing(half_life_s=3600.0),
        gates=FeatureGates({"AdmissionFairSharing": on}),
    )


def test_the_local_queue_that_used_most_gives_first_even_at_a_higher_priority() -> None:
    def victim(config: EngineConfig, *, usage_based: bool) -> set[str]:
        lab = Lab(config)
        lab.queue("a", 2, preemption=LOWER, usage_based=usage_based)
        lab.hold("modest", "a", 1, priority=0, local_queue=LocalQueueKey("/modest"))
        lab.hold("hungry", "a", 1, priority=1, local_queue=LocalQueueKey("/hungry"))
        lab.usage_of_local_queue = {"/hungry": 9.0, "/modest": 1.0}
        return set(lab.ask("a", 1, priority=5))

    assert victim(afs(on=True), usage_based=True) == {"hungry"}
    assert victim(afs(on=True), usage_based=False) == {"modest"}
    assert victim(afs(on=False), usage_based=True) == {"modest"}
    assert victim(EngineConfig(), usage_based=True) == {"modest"}


def test_a_question_changes_nothing() -> None:
    lab = two_queues({**LOWER, **RECLAIM})
    used = {name: node.used() for name, node in lab.cluster.quota.cluster_queues.items()}
    lab.ask("a", 4, priority=9)
    assert {name: node.used() for name, node in lab.cluster.quota.cluster_queues.items()} == used
    lab.cluster.validate()
    lab.preemption.validate()


def test_with_now_far_ahead_nothing_is_different_while_nothing_beyond_the_peer_is_on() -> None:
    lab = two_queues(RECLAIM)
    incoming = lab.incoming("in", "a", 2)
    assert lab.targets(incoming, NOW_S) == lab.targets(incoming, NOW_S + 1e9)
