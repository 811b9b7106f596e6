"""Moves that are advised for an engine in which no cycle has run, as ``tessera advise --pack`` loads it."""

import pytest
from msgspec.structs import replace

from controller.insight.moveadvice import frees, plans, unlimited
from controller.objects.core import Node
from controller.scheduler.cluster.keptpods import KEPT_IN_PLACE
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.toldtimes import written_moment
from inventory.api.names import DRAIN_AT, RUNTIME
from tests.controller.scheduler.consolidation.test_freeing import saying
from tests.controller.scheduler.consolidation.test_packing import RESTED_S, rest, world
from tests.support.engine.topologylab import node
from tests.support.engine.world import World, workload

CONFIG = EngineConfig(extensions=Extensions(leaving_nodes=True))


def halves(drained_after_s: float) -> World:
    """Two nodes of four GPUs: c has two of the first for three hours, d one of the second for one. Nothing waits."""
    lab = world([node("b/r/n1", 4), node("b/r/n2", 4)], CONFIG)
    for at, (name, gpus, hours) in enumerate((("a", 2, "1h"), ("b", 3, "1h"), ("c", 2, "3h"), ("d", 1, "1h"))):
        lab.put(workload(name, "q", gpus, created_s=at, annotations={RUNTIME: hours}))
        rest(lab)
    lab.finish("a")
    lab.finish("b")
    lab.now_s += RESTED_S
    drained: Node = node("b/r/n1", 4)
    noted = replace(drained.metadata, annotations={DRAIN_AT: written_moment(lab.now_s + drained_after_s)})
    lab.put(replace(drained, metadata=noted))
    return lab


def loaded(lab: World) -> Engine:
    engine = Engine(unlimited(CONFIG))
    for given in (*lab.others.values(), *lab.workloads.values()):
        engine.put(given, lab.now_s)
    return engine


@pytest.mark.parametrize(("after_s", "freed"), [(1200.0, ["n1"]), (0.0, []), (7200.0, ["n2"])])
def test_nothing_moves_onto_a_node_that_is_drained_before_it_ends(after_s: float, freed: list[str]) -> None:
    lab = halves(after_s)
    engine = loaded(lab)
    assert plans(engine, lab.now_s) == []
    assert [one["node"] for one in frees(engine, lab.now_s)] == freed


def test_what_a_running_pod_says_of_moves_is_heard_too() -> None:
    lab = halves(7200.0)
    engine = loaded(lab)
    engine.put(saying("d", "n2", dict(KEPT_IN_PLACE)), lab.now_s)
    assert [one["node"] for one in frees(engine, lab.now_s)] == ["n1"]
    lab.put(workload("wide", "q", 4, created_s=50))
    assert [move["workload"] for plan in plans(loaded(lab), lab.now_s) for move in plan["moves"]] == ["ns/d"]
    engine = loaded(lab)
    engine.put(saying("c", "n1", dict(KEPT_IN_PLACE)), lab.now_s)
    engine.put(saying("d", "n2", dict(KEPT_IN_PLACE)), lab.now_s)
    assert plans(engine, lab.now_s) == []
