"""Puts records into words: a sentence for a condition, and the arithmetic below it for explanations."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from controller.messages import pending, statuses
from controller.scheduler.cluster.incoming import Move, Target, gpus_of
from controller.scheduler.decisions.records import DecisionRecord, FlavorNoFit, Rule, TakenNodes
from controller.scheduler.flavors.assignment import FlavorAttempt, Mode, QuotaNoFit
from controller.scheduler.model.resources import UNLIMITED, Amount, ClusterQueueName, ResourceName, WorkloadKey
from controller.scheduler.quota.queueusage import quantity_of
from inventory.words.catalog import plural

_SHOWN = 8
_HOLDERS_SHOWN = 3


def sentence(record: DecisionRecord) -> str:
    """The message of a condition: the rule that decided, and the number that would change the decision."""
    said = _SAYS.get(record.rule)
    if said is not None:
        return said(record.cluster_queue, record.detail)
    if record.rule in (Rule.PREEMPTS, Rule.MIGRATES):
        verb = "be preempted" if record.rule is Rule.PREEMPTS else "be evicted for a better flavor"
        if all(target.move is not None for target in record.targets):
            verb = "move to other nodes"
        return pending.waits_for_preempted(_count(record), verb, _names(record))
    return "; ".join(_no_fit(record)) or pending.nothing_fits(record.cluster_queue)


_SAYS: Final[Mapping[Rule, Callable[[str, str], str]]] = {
    Rule.FITS_AFTER_PREEMPTION: lambda _queue, _detail: pending.fits_after_preemption(),
    Rule.OVERLAPPING_TARGETS: lambda _queue, _detail: pending.same_victims(),
    Rule.NO_LONGER_FITS: lambda _queue, _detail: pending.capacity_taken(),
    Rule.PODS_NOT_READY: lambda _queue, _detail: pending.pods_not_ready(),
    Rule.SLICE_GONE: lambda _queue, detail: pending.slice_gone(detail),
    Rule.BETTER_VARIANT_ADMITTED: lambda _queue, detail: pending.better_variant_admitted(detail),
    Rule.VARIANT_NOT_ACCEPTABLE: pending.variant_not_acceptable,
    Rule.OVER_SHARE: lambda _queue, detail: detail,
    Rule.NEVER: lambda _queue, detail: detail,
    Rule.NOT_PLACED: lambda _queue, detail: pending.not_placed(detail),
    Rule.NODE_LOST: lambda _queue, detail: pending.node_lost(detail),
    Rule.HELD_BACK: lambda _queue, detail: pending.would_delay(detail),
    Rule.WRITE_FAILED: lambda _queue, detail: pending.write_failed(detail),
    Rule.PREEMPTION_GATED: lambda _queue, detail: pending.preemption_gated(detail),
    Rule.BELOW_MINIMUM: lambda _queue, detail: pending.below_minimum(detail),
    Rule.SISTERS: lambda _queue, detail: detail,
    Rule.CHECKS_FAILED: lambda _queue, detail: pending.checks_failed(detail),
    Rule.QUEUE_INACTIVE: pending.queue_inactive,
    Rule.QUEUE_MISSING: lambda queue, _detail: pending.no_cluster_queue(queue),
    Rule.NAMESPACE_MISMATCH: pending.wrong_namespace,
    Rule.BAD_REQUESTS: lambda _queue, detail: pending.bad_requests(detail),
    Rule.UNCOUNTED_CLAIMS: lambda _queue, detail: pending.uncounted_claims(detail),
}


def details(record: DecisionRecord) -> list[str]:
    """The arithmetic of a decision, a line for each flavor tried."""
    if record.assignment is None:
        return [record.detail] if record.detail else []
    lines = []
    for pod_set in record.assignment.pod_sets:
        asked = ", ".join(f"{name} {asked_for(name, amount)}" for name, amount in sorted(pod_set.requests.items()))
        lines.append(f"pod set {pod_set.name or 'main'}: {plural(pod_set.count, 'pod')}, {asked or 'no resources'}")
        lines += [f"  {problem}" for problem in pod_set.problems]
        lines += [f"  {line}" for attempt in pod_set.attempts for line in _attempt(attempt)]
    lines += [
        f"preempts {target.holder.key} ({target.reason}){loses(target)}"
        if target.move is None
        else f"moves {target.holder.key} {moves(target.move)}"
        for target in record.targets
    ]
    lines += [f"waits to preempt {target.holder.key} ({target.reason}){loses(target)}" for target in record.awaited]
    lines += [f"spares {target.holder.key} ({target.reason}){loses(target)}" for target in record.spared]
    return lines


def moves(move: Move) -> str:
    """The old and new nodes of a move, and the work that is lost by it."""
    return (
        f"from {listed(move.leaves)} to {listed(move.goes_to)}; {move.lost_gpu_s:.0f} GPU-seconds of its work are lost"
    )


def loses(target: Target) -> str:
    """What the victim loses, to be put behind a sentence; empty where that is not counted, or where it has no GPUs."""
    price = target.price
    if price is None or not gpus_of(target.holder):
        return ""
    if not price.work and not price.restart:
        return f". {statuses.victim_loses_nothing()}"
    return f". {statuses.price_of_victim(f'{price.work:.0f}', f'{price.restart:.0f}' if price.restart else '')}"


def shown(resource: ResourceName, amount: Amount) -> str:
    """A limit as Kubernetes writes it: cores with their fraction, everything else whole."""
    return "no limit" if amount >= UNLIMITED else str(quantity_of(resource, amount))


def asked_for(resource: ResourceName, amount: Amount) -> str:
    """An amount that is requested or used; sums end at the largest representable amount."""
    if amount >= UNLIMITED:
        return f"{quantity_of(resource, UNLIMITED + 1)} or more"
    return str(quantity_of(resource, amount))


def _attempt(attempt: FlavorAttempt) -> Iterator[str]:
    borrows = f", borrowing at level {attempt.borrow}" if attempt.borrow else ""
    yield f"flavor {attempt.flavor}: {_MODES[attempt.mode]}{borrows}{': ' + attempt.problem if attempt.problem else ''}"
    for shortfall in attempt.shortfalls:
        yield f"  {_shortfall(shortfall)}"


_MODES = {
    Mode.NO_FIT: "does not fit",
    Mode.NO_CANDIDATES: "would fit, but no workload may be preempted",
    Mode.PREEMPT: "fits with preemption",
    Mode.RECLAIM: "fits by reclaiming lent quota",
    Mode.FIT: "fits",
}


def _shortfall(shortfall: QuotaNoFit) -> str:
    name = shortfall.resource
    return (
        f"{name}: needs {asked_for(name, shortfall.needed)}, free {shown(name, shortfall.available)}, "
        f"quota {shown(name, shortfall.nominal)} of which used {asked_for(name, shortfall.used)}, "
        f"at most {shown(name, shortfall.potential)} with all that may be borrowed"
    )


def _no_fit(record: DecisionRecord) -> Iterator[str]:
    """The smallest change that would admit the workload, then other problems, then what is known beyond numbers."""
    missing = record.missing()
    if missing is not None:
        yield _change(missing)
    for pod_set in record.assignment.pod_sets if record.assignment is not None else ():
        if pod_set.problems:
            yield f"pod set {pod_set.name or 'main'}: {', '.join(pod_set.problems)}"
        for attempt in pod_set.attempts:
            if attempt.problem:
                yield f"flavor {attempt.flavor}: {attempt.problem}"
    if record.taken is not None:
        yield from _taken(record.taken)
    if record.detail:
        yield record.detail


def _taken(taken: TakenNodes) -> Iterator[str]:
    """The holders of nodes that are open and full, and the nodes that could take no such pod at all."""
    by = [f"{name} on {number}" for name, number in taken.by[:_HOLDERS_SHOWN]]
    if len(taken.by) > _HOLDERS_SHOWN:
        by.append(f"{len(taken.by) - _HOLDERS_SHOWN} more")
    if taken.outside:
        by.append(f"pods of no queue on {taken.outside}")
    if by:
        yield pending.full_nodes(", ".join(by))
    if taken.unfit:
        told = [f"{number} {why}" for why, number in taken.unfit[:_SHOWN]]
        yield pending.unfit_nodes(", ".join(told))


def _change(missing: FlavorNoFit) -> str:
    parts = []
    for shortfall in missing.shortfalls:
        name, flavor = shortfall.resource, missing.flavor
        needed = asked_for(name, shortfall.needed)
        if shortfall.needed > shortfall.potential:
            parts.append(pending.beyond_quota(needed, name, flavor, shown(name, shortfall.potential)))
        else:
            lacking = asked_for(name, max(shortfall.needed - shortfall.available, 0))
            parts.append(pending.short_of_quota(needed, name, flavor, shown(name, shortfall.available), lacking))
    said = ", ".join(parts)
    return said[:1].upper() + said[1:]


def _count(record: DecisionRecord) -> str:
    number = len(record.targets)
    return "1 workload" if number == 1 else f"{number} workloads"


def _names(record: DecisionRecord) -> str:
    """The victims: workloads of the reader's namespace by name, others only by their ClusterQueue."""
    own = namespace_of(record.workload)
    named = [target.holder.key for target in record.targets if namespace_of(target.holder.key) == own]
    of_others = Counter(
        target.holder.cluster_queue for target in record.targets if namespace_of(target.holder.key) != own
    )
    return listed([*named, *(workloads_of(queue, number) for queue, number in of_others.items())])


def workloads_of(queue: ClusterQueueName, number: int) -> str:
    """A phrase for ``number`` workloads whose names the reader may not see."""
    return f"a workload of queue {queue}" if number == 1 else f"{number} workloads of queue {queue}"


def told_to(reader: WorkloadKey, workload: WorkloadKey, queue: ClusterQueueName) -> str:
    """The name of a workload of ``queue`` for those who may read the namespace of ``reader``."""
    return f"workload {workload}" if namespace_of(workload) == namespace_of(reader) else workloads_of(queue, 1)


def namespace_of(workload: WorkloadKey) -> str:
    return workload.partition("/")[0]


def listed(names: Iterable[str]) -> str:
    """The first ``_SHOWN`` names, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
