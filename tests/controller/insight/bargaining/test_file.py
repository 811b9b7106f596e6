"""A request's Workload as it is seen: it is decided on once its victims are gone and it was tried without them."""

import json

import pytest

from controller.insight.bargaining.desk import is_preempting
from controller.insight.bargaining.file import File, is_decided, seen_of
from controller.insight.bargaining.kept import read_request
from controller.insight.bargaining.life import Phase, Want
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

ASKING = WorkloadKey("ns/asking")
RULES = {
    "Kueue": EngineConfig(),
    "nominations": EngineConfig(extensions=Extensions(reserve_for_preemptor=True)),
}


def preempting(config: EngineConfig, strategy: str = "BestEffortFIFO") -> World:
    """``low`` has all of the queue and was told to go; ``asking`` waits for it."""
    world = World(config)
    within = {"withinClusterQueue": "LowerPriority"}
    world.put(flavor(), cluster_queue("a", 8, preemption=within, queueingStrategy=strategy), local_queue("a"))
    world.put(workload("low", "a", 6))
    world.settle()
    world.put(workload("asking", "a", 5, priority=5, created_s=1))
    world.settle()
    assert world.leaving()
    return world


def decided(world: World, waited_since_s: float = 0.0) -> bool:
    return is_decided(world.workloads[ASKING], world.engine, world.now_s, waited_since_s)


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
@pytest.mark.parametrize("rules", RULES)
def test_a_workload_that_preempts_is_not_decided_on_until_its_victims_are_gone(rules: str, strategy: str) -> None:
    world = preempting(RULES[rules], strategy)
    world.now_s += 600.0
    world.settle()
    assert world.engine.settled(world.now_s)
    assert not decided(world)
    world.stop_evicted()
    assert not decided(world, world.now_s), "it was not tried without them"
    world.settle()
    assert world.running() == {"asking"}
    assert not decided(world), "it has what it asked for"


def test_a_preemptor_that_another_one_passes_is_decided_on_once_its_victims_are_gone() -> None:
    world = preempting(EngineConfig(), "StrictFIFO")
    assert is_preempting(world.engine, ASKING, world.now_s)
    world.put(workload("urgent", "a", 8, priority=9, created_s=2))
    world.settle()
    world.stop_evicted()
    world.settle()
    assert world.running() == {"urgent"}
    assert not is_preempting(world.engine, ASKING, world.now_s)
    assert decided(world)


def test_a_workload_behind_the_head_of_a_strict_queue_is_decided_on_without_a_try() -> None:
    world = World(EngineConfig())
    world.put(flavor(), cluster_queue("a", 8, queueingStrategy="StrictFIFO"), local_queue("a"))
    world.put(workload("busy", "a", 6), workload("head", "a", 8, created_s=1))
    world.settle()
    world.put(workload("asking", "a", 1, created_s=2))
    world.settle()
    assert decided(world)


def asked() -> File:
    body = {"metadata": {"name": "ask", "namespace": "ns", "uid": "u"}, "spec": {"queueName": "a"}}
    return File(read_request(json.dumps(body).encode()))


def test_a_workload_that_the_controller_deletes_is_not_lost() -> None:
    found = asked()
    found.wants_anew(Want(least=2, most=4, offer="offer-1"))
    found.withdrawn.add("first")
    found.gone("first", "offer-1")
    assert (found.lost, found.withdrawn) == (False, set()), "fewer units are asked for in its place"
    found.gone("second", "offer-1")
    assert found.lost, "somebody deleted it"


def test_the_end_of_what_was_held_is_no_loss_of_the_offer_that_was_accepted_meanwhile() -> None:
    found = asked()
    found.wants_anew(Want(least=2, most=2, offer="offer-1", free_only=True))
    found.wants_anew(Want(least=4, most=4, offer="offer-2"))
    found.gone("first", "offer-1")
    assert not found.lost
    seen = seen_of(found, None, Engine(), 0.0)
    assert seen is not None
    assert (seen.phase, seen.offer) == (Phase.QUEUED, "offer-2")
