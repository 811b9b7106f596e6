"""Units of a LocalQueue that would be admitted now, for autoscalers. Pure: every try is without effect.

A unit is a pod of one shape that ``tessera.dev/units`` names. Each flavor is tried by itself, at the priority of a job
that names no class, and nothing is evicted: an autoscaler that makes so many pods makes none that waits.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from controller.insight.forecast.changes.changes import EndsAt, admits
from controller.insight.forecast.changes.inline import in_line
from controller.insight.forecast.closed import opens_when
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.promised import promised_parts
from controller.objects.decode import KUEUE, decode
from controller.objects.queues import LocalQueue
from controller.objects.queueunits import UnitsError, UnitShape, unit_shapes
from controller.objects.workload import Workload
from controller.scheduler.engine import Engine
from controller.scheduler.flavors.plan import ALLOWED_FLAVORS
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import Amount, FlavorName, LocalQueueKey, ResourceName, WorkloadKey
from controller.scheduler.quota.queuestate import QueueState
from inventory.api.names import FLAVORS_GIVEN_UP

MOST_UNITS: Final = 1024
"""Units of one shape and flavor that are counted: more are told as so many."""
MOST_ROWS: Final = 200
"""Units and flavors that are counted for one page of metrics: those of the first LocalQueues by namespace and name."""
_NAME: Final = "unit"


class UnitCount(NamedTuple):
    """``admissible``: units that would be admitted now beside what runs. ``held``: units that what the LocalQueue holds
    of this flavor is worth.
    """

    unit: str
    flavor: str
    priority: int
    admissible: int
    held: int


def annotated(engine: Engine) -> tuple[LocalQueue, ...]:
    """The LocalQueues that name units, in order."""
    queues = engine.state.cluster.local_queues
    return tuple(queues[key] for key in sorted(queues) if shapes_of(queues[key]))


def count_parts(engine: Engine, queue: LocalQueue, priority: int, now_s: float) -> Parts[list[UnitCount]]:
    """The counts of a LocalQueue, by unit and flavor; none for an annotation that is not right, and where the
    ClusterQueue is not there. Nothing is admissible while either queue takes nothing in; what runs in one that drains
    is on its way out and counts no more. A pause follows each try.
    """
    counts: list[UnitCount] = []
    key = LocalQueueKey(queue.key)
    state = engine.queue_of(key)
    for shape in shapes_of(queue) if state is not None else ():
        assert state is not None
        for flavor in flavors_of(state, shape):
            units, held = 0, 0 if _is_draining(queue, state) else _held(state, queue, shape, flavor)
            if opens_when(engine, key) is None:
                units = yield from most_parts(engine, state, queue, shape, flavor, priority, now_s)
            counts.append(UnitCount(shape.name, flavor, priority, units, held))
            yield
    return counts


def next_parts(
    engine: Engine,
    queue: LocalQueue,
    count: UnitCount,
    now_s: float,
    ends_at: EndsAt,
    lasts_s: Callable[[WorkloadKey], float | None],
) -> Parts[float | None]:
    """When one unit more than ``count`` says would be admitted, in seconds since 1970, if everything that holds quota
    ends when it says and nothing is evicted for it. None where no end is known, and while the queue takes nothing in.
    ``ends_at``, ``lasts_s``: see ``promised_parts``.
    """
    key = LocalQueueKey(queue.key)
    state = engine.queue_of(key)
    shape = next((each for each in shapes_of(queue) if each.name == count.unit), None)
    if state is None or shape is None or opens_when(engine, key) is not None:
        return None
    others = [name for name in flavors_of(state, shape) if name != count.flavor]
    units, priority = count.admissible + 1, count.priority
    made = unit_workload(queue, shape, units, only=count.flavor, others=others, priority=priority, now_s=now_s)
    pending = engine.as_pending(made)
    record = engine.tried(pending, now_s)
    start = yield from promised_parts(engine, pending, record, now_s, ends_at, lasts_s, evicts=False)
    return start.start_s


def _is_draining(queue: LocalQueue, state: QueueState) -> bool:
    return "HoldAndDrain" in (state.policies.stop, queue.spec.stop_policy)


def flavors_of(state: QueueState, shape: UnitShape) -> tuple[FlavorName, ...]:
    """The flavors that a unit may get, in order: of the group that has most of its resources."""
    asked = set(shape.requests)
    best = max(state.groups, key=lambda group: len(asked & set(group.resources)), default=None)
    return best.flavors if best is not None and asked & set(best.resources) else ()


def unit_workload(
    queue: LocalQueue, shape: UnitShape, units: int, *, only: str, others: Iterable[str], priority: int, now_s: float
) -> Workload:
    """A Workload of so many units that takes the flavor ``only``, and none of ``others``."""
    asked = {name: str(amount) for name, amount in shape.requests.items()}
    container = {"name": "unit", "image": "none", "resources": {"requests": asked, "limits": asked}}
    without = ",".join(others)
    body: dict[str, Any] = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {
            "name": _NAME,
            "namespace": queue.metadata.namespace,
            "uid": "~",
            "creationTimestamp": datetime.fromtimestamp(now_s, UTC).isoformat(),
            "annotations": {ALLOWED_FLAVORS: only, **({FLAVORS_GIVEN_UP: without} if without else {})},
        },
        "spec": {
            "queueName": queue.metadata.name,
            "priority": priority,
            "podSets": [{"name": "main", "count": units, "template": {"spec": {"containers": [container]}}}],
        },
    }
    return decode(body, Workload)


def most_parts(
    engine: Engine, state: QueueState, queue: LocalQueue, shape: UnitShape, flavor: str, priority: int, now_s: float
) -> Parts[int]:
    """The largest number of units that would start now on this flavor without any eviction, ``MOST_UNITS`` at most. The
    number of tries is twice its logarithm; a pause follows each.
    """
    others = [name for name in flavors_of(state, shape) if name != flavor]
    one = unit_workload(queue, shape, 1, only=flavor, others=others, priority=priority, now_s=now_s)
    if state.policies.strict_fifo and in_line(engine, engine.as_pending(one), state) != []:
        return 0
    replace = msgspec.structs.replace

    def fits(units: int) -> bool:
        sets = tuple(replace(each, count=units) for each in one.spec.pod_sets)
        record = engine.tried(engine.as_pending(replace(one, spec=replace(one.spec, pod_sets=sets))), now_s)
        given = record.assignment.pod_sets if record is not None and record.assignment is not None else ()
        on = {choice.flavor for each in given for choice in each.choices.values()}
        return admits(record) and on == {flavor}

    low, high = 0, 1
    while high <= MOST_UNITS and fits(high):
        low, high = high, high * 2
        yield
    while high - low > 1 and high <= MOST_UNITS:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
        yield
    return low


def _held(state: QueueState, queue: LocalQueue, shape: UnitShape, flavor: FlavorName) -> int:
    """The units that what the LocalQueue holds of a flavor is worth, rounded down."""
    used: dict[ResourceName, Amount] = {}
    for fr, amount in state.held_through(LocalQueueKey(queue.key)):
        if fr.flavor == flavor:
            used[fr.resource] = used.get(fr.resource, 0) + amount
    asked = unit_workload(queue, shape, 1, only=flavor, others=(), priority=0, now_s=0.0).spec.pod_sets[0]
    each = {name: amount for name, amount in one_pod(asked.template.spec).items() if name in state.group_of and amount}
    return min((used.get(name, 0) // amount for name, amount in each.items()), default=0)


def shapes_of(queue: LocalQueue) -> tuple[UnitShape, ...]:
    """The shapes that the LocalQueue names; none where its annotation is not right."""
    try:
        return unit_shapes(queue.metadata.annotations)
    except UnitsError:
        return ()
