"""No workload waits for what is free: what stands still would stand still as well in a controller that starts now.

Whoever starts anew knows no order of events, no reservation and no verdict; so what a running engine has forgotten to
try, or keeps for nobody, shows as something that the fresh one does at once.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.model.config import BackfillPolicy, EngineConfig, Extensions, FairSharing, VictimOrder
from tests.support.engine.contention import HOST, Arrival, Story, begins_anew, full_nodes, full_queues, on_nodes
from tests.support.engine.world import World, cluster_queue, cohort, flavor, local_queue, workload

RESERVING = Extensions(reserve_for_preemptor=True)
# Without the bars against eviction cycles: these are history, which a fresh engine does not have.
OURS = Extensions(
    reserve_for_preemptor=True,
    backfill=BackfillPolicy.CONSERVATIVE,
    victim_order=VictimOrder.LEAST_LOST,
    quota_from_capacity=True,
    own_places=True,
)
CONFIGS = {
    "peer": EngineConfig(),
    "peer, fair sharing": EngineConfig(fair_sharing=FairSharing()),
    "reservations": EngineConfig(extensions=RESERVING),
    "reservations, fair sharing": EngineConfig(fair_sharing=FairSharing(), extensions=RESERVING),
    "ours": EngineConfig(extensions=OURS),
    "ours, fair sharing": EngineConfig(
        fair_sharing=FairSharing(), extensions=msgspec.structs.replace(OURS, exact_fair_sharing=True)
    ),
}
WITHIN = {"withinClusterQueue": "LowerPriority"}


def missed(story: Story, config: EngineConfig) -> list[tuple[str, str]]:
    """What a controller that starts in the end would do; nothing is asked of those that evict each other for ever."""
    world = story.world(config)
    return [] if world.leaving() else begins_anew(world, config)


@settings(max_examples=30)
@given(full_queues(), st.sampled_from(sorted(CONFIGS)))
def test_who_waits_for_quota_would_wait_in_a_controller_that_starts_now(story: Story, name: str) -> None:
    assert missed(story, CONFIGS[name]) == []


@settings(max_examples=30)
@given(full_nodes(), st.sampled_from(sorted(CONFIGS)))
def test_who_waits_for_nodes_would_wait_in_a_controller_that_starts_now(story: Story, name: str) -> None:
    assert missed(story, CONFIGS[name]) == []


def test_a_strict_queues_head_does_not_wait_for_what_one_behind_it_reserves() -> None:
    world = World(EngineConfig(extensions=RESERVING))
    world.put(flavor(), cluster_queue("a", 4, preemption=WITHIN, queueingStrategy="StrictFIFO"), local_queue("a"))
    world.put(workload("low", "a", 4))
    world.settle()
    world.put(workload("preemptor", "a", 4, priority=1))
    world.settle()
    world.put(workload("head", "a", 3, priority=2))
    world.settle()
    world.stop_evicted()
    world.settle()
    assert world.running()


def test_a_reservation_ends_when_one_of_its_owners_shape_was_refused_in_its_stead() -> None:
    world = World(EngineConfig(extensions=RESERVING))
    reclaiming = {"reclaimWithinCohort": "Any"}
    world.put(flavor(), local_queue("a"), local_queue("b"))
    world.put(cluster_queue("a", 2, cohort="all", preemption=reclaiming), cluster_queue("b", 0, cohort="all"))
    world.put(workload("borrower", "b", 2))
    world.settle()
    world.put(workload("late", "a", 2, created_s=9))
    world.settle()
    assert world.condition("borrower", "Evicted") == "True/Preempted"
    world.put(workload("early", "a", 2, created_s=1))
    world.settle()
    world.stop_evicted()
    world.settle()
    assert len(world.running()) == 1
    assert world.running() <= {"early", "late"}


def test_the_head_of_a_queue_keeps_nothing_for_itself_that_a_preemptor_has_reserved() -> None:
    world = World(EngineConfig(fair_sharing=FairSharing(), extensions=RESERVING))
    world.put(flavor(), local_queue("b"), local_queue("c"))
    world.put(cluster_queue("b", 3, cohort="one", preemption=WITHIN, queueingStrategy="StrictFIFO"))
    world.put(cluster_queue("c", 4, cohort="one", borrow=2, preemption=WITHIN))
    world.put(
        *(workload(f"b{number}", "b") for number in range(4)), *(workload(f"c{number}", "c") for number in range(4))
    )
    world.settle()
    assert len(world.running()) == 7
    world.put(workload("preemptor", "c", 2, priority=1))
    world.finish("c3")
    assert world.rest()
    assert "preemptor" in world.running()


def test_a_preemptors_reservation_counts_once_in_the_share_by_which_it_comes_before_a_blocked_head() -> None:
    world = World(EngineConfig(fair_sharing=FairSharing(), extensions=RESERVING))
    world.put(flavor(), cohort("left", "root"), cohort("right", "root"), *map(local_queue, "abc"))
    reclaiming = {"reclaimWithinCohort": "Any"}
    strict: dict[str, Any] = {"queueingStrategy": "StrictFIFO"}
    world.put(cluster_queue("a", 2, cohort="left", preemption=reclaiming, **strict))
    world.put(cluster_queue("b", 4, cohort="left", **strict), cluster_queue("c", 0, cohort="right", **strict))
    names = [f"{queue}{number}" for queue in "abc" for number in range(3)]
    world.put(*(workload(name, name[0], created_s=at) for at, name in enumerate(names)))
    world.settle()
    assert sorted(world.running()) == ["a0", "a1", "b0", "b1", "c0", "c1"]
    world.put(workload("head", "b", 4, priority=1, created_s=9))
    assert world.rest()
    assert ("Evicted", "ns/c0") in world.log, "for a2, which borrows less than the head would"
    assert sorted(world.running()) == ["a0", "a1", "a2", "b0", "b1", "c1"]


@pytest.mark.parametrize("cohorts", [("", ""), ("one", "one")])
def test_room_that_one_queue_frees_on_a_node_is_found_by_another_of_whatever_cohort(cohorts: tuple[str, str]) -> None:
    world = World()
    world.put(*on_nodes(racks=1, nodes=1), local_queue("a"), local_queue("b"))
    world.put(*(cluster_queue(name, 4, cohort=cohort) for name, cohort in zip("ab", cohorts, strict=True)))
    for name in "ab":
        Arrival(name, 2, ask={"required": HOST})(world)
    world.settle()
    assert world.running() == {"w1"}
    world.finish("w1")
    world.settle()
    assert world.running() == {"w2"}
