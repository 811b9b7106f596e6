"""A victim is told what it loses, and ``explain`` says so of those that a preemptor evicts."""

from datetime import UTC, datetime

import msgspec

from controller.insight.explain import explained
from controller.scheduler.cluster.incoming import PreemptionReason, Price, Target
from controller.scheduler.decisions.decisions import Evicted
from controller.scheduler.decisions.sentences import loses
from controller.scheduler.model.config import EngineConfig, Extensions, VictimOrder
from controller.scheduler.model.resources import WorkloadKey
from inventory.api.names import CHECKPOINT_GRACE, CHECKPOINT_INTERVAL, LAST_CHECKPOINT, RESTART_COST
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload

LOWER = {"withinClusterQueue": "LowerPriority"}
LOSES = ". It loses 400 GPU-seconds of work and 40 by its restart"


def preempted(order: VictimOrder, **annotations: str) -> World:
    """A workload of 4 GPUs has run for 700 seconds, and one of higher priority comes."""
    it = World(EngineConfig(extensions=Extensions(victim_order=order)))
    it.put(flavor(), cluster_queue("a", 4, preemption=LOWER), local_queue("a"))
    it.put(workload("low", "a", 4, annotations=annotations))
    it.cycle()
    it.now_s += 700.0
    it.put(workload("high", "a", 4, priority=5))
    return it


KEEPS = {CHECKPOINT_INTERVAL: "5m", RESTART_COST: "10s"}


def test_the_events_of_a_victim_and_its_condition_say_what_it_loses() -> None:
    made = preempted(VictimOrder.LEAST_LOST, **KEEPS).cycle().made
    (evicted,) = (one for one in made if isinstance(one, Evicted))
    assert evicted.message.endswith(f"of the same ClusterQueue (priority 5 over 0){LOSES}")
    assert [event.message for event in evicted.events()[:2]] == [evicted.message] * 2
    conditions = {one.type: one.message for one in evicted.status().status.conditions}
    assert conditions["Preempted"] == conditions["Evicted"] == evicted.message


def test_a_restart_that_costs_nothing_is_not_mentioned() -> None:
    made = preempted(VictimOrder.LEAST_LOST).cycle().made
    (evicted,) = (one for one in made if isinstance(one, Evicted))
    assert evicted.message.endswith(". It loses 2800 GPU-seconds of work")


def test_one_that_saved_its_work_in_time_is_told_that_it_loses_none() -> None:
    saved_now = {LAST_CHECKPOINT: datetime.fromtimestamp(NOW_S + 700.0, UTC).isoformat()}
    for told in (saved_now, {CHECKPOINT_GRACE: "1m"}):
        it = preempted(VictimOrder.LEAST_LOST, **told)
        (evicted,) = (one for one in it.cycle().made if isinstance(one, Evicted))
        assert evicted.message.endswith("of the same ClusterQueue (priority 5 over 0). It loses no work")
        found = explained(it.engine, it.workloads[WorkloadKey("ns/high")], it.now_s)
        assert found["story"][-1]["details"][-1] == "preempts ns/low (InClusterQueue). It loses no work"
    (evicted,) = (one for one in preempted(VictimOrder.NEWEST, **saved_now).cycle().made if isinstance(one, Evicted))
    assert evicted.message.endswith("(priority 5 over 0)")


def test_one_without_gpus_is_told_no_price() -> None:
    holder = preempted(VictimOrder.LEAST_LOST).engine.state.cluster.holders[WorkloadKey("ns/low")]
    without = msgspec.structs.replace(holder, usage={})
    assert loses(Target(without, PreemptionReason.IN_CLUSTER_QUEUE, price=Price(0.0, 0.0))) == ""
    assert loses(Target(holder, PreemptionReason.IN_CLUSTER_QUEUE, price=Price(0.0, 0.0))) == ". It loses no work"


def test_kueues_sentence_stays_as_it_is_under_kueues_order() -> None:
    made = preempted(VictimOrder.NEWEST, **KEEPS).cycle().made
    (evicted,) = (one for one in made if isinstance(one, Evicted))
    assert evicted.message.endswith("of the same ClusterQueue (priority 5 over 0)")


def test_explain_shows_the_price_of_each_victim() -> None:
    it = preempted(VictimOrder.LEAST_LOST, **KEEPS)
    it.cycle()
    found = explained(it.engine, it.workloads[WorkloadKey("ns/high")], it.now_s)
    decided = found["story"][-1]
    assert decided["details"][-1] == f"preempts ns/low (InClusterQueue){LOSES}"
    assert decided["preempts"] == [
        {"workload": "ns/low", "reason": "InClusterQueue", "lostGpuSeconds": 400.0, "restartGpuSeconds": 40.0}
    ]


def test_explain_has_no_price_where_none_is_asked_for() -> None:
    it = preempted(VictimOrder.NEWEST, **KEEPS)
    it.cycle()
    found = explained(it.engine, it.workloads[WorkloadKey("ns/high")], it.now_s)
    assert found["story"][-1]["preempts"] == [{"workload": "ns/low", "reason": "InClusterQueue"}]


def test_a_checkpoint_that_a_running_workload_tells_of_counts_in_the_next_decision() -> None:
    it = World(EngineConfig(extensions=Extensions(victim_order=VictimOrder.LEAST_LOST)))
    it.put(flavor(), cluster_queue("a", 8, preemption=LOWER), local_queue("a"))
    it.put(workload("old", "a", 4))
    it.cycle()
    it.now_s += 300.0
    it.put(workload("new", "a", 4))
    it.cycle()
    it.now_s += 300.0
    running = it.workloads[WorkloadKey("ns/old")]
    told = {LAST_CHECKPOINT: datetime.fromtimestamp(it.now_s - 60.0, UTC).isoformat()}
    metadata = msgspec.structs.replace(running.metadata, annotations=told)
    it.put(msgspec.structs.replace(running, metadata=metadata))
    it.put(workload("high", "a", 4, priority=5))
    (evicted,) = (one for one in it.cycle().made if isinstance(one, Evicted))
    assert evicted.key == "ns/old"
    assert evicted.message.endswith(". It loses 240 GPU-seconds of work")
    it.engine.validate()


def test_explain_shows_what_those_would_lose_who_stay() -> None:
    it = World(EngineConfig(extensions=Extensions(victim_order=VictimOrder.LEAST_LOST)))
    it.put(flavor(), cluster_queue("a", 12, preemption=LOWER), local_queue("a"))
    for name, annotations in (("saves", KEEPS), ("silent", {}), ("above", {})):
        it.put(workload(name, "a", 4, annotations=annotations, priority=7 if name == "above" else 0))
        it.cycle()
    it.now_s += 700.0
    it.put(workload("high", "a", 4, priority=5))
    for _ in range(2):
        found = explained(it.engine, it.workloads[WorkloadKey("ns/high")], it.now_s)["decision"]
        assert [one["workload"] for one in found["preempts"]] == ["ns/saves"]
        assert found["spares"] == [
            {"workload": "ns/silent", "reason": "InClusterQueue", "lostGpuSeconds": 2800.0, "restartGpuSeconds": 0.0}
        ]
        assert found["details"][-1] == "spares ns/silent (InClusterQueue). It loses 2800 GPU-seconds of work"
        it.cycle()  # the same while the eviction is under way
    it.engine.validate()


def test_a_workload_that_waits_again_is_told_for_whom_it_was_preempted_and_what_it_lost() -> None:
    it = preempted(VictimOrder.LEAST_LOST, **KEEPS)
    assert explained(it.engine, it.workloads[WorkloadKey("ns/low")], it.now_s)["preempted"] is None
    it.cycle()
    it.stop_evicted()
    it.settle()
    told = explained(it.engine, it.workloads[WorkloadKey("ns/low")], it.now_s)["preempted"]
    assert (told["at"], told["reason"]) == (it.now_s, "InClusterQueue")
    assert told["sentence"].startswith("Preempted to accommodate ")
    assert told["sentence"].endswith(LOSES)
    it.finish("high")
    it.settle()
    assert explained(it.engine, it.workloads[WorkloadKey("ns/low")], it.now_s)["preempted"] is None, "it runs again"
