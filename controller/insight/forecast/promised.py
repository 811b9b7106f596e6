"""When a workload that is not in the engine would start if every other ran as long as it says: one run of the model.

A forecast is a range over what run times are likely to be. An offer is an answer in one number, with the arithmetic
that leads to it: so run times count as they were told, and as the queue's experience has them where none was.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from controller.insight.forecast.changes.changes import EndsAt
from controller.insight.forecast.decided import Asked, decided_parts, with_coming
from controller.insight.forecast.forward import STOPPING_S, Forward
from controller.insight.forecast.gates import gate_parts
from controller.insight.forecast.model import MOST, Held, Tree, Waiting, model_parts
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.repairtimes import NO_COMEBACKS, Comebacks
from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.queues.pending import PendingWorkload

_OVERTIME: Final = 0.1
_SHORTEST_S: Final = 1.0


class Ended(NamedTuple):
    """A workload that has given its quota back by the start. ``at_s``: when, in seconds since 1970."""

    held: Held
    at_s: float


class Promised(NamedTuple):
    """``start_s``: seconds since 1970; None if nothing is known that would let the workload in. ``ended``: holders in
    its tree that end until then, the last first. ``never``: a clause on what would have to change, if the workload
    never starts as things are.
    """

    start_s: float | None = None
    ended: tuple[Ended, ...] = ()
    never: str | None = None


def promised_parts(
    engine: Engine,
    asked: PendingWorkload,
    record: DecisionRecord | None,
    now_s: float,
    ends_at: EndsAt,
    lasts_s: Callable[[WorkloadKey], float | None],
    comebacks: Comebacks = NO_COMEBACKS,
) -> Parts[Promised]:
    """The start of a workload that came now. ``record``: what the engine would decide on it. ``ends_at``: when a holder
    ends that says nothing of its run time. ``lasts_s``: how long a workload runs that waits and says nothing; None for
    ever. The engine may change in the pauses.
    """
    model = yield from model_parts(engine, now_s, MOST, asked, comebacks)
    tree = next((tree for tree in model.trees if _has(tree, asked.key)), None)
    if tree is None:
        return Promised()
    model = model._replace(trees=(tree,))
    decided = yield from decided_parts(engine, model, Asked(asked, record))
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
    forward = Forward(tree, now_s, totals, backfill=model.backfill, fair=model.fair, grain=0.0, gates=gates)
    yield from forward.run()
    after_s = forward.starts.get(asked.key)
    if after_s is None:
        return Promised(never=never)
    start_s = max(now_s + after_s, decided.fits_s.get(asked.key, 0.0), decided.back_s.get(shape, 0.0))
    ended = [Ended(held, ends[held.key]) for held in tree.charged if ends[held.key] <= start_s]
    return Promised(start_s, tuple(sorted(ended, key=lambda each: (-each.at_s, each.held.key))))


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
