"""Elastic gangs: pods above the minimum come and go one by one, and the minimum leaves only with all of them."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from controller.objects.workload import ReclaimablePod, Workload
from controller.scheduler import outcomes
from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.decisions import Admitted, Evicted
from controller.scheduler.decisions.evictionstatus import evicted as evicted_status
from controller.scheduler.model.config import EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.state import minimums
from controller.scheduler.state.enginestate import EngineState
from inventory.api.names import ABOVE_MINIMUM_OF
from tests.support.engine.foreignqueues import asks, evicted, kai_queue, node, rest, volcano_queue
from tests.support.engine.world import World, cluster_queue, flavor, local_queue, workload
from tests.support.seeds import histories


def above(name: str, gang: str, queue: str = "q", gpus: int = 1, **more: Any) -> Workload:
    return workload(name, queue, gpus, annotations={ABOVE_MINIMUM_OF: gang}, **more)


def queues(nominal: int = 4, **preemption: str) -> World:
    lab = World()
    lab.put(flavor(), cluster_queue("q", nominal, preemption=preemption or None), local_queue("q"))
    return lab


def elastic(lab: World, gang: str, minimum: int, most: int, queue: str = "q", **more: Any) -> None:
    """The gang's minimum, and ``<gang>-<pod>`` for each pod above it; created in this order."""
    lab.arrived += 1
    lab.put(workload(gang, queue, count=minimum, created_s=lab.arrived, **more))
    for pod in range(minimum, most):
        lab.arrived += 1
        lab.put(above(f"{gang}-{pod}", gang, queue, created_s=lab.arrived, **more))


def test_a_gang_begins_with_its_minimum_and_grows_pod_by_pod() -> None:
    lab = queues(4)
    elastic(lab, "gang", 2, 6)
    lab.settle()
    assert lab.running() == {"gang", "gang-2", "gang-3"}


def test_nothing_above_the_minimum_runs_without_it() -> None:
    lab = queues(4)
    elastic(lab, "gang", 5, 7)
    lab.settle()
    assert lab.running() == set()
    told = lab.engine.explain(WorkloadKey("ns/gang-5"), lab.now_s)
    assert told is not None
    assert told.record.reason is reasons.PendingReason.WAITING_FOR_QUOTA
    (said,) = [each.message for each in told.status().status.conditions if each.type == "QuotaReserved"]
    assert said == "Waits for ns/gang, the minimum of its gang, to hold quota"


def test_pods_that_came_before_their_minimum_follow_it() -> None:
    lab = queues(4)
    lab.put(above("gang-2", "gang"), workload("gang", "q", count=9))
    lab.settle()
    lab.put(workload("gang", "q", count=2))
    lab.settle()
    assert lab.running() == {"gang", "gang-2"}


def test_what_is_above_a_minimum_is_the_first_victim_and_never_preempts() -> None:
    lab = queues(4, withinClusterQueue="LowerPriority")
    elastic(lab, "low", 2, 4)
    lab.settle()
    elastic(lab, "high", 1, 4, priority=5)
    rest(lab)
    assert len(lab.running() & {"low-2", "low-3"}) == 1
    assert lab.running() > {"low", "high"}
    assert "low" not in evicted(lab)
    assert len(evicted(lab)) == 1


def test_a_minimum_that_is_preempted_takes_along_what_is_above_it() -> None:
    lab = queues(4, withinClusterQueue="LowerPriority")
    elastic(lab, "low", 2, 4)
    lab.settle()
    lab.put(workload("high", "q", count=3, priority=5))
    lab.settle()
    assert sorted(evicted(lab)) == ["low", "low-2", "low-3"]
    rest(lab)
    assert lab.running() == {"high"}


def test_all_that_leave_with_a_minimum_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = queues(12)
    elastic(lab, "gang", 2, 12)
    lab.settle()
    passes: list[EngineState] = []

    def counted(state: EngineState) -> Iterator[tuple[Holder, WorkloadKey]]:
        passes.append(state)
        return minimums.without_minimum(state)

    monkeypatch.setattr(outcomes, "without_minimum", counted)
    lab.put(evicted_status(lab.workloads[WorkloadKey("ns/gang")], "PodsReadyTimeout", "late", now_s=lab.now_s))
    lab.cycle()
    assert (len(evicted(lab)), len(passes)) == (10, 2), "the second finds that no more have to leave"


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_minimum_that_leaves_for_another_cause_takes_them_along(*, rebuilt: bool) -> None:
    lab = queues(4)
    elastic(lab, "gang", 2, 3)
    elastic(lab, "other", 1, 1)
    lab.settle()
    gang = lab.workloads[WorkloadKey("ns/gang")]
    lab.put(evicted_status(gang, "PodsReadyTimeout", "late", now_s=lab.now_s))
    if rebuilt:
        lab.rebuild()
    lab.settle()
    assert evicted(lab) == ["gang-2"]
    assert lab.condition("gang-2", "Evicted") == "True/BelowMinimum"
    assert lab.running() == {"gang", "gang-2", "other"}, "quota is free when pods have stopped"
    rest(lab)
    assert lab.running() == {"gang", "gang-2", "other"}


def test_an_eviction_that_is_not_written_is_decided_again() -> None:
    lab = queues(4)
    elastic(lab, "gang", 2, 3)
    lab.settle()
    lab.put(evicted_status(lab.workloads[WorkloadKey("ns/gang")], "PodsReadyTimeout", "late", now_s=lab.now_s))
    lab.cycle(refuse=(Evicted,))
    assert evicted(lab) == []
    lab.settle()
    assert evicted(lab) == ["gang-2"]


def test_an_admission_of_the_minimum_that_is_not_written_takes_them_back() -> None:
    lab = queues(4)
    elastic(lab, "gang", 2, 3)
    lab.cycle(refuse=(Admitted,))
    lab.settle()
    assert lab.running() == {"gang", "gang-2"}


def test_a_minimum_that_has_ended_leaves_the_others_to_themselves() -> None:
    lab = queues(3)
    elastic(lab, "gang", 2, 5)
    lab.settle()
    assert lab.running() == {"gang", "gang-2"}
    lab.finish("gang")
    lab.settle()
    assert lab.running() == {"gang-2", "gang-3", "gang-4"}


def test_the_floor_is_recomputed() -> None:
    lab = queues(4)
    elastic(lab, "gang", 2, 3)
    lab.settle()
    state = lab.engine.state
    state.cluster.remove_holder(WorkloadKey("ns/gang"))
    with pytest.raises(DriftError, match="ns/gang-2 holds quota, and ns/gang, the minimum of its gang, does not"):
        minimums.validate(state)


# -- mirrored trees ----------------------------------------------------------------------------------------------------


TREES: dict[str, Callable[[], list[Any]]] = {
    "kai": lambda: [kai_queue("dept", quota=8), kai_queue("q", "dept", quota=4), kai_queue("r", "dept", quota=4)],
    "volcano": lambda: [volcano_queue(name, deserved={"nvidia.com/gpu": "4"}) for name in ("q", "r")],
}


def tree(system: str) -> World:
    lab = World()
    lab.put(*(node(f"n{at}", 4) for at in range(2)), *TREES[system]())
    return lab


def growing(lab: World, gang: str, minimum: int, most: int, queue: str = "q", **more: Any) -> None:
    lab.arrived += 1
    lab.put(asks(gang, queue, count=minimum, created_s=lab.arrived, **more))
    for pod in range(minimum, most):
        lab.arrived += 1
        lab.put(asks(f"{gang}-{pod}", queue, created_s=lab.arrived, marks={ABOVE_MINIMUM_OF: gang}, **more))


@pytest.mark.parametrize("system", TREES)
def test_a_gang_of_a_tree_grows_over_its_share_and_gives_back_pod_by_pod(system: str) -> None:
    lab = tree(system)
    growing(lab, "gang", 3, 12)
    assert rest(lab)["q"] == 8
    lab.put(asks("theirs", "r", count=2, created_s=20))
    got = rest(lab)
    assert (got["q"], got["r"]) == (6, 2)
    assert "gang" not in evicted(lab)
    lab.put(asks("more", "r", count=2, created_s=21))
    got = rest(lab)
    assert (got["q"], got["r"]) == (4, 4)
    assert "gang" not in evicted(lab)
    assert len(lab.running() & {f"gang-{pod}" for pod in range(12)}) == 1


@pytest.mark.parametrize("system", TREES)
def test_below_the_minimum_the_whole_gang_goes(system: str) -> None:
    lab = tree(system)
    growing(lab, "gang", 6, 8, "r")
    assert rest(lab)["r"] == 8
    lab.put(asks("theirs", "q", count=4, created_s=20))
    got = rest(lab)
    assert (got["q"], got["r"]) == (4, 0)
    assert {"gang", "gang-6", "gang-7"} <= set(evicted(lab))


@pytest.mark.parametrize("system", TREES)
def test_pods_above_a_minimum_get_the_places_of_one_that_has_given_all_back(system: str) -> None:
    lab = tree(system)
    growing(lab, "gang", 2, 12)
    assert rest(lab)["q"] == 8
    held = lab.workloads[WorkloadKey("ns/gang")]
    for ended, expected in ((1, 7), (2, 9)):
        gone = (ReclaimablePod(name=held.spec.pod_sets[0].name, count=ended),)
        status = msgspec.structs.replace(held.status, reclaimable_pods=gone)
        lab.put(msgspec.structs.replace(held, status=status))
        rest(lab)
        assert len(lab.running()) == expected, "which of two places is free is not known before both are"


def test_a_gang_that_two_take_from_in_one_turn_leaves_once() -> None:
    lab = World()
    lab.put(node("n1", 4), kai_queue("a"), kai_queue("b", quota=1), kai_queue("c", quota=3))
    growing(lab, "gang", 3, 4, "a")
    assert rest(lab)["a"] == 4
    lab.put(asks("b1", "b", 1, created_s=10), asks("c1", "c", 3, created_s=11))
    lab.cycle()
    assert sorted(evicted(lab)) == ["gang", "gang-3"]
    assert rest(lab) == {"a": 0, "b": 1, "c": 3}
    assert sorted(evicted(lab)) == ["gang", "gang-3"]


def test_kais_gangs_grow_before_those_of_a_lower_priority_begin() -> None:
    lab = tree("kai")
    growing(lab, "high", 2, 8, priority=75)
    lab.put(asks("low", "q", priority=50, created_s=30))
    rest(lab)
    assert lab.running() == {"high", *(f"high-{pod}" for pod in range(2, 8))}


# -- histories ---------------------------------------------------------------------------------------------------------


def step(lab: World, rng: random.Random, queue: str) -> None:
    """What may happen next: a gang comes, something ends, leaves, stops, or is evicted from outside."""
    names = sorted(each.metadata.name for each in lab.workloads.values())
    running = sorted(lab.running())
    match rng.randrange(6):
        case 0 | 1:
            minimum = rng.randint(1, 3)
            growing(lab, f"g{lab.arrived}", minimum, minimum + rng.randint(0, 3), queue, priority=rng.choice((0, 50)))
        case 2 if running:
            lab.finish(rng.choice(running))
        case 3 if names:
            lab.delete(rng.choice(names))
        case 4 if running:
            found = lab.workloads[WorkloadKey(f"ns/{rng.choice(running)}")]
            lab.put(evicted_status(found, "PodsReadyTimeout", "late", now_s=lab.now_s))
        case _:
            lab.stop_evicted(rng.randint(1, 3))


@pytest.mark.parametrize("system", TREES)
@histories(1, 2, 3)
def test_no_history_ends_a_cycle_with_a_gang_below_its_minimum(seed: int, system: str) -> None:
    rng = random.Random(seed)
    lab = tree(system)
    for _ in range(25):
        step(lab, rng, rng.choice("qr"))
        lab.cycle(refuse=rng.choice(((), (), (Admitted,), (Evicted,))))
        if rng.random() < 0.1:
            lab.rebuild()
    rest(lab)
    minimums.validate(lab.engine.state)


@histories(1, 2, 3, 371465633)
def test_no_history_of_a_cluster_queue_does_either(seed: int) -> None:
    """Without eviction cycles, which Kueue has: what is reclaimed goes on to a third, and so round."""
    rng = random.Random(seed)
    lab = World(EngineConfig(extensions=Extensions(no_eviction_cycles=True)))
    both = {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"}
    lab.put(flavor(), *(cluster_queue(name, 4, cohort="c", preemption=both) for name in "qr"))
    lab.put(local_queue("q"), local_queue("r"))
    for _ in range(25):
        if rng.random() < 0.4:
            minimum = rng.randint(1, 3)
            elastic(lab, f"g{lab.arrived}", minimum, minimum + rng.randint(0, 3), rng.choice("qr"))
        else:
            names = sorted(lab.running())
            if names and rng.random() < 0.5:
                name = rng.choice(names)
                found = lab.workloads[WorkloadKey(f"ns/{name}")]
                lab.put(evicted_status(found, "PodsReadyTimeout", "late", now_s=lab.now_s))
            lab.stop_evicted(rng.randint(0, 2))
        lab.cycle(refuse=rng.choice(((), (), (Admitted,), (Evicted,))))
        state = lab.engine.state
        if state.changes == lab.engine._floors_at:
            minimums.validate(state)
    rest(lab)
    minimums.validate(lab.engine.state)
