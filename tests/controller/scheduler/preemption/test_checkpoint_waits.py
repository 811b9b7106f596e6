"""Preemptions wait for a checkpoint that is due, and not for long."""

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from controller.objects.meta import KubernetesObject
from controller.scheduler.decisions.sentences import details, sentence
from controller.scheduler.model.config import EngineConfig, Extensions, VictimOrder
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.toldtimes import written_moment
from controller.scheduler.queues.found import last_found
from inventory.api.names import CHECKPOINT_GRACE, CHECKPOINT_INTERVAL, CHECKPOINT_WAIT, LAST_CHECKPOINT
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload
from tests.support.seeds import histories

MINUTE_S = 60.0


def waiting(wait: str, order: VictimOrder = VictimOrder.LEAST_LOST, gpus: int = 8) -> World:
    lab = World(EngineConfig(extensions=Extensions(victim_order=order, reserve_for_preemptor=True)))
    queue = cluster_queue("q", gpus, preemption={"withinClusterQueue": "LowerPriority"})
    given = replace(queue, metadata=replace(queue.metadata, annotations={CHECKPOINT_WAIT: wait} if wait else {}))
    lab.put(flavor(), given, local_queue("q"))
    return lab


def saves(
    name: str, gpus: int = 8, interval: str = "10m", more: Mapping[str, str] = MappingProxyType({})
) -> KubernetesObject:
    return workload(name, "q", gpus, annotations={CHECKPOINT_INTERVAL: interval, **more})


def urgent(name: str = "urgent", gpus: int = 8, **more: Any) -> KubernetesObject:
    return workload(name, "q", gpus, priority=9, **more)


def after(lab: World, minutes: float) -> set[str]:
    """Those who are being evicted so many minutes after the start; wake-ups on the way are taken."""
    until_s = NOW_S + minutes * MINUTE_S
    while (next_s := lab.engine.next_wakeup_s()) is not None and lab.now_s < next_s <= until_s:
        lab.now_s = next_s
        lab.settle()
    lab.now_s = until_s
    lab.settle()
    lab.engine.validate()
    return {one.metadata.name for one in lab.leaving()}


def begun(lab: World, *given: KubernetesObject) -> None:
    """These start now."""
    lab.put(*given)
    lab.settle()


def told(lab: World, name: str, at_s: float) -> None:
    """The program tells a checkpoint."""
    known = lab.workloads[WorkloadKey(f"ns/{name}")]
    annotations = {**known.metadata.annotations, LAST_CHECKPOINT: written_moment(at_s)}
    lab.put(replace(known, metadata=replace(known.metadata, annotations=annotations)))


def test_a_preemption_waits_for_a_checkpoint_that_is_due_and_says_so() -> None:
    lab = waiting("5m")
    begun(lab, saves("victim"))
    assert after(lab, 7) == set()
    begun(lab, urgent())
    assert after(lab, 9) == set()
    pending = lab.engine.state.queues.get(WorkloadKey("ns/urgent"))
    assert pending is not None
    record = last_found(lab.engine.stories, pending)
    assert record is not None
    assert "until 2025-01-01 00:12 UTC it waits for checkpoints of 1 workload that it would preempt" in sentence(record)
    assert lab.engine.next_wakeup_s() == NOW_S + 10 * MINUTE_S
    assert after(lab, 10) == {"victim"}


def test_an_explanation_names_the_victims_that_are_waited_for_and_what_they_would_lose() -> None:
    lab = waiting("5m")
    begun(lab, saves("victim", 5), saves("other", 3))
    assert after(lab, 7) == set()
    begun(lab, urgent(gpus=4))
    pending = lab.engine.explain(WorkloadKey("ns/urgent"), lab.now_s)
    assert pending is not None
    lines = details(pending.record)
    assert "waits to preempt ns/victim (InClusterQueue). It loses 2100 GPU-seconds of work" in lines
    assert "spares ns/other (InClusterQueue). It loses 1260 GPU-seconds of work" in lines
    assert pending.record.targets == ()
    assert after(lab, 10) == {"victim"}
    assert lab.engine.explain(WorkloadKey("ns/other"), lab.now_s) is None


def test_a_wait_of_seconds_is_said_to_the_second() -> None:
    lab = waiting("20s")
    begun(lab, saves("victim"))
    assert after(lab, 9.75) == set()
    begun(lab, urgent())
    pending = lab.engine.state.queues.get(WorkloadKey("ns/urgent"))
    assert pending is not None
    record = last_found(lab.engine.stories, pending)
    assert record is not None
    assert "until 2025-01-01 00:10:05 UTC it waits for checkpoints" in sentence(record)


@pytest.mark.parametrize(
    ("wait", "arrives", "more"),
    [
        ("", 7, {}),
        ("0", 7, {}),
        ("nonsense", 7, {}),
        ("2m", 7, {}),  # it is due in three minutes
        ("30m", 4, {}),  # the work so far is less than the wait
        ("5m", 10, {}),  # it has just been written
        ("5m", 7, {CHECKPOINT_GRACE: "1m"}),  # it writes one before it ends
    ],
)
def test_nobody_waits_where_the_queue_does_not_say_so_or_it_is_not_worth_it(
    wait: str, arrives: int, more: dict[str, str]
) -> None:
    lab = waiting(wait)
    begun(lab, saves("victim", more=more))
    after(lab, arrives)
    begun(lab, urgent())
    assert after(lab, arrives) == {"victim"}


def test_one_that_tells_its_checkpoints_is_waited_for_until_it_tells_the_next() -> None:
    lab = waiting("5m")
    begun(lab, saves("victim"))
    after(lab, 3)
    told(lab, "victim", NOW_S + 3 * MINUTE_S)
    lab.settle()
    after(lab, 9)
    begun(lab, urgent())
    assert after(lab, 13.5) == set(), "it is due at 13, and not told yet"
    told(lab, "victim", NOW_S + 13.4 * MINUTE_S)
    assert after(lab, 13.5) == {"victim"}


def test_one_that_stops_telling_is_waited_for_no_longer_than_the_queue_says() -> None:
    lab = waiting("5m")
    begun(lab, saves("victim"))
    after(lab, 3)
    told(lab, "victim", NOW_S + 3 * MINUTE_S)
    lab.settle()
    after(lab, 9)
    begun(lab, urgent())
    assert after(lab, 13.9) == set()
    assert after(lab, 14) == {"victim"}


def test_a_preemptor_waits_once_however_many_write_checkpoints_in_turn() -> None:
    lab = waiting("4m", gpus=10)
    for at in range(10):
        begun(lab, saves(f"v{at}", 1))
        after(lab, at + 1)
    after(lab, 18)
    begun(lab, urgent(gpus=9))
    assert after(lab, 21.9) == set()
    assert len(after(lab, 22)) == 9


def test_kueues_order_waits_for_nobody() -> None:
    lab = waiting("5m", VictimOrder.NEWEST)
    begun(lab, saves("victim"))
    after(lab, 7)
    begun(lab, urgent())
    assert after(lab, 7) == {"victim"}


@histories(25)
def test_every_preemptor_has_its_victims_within_the_wait_and_the_wait_loses_nothing_more(seed: int) -> None:
    chance = random.Random(seed)
    wait = chance.choice((1, 3, 8))
    lab, plain = waiting(f"{wait}m"), waiting("")
    for at in range(8):
        interval, gap = f"{chance.choice((5, 10, 20))}m", chance.randint(0, 2)
        for each in (lab, plain):
            after(each, at * 3 + gap)
            begun(each, saves(f"v{at}", 1, interval) if at % 3 else workload(f"v{at}", "q", 1))
    begin, gpus = 26 + chance.randint(0, 10), chance.randint(1, 5)
    for each in (lab, plain):
        after(each, begin)
        begun(each, urgent(gpus=gpus))
    now, later = after(plain, begin), after(lab, begin + wait)
    assert len(now) == len(later) == gpus
