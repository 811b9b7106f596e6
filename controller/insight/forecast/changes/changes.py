"""The smallest changes that would admit a pending workload now, each tried with the engine: fewer pods, fewer devices,
a smaller share of a GPU, a looser topology, another flavor; and the workloads whose ends would admit it, counting those
that start first.

A try has no effect. The tries of one workload are bounded, whatever its pod sets are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from controller.insight.forecast.changes.inline import Ahead, Line, Turn, in_line
from controller.insight.forecast.changes.never import HOPELESS, on_free_quota
from controller.insight.forecast.changes.resized import devices_of, with_count, with_fewer, with_pod_set
from controller.insight.forecast.parts import Parts, finished
from controller.insight.growths import base_of
from controller.messages import forecasts as words
from controller.objects.workload import PodSet, Workload
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import FlavorResource, ResourceName, WorkloadKey
from controller.scheduler.quota.queueusage import quantity_of
from inventory.api.names import GPU_PERCENT

_TRIES: Final = 100
_SETS: Final = 4
"""Pod sets that are tried, the first of a workload."""
_HOLDERS: Final = 200
_ENDS: Final = 4
"""The most workloads that are named whose ends together would do: a user cannot wait for each of more."""
_NAMED: Final = 3
"""Workloads that start before this one and are named."""

EndsAt = Callable[[WorkloadKey], float]
"""The time at which a workload that holds quota is likely to end, in seconds since 1970; ``inf`` for never."""
_Make = Callable[[int], Workload]
_Tried = Parts[DecisionRecord | None]
_Try = Callable[[Workload], _Tried]


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One change that would admit the workload. ``kind``: fewerPods, fewerDevices, smallerShare, topology, flavor,
    ends. ``sentence`` begins with a capital.
    """

    kind: str
    sentence: str
    workloads: tuple[str, ...] = ()
    at_s: float | None = None
    """Only for kind ``ends``: the time at which the last of ``workloads`` is likely to end, in seconds since 1970."""


def admits(record: DecisionRecord | None) -> bool:
    """Whether the workload would start now, without any eviction."""
    return record is not None and record.rule is Rule.FITS


def _starts_now(record: DecisionRecord | None) -> bool:
    """Whether it would start on what is there: one that waits for nodes to come holds quota, and does not start."""
    chosen = record.assignment.pod_sets if record is not None and record.assignment is not None else ()
    return admits(record) and not any(each.coming is not None for each in chosen)


def changes(engine: Engine, workload: Workload, now_s: float, ends_at: EndsAt) -> list[Change]:
    """``change_parts``, run to its end without a pause."""
    return finished(change_parts(engine, workload, now_s, ends_at))


def change_parts(engine: Engine, workload: Workload, now_s: float, ends_at: EndsAt) -> Parts[list[Change]]:
    """The changes that would admit a workload that does not start as it is; empty if there is none. A pause precedes
    each try.
    """
    tries = _TRIES

    def tried(given: Workload) -> _Tried:
        nonlocal tries
        tries -= 1
        yield
        return engine.tried(engine.as_pending(given), now_s) if tries >= 0 else None

    record = yield from tried(workload)
    if record is None or admits(record):
        return []
    queue = engine.state.cluster.queues.get(record.cluster_queue)
    if queue is None:
        return []
    pending = engine.as_pending(workload)
    ahead = in_line(engine, pending, queue)
    yield
    record = on_free_quota(engine, pending, record)
    yield
    base = base_of(workload)
    if queue.policies.strict_fifo and ahead:
        # The workload is not tried before the head has started, whatever it asks for.
        return [*_ends(engine, record, ends_at, ahead, strict=True, base=base)]
    if base is not None:
        # The gang runs with fewer pods than its growth asks for, and a smaller or looser one would be another job.
        return [*_ends(engine, record, ends_at, ahead, strict=False, base=base)]
    changes: list[Change] = []
    for number, pod_set in enumerate(workload.spec.pod_sets[:_SETS]):
        changes += yield from _fewer_pods(workload, number, pod_set, tried)
        changes += yield from _fewer_devices(workload, number, pod_set, tried)
        changes += yield from _looser(workload, number, pod_set, tried)
        changes += yield from _anywhere(workload, number, pod_set, tried)
    return [*changes, *_ends(engine, record, ends_at, ahead, strict=False)]


# -- fewer -------------------------------------------------------------------------------------------------------------


def _fewer_pods(workload: Workload, number: int, pod_set: PodSet, tried: _Try) -> Parts[list[Change]]:
    """Changes to fewer pods; of a set that starts with its minimum, to a lower minimum."""
    least = pod_set.min_count or pod_set.count
    most = yield from _most(least - 1, partial(with_count, workload, number), tried)
    if not most:
        return []
    of = f"pods of {pod_set.name}"
    said = (
        f"With {most} of the {least} {of}" if least == pod_set.count else f"With a minimum of {most}, not {least}, {of}"
    )
    return [Change(kind="fewerPods", sentence=said)]


def _fewer_devices(workload: Workload, number: int, pod_set: PodSet, tried: _Try) -> Parts[list[Change]]:
    """Changes to fewer of a device of which each pod has several, or to fewer percents of one."""
    changes: list[Change] = []
    for name, several in sorted(devices_of(pod_set).items()):
        most = yield from _most(several - 1, partial(with_fewer, workload, number, name), tried)
        if most:
            said = f"With {most} instead of {several} {name} in each pod of {pod_set.name}"
            changes.append(Change(kind="smallerShare" if name == GPU_PERCENT else "fewerDevices", sentence=said))
    return changes


def _most(high: int, make: _Make, tried: _Try) -> Parts[int]:
    """The largest number from 1 to ``high`` with which the workload would start now; 0 for none. Where a number fits,
    each smaller one does.
    """
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if _starts_now((yield from tried(make(middle)))):
            low = middle
        else:
            high = middle - 1
    return low


# -- elsewhere ---------------------------------------------------------------------------------------------------------


def _looser(workload: Workload, number: int, pod_set: PodSet, tried: _Try) -> Parts[list[Change]]:
    asked = pod_set.topology_request
    if asked is None or not asked.required:
        return []
    loose = msgspec.structs.replace(asked, required=None, preferred=asked.required)
    record = yield from tried(with_pod_set(workload, number, msgspec.structs.replace(pod_set, topology_request=loose)))
    if not _starts_now(record):
        return []
    return [Change(kind="topology", sentence=f"With {asked.required} preferred, not required, for {pod_set.name}")]


def _anywhere(workload: Workload, number: int, pod_set: PodSet, tried: _Try) -> Parts[list[Change]]:
    """The change to a flavor that the pods' node selector or affinity excludes."""
    replace, template = msgspec.structs.replace, pod_set.template
    if not template.spec.node_selector and template.spec.affinity is None:
        return []
    free = replace(template, spec=replace(template.spec, node_selector={}, affinity=None))
    record = yield from tried(with_pod_set(workload, number, replace(pod_set, template=free)))
    if record is None or not _starts_now(record) or record.assignment is None:
        return []
    chosen = next((each for each in record.assignment.pod_sets if each.name == pod_set.name), None)
    flavors = sorted({choice.flavor for choice in chosen.choices.values()}) if chosen is not None else []
    if not flavors:
        return []
    said = f"On flavor {', '.join(flavors)}, without the node selector and affinity of {pod_set.name}"
    return [Change(kind="flavor", sentence=said)]


# -- ends --------------------------------------------------------------------------------------------------------------


def _ends(
    engine: Engine,
    record: DecisionRecord,
    ends_at: EndsAt,
    ahead: Sequence[Ahead] | None,
    *,
    strict: bool,
    base: WorkloadKey | None = None,
) -> Iterator[Change]:
    """The workload, or the few, whose ends free what is lacking on the flavor that lacks least. ``base``: one whose end
    frees nothing, because this workload is its growth.
    """
    missing = record.missing()
    if missing is None or ahead is None or record.reason in HOPELESS:
        return
    for shortfall in missing.shortfalls:
        lacking = shortfall.needed - shortfall.available
        if lacking > 0 and shortfall.needed <= shortfall.potential:
            fr = FlavorResource(missing.flavor, shortfall.resource)
            holders = [each for each in engine.held_by(record.cluster_queue, fr, _HOLDERS) if each.workload != base]
            ends = {held.workload: ends_at(held.workload) for held in holders}
            in_order = sorted(holders, key=lambda held: (ends[held.workload], -held.amount, held.workload))
            line = Line(fr, shortfall.available, shortfall.needed, ahead, strict=strict)
            yield from _told(line.turn(in_order), fr.resource, ends)


def _told(turn: Turn | None, resource: ResourceName, ends: Mapping[WorkloadKey, float]) -> Iterator[Change]:
    if turn is None or len(turn.ended) > _ENDS:
        return
    amounts = ", ".join(f"{held.workload} ({quantity_of(resource, held.amount)} {resource})" for held in turn.ended)
    verb = "ends" if len(turn.ended) == 1 else "end"
    first = _named(turn.first)
    if turn.has_to_end:
        sentence = words.after(first, "it has" if len(turn.first) == 1 else "they have")
    else:
        sentence = words.ends_after(amounts, verb, first) if first else words.ends(amounts, verb)
    latest_s = max((ends[held.workload] for held in turn.ended), default=float("inf"))
    yield Change(
        kind="ends",
        sentence=sentence,
        workloads=tuple(held.workload for held in turn.ended),
        at_s=latest_s if latest_s < float("inf") and not turn.has_to_end else None,
    )


def _named(first: Sequence[WorkloadKey]) -> str:
    """A clause with the workloads that start before this one; only the first of the queue is called next."""
    if not first:
        return ""
    told = [words.next_in_line(first[0]), *first[1:_NAMED]]
    more = len(first) - len(told)
    told += [f"{more} more"] if more else []
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])}, and {told[-1]}"
