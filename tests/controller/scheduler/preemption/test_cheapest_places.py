"""The victims that lose least are those in the domain that the preemptor needs."""

import msgspec
import pytest

from controller.scheduler.model.config import EngineConfig, Extensions, VictimOrder
from inventory.api.names import RESTART_COST
from tests.controller.scheduler.consolidation.test_packing import asks_within, rest, topology
from tests.support.engine.foreignqueues import evicted
from tests.support.engine.topologylab import RACK, node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload

LOWER = {"withinClusterQueue": "LowerPriority"}
COSTS = {"w0": "2m", "w1": "3m", "w2": "1m", "w3": "9m"}


def racks(order: VictimOrder, costs: dict[str, str]) -> World:
    """Two racks of two nodes of two GPUs, each taken whole by a workload that loses its restart alone."""
    lab = World(EngineConfig(extensions=Extensions(victim_order=order, reserve_for_preemptor=True)))
    nodes = [node(f"b/r{at // 2}/n{at}", 2) for at in range(4)]
    lab.put(topology(), flavor(topologyName="dc"), *nodes, cluster_queue("q", 8, preemption=LOWER), local_queue("q"))
    for at, (name, cost) in enumerate(costs.items()):
        notes = {RESTART_COST: cost, "tessera.dev/checkpoint-grace": "1s"}
        lab.put(workload(name, "q", 2, created_s=at, annotations=notes))
        rest(lab)
    return lab


@pytest.mark.parametrize(
    ("costs", "gone"),
    [
        (COSTS, {"w0", "w1"}),
        ({**COSTS, "w3": "3m"}, {"w2", "w3"}),
    ],
)
def test_the_rack_is_freed_whose_work_loses_least_and_not_the_cheapest_node_of_each(
    costs: dict[str, str], gone: set[str]
) -> None:
    lab = racks(VictimOrder.LEAST_LOST, costs)
    gang = asks_within(RACK, "gang", 2, 2, 50)
    lab.put(msgspec.structs.replace(gang, spec=msgspec.structs.replace(gang.spec, priority=9)))
    rest(lab)
    assert set(evicted(lab)) == gone
    assert "gang" in lab.running()
