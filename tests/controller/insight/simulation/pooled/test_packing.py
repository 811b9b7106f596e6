"""Packing in worlds of pools: what it pays for nodes, and who waits for it."""

import random

import pytest

from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import Json, cluster_queue, flavor, job, local_queue, priority_class, run
from tests.support.controller.nodepools import Fleet
from tests.support.seeds import histories

World = tuple[Fleet, list[Json]]


def world(seed: int, delay: float) -> World:
    """Jobs of 5 to 60 minutes over two hours, on as many nodes of 8 GPUs as they need."""
    chance = random.Random(seed)
    keeps_s = chance.choice((0.0, 120.0, 600.0))
    fleet = Fleet().pool("gpu", 14, 8, delay=delay, remove_after=keeps_s, price_per_hour=10.0)
    preemption = {"withinClusterQueue": "LowerPriority"}
    objects = [flavor(), cluster_queue(gpus=112, preemption=preemption), local_queue()]
    objects += [priority_class("low", 1), priority_class("high", 2), *fleet.nodes]
    for number in range(chance.randint(8, 20)):
        gpus, most = chance.choice(((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (8, 1), (1, 8), (2, 4)))
        runtime = f"{chance.choice((300, 900, 1800, 3600))}s"
        arrival, priority = f"{chance.randint(0, 7200)}s", chance.choice(("low", "low", "high"))
        pods = chance.randint(1, most)
        objects.append(job(f"j{number}", gpus, pods=pods, priority=priority, arrival=arrival, runtime=runtime))
    return fleet, objects


def both(given: World) -> tuple[SimulationResult, SimulationResult]:
    fleet, objects = given
    plain, packed = (
        run(*objects, pools=fleet.comes, using=f"tessera: {{packing: {{emptyNodes: {weight}}}}}") for weight in (0, 1)
    )
    return plain, packed


def ends(result: SimulationResult) -> dict[str, float]:
    return {entry.workload: entry.t for entry in result.timeline if entry.event == "Finished"}


def hours(result: SimulationResult) -> float:
    return sum(result.final.node_hours.values())


@histories(12)
def test_where_nodes_come_at_once_and_are_enough_every_job_ends_as_without_packing(seed: int) -> None:
    plain, packed = both(world(seed, delay=0.0))
    assert ends(plain) == ends(packed) != {}


@pytest.mark.parametrize("delay", [0.0, 300.0])
def test_many_worlds_pay_fewer_node_hours_and_hardly_one_pays_more(delay: float) -> None:
    pairs = [both(world(seed, delay)) for seed in range(16)]
    without, with_ = (sum(hours(pair[at]) for pair in pairs) for at in (0, 1))
    assert with_ < 0.995 * without
    assert all(hours(packed) < 1.03 * hours(plain) for plain, packed in pairs)
