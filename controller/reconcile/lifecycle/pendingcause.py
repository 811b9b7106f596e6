"""Why a workload is pending: it may not queue, its queues admit nothing, or the last decision on it."""

from typing import Final, NamedTuple

import msgspec

from controller.messages import pending as words
from controller.objects.meta import SELECTOR_OPERATORS, find_condition, is_true
from controller.objects.queues import ClusterQueue
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.decisions import Pending
from controller.scheduler.decisions.reasons import PendingReason
from controller.scheduler.decisions.records import Rule
from controller.scheduler.decisions.sentences import sentence
from controller.scheduler.engine import Engine
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.scheduler.state.activity import local_queue_problem
from controller.scheduler.state.intake import ADMISSION_GATED_BY, local_queue_of


class PendingCause(NamedTuple):
    """Reason and message of the condition QuotaReserved=False."""

    reason: PendingReason
    message: str


_BLOCKED: Final = (
    PendingReason.MISCONFIGURED,
    PendingReason.SUSPENDED,
    PendingReason.ADMISSION_GATED,
    PendingReason.ON_HOLD,
    PendingReason.DEACTIVATED,
)
"""Reasons of workloads that are not tried."""


def held_back(workload: Workload, gates: FeatureGates) -> PendingCause | None:
    """Why the workload may not queue: it is inactive, gated, or on hold; None for one that may."""
    conditions = workload.status.conditions
    requeued = find_condition(conditions, reasons.REQUEUED)
    if not workload.spec.active or is_true(conditions, reasons.DEACTIVATION_TARGET):
        cause = requeued.message if requeued is not None and requeued.status == "False" else ""
        return PendingCause(PendingReason.DEACTIVATED, cause or words.not_active())
    if gated := gates_of(workload, gates):
        return PendingCause(PendingReason.ADMISSION_GATED, words.admission_gated(gated))
    if requeued is not None and requeued.status == "False":
        if is_uncounted(workload):
            return PendingCause(PendingReason.MISCONFIGURED, requeued.message)
        return PendingCause(PendingReason.ON_HOLD, requeued.message)
    return None


def is_uncounted(workload: Workload) -> bool:
    """Whether the workload is held back because its claims of devices cannot be counted."""
    requeued = find_condition(workload.status.conditions, reasons.REQUEUED)
    return requeued is not None and requeued.status == "False" and requeued.reason == reasons.INADMISSIBLE


def gates_of(workload: Workload, gates: FeatureGates) -> str:
    """The gates that keep the workload out of the queue, as its annotation lists them; empty for none."""
    return workload.metadata.annotations.get(ADMISSION_GATED_BY, "") if gates.on("AdmissionGatedBy") else ""


def blocked_by_queues(engine: Engine, key: LocalQueueKey) -> PendingCause | None:
    """Why its queues keep a workload of this LocalQueue from being tried; None if they do not."""
    cluster = engine.state.cluster
    local = cluster.local_queues.get(key)
    if local is None:
        return PendingCause(PendingReason.MISCONFIGURED, words.no_local_queue(key))
    if local.metadata.deletion_timestamp is not None:
        return PendingCause(PendingReason.MISCONFIGURED, words.local_queue_deleted(key))
    name = ClusterQueueName(local.spec.cluster_queue)
    queue = cluster.queues.get(name)
    problems = engine.inactive(name) if queue is not None else ()
    if queue is not None and (wrong := _misconfigured(queue.object)) is not None:
        return PendingCause(PendingReason.MISCONFIGURED, wrong)
    problem = local_queue_problem(local, cluster, queue_active=not problems)
    if problem is None:
        return None
    if problem.reason == "ClusterQueueDoesNotExist":
        return PendingCause(PendingReason.MISCONFIGURED, problem.message)
    message = words.queue_inactive(name, problems[0].message) if problems else problem.message
    return PendingCause(PendingReason.SUSPENDED, message)


def _misconfigured(queue: ClusterQueue) -> str | None:
    if queue.metadata.deletion_timestamp is not None:
        return words.cluster_queue_deleted(queue.metadata.name)
    selector = queue.spec.namespace_selector
    for requirement in selector.match_expressions if selector is not None else ():
        if requirement.operator not in SELECTOR_OPERATORS:
            operators = ", ".join(SELECTOR_OPERATORS)
            return words.unknown_operator(queue.metadata.name, operators, requirement.operator or "none")
    return None


def unreservable(engine: Engine, workload: Workload) -> PendingCause | None:
    """Why a workload that holds quota, and was not admitted yet, may not keep it."""
    if gated := gates_of(workload, engine.state.config.gates):
        return PendingCause(PendingReason.ADMISSION_GATED, words.admission_gated(gated))
    return blocked_by_queues(engine, local_queue_of(workload))


def before_a_try(engine: Engine, workload: Workload) -> PendingCause | None:
    """The cause for the condition of a workload before it is tried; None if the condition stays.

    The cause that kept it from being tried may be over. With the gate UnadmittedWorkloadsExplicitStatus a workload
    without a condition gets one that it waits, or the outcome of an earlier try.
    """
    found = blocked(engine, workload)
    if found is not None:
        return found
    gates = engine.state.config.gates
    reserved = find_condition(workload.status.conditions, reasons.QUOTA_RESERVED)
    if reserved is None:
        if not gates.on("UnadmittedWorkloadsExplicitStatus"):
            return None
        record = engine.stories.last(WorkloadKey(workload.key))
        if record is not None:
            return PendingCause(record.reason, sentence(record))
    elif reserved.status != "False" or reserved.reason not in {reason_code(reason, gates) for reason in _BLOCKED}:
        return None
    return PendingCause(PendingReason.PENDING_EVALUATION, words.not_tried())


def reason_code(reason: PendingReason, gates: FeatureGates) -> str:
    """The reason as the condition has it, which depends on gates."""
    return reason.value if gates.on("UnadmittedWorkloadsObservability") else reason.coarse


def why(engine: Engine, workload: Workload, now_s: float) -> PendingCause:
    """Why the workload is pending. A workload that could be tried is dry-run for the answer."""
    found = blocked(engine, workload)
    pending = engine.explain(WorkloadKey(workload.key), now_s) if found is None else None
    if found is not None or pending is None:
        return found or PendingCause(PendingReason.PENDING_EVALUATION, words.not_tried())
    record = engine.with_taken_nodes(pending.record, now_s, every_name=True)
    return of_decision(msgspec.structs.replace(pending, record=record))


def of_decision(pending: Pending) -> PendingCause:
    """The cause in a decision not to admit."""
    if pending.record.rule is Rule.FITS:
        return PendingCause(PendingReason.PENDING_EVALUATION, words.waits_in_turn())
    return PendingCause(pending.reason, sentence(pending.record))


def blocked(engine: Engine, workload: Workload) -> PendingCause | None:
    """Why the workload is not tried at all; None if it is."""
    return held_back(workload, engine.state.config.gates) or blocked_by_queues(engine, local_queue_of(workload))
