"""What the engine is asked for a CapacityRequest: how many units are free, and which offers can be made. Pure: every
try is without effect.
"""

from typing import NamedTuple

import msgspec

from controller.insight.bargaining.arithmetic import Clock, Make, changes, first_before, lacking, tried, whys
from controller.insight.bargaining.life import Offer
from controller.insight.bargaining.wishes import Wish
from controller.insight.forecast.changes.changes import admits
from controller.insight.forecast.closed import opens_when
from controller.insight.forecast.decided import PREEMPTING
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.promised import Promised, promised_parts
from controller.messages import bargains as words
from controller.objects.workload import Workload
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey


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


def most_free(engine: Engine, make: Make, least: int, most: int, now_s: float) -> int:
    """The largest number of units from ``least`` to ``most`` that would start now without any eviction; 0 for none.
    Where a number fits, each smaller one does. The number of tries is the logarithm of ``most``.
    """
    if not admits(tried(engine, make(least), now_s)):
        return 0
    low, high = least, most
    while low < high:
        middle = (low + high + 1) // 2
        if admits(tried(engine, make(middle), now_s)):
            low = middle
        else:
            high = middle - 1
    return low


class Had(NamedTuple):
    """Units that a request gets at once; 0 for none. ``preempts``: workloads that leave for it."""

    units: int = 0
    preempts: int = 0


def most_had(engine: Engine, make: Make, least: int, most: int, now_s: float) -> Had:
    """The largest number of units from ``least`` to ``most`` that is free; where not even ``least`` is, the largest for
    which nothing leaves that would not leave for ``least`` too.
    """
    if units := most_free(engine, make, least, most, now_s):
        return Had(units)
    record = tried(engine, make(least), now_s)
    if record is None or record.rule not in PREEMPTING:
        return Had()
    victims = {target.holder.key for target in record.targets}

    def is_enough(units: int) -> bool:
        more = tried(engine, make(units), now_s)
        if more is None or (more.rule not in PREEMPTING and not admits(more)):
            return False
        return {target.holder.key for target in more.targets} <= victims

    low, high = least, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_enough(middle) else (low, middle - 1)
    return Had(low, len(victims))


def answer_parts(engine: Engine, wish: Wish, makes: Makes, clock: Clock, *, now_too: bool = True) -> Parts[Answer]:
    """The offers for a request that cannot have what it asks for now. Without ``now_too`` those that begin later."""
    local = LocalQueueKey(f"{wish.namespace}/{wish.queue}")
    now_s = clock.now_s
    if engine.queue_of(local) is None:
        return Answer(refusal=words.no_queue(wish.queue))
    if (opens := opens_when(engine, local)) is not None:
        return Answer(refusal=words.queue_takes_nothing(opens))
    yield
    record = tried(engine, makes.whole(wish.least), now_s)
    if record is not None and record.reason is PendingReason.MISCONFIGURED:
        return Answer(refusal=sentence(record))
    yield
    start = yield from _start(engine, makes.whole(wish.least), record, clock)
    now_too = now_too and now_s >= wish.not_before_s and first_before(engine, makes.whole(1)) is None
    other = (yield from _elsewhere(engine, wish, makes, clock)) if now_too else None
    if start.never is not None and other is None:
        return Answer(refusal=words.more_than_there_is(wish.least, start.never))
    offers: list[Offer] = []
    if now_too and wish.least > 1 and start.never is None:
        units = most_free(engine, makes.whole, 1, wish.least - 1, now_s)
        if units:
            free = lacking(record, wish.least, clock)
            more = lacking(tried(engine, makes.whole(units + 1), now_s), units + 1, clock)
            why = free if more == free else f"{free}; {more}"
            flavor = flavor_of(engine, makes.whole(units), now_s)
            offers.append(Offer(units=units, from_s=now_s, now=True, why=why, flavor=flavor))
    yield
    offers += [other] if other is not None else []
    if start.start_s is not None:
        offers += yield from _later(engine, wish, makes, clock, start)
    in_time = tuple(each for each in offers if wish.not_after_s is None or each.from_s <= wish.not_after_s)
    if in_time:
        return Answer(offers=in_time)
    if offers and wish.not_after_s is not None:
        return Answer(refusal=words.nothing_in_window(clock.say(wish.not_after_s)))
    free = "; ".join(whys(engine, wish, makes.whole, wish.least, start, clock))
    return Answer(refusal=words.nothing_known(wish.least, free))


def _later(engine: Engine, wish: Wish, makes: Makes, clock: Clock, least: Promised) -> Parts[list[Offer]]:
    """Offers of the least and of the most units, each as soon as it is likely to come to its turn."""
    most = least
    if wish.most > wish.least:
        given = makes.whole(wish.most)
        most = yield from _start(engine, given, tried(engine, given, clock.now_s), clock)
    offers: list[Offer] = []
    for units, start in ((wish.least, least), (wish.most, most)):
        if start.start_s is None:
            continue
        from_s = max(start.start_s, wish.not_before_s)
        if offers and offers[-1].from_s >= from_s:
            offers.pop()
        yield
        free = whys(engine, wish, makes.whole, units, start, clock)
        why = "; ".join([*free, *changes(engine, wish, start, clock)])
        if not offers or offers[-1].units != units:
            offers.append(Offer(units=units, from_s=from_s, now=from_s <= clock.now_s, why=why))
    return offers


def _elsewhere(engine: Engine, wish: Wish, makes: Makes, clock: Clock) -> Parts[Offer | None]:
    """The offer of another flavor: units that are free now without the template's node selector and affinity."""
    yield
    if makes.elsewhere is None:
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
    record = tried(engine, workload, now_s)
    chosen = record.assignment.pod_sets if record is not None and record.assignment is not None else ()
    return ", ".join(sorted({choice.flavor for each in chosen for choice in each.choices.values()}))


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
