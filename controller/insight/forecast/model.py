"""A copy of an engine's quota forest, with its holders and its pending workloads: a forecast runs it forward.

Only sums are copied: quotas, amounts, orders. ``model_parts`` reads the engine and changes nothing in it.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from controller.insight.forecast.closed import opens_when
from controller.insight.forecast.parts import Parts, finished
from controller.insight.forecast.quotachanges import QuotaChange, changes_below
from controller.insight.forecast.repairtimes import NO_COMEBACKS, Comebacks
from controller.insight.forecast.returning import grown
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import BackfillPolicy
from controller.scheduler.model.resources import (
    PODS,
    Amount,
    ClusterQueueName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
    Usage,
    WorkloadKey,
)
from controller.scheduler.model.toldtimes import runtime_s
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.cells import Cell
from controller.scheduler.quota.queuestate import QueueState
from controller.scheduler.quota.quota import QuotaTree
from controller.scheduler.quota.quotanode import QuotaNode

MOST: Final = 2_000
"""Pending workloads in a forecast, the first of each queue: what is behind them starts later still."""

_PLANS: Final = 32
_QUOTAS: Final = 32
_READ: Final = 4_000
_SORTED: Final = 500
"""Workloads that are planned or charged, quotas that are copied, and workloads that are put in order between two
pauses."""


class Charge(NamedTuple):
    fr: FlavorResource
    cell: Cell
    amount: Amount


Charges = tuple[Charge, ...]
Choices = tuple[tuple[Charges, ...], ...]
"""The charges on each flavor that is open, in order, for each group of resources of each pod set."""


class Held(NamedTuple):
    """A workload that holds quota. ``told_s`` None: no run time was told. ``leaving``: the workload is being
    stopped.
    """

    key: WorkloadKey
    queue: ClusterQueueName
    charges: Charges
    since_s: float
    told_s: float | None
    leaving: bool


class Waiting(NamedTuple):
    """A workload that waits. ``shape``: a number that is equal for workloads of one queue that fit or do not fit alike;
    no other queue has it.
    """

    key: WorkloadKey
    queue: ClusterQueueName
    priority: int
    queued_at_s: float
    shape: int
    choices: Choices
    told_s: float | None
    due_s: float


class Gate(NamedTuple):
    """One workload of a shape may start once ``after`` has ended, likely at ``at_s``."""

    after: WorkloadKey
    at_s: float


class Line(NamedTuple):
    """One ClusterQueue. ``waiting`` is in the order in which its workloads are tried."""

    name: ClusterQueueName
    strict: bool
    node: QuotaNode
    waiting: tuple[Waiting, ...]


class Absent(NamedTuple):
    """Quota of GPUs in repair: it counts as held until they are likely back, at ``at_s``."""

    charge: Charge
    at_s: float


class Tree(NamedTuple):
    """A cohort tree in which a workload waits. Trees share nothing.

    ``coming``: workloads of ``lines`` that others are preempted for. They start once these have stopped, and are
    counted as if they held their quota now. ``changes``: of quotas, by calendars. ``absent``: quota that is not there
    yet.
    """

    lines: tuple[Line, ...]
    held: tuple[Held, ...]
    coming: tuple[Held, ...] = ()
    changes: tuple[QuotaChange, ...] = ()
    absent: tuple[Absent, ...] = ()

    @property
    def is_repaired(self) -> bool:
        """Whether quota of it grows when GPUs are back from repair."""
        return bool(self.absent) or any(change.repaired for change in self.changes)

    @property
    def charged(self) -> tuple[Held, ...]:
        return (*self.held, *self.coming)


class Model(NamedTuple):
    """``left_out``: pending workloads that were too many to consider. ``closed``: the LocalQueues of workloads whose
    queues admit nothing. ``comebacks``: the GPUs in repair that are likely back some time.
    """

    now_s: float
    trees: tuple[Tree, ...]
    backfill: bool
    fair: bool
    left_out: frozenset[WorkloadKey]
    closed: Mapping[WorkloadKey, LocalQueueKey]
    comebacks: Comebacks = NO_COMEBACKS


def model_of(engine: Engine, now_s: float, most: int = MOST, asked: PendingWorkload | None = None) -> Model:
    """``model_parts``, run to its end without a pause."""
    return finished(model_parts(engine, now_s, most, asked))


def model_parts(
    engine: Engine,
    now_s: float,
    most: int = MOST,
    asked: PendingWorkload | None = None,
    comebacks: Comebacks = NO_COMEBACKS,
) -> Parts[Model]:
    """The model of an engine. ``most``: the number of pending workloads in it, equally many of each ClusterQueue.
    ``asked``: one more workload, which is not in the engine; it is in the model wherever it stands. ``comebacks``: GPUs
    in repair, whose quota comes back with them.

    The engine may change in the pauses. Pending workloads are read before holders, so one that starts meanwhile waits
    in the model, and does not hold anything yet.
    """
    quota = yield from _copied(engine)
    growing = grown(engine, quota, comebacks)
    state = engine.state
    closed: dict[WorkloadKey, LocalQueueKey] = {}
    queued = yield from _by_queue(engine, closed)
    if asked is not None and (name := _open_queue(engine, asked.local_queue)) is not None:
        queued.setdefault(name, []).append(asked)
    per_queue = max(1, most // max(1, len(queued)))
    left_out: set[WorkloadKey] = set()
    roots: dict[QuotaNode, list[Line]] = {}
    shapes: _Choices = {}
    for name in sorted(queued):
        queue = state.cluster.queues.get(name)
        if queue is None or name not in quota.cluster_queues:
            closed.update((pending.key, pending.local_queue) for pending in queued[name])
            continue
        seen, behind = yield from _first(engine, queued[name], per_queue)
        if asked is not None and asked in behind:
            seen.append(asked)
        left_out.update(pending.key for pending in behind)
        waiting: list[Waiting] = []
        for number, pending in enumerate(seen):
            waiting.append(_waiting(engine, pending, queue, quota, shapes))
            if number % _PLANS == 0:
                yield
        node = quota.cluster_queue(name)
        roots.setdefault(node.root(), []).append(Line(name, queue.policies.strict_fifo, node, tuple(waiting)))
    trees: list[Tree] = []
    for root, lines in roots.items():
        held = yield from _held(engine, quota, root, {waiting.key for line in lines for waiting in line.waiting})
        changes = changes_below(engine, quota, root, now_s, comebacks) if state.calendars else ()
        absent = tuple(
            Absent(Charge(each.fr, each.node.cells[each.fr], each.amount), each.at_s)
            for each in growing
            if each.node.root() is root
        )
        trees.append(Tree(tuple(lines), tuple(held), changes=changes, absent=absent))
    extensions = state.config.extensions
    return Model(
        now_s=now_s,
        trees=tuple(trees),
        backfill=extensions.backfill is BackfillPolicy.CONSERVATIVE,
        fair=state.config.fair_sharing is not None,
        left_out=frozenset(left_out),
        closed=closed,
        comebacks=comebacks,
    )


def _open_queue(engine: Engine, local: LocalQueueKey) -> ClusterQueueName | None:
    """The ClusterQueue of the LocalQueue; None if it admits nothing."""
    queue = engine.queue_of(local)
    return None if queue is None or opens_when(engine, local) is not None else queue.name


_Queued = dict[ClusterQueueName, list[PendingWorkload]]


def _by_queue(engine: Engine, closed: dict[WorkloadKey, LocalQueueKey]) -> Parts[_Queued]:
    queued: _Queued = {}
    leads: dict[LocalQueueKey, ClusterQueueName | None] = {}
    for number, pending in enumerate(list(engine.state.queues)):
        local = pending.local_queue
        if local not in leads:
            leads[local] = _open_queue(engine, local)
        name = leads[local]
        if name is None:
            closed[pending.key] = local
        else:
            queued.setdefault(name, []).append(pending)
        if number % _READ == 0:
            yield
    return queued


def _first(
    engine: Engine, some: list[PendingWorkload], each: int
) -> Parts[tuple[list[PendingWorkload], list[PendingWorkload]]]:
    """The first ``each`` workloads in the order in which they are tried, and the others."""
    seen: list[PendingWorkload] = []
    behind: list[PendingWorkload] = []
    for begin in range(0, len(some), _SORTED):
        seen = engine.state.queues.in_order([*seen, *some[begin : begin + _SORTED]])
        behind += seen[each:]
        seen = seen[:each]
        yield
    return seen, behind


def _copied(engine: Engine) -> Parts[QuotaTree]:
    """A copy of the quotas, with nothing charged."""
    known, made = engine.state.cluster.quota, QuotaTree()
    for number, (name, cohort) in enumerate(list(known.cohorts.items())):
        if cohort.spec is not None:
            made.set_cohort(name, cohort.spec)
        if number % _QUOTAS == 0:
            yield
    for number, (queue_name, queue) in enumerate(list(known.cluster_queues.items())):
        if queue.spec is not None:
            made.set_cluster_queue(queue_name, queue.spec)
        if number % _QUOTAS == 0:
            yield
    return made


def _held(engine: Engine, quota: QuotaTree, root: QuotaNode, waiting: AbstractSet[WorkloadKey]) -> Parts[list[Held]]:
    held: list[Held] = []
    for name in root.queue_names():
        state = engine.state.cluster.queues.get(name)
        for number, holder in enumerate(list(state.holders.values()) if state is not None else ()):
            if number % _PLANS == 0:
                yield
            if holder.key in waiting:
                continue
            held.append(
                Held(
                    key=holder.key,
                    queue=name,
                    charges=_charges(quota, name, holder.usage),
                    since_s=holder.reserved_at_s,
                    told_s=runtime_s(holder.info.workload),
                    leaving=holder.evicted,
                )
            )
    return held


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
    return Waiting(
        key=pending.key,
        queue=queue.name,
        priority=pending.priority,
        queued_at_s=pending.queued_at_s,
        shape=known[0],
        choices=known[1],
        told_s=runtime_s(pending.info.workload),
        due_s=pending.due_s,
    )


def _choices(engine: Engine, pending: PendingWorkload, queue: QueueState, quota: QuotaTree) -> Choices:
    """The choices of a pending workload. A workload that may start with fewer pods is charged for the fewest."""
    plan, info = engine.state.assigner.plan(pending.incoming(queue)), pending.info
    choices: list[tuple[Charges, ...]] = []
    for together in plan.sets:
        asked: dict[ResourceName, Amount] = {}
        for index in together.members:
            pod_set, least = info.pod_sets[index], info.workload.spec.pod_sets[index].min_count
            pod_set = pod_set if least is None or not 0 < least < pod_set.count else pod_set.scaled_to(least)
            for name, amount in pod_set.requests.items():
                asked[name] = asked.get(name, 0) + amount
            if plan.counts_pods:
                asked[PODS] = asked.get(PODS, 0) + pod_set.count
        if together.undeclared:
            choices.append(())
        for group in together.groups:
            usages = (
                {FlavorResource(option.name, name): asked.get(name, 0) for name in group.resources}
                for option in group.options
                if option.problem is None
            )
            choices.append(tuple(_charges(quota, queue.name, usage) for usage in usages))
    return tuple(choices)
