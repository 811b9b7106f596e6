"""The arithmetic of an offer: what is free now, which workloads end until then, and which start before. Pure: every
try is without effect.

The clauses add up: what is free and what ends, less what starts before and runs still, is enough. They name workloads
of the request's own namespace alone; of others they say the ClusterQueue and the amount, as the visibility API does.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

from controller.insight.bargaining.wishes import Wish
from controller.insight.forecast.changes.changes import EndsAt, admits
from controller.insight.forecast.decided import PREEMPTING
from controller.insight.forecast.model import Charge
from controller.insight.forecast.promised import Ended, Promised
from controller.insight.forecast.repairtimes import NO_COMEBACKS, Comebacks
from controller.messages import bargains as words
from controller.messages.spans import with_moments
from controller.objects.capacityrequests import MOST_UNITS
from controller.objects.workload import Workload
from controller.scheduler.decisions.records import DecisionRecord, FlavorNoFit, Rule
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import Amount, ClusterQueueName, FlavorResource, ResourceName, WorkloadKey
from controller.scheduler.model.toldtimes import runtime_s
from controller.scheduler.quota.queueusage import quantity_of

_NAMED: Final = 3
"""Workloads that are named for their ends, the last to end, and as many that start before."""

Make = Callable[[int], Workload]
"""The Workload of so many units."""


class Clock(NamedTuple):
    """``now_s``, and what is known of run times that nobody told: see ``promised_parts``. ``say``: how a moment is
    written.
    """

    now_s: float
    ends_at: EndsAt
    lasts_s: Callable[[WorkloadKey], float | None]
    say: Callable[[float], str]
    comebacks: Comebacks = NO_COMEBACKS


def tried(engine: Engine, workload: Workload, now_s: float) -> DecisionRecord | None:
    """What the engine would decide on the Workload now."""
    return engine.tried(engine.as_pending(workload), now_s)


def first_before(engine: Engine, workload: Workload) -> WorkloadKey | None:
    """The first workload of a StrictFIFO queue, if this one is not tried before that has started."""
    pending = engine.as_pending(workload)
    queue = engine.queue_of(pending.local_queue)
    if queue is None or not queue.policies.strict_fifo:
        return None
    queues = engine.state.queues
    others = (each for each in (*queues.active(queue.name), *queues.parked(queue.name)) if each.key != pending.key)
    first = queues.in_order([*others, pending])[0]
    return None if first is pending else first.key


def lacking(record: DecisionRecord | None, units: int, clock: Clock, on: Collection[FlavorResource] = ()) -> str:
    """The clause that says why so many units do not fit now: what is free of what there can be, or which waiting
    workload they would delay. It is told of the flavors ``on``, else of the one that lacks least.
    """
    if record is not None and record.rule is Rule.HELD_BACK:
        return words.would_delay(units, with_moments(record.detail, clock.say))
    missing = _missing(record, on) if record is not None and not admits(record) else None
    if record is None or missing is None:
        return words.no_more_fits()
    clauses = [
        words.free_now(
            f"{quantity_of(shortfall.resource, max(0, shortfall.available))}",
            f"{quantity_of(shortfall.resource, shortfall.potential)} {shortfall.resource} of flavor {missing.flavor}",
            record.cluster_queue,
        )
        for shortfall in missing.shortfalls
        if shortfall.needed > shortfall.available
    ]
    return ", ".join(clauses) or words.no_more_fits()


def whys(engine: Engine, wish: Wish, make: Make, units: int, start: Promised, clock: Clock) -> Iterator[str]:
    """The clauses that say why so many units do not start now."""
    record = tried(engine, make(units), clock.now_s)
    held_back = record is not None and record.rule is Rule.HELD_BACK
    if record is not None and (held_back or admits(record)):
        yield _free(engine, make, units, start, clock)
    if record is None or not admits(record):
        yield lacking(record, units, clock, start.on)
        if record is not None and record.rule in PREEMPTING:
            yield words.would_preempt(len(record.targets))
        return
    first = first_before(engine, make(units))
    if clock.now_s < wish.not_before_s:
        yield words.begins_no_earlier(clock.say(wish.not_before_s))
    elif first is not None:
        yield words.comes_first(_whose(wish, first, record.cluster_queue), record.cluster_queue)


def _free(engine: Engine, make: Make, units: int, start: Promised, clock: Clock) -> str:
    """The clause that says what is free where so many units would fit, by a larger number that does not."""
    most = units
    while most < MOST_UNITS:
        record = tried(engine, make(most * 2), clock.now_s)
        if record is None or not (admits(record) or record.rule is Rule.HELD_BACK):
            said = lacking(record, most * 2, clock, start.on)
            return said if said != words.no_more_fits() else words.would_fit(most)
        most *= 2
    return words.would_fit(most)


def _missing(record: DecisionRecord, on: Collection[FlavorResource]) -> FlavorNoFit | None:
    best, flavors = record.missing(), {fr.flavor for fr in on}
    if best is None or not flavors or best.flavor in flavors:
        return best
    for pod_set in record.assignment.pod_sets if record.assignment is not None else ():
        for attempt in pod_set.attempts:
            if attempt.flavor in flavors and attempt.shortfalls and not attempt.problem:
                return FlavorNoFit(pod_set.name, attempt.flavor, attempt.shortfalls)
    return best


def changes(engine: Engine, wish: Wish, start: Promised, clock: Clock) -> Iterator[str]:
    """What happens until the start to what the units take: holders that end, and waiting workloads that start."""
    yield from _ends(engine, wish, start, clock)
    yield from _starts(wish, start, clock)


def _ends(engine: Engine, wish: Wish, start: Promised, clock: Clock) -> Iterator[str]:
    more: list[tuple[Ended, dict[ResourceName, Amount]]] = []
    named = 0
    for ended in start.ended:
        if not (back := _of_unit(wish, start, ended.held.charges)):
            continue
        if named == _NAMED:
            more.append((ended, back))
            continue
        named += 1
        ends = words.ends_then if _says_its_runtime(engine, ended.held.key) else words.usually_ends
        yield ends(_written(back), _whose(wish, ended.held.key, ended.held.queue), clock.say(ended.at_s))
    if more:
        amount = _written(_sum(back for _, back in more))
        yield words.more_end(amount, len(more), clock.say(max(each.at_s for each, _ in more)))


def _starts(wish: Wish, start: Promised, clock: Clock) -> Iterator[str]:
    taking = [(each, took) for each in start.between if (took := _of_unit(wish, start, each.charges))]
    for other, took in taking[:_NAMED]:
        whose = _whose(wish, other.key, other.queue)
        if other.end_s is None:
            yield words.starts_before(_written(took), whose, clock.say(other.start_s))
        else:
            yield words.runs_before(_written(took), whose, clock.say(other.start_s), clock.say(other.end_s))
    more = taking[_NAMED:]
    if more:
        left = _written(_sum(took for each, took in more if each.end_s is None))
        yield words.more_start(len(more), left or "nothing")


def _of_unit(wish: Wish, start: Promised, charges: Iterable[Charge]) -> dict[ResourceName, Amount]:
    """What of the charges is on what the units take."""
    amounts: dict[ResourceName, Amount] = {}
    for charge in charges:
        resource = charge.fr.resource
        if resource in wish.unit and charge.amount and (not start.on or charge.fr in start.on):
            amounts[resource] = amounts.get(resource, 0) + charge.amount
    return amounts


def _sum(some: Iterable[dict[ResourceName, Amount]]) -> dict[ResourceName, Amount]:
    sums: dict[ResourceName, Amount] = {}
    for each in some:
        for resource, amount in each.items():
            sums[resource] = sums.get(resource, 0) + amount
    return sums


def _written(amounts: dict[ResourceName, Amount]) -> str:
    return ", ".join(f"{quantity_of(resource, amount)} {resource}" for resource, amount in amounts.items())


def _whose(wish: Wish, key: WorkloadKey, queue: ClusterQueueName) -> str:
    return key if key.partition("/")[0] == wish.namespace else words.workload_of(queue)


def _says_its_runtime(engine: Engine, key: WorkloadKey) -> bool:
    """Whether somebody told how long the workload runs; if not, its end is what its queue's history makes likely."""
    holder, pending = engine.state.cluster.holders.get(key), engine.state.queues.get(key)
    found = holder or pending
    return found is not None and runtime_s(found.info.workload) is not None
