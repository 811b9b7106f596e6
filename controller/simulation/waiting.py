"""Why a workload waits, by the numbers of the moment: reason and message of its condition QuotaReserved=False."""

from controller.engine.conditions.decisions import Pending
from controller.engine.conditions.reasons import PendingReason
from controller.engine.conditions.records import Rule
from controller.engine.conditions.sentences import sentence
from controller.engine.engine import Engine
from controller.engine.model.resources import WorkloadKey
from controller.engine.state.intake import local_queue_of
from controller.lifecycle.blocked import Blocked, blocked_by_queues, held_back
from controller.objects.workload import Workload


def why(engine: Engine, workload: Workload, now_s: float) -> Blocked:
    """A workload that could be tried is tried for the question."""
    found = blocked(engine, workload)
    pending = engine.explain(WorkloadKey(workload.key), now_s) if found is None else None
    if found is not None or pending is None:
        return found or Blocked(PendingReason.PENDING_EVALUATION, "Its turn has not come yet")
    return decided(pending)


def decided(pending: Pending) -> Blocked:
    """What a decision not to admit says."""
    if pending.record.rule is Rule.FITS:
        return Blocked(PendingReason.PENDING_EVALUATION, "It fits by itself: those before it in line go first")
    return Blocked(pending.reason, sentence(pending.record))


def blocked(engine: Engine, workload: Workload) -> Blocked | None:
    """What keeps the workload from being tried at all; None where it is tried."""
    return held_back(workload, engine.state.config.gates) or blocked_by_queues(engine, local_queue_of(workload))
