"""The validators of places see sums, orders and usage that have drifted."""

from collections.abc import Callable
from typing import Any

import pytest

from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.topology.counts import Counts
from controller.scheduler.topology.placement import Topologies
from controller.scheduler.topology.tree import Tree
from tests.controller.scheduler.topology.test_topology_in_cycles import gang, world_of
from tests.support.engine.topologylab import FLAVOR, GPU, Lab, ask, even, usage

LEVEL = "dc/rack"


def asked() -> Topologies:
    """Two blocks of two racks of two hosts; pods run on one host, and somebody has asked for a rack."""
    lab = Lab(even(2, 2, 2, 4))
    lab.hold({"b0r0h0": 2})
    assert lab.main(ask(8, required=LEVEL)) is not None
    lab.topologies.validate([(FLAVOR, usage({"b0r0h0": 2}))])
    return lab.topologies


def tree_of(topologies: Topologies) -> Tree:
    return topologies._finders[FLAVOR].tree


def counts_of(topologies: Topologies) -> Counts:
    return next(iter(topologies._finders[FLAVOR]._counts.values())).sync()


def used_by_nobody(topologies: Topologies) -> None:
    topologies._used.change(FLAVOR, usage({"b1r0h0": 1}), 1)


def still_assumed(topologies: Topologies) -> None:
    topologies._assumed.change(FLAVOR, usage({"b1r0h0": 1}), 1)


def more_free(topologies: Topologies) -> None:
    tree = tree_of(topologies)
    leaf = tree.at_level[-1][0]
    tree.free[leaf] = {**tree.free[leaf], GPU: 99}


def lost_leaf(topologies: Topologies) -> None:
    tree_of(topologies)._leaves.popitem()


def out_of_order(topologies: Topologies) -> None:
    tree_of(topologies).at_level[1].reverse()


def miscounted(topologies: Topologies) -> None:
    counts_of(topologies).pods[0] += 1


def misranked(topologies: Topologies) -> None:
    counts = counts_of(topologies)
    counts.order(2, led=False, least=True)
    next(iter(counts._orders[2].values())).reverse()


def misranked_kin(topologies: Topologies) -> None:
    counts = counts_of(topologies)
    counts.kin(0, least=True)
    next(iter(counts._kin[0].values())).reverse()


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (used_by_nobody, "topology usage: kept"),
        (still_assumed, "usage was assumed and not taken back"),
        (more_free, "is kept with"),
        (lost_leaf, "is not found by the name"),
        (out_of_order, "are out of order"),
        (miscounted, "counted"),
        (misranked, "the order of kubernetes.io/hostname has drifted"),
        (misranked_kin, "the order below"),
    ],
)
def test_places_that_drift_are_seen(plant: Callable[[Topologies], None], said: str) -> None:
    topologies = asked()
    held: list[Any] = [(FLAVOR, usage({"b0r0h0": 2}))]
    plant(topologies)
    with pytest.raises(AssertionError, match=said):
        topologies.validate(held)


def test_places_that_drift_are_drift_of_the_whole_engine() -> None:
    world = world_of({"b/r/a": 2})
    world.put(gang("w", 2))
    world.settle()
    placement = world.engine.state.cluster.placement
    assert isinstance(placement, Topologies)
    used_by_nobody(placement)
    with pytest.raises(DriftError, match="topology usage: kept"):
        world.engine.validate()
