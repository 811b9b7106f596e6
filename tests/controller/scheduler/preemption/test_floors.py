"""Replicas above a floor go first, one by one and the newest first; the floor stays while others take back what is
theirs.
"""

from collections.abc import Mapping

from inventory.api.names import ABOVE_MIN_REPLICAS
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

RECLAIMS = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
BORROWS = {**RECLAIMS, "borrowWithinCohort": {"policy": "LowerPriority"}}


def serving(*, preemption: Mapping[str, object]) -> World:
    """A floor of two replicas on a nominal quota of two, and four above it that are borrowed."""
    made = World()
    made.put(flavor(), local_queue("serve"), local_queue("train"))
    made.put(cluster_queue("serve", 2, cohort="all"), cluster_queue("train", 4, cohort="all", preemption=preemption))
    for number in range(6):
        notes = {ABOVE_MIN_REPLICAS: "true"} if number >= 2 else {}
        made.now_s += 1.0
        made.put(workload(f"replica-{number}", "serve", created_s=number, annotations=notes))
        made.settle()
    assert made.running() == {f"replica-{number}" for number in range(6)}
    return made


def test_what_is_reclaimed_is_above_the_floor_and_the_newest() -> None:
    made = serving(preemption=RECLAIMS)
    for number, gone in enumerate((5, 4, 3, 2)):
        made.put(workload(f"job-{number}", "train", created_s=10 + number))
        made.settle()
        made.stop_evicted()
        made.settle()
        assert f"replica-{gone}" not in made.running()
        assert f"job-{number}" in made.running()
    assert {"replica-0", "replica-1"} <= made.running(), "the floor is what its queue has itself"


def test_nobody_borrows_the_quota_of_a_floor_whatever_the_priority() -> None:
    made = serving(preemption=BORROWS)
    made.put(workload("large", "train", 5, priority=1000, created_s=20))
    made.settle()
    made.stop_evicted()
    made.settle()
    assert {"replica-0", "replica-1"} <= made.running()
    assert "large" not in made.running()
