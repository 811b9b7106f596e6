"""Transitions of workloads, as counts."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controller.cluster.metrics.instruments import Instruments
from controller.cluster.metrics.observing import Counting
from controller.objects.meta import Condition
from controller.objects.workload import Workload
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.model.config import Consolidation, EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from tests.controller.cluster.metrics.test_workloadkinds import of_kind
from tests.support.controller.told import value
from tests.support.engine.foreignqueues import asks, kai_queue, node, rest
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload


def with_condition(given: Workload, type_: str, reason: str, *, status: str = "True", after_s: float = 0.0) -> Workload:
    at = datetime.fromtimestamp(NOW_S + after_s, UTC)
    one = Condition(type=type_, status=status, reason=reason, last_transition_time=at)
    kept = tuple(old for old in given.status.conditions if old.type != type_)
    return msgspec.structs.replace(given, status=msgspec.structs.replace(given.status, conditions=(*kept, one)))


@pytest.fixture
def running() -> Workload:
    world = World()
    world.put(flavor(), cluster_queue("cq"), local_queue("lq", "cq"), workload("w", "lq"))
    world.cycle()
    return next(iter(world.workloads.values()))


def counted(*changes: tuple[Workload, Workload], **settings: Any) -> Instruments:
    instruments = Instruments()
    counting = Counting(instruments, **{"local_queues": True, **settings})
    for before, after in changes:
        counting.changed(before, after)
    return instruments


def test_a_local_queue_has_the_waits_that_its_cluster_queue_has(running: Workload) -> None:
    ready = with_condition(running, "PodsReady", "Started", after_s=3)
    over = with_condition(ready, "Finished", "Succeeded", after_s=9)
    instruments = counted((running, ready), (ready, over))
    for name in ("ready_wait_time", "admitted_until_ready_wait_time", "execution_time"):
        assert value(instruments, f"kueue_{name}_seconds", "cq", "") == 1
        assert value(instruments, f"kueue_local_queue_{name}_seconds", "lq", "ns", "") == 1
    without = counted((running, ready), local_queues=False)
    assert value(without, "kueue_local_queue_ready_wait_time_seconds", "lq", "ns", "") == 0


def test_transitions_are_counted_by_the_kind_of_the_job(running: Workload) -> None:
    before = with_condition(of_kind(running, "Sweep"), "Admitted", "Admitted", status="False")
    admitted = with_condition(before, "Admitted", "Admitted")
    gone = evicted(admitted, "Preempted", "why", now_s=NOW_S + 5)
    over = with_condition(admitted, "Finished", "FailedToStart", after_s=9)
    changes = ((before, admitted), (admitted, gone), (admitted, over))
    instruments = counted(*changes, declared=lambda: ("Sweep",))
    assert value(instruments, "tessera_admitted_workloads_total", "Sweep") == 1
    assert value(instruments, "tessera_evicted_workloads_total", "Sweep", "Preempted") == 1
    assert value(instruments, "tessera_finished_workloads_total", "Sweep", "FailedToStart") == 1


@pytest.mark.parametrize(
    ("ready", "reason", "cause"),
    [
        (None, "PodsReadyTimeout", "WaitForStart"),
        ("WaitForStart", "PodsReadyTimeout", "WaitForStart"),
        ("WaitForRecovery", "PodsReadyTimeout", "WaitForRecovery"),
        (None, "DeactivatedDueToRequeuingLimitExceeded", "RequeuingLimitExceeded"),
        (None, "Preempted", ""),
    ],
)
def test_an_eviction_names_what_is_behind_it(running: Workload, ready: str | None, reason: str, cause: str) -> None:
    before = running if ready is None else with_condition(running, "PodsReady", ready, status="False")
    after = evicted(before, reason, "why", now_s=NOW_S + 5)
    shown = "Deactivated" if reason.startswith("Deactivated") else reason
    instruments = counted((before, after))
    assert value(instruments, "kueue_evicted_workloads_total", "cq", shown, cause, "") == 1
    assert value(instruments, "kueue_local_queue_evicted_workloads_total", "lq", "ns", shown, cause, "") == 1
    assert value(instruments, "kueue_pods_ready_to_evicted_time_seconds", "cq", shown, cause) == 0
    stats = after.status.scheduling_stats
    assert stats is not None
    assert [(one.reason, one.underlying_cause, one.count) for one in stats.evictions] == [(shown, cause, 1)]


def test_how_long_pods_were_ready_before_an_eviction_is_counted(running: Workload) -> None:
    before = with_condition(running, "PodsReady", "Started", after_s=1)
    instruments = counted((before, evicted(before, "Preempted", "why", now_s=NOW_S + 5)))
    assert value(instruments, "kueue_pods_ready_to_evicted_time_seconds", "cq", "Preempted", "") == 1
    labels = {"cluster_queue": "cq", "reason": "Preempted", "underlying_cause": ""}
    assert instruments.registry.get_sample_value("kueue_pods_ready_to_evicted_time_seconds_sum", labels) == 4


def test_how_long_a_job_waited_for_its_workload_is_counted_behind_its_gate() -> None:
    instruments = Instruments()
    Counting(instruments, local_queues=True).created("Job", 0.5)
    Counting(instruments, local_queues=True, creations=False).created("Job", 0.5)
    assert value(instruments, "kueue_workload_creation_latency_seconds", "Job") == 1


def test_moves_are_counted_with_the_work_that_they_lose() -> None:
    world = World(EngineConfig(extensions=Extensions(consolidation=Consolidation(minimum_runtime_s=60.0))))
    world.put(node("n1", 2), node("n2", 2), kai_queue("q", quota=4))
    for at, (name, gpus) in enumerate((("a", 1), ("b", 1), ("c", 1))):
        world.put(asks(name, "q", gpus, created_s=at))
        rest(world)
    world.finish("a")
    world.now_s += 60.0
    world.put(asks("wide", "q", 2, created_s=50))
    instruments = Instruments()
    counting = Counting(instruments, local_queues=False)
    for decision in world.cycle().made:
        counting.carried_out(decision, world.workloads[WorkloadKey(decision.key)])
    assert value(instruments, "tessera_consolidation_moves_total", "q") == 1.0
    assert value(instruments, "tessera_consolidation_lost_gpu_seconds_total", "q") == 60.0
