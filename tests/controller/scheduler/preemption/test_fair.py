from typing import Any

from controller.scheduler.model.config import EngineConfig, FairSharing, PreemptionStrategy
from controller.scheduler.model.gates import FeatureGates
from tests.support.engine.preemptionlab import Lab

RECLAIM: dict[str, Any] = {"reclaimWithinCohort": "Any"}
FINAL = PreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL = PreemptionStrategy.LESS_THAN_INITIAL_SHARE


def shared_pool(pool: int, *strategies: PreemptionStrategy, gates: FeatureGates | None = None) -> Lab:
    """Queues a, b, c without quota of their own in a cohort of ``pool``."""
    fair = FairSharing(strategies=strategies or (FINAL, INITIAL))
    lab = Lab(EngineConfig(fair_sharing=fair, gates=gates or FeatureGates()))
    lab.cohort("all", pool)
    for name in "abc":
        lab.queue(name, 0, "all", preemption=RECLAIM)
    return lab


def hold_ones(lab: Lab, queue: str, count: int) -> None:
    for at in range(count):
        lab.hold(f"{queue}{at}", queue, 1, ran_s=100.0 - at)


def test_the_queue_with_the_largest_share_gives() -> None:
    lab = shared_pool(9)
    hold_ones(lab, "b", 6)
    hold_ones(lab, "c", 3)
    assert lab.ask("a", 2) == {"b5": "InCohortFairSharing", "b4": "InCohortFairSharing"}


def test_nobody_gives_to_a_queue_that_would_have_more_than_itself() -> None:
    lab = shared_pool(6)
    hold_ones(lab, "a", 3)
    hold_ones(lab, "b", 3)
    assert lab.ask("a", 1) == {}


def test_shares_converge_to_the_weights() -> None:
    lab = shared_pool(12)
    lab.queue("a", 0, "all", preemption=RECLAIM, weight="2")
    hold_ones(lab, "b", 6)
    hold_ones(lab, "c", 6)
    got = 0
    while targets := lab.targets(lab.incoming(f"a{got}", "a", 1)):
        lab.remove(target.holder.key for target in targets)
        lab.hold(f"a{got}", "a", 1)
        got += 1
    assert {name: len(state.holders) for name, state in lab.cluster.queues.items()} == {"a": 6, "b": 3, "c": 3}


def test_the_strategies_differ_where_a_victim_is_larger_than_the_difference() -> None:
    def asked(*strategies: PreemptionStrategy) -> set[str]:
        lab = shared_pool(6, *strategies)
        lab.hold("b0", "b", 5)
        return set(lab.ask("a", 3))

    assert asked(FINAL) == set()
    assert asked(INITIAL) == {"b0"}
    assert asked(FINAL, INITIAL) == {"b0"}


def test_the_second_strategy_takes_the_first_that_the_first_one_spared() -> None:
    lab = shared_pool(6)
    lab.hold("low", "b", 3, priority=0)
    lab.hold("high", "b", 2, priority=1)
    assert lab.ask("a", 4) == {"low": "InCohortFairSharing"}


def test_who_is_spared_does_not_spare_the_smaller_ones_behind_it() -> None:
    lab = shared_pool(6)
    lab.hold("large", "b", 4, ran_s=1.0)
    lab.hold("small", "b", 1, ran_s=9.0)
    assert lab.ask("a", 2) == {"small": "InCohortFairSharing"}


def test_of_equal_shares_a_cohort_gives_before_a_queue() -> None:
    lab = shared_pool(8)
    lab.cohort("nested", 0, "all")
    lab.queue("z", 0, "nested")
    hold_ones(lab, "b", 4)
    hold_ones(lab, "z", 4)
    assert lab.ask("a", 1) == {"z3": "InCohortFairSharing"}


def test_the_own_cohort_need_not_borrow_for_the_own_queue_to_give() -> None:
    lab = shared_pool(1)
    lab.cohort("mine", 4, "all")
    lab.queue("a", 0, "mine", preemption={"withinClusterQueue": "LowerPriority"})
    hold_ones(lab, "a", 2)
    lab.hold("b0", "b", 3)
    assert lab.ask("a", 1, priority=5) == {"a1": "InClusterQueue"}


def test_a_queue_within_its_own_quota_takes_it_back_whatever_the_shares_unless_the_gate_is_off() -> None:
    def asked(*, on: bool) -> dict[str, str]:
        gates = FeatureGates({"FairSharingPreemptWithinNominal": on})
        lab = Lab(EngineConfig(fair_sharing=FairSharing(strategies=(FINAL,)), gates=gates))
        lab.queue("a", 4, "all", preemption=RECLAIM, weight="1")
        lab.queue("b", 4, "all", weight="1")
        lab.hold("b0", "b", 3)
        lab.hold("b1", "b", 3)
        # In its own quota on the GPUs that it asks for, far beyond it on something else.
        return lab.ask("a", 4)

    assert set(asked(on=True).values()) == {"InCohortReclamation"}
    assert set(asked(on=False).values()) == {"InCohortFairSharing"}


def test_a_queue_of_weight_zero_gives_before_all_others_and_takes_from_nobody_else() -> None:
    lab = shared_pool(4)
    lab.queue("b", 0, "all", preemption=RECLAIM, weight="0")
    hold_ones(lab, "b", 2)
    hold_ones(lab, "c", 2)
    assert lab.ask("a", 1) == {"b1": "InCohortFairSharing"}
    lab.remove([holder.key for holder in lab.cluster.queues[lab.incoming("x", "b", 1).queue.name].holders.values()])
    hold_ones(lab, "a", 2)
    assert lab.ask("b", 1) == {}


def test_own_workloads_of_lower_priority_go_for_a_queue_that_may_not_take_more() -> None:
    lab = shared_pool(4)
    lab.queue("a", 0, "all", preemption={**RECLAIM, "withinClusterQueue": "LowerPriority"})
    hold_ones(lab, "a", 2)
    hold_ones(lab, "b", 2)
    assert lab.ask("a", 1, priority=1) == {"a1": "InClusterQueue"}


def test_without_a_cohort_fair_sharing_leaves_priorities_inside_the_queue() -> None:
    lab = Lab(EngineConfig(fair_sharing=FairSharing()))
    lab.queue("a", 2, preemption={"withinClusterQueue": "LowerPriority"})
    lab.hold("low", "a", 1)
    lab.hold("high", "a", 1, priority=9)
    assert lab.ask("a", 1, priority=5) == {"low": "InClusterQueue"}
    assert lab.ask("a", 2, priority=5) == {}
