"""Why a workload is not tried at all: it may not queue, or its queues take nothing in."""

from typing import NamedTuple

from controller.engine.conditions import reasons
from controller.engine.conditions.reasons import PendingReason
from controller.engine.engine import Engine
from controller.engine.model.gates import FeatureGates
from controller.engine.model.resources import ClusterQueueName, LocalQueueKey
from controller.engine.state.activity import local_queue_problem
from controller.engine.state.intake import ADMISSION_GATED_BY
from controller.objects.meta import find_condition, is_true
from controller.objects.workload import Workload


class Blocked(NamedTuple):
    """Reason and message of the condition QuotaReserved=False."""

    reason: PendingReason
    message: str


def held_back(workload: Workload, gates: FeatureGates) -> Blocked | None:
    """Why the workload may not queue: it is inactive, gated, or on hold; None for one that may."""
    conditions = workload.status.conditions
    requeued = find_condition(conditions, reasons.REQUEUED)
    if not workload.spec.active or is_true(conditions, reasons.DEACTIVATION_TARGET):
        cause = requeued.message if requeued is not None and requeued.status == "False" else ""
        return Blocked(PendingReason.DEACTIVATED, cause or "The workload is not active (spec.active is false)")
    if gated := gates_of(workload, gates):
        return Blocked(PendingReason.ADMISSION_GATED, f"Held back by {gated}")
    if requeued is not None and requeued.status == "False":
        return Blocked(PendingReason.ON_HOLD, requeued.message)
    return None


def gates_of(workload: Workload, gates: FeatureGates) -> str:
    """The gates that keep it out of the queue, as its annotation lists them; empty for none."""
    return workload.metadata.annotations.get(ADMISSION_GATED_BY, "") if gates.on("AdmissionGatedBy") else ""


def blocked_by_queues(engine: Engine, key: LocalQueueKey) -> Blocked | None:
    """What of its queues keeps a workload of this LocalQueue from being tried; None where they take it in."""
    cluster = engine.state.cluster
    local = cluster.local_queues.get(key)
    if local is None:
        return Blocked(PendingReason.MISCONFIGURED, f"There is no LocalQueue {key}")
    name = ClusterQueueName(local.spec.cluster_queue)
    problems = engine.inactive(name) if name in cluster.queues else ()
    found = local_queue_problem(local, cluster, queue_active=not problems)
    if found is None:
        return None
    if found.reason == "ClusterQueueDoesNotExist":
        return Blocked(PendingReason.MISCONFIGURED, found.message)
    return Blocked(PendingReason.SUSPENDED, f"{found.message}: {problems[0].message}" if problems else found.message)
