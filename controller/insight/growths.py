"""How far a gang runs that was admitted with a part of its pods, and which Workload waits for the rest: its growth
(decision 183).
"""

from typing import Any

from controller.messages.statuses import runs_with_part
from controller.objects.meta import is_true
from controller.objects.workload import Workload, admitted_pods
from controller.scheduler.engine import Engine
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.model.workload import is_growth
from controller.scheduler.state.intake import SLICE_REPLACES

Json = dict[str, Any]


def base_of(workload: Workload) -> WorkloadKey | None:
    """The Workload of the gang that a growth is to replace; None for any other workload."""
    said = workload.metadata.annotations.get(SLICE_REPLACES) if is_growth(workload) else None
    return None if said is None else WorkloadKey(said)


def growth_shown(engine: Engine, workload: Workload) -> Json | None:
    """The pods with which the gang runs, of those that it asks for; None for a workload that neither is a growth that
    waits nor has one.
    """
    key = base_of(workload)
    base = workload if key is None else engine.state.workloads.objects.get(key)
    growth = _growth_of(engine, workload) if key is None else WorkloadKey(workload.key)
    if base is None or base.status.admission is None or growth is None:
        return None
    grown = key is not None and is_true(workload.status.conditions, "QuotaReserved")
    if grown or is_true(base.status.conditions, "Finished"):
        return None
    sets = {each.name: each for each in base.spec.pod_sets}
    given = (each for each in base.status.admission.pod_set_assignments if each.name in sets)
    runs, of = sum(admitted_pods(sets[each.name], each) for each in given), sum(one.count for one in sets.values())
    said = runs_with_part(str(runs), str(of), growth)
    return {"workload": str(growth), "runs": runs, "of": of, "sentence": said}


def _growth_of(engine: Engine, base: Workload) -> WorkloadKey | None:
    """The growth that waits for the rest of the gang's pods; None where there is none."""
    if base.status.admission is None or all(each.min_count is None for each in base.spec.pod_sets):
        return None
    queues, name = engine.state.queues, ClusterQueueName(base.status.admission.cluster_queue)
    waiting = (*queues.active(name), *queues.parked(name))
    return next((each.key for each in waiting if base_of(each.info.workload) == base.key), None)
