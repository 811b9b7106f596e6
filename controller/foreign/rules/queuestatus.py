"""The status of Volcano's and KAI's Queues, as ``kubectl get`` shows it if their own controllers run. Pure.

The status of a Queue with others below it has the sums of theirs. Keys that are not here are left alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from controller.foreign.objects.kai import KaiQueue
from controller.foreign.objects.volcanoqueue import VolcanoQueue
from controller.objects.meta import KubernetesObject, to_json
from controller.objects.quantity import Quantity
from controller.scheduler.engine import Engine
from controller.scheduler.mirror.specs import KAI_RESOURCES, MirroredName, QueueOwner, QueueSpec, System, system_of
from controller.scheduler.model.resources import Amount, ClusterQueueName, ResourceName
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.quota.queueusage import quantity_of, sums
from controller.scheduler.volcano.tree import counted, is_preemptible

_REFUSED = "Refused"
"""The type of the condition of a KAI Queue that is refused."""


class Load(msgspec.Struct):
    """The workloads of a Queue and those below it. ``allocated``: amounts of workloads with quota, ``kept``: of those
    among them that are not preemptible, ``requested``: of all. ``inqueue``: the number of workloads with quota that may
    not start yet; ``unknown``: of those that were evicted and still run.
    """

    allocated: Counter[ResourceName] = msgspec.field(default_factory=Counter)
    kept: Counter[ResourceName] = msgspec.field(default_factory=Counter)
    requested: Counter[ResourceName] = msgspec.field(default_factory=Counter)
    running: int = 0
    inqueue: int = 0
    unknown: int = 0
    pending: int = 0


Loads = Mapping[tuple[System, MirroredName], Load]


def loads(engine: Engine) -> Loads:
    """The loads of all accepted Queues."""
    forest, cluster = engine.mirror.queues, engine.state.cluster
    by_queue = {(spec.system, name): Load() for name, spec in forest.queues.items()}

    def above(spec: QueueSpec) -> Iterable[Load]:
        return (by_queue[each.system, each.name] for each in forest.path(spec.name))

    for spec in forest.leaves():
        state = cluster.queues.get(ClusterQueueName(spec.name))
        holders = tuple(state.holders.values()) if state is not None else ()
        reserved = _reserved(holders)
        kept = _reserved(each for each in holders if not is_preemptible(each.info, each.priority, spec.system))
        for load in above(spec):
            load.allocated.update(reserved)
            load.kept.update(kept)
            load.requested.update(reserved)
            load.unknown += sum(each.evicted for each in holders)
            load.inqueue += sum(not each.evicted and not each.admitted for each in holders)
            load.running += sum(not each.evicted and each.admitted for each in holders)
    for pending in engine.state.queues:
        queue = cluster.local_queues.get(pending.local_queue)
        if queue is None or not engine.mirror.is_leaf(queue.spec.cluster_queue):
            continue
        for load in above(forest.queues[MirroredName(queue.spec.cluster_queue)]):
            load.requested.update(pending.info.usage().unassigned)
            load.pending += 1
    return by_queue


def _reserved(holders: Iterable[Holder]) -> Counter[ResourceName]:
    found = Counter[ResourceName]()
    for cell, amount in sums(holders)[0].items():
        found[cell.resource] += amount
    return found


def status(engine: Engine, given: QueueOwner, known: Loads) -> dict[str, Any]:
    """The status keys that this controller writes. ``known``: the loads of all Queues."""
    name = MirroredName(given.metadata.name)
    load = known.get((system_of(type(given)), name), Load())
    problem = engine.mirror.problem(type(given), name)
    if isinstance(given, VolcanoQueue):
        return _of_volcano(given, load, refused=bool(problem), closed_above=_closed_above(engine, given))
    children = [spec.name for spec in engine.mirror.queues.queues.values() if (spec.system, spec.parent) == _kai(name)]
    return _of_kai(given, load, children, problem)


def _kai(name: MirroredName) -> tuple[System, MirroredName]:
    return System.KAI, name


def is_open(given: KubernetesObject) -> bool:
    """Whether the object lets jobs in by its own status: False for a Queue of Volcano that is closed."""
    return not isinstance(given, VolcanoQueue) or given.status.open


def mark(engine: Engine, given: VolcanoQueue) -> str | None:
    """The value of ``CLOSED_BY_PARENT`` for the Queue; None if it is right already.

    The annotation is set before the state is closed and removed once the state is open again: if the writer ends
    between the two, the next one knows who closed the Queue.
    """
    if not given.status.open:
        return None
    above = _closed_above(engine, given)
    return None if above == given.closed_by_parent else "true" if above else "false"


def _closed_above(engine: Engine, given: VolcanoQueue) -> bool:
    """Whether a Queue above it is closed."""
    queues, name = engine.mirror.queues, MirroredName(given.metadata.name)
    spec = queues.queues.get(name)
    if spec is None or spec.system is not System.VOLCANO:
        return False
    return any(above.stopped for above in queues.path(spec.parent))


def _of_volcano(given: VolcanoQueue, load: Load, *, refused: bool, closed_above: bool) -> dict[str, Any]:
    """Volcano's status. A Queue that is closed, itself or by one above it, is Closed once none of its workloads
    runs.
    """
    state: str = given.status.state
    if given.closed_by_parent and not closed_above:
        state = "Open"
    elif given.closed_by_parent and state != "Closed":
        state = "Closing"
    if state == "Closing" and not (load.running or load.inqueue or load.unknown):
        state = "Closed"
    elif state not in ("Closed", "Closing"):
        state = "Unknown" if refused else "Open"
    return {
        "state": state,
        "allocated": _shown(load.allocated, given.status.allocated),
        "running": load.running,
        "inqueue": load.inqueue,
        "unknown": load.unknown,
        "pending": load.pending,
    }


def _of_kai(given: KaiQueue, load: Load, children: list[MirroredName], problem: str) -> dict[str, Any]:
    status = {
        "childQueues": sorted(children),
        "allocated": _counted(load.allocated, given.status.allocated),
        "allocatedNonPreemptible": _counted(load.kept, given.status.allocated_non_preemptible),
        "requested": _counted(load.requested, given.status.requested),
    }
    conditions = given.status.conditions
    before = next((each for each in conditions if each.type == _REFUSED), None)
    if problem and (before is None or before.message != problem):
        why = {"type": _REFUSED, "status": "True", "reason": "NotMirrored", "message": problem}
        others = to_json(tuple(each for each in conditions if each.type != _REFUSED))
        return {**status, "conditions": [*others, why]}
    if not problem and before is not None:
        return {**status, "conditions": to_json(tuple(each for each in conditions if each.type != _REFUSED))}
    return status


def _counted(amounts: Mapping[ResourceName, Amount], before: Mapping[str, Quantity]) -> dict[str, Any]:
    """Amounts as KAI counts them, in its three resources: parts of GPUs are GPUs."""
    whole = {**{ResourceName(name): 0.0 for name in (*before, *KAI_RESOURCES)}, **counted(amounts, System.KAI)}
    units = {name: (quantity_of(name, 1), amount) for name, amount in sorted(whole.items())}
    shown: dict[str, Any] = to_json(
        {name: Quantity(round(unit.nanos * amount), unit.format) for name, (unit, amount) in units.items()}
    )
    return shown


def _shown(amounts: Mapping[ResourceName, Amount], before: Mapping[str, Quantity]) -> dict[str, Any]:
    """Amounts as JSON. A resource that was there and is gone has 0: a patch does not remove a key by leaving it out."""
    whole = {**{ResourceName(name): 0 for name in before}, **amounts}
    shown: dict[str, Any] = to_json({name: quantity_of(name, amount) for name, amount in sorted(whole.items())})
    return shown
