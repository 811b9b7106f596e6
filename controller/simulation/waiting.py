"""Why a workload waits that no cycle gets to see: its queue leads nowhere, is stopped, or it may not queue."""

from controller.engine.conditions.decisions import Pending
from controller.engine.conditions.reasons import PendingReason
from controller.engine.conditions.records import Rule
from controller.engine.conditions.sentences import sentence
from controller.engine.engine import Engine
from controller.engine.model.resources import ClusterQueueName, WorkloadKey
from controller.engine.state.activity import Inactive, local_queue_problem
from controller.engine.state.intake import local_queue_of
from controller.lifecycle.heldback import held_back
from controller.objects.workload import Workload

_STOPPED = ("Stopped", "ClusterQueueIsInactive")


def why(engine: Engine, workload: Workload, now_s: float) -> Inactive:
    """The reason code of its condition QuotaReserved=False, and the sentence, by the numbers of this moment."""
    problem = out_of_reach(engine, workload)
    pending = engine.explain(WorkloadKey(workload.key), now_s) if problem is None else None
    if problem is not None or pending is None:
        return problem or Inactive(PendingReason.PENDING_EVALUATION, "Its turn has not come yet")
    return told(pending)


def told(pending: Pending) -> Inactive:
    if pending.record.rule is Rule.FITS:
        return Inactive(PendingReason.PENDING_EVALUATION, "It fits by itself: those before it in line go first")
    return Inactive(pending.reason.value, sentence(pending.record))


def out_of_reach(engine: Engine, workload: Workload) -> Inactive | None:
    """What keeps the workload from being tried at all; None where it is tried."""
    held = held_back(workload, engine.state.config.gates)
    if held is not None:
        return held
    key = local_queue_of(workload)
    cluster = engine.state.cluster
    local = cluster.local_queues.get(key)
    if local is None:
        return Inactive(PendingReason.MISCONFIGURED, f"There is no LocalQueue {key}")
    name = ClusterQueueName(local.spec.cluster_queue)
    problems = engine.inactive(name) if name in cluster.queues else ()
    found = local_queue_problem(local, cluster, queue_active=not problems)
    if found is None:
        return None
    message = f"{found.message}: {problems[0].message}" if problems and found.reason in _STOPPED else found.message
    return Inactive(PendingReason.SUSPENDED if found.reason in _STOPPED else PendingReason.MISCONFIGURED, message)
