"""Workloads that never start as things are, by the engine's last decision, and what would have to change."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from controller.engine.conditions.reasons import PendingReason
from controller.engine.conditions.records import DecisionRecord, Missing, Rule
from controller.engine.conditions.sentences import shown
from controller.engine.cycle.freequota import with_nodes_asked
from controller.engine.engine import Engine
from controller.engine.flavors.assignment import PodSetChoice
from controller.engine.model.podrequests import one_pod
from controller.engine.model.resources import Amount, LocalQueueKey, ResourceName, WorkloadKey
from controller.engine.queues.pending import PendingWorkload
from controller.engine.state.podsizes import TooLarge, too_large
from controller.forecast.parts import Parts
from controller.forecast.sizes import Size, any_size, largest
from controller.words import forecasts as words
from controller.words import pending as sentences

HOPELESS: Final = frozenset(
    {
        PendingReason.EXCEEDS_MAX_QUOTA,
        PendingReason.NO_MATCHING_FLAVOR,
        PendingReason.TOPOLOGY_PLACEMENT_FAILED,
        PendingReason.MISCONFIGURED,
    }
)
"""No end of another workload helps: not even an empty cluster would."""

_FLAVORS: Final = 3
"""So many are named."""
_SIZES: Final = 8
"""Shapes of which the largest size that could start is looked for a round."""


_Sizes = tuple[LocalQueueKey, tuple[tuple[object, ...], ...]]
"""A LocalQueue, and of each pod set its name and the request of one pod."""


class Never(NamedTuple):
    """By shape what would have to change: a clause. ``repaired``: shapes that wait for what is out of service.
    ``oversized``: by workload the clause of one that quota admits, and no node is large enough for. Shapes do not tell
    these: a pod of 8 and 8 pods of 1 have one shape where quota alone decides.
    """

    clauses: Mapping[int, str] = {}
    repaired: Collection[int] = frozenset()
    oversized: Mapping[WorkloadKey, str] = {}


def never_parts(
    engine: Engine, by_shape: Mapping[int, DecisionRecord], firsts: Mapping[int, PendingWorkload | None]
) -> Parts[Never]:
    """``firsts``: of each shape the workload that was decided on. Outside of trials."""
    clauses: dict[int, str] = {}
    repaired: set[int] = set()
    sizes = _SIZES
    for shape, record in by_shape.items():
        if record.reason not in HOPELESS:
            continue
        yield
        pending = firsts.get(shape)
        if _may_be_repaired(engine, pending, record):
            repaired.add(shape)
        elif told := _unless(engine, pending if sizes > 0 else None, record):
            sizes -= 1
            clauses[shape] = told
    return Never(clauses, repaired)


def never_of(engine: Engine, pending: PendingWorkload, record: DecisionRecord) -> str | None:
    """What would have to change for one workload that was decided so; None for one that may start as things are."""
    record = on_free_quota(engine, pending, record)
    if record.reason not in HOPELESS:
        found = pod_too_large(engine, pending)
        return found.clause if found is not None else None
    if _may_be_repaired(engine, pending, record):
        return None
    return _unless(engine, pending, record)


def pod_too_large(engine: Engine, pending: PendingWorkload | None) -> TooLarge | None:
    """The pod set of which quota admits a pod that no node is large enough for."""
    queue = engine.queue_of(pending.local_queue) if pending is not None else None
    if pending is None or queue is None:
        return None
    return too_large(engine.state.cluster, queue, pending.info.workload)


class Oversized:
    """``pod_too_large`` of many: each size of pods is asked about once for each LocalQueue."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[_Sizes, str | None] = {}

    def clause(self, pending: PendingWorkload) -> str | None:
        sets = pending.info.workload.spec.pod_sets
        sizes = pending.local_queue, tuple((each.name, *one_pod(each.template.spec).items()) for each in sets)
        if sizes not in self._known:
            found = pod_too_large(self._engine, pending)
            self._known[sizes] = found.clause if found is not None else None
        return self._known[sizes]


def on_free_quota(engine: Engine, pending: PendingWorkload | None, record: DecisionRecord) -> DecisionRecord:
    """The decision where quota is all free, for one that quota refuses and no empty nodes would take."""
    queue = engine.queue_of(pending.local_queue) if pending is not None else None
    if pending is None or queue is None:
        return record
    return with_nodes_asked(engine.state.cluster, engine.state.assigner, pending.incoming(queue), record)


def unless(record: DecisionRecord) -> str | None:
    """What would have to change for a workload that never starts as things are: a clause. None for one that may.

    A workload that is not valid is mended or deleted, and nobody knows when: of it nothing is said.
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
    return pending is not None and _lacks_nodes(record) and _may_grow(engine, pending)


def _may_grow(engine: Engine, pending: PendingWorkload) -> bool:
    asked = {name for pod_set in pending.info.pod_sets for name in pod_set.requests}
    devices = [name for name in asked if "/" in name]
    return engine.state.cluster.placement.may_grow(devices or asked)


def _lacks_nodes(record: DecisionRecord) -> bool:
    if record.rule is Rule.NEVER:
        return False
    if record.reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED:
        return not _is_nodeless(record)
    return record.reason is PendingReason.EXCEEDS_MAX_QUOTA and record.missing() is None


def _unless(engine: Engine, pending: PendingWorkload | None, record: DecisionRecord) -> str | None:
    """As ``unless``, with the largest size that could start; ``pending`` None: no size is looked for."""
    told, missing = unless(record), record.missing()
    if told is None or pending is None or record.rule is Rule.NEVER:
        return told
    if _lacks_nodes(record):
        found = largest(engine, pending.info.workload)
        if found is not None:
            return words.nodes_take_less(found.said)
        return told if any_size(engine, pending.info.workload) else words.nodes_take_none()
    queue = engine.queue_of(pending.local_queue)
    on_nodes = queue is not None and engine.state.cluster.on_topology(queue)
    if record.reason is PendingReason.EXCEEDS_MAX_QUOTA and missing is not None and on_nodes:
        found = largest(engine, pending.info.workload)
        if found is not None and _is_less(found, missing, pending):
            less = words.quota_and_nodes_take_less(found.said)
            return words.without_what_is_out(less) if _may_grow(engine, pending) else less
    return told


def _is_less(found: Size, missing: Missing, pending: PendingWorkload) -> bool:
    """Whether quota would let in more of it than could start: a pod more, at least."""
    pods: dict[ResourceName, Amount] = {}
    for pod_set in pending.info.pod_sets:
        for name, amount in pod_set.requests.items():
            pods[name] = max(pods.get(name, 1), amount // max(1, pod_set.count))
    return any(
        each.potential - found.asks.get(each.resource, 0) >= pods.get(each.resource, 1) for each in missing.shortfalls
    )


def _is_nodeless(record: DecisionRecord) -> bool:
    """Whether the flavor selects no node: asking for less does not help."""
    begins = sentences.no_node_has("")
    problems = (each for pod_set in _pod_sets(record) for each in pod_set.problems)
    return any(problem.startswith(begins) or problem == sentences.no_nodes() for problem in problems)


def _pod_sets(record: DecisionRecord) -> Sequence[PodSetChoice]:
    return record.assignment.pod_sets if record.assignment is not None else ()


def _within(missing: Missing) -> str:
    beyond = [each for each in missing.shortfalls if each.needed > each.potential]
    some = [f"{shown(each.resource, each.potential)} {each.resource}" for each in beyond if each.potential > 0]
    if len(some) < len(beyond):
        none = (str(each.resource) for each in beyond if each.potential <= 0)
        return words.has_quota(f"{', '.join(none)} of flavor {missing.flavor}")
    return words.asks_for_less(f"{' and '.join(some)} of flavor {missing.flavor}")


def _flavors(record: DecisionRecord) -> Iterator[str]:
    for pod_set in _pod_sets(record):
        yield from (attempt.flavor for attempt in pod_set.attempts)
