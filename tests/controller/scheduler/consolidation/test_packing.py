"""Running workloads of ClusterQueues move, so that one that waits finds places."""

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from controller.objects.decode import KUEUE, decode_object
from controller.objects.meta import KubernetesObject
from controller.objects.workload import PodSetTopologyRequest, Workload
from controller.scheduler.consolidation.turn import INTERVAL_S
from controller.scheduler.decisions.decisions import Evicted, Pending
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import Consolidation, EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import ABOVE_MINIMUM_OF
from tests.support.engine.foreignqueues import evicted
from tests.support.engine.topologylab import BLOCK, HOST, RACK, node
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload
from tests.support.seeds import histories

RESTED_S = 600.0


def config(
    every_queue: bool = True, moves_per_hour: int = 30, *, frees_nodes: bool = False, **more: Any
) -> EngineConfig:
    limits = Consolidation(
        every_queue=every_queue,
        frees_nodes=frees_nodes,
        minimum_runtime_s=RESTED_S,
        moves_per_hour=moves_per_hour,
    )
    given = {"reserve_for_preemptor": True, "no_eviction_cycles": True, **more}
    return EngineConfig(extensions=Extensions(consolidation=limits, **given))


def topology() -> KubernetesObject:
    levels = [{"nodeLabel": label} for label in (BLOCK, RACK, HOST)]
    return decode_object(
        {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "dc"}, "spec": {"levels": levels}}
    )


def world(nodes: Iterable[KubernetesObject], given: EngineConfig | None = None, **quotas: int) -> World:
    lab = World(given or config())
    lab.put(topology(), flavor(topologyName="dc"), *nodes)
    for name, nominal in (quotas or {"q": 100}).items():
        lab.put(cluster_queue(name, nominal), local_queue(name))
    return lab


def rest(lab: World) -> set[str]:
    """What runs once nothing changes any more."""
    idle = 0
    for _ in range(30):
        lab.settle()
        idle = 0 if lab.stop_evicted() else idle + 1
        if idle == 2:
            return lab.running()
        lab.now_s += INTERVAL_S
    raise AssertionError(f"still changing: {lab.log[-20:]}")


def fragmented(given: EngineConfig | None = None, **more: Any) -> World:
    """Two nodes of four GPUs: c has two of the first, d one of the second, and both have run for long enough."""
    lab = world([node("b/r/n1", 4), node("b/r/n2", 4)], given, **more)
    for at, (name, gpus) in enumerate((("a", 2), ("b", 3), ("c", 2), ("d", 1))):
        lab.put(workload(name, "q", gpus, created_s=at))
        rest(lab)
    lab.finish("a")
    lab.finish("b")
    lab.now_s += RESTED_S
    return lab


def test_what_loses_least_moves_and_the_one_that_waits_runs() -> None:
    lab = fragmented()
    lab.put(workload("wide", "q", 4, created_s=50))
    assert rest(lab) == {"c", "d", "wide"}
    assert evicted(lab) == ["d"]


def test_by_default_nothing_of_a_cluster_queue_moves() -> None:
    lab = fragmented(config(every_queue=False))
    lab.put(workload("wide", "q", 4, created_s=50))
    assert rest(lab) == {"c", "d"}
    assert evicted(lab) == []


def test_the_one_that_moves_is_told_where_to_and_at_what_cost() -> None:
    lab = fragmented()
    lab.put(workload("wide", "q", 4, created_s=50))
    told: list[str] = []
    for _ in range(5):
        told += [each.message for each in lab.cycle().made if isinstance(each, Evicted)]
    (message,) = told
    assert message.startswith("Preempted to accommodate workload ns/wide")
    assert "which fits once this one has moved from n" in message
    assert lab.condition("d", "Preempted") == "True/Consolidation"


def test_workloads_of_other_queues_move_too() -> None:
    lab = fragmented(q=6, other=6)
    lab.put(workload("wide", "other", 4, created_s=50))
    assert rest(lab) == {"c", "d", "wide"}


def test_nothing_moves_for_a_workload_beyond_its_own_quota() -> None:
    lab = fragmented(q=6, other=3)
    lab.put(workload("wide", "other", 4, created_s=50))
    assert rest(lab) == {"c", "d"}


def test_nothing_moves_where_there_is_too_little_in_all() -> None:
    lab = fragmented()
    lab.put(workload("wider", "q", 4, count=2, created_s=50))
    assert rest(lab) == {"c", "d"}
    assert evicted(lab) == []


def test_a_workload_of_higher_priority_does_not_move_for_a_lower_one() -> None:
    lab = world([node("b/r/n1", 2), node("b/r/n2", 2)])
    for at in range(4):
        lab.put(workload(f"j{at}", "q", 1, created_s=at, priority=5))
        rest(lab)
    lab.finish("j0")
    lab.finish("j2")
    lab.now_s += RESTED_S
    lab.put(workload("low", "q", 2, created_s=50, priority=4))
    assert "low" not in rest(lab)
    lab.put(workload("equal", "q", 2, created_s=51, priority=5))
    assert rest(lab) == {"j1", "j3", "equal"}


def test_a_workload_that_has_just_started_moves_once_it_has_rested() -> None:
    lab = fragmented()
    lab.now_s -= 100.0
    lab.put(workload("wide", "q", 4, created_s=50))
    assert rest(lab) == {"c", "d"}
    due_s = lab.engine.next_wakeup_s()
    assert due_s is not None
    lab.now_s = due_s - 10.0
    assert rest(lab) == {"c", "d"}
    lab.now_s = due_s
    assert rest(lab) == {"c", "d", "wide"}


def test_no_more_move_than_the_hour_has_left() -> None:
    lab = fragmented(config(moves_per_hour=0))
    lab.put(workload("wide", "q", 4, created_s=50))
    assert rest(lab) == {"c", "d"}


@pytest.mark.parametrize("kept", [True, False])
def test_places_are_kept_for_the_one_that_others_move_for(kept: bool) -> None:
    lab = fragmented(config(reserve_for_preemptor=kept))
    lab.put(workload("wide", "q", 4, created_s=50))
    while not lab.leaving():
        lab.cycle()
    lab.put(workload("late", "q", 3, created_s=60, priority=9))
    assert ("wide" in rest(lab)) == kept


def asks_within(level: str, name: str, gpus: int, count: int, created_s: int) -> Workload:
    """All pods in one domain of the level."""
    made = workload(name, "q", gpus, count=count, created_s=created_s)
    (pod_set,) = made.spec.pod_sets
    placed = msgspec.structs.replace(pod_set, topology_request=PodSetTopologyRequest(required=level))
    spec = msgspec.structs.replace(made.spec, pod_sets=(placed,))
    return msgspec.structs.replace(made, spec=spec)


def test_a_gang_with_pods_above_its_minimum_stays_where_it_is() -> None:
    lab = fragmented()
    lab.put(workload("g", "q", 1, created_s=10, priority=-1))
    rest(lab)
    lab.put(workload("g-1", "q", 1, created_s=11, priority=-1, annotations={ABOVE_MINIMUM_OF: "g"}))
    rest(lab)
    lab.finish("c")
    lab.now_s += RESTED_S
    lab.put(workload("wide", "q", 4, created_s=50, priority=-1))
    assert rest(lab) == {"d", "g", "g-1"}
    lab.finish("g-1")
    assert rest(lab) == {"d", "g", "wide"}


def test_a_gang_that_must_be_in_one_rack_gets_one() -> None:
    nodes = [node(f"b/r{at // 2}/n{at}", 2) for at in range(4)]
    lab = world(nodes)
    for at in range(4):
        lab.put(workload(f"j{at}", "q", 2, created_s=at))
        rest(lab)
    lab.finish("j1")
    lab.finish("j3")
    lab.now_s += RESTED_S
    lab.put(asks_within(RACK, "gang", 2, 2, 50))
    assert rest(lab) == {"j0", "j2", "gang"}
    assert len(evicted(lab)) == 1


@histories(1, 2, 3, 4, 5, 6)
def test_whatever_packing_moves_runs_again_and_no_cause_moves_anything_twice(seed: int) -> None:
    rng = random.Random(seed)
    lab = world([node(f"b/r/n{at}", 4) for at in range(3)], config(moves_per_hour=3), q=12)
    moved_for: set[tuple[str, str]] = set()
    moves: list[float] = []
    for turn in range(8):
        for at in range(rng.randint(1, 3)):
            lab.put(workload(f"j{turn}-{at}", "q", rng.choice((1, 1, 2, 4)), created_s=turn * 3 + at))
        before = lab.running()
        for _ in range(20):
            while not lab.engine.settled(lab.now_s):
                for each in lab.cycle().made:
                    if isinstance(each, Evicted) and each.by is not None:
                        pair = (each.key, each.by.key)
                        assert pair not in moved_for, "moved twice for one cause"
                        moved_for.add(pair)
                        moves.append(lab.now_s)
            if not lab.stop_evicted():
                break
            lab.now_s += INTERVAL_S
        after = lab.running()
        assert len(after) >= len(before), "a consolidation ended with fewer running than before"
        for name in sorted(after):
            if rng.random() < 0.3:
                lab.finish(name)
        lab.now_s += rng.choice((60.0, RESTED_S, 2 * RESTED_S))
    assert all(sum(at - 3600.0 < each <= at for each in moves) <= 3 for at in moves), "the budget was exceeded"


def test_an_engine_that_moves_nothing_has_no_turn_for_it() -> None:
    assert Engine(EngineConfig()).next_wakeup_s() is None


def crowded(given: EngineConfig | None = None) -> World:
    """``fragmented``, and ten shapes of higher priority that no moves help: each needs both nodes whole."""
    lab = fragmented(given, q=1000)
    for at in range(10):
        lab.put(workload(f"whole{at}", "q", 4, count=2, created_s=20 + at, priority=at + 1))
    return lab


def test_what_no_moves_help_does_not_keep_others_from_being_tried() -> None:
    lab = crowded()
    lab.put(workload("wide", "q", 4, created_s=50))
    assert rest(lab) == {"c", "d", "wide"}


def test_nor_does_a_cluster_that_changes_before_each_turn() -> None:
    lab = crowded()
    lab.put(workload("wide", "q", 4, created_s=50))
    for at in range(4):
        lab.put(workload(f"late{at}", "q", 4, count=2, created_s=60 + at, priority=50 + at))
        lab.settle()
        lab.now_s += INTERVAL_S
    assert evicted(lab) == ["d"]


def pending_text(lab: World, name: str) -> str:
    told = lab.engine.explain(WorkloadKey(f"ns/{name}"), lab.now_s)
    assert told is not None
    return sentence(told.record)


def test_one_that_waits_for_moves_is_told_that_they_are_spent() -> None:
    lab = fragmented(config(moves_per_hour=1))
    lab.put(workload("wide", "q", 4, created_s=50))
    rest(lab)
    lab.finish("wide")
    lab.put(workload("three", "q", 3, created_s=51), workload("one", "q", 1, created_s=52))
    rest(lab)
    lab.finish("c")
    lab.finish("one")
    lab.now_s += RESTED_S
    lab.put(workload("next", "q", 4, created_s=60))
    told = [each.record for _ in range(5) for each in lab.cycle().made if isinstance(each, Pending)]
    said = "no running workload may move for it before 01:10:04Z: tessera.consolidation.movesPerHour is 1"
    assert {sentence(each).endswith(said) for each in told} == {True}
    assert pending_text(lab, "next").endswith(said)
    due_s = lab.engine.next_wakeup_s()
    assert due_s is not None
    lab.now_s = due_s
    assert "next" in rest(lab)


def test_one_that_moves_can_help_is_told_that_none_ever_may() -> None:
    lab = fragmented(config(moves_per_hour=0))
    lab.put(workload("wide", "q", 4, created_s=50))
    rest(lab)
    said = "no running workload may move for it: tessera.consolidation.movesPerHour is 0"
    assert pending_text(lab, "wide").endswith(said)
    lab.put(workload("wider", "q", 4, count=3, created_s=51))
    rest(lab)
    assert "move" not in pending_text(lab, "wider")
