"""Advice without acting: the moves of running workloads that would let waiting ones run, or free whole nodes, and their
cost.
"""

from typing import Any, Final

import msgspec

from controller.scheduler.consolidation.emptying import Emptied, emptied
from controller.scheduler.decisions.decisions import Evicted
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import Consolidation, EngineConfig
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.quota.queuestate import Holder

Json = dict[str, Any]

_MOST_CYCLES: Final = 10_000
_NO_BUDGET: Final = 2**31
_HOUR_S: Final = 3600.0


def unlimited(config: EngineConfig) -> EngineConfig:
    """``config``, except that every queue's workloads may move, at any time and however many."""
    limits = Consolidation(every_queue=True, minimum_runtime_s=0.0, moves_per_hour=_NO_BUDGET)
    # Devices that are freed for one workload are reserved for it: the next plan must not count on them.
    extensions = msgspec.structs.replace(
        config.extensions, consolidation=limits, reserve_for_preemptor=True, no_eviction_cycles=True
    )
    return msgspec.structs.replace(config, extensions=extensions)


def plans(engine: Engine, now_s: float) -> list[Json]:
    """A plan for each workload that would run, each on top of those before it. ``engine`` has an ``unlimited``
    configuration and all objects; it cannot be used afterwards, since its decisions are not written.
    """
    moves: dict[WorkloadKey, list[Evicted]] = {}
    helped: dict[WorkloadKey, Holder] = {}
    for _ in range(_MOST_CYCLES):
        if engine.settled(now_s):
            break
        for decision in engine.cycle(now_s).made:
            if isinstance(decision, Evicted) and decision.move is not None and decision.by is not None:
                helped[decision.by.key] = decision.by
                moves.setdefault(decision.by.key, []).append(decision)
    return [_plan(helped[key], moved) for key, moved in moves.items()]


def frees(engine: Engine, now_s: float) -> list[Json]:
    """The nodes that moves would free as a whole, each beside those before it and beside all ``plans``."""
    state = engine.state
    # No cycle has run where nothing waits, and announced drains count from the time that a cycle takes in.
    state.cluster.placement.begin(now_s)
    return [_freed(one) for one in emptied(state.cluster, state.assigner, state.reservations, now_s)]


def _freed(one: Emptied) -> Json:
    moves = [
        {
            "workload": planned.holder.key,
            "clusterQueue": planned.holder.cluster_queue,
            "from": list(planned.move.leaves),
            "to": list(planned.move.goes_to),
            "lostGpuSeconds": round(planned.price.work, 3),
            "restartGpuSeconds": round(planned.price.restart, 3),
        }
        for planned in one.moves
    ]
    return {
        "node": one.node,
        "flavor": one.flavor,
        "lostGpuSeconds": round(sum(each.price.work for each in one.moves), 3),
        "restartGpuSeconds": round(sum(each.price.restart for each in one.moves), 3),
        "savesNodeHours": None if one.saves_s is None else round(one.saves_s / _HOUR_S, 4),
        "moves": moves,
    }


def _plan(waiting: Holder, moved: list[Evicted]) -> Json:
    moves = [
        {
            "workload": evicted.key,
            "clusterQueue": evicted.holder.cluster_queue,
            "from": list(evicted.move.leaves),
            "to": list(evicted.move.goes_to),
            "lostGpuSeconds": round(evicted.move.lost_gpu_s, 3),
        }
        for evicted in moved
        if evicted.move is not None
    ]
    return {
        "workload": waiting.key,
        "clusterQueue": waiting.cluster_queue,
        "priority": waiting.priority,
        "waitedSeconds": max(0, round(waiting.reserved_at_s - max(0.0, waiting.queued_at_s))),
        "lostGpuSeconds": round(sum(each.move.lost_gpu_s for each in moved if each.move is not None), 3),
        "moves": moves,
    }
