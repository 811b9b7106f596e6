"""What workloads wait for that sums do not show: places on nodes, limits and capabilities of mirrored Queues.

A workload that fits into quota and that the engine refused starts no earlier than the workloads end that are in its
way. The engine tells which those are: holders of quota are removed in the order in which they are likely to end, until
it admits the workload, and on until it has admitted as many of its shape as wait.
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Final

from controller.insight.forecast.changes.changes import EndsAt
from controller.insight.forecast.changes.never import HOPELESS, lacks_quota
from controller.insight.forecast.decided import Asked, Decided
from controller.insight.forecast.forward import STOPPING_S, Gates, first_fit
from controller.insight.forecast.model import Gate, Model, Tree, Waiting
from controller.insight.forecast.parts import Parts
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.volcano.futurecapacity import FutureCapacity

_SHAPES: Final = 64
_HOLDERS: Final = 100
"""Holders that are removed for one shape, the soonest to end."""
_TRIES: Final = 16
"""Tries of one shape: several holders are removed between two tries if there are more."""
_LET_IN: Final = 16
"""Workloads of one shape that have a gate: those behind them start when these end."""
_READ: Final = 2_000
"""Holders that are read between two pauses."""

_REFUSED: Final = frozenset({Rule.NO_FIT, Rule.NO_CANDIDATES, Rule.OVER_SHARE, Rule.BELOW_MINIMUM, Rule.SISTERS})


def gate_parts(
    engine: Engine, model: Model, ends_at: EndsAt, decided: Decided, asked: Asked | None = None
) -> Parts[Gates]:
    """The gates of all shapes that the engine refuses though they fit into quota. ``asked``: as of the model; its
    decision is not known yet.
    """
    by_shape: dict[int, tuple[Gate, ...]] = {}
    closed: list[tuple[Waiting, int]] = []
    for tree in model.trees:
        counts = _by_shape(tree)
        fitting = _fit_by_sums(tree)
        yield
        seen: set[int] = set()
        for line in tree.lines:
            for waiting in line.waiting:
                if waiting.shape in seen:
                    continue
                seen.add(waiting.shape)
                record = decided.by_shape.get(waiting.shape)
                is_asked = asked is not None and waiting.key == asked.pending.key
                hopeless = record is not None and record.reason in HOPELESS
                grows = waiting.shape in decided.growing or (
                    record is not None and lacks_quota(record) and tree.changes
                )
                if hopeless and not grows:
                    by_shape[waiting.shape] = ()
                elif waiting.shape in fitting and (is_asked or _refused(record)):
                    closed.append((waiting, counts[waiting.shape]))
    if not closed:
        return by_shape
    order = yield from _in_order(engine, ends_at, model.now_s)
    for waiting, count in closed[:_SHAPES]:
        yield
        is_asked = asked is not None and waiting.key == asked.pending.key
        pending = asked.pending if asked is not None and is_asked else engine.state.queues.get(waiting.key)
        future = engine.future_capacity(pending, model.now_s) if pending is not None else None
        if future is not None:
            gates = _gates(engine, future, order, min(count, _LET_IN))
            if gates is not None:
                by_shape[waiting.shape] = gates
    return by_shape


def _refused(record: DecisionRecord | None) -> bool:
    return record is not None and record.rule in _REFUSED


def _by_shape(tree: Tree) -> Counter[int]:
    """The number of waiting workloads of each shape."""
    return Counter(waiting.shape for line in tree.lines for waiting in line.waiting)


def _fit_by_sums(tree: Tree) -> set[int]:
    """Shapes that fit into quota beside all that holds it now."""
    charges = [charge for held in tree.charged for charge in held.charges]
    charges += [charge for charge, _ in tree.absent]
    for charge in charges:
        charge.cell.charge(charge.amount)
    fitting: set[int] = set()
    looked: set[int] = set()
    for line in tree.lines:
        for waiting in line.waiting:
            if waiting.shape not in looked:
                looked.add(waiting.shape)
                if first_fit(waiting.choices) is not None:
                    fitting.add(waiting.shape)
    for charge in charges:
        charge.cell.charge(-charge.amount)
    return fitting


def _in_order(engine: Engine, ends_at: EndsAt, now_s: float) -> Parts[list[tuple[float, WorkloadKey]]]:
    """The holders of quota that have a likely end, the soonest first."""
    ends: list[tuple[float, WorkloadKey]] = []
    for number, key in enumerate(list(engine.state.cluster.holders)):
        holder = engine.state.cluster.holders.get(key)
        end_s = now_s + STOPPING_S if holder is None or holder.evicted else max(ends_at(key), now_s + 1.0)
        if end_s < math.inf:
            ends.append((end_s, key))
        if number % _READ == 0:
            yield
    return sorted(ends)


def _gates(
    engine: Engine, future: FutureCapacity, order: list[tuple[float, WorkloadKey]], count: int
) -> tuple[Gate, ...] | None:
    """The gates of a shape; None if the engine admits it as it is. There is no pause, so nothing changes meanwhile."""
    gates: list[Gate] = []
    soonest = order[:_HOLDERS]
    with engine.state.cluster.trial():
        if future.enters():
            return None
        for after, end_s in _batches(engine, future, soonest):
            while len(gates) < count and future.enters():
                gates.append(Gate(after, end_s))
            if len(gates) >= count:
                break
    if not gates and len(order) > len(soonest):
        # Holders that were not tried end later: no gate opens before the last of these.
        end_s, after = soonest[-1]
        gates.append(Gate(after, end_s))
    return tuple(gates)


def _batches(
    engine: Engine, future: FutureCapacity, order: list[tuple[float, WorkloadKey]]
) -> Iterator[tuple[WorkloadKey, float]]:
    """Removes the holders in batches, and yields the last of each batch and its end."""
    size = max(1, -(-len(order) // _TRIES))
    holders = engine.state.cluster.holders
    for begin in range(0, len(order), size):
        batch = order[begin : begin + size]
        for _, key in batch:
            holder = holders.get(key)
            if holder is not None:
                future.ends(holder)
        end_s, key = batch[-1]
        yield key, end_s
