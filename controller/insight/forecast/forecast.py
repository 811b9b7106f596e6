"""When each pending workload starts, as a range: the model is run forward many times, each with other run times.

Every run draws the run times of all workloads from what is known of them, evenly over their range. The true start is as
likely before the first of 19 drawn starts as between any two of them: it lies between the second and the last but one
in 80 % of all cases, if run times are what the history says and nothing else intervenes. ``calibration`` adds what
intervenes.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from controller.insight.forecast.calibration import Calibration, Range
from controller.insight.forecast.changes.beside import Beside, beside_parts
from controller.insight.forecast.changes.changes import EndsAt
from controller.insight.forecast.changes.never import Awaited
from controller.insight.forecast.closed import opens_when
from controller.insight.forecast.decided import Asked, Decided, decided_parts, with_coming
from controller.insight.forecast.forward import STOPPING_S, Forward, Gates
from controller.insight.forecast.gates import gate_parts
from controller.insight.forecast.model import MOST, Line, Model, Tree, Waiting, model_parts
from controller.insight.forecast.parts import Parts, finished
from controller.insight.forecast.repairtimes import RepairTimes
from controller.insight.forecast.returning import SOONEST_S, assumed
from controller.insight.forecast.runtimes import Experience, RuntimeHistory
from controller.messages.forecasts import minimum_starts, waits_for_back_off, waits_for_promised, waits_for_repair
from controller.messages.spans import duration
from controller.objects.meta import epoch_s, find_condition
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.decisions.sentences import listed
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.model.toldtimes import runtime_s
from controller.scheduler.preemption.checkpointwaits import CheckpointWait
from controller.scheduler.queues.pending import PendingWorkload
from inventory.words.catalog import plural


class Effort(msgspec.Struct, frozen=True):
    """The effort of a forecast: the number of ``runs``, and ``outside``, the starts beyond the range on either side.
    ``grain``: see Forward.
    """

    runs: int
    outside: int
    grain: float


_FINE: Final = Effort(19, 1, 0.01)
_COARSE: Final = Effort(9, 0, 0.03)
"""The effort for many workloads: the true start lies between the first and the last of nine as often, and the ends of
the range are less sure."""
_MANY: Final = 250
_DRAWN: Final = 40
_TOLD: Final = 200
"""Workloads that are put into words between two pauses."""

_BEHIND: Final = "It is too far behind in its queue to be looked at"
_NEVER: Final = "What it waits for has no known end"
_OUT_OF_SERVICE: Final = "It waits for nodes that take no pods now, or for devices that are out of service"
_STOPPING: Final = "It starts once what is preempted for it has stopped: that may take as long as its pods are given"
_SAVING: Final = "It waits for a checkpoint of what is to be preempted for it, and starts once that has stopped"


class Forecast(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The start of a workload in seconds from ``at_s`` (since 1970): between ``from_s`` and ``to_s`` in about four of
    five cases.

    ``from_s`` None: nothing is known. ``to_s`` None: the workload may as well never start. ``never``: a clause on what
    would have to change, if the workload never starts as things are. ``not_before``: a clause on what its queues wait
    for, if they take nothing in. ``ahead``: workloads of its queue that are tried before it. ``assumes``: sentences,
    the most telling first.
    """

    at_s: float
    from_s: float | None = None
    likely_s: float | None = None
    to_s: float | None = None
    ahead: int = 0
    assumes: tuple[str, ...] = ()
    never: str | None = None
    not_before: str | None = None


Forecasts = dict[WorkloadKey, Forecast]


def _none_is_endless(_key: WorkloadKey) -> bool:
    return False


class Forecaster:
    """Makes forecasts. ``history`` and ``calibration`` are what it has learnt of workloads, ``repairs`` of GPUs; all
    are bounded. ``endless``: whether a workload is known never to end by itself; the run times of others say nothing of
    it.
    """

    def __init__(self, endless: Callable[[WorkloadKey], bool] = _none_is_endless) -> None:
        self._endless = endless
        self.history = RuntimeHistory()
        self.calibration = Calibration()
        self.repairs = RepairTimes()

    def observe(self, workload: Workload, *, gone: bool = False) -> None:
        """Learns from a Workload that was created or changed, or is ``gone``."""
        key, conditions = WorkloadKey(workload.key), workload.status.conditions
        self.history.observe(workload)
        reserved = find_condition(conditions, reasons.QUOTA_RESERVED)
        if reserved is not None and reserved.status == "True":
            self.calibration.started(key, epoch_s(reserved.last_transition_time))
        elif gone:
            self.calibration.gone(key)

    def all(self, engine: Engine, now_s: float, most: int = MOST) -> Forecasts:
        """The forecasts of all pending workloads, without a pause."""
        return finished(self.parts(engine, now_s, most))

    def parts(self, engine: Engine, now_s: float, most: int = MOST) -> Parts[Forecasts]:
        """The forecasts of all pending workloads. The engine may change in the pauses."""
        model = yield from model_parts(engine, now_s, most, comebacks=self.repairs.comebacks(now_s))
        forecasts: Forecasts = dict.fromkeys(model.left_out, Forecast(at_s=now_s, assumes=(_BEHIND,)))
        until = {local: opens_when(engine, local) for local in set(model.closed.values())}
        forecasts |= {key: Forecast(at_s=now_s, not_before=until[local]) for key, local in model.closed.items()}
        waiting = sum(len(line.waiting) for tree in model.trees for line in tree.lines)
        effort = _COARSE if waiting > _MANY else _FINE
        decided = yield from decided_parts(engine, model)
        left = with_coming(model, decided.coming)
        gates = yield from gate_parts(engine, left, self.ends_at(engine, now_s), decided)
        for tree in left.trees:
            forecasts |= yield from self._of_tree(left, tree, gates, effort)
        forecasts = yield from _as_decided(model, decided, forecasts)
        return _beside(forecasts, (yield from beside_parts(engine, model)))

    def of(self, engine: Engine, asked: PendingWorkload, now_s: float) -> Forecast | None:
        """``of_parts``, run to its end without a pause."""
        return finished(self.of_parts(engine, asked, now_s))

    def of_parts(
        self, engine: Engine, asked: PendingWorkload, now_s: float, record: DecisionRecord | None = None
    ) -> Parts[Forecast | None]:
        """The forecast of a workload that is not in the engine, if it came now. None if its queue does not exist or
        admits nothing.

        ``record``: what the engine would decide on it.
        """
        model = yield from model_parts(engine, now_s, MOST, asked, self.repairs.comebacks(now_s))
        tree = next((tree for tree in model.trees if any(_has(line, asked.key) for line in tree.lines)), None)
        if tree is None:
            return None
        model = model._replace(trees=(tree,))
        effort = _FINE if len(tree.held) < _MANY else _COARSE
        decided = yield from decided_parts(engine, model, Asked(asked, record))
        left = with_coming(model, decided.coming)
        gates = yield from gate_parts(engine, left, self.ends_at(engine, now_s), decided, Asked(asked, record))
        forecasts: Forecasts = {}
        if asked.key not in decided.coming:
            forecasts = yield from self._of_tree(left, left.trees[0], gates, effort, learns=False)
        forecasts = yield from _as_decided(model, decided, forecasts)
        return forecasts.get(asked.key)

    def ends_at(self, engine: Engine, now_s: float) -> EndsAt:
        """The function that tells when a workload that holds quota is likely to end, as of now."""
        known: dict[ClusterQueueName, Experience] = {}

        def ends(key: WorkloadKey) -> float:
            holder = engine.state.cluster.holders.get(key)
            if holder is None:
                return now_s
            if self._endless(key):
                return math.inf
            name = holder.cluster_queue
            if name not in known:
                known[name] = self.history.of(name)
            age_s = max(0.0, now_s - holder.reserved_at_s)
            total_s = known[name].total_s(runtime_s(holder.info.workload), age_s, 0.5)
            return math.inf if total_s is None else holder.reserved_at_s + total_s

        return ends

    def lasts(self, engine: Engine) -> Callable[[WorkloadKey], float | None]:
        """The function that tells how long a pending workload is likely to run that says nothing of it; None for
        ever.
        """

        def lasts_s(key: WorkloadKey) -> float | None:
            pending = engine.state.queues.get(key)
            queue = engine.queue_of(pending.local_queue) if pending is not None else None
            return None if queue is None else self.history.of(queue.name).total_s(None, 0.0, 0.5)

        return lasts_s

    def _of_tree(
        self, model: Model, tree: Tree, gates: Gates, effort: Effort, *, learns: bool = True
    ) -> Parts[Forecasts]:
        known = {name: self.history.of(name) for name in _names(tree)}
        yield
        runs: list[Mapping[WorkloadKey, float]] = []
        for totals in (yield from _draws(tree, known, model.now_s, effort.runs, self._endless)):
            backfill, fair = model.backfill, model.fair
            forward = Forward(tree, model.now_s, totals, backfill=backfill, fair=fair, grain=effort.grain, gates=gates)
            yield from forward.run()
            runs.append(forward.starts)
        forecasts: Forecasts = {}
        for line in tree.lines:
            repairs = (assumed(model.comebacks),) if tree.is_repaired else ()
            assumes = repairs + _assumes(tree, line, known[line.name], self.calibration.seen(line.name), gates)
            width = self.calibration.width(line.name)
            for ahead, waiting in enumerate(line.waiting):
                ordered = sorted(run.get(waiting.key, math.inf) for run in runs)
                by_runs = _cut(ordered, effort)
                if by_runs is not None and learns:
                    self.calibration.expect(waiting.key, line.name, model.now_s, by_runs)
                told = by_runs.widened(width) if by_runs is not None else None
                forecasts[waiting.key] = _told(model.now_s, told, ordered, ahead, assumes)
                if ahead % _TOLD == 0:
                    yield
        return forecasts


def _as_decided(model: Model, decided: Decided, found: Forecasts) -> Parts[Forecasts]:
    """The forecasts with the workloads' places in their queues. Where the engine's own decision says more than the
    runs, it replaces their range.
    """
    never, repaired, oversized, awaited = decided.never
    back = (waits_for_repair(), assumed(model.comebacks))
    if not (never or repaired or oversized or awaited or decided.coming or decided.fits_s or decided.saving):
        return found
    for line in (line for tree in model.trees for line in tree.lines):
        yield
        for ahead, waiting in enumerate(line.waiting):
            if waiting.key in oversized:
                found[waiting.key] = Forecast(at_s=model.now_s, ahead=ahead, never=oversized[waiting.key])
            elif waiting.key in decided.coming:
                found[waiting.key] = _soon(model.now_s, ahead)
            elif waiting.key in decided.saving:
                found[waiting.key] = _saved(decided.saving[waiting.key], model.now_s, ahead)
            elif (known := found.get(waiting.key)) is not None:
                found[waiting.key] = _as_known(known, decided, waiting, ahead, back)
            if ahead % _TOLD == 0:
                yield
    return found


def _as_known(known: Forecast, decided: Decided, waiting: Waiting, ahead: int, back: tuple[str, ...]) -> Forecast:
    """The forecast by the runs, with what the decision adds. ``back``: what is assumed of GPUs in repair."""
    replace = msgspec.structs.replace
    if waiting.key in decided.fits_s:
        return _not_before(known, decided.fits_s[waiting.key], ahead, back)
    if known.from_s is not None:
        return known if known.ahead == ahead else replace(known, ahead=ahead)
    if (told := decided.never.clauses.get(waiting.shape)) is not None:
        return replace(known, ahead=ahead, never=told, assumes=())
    if (nodes := decided.never.awaited.get(waiting.shape)) is not None:
        return _until_awaited(known, nodes, ahead)
    if waiting.shape in decided.back_s:
        return _not_before(known, decided.back_s[waiting.shape], ahead, back)
    if waiting.shape in decided.never.repaired:
        return replace(known, ahead=ahead, assumes=(_OUT_OF_SERVICE,))
    return known if known.ahead == ahead else replace(known, ahead=ahead)


def _until_awaited(known: Forecast, nodes: Awaited, ahead: int) -> Forecast:
    """The forecast of a workload that waits for nodes to come which are not counted on now."""
    if nodes.until_s is None:
        return msgspec.structs.replace(known, ahead=ahead, assumes=(waits_for_promised(),))
    left_s = max(0.0, nodes.until_s - known.at_s)
    flavors = f"flavor{'s' if len(nodes.flavors) > 1 else ''} {listed(nodes.flavors)}"
    return _not_before(known, nodes.until_s, ahead, (waits_for_back_off(flavors, duration(left_s)),))


def _not_before(known: Forecast, back_s: float, ahead: int, assumes: tuple[str, ...]) -> Forecast:
    """The forecast of a workload that waits for a repair, or a back-off, whatever else it waits for."""
    from_s = round(max(SOONEST_S, back_s - known.at_s, known.from_s or 0.0), 1)
    return msgspec.structs.replace(
        known, ahead=ahead, from_s=from_s, likely_s=None, to_s=None, never=None, assumes=assumes
    )


def _beside(found: Forecasts, beside: Beside) -> Forecasts:
    """The forecasts of which none is before that of a workload that has to hold quota beside it."""
    for keys, never in beside.sisters:
        known = [found.get(key) for key in keys]
        for key in keys:
            if (own := found.get(key)) is not None:
                found[key] = _never(own, never) if never else _last(own, known)
    for key in beside.minimums:
        if (own := found.get(key)) is not None:
            chain = _above(key, beside.minimums)
            found[key] = _last(own, [found[each] for each in chain if each in found], minimum=chain[0])
    return found


def _above(key: WorkloadKey, minimums: Mapping[WorkloadKey, WorkloadKey]) -> list[WorkloadKey]:
    """The minimum of the workload's gang, then that minimum's own, up to the first that has none."""
    chain: list[WorkloadKey] = []
    while (minimum := minimums.get(key)) is not None and minimum not in chain:
        chain.append(minimum)
        key = minimum
    return chain


def _last(own: Forecast, others: Sequence[Forecast | None], minimum: WorkloadKey | None = None) -> Forecast:
    """The forecast of a workload that starts with the last of others, or after them: unknown where that of one is."""
    replace, known = msgspec.structs.replace, [each for each in others if each is not None]
    never = next((each.never for each in (own, *known) if each.never is not None), None)
    if never is not None:
        told = minimum_starts(minimum) if minimum is not None and own.never is None else never
        return _never(own, told)
    if own.from_s is None:
        return own
    unknown = next((each for each in known if each.from_s is None), None)
    if unknown is not None or len(known) < len(others):
        assumes = unknown.assumes if unknown is not None else (_NEVER,)
        before = unknown.not_before if unknown is not None else None
        return replace(own, from_s=None, likely_s=None, to_s=None, assumes=assumes, not_before=before)
    ranges = [own, *known]
    likely = [each.likely_s for each in ranges]
    ends = [each.to_s for each in ranges]
    return replace(
        own,
        from_s=max(each.from_s or 0.0 for each in ranges),
        likely_s=None if None in likely else max(each or 0.0 for each in likely),
        to_s=None if None in ends else max(each or 0.0 for each in ends),
    )


def _never(own: Forecast, clause: str) -> Forecast:
    return msgspec.structs.replace(own, from_s=None, likely_s=None, to_s=None, never=clause, assumes=())


def _soon(now_s: float, ahead: int) -> Forecast:
    return Forecast(at_s=now_s, from_s=0.0, likely_s=STOPPING_S / 2, to_s=STOPPING_S, ahead=ahead, assumes=(_STOPPING,))


def _saved(wait: CheckpointWait, now_s: float, ahead: int) -> Forecast:
    """The forecast of a preemptor that waits for checkpoints: its victims stop after the first at the earliest, and
    once the wait is over at the latest.
    """
    from_s, likely_s = (max(0.0, at_s - now_s) for at_s in (wait.first_s, wait.last_s))
    to_s = max(likely_s, wait.until_s - now_s) + STOPPING_S
    return Forecast(
        at_s=now_s,
        from_s=round(from_s, 1),
        likely_s=round(likely_s + STOPPING_S / 2, 1),
        to_s=round(to_s, 1),
        ahead=ahead,
        assumes=(_SAVING,),
    )


def _cut(ordered: Sequence[float], effort: Effort) -> Range | None:
    """The range of the runs, without the outer starts. None if the workload does not start in most runs."""
    low_s, high_s = ordered[effort.outside], ordered[-1 - effort.outside]
    return None if math.isinf(low_s) else Range(low_s, high_s if math.isfinite(high_s) else None)


def _told(now_s: float, told: Range | None, ordered: Sequence[float], ahead: int, assumes: tuple[str, ...]) -> Forecast:
    if told is None:
        return Forecast(at_s=now_s, ahead=ahead, assumes=(_NEVER, *assumes))
    likely_s = ordered[len(ordered) // 2]
    return Forecast(
        at_s=now_s,
        from_s=round(min(told.from_s, likely_s), 1),
        likely_s=round(likely_s, 1) if math.isfinite(likely_s) else None,
        to_s=None if told.to_s is None else round(told.to_s, 1),
        ahead=ahead,
        assumes=assumes,
    )


def _has(line: Line, key: WorkloadKey) -> bool:
    return any(waiting.key == key for waiting in line.waiting)


def _names(tree: Tree) -> set[ClusterQueueName]:
    return {held.queue for held in tree.charged} | {line.name for line in tree.lines}


def _draws(
    tree: Tree,
    known: Mapping[ClusterQueueName, Experience],
    now_s: float,
    runs: int,
    endless: Callable[[WorkloadKey], bool],
) -> Parts[list[dict[WorkloadKey, float | None]]]:
    """The run times of all workloads for each run: as many even parts of a workload's range as there are runs, each
    used once.
    """
    running = sorted(tree.charged, key=lambda held: held.since_s)
    pending = [(waiting, line.name) for line in tree.lines for waiting in line.waiting]
    pending.sort(key=lambda each: each[0].queued_at_s)
    # The order is by time, not by name: under other names the same workloads have the same forecasts.
    asked = [(held.key, held.queue, held.told_s, max(0.0, now_s - held.since_s)) for held in running]
    asked += [(waiting.key, name, waiting.told_s, 0.0) for waiting, name in pending]
    totals: list[dict[WorkloadKey, float | None]] = [{} for _ in range(runs)]
    # The seed is fixed: the same state has the same forecast.
    shuffling = random.Random(len(asked))  # noqa: S311  nothing secret
    parts = [(number + 0.5) / runs for number in range(runs)]
    for number, (key, queue, told_s, age_s) in enumerate(asked):
        if number % _DRAWN == 0:
            yield
        shuffling.shuffle(parts)
        drawn = [None] * runs if endless(key) else known[queue].totals_s(told_s, age_s, parts)
        for run, total_s in zip(totals, drawn, strict=True):
            run[key] = total_s
    return totals


def _assumes(tree: Tree, line: Line, experience: Experience, seen: int, gates: Gates) -> tuple[str, ...]:
    told = sum(held.told_s is not None for held in tree.held)
    says = "says how long it runs" if told == 1 else "say how long they run"
    assumptions = [f"Of {plural(len(tree.held), 'workload that holds', 'workloads that hold')} quota {told} {says}"]
    if experience.own and experience.ratios:
        assumptions.append(_lasted(experience, line.name))
    elif experience.own:
        last = "one" if experience.own == 1 else experience.own
        assumptions.append(f"Those that do not say run as long as the last {last} of ClusterQueue {line.name}")
    elif not experience.lasted:
        assumptions.append("Nothing has finished yet: what is said is taken to be wrong by a factor of up to 5")
    checked = f", and {plural(seen, 'earlier forecast')} of the queue" if seen else ""
    assumptions.append(f"The range allows for workloads that come later as past traces had them{checked}")
    if any(waiting.shape in gates for waiting in line.waiting):
        assumptions.append("Of places and limits those of now count: one that lacks them waits until their holders end")
    return tuple(assumptions)


def _lasted(experience: Experience, queue: ClusterQueueName) -> str:
    low, high = (f"{experience.ratio(part):.1f}" for part in (0.1, 0.9))
    times = low if low == high else f"{low} to {high}"
    if experience.own == 1:
        return f"The last one of ClusterQueue {queue} that finished ran {times} times as long as it said"
    return f"The last {experience.own} of ClusterQueue {queue} that finished ran {times} times as long as they said"
