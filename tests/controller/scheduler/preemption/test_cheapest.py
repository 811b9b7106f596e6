"""The victims that lose least are evicted, of those that the policy allows anyway."""

from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.cluster.incoming import Incoming, Target
from controller.scheduler.model.config import (
    MAX_GRACE_S,
    EngineConfig,
    Extensions,
    FairSharing,
    MinimumRuntime,
    VictimOrder,
)
from controller.scheduler.model.resources import FlavorResource
from controller.scheduler.preemption.cheapest import CANDIDATES
from controller.scheduler.preemption.moves import price_of
from controller.scheduler.quota.queuestate import Holder
from inventory.api.names import CHECKPOINT_INTERVAL, LAST_CHECKPOINT, RESTART_COST
from tests.support.engine.preemptionlab import FLAVOR, NOW_S, Lab

LOWER: dict[str, Any] = {"withinClusterQueue": "LowerPriority"}
RECLAIM: dict[str, Any] = {"reclaimWithinCohort": "Any"}
FAIR_OR_NOT = pytest.mark.parametrize("fair", [None, FairSharing()])


def lab_of(order: VictimOrder = VictimOrder.LEAST_LOST, fair: FairSharing | None = None, **more: Any) -> Lab:
    return Lab(EngineConfig(fair_sharing=fair, extensions=Extensions(victim_order=order, **more)))


def keeps(interval: str, **more: str) -> dict[str, str]:
    return {CHECKPOINT_INTERVAL: interval, **more}


def lost(holder: Holder) -> float:
    return 0.0 if holder.evicted else sum(price_of(holder, NOW_S, MAX_GRACE_S))


@FAIR_OR_NOT
def test_of_two_equal_victims_the_one_that_saved_its_work_goes(fair: FairSharing | None) -> None:
    for saver in ("w0", "w1"):
        lab = lab_of(fair=fair)
        lab.queue("a", 8, preemption=LOWER)
        for name in ("w0", "w1"):
            lab.hold(name, "a", 4, annotations=keeps("59m") if name == saver else {})
        assert set(lab.ask("a", 4, priority=9)) == {saver}


def test_a_checkpoint_that_is_told_later_counts_from_then_on() -> None:
    lab = lab_of()
    lab.queue("a", 8, preemption=LOWER)
    lab.hold("w0", "a", 4, annotations=keeps("20m"))
    lab.hold("w1", "a", 4, ran_s=3500.0, annotations=keeps("30m"))
    assert set(lab.ask("a", 4, priority=9)) == {"w0"}
    told = lab.holder("w1", "a", 4, ran_s=3500.0, annotations={LAST_CHECKPOINT: "1970-01-12T13:46:40Z"})
    lab.cluster.replace_holder(told)
    assert set(lab.ask("a", 4, priority=9)) == {"w1"}
    lab.preemption.validate()


def test_a_restart_that_costs_much_spares_a_workload() -> None:
    lab = lab_of()
    lab.queue("a", 8, preemption=LOWER)
    lab.hold("w0", "a", 4, annotations=keeps("59m", **{RESTART_COST: "50m"}))
    lab.hold("w1", "a", 4, annotations=keeps("30m", **{RESTART_COST: "1m"}), ran_s=3000.0)
    assert set(lab.ask("a", 4, priority=9)) == {"w1"}


def test_a_higher_priority_stays_whatever_it_would_lose() -> None:
    lab = lab_of()
    lab.queue("a", 8, preemption=LOWER)
    lab.hold("low", "a", 4)
    lab.hold("high", "a", 4, priority=1, annotations=keeps("1s"))
    assert set(lab.ask("a", 4, priority=9)) == {"low"}


def test_the_set_is_chosen_and_not_each_victim_by_itself() -> None:
    lab = lab_of()
    lab.queue("a", 12, preemption=LOWER)
    lab.hold("w2", "a", 2, ran_s=100.0)  # 200: the first, and of no use
    lab.hold("w3", "a", 3, ran_s=100.0)  # 300
    lab.hold("w4", "a", 4, ran_s=90.0)  # 360
    lab.hold("w1", "a", 3, ran_s=130.0)  # 390
    assert set(lab.ask("a", 4, priority=9)) == {"w4"}
    assert set(lab.ask("a", 5, priority=9)) == {"w2", "w3"}
    assert set(lab.ask("a", 7, priority=9)) == {"w3", "w4"}


def test_a_victim_that_is_needed_no_more_stays() -> None:
    lab = lab_of()
    lab.queue("a", 12, preemption=LOWER)
    lab.hold("low", "a", 1, priority=-1)
    lab.hold("small", "a", 3, ran_s=900.0)
    lab.hold("large", "a", 8, ran_s=10.0)
    assert set(lab.ask("a", 4, priority=9)) == {"large"}


def test_a_queue_within_its_own_quota_loses_nothing_however_cheap_its_work_is() -> None:
    lab = lab_of()
    lab.queue("a", 8, "all", preemption=RECLAIM)
    lab.queue("b", 4, "all")
    lab.queue("c", 0, "all")
    lab.hold("cheap", "b", 4, annotations=keeps("1s"))
    lab.hold("dear", "c", 8)
    assert set(lab.ask("a", 8)) == {"dear"}


def test_a_minimum_runtime_protects_work_that_is_saved_as_well() -> None:
    lab = lab_of(minimum_runtime=MinimumRuntime(default_s=600.0))
    lab.queue("a", 8, preemption=LOWER)
    lab.hold("new", "a", 4, ran_s=300.0, annotations=keeps("1s"))
    lab.hold("old", "a", 4)
    assert set(lab.ask("a", 4, priority=9)) == {"old"}


def test_victims_carry_their_price_only_where_it_is_asked_for() -> None:
    for order, price in ((VictimOrder.LEAST_LOST, (4 * 600.0, 4 * 60.0)), (VictimOrder.NEWEST, None)):
        lab = lab_of(order)
        lab.queue("a", 4, preemption=LOWER)
        lab.hold("w", "a", 4, annotations=keeps("50m", **{RESTART_COST: "1m"}))
        (target,) = lab.targets(lab.incoming("in", "a", 4, 9))
        assert target.price == price


def test_among_very_many_a_search_still_ends_with_victims_that_do() -> None:
    lab = lab_of()
    lab.queue("a", sum(1 + at % 5 for at in range(2 * CANDIDATES)), preemption=LOWER)
    for at in range(2 * CANDIDATES):
        lab.hold(f"w{at:03}", "a", 1 + at % 5, ran_s=60.0 + at * 7919 % 977, annotations=keeps(f"{1 + at % 7}m"))
    victims = lab.targets(lab.incoming("in", "a", 60, 9))
    assert sum(target.holder.usage[FlavorResource(FLAVOR, lab.resource)] for target in victims) >= 60


PRIORITY = st.integers(0, 2)
INTERVAL = st.sampled_from([None, "7s", "20s", "45s"])
QUEUES = ("a", "b", "c")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[FairSharing | None, list[dict[str, Any]], list[dict[str, Any]], int, int]:
    fair = draw(st.sampled_from([None, None, FairSharing()]))
    policies = [
        {
            "withinClusterQueue": draw(st.sampled_from(["Never", "LowerPriority", "LowerPriority"])),
            "reclaimWithinCohort": draw(st.sampled_from(["Never", "LowerPriority", "Any"])),
        }
        for _ in QUEUES
    ]
    holders = [
        {
            "queue": draw(st.sampled_from(QUEUES)),
            "amount": draw(st.integers(1, 4)),
            "priority": draw(PRIORITY),
            "ran_s": float(draw(st.integers(0, 90))),
            "interval": draw(INTERVAL),
            "evicted": draw(st.integers(0, 9)) == 0,
        }
        for _ in range(draw(st.integers(0, 10)))
    ]
    return fair, policies, holders, draw(st.integers(1, 8)), draw(PRIORITY)


def world(
    order: VictimOrder, fair: FairSharing | None, policies: list[dict[str, Any]], holders: list[dict[str, Any]]
) -> Lab:
    lab = lab_of(order, fair)
    for name, each in zip(QUEUES, policies, strict=True):
        lab.queue(name, 4, "all", preemption=each)
    for at, one in enumerate(holders):
        told = {} if one["interval"] is None else keeps(one["interval"], **{RESTART_COST: "3s"})
        more = {"ran_s": one["ran_s"], "evicted": one["evicted"], "annotations": told}
        lab.hold(f"w{at}", one["queue"], one["amount"], one["priority"], **more)
    return lab


def cost(targets: tuple[Target, ...]) -> float:
    return sum(lost(target.holder) for target in targets)


@settings(max_examples=200)
@given(worlds())
def test_no_more_is_lost_than_by_kueues_choice_unless_that_takes_a_higher_rank(
    given_world: tuple[FairSharing | None, list[dict[str, Any]], list[dict[str, Any]], int, int],
) -> None:
    fair, policies, holders, amount, priority = given_world
    lab = world(VictimOrder.LEAST_LOST, fair, policies, holders)
    kueue = world(VictimOrder.NEWEST, fair, policies, holders)
    incoming = lab.incoming("in", "a", amount, priority)
    ours, theirs = lab.targets(incoming), kueue.targets(kueue.incoming("in", "a", amount, priority))
    assert bool(ours) or not theirs
    if theirs and highest(ours, fair) == highest(theirs, fair):
        assert cost(ours) <= cost(theirs) + 1e-6
    elif theirs:
        assert highest(ours, fair) < highest(theirs, fair)
    assert lab.targets(incoming) == ours
    lab.cluster.validate()
    lab.preemption.validate()


def highest(targets: tuple[Target, ...], fair: FairSharing | None) -> tuple[bool, bool, int]:
    """The highest rank: in this world no queue has an advantage over another, as each has its own four GPUs."""
    return max(
        (not one.holder.evicted, fair is None and one.holder.cluster_queue == "a", one.holder.priority)
        for one in targets
    )


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 90), INTERVAL), min_size=1, max_size=7), st.integers(1, 9))
def test_among_seven_equals_the_cheapest_set_of_all_is_taken(
    jobs: list[tuple[int, int, str | None]], amount: int
) -> None:
    lab = lab_of()
    lab.queue("a", sum(job[0] for job in jobs), preemption=LOWER)
    holders = [
        lab.hold(f"w{at}", "a", gpus, ran_s=float(ran_s), annotations={} if interval is None else keeps(interval))
        for at, (gpus, ran_s, interval) in enumerate(jobs)
    ]
    incoming: Incoming = lab.incoming("in", "a", amount, 9)
    fr = FlavorResource(FLAVOR, lab.resource)
    sets = chain.from_iterable(combinations(holders, size) for size in range(1, len(holders) + 1))
    best = min((sum(map(lost, one)) for one in sets if sum(each.usage[fr] for each in one) >= amount), default=None)
    targets = lab.targets(incoming)
    assert bool(targets) == (best is not None)
    if best is not None:
        assert cost(targets) == pytest.approx(best)
