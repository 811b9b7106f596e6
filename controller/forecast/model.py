"""The quota forest of an engine, copied, with who holds it and who waits: what a forecast lets time pass on.

Only sums are copied: quotas, amounts, orders. ``model_of`` reads the engine and changes nothing in it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from controller.engine.claims.runtimes import runtime_s
from controller.engine.conditions.reasons import PendingReason
from controller.engine.engine import Engine
from controller.engine.flavors.plan import PODS
from controller.engine.model.config import BackfillPolicy
from controller.engine.model.resources import (
    Amount,
    ClusterQueueName,
    FlavorResource,
    ResourceName,
    Usage,
    WorkloadKey,
)
from controller.engine.queues.pending import PendingWorkload
from controller.engine.quota.cells import Cell
from controller.engine.quota.queuestate import QueueState
from controller.engine.quota.quota import QuotaTree
from controller.engine.quota.quotanode import QuotaNode

MOST: Final = 2_000
"""Pending workloads that a forecast looks at, the first of each queue: what is behind them starts later still."""


class Charge(NamedTuple):
    fr: FlavorResource
    cell: Cell
    amount: Amount


Charges = tuple[Charge, ...]
Choices = tuple[tuple[Charges, ...], ...]
"""For each group of resources of each pod set what is charged on each flavor that is open to it, in order."""


class Held(NamedTuple):
    """``told_s`` None: nobody said how long it runs. ``leaving``: it is being stopped."""

    key: WorkloadKey
    queue: ClusterQueueName
    charges: Charges
    since_s: float
    told_s: float | None
    leaving: bool


class Waiting(NamedTuple):
    """``shape``: a number that is equal for those of one queue that fit or do not fit alike. ``lacks_places``: quota
    has room for it and the nodes have none.
    """

    key: WorkloadKey
    queue: ClusterQueueName
    priority: int
    queued_at_s: float
    shape: int
    choices: Choices
    told_s: float | None
    due_s: float
    lacks_places: bool


class Line(NamedTuple):
    """One ClusterQueue. ``waiting`` is in the order in which they are tried."""

    name: ClusterQueueName
    strict: bool
    node: QuotaNode
    waiting: tuple[Waiting, ...]


class Tree(NamedTuple):
    """A cohort tree with somebody waiting in it. Trees share nothing."""

    lines: tuple[Line, ...]
    held: tuple[Held, ...]


class Model(NamedTuple):
    """``left_out``: pending workloads that were too many to look at. ``closed``: those whose queue takes nothing in."""

    now_s: float
    trees: tuple[Tree, ...]
    backfill: bool
    fair: bool
    left_out: frozenset[WorkloadKey]
    closed: frozenset[WorkloadKey]


def model_of(engine: Engine, now_s: float, most: int = MOST, asked: PendingWorkload | None = None) -> Model:
    """``most``: of all pending workloads so many are looked at, the same number of each ClusterQueue. ``asked``: one
    more, which is not there; it is looked at wherever it stands.
    """
    state = engine.state
    quota = _copied(engine)
    queued: dict[ClusterQueueName, list[PendingWorkload]] = {}
    closed: set[WorkloadKey] = set()
    for pending in (*state.queues, *([asked] if asked is not None else [])):
        queue = state.queue_of(pending.local_queue)
        if queue is None or engine.inactive(queue.name):
            closed.add(pending.key)
        else:
            queued.setdefault(queue.name, []).append(pending)
    each = max(1, most // max(1, len(queued)))
    left_out: set[WorkloadKey] = set()
    roots: dict[QuotaNode, list[Line]] = {}
    shapes: _Choices = {}
    for name in sorted(queued):
        ordered = state.queues.in_order(queued[name])
        seen = ordered[:each]
        if asked is not None and asked in ordered[each:]:
            seen.append(asked)
        left_out.update(pending.key for pending in ordered[each:])
        node = quota.cluster_queue(name)
        queue = state.cluster.queues[name]
        waiting = tuple(_waiting(engine, pending, queue, quota, shapes) for pending in seen)
        line = Line(name, queue.policies.strict_fifo, node, waiting)
        roots.setdefault(node.root(), []).append(line)
    trees = tuple(Tree(tuple(lines), tuple(_held(engine, quota, root))) for root, lines in roots.items())
    extensions = state.config.extensions
    return Model(
        now_s=now_s,
        trees=trees,
        backfill=extensions.backfill is BackfillPolicy.CONSERVATIVE,
        fair=state.config.fair_sharing is not None,
        left_out=frozenset(left_out),
        closed=frozenset(closed),
    )


def _copied(engine: Engine) -> QuotaTree:
    """The same quotas, with nothing charged."""
    known, made = engine.state.cluster.quota, QuotaTree()
    for name, cohort in known.cohorts.items():
        if cohort.spec is not None:
            made.set_cohort(name, cohort.spec)
    for queue_name, queue in known.cluster_queues.items():
        if queue.spec is not None:
            made.set_cluster_queue(queue_name, queue.spec)
    return made


def _held(engine: Engine, quota: QuotaTree, root: QuotaNode) -> Iterator[Held]:
    for name in root.queue_names():
        state = engine.state.cluster.queues.get(name)
        for holder in state.holders.values() if state is not None else ():
            yield Held(
                key=holder.key,
                queue=name,
                charges=_charges(quota, name, holder.usage),
                since_s=holder.reserved_at_s,
                told_s=runtime_s(holder.info.workload),
                leaving=holder.evicted,
            )


def _charges(quota: QuotaTree, name: ClusterQueueName, usage: Usage) -> Charges:
    quota.add_usage(name, dict.fromkeys(usage, 0))  # every flavor-resource gets its cell
    cells = quota.cluster_queue(name).cells
    return tuple(Charge(fr, cells[fr], amount) for fr, amount in usage.items() if amount)


_Choices = dict[tuple[ClusterQueueName, str], tuple[int, Choices]]


def _waiting(
    engine: Engine, pending: PendingWorkload, queue: QueueState, quota: QuotaTree, shapes: _Choices
) -> Waiting:
    known = shapes.get((queue.name, pending.untimed_shape))
    if known is None:
        known = len(shapes), _choices(engine, pending, queue, quota)
        shapes[queue.name, pending.untimed_shape] = known
    record = engine.stories.last(pending.key)
    return Waiting(
        key=pending.key,
        queue=queue.name,
        priority=pending.priority,
        queued_at_s=pending.queued_at_s,
        shape=known[0],
        choices=known[1],
        told_s=runtime_s(pending.info.workload),
        due_s=pending.due_s,
        lacks_places=record is not None and record.reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED,
    )


def _choices(engine: Engine, pending: PendingWorkload, queue: QueueState, quota: QuotaTree) -> Choices:
    """Of a workload that may start with fewer pods the fewest count."""
    plan, info = engine.state.assigner.plan(pending.incoming(queue)), pending.info
    found: list[tuple[Charges, ...]] = []
    for together in plan.sets:
        asked: dict[ResourceName, Amount] = {}
        for index in together.members:
            given, least = info.pod_sets[index], info.workload.spec.pod_sets[index].min_count
            given = given if least is None or not 0 < least < given.count else given.scaled_to(least)
            for name, amount in given.requests.items():
                asked[name] = asked.get(name, 0) + amount
            if plan.counts_pods:
                asked[PODS] = asked.get(PODS, 0) + given.count
        if together.undeclared:
            found.append(())
        for group in together.groups:
            usages = (
                {FlavorResource(option.name, name): asked.get(name, 0) for name in group.resources}
                for option in group.options
                if option.problem is None
            )
            found.append(tuple(_charges(quota, queue.name, usage) for usage in usages))
    return tuple(found)
