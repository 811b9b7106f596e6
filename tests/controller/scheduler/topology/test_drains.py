"""Nodes whose drain is announced: who may still start there."""

import math
import random
from typing import Any

import pytest
from msgspec.structs import replace

from controller.objects.core import Node
from controller.objects.meta import Condition
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.model.config import BackfillPolicy, EngineConfig, Extensions
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.toldtimes import rfc3339_s, written_moment
from controller.scheduler.queues.found import last_found
from controller.scheduler.topology.nodes import drain_at_s
from inventory.api.names import DRAIN_AT, RUNTIME
from tests.controller.scheduler.consolidation.test_packing import topology
from tests.support.engine.topologylab import GPU, node
from tests.support.engine.world import NOW_S, World, cluster_queue, flavor, local_queue, workload
from tests.support.seeds import histories

HOUR_S = 3600.0


def drained(path: str, gpus: int, at_s: float | None, *, planned: bool = False) -> Node:
    made = node(path, gpus)
    if planned:
        conditions = (*made.status.conditions, Condition(type="MaintenancePlanned", status="True"))
        made = replace(made, status=replace(made.status, conditions=conditions))
    if at_s is None:
        return made
    return replace(made, metadata=replace(made.metadata, annotations={DRAIN_AT: written_moment(at_s)}))


def world(*nodes: Node, backfill: BackfillPolicy = BackfillPolicy.NONE, leaving: bool = True, **queue: Any) -> World:
    lab = World(EngineConfig(extensions=Extensions(leaving_nodes=leaving, backfill=backfill)))
    lab.put(topology(), flavor(topologyName="dc"), *nodes, cluster_queue("q", 100, **queue), local_queue("q"))
    return lab


def runs(name: str, hours: float | None, gpus: int = 1, **other: Any) -> Any:
    told = {} if hours is None else {RUNTIME: f"{int(hours * HOUR_S)}s"}
    return workload(name, "q", gpus, annotations=told, **other)


def why(lab: World, name: str) -> str:
    pending = lab.engine.state.queues.get(WorkloadKey(f"ns/{name}"))
    assert pending is not None
    record = last_found(lab.engine.stories, pending)
    assert record is not None
    return sentence(record)


def test_what_would_still_run_does_not_start_there_and_what_ends_before_does() -> None:
    lab = world(drained("b/r/n", 8, NOW_S + HOUR_S))
    lab.put(runs("long", 2), runs("just", 1), runs("short", 0.5), runs("unknown", None))
    lab.settle()
    assert lab.running() == {"just", "short", "unknown"}
    assert "1 of 1 node is closed to these pods: 1 drained at 2025-01-01 01:00 UTC, before they end" in why(lab, "long")


def test_time_that_passes_closes_the_node_to_more_and_to_all_once_the_drain_begins() -> None:
    lab = world(drained("b/r/n", 8, NOW_S + HOUR_S))
    lab.now_s += 0.75 * HOUR_S
    lab.put(runs("half", 0.5), runs("unknown", None))
    lab.settle()
    assert lab.running() == {"unknown"}
    lab.now_s += 0.25 * HOUR_S
    lab.put(runs("moment", 0.01), runs("later", None))
    lab.settle()
    assert lab.running() == {"unknown"}, "what runs there is left to those who drain"
    assert "1 drained since 2025-01-01 01:00 UTC" in why(lab, "later")
    lab.put(drained("b/r/n", 8, None))
    lab.settle()
    assert lab.running() == {"half", "unknown", "moment", "later"}, "the drain was called off"


@pytest.mark.parametrize("backfill", list(BackfillPolicy))
def test_shorter_jobs_are_backfilled_before_a_drain(backfill: BackfillPolicy) -> None:
    first, second = drained("b/r/n", 4, NOW_S + HOUR_S), drained("b/r/m", 2, None)
    lab = world(first, second, backfill=backfill)
    lab.put(runs("runs", 4, 2))
    lab.settle()
    lab.put(runs("head", 3, 2, created_s=1))
    lab.settle()
    lab.put(runs("long", 2, 2, created_s=2), runs("short", 0.5, 2, created_s=3))
    lab.settle()
    assert lab.running() == {"runs", "short"}


def test_a_maintenance_with_a_time_begins_then_and_one_without_is_now() -> None:
    lab = world(drained("b/r/now", 8, None, planned=True), drained("b/r/then", 1, NOW_S + HOUR_S, planned=True))
    lab.put(runs("short", 0.5), runs("other", 0.5))
    lab.settle()
    assert len(lab.running()) == 1


def test_a_time_that_cannot_be_read_is_none_and_kueues_policy_reads_none() -> None:
    for text in ("soon", "2026-01-05 18:00", "", "2026-13-05T18:00:00Z", "1h", "x" * 5000):
        made = node("b/r/n", 8)
        wrong = replace(made, metadata=replace(made.metadata, annotations={DRAIN_AT: text}))
        assert drain_at_s(wrong) == math.inf
    lab = world(drained("b/r/n", 8, NOW_S + HOUR_S), leaving=False)
    lab.put(runs("long", 2))
    lab.settle()
    assert lab.running() == {"long"}


@histories(30)
def test_nobody_starts_where_he_would_overrun_and_everybody_else_as_without_drains(seed: int) -> None:
    """Against the definition: what runs on a node ends before its drain; what waits fits on no node that is open."""
    chance = random.Random(seed)
    drains = {f"n{at}": chance.choice((None, 0.5, 1.0, 2.0)) for at in range(4)}
    nodes = [drained(f"b/r/{name}", 2, None if at is None else NOW_S + at * HOUR_S) for name, at in drains.items()]
    lab = world(*nodes, backfill=chance.choice(list(BackfillPolicy)), queueingStrategy="BestEffortFIFO")
    hours: dict[str, float | None] = {}
    for at in range(10):
        lab.now_s = NOW_S + at * 300
        name = f"w{at}"
        hours[name] = chance.choice((None, 0.25, 0.75, 1.5, 3.0))
        lab.put(runs(name, hours[name], chance.randint(1, 2)))
        lab.settle()
        lab.engine.validate()
    ends = {name: math.inf if at is None else NOW_S + at * HOUR_S for name, at in drains.items()}
    free = dict.fromkeys(drains, 2)
    for key, holder in lab.engine.state.cluster.holders.items():
        (host,) = {domain.values[-1] for each in holder.info.pod_sets for domain in each.topology.domains}  # type: ignore[union-attr]
        told = hours[key.removeprefix("ns/")]
        assert told is None or holder.reserved_at_s + told * HOUR_S <= ends[host]
        free[host] -= sum(each.requests[GPU] for each in holder.info.pod_sets)
    for pending in lab.engine.state.queues:
        told = hours[pending.key.removeprefix("ns/")]
        gpus = pending.info.pod_sets[0].requests[GPU]
        lasts_s = 0.0 if told is None else told * HOUR_S
        open_ = [host for host, end_s in ends.items() if end_s > lab.now_s and lab.now_s + lasts_s <= end_s]
        assert all(free[host] < gpus for host in open_)


def test_moments_are_written_as_they_are_read() -> None:
    assert rfc3339_s(written_moment(NOW_S)) == NOW_S
