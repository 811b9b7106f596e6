"""Workloads that wait without a try of their own: the one that parked their shape says why."""

from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.queues.found import found_of, last_found
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload


def waiting(world: World, name: str) -> DecisionRecord | None:
    pending = world.engine.state.queues.get(WorkloadKey(f"ns/{name}"))
    assert pending is not None
    return last_found(world.engine.stories, pending)


def full() -> World:
    """``first`` and ``second`` of one shape wait: the second was never tried."""
    world = World()
    world.put(flavor(), cluster_queue("a", 4), local_queue("a"), workload("old", "a", 4))
    world.settle()
    world.put(workload("first", "a", 3, created_s=1), workload("second", "a", 3, created_s=2))
    world.settle()
    assert world.engine.stories.last(WorkloadKey("ns/second")) is None
    return world


def test_a_workload_whose_shape_is_parked_has_the_reason_of_the_one_that_was_tried() -> None:
    world = full()
    found = waiting(world, "second")
    assert found is not None
    assert found is waiting(world, "first"), "the same object: who compares sees that nothing is new"
    assert found.rule is Rule.NO_CANDIDATES
    assert sentence(found) == "Needs 3 gpu of flavor default: 0 free, 3 more needed"


def test_its_words_are_told_as_its_own() -> None:
    world = full()
    pending = world.engine.state.queues.get(WorkloadKey("ns/second"))
    assert pending is not None
    found = last_found(world.engine.stories, pending)
    assert found is not None
    assert found_of(found, pending).workload == pending.key


def test_the_reason_stays_when_the_one_that_was_tried_is_deleted() -> None:
    world = full()
    world.delete("first")
    found = waiting(world, "second")
    assert found is not None
    assert found.rule is Rule.NO_CANDIDATES


def test_a_shape_that_is_awake_says_what_its_own_workload_was_told_alone() -> None:
    world = full()
    world.put(cluster_queue("a", 5))
    assert waiting(world, "second") is None


def test_one_that_was_tried_before_has_the_later_reason() -> None:
    world = full()
    world.delete("first")
    world.put(cluster_queue("a", 5))
    world.settle()
    own = waiting(world, "second")
    assert own is not None
    assert own.workload == "ns/second"
    world.put(workload("third", "a", 3), cluster_queue("a", 6))
    world.now_s += 10
    world.settle()
    later = waiting(world, "second")
    assert later is not None
    assert (later.workload, later.at_s > own.at_s) == ("ns/third", True)
