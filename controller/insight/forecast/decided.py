"""What the engine's decisions tell of a start and sums do not: that others are preempted for it, or that it never
comes.

A decision stands beside the forecast wherever both are shown, so the two agree.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from controller.insight.forecast.changes.never import Never, Oversized, never_parts, on_free_quota
from controller.insight.forecast.model import Charge, Held, Model, Tree, Waiting
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.returning import comes_back, first_back_s, fits_again_s
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import FlavorName, FlavorResource, WorkloadKey
from controller.scheduler.preemption.checkpointwaits import CheckpointWait
from controller.scheduler.queues.found import last_found
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.state.podsizes import PodSizeNoFit

PREEMPTING: Final = frozenset({Rule.PREEMPTS, Rule.MIGRATES, Rule.FITS_AFTER_PREEMPTION})
"""Rules of a workload that starts once its victims have stopped."""

_TRIES: Final = 8
"""Workloads without a decision that are tried for a round of forecasts, each of another shape."""
_ASKED_OF_NODES: Final = 64
"""Shapes that are tried on the nodes for a round, of those that quota alone refuses."""
_READ: Final = 500
"""Workloads that are read between two pauses."""


class Asked(NamedTuple):
    """A workload that is not in the engine, and the engine's decision on it; None where that is not known."""

    pending: PendingWorkload
    record: DecisionRecord | None


class Decided(NamedTuple):
    """``by_shape``: the decision on the first workload of each shape. ``coming``: workloads that others are preempted
    for. ``growing``: shapes that lack quota only until GPUs are back from repair. ``back_s``: when the first GPU is
    likely back that a shape may wait for, of those that wait for devices out of service. ``fits_s``: when a node is
    likely large enough for the pods of a workload. ``saving``: preemptors that wait for checkpoints of their victims.
    """

    by_shape: Mapping[int, DecisionRecord]
    coming: Mapping[WorkloadKey, DecisionRecord]
    never: Never = Never()
    growing: Collection[int] = frozenset()
    back_s: Mapping[int, float] = {}
    fits_s: Mapping[WorkloadKey, float] = {}
    saving: Mapping[WorkloadKey, CheckpointWait] = {}


def decided_parts(engine: Engine, model: Model, asked: Asked | None = None) -> Parts[Decided]:
    """The last decisions on pending workloads, or decisions tried for the forecast where there was none. Each workload
    takes two look-ups.
    """
    by_shape: dict[int, DecisionRecord] = {}
    coming: dict[WorkloadKey, DecisionRecord] = {}
    firsts: dict[int, PendingWorkload | None] = {}
    oversized, too_large = Oversized(engine), dict[WorkloadKey, PodSizeNoFit]()
    seen: set[int] = set()
    tries, asks_of_nodes = _TRIES, _ASKED_OF_NODES
    for line in (line for tree in model.trees for line in tree.lines):
        yield
        for place, waiting in enumerate(line.waiting):
            first = waiting.shape not in seen
            seen.add(waiting.shape)
            pending = _pending(engine, waiting, asked)
            if asked is not None and waiting.key == asked.pending.key:
                record = asked.record
            else:
                record = engine.stories.last(waiting.key)
                if first and pending is not None:
                    record = last_found(engine.stories, pending)
                    if record is None and tries:
                        tries -= 1
                        yield
                        record = engine.tried(pending, model.now_s)
            if pending is not None and (missing := oversized.found(pending)) is not None:
                too_large[waiting.key] = missing
            if place % _READ == 0:
                yield
            if record is None:
                continue
            if first:
                if asks_of_nodes and record.reason is PendingReason.WAITING_FOR_QUOTA:
                    asks_of_nodes -= 1
                    yield
                    record = on_free_quota(engine, pending, record)
                by_shape[waiting.shape] = record
                firsts[waiting.shape] = pending
            # Of a strict queue the head alone is tried, whatever a dry run says of the others.
            if record.rule in PREEMPTING and record.workload == waiting.key and not (line.strict and place):
                coming[waiting.key] = record
    growing = _growing(model, by_shape)
    hopeless = {shape: record for shape, record in by_shape.items() if shape not in growing}
    never = yield from never_parts(engine, hopeless, firsts)
    back_s = {
        shape: at_s
        for shape in never.repaired
        if (pending := firsts[shape]) is not None
        and (at_s := first_back_s(engine, pending, model.comebacks)) is not None
    }
    fits_s = {key: fits_again_s(engine, missing, model.comebacks) for key, missing in too_large.items()}
    clauses = {key: missing.clause for key, missing in too_large.items() if fits_s[key] is None}
    saving = engine.state.preemption.checkpoint_waits(model.now_s)
    fitting = {key: at_s for key, at_s in fits_s.items() if at_s is not None}
    return Decided(by_shape, coming, never._replace(oversized=clauses), growing, back_s, fitting, saving)


def _growing(model: Model, by_shape: Mapping[int, DecisionRecord]) -> frozenset[int]:
    """The shapes that lack quota only until GPUs are back."""
    growing: set[int] = set()
    for tree in model.trees:
        comes: Counter[FlavorResource] = Counter()
        for charge, _ in tree.absent:
            comes[charge.fr] += charge.amount
        shapes = {waiting.shape for line in tree.lines for waiting in line.waiting} if comes else set()
        growing |= {shape for shape in shapes & by_shape.keys() if comes_back(comes, by_shape[shape])}
    return frozenset(growing)


def _pending(engine: Engine, waiting: Waiting, asked: Asked | None) -> PendingWorkload | None:
    is_asked = asked is not None and waiting.key == asked.pending.key
    return asked.pending if asked is not None and is_asked else engine.state.queues.get(waiting.key)


def with_coming(model: Model, coming: Mapping[WorkloadKey, DecisionRecord]) -> Model:
    """The model in which workloads that others are preempted for do not wait, and their victims leave."""
    return model._replace(trees=tuple(_with_coming(tree, coming, model.now_s) for tree in model.trees))


def _with_coming(tree: Tree, coming: Mapping[WorkloadKey, DecisionRecord], now_s: float) -> Tree:
    mine = [waiting for line in tree.lines for waiting in line.waiting if waiting.key in coming]
    if not mine:
        return tree
    records = [coming[waiting.key] for waiting in mine]
    # A victim that moves runs on elsewhere.
    victims = {target.holder.key for record in records for target in record.targets if target.move is None}
    return tree._replace(
        lines=tuple(
            line._replace(waiting=tuple(waiting for waiting in line.waiting if waiting.key not in coming))
            for line in tree.lines
        ),
        held=tuple(held._replace(leaving=True) if held.key in victims else held for held in tree.held),
        coming=tuple(_started(waiting, record, now_s) for waiting, record in zip(mine, records, strict=True)),
    )


def _started(waiting: Waiting, record: DecisionRecord, now_s: float) -> Held:
    chosen = record.assignment.pod_sets if record.assignment is not None else ()
    flavors = {choice.flavor for pod_set in chosen for choice in pod_set.choices.values()}
    charges = tuple(charge for options in waiting.choices if options for charge in _chosen(options, flavors))
    return Held(
        key=waiting.key, queue=waiting.queue, charges=charges, since_s=now_s, told_s=waiting.told_s, leaving=False
    )


def _chosen(options: tuple[tuple[Charge, ...], ...], flavors: set[FlavorName]) -> tuple[Charge, ...]:
    """The charges of a group of resources on the flavor of the decision."""
    return next((each for each in options if any(charge.fr.flavor in flavors for charge in each)), options[0])
