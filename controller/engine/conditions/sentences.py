"""Records in words: a sentence for a condition, and the arithmetic below it for explanations."""

from collections.abc import Iterable, Iterator

from controller.engine.cluster.incoming import Move
from controller.engine.conditions.records import DecisionRecord, Missing, Rule, TakenNodes
from controller.engine.flavors.assignment import FlavorAttempt, Mode, Shortfall
from controller.engine.model.resources import UNLIMITED, Amount, ResourceName
from controller.engine.quota.queueusage import quantity_of

_SHOWN = 8
_HOLDERS_SHOWN = 3


def sentence(record: DecisionRecord) -> str:
    """What a condition says: the rule that decided, and the number that would change it."""
    said = _SAYS.get(record.rule)
    if said is not None:
        return said.format(queue=record.cluster_queue, detail=record.detail)
    if record.rule in (Rule.PREEMPTS, Rule.MIGRATES):
        verb = "be preempted" if record.rule is Rule.PREEMPTS else "be evicted for a better flavor"
        if all(target.move is not None for target in record.targets):
            verb = "move to other nodes"
        return f"Waits for {_count(record)} to {verb}: {_names(record)}"
    return "; ".join(_no_fit(record)) or f"Nothing fits in ClusterQueue {record.cluster_queue} now"


def uncounted(problem: str) -> str:
    """Why claims of devices keep a workload from queueing."""
    return f"Its claims of devices cannot be counted: {problem}"


_SAYS = {
    Rule.FITS_AFTER_PREEMPTION: "Fits once the workloads that are being preempted for others have stopped",
    Rule.OVERLAPPING_TARGETS: "Another workload preempts the same victims; it is tried again in the next cycle",
    Rule.NO_LONGER_FITS: "Another workload was admitted to the capacity it needs; it is tried again in the next cycle",
    Rule.PODS_NOT_READY: "Waits until the pods of all admitted workloads are ready",
    Rule.SLICE_GONE: "The workload slice it replaces is being evicted: {detail}",
    Rule.BETTER_VARIANT_ADMITTED: "A variant of the same job on a better flavor holds quota: {detail}",
    Rule.VARIANT_NOT_ACCEPTABLE: "ClusterQueue {queue} takes no variant on flavor {detail} while another one runs",
    Rule.OVER_SHARE: "{detail}",
    Rule.NOT_PLACED: "No place for its pods yet: {detail}",
    Rule.NODE_LOST: "A node is lost and no other takes its pods: {detail}",
    Rule.HELD_BACK: "Fits, but would delay {detail}",
    Rule.WRITE_FAILED: "The admission could not be written: {detail}",
    Rule.PREEMPTION_GATED: "Needs preemption, and its preemption gates are closed: {detail}",
    Rule.BELOW_MINIMUM: "Waits for {detail}, the minimum of its gang, to hold quota",
    Rule.CHECKS_FAILED: "Admission checks rejected it: {detail}",
    Rule.QUEUE_INACTIVE: "ClusterQueue {queue} is not active: {detail}",
    Rule.QUEUE_MISSING: "There is no ClusterQueue {queue}",
    Rule.NAMESPACE_MISMATCH: "ClusterQueue {queue} does not take workloads of namespace {detail}",
    Rule.BAD_REQUESTS: "Its requests are not valid: {detail}",
    Rule.UNCOUNTED_CLAIMS: uncounted("{detail}"),
}


def details(record: DecisionRecord) -> list[str]:
    """The arithmetic, a line for each flavor tried."""
    if record.assignment is None:
        return [record.detail] if record.detail else []
    lines = []
    for pod_set in record.assignment.pod_sets:
        asked = ", ".join(f"{name} {shown(name, amount)}" for name, amount in sorted(pod_set.requests.items()))
        lines.append(f"pod set {pod_set.name or 'main'}: {pod_set.count} pods, {asked or 'no resources'}")
        lines += [f"  {problem}" for problem in pod_set.problems]
        lines += [f"  {line}" for attempt in pod_set.attempts for line in _attempt(attempt)]
    lines += [
        f"preempts {target.holder.key} ({target.reason})"
        if target.move is None
        else f"moves {target.holder.key} {moves(target.move)}"
        for target in record.targets
    ]
    return lines


def moves(move: Move) -> str:
    """From where to where, and what is lost by it."""
    return (
        f"from {listed(move.leaves)} to {listed(move.goes_to)}; {move.lost_gpu_s:.0f} GPU-seconds of its work are lost"
    )


def shown(resource: ResourceName, amount: Amount) -> str:
    """An amount as Kubernetes writes it: cores with their fraction, everything else whole."""
    return "no limit" if amount >= UNLIMITED else str(quantity_of(resource, amount))


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


def _shortfall(shortfall: Shortfall) -> str:
    name = shortfall.resource
    return (
        f"{name}: needs {shown(name, shortfall.needed)}, free {shown(name, shortfall.available)}, "
        f"quota {shown(name, shortfall.nominal)} of which used {shown(name, shortfall.used)}, "
        f"at most {shown(name, shortfall.potential)} with all that may be borrowed"
    )


def _no_fit(record: DecisionRecord) -> Iterator[str]:
    """The smallest change that would admit it, then the other problems, then what is known beside numbers."""
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
    """Of the nodes that are open and full: by whom, and which could take no such pod at all."""
    by = [f"{name} on {number}" for name, number in taken.by[:_HOLDERS_SHOWN]]
    if len(taken.by) > _HOLDERS_SHOWN:
        by.append(f"{len(taken.by) - _HOLDERS_SHOWN} more")
    if taken.outside:
        by.append(f"pods of no queue on {taken.outside}")
    if by:
        yield f"full nodes are taken by {', '.join(by)}"
    if taken.unfit:
        told = [f"{number} {why}" for why, number in taken.unfit[:_SHOWN]]
        yield f"nodes that do not fit: {', '.join(told)}"


def _change(missing: Missing) -> str:
    parts = []
    for shortfall in missing.shortfalls:
        name, flavor = shortfall.resource, missing.flavor
        asks = f"{shown(name, shortfall.needed)} {name} of flavor {flavor}"
        if shortfall.needed > shortfall.potential:
            parts.append(f"asks for {asks} where the queue can have {shown(name, shortfall.potential)} at most")
        else:
            lacking = shown(name, max(shortfall.needed - shortfall.available, 0))
            parts.append(f"needs {asks}: {shown(name, shortfall.available)} free, {lacking} more needed")
    said = ", ".join(parts)
    return said[:1].upper() + said[1:]


def _count(record: DecisionRecord) -> str:
    number = len(record.targets)
    return "1 workload" if number == 1 else f"{number} workloads"


def _names(record: DecisionRecord) -> str:
    return listed(target.holder.key for target in record.targets)


def listed(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    every = list(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more
