"""What a timeline tells of the engine: flavors, placements, sentences of admissions, queues at the end."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from controller.insight.forecast.forecast import Forecasts
from controller.insight.forecast.shown import brief
from controller.insight.simulation.pools.nodepools import NodeChange, NodeEvent
from controller.insight.simulation.timeline import (
    End,
    Fragmentation,
    NodeEntry,
    QueueEnd,
    Spread,
    TimelinePlacement,
    Waits,
)
from controller.messages.spans import LATEST_S, exact, with_moments
from controller.objects.meta import is_true
from controller.objects.placeencoding import HOSTNAME_LABEL, Domain, decode
from controller.objects.workload import PodSetAssignment, Workload
from controller.reconcile.lifecycle.pendingcause import why
from controller.scheduler.decisions.decisions import Admitted
from controller.scheduler.engine import Engine
from controller.scheduler.model.podrequests import amounts
from controller.scheduler.model.resources import (
    CPU,
    Amount,
    FlavorName,
    FlavorResource,
    ResourceName,
    WorkloadKey,
    is_gpu,
)
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.quota.queueusage import quantity_of
from controller.scheduler.quota.shares import share
from controller.scheduler.state import podsizes
from controller.scheduler.topology.measures import Spread as Measured
from inventory.api.names import GPU_PERCENT

_MILLI = 1000
_HUNDRED = 100.0
_PERCENTS = ResourceName(GPU_PERCENT)


def flavors(workload: Workload) -> dict[str, dict[str, str]]:
    """The flavors of a workload by pod set and resource; empty if it holds no quota."""
    admission = workload.status.admission
    return (
        {}
        if admission is None
        else {
            pod_set_assignment.name: dict(pod_set_assignment.flavors)
            for pod_set_assignment in admission.pod_set_assignments
        }
    )


def fingerprint(workload: Workload) -> int:
    """A number that differs for other flavors."""
    return hash((workload.key, tuple((name, *sorted(on.items())) for name, on in flavors(workload).items())))


def placement(engine: Engine, workload: Workload) -> tuple[TimelinePlacement, ...]:
    """The domains of the pods of each set; empty without a topology."""
    admission = workload.status.admission
    return tuple(
        _place(engine, workload, pod_set_assignment, domain)
        for pod_set_assignment in (admission.pod_set_assignments if admission is not None else ())
        if pod_set_assignment.topology_assignment is not None
        for domain in decode(pod_set_assignment.topology_assignment)
    )


def _place(engine: Engine, workload: Workload, given: PodSetAssignment, domain: Domain) -> TimelinePlacement:
    """One domain of a placement. ``node`` is empty where the topology ends above the nodes."""
    levels = given.topology_assignment.levels if given.topology_assignment is not None else ()
    if levels[-1:] != (HOSTNAME_LABEL,):
        domains = dict(zip(levels, domain.values, strict=True))
        return TimelinePlacement(pod_set=given.name, node="", pods=domain.pods, domains=domains)
    node = domain.values[-1]
    planned = engine.device_plan(WorkloadKey(workload.key), given.name, node)
    return TimelinePlacement(
        pod_set=given.name,
        node=node,
        pods=domain.pods,
        devices=tuple(device for devices in planned for device in devices),
        domains=engine.state.cluster.placement.domains(node, map(FlavorName, given.flavors.values())),
    )


def fragmentation(engine: Engine, now_s: float) -> tuple[Fragmentation, ...]:
    """The fragmentation of each flavor, by the mix of requests of the whole run."""
    known = engine.state.cluster.placement
    known.begin(now_s, anew=True)
    return tuple(
        Fragmentation(flavor=before.flavor, before=_spread(before), after=_spread(after))
        for before, after in zip(known.spreads(empty=True), known.spreads(), strict=True)
    )


def _spread(given: Measured) -> Spread:
    return Spread(
        free=given.free, unusable=round(given.unusable, 3), ratio=round(given.ratio, 4), largest=dict(given.largest)
    )


def admitted(engine: Engine, key: WorkloadKey, decision: Admitted | None, now_s: float) -> str:
    """A sentence: what the workload got, how long it waited, and what its ClusterQueue borrows now."""
    holder = engine.state.cluster.holders[key]
    node = engine.state.cluster.queue(holder.cluster_queue).node
    # A claim that several share is charged after the decision.
    charged = decision.record.assignment.usage if decision is not None and decision.record.assignment else {}
    usage = {fr: amount or charged.get(fr, 0) for fr, amount in sorted(holder.usage.items())}
    got = ", ".join(
        f"{quantity_of(fr.resource, amount)} {fr.resource} of flavor {fr.flavor}"
        for fr, amount in usage.items()
        if amount
    ) or _shared(holder)
    waited_s = max(0, round(now_s - max(0.0, holder.queued_at_s)))
    sentence = f"Gets {got or 'no resources'} from ClusterQueue {holder.cluster_queue} after waiting {exact(waited_s)}"
    borrowed = [
        f"{quantity_of(fr.resource, node.borrowed(fr))} {fr.resource} of flavor {fr.flavor}"
        for fr in sorted(holder.usage)
        if node.parent is not None and node.borrowed(fr) and not engine.mirror.is_leaf(holder.cluster_queue)
    ]
    borrows = decision is None or decision.record.assignment is None or decision.record.assignment.borrowing > 0
    return f"{sentence}; the queue borrows {', '.join(borrowed)} now" if borrowed and borrows else sentence


def _shared(holder: Holder) -> str:
    """What a workload gets that is charged nothing: resources of which another one is charged the claim."""
    names = ", ".join(sorted({fr.resource for fr in holder.usage}))
    return f"{names} by a claim that another workload is charged" if names else ""


def gpus(workload: Workload) -> float:
    """The GPUs, MIG instances and parts of GPUs that a workload was given."""
    admission = workload.status.admission
    total = 0.0
    for each in admission.pod_set_assignments if admission is not None else ():
        given = amounts(each.resource_usage)
        total += sum(amount for name, amount in given.items() if is_gpu(name)) + given.get(_PERCENTS, 0) / _HUNDRED
    return total


def too_large(engine: Engine, workload: Workload) -> str | None:
    """The sentence that no node is large enough for a pod of an admitted workload; None where one is."""
    holder = engine.state.cluster.holders.get(WorkloadKey(workload.key))
    if holder is None:
        return None
    found = podsizes.too_large(engine.state.cluster, engine.state.cluster.queue(holder.cluster_queue), workload)
    return found.sentence if found is not None else None


def as_of(pending: Iterable[Waits], at: float | str) -> tuple[Waits, ...]:
    """The waiting workloads, whose forecasts have the moment of the last decision as the timeline writes moments: RFC
    3339 where the start's time is told, else seconds since the start.
    """
    return tuple(
        each if each.forecast is None else msgspec.structs.replace(each, forecast={**each.forecast, "at": at})
        for each in pending
    )


def in_virtual_time(message: str, base_s: float) -> str:
    """The message with spans since the start in place of moments: ``by 10m`` where a controller would say the day."""
    return with_moments(message, lambda at_s: exact(max(0.0, at_s - base_s)))


def nodes(log: Iterable[NodeChange], base_s: float) -> Iterator[NodeEntry]:
    """What happened to nodes of pools, and to nodes that were interrupted."""
    for change in log:
        if change.pool or change.event is not NodeEvent.READY:
            t = round(change.at_s - base_s, 6)
            yield NodeEntry(t=t, event=change.event.value, node=change.node, pool=change.pool)


def written_time(at_s: float) -> str:
    """Seconds since 1970 in RFC 3339, without the fraction of a second; the year 9999 is the last."""
    return f"{datetime.fromtimestamp(min(int(at_s), LATEST_S), UTC):%Y-%m-%dT%H:%M:%SZ}"


def end(
    engine: Engine,
    workloads: Iterable[Workload],
    forecasts: Forecasts,
    now_s: float,
    t: float,
    *,
    told: Callable[[str], str],
    awaiting: Mapping[WorkloadKey, Waits],
) -> End:
    """The state at the end. ``workloads``: those that have arrived and have not ended. ``t``: seconds since the start.
    ``told``: makes a message what is shown. ``awaiting``: workloads that hold quota and wait for nodes.
    """
    running: list[str] = []
    pending: list[Waits] = []
    for workload in workloads:
        if is_true(workload.status.conditions, "Admitted"):
            running.append(workload.key)
        elif (waits := awaiting.get(WorkloadKey(workload.key))) is not None:
            pending.append(waits)
        else:
            cause = why(engine, workload, now_s)
            starts = brief(forecasts.get(WorkloadKey(workload.key)))
            pending.append(
                Waits(
                    workload=workload.key,
                    reason=str(cause.reason),
                    message=told(cause.message),
                    forecast=starts,
                )
            )
    queues = engine.state.cluster.queues
    ends: dict[str, QueueEnd] = {name: queue_end(queues[name], engine.mirror.quota_of(name)) for name in sorted(queues)}
    return End(t=t, pending=tuple(pending), running=tuple(running), cluster_queues=ends)


def queue_end(state: QueueState, mirrored: Mapping[ResourceName, float] | None = None) -> QueueEnd:
    """A ClusterQueue at the end. ``mirrored``: the quota of the mirrored Queue, beyond which it borrows."""
    node = state.node
    usage: dict[str, int | float] = {}
    borrowed: dict[str, int | float] = {}
    largest = 0.0
    for resource, frs in _by_resource(state).items():
        used = sum(node.usage(fr) for fr in frs)
        usage[resource] = number(resource, used)
        borrows = sum(node.borrowed(fr) for fr in frs) if node.parent is not None else 0
        if mirrored is not None:
            borrows = max(0, used - int(min(mirrored.get(resource, 0.0), used)))
        borrowed[resource] = number(resource, borrows)
        limit = sum(_limit(state, fr) for fr in frs)
        if used:
            largest = max(largest, used / limit if limit else 1.0)
    return QueueEnd(usage=usage, borrowed=borrowed, share=largest, weighted_share=share(node).weighted)


def _by_resource(state: QueueState) -> dict[ResourceName, list[FlavorResource]]:
    found: dict[ResourceName, list[FlavorResource]] = {}
    for fr in state.flavor_resources:
        found.setdefault(fr.resource, []).append(fr)
    return found


def _limit(state: QueueState, fr: FlavorResource) -> Amount:
    """The greatest amount that the queue may ever use: its quota, and what it may borrow if it is in a cohort."""
    quota = state.node.spec.quotas.get(fr) if state.node.spec is not None else None
    if quota is None:
        return 0
    if state.node.parent is None:
        return quota.nominal
    if quota.borrowing_limit is None:
        return state.node.potential_available(fr)
    return quota.nominal + quota.borrowing_limit


def number(resource: ResourceName, amount: Amount) -> int | float:
    """An amount in cores, bytes or devices: an int if it is whole."""
    if resource != CPU:
        return amount
    return amount // _MILLI if amount % _MILLI == 0 else amount / _MILLI
