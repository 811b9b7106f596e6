"""The page of /metrics: counters, and gauges that are read from the engine now."""

import math
import platform
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from controller.cluster.config.settings import ControllerConfig
from controller.cluster.metrics.gpucounts import GpuCounts
from controller.cluster.metrics.instruments import Instruments, Labels
from controller.cluster.metrics.table import READ, ROLE
from controller.cluster.metrics.workloadkinds import job_kind
from controller.cluster.watching.feeds import Feeds
from controller.cluster.watching.kinds import GPU_NODES, NODES
from controller.insight.admissible import MOST_ROWS, annotated, count_parts
from controller.insight.forecast.parts import Parts
from controller.objects.meta import is_true
from controller.objects.queues import LocalQueue
from controller.objects.workload import Workload
from controller.scheduler.decisions.reasons import ADMITTED, FINISHED
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import CPU, Amount, ClusterQueueName, LocalQueueKey, ResourceName
from controller.scheduler.queues.found import last_found
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.quota.prices import interruption_rate
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.quota.queueusage import sums
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.quota.shares import share
from controller.scheduler.state.activity import local_queue_problem
from controller.scheduler.state.intake import local_queue_of
from inventory.gpustates import GpuState

Gauges = dict[str, dict[Labels, float]]
_ACTIVE: Final = "active"
_PARKED: Final = "inadmissible"
_PART: Final = 1000
"""Workloads between two pauses: a few milliseconds."""
T = TypeVar("T")


@dataclass(frozen=True)
class Acting:
    """The state of a replica that leads: its engine, all Workloads, and the writes and Events of its term.

    ``declared``: the kinds that JobKinds name. ``tripped``: whether the breaker of repairs has tripped, by flavor.
    ``priority``: of a job that names no class.
    """

    engine: Engine
    workloads: Sequence[Workload]
    writes_pending: int
    events_dropped: int
    declared: Collection[str] = ()
    tripped: Mapping[str, bool] = field(default_factory=dict)
    priority: int = 0
    now_s: float = 0.0


class Exposition(Collector):
    """The counters and, from ``read``, the values of gauges, each with the role of this replica.

    ``text`` may be called on another thread: ``read`` is not written any more, and the library's metrics have locks.
    """

    def __init__(self, counted: CollectorRegistry, read: Gauges, role: str) -> None:
        self._counted = counted
        self._read = read
        self._role = role

    def collect(self) -> Iterable[Metric]:
        for metric in chain(self._counted.collect(), _families(self._read)):
            for sample in metric.samples:
                sample.labels[ROLE] = self._role  # a dict of this collection's own
            yield metric

    def text(self) -> bytes:
        """The page in Prometheus' text format, version 0.0.4."""
        return generate_latest(self)


def _families(read: Gauges) -> Iterable[Metric]:
    """The families of gauges; one without values is left out."""
    for family in READ:
        if values := read[family.name]:
            metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in values.items():
                metric.add_metric(labels, value)
            yield metric


def exposing(
    instruments: Instruments,
    config: ControllerConfig,
    feeds: Feeds | None,
    acting: Acting | None,
    skips: Mapping[ClusterQueueName, int],
    *,
    role: str,
    version: str,
    gpus: GpuCounts | None = None,
) -> Parts[Exposition]:
    """Reads the gauges from the engine, on the loop; the text is made on another thread. The engine may change in the
    pauses: gauges of one workload are of one moment, those of a hundred thousand are not.

    ``feeds``: None before they run; ``acting``: None on a replica that does not lead. ``skips``: preemptions put off in
    the last cycle, by ClusterQueue. ``gpus``: the counts of the last call.
    """
    gauges: Gauges = {family.name: {} for family in READ}
    runs = (f"python{platform.python_version()}", sys.implementation.name, f"{sys.platform}/{platform.machine()}")
    gauges["kueue_build_info"][f"v{version}", "", "", *runs] = 1.0
    gauges["tessera_leading"][()] = 0.0 if role == "follower" else 1.0
    if feeds is not None:
        gauges["tessera_watch_lag_seconds"] = {(plural,): round(lag_s, 3) for plural, lag_s in feeds.lags()}
        gauges["tessera_undecodable_objects"] = {
            (resource.plural,): float(feeds[resource].undecodable) for resource in feeds.resources
        }
    if acting is not None:
        engine = acting.engine
        gauges["tessera_writes_pending"][()] = float(acting.writes_pending)
        gauges["tessera_events_dropped"][()] = float(acting.events_dropped)
        yield from _engine(gauges, engine, config)
        _finished(gauges, engine, (yield from _by_kind(gauges, acting)), config)
        if feeds is not None and gpus is not None:
            counts = yield from gpus.read(feeds[NODES].objects(), feeds[GPU_NODES].objects())
            gauges["tessera_gpus"] = {
                (state.value,): float(counts[state]) for state in GpuState if state is not GpuState.IDLE
            }
        yield from _units_of_queues(gauges, acting)
        gauges["tessera_flavor_interruptions_per_node_day"] = {
            (name,): rate for name, known in engine.state.cluster.flavors.items() if (rate := interruption_rate(known))
        }
        for flavor, is_tripped in acting.tripped.items():
            gauges["tessera_gpu_repair_breaker_tripped"][flavor,] = float(is_tripped)
        for name, count in skips.items():
            gauges["kueue_admission_cycle_preemption_skips"][name,] = float(count)
    return Exposition(instruments.registry, gauges, role)


def _in_parts(every: Sequence[T]) -> Iterator[Sequence[T]]:
    return (every[at : at + _PART] for at in range(0, len(every), _PART))


def _by_kind(found: Gauges, acting: Acting) -> Parts[list[Workload]]:
    """Counts workloads by kind, and returns those that have ended."""
    ended: list[Workload] = []
    numbers: Counter[Labels] = Counter()
    for part in _in_parts(acting.workloads):
        _count_kinds(part, acting, numbers, ended)
        yield
    found["tessera_workloads"] = {labels: float(number) for labels, number in numbers.items()}
    return ended


def _count_kinds(
    workloads: Iterable[Workload], acting: Acting, numbers: Counter[Labels], ended: list[Workload]
) -> None:
    for workload in workloads:
        conditions = workload.status.conditions
        state = "pending" if workload.status.admission is None else "reserving"
        if is_true(conditions, FINISHED):
            ended.append(workload)
            state = "finished"
        elif is_true(conditions, ADMITTED):
            state = "admitted"
        numbers[job_kind(workload, acting.declared), state] += 1


def _engine(found: Gauges, engine: Engine, config: ControllerConfig) -> Parts[None]:
    fair = config.engine.fair_sharing is not None
    for state in tuple(engine.state.cluster.queues.values()):
        if engine.state.cluster.queues.get(state.name) is state:
            _cluster_queue(found, engine, state, fair=fair, resources=config.metrics.cluster_queue_resources)
            yield
    cohorts = engine.state.cluster.quota.cohorts if config.engine.gates.on("MetricsForCohorts") else {}
    for name, node in cohorts.items():
        parent = node.parent.name if node.parent is not None else ""
        found["kueue_cohort_info"][name, parent, node.root().name] = 1.0
        for fr in node.cells:
            found["kueue_cohort_subtree_quota"][name, fr.flavor, fr.resource] = _units(fr.resource, node.quota(fr))
            reserved = _units(fr.resource, node.usage(fr))
            found["kueue_cohort_subtree_resource_reservations"][name, fr.flavor, fr.resource] = reserved
        if fair:
            found["kueue_cohort_weighted_share"][name,] = float(share(node).weighted)
    for spread in engine.state.cluster.placement.spreads():
        found["tessera_gpu_fragmentation_ratio"][spread.flavor,] = spread.ratio
        for level, most in spread.largest.items():
            found["tessera_largest_placeable_gang"][spread.flavor, level] = float(most)
    yield
    _queue_usage(found, engine, config)
    yield from _waiting(found, engine, resources=config.metrics.cluster_queue_resources)
    if config.local_queue_metrics:
        yield from _local_queues(found, engine, config)


def _queue_usage(found: Gauges, engine: Engine, config: ControllerConfig) -> None:
    allocated, capacity = engine.queue_allocations()
    for resource, amount in capacity.items():
        found["tessera_queue_capacity"][resource,] = _units(resource, amount)
        for name, amounts in allocated.items():
            found["tessera_queue_allocated"][name, resource] = _units(resource, amounts.get(resource, 0.0))
    measured = engine.state.measured_usage
    if config.usage_source is not None and measured is not None:
        found["tessera_queue_usage_unanswered"][()] = float(measured.away_since_s is not None)
        if measured.asked_s is not None:
            found["tessera_queue_usage_answer_timestamp_seconds"][()] = measured.asked_s


def _cluster_queue(found: Gauges, engine: Engine, state: QueueState, *, fair: bool, resources: bool) -> None:
    name, cohort = state.name, state.node.parent.name if state.node.parent is not None else ""
    active, parked = engine.state.queues.counts(name)
    found["kueue_pending_workloads"][name, "active"] = float(active)
    found["kueue_pending_workloads"][name, "inadmissible"] = float(parked)
    found["kueue_reserving_active_workloads"][name,] = float(len(state.holders))
    admitted = sum(holder.admitted for holder in state.holders.values())
    found["kueue_admitted_active_workloads"][name,] = float(admitted)
    for node in state.node.path():
        if not node.is_queue and engine.state.config.gates.on("MetricsForCohorts"):
            known = found["kueue_cohort_subtree_admitted_active_workloads"]
            known[node.name,] = known.get((node.name,), 0.0) + admitted
    going = state.object.metadata.deletion_timestamp is not None
    now = "terminating" if going else "pending" if engine.inactive(name) else "active"
    for status in ("pending", "active", "terminating"):
        found["kueue_cluster_queue_status"][name, status] = float(status == now)
    root = state.node.root()
    parent = state.node.parent.parent if state.node.parent is not None else None
    place = (name, cohort, parent.name if parent is not None else "", root.name if root is not state.node else "")
    found["kueue_cluster_queue_info"][place] = 1.0
    if fair:
        found["kueue_cluster_queue_weighted_share"][name, cohort] = float(share(state.node).weighted)
    if resources:
        _resources(found, state, cohort)


def _resources(found: Gauges, state: QueueState, cohort: str) -> None:
    reserved, used = sums(state.holders.values())
    spec = state.node.spec
    for fr in state.flavor_resources:
        labels = (cohort, state.name, fr.flavor, fr.resource)
        found["kueue_cluster_queue_resource_usage"][labels] = _units(fr.resource, used.get(fr, 0))
        found["kueue_cluster_queue_resource_reservation"][labels] = _units(fr.resource, reserved.get(fr, 0))
        quota = spec.quotas.get(fr) if spec is not None else None
        if quota is None:
            continue
        found["kueue_cluster_queue_nominal_quota"][labels] = _units(fr.resource, quota.nominal)
        for limit, metric in ((quota.borrowing_limit, "borrowing"), (quota.lending_limit, "lending")):
            value = math.inf if limit is None else _units(fr.resource, limit)
            found[f"kueue_cluster_queue_{metric}_limit"][labels] = value


def _waiting(found: Gauges, engine: Engine, *, resources: bool) -> Parts[None]:
    """Gauges of pending workloads by the reason of their last decision, and of their requests."""
    asked: dict[tuple[str, ResourceName], Amount] = {}
    shapes: dict[tuple[str, str], set[str]] = {}
    for part in _in_parts(tuple(engine.state.queues)):
        for pending in part:
            state = engine.state.queue_of(pending.local_queue)
            name = state.name if state is not None else ""
            if state is not None:
                shapes.setdefault((name, _status(pending)), set()).add(pending.untimed_shape)
            _why(found, engine, pending, name)
            for pod_set in pending.info.pod_sets if resources and state is not None else ():
                for resource, amount in pod_set.requests.items():
                    asked[name, resource] = asked.get((name, resource), 0) + amount
        yield
    for where, known in shapes.items():
        found["kueue_pending_scheduling_hashes"][where] = float(len(known))
    for (name, resource), amount in asked.items():
        state = engine.state.cluster.queues.get(ClusterQueueName(name))
        cohort = _cohort(state.node) if state is not None else ""
        found["kueue_cluster_queue_resource_pending"][cohort, name, resource] = _units(resource, amount)


def _why(found: Gauges, engine: Engine, pending: PendingWorkload, queue: str) -> None:
    record = last_found(engine.stories, pending)
    if record is not None:
        labels = (queue, record.reason.value, record.rule.name.lower())
        unadmitted = found["kueue_unadmitted_workloads"]
        unadmitted[labels] = unadmitted.get(labels, 0.0) + 1
        parked = found["tessera_parked_workloads"]
        parked[queue, record.reason.value] = parked.get((queue, record.reason.value), 0.0) + 1


def _local_queues(found: Gauges, engine: Engine, config: ControllerConfig) -> Parts[None]:
    waiting: dict[LocalQueueKey, list[PendingWorkload]] = {}
    for pending in engine.state.queues:
        waiting.setdefault(pending.local_queue, []).append(pending)
    holding: dict[LocalQueueKey, list[Holder]] = {}
    for holder in engine.state.cluster.holders.values():
        holding.setdefault(holder.local_queue, []).append(holder)
    yield
    for key, queue in tuple(engine.state.cluster.local_queues.items()):
        if config.metrics.local_queue_selector.matches(queue.metadata.labels):
            _local_queue(found, engine, key, queue, waiting.get(key, ()), holding.get(key, ()))
            yield


def _units_of_queues(found: Gauges, acting: Acting) -> Parts[None]:
    """Counts units for autoscalers, ``MOST_ROWS`` at most."""
    admissible, usable = found["tessera_local_queue_admissible_units"], found["tessera_local_queue_usable_units"]
    for queue in annotated(acting.engine):
        if len(admissible) >= MOST_ROWS:
            break
        for each in (yield from count_parts(acting.engine, queue, acting.priority, acting.now_s)):
            labels = (queue.metadata.namespace, queue.metadata.name, each.flavor, each.unit)
            admissible[labels] = float(each.admissible)
            usable[labels] = float(each.admissible + each.held)


def _local_queue(
    found: Gauges,
    engine: Engine,
    key: LocalQueueKey,
    queue: LocalQueue,
    waiting: Collection[PendingWorkload],
    holding: Collection[Holder],
) -> None:
    state = engine.state.queue_of(key)
    labels = (queue.metadata.name, queue.metadata.namespace)
    open_ = state is not None and not engine.inactive(state.name)
    active = local_queue_problem(queue, engine.state.cluster, queue_active=open_) is None
    for is_ in (True, False):
        found["kueue_local_queue_status"][*labels, str(is_)] = float(is_ is active)
    _local_waiting(found, engine, labels, waiting)
    _local_holding(found, state, labels, holding)
    if engine.state.usage.on:
        found["kueue_local_queue_admission_fair_sharing_usage"][labels] = engine.state.usage.usage(key)


def _local_waiting(found: Gauges, engine: Engine, labels: Labels, waiting: Collection[PendingWorkload]) -> None:
    numbers = found["kueue_local_queue_pending_workloads"]
    sleeping = sum(_status(pending) == _PARKED for pending in waiting)
    numbers[*labels, _ACTIVE], numbers[*labels, _PARKED] = float(len(waiting) - sleeping), float(sleeping)
    why = found["kueue_local_queue_unadmitted_workloads"]
    for pending in waiting:
        record = last_found(engine.stories, pending)
        if record is not None:
            one = (*labels, record.reason.value, record.rule.name.lower())
            why[one] = why.get(one, 0.0) + 1


def _local_holding(found: Gauges, state: QueueState | None, labels: Labels, holding: Collection[Holder]) -> None:
    found["kueue_local_queue_reserving_active_workloads"][labels] = float(len(holding))
    found["kueue_local_queue_admitted_active_workloads"][labels] = float(sum(holder.admitted for holder in holding))
    reserved, used = sums(holding)
    for fr in state.flavor_resources if state is not None else ():
        where = (*labels, fr.flavor, fr.resource)
        found["kueue_local_queue_resource_reservation"][where] = _units(fr.resource, reserved.get(fr, 0))
        found["kueue_local_queue_resource_usage"][where] = _units(fr.resource, used.get(fr, 0))


def _finished(found: Gauges, engine: Engine, over: Iterable[Workload], config: ControllerConfig) -> None:
    """Gauges of finished workloads by the ClusterQueue whose quota each had, else by that of its LocalQueue."""
    cluster = engine.state.cluster
    queues = dict.fromkeys(cluster.queues, 0)
    local_queues = dict.fromkeys(cluster.local_queues, 0)
    for workload in over:
        key, admission = local_queue_of(workload), workload.status.admission
        state = engine.state.queue_of(key)
        name = admission.cluster_queue if admission is not None else state.name if state is not None else ""
        if name in queues:
            queues[ClusterQueueName(name)] += 1
        if key in local_queues:
            local_queues[key] += 1
    for queue, count in queues.items():
        found["kueue_finished_workloads"][queue,] = float(count)
    for key, count in local_queues.items() if config.local_queue_metrics else ():
        meta = cluster.local_queues[key].metadata
        if config.metrics.local_queue_selector.matches(meta.labels):
            found["kueue_local_queue_finished_workloads"][meta.name, meta.namespace] = float(count)


def _status(pending: PendingWorkload) -> str:
    order = pending.at
    return _PARKED if order is not None and order.is_parked(pending) else _ACTIVE


def _cohort(node: QuotaNode) -> str:
    return node.parent.name if node.parent is not None else ""


def _units(resource: str, amount: float) -> float:
    return amount / 1000.0 if resource == CPU else float(amount)
