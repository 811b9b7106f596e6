"""An admission that no decision of this engine is about, as an earlier leader's write that came late, stands if it fits
and is taken back if others hold the quota by now.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.objects.workload import Workload
from controller.scheduler.decisions.decisions import Admitted, Evicted
from controller.scheduler.decisions.reasons import QUOTA_TAKEN
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.world import World, cluster_queue, cohort, flavor, local_queue, workload

LOW = WorkloadKey("ns/low")


def queues(world: World, quota: int = 4) -> None:
    world.put(flavor(), cluster_queue("a", quota, cohort="all"), cluster_queue("b", 0, cohort="all"))
    world.put(local_queue("a"), local_queue("b"))


def admitted(gpus: int, queue: str = "a") -> Workload:
    """Workload ``low`` as another leader admits it."""
    other = World()
    queues(other, quota=100)
    other.put(workload("low", queue, gpus))
    other.settle()
    return other.workloads[LOW]


def waiting(gpus: int, queue: str = "a", *, held: int) -> World:
    """``low`` waits, as it has no turn before the others, who hold so much."""
    world = World()
    queues(world)
    world.put(*(workload(f"high-{number}", "a", 1, priority=9) for number in range(held)))
    world.settle()
    world.put(workload("low", queue, gpus))
    return world


def evictions(world: World) -> list[tuple[WorkloadKey, str]]:
    return [(one.key, one.reason) for one in world.engine.cycle(world.now_s).made if isinstance(one, Evicted)]


@pytest.mark.parametrize("queue", ["a", "b"])
def test_a_late_admission_beyond_the_quota_is_taken_back(queue: str) -> None:
    world = waiting(3, queue, held=2)
    world.put(admitted(3, queue))
    assert not world.engine.settled(world.now_s)
    assert evictions(world) == [(LOW, QUOTA_TAKEN)]
    world.engine.validate()
    assert evictions(world) == [], "it is told once"


@pytest.mark.parametrize("queue", ["a", "b"])
def test_a_late_admission_that_fits_stands(queue: str) -> None:
    world = waiting(3, queue, held=1)
    world.put(admitted(3, queue))
    assert evictions(world) == []
    assert world.engine.state.cluster.holders.keys() == {LOW, WorkloadKey("ns/high-0")}
    world.engine.validate()


def test_a_workload_that_is_admitted_when_it_is_first_seen_is_not_asked_about() -> None:
    """A new leader takes over what runs, though a quota was lowered meanwhile."""
    world = World()
    queues(world, quota=1)
    world.put(admitted(3))
    assert evictions(world) == []


def test_what_the_leader_admits_is_nothing_to_those_that_follow() -> None:
    world = waiting(3, held=2)
    world.put(admitted(3))
    world.engine.follow(world.now_s)
    assert evictions(world) == []


def test_a_lowered_quota_takes_nothing_back() -> None:
    world = waiting(3, held=1)
    world.put(admitted(3))
    world.engine.cycle(world.now_s)
    world.put(cluster_queue("a", 1, cohort="all"))
    assert evictions(world) == []


def test_an_admission_whose_write_was_taken_for_lost_is_taken_back_once_others_have_the_quota() -> None:
    world = waiting(3, held=0)
    (made,) = (one for one in world.engine.cycle(world.now_s).made if isinstance(one, Admitted))
    assert world.engine.failed(made, world.now_s, "no answer came")
    world.put(workload("high", "a", 2, priority=9))
    (other,) = (one for one in world.engine.cycle(world.now_s).made if isinstance(one, Admitted))
    assert other.key == "ns/high"
    world.put(made.status())
    assert evictions(world) == [(LOW, QUOTA_TAKEN)]


@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from(["a", "b"]), st.integers(0, 4))
def test_after_a_cycle_no_late_admission_is_beyond_its_quota(gpus: int, held: int, queue: str, more: int) -> None:
    world = World()
    world.put(cohort("all"))
    queues(world)
    world.put(*(workload(f"high-{number}", "ab"[number % 2], 1, priority=9) for number in range(held)))
    world.settle()
    world.put(workload("low", queue, gpus), *(workload(f"other-{number}", "a", 1) for number in range(more)))
    world.put(admitted(gpus, queue))
    world.engine.cycle(world.now_s)
    holders = world.engine.state.cluster.holders.values()
    used = sum(sum(one.usage.values()) for one in holders if not one.evicted)
    assert used <= 4
    assert (WorkloadKey(LOW) in {one.key for one in holders if one.evicted}) == (gpus + held > 4)
    world.engine.validate()
