"""When a workload that is not in the engine would start if every other ran as long as it says: one run of the model.

A forecast is a range over what run times are likely to be. An offer is an answer in one number, with the arithmetic
that leads to it: so run times count as they were told, and as the queue's experience has them where none was.
"""

import math
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from controller.insight.forecast.changes.changes import EndsAt
from controller.insight.forecast.decided import Asked, decided_parts, with_coming
from controller.insight.forecast.forward import STOPPING_S, Forward
from controller.insight.forecast.gates import gate_parts
from controller.insight.forecast.model import MOST, Charges, Held, Tree, Waiting, model_parts
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.repairtimes import NO_COMEBACKS, Comebacks
from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName, FlavorResource, WorkloadKey
from controller.scheduler.queues.pending import PendingWorkload

_OVERTIME: Final = 0.1
_SHORTEST_S: Final = 1.0


class Ended(NamedTuple):
    """A workload that has given its quota back by the start. ``at_s``: when, in seconds since 1970."""

    held: Held
    at_s: float


class Between(NamedTuple):
    """A workload that waits now and starts before. ``start_s``, ``end_s``: seconds since 1970; ``end_s`` None: it has
    not ended by the start.
    """

    key: WorkloadKey
    queue: ClusterQueueName
    charges: Charges
    start_s: float
    end_s: float | None


class Promised(NamedTuple):
    """``start_s``: seconds since 1970; None if nothing is known that would let the workload in. ``ended``: holders in
    its tree that end until then, the last first. ``between``: workloads that wait now and start before it, in that
    order. ``on``: what it is charged to. ``never``: a clause on what would have to change, if the workload never starts
    as things are.
    """

    start_s: float | None = None
    ended: tuple[Ended, ...] = ()
    between: tuple[Between, ...] = ()
    on: Collection[FlavorResource] = ()
    never: str | None = None


def promised_parts(
    engine: Engine,
    asked: PendingWorkload,
    record: DecisionRecord | None,
    now_s: float,
    ends_at: EndsAt,
    lasts_s: Callable[[WorkloadKey], float | None],
    comebacks: Comebacks = NO_COMEBACKS,
    *,
    evicts: bool = True,
) -> Parts[Promised]:
    """The start of a workload that came now. ``record``: what the engine would decide on it. ``ends_at``: when a holder
    ends that says nothing of its run time. ``lasts_s``: how long a workload runs that waits and says nothing; None for
    ever. Without ``evicts`` nothing is evicted for it. The engine may change in the pauses.
    """
    model = yield from model_parts(engine, now_s, MOST, asked, comebacks)
    tree = next((tree for tree in model.trees if _has(tree, asked.key)), None)
    if tree is None:
        return Promised()
    model = model._replace(trees=(tree,))
    decided = yield from decided_parts(engine, model, Asked(asked, record))
    if not evicts:
        decided = decided._replace(coming={key: each for key, each in decided.coming.items() if key != asked.key})
    shape = next(waiting.shape for waiting in _all_waiting(tree) if waiting.key == asked.key)
    if (never := decided.never.oversized.get(asked.key) or decided.never.clauses.get(shape)) is not None and not (
        tree.changes or shape in decided.growing
    ):
        return Promised(never=never)
    if asked.key in decided.coming:
        return Promised(now_s + STOPPING_S)
    left = with_coming(model, decided.coming)
    gates = yield from gate_parts(engine, left, ends_at, decided, Asked(asked, record))
    tree = left.trees[0]
    ends = {held.key: _end_s(held, now_s, ends_at) for held in tree.charged}
    totals: dict[WorkloadKey, float | None] = {}
    for held in tree.charged:
        totals[held.key] = None if math.isinf(ends[held.key]) else ends[held.key] - held.since_s
    for waiting in _all_waiting(tree):
        totals[waiting.key] = waiting.told_s if waiting.told_s is not None else lasts_s(waiting.key)
    charged: dict[WorkloadKey, Charges] = {}
    rules = {"backfill": model.backfill, "fair": model.fair}
    forward = Forward(tree, now_s, totals, grain=0.0, gates=gates, charged=charged, **rules)
    yield from forward.run()
    after_s = forward.starts.get(asked.key)
    if after_s is None:
        return Promised(never=never)
    start_s = max(now_s + after_s, decided.fits_s.get(asked.key, 0.0), decided.back_s.get(shape, 0.0))
    ended = [Ended(held, ends[held.key]) for held in tree.held if ends[held.key] <= start_s]
    starts = {key: now_s + each_s for key, each_s in forward.starts.items() if key != asked.key}
    queues = {waiting.key: waiting.queue for waiting in _all_waiting(tree)}
    for held in tree.coming:
        starts[held.key], queues[held.key], charged[held.key] = now_s + STOPPING_S, held.queue, held.charges
    between: list[Between] = []
    for key, at_s in starts.items():
        total_s = totals[key]
        end_s = None if total_s is None or at_s + total_s > start_s else at_s + total_s
        if at_s <= start_s:
            between.append(Between(key, queues[key], charged[key], at_s, end_s))
    return Promised(
        start_s,
        tuple(sorted(ended, key=lambda each: (-each.at_s, each.held.key))),
        tuple(sorted(between, key=lambda each: (each.start_s, each.key))),
        frozenset(charge.fr for charge in charged[asked.key]),
    )


def _all_waiting(tree: Tree) -> Iterator[Waiting]:
    return (waiting for line in tree.lines for waiting in line.waiting)


def _has(tree: Tree, key: WorkloadKey) -> bool:
    return any(waiting.key == key for waiting in _all_waiting(tree))


def _end_s(held: Held, now_s: float, ends_at: EndsAt) -> float:
    """When the holder ends, by what it says; one that has outlived that goes on for a tenth of its age."""
    if held.leaving:
        return now_s + STOPPING_S
    if held.told_s is None:
        return max(ends_at(held.key), now_s + _SHORTEST_S)
    end_s = held.since_s + held.told_s
    return end_s if end_s > now_s else now_s + max(_SHORTEST_S, _OVERTIME * (now_s - held.since_s))
