"""In a simulation a flavor whose pool is interrupted often is tried after others, by the rule of a cluster."""

from typing import Any

import pytest

from controller.insight.simulation.timeline import SimulationResult
from tests.support.controller.manifests import Json, cluster_queue, job, kueue, local_queue, run
from tests.support.controller.nodepools import Fleet

CAPACITY = "karpenter.sh/capacity-type"


def fleet_of(*, pool: str = "spot", node: str = "") -> Fleet:
    """Two pools of two nodes; spot, or one of its nodes, is interrupted after half an hour."""
    fleet = Fleet().pool("spot", 2, labels={"karpenter_sh__capacity-type": "spot"}, spot=True, cooldown_s=60.0)
    fleet.pool("safe", 2, labels={"karpenter_sh__capacity-type": "on-demand"})
    return fleet.interrupted(1800, 120, pool="" if node else pool, node=node)


def taken(fleet: Fleet, *jobs: Json, using: str = "") -> list[str]:
    """The flavor of each start of a job, in order."""
    flavors = tuple(
        kueue("ResourceFlavor", name, spec={"nodeLabels": {CAPACITY: kind}})
        for name, kind in (("spot", "spot"), ("safe", "on-demand"))
    )
    queue: Json = cluster_queue(gpus=64, flavors=("spot", "safe"))
    objects: tuple[Any, ...] = (*flavors, queue, local_queue(), *fleet.nodes, *jobs)
    result: SimulationResult = run(*objects, using=using, pools=fleet.comes)
    return [
        f"{entry.t:g} {entry.workload.removeprefix('ns/')} {next(iter(entry.flavors['main'].values()))}"
        for entry in result.timeline
        if entry.event == "Admitted"
    ]


GANG = job("gang", 8, pods=2, runtime="1h")


def test_a_flavor_that_lost_two_nodes_in_a_node_day_is_tried_last_until_the_window_has_passed() -> None:
    later, much_later = (job(name, runtime="60s", arrival=at) for name, at in (("later", "3h"), ("tomorrow", "26h")))
    found = taken(fleet_of(), GANG, later, much_later)
    assert found == ["300 gang spot", "2100 gang safe", "11100 later safe", "93900 tomorrow spot"]


@pytest.mark.parametrize(
    ("fleet", "using"),
    [
        (fleet_of(node="spot-1"), ""),
        (fleet_of(), "tessera: {spot: {tooOften: 2}}"),
        (fleet_of(), "tessera: {spot: {tooOften: 0}}"),
        (fleet_of(), "tessera: {spot: {interruptionsWindow: 1h}}"),
    ],
    ids=["one node", "two are not more than two", "off", "the window has passed"],
)
def test_one_that_was_interrupted_less_is_tried_in_its_turn(fleet: Fleet, using: str) -> None:
    assert taken(fleet, GANG, job("later", runtime="60s", arrival="3h"), using=using)[-1] == "11100 later spot"


def test_nodes_without_work_and_nodes_that_have_not_come_are_not_counted() -> None:
    idle = fleet_of()
    assert taken(idle, job("later", runtime="60s", arrival="3h")) == ["11100 later spot"]
    coming = Fleet().pool("spot", 2, labels={"karpenter_sh__capacity-type": "spot"}, spot=True, cooldown_s=60.0)
    coming.pool("safe", 2, labels={"karpenter_sh__capacity-type": "on-demand"}).interrupted(100, 120, pool="spot")
    assert taken(coming, GANG, job("later", runtime="60s", arrival="3h"))[-1] == "11100 later spot"


def test_it_is_taken_all_the_same_where_nothing_else_is_left() -> None:
    fills = job("fills", 8, pods=2, runtime="5h", arrival="2h")
    found = taken(fleet_of(), GANG, fills, job("later", runtime="60s", arrival="3h"))
    assert found[-2:] == ["7500 fills safe", "11100 later spot"]


def test_who_prefers_spot_gets_it() -> None:
    prefers = job("later", runtime="60s", arrival="3h")
    prefers["metadata"]["annotations"]["tessera.dev/spot"] = "preferred"
    assert taken(fleet_of(), GANG, prefers)[-1] == "11100 later spot"
