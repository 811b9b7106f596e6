"""Workloads that never start as things are, by the engine's last decision, and what would have to change."""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from controller.insight.forecast.changes.sizes import Size, any_size, is_possible, largest
from controller.insight.forecast.parts import Parts
from controller.messages import forecasts as words
from controller.messages import pending as sentences
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import DecisionRecord, FlavorNoFit, Rule
from controller.scheduler.decisions.sentences import shown
from controller.scheduler.engine import Engine
from controller.scheduler.flavors.assignment import PodSetChoice
from controller.scheduler.kueue.freequota import with_nodes_asked
from controller.scheduler.model.honestunits import undeclared
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import Amount, FlavorName, LocalQueueKey, ResourceName, WorkloadKey
from controller.scheduler.queues.pending import PendingWorkload
from controller.scheduler.state.podsizes import PodSizeNoFit, too_large

HOPELESS: Final = frozenset(
    {
        PendingReason.EXCEEDS_MAX_QUOTA,
        PendingReason.NO_MATCHING_FLAVOR,
        PendingReason.TOPOLOGY_PLACEMENT_FAILED,
        PendingReason.MISCONFIGURED,
    }
)
"""Reasons that no end of another workload removes: not even an empty cluster would admit the workload."""

_NEAR: Final = 0.8
"""The least likeness of a name to correct: ``nvidia.com/gpus`` and ``nvidia.com/gpu`` have it, MIG profiles do not."""
_NUMBER: Final = re.compile(r"\d+")
_FLAVORS: Final = 3
"""Flavors that are named."""
_SIZES: Final = 8
"""Shapes whose largest possible size is searched for a round."""


_Sizes = tuple[LocalQueueKey, tuple[tuple[object, ...], ...]]
"""A LocalQueue, and of each pod set its name and the request of one pod."""


class Awaited(NamedTuple):
    """Nodes to come that are not counted on now. ``until_s``: when those of ``flavors`` are counted on again, which did
    not come in time; None where others have places on what is there or can come.
    """

    flavors: tuple[FlavorName, ...] = ()
    until_s: float | None = None


class Never(NamedTuple):
    """``clauses``: by shape a clause on what would have to change. ``repaired``: shapes that wait for nodes or devices
    that are out of service. ``oversized``: by workload the clause of one that quota admits, and no node is large enough
    for. Shapes do not tell these: a pod of 8 and 8 pods of 1 have one shape where quota alone decides. ``awaited``: the
    nodes to come that a shape waits for, which would take it.
    """

    clauses: Mapping[int, str] = {}
    repaired: Collection[int] = frozenset()
    oversized: Mapping[WorkloadKey, str] = {}
    awaited: Mapping[int, Awaited] = {}


def never_parts(
    engine: Engine, by_shape: Mapping[int, DecisionRecord], firsts: Mapping[int, PendingWorkload | None]
) -> Parts[Never]:
    """The shapes that never start. ``firsts``: the workload of each shape that was decided on. Not to be called within
    a trial.
    """
    clauses: dict[int, str] = {}
    repaired: set[int] = set()
    awaited: dict[int, Awaited] = {}
    sizes = _SIZES
    for shape, record in by_shape.items():
        if record.reason not in HOPELESS:
            continue
        yield
        pending = firsts.get(shape)
        if _may_be_repaired(engine, pending, record):
            repaired.add(shape)
        elif (nodes := awaited_of(engine, pending, record)) is not None:
            awaited[shape] = nodes
        elif told := _unless(engine, pending if sizes > 0 else None, record):
            sizes -= 1
            clauses[shape] = told
    return Never(clauses, repaired, awaited=awaited)


def never_of(engine: Engine, pending: PendingWorkload, record: DecisionRecord) -> str | None:
    """A clause on what would have to change for one workload with this decision; None for one that may start as things
    are.
    """
    record = on_free_quota(engine, pending, record)
    if record.reason not in HOPELESS:
        found = pod_too_large(engine, pending)
        return found.clause if found is not None else None
    if _may_be_repaired(engine, pending, record) or awaited_of(engine, pending, record) is not None:
        return None
    return _unless(engine, pending, record)


def awaited_of(engine: Engine, pending: PendingWorkload | None, record: DecisionRecord) -> Awaited | None:
    """The nodes to come that the workload waits for; None where none come for it. Not to be called within a trial."""
    if pending is None or record.reason is not PendingReason.TOPOLOGY_PLACEMENT_FAILED or not _may_come(engine, record):
        return None
    if not is_possible(engine, pending.info.workload):
        return None
    until_s = engine.state.cluster.coming_backoff.until_s
    resting = {flavor: at_s for flavor in dict.fromkeys(_flavors(record)) if (at_s := until_s(flavor)) is not None}
    first_s = min(resting.values(), default=None)
    return Awaited(tuple(flavor for flavor, at_s in resting.items() if at_s == first_s), first_s)


def _may_come(engine: Engine, record: DecisionRecord) -> bool:
    """Whether nodes of one of the flavors that were tried can come."""
    can_come = engine.state.cluster.placement.can_come
    return any(map(can_come, _flavors(record)))


def pod_too_large(engine: Engine, pending: PendingWorkload | None) -> PodSizeNoFit | None:
    """The pod set of which quota admits a pod that no node is large enough for."""
    queue = engine.queue_of(pending.local_queue) if pending is not None else None
    if pending is None or queue is None:
        return None
    return too_large(engine.state.cluster, queue, pending.info.workload)


class Oversized:
    """``pod_too_large`` of many: each size of pods is asked about once for each LocalQueue."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[_Sizes, PodSizeNoFit | None] = {}

    def found(self, pending: PendingWorkload) -> PodSizeNoFit | None:
        sets = pending.info.workload.spec.pod_sets
        sizes = pending.local_queue, tuple((each.name, *one_pod(each.template.spec).items()) for each in sets)
        if sizes not in self._known:
            self._known[sizes] = pod_too_large(self._engine, pending)
        return self._known[sizes]


def on_free_quota(engine: Engine, pending: PendingWorkload | None, record: DecisionRecord) -> DecisionRecord:
    """The decision with all quota free, if quota refuses the workload and no empty nodes would take it."""
    queue = engine.queue_of(pending.local_queue) if pending is not None else None
    if pending is None or queue is None:
        return record
    return with_nodes_asked(engine.state.cluster, engine.state.assigner, pending.incoming(queue), record)


def unless(record: DecisionRecord) -> str | None:
    """A clause on what would have to change for a workload that never starts as things are. None for one that may.

    None for a workload that is not valid, too: nobody knows when it is corrected or deleted.
    """
    missing = record.missing()
    match record.reason:
        case _ if record.rule is Rule.NEVER:
            return words.bound_raised(record.detail)
        case PendingReason.EXCEEDS_MAX_QUOTA if missing is not None:
            return _within(missing)
        case PendingReason.EXCEEDS_MAX_QUOTA:
            return words.nodes_take_it()
        case PendingReason.NO_MATCHING_FLAVOR:
            flavors = list(dict.fromkeys(_flavors(record)))
            more = [f"{len(flavors) - _FLAVORS} more"] if len(flavors) > _FLAVORS else []
            return words.matches_a_flavor(", ".join([*flavors[:_FLAVORS], *more]) or "none")
        case PendingReason.TOPOLOGY_PLACEMENT_FAILED:
            return words.flavor_has_nodes() if _is_nodeless(record) else words.nodes_take_it()
    return None


def _may_be_repaired(engine: Engine, pending: PendingWorkload | None, record: DecisionRecord) -> bool:
    """Whether it lacks nodes, and some take no pods now or have devices out of service of those that it asks for."""
    return pending is not None and _lacks_nodes(engine, record) and _may_grow(engine, pending)


def _may_grow(engine: Engine, pending: PendingWorkload) -> bool:
    asked = {name for pod_set in pending.info.pod_sets for name in pod_set.requests}
    devices = [name for name in asked if "/" in name]
    return engine.state.cluster.placement.may_grow(devices or asked)


def lacks_quota(record: DecisionRecord) -> bool:
    """Whether the workload asks for more than its queue can have: a window of a calendar may bring more."""
    return record.reason is PendingReason.EXCEEDS_MAX_QUOTA and record.missing() is not None


def _lacks_nodes(engine: Engine, record: DecisionRecord) -> bool:
    if record.rule is Rule.NEVER:
        return False
    if record.reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED:
        return not _is_nodeless(record) or _may_come(engine, record)
    return record.reason is PendingReason.EXCEEDS_MAX_QUOTA and not lacks_quota(record)


def _unless(engine: Engine, pending: PendingWorkload | None, record: DecisionRecord) -> str | None:
    """The clause of ``unless``, with the largest size that could start. ``pending`` None: no size is searched."""
    if uncovered := _uncovered(engine, record):
        return words.queue_covers(*uncovered)
    clause, missing = unless(record), record.missing()
    if clause == words.flavor_has_nodes() and _lacks_nodes(engine, record):
        clause = words.nodes_take_it()
    if clause is None or pending is None or record.rule is Rule.NEVER:
        return clause
    if _lacks_nodes(engine, record):
        size = largest(engine, pending.info.workload)
        if size is not None:
            return words.nodes_take_less(size.said)
        return clause if any_size(engine, pending.info.workload) else words.nodes_take_none()
    queue = engine.queue_of(pending.local_queue)
    on_nodes = queue is not None and engine.state.cluster.on_topology(queue)
    if record.reason is PendingReason.EXCEEDS_MAX_QUOTA and missing is not None and on_nodes:
        size = largest(engine, pending.info.workload)
        if size is not None and _is_less(size, missing, pending):
            less = words.quota_and_nodes_take_less(size.said)
            return words.without_what_is_out(less) if _may_grow(engine, pending) else less
    return clause


def _uncovered(engine: Engine, record: DecisionRecord) -> tuple[str, str] | None:
    """The resources that it asks for and its queue does not cover, and the one that was likely meant by the first."""
    queue = engine.state.cluster.queues.get(record.cluster_queue)
    if queue is None or record.reason is not PendingReason.NO_MATCHING_FLAVOR:
        return None
    if engine.state.assigner.ignores_undeclared:
        return None
    asked = {name for each in _pod_sets(record) for name, amount in each.requests.items() if amount}
    names = sorted(undeclared(asked, queue.group_of))
    return (", ".join(names), _nearest(names[0], queue.group_of)) if names else None


def _nearest(name: str, covered: Collection[str]) -> str:
    """Empty where none is near. Another model of GPU or another MIG profile was not meant by a name."""
    alike = [each for each in covered if _NUMBER.findall(each) == _NUMBER.findall(name)]
    return next(iter(difflib.get_close_matches(name, alike, n=1, cutoff=_NEAR)), "")


def _is_less(found: Size, missing: FlavorNoFit, pending: PendingWorkload) -> bool:
    """Whether quota alone would admit more of the workload than the nodes: a pod more, at least."""
    pods: dict[ResourceName, Amount] = {}
    for pod_set in pending.info.pod_sets:
        for name, amount in pod_set.requests.items():
            pods[name] = max(pods.get(name, 1), amount // max(1, pod_set.count))
    return any(
        each.potential - found.asks.get(each.resource, 0) >= pods.get(each.resource, 1) for each in missing.shortfalls
    )


def _is_nodeless(record: DecisionRecord) -> bool:
    """Whether the flavor selects no node: a smaller request does not help."""
    begins = sentences.no_node_has("")
    problems = (each for pod_set in _pod_sets(record) for each in pod_set.problems)
    return any(problem.startswith(begins) or problem == sentences.no_nodes() for problem in problems)


def _pod_sets(record: DecisionRecord) -> Sequence[PodSetChoice]:
    return record.assignment.pod_sets if record.assignment is not None else ()


def _within(missing: FlavorNoFit) -> str:
    beyond = [each for each in missing.shortfalls if each.needed > each.potential]
    some = [f"{shown(each.resource, each.potential)} {each.resource}" for each in beyond if each.potential > 0]
    if len(some) < len(beyond):
        none = (str(each.resource) for each in beyond if each.potential <= 0)
        return words.has_quota(f"{', '.join(none)} of flavor {missing.flavor}")
    return words.asks_for_less(f"{' and '.join(some)} of flavor {missing.flavor}")


def _flavors(record: DecisionRecord) -> Iterator[FlavorName]:
    for pod_set in _pod_sets(record):
        yield from (attempt.flavor for attempt in pod_set.attempts)
