"""What the engine is asked for a CapacityRequest: how many units are free, and which offers can be made. Pure: every
try is without effect.

An offer says numbers: what is free, what ends when. It names workloads of the request's own namespace alone; of others
it says the ClusterQueue and the amount, as the visibility API does.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from controller.insight.bargaining.life import Offer
from controller.insight.bargaining.wishes import Wish
from controller.insight.forecast.changes.changes import EndsAt, admits
from controller.insight.forecast.closed import opens_when
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.promised import Promised, promised_parts
from controller.insight.forecast.repairtimes import NO_COMEBACKS, Comebacks
from controller.messages import bargains as words
from controller.objects.workload import Workload
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.model.toldtimes import runtime_s
from controller.scheduler.quota.queueusage import quantity_of

_NAMED: Final = 3
"""Workloads whose ends are named in an offer's arithmetic, the last to end."""

Make = Callable[[int], Workload]
"""The Workload of so many units."""


class Makes(NamedTuple):
    """``whole``: the Workload of units as they are asked for. ``elsewhere``: the same without what keeps its pods off
    other flavors; None if nothing does.
    """

    whole: Make
    elsewhere: Make | None = None


class Answer(NamedTuple):
    """Offers, or why there is none."""

    offers: tuple[Offer, ...] = ()
    refusal: str = ""


class Clock(NamedTuple):
    """``now_s``, and what is known of run times that nobody told: see ``promised_parts``. ``say``: how a moment is
    written.
    """

    now_s: float
    ends_at: EndsAt
    lasts_s: Callable[[WorkloadKey], float | None]
    say: Callable[[float], str]
    comebacks: Comebacks = NO_COMEBACKS


def most_free(engine: Engine, make: Make, least: int, most: int, now_s: float) -> int:
    """The largest number of units from ``least`` to ``most`` that would start now without any eviction; 0 for none.
    Where a number fits, each smaller one does. The number of tries is the logarithm of ``most``.
    """
    if not admits(_tried(engine, make(least), now_s)):
        return 0
    low, high = least, most
    while low < high:
        middle = (low + high + 1) // 2
        if admits(_tried(engine, make(middle), now_s)):
            low = middle
        else:
            high = middle - 1
    return low


def answer_parts(engine: Engine, wish: Wish, makes: Makes, clock: Clock, *, now_too: bool = True) -> Parts[Answer]:
    """The offers for a request that cannot have what it asks for now. Without ``now_too`` those that begin later."""
    local = LocalQueueKey(f"{wish.namespace}/{wish.queue}")
    now_s = clock.now_s
    if engine.queue_of(local) is None:
        return Answer(refusal=words.no_queue(wish.queue))
    if (opens := opens_when(engine, local)) is not None:
        return Answer(refusal=words.queue_takes_nothing(opens))
    yield
    record = _tried(engine, makes.whole(wish.least), now_s)
    if record is not None and record.reason is PendingReason.MISCONFIGURED:
        return Answer(refusal=sentence(record))
    yield
    start = yield from _start(engine, makes.whole(wish.least), record, clock)
    other = (yield from _elsewhere(engine, wish, makes, clock)) if now_too else None
    if start.never is not None and other is None:
        return Answer(refusal=words.more_than_there_is(wish.least, start.never))
    free = _free(record, wish.least)
    offers: list[Offer] = []
    if now_too and now_s >= wish.not_before_s and wish.least > 1 and start.never is None:
        units = most_free(engine, makes.whole, 1, wish.least - 1, now_s)
        if units:
            more = _free(_tried(engine, makes.whole(units + 1), now_s), units + 1)
            why = free if more == free else f"{free}; {more}"
            flavor = flavor_of(engine, makes.whole(units), now_s)
            offers.append(Offer(units=units, from_s=now_s, now=True, why=why, flavor=flavor))
    yield
    offers += [other] if other is not None else []
    if start.start_s is not None:
        offers += yield from _later(engine, wish, makes, clock, start, free)
    in_time = tuple(each for each in offers if wish.not_after_s is None or each.from_s <= wish.not_after_s)
    if in_time:
        return Answer(offers=in_time)
    if offers and wish.not_after_s is not None:
        return Answer(refusal=words.nothing_in_window(clock.say(wish.not_after_s)))
    return Answer(refusal=words.nothing_known(wish.least, free))


def _later(engine: Engine, wish: Wish, makes: Makes, clock: Clock, least: Promised, free: str) -> Parts[list[Offer]]:
    """Offers of the least and of the most units, each as soon as it is likely to come to its turn."""
    most = least
    if wish.most > wish.least:
        given = makes.whole(wish.most)
        most = yield from _start(engine, given, _tried(engine, given, clock.now_s), clock)
    found: list[Offer] = []
    for units, start in ((wish.least, least), (wish.most, most)):
        if start.start_s is None:
            continue
        from_s = max(start.start_s, wish.not_before_s)
        if found and found[-1].from_s >= from_s:
            found.pop()
        why = "; ".join([free, *_ends(engine, wish, start, clock)])
        if not found or found[-1].units != units:
            found.append(Offer(units=units, from_s=from_s, now=from_s <= clock.now_s, why=why))
    return found


def _elsewhere(engine: Engine, wish: Wish, makes: Makes, clock: Clock) -> Parts[Offer | None]:
    """The offer of another flavor: units that are free now without the template's node selector and affinity."""
    yield
    if makes.elsewhere is None or clock.now_s < wish.not_before_s:
        return None
    units = most_free(engine, makes.elsewhere, wish.least, wish.most, clock.now_s)
    if not units:
        return None
    flavor = flavor_of(engine, makes.elsewhere(units), clock.now_s)
    return Offer(units=units, from_s=clock.now_s, now=True, flavor=flavor, elsewhere=True, why=words.without_selector())


def _start(engine: Engine, workload: Workload, record: DecisionRecord | None, clock: Clock) -> Parts[Promised]:
    pending = engine.as_pending(workload)
    return (
        yield from promised_parts(engine, pending, record, clock.now_s, clock.ends_at, clock.lasts_s, clock.comebacks)
    )


def _tried(engine: Engine, workload: Workload, now_s: float) -> DecisionRecord | None:
    return engine.tried(engine.as_pending(workload), now_s)


def is_preempting(engine: Engine, key: WorkloadKey, now_s: float) -> bool:
    """Whether a pending workload waits for victims that still hold quota, or for checkpoints of them."""
    pending = engine.state.queues.get(key)
    queue = None if pending is None else engine.queue_of(pending.local_queue)
    if pending is None or queue is None:
        return False
    if engine.state.preemption.waits(pending.incoming(queue), now_s):
        return True
    record = engine.stories.last(key)
    if record is None or record.reason is not PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS:
        return False
    cluster, leaving = engine.state.cluster, engine.state.unwritten.evictions
    if record.targets:
        held = [cluster.holders.get(target.holder.key) for target in record.targets]
    else:
        names = queue.node.root().queue_names()
        held = [each for name in names for each in cluster.queues[ClusterQueueName(name)].holders.values()]
    return any(each is not None and (each.evicted or each.key in leaving) for each in held)


def flavor_of(engine: Engine, workload: Workload, now_s: float) -> str:
    """The flavors that the Workload would get now; empty if it gets none."""
    record = _tried(engine, workload, now_s)
    chosen = record.assignment.pod_sets if record is not None and record.assignment is not None else ()
    return ", ".join(sorted({choice.flavor for each in chosen for choice in each.choices.values()}))


def _free(record: DecisionRecord | None, units: int) -> str:
    """The clause that says why so many units do not start now: what is free of what there can be, on the flavor that
    lacks least; or which waiting workload they would delay.
    """
    if record is not None and record.rule is Rule.HELD_BACK:
        return words.would_delay(units, record.detail)
    missing = record.missing() if record is not None and record.rule is not Rule.FITS else None
    if record is None or missing is None:
        return words.no_more_fits()
    told = [
        words.free_now(
            f"{quantity_of(each.resource, max(0, each.available))}",
            f"{quantity_of(each.resource, each.potential)} {each.resource} of flavor {missing.flavor}",
            record.cluster_queue,
        )
        for each in missing.shortfalls
        if each.needed > each.available
    ]
    return ", ".join(told) or words.no_more_fits()


def _ends(engine: Engine, wish: Wish, start: Promised, clock: Clock) -> Iterator[str]:
    """The holders whose ends the start waits for, with what each gives back of the unit's resources."""
    told = 0
    for held, at_s in start.ended:
        back = [(charge.fr.resource, charge.amount) for charge in held.charges if charge.fr.resource in wish.unit]
        if not back or told == _NAMED:
            continue
        told += 1
        amount = ", ".join(f"{quantity_of(resource, amount)} {resource}" for resource, amount in back)
        mine = held.key.partition("/")[0] == wish.namespace
        whose = held.key if mine else words.workload_of(held.queue)
        ends = words.ends_then if _says_its_runtime(engine, held.key) else words.usually_ends
        yield ends(amount, whose, clock.say(at_s))


def _says_its_runtime(engine: Engine, key: WorkloadKey) -> bool:
    """Whether somebody told how long the workload runs; if not, its end is what its queue's history makes likely."""
    holder, pending = engine.state.cluster.holders.get(key), engine.state.queues.get(key)
    found = holder or pending
    return found is not None and runtime_s(found.info.workload) is not None


def elsewhere(workload: Workload) -> Workload | None:
    """The Workload without node selectors and affinity; None if it has none."""
    replace = msgspec.structs.replace
    sets = workload.spec.pod_sets
    if not any(each.template.spec.node_selector or each.template.spec.affinity is not None for each in sets):
        return None
    free = tuple(
        replace(
            each, template=replace(each.template, spec=replace(each.template.spec, node_selector={}, affinity=None))
        )
        for each in sets
    )
    return replace(workload, spec=replace(workload.spec, pod_sets=free))
