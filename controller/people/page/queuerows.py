"""Rows of queues and cohorts, of workloads that wait, and of those that hold quota. Pure.

Each row comes with what it is made from, so that it is made anew only when that changed.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, NamedTuple

from controller.foreign.rules.quotachange import changeable
from controller.insight.calendarwords import calendar_of
from controller.insight.forecast.forecast import Forecast
from controller.insight.podcounts import Admitted, counted
from controller.jobs.framework.podsets import first_slice
from controller.messages.queuestate import queue_state
from controller.objects.placeencoding import hosts
from controller.objects.workload import Workload
from controller.reconcile.lifecycle.pendingcause import blocked_by_queues
from controller.scheduler.decisions.records import DecisionRecord
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.engine import Engine
from controller.scheduler.mirror.specs import MirroredName, QueueSpec
from controller.scheduler.model.resources import (
    CPU,
    UNLIMITED,
    Amount,
    ClusterQueueName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
    WorkloadKey,
)
from controller.scheduler.queues.found import found_of, last_found
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.cells import NO_QUOTA, bounded
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.shares import share
from controller.scheduler.state.activity import flavors_without_nodes, interrupted_flavors, is_nodeless

Json = dict[str, Any]
POSITIONS: Final = 100
"""Workloads of each queue whose place is shown: every further place changes with every start."""
_NODES: Final = 32
_MILLI: Final = 1000


class Due(NamedTuple):
    """A row to show; ``make`` is called only if ``of`` differs from the last round's."""

    key: str
    of: object
    make: Callable[[], Json]


def number(resource: ResourceName, amount: Amount | None) -> float | None:
    """An amount in base units; None if it is unlimited."""
    if amount is None or amount >= UNLIMITED:
        return None
    return amount / _MILLI if resource == CPU else amount


# -- queues and cohorts ----------------------------------------------------------------------------------------------


WithPods = AbstractSet[WorkloadKey] | None
"""Workloads of which a pod runs; None while pods are not known."""


class _Counts(NamedTuple):
    pending: int = 0
    parked: int = 0
    reserving: int = 0
    admitted: int = 0
    running: int = 0
    without_pods: int = 0

    def plus(self, other: "_Counts") -> "_Counts":
        return _Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class _Sums(NamedTuple):
    """Sums of a queue, or of a cohort and all that is below it: whole amounts, though not all of them are lent
    upwards.
    """

    counts: _Counts
    quota: Mapping[FlavorResource, Amount]
    used: Mapping[FlavorResource, Amount]


def tree_rows(engine: Engine, with_pods: WithPods = None, now_s: float = 0.0) -> Iterator[tuple[str, Json]]:
    """The rows of every ClusterQueue and Cohort, parents first. ``now_s`` decides which windows of calendars hold."""
    queues, seen = engine.state.cluster.queues, set[QuotaNode]()
    admitted = None if with_pods is None else _admitted(engine, with_pods)
    for state in queues.values():
        root = state.node.root()
        if root not in seen:
            seen.add(root)
            *rows, _ = _below(engine, root, admitted, now_s)
            yield from reversed(rows)
    # A Cohort that no queue names yet is a tree of its own.
    for cohort in engine.state.cluster.quota.cohorts.values():
        if cohort.root() not in seen:
            seen.add(cohort.root())
            *rows, _ = _below(engine, cohort.root(), admitted, now_s)
            yield from reversed(rows)


def _admitted(engine: Engine, with_pods: AbstractSet[WorkloadKey]) -> Admitted:
    """The admitted workloads with and without running pods, by ClusterQueue."""
    holders = engine.state.cluster.holders.values()
    admitted = (
        (first_slice(each.info.workload), (str(each.cluster_queue),))
        for each in holders
        if each.admitted and not each.evicted
    )
    return counted(admitted, with_pods)


def _below(engine: Engine, node: QuotaNode, admitted: Admitted | None, now_s: float) -> Iterator[Any]:
    """Yields the rows of all below the node, then its own, then its sums. ``admitted``: None while pods are not
    known.
    """
    quota = Counter({fr: each.nominal for fr, each in node.spec.quotas.items()} if node.spec is not None else {})
    state = engine.state.cluster.queues.get(ClusterQueueName(node.name)) if node.is_queue else None
    if state is not None:
        counts = _counts(engine, state, admitted)
        used = Counter({fr: cell.usage for fr, cell in node.cells.items()})
    else:
        counts, used = _Counts(), Counter()
        for child in (*node.cohorts.values(), *node.queues.values()):
            *rows, below = _below(engine, child, admitted, now_s)
            counts = counts.plus(below.counts)
            quota.update(below.quota)
            used.update(below.used)
            yield from rows
    sums = _Sums(counts, quota, used)
    row = _node_row(engine, node, state, sums)
    row["calendar"] = calendar_of(engine, node, now_s)
    yield _name(node), {**row, **_running(counts, known=admitted is not None)}
    yield sums


def _counts(engine: Engine, state: QueueState, found: Admitted | None) -> _Counts:
    active, parked = engine.state.queues.counts(state.name)
    admitted = sum(holder.admitted for holder in state.holders.values())
    counts = _Counts(active + parked, parked, len(state.holders), admitted)
    if found is None:
        return counts
    return counts._replace(running=found.running[state.name], without_pods=found.without_pods(state.name))


def _running(counts: _Counts, *, known: bool) -> Json:
    """The counts of running workloads and of admitted ones without pods, as ``tessera queue list`` counts them; None
    while pods are not known.
    """
    return {
        "running": counts.running if known else None,
        "admittedWithoutPods": counts.without_pods if known else None,
    }


def _name(node: QuotaNode) -> str:
    return f"{'queue' if node.is_queue else 'cohort'}/{node.name}"


def _node_row(engine: Engine, node: QuotaNode, state: QueueState | None, sums: _Sums) -> Json:
    problems = [problem.message for problem in engine.inactive(state.name)] if state is not None else []
    stop_policy = state.policies.stop if state is not None else "None"
    lacking = flavors_without_nodes(state, engine.state.cluster) if state is not None else {}
    nodeless = state is not None and is_nodeless(state, lacking)
    held, counts = share(node), sums.counts
    return {
        "kind": "queue" if node.is_queue else "cohort",
        "name": node.name,
        "parent": _name(node.parent) if node.parent is not None else None,
        "weight": node.weight,
        "share": None if math.isinf(held.precise) else held.weighted,
        "state": queue_state(stop_policy, active=not (problems or node.in_cycle()), nodeless=nodeless),
        "problems": [*problems, *lacking.values()],
        "interrupted": list(interrupted_flavors(state, engine.state.cluster).values()) if state is not None else [],
        "strategy": None if state is None else "StrictFIFO" if state.policies.strict_fifo else "BestEffortFIFO",
        "pending": counts.pending,
        "parked": counts.parked,
        "reserving": counts.reserving,
        "admitted": counts.admitted,
        "resources": list(_resources(node, sums, _mirrored(engine, node), _closed(node, lacking, problems))),
    }


def _mirrored(engine: Engine, node: QuotaNode) -> QueueSpec | None:
    """The foreign Queue that the ClusterQueue mirrors."""
    if not (node.is_queue and engine.mirror.is_leaf(node.name)):
        return None
    return engine.mirror.queues.queues[MirroredName(node.name)]


def _closed(node: QuotaNode, lacking: Collection[str], problems: Collection[str]) -> Collection[str]:
    """The flavors of which a queue could take nothing now: all of one that is not active, else those without a node."""
    return {fr.flavor for fr in node.cells} if problems else lacking


def _resources(node: QuotaNode, sums: _Sums, mirrored: QueueSpec | None, closed: Collection[str]) -> Iterator[Json]:
    """The row of each resource. The quota that a queue never lends is counted as its own; the quota that a cohort's
    members never lend is counted in the cohort too, and is marked. ``closed``: flavors of which nothing is available.
    """
    quotas = node.spec.quotas if node.spec is not None else {}
    for fr, cell in sorted(node.cells.items()):
        quota, used = quotas.get(fr, NO_QUOTA), sums.used.get(fr, 0)
        if not (cell.subtree_quota or sums.quota.get(fr) or used or fr in quotas):
            continue
        whole = bounded(sums.quota.get(fr, 0))
        guaranteed = cell.local_quota if node.is_queue else whole - bounded(cell.subtree_quota)
        amounts = {
            "nominal": quota.nominal,
            "subtree": whole,
            "used": used,
            "borrowed": node.borrowed(fr) if node.parent is not None else 0,
            "guaranteed": bounded(guaranteed),
            "borrowingLimit": quota.borrowing_limit,
            "lendingLimit": quota.lending_limit,
            "available": 0 if fr.flavor in closed else node.available(fr),
        }
        shown = {name: number(fr.resource, amount) for name, amount in amounts.items()}
        own = changeable(mirrored, fr.resource) if mirrored is not None else quota.nominal
        shown["changeable"] = None if own is None else number(fr.resource, round(own))
        yield {"flavor": fr.flavor, "resource": fr.resource, **shown}


# -- workloads that wait ---------------------------------------------------------------------------------------------

ForecastOf = Callable[[WorkloadKey], Json | None]


def job_of(workload: Workload) -> str | None:
    """The name of the workload's job or pod, as its user knows it. None for a group of pods."""
    return next((owner.name for owner in workload.metadata.owner_references if owner.controller), None)


_STEPS: Final = 8
"""Durations are shown in this many steps for each doubling."""


def forecast_row(found: Forecast, now_s: float) -> Json:
    """A forecast in seconds from now, in steps of about a tenth: exact seconds would change every row every second."""
    gone_s = now_s - found.at_s
    times = {"from": found.from_s, "likely": found.likely_s, "to": found.to_s}
    return {
        **{name: None if at_s is None else coarse(at_s - gone_s) for name, at_s in times.items()},
        "ahead": min(found.ahead, POSITIONS),
        "assumes": list(found.assumes),
        "never": found.never,
        "notBefore": found.not_before,
    }


def coarse(seconds: float) -> float:
    """Seconds rounded to minutes, or to the nearest of ``_STEPS`` in a doubling where that is coarser; 0 for the
    past.
    """
    minutes = seconds / 60
    if minutes < _STEPS:
        return max(0.0, round(minutes) * 60.0)
    return float(round(2 ** (round(math.log2(minutes) * _STEPS) / _STEPS)) * 60)


def pending_rows(
    engine: Engine, queue: ClusterQueueName, key_of: Callable[[str], str], forecast_of: ForecastOf
) -> Iterator[Due]:
    """The rows of one queue's pending workloads, in their order of this moment: the engine may go on while they are
    read.
    """
    queues, idle = engine.state.queues, _Idle(engine)
    ordered = queues.in_order([*queues.active(queue), *queues.parked(queue)])
    for position, pending in enumerate(ordered):
        place = position if position < POSITIONS else None
        record, forecast = last_found(engine.stories, pending), forecast_of(pending.key)
        parked = pending.at is not None and pending.at.is_parked(pending)
        of = (
            pending.key,
            pending.priority,
            pending.queued_at_s,
            place,
            parked,
            forecast,
            idle[pending.local_queue],
            _Same(record),
            _Same(pending.info),
        )
        stands = idle[pending.local_queue]
        yield Due(key_of(pending.key), of, partial(_waiting, pending, queue, place, parked, record, forecast, stands))


class _Idle(dict[LocalQueueKey, str | None]):
    """The reason by LocalQueue why it or its ClusterQueue starts no workload; None if there is no such reason."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def __missing__(self, key: LocalQueueKey) -> str | None:
        cause = blocked_by_queues(self._engine, key)
        found = self[key] = cause.message if cause is not None else None
        return found


class _Same:
    """A wrapper that compares an object by identity. Two are kept for each workload that waits: ``__slots__`` save 40
    bytes of each, 7.6 MiB of 100,000 workloads.
    """

    __slots__ = ("it",)

    def __init__(self, it: object) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.it is self.it

    def __hash__(self) -> int:
        return id(self.it)


def _waiting(
    pending: PendingWorkload,
    queue: ClusterQueueName,
    place: int | None,
    parked: bool,
    record: DecisionRecord | None,
    forecast: Json | None,
    idle: str | None,
) -> Json:
    """The row of a workload that waits. ``idle``: why the queue starts no workload; None if it does."""
    pod_sets = pending.info.pod_sets
    waits = record is not None and record.rule.name not in ("FITS", "PLACED")
    return {
        "workload": pending.key,
        "job": job_of(pending.info.workload),
        "hidden": False,
        "queue": queue,
        "localQueue": pending.local_queue,
        "priority": pending.priority,
        "position": place,
        "parked": parked,
        "since": pending.queued_at_s,
        "pods": sum(each.count for each in pod_sets),
        "asks": _sums((name, amount) for each in pod_sets for name, amount in each.requests.items()),
        "reason": record.reason.value if record is not None else None,
        "sentence": idle or (sentence(found_of(record, pending)) if record is not None and waits else None),
        "forecast": forecast,
    }


def _sums(amounts: Iterable[tuple[ResourceName, Amount]]) -> dict[str, float | None]:
    found: dict[ResourceName, Amount] = {}
    for name, amount in amounts:
        found[name] = found.get(name, 0) + amount
    return {name: number(name, amount) for name, amount in sorted(found.items())}


# -- workloads that hold quota ---------------------------------------------------------------------------------------


def holder_rows(
    holders: Mapping[WorkloadKey, Holder], key_of: Callable[[str], str], with_pods: WithPods = None
) -> Iterator[Due]:
    for holder in list(holders.values()):
        runs = None if with_pods is None else first_slice(holder.info.workload) in with_pods
        yield Due(key_of(holder.key), (_Same(holder), runs), partial(_holding, holder, runs))


def _holding(holder: Holder, runs: bool | None) -> Json:
    """The row of a workload that holds quota. ``runs``: whether one of its pods runs; None while pods are not known."""
    admission = holder.info.workload.status.admission
    nodes: dict[str, None] = {}
    for assigned in admission.pod_set_assignments if admission is not None else ():
        nodes |= dict.fromkeys(hosts(assigned.topology_assignment))
    return {
        "workload": holder.key,
        "job": job_of(holder.info.workload),
        "hidden": False,
        "queue": holder.cluster_queue,
        "localQueue": holder.local_queue,
        "priority": holder.priority,
        "state": "Evicting" if holder.evicted else "Admitted" if holder.admitted else "QuotaReserved",
        "running": runs,
        "since": holder.reserved_at_s,
        "holds": [
            {"flavor": fr.flavor, "resource": fr.resource, "amount": number(fr.resource, amount)}
            for fr, amount in sorted(holder.usage.items())
        ],
        "nodes": list(nodes)[:_NODES],
        "nodeCount": len(nodes),
    }
