"""What an evicted workload is told: for which workload, and why that one may preempt it."""

from typing import Any

import pytest

from controller.scheduler.model.config import EngineConfig, FairSharing
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ABOVE_MIN_REPLICAS
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

WITHIN = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
ANY = {"reclaimWithinCohort": "Any"}
BORROWING = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}


def eviction(world: World, name: str) -> str:
    """The message of its condition Evicted."""
    conditions = world.workloads[WorkloadKey(f"ns/{name}")].status.conditions
    (message,) = [condition.message for condition in conditions if condition.type == "Evicted"]
    return message


@pytest.mark.parametrize(
    ("victim", "preemptor", "cause"),
    [
        ({"priority": 0}, {"priority": 1}, "of the same ClusterQueue (priority 1 over 0)"),
        ({"created_s": 9}, {"created_s": 1}, "of the same ClusterQueue (equal priority 0, queued earlier)"),
        (
            {"annotations": {ABOVE_MIN_REPLICAS: "true"}},
            {"priority": 1},
            "of the same ClusterQueue (priority 1 over the lowest, which all above a minimum have)",
        ),
    ],
)
def test_a_victim_of_its_own_queue_reads_which_priority_counted(
    victim: dict[str, Any], preemptor: dict[str, Any], cause: str
) -> None:
    world = World()
    world.put(flavor(), cluster_queue("a", 4, preemption=WITHIN), local_queue("a"), workload("old", "a", 4, **victim))
    world.settle()
    world.put(workload("new", "a", 4, **preemptor))
    world.settle()
    assert eviction(world, "old") == f"Preempted to accommodate workload ns/new (UID uid-new) {cause}"


@pytest.mark.parametrize(
    ("fair", "nominal", "asked", "preemption", "cause"),
    [
        (False, 4, 4, ANY, "of ClusterQueue b, which reclaims quota that it lent"),
        (False, 0, 4, BORROWING, "of ClusterQueue b, which borrows for it (priority 1 over 0)"),
        (True, 0, 4, ANY, "of ClusterQueue b, which has the lower share of the cohort"),
    ],
)
def test_a_victim_of_another_queue_reads_why_its_quota_was_taken(
    fair: bool, nominal: int, asked: int, preemption: dict[str, Any], cause: str
) -> None:
    world = World(EngineConfig(fair_sharing=FairSharing() if fair else None))
    world.put(flavor(), cluster_queue("a", 0, cohort="all"), local_queue("a"), local_queue("b"))
    world.put(cluster_queue("b", nominal, cohort="all", preemption=preemption))
    world.put(cluster_queue("lender", 8 - nominal, cohort="all"))
    world.put(workload("old", "a", 4), workload("older", "a", 4))
    world.settle()
    world.put(workload("new", "b", asked, priority=1))
    world.settle()
    evicted = [name for name in ("old", "older") if world.condition(name, "Evicted")]
    assert [eviction(world, name) for name in evicted] == [
        f"Preempted to accommodate workload ns/new (UID uid-new) {cause}"
    ]
