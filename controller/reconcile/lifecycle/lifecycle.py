"""Steps of one workload outside of cycles: checks, stop policies, time limits, back-offs, deactivation, requeuing.

``step`` returns the one next change of a workload's status (or ``spec.active``), or None; ``due_s`` returns when to
call it again if nothing else changes. Each step is written before the next is asked for, and each follows from the
objects alone, so a restart between any two changes nothing. Order and reasons are those of Kueue's workload controller
(KEP-349 waitForPodsReady, KEP-993 admission checks, KEP-3125 maximum execution time).
"""

import hashlib
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from controller.messages import pending, statuses
from controller.messages.spans import exact
from controller.objects.meta import Condition, epoch_s, find_condition, is_true
from controller.objects.queues import StopPolicy
from controller.objects.workload import AdmissionCheckState, RequeueState, Workload
from controller.reconcile.lifecycle.pendingcause import PendingCause, unreservable
from controller.scheduler.decisions import reasons, status
from controller.scheduler.decisions.decisions import Event
from controller.scheduler.decisions.evictionstatus import deactivation_target, evicted, restarted
from controller.scheduler.decisions.gangverdict import PATIENCE_S, gang_verdict, verdict_deadlines
from controller.scheduler.decisions.reasons import EventType, PendingReason
from controller.scheduler.decisions.status import checks_for
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import EngineConfig, WaitForPodsReady
from controller.scheduler.model.gangshape import patience_s
from controller.scheduler.model.nodetemplate import PROVISION_TIMEOUT_S, timeout_s
from controller.scheduler.model.resources import ClusterQueueName, FlavorName, WorkloadKey
from controller.scheduler.state.intake import local_queue_of
from inventory.api.names import PROVISION_TIMEOUT

CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
PODS_READY_TIMEOUT = "PodsReadyTimeout"
ADMISSION_CHECK = "AdmissionCheck"
DEACTIVATED = "Deactivated"
REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded"
MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded"

# The part of its wait by which each requeue differs, to spread workloads that failed together. Kueue does it by a
# random number; here it is a hash: the same workload in the same round waits the same time.
_JITTER = 0.0001

_SKEW_S = 60.0
"""The greatest difference between the clocks of replicas."""


class NodesAwaited(msgspec.Struct, frozen=True, kw_only=True):
    """What a workload with quota waits for: nodes of these flavors, until ``until_s``, ``limit_s`` after it got its
    quota.
    """

    flavors: tuple[str, ...]
    until_s: float
    limit_s: float


FOUND_WITHIN_S = 10.0
"""The least seconds from a leader's beginning until it says that nodes did not come. They may have come while nobody
led, and the first decision about the workload is still to be made.
"""


class QueuePolicies(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a workload's queues. ``checks``: the admission checks that hold for its flavors.

    ``blocked``: why a workload that is not admitted yet may hold no quota. ``uncounted``: why its claims of devices
    cannot be counted; empty if they can. ``nodes``: the nodes to come that it waits for; None if it waits for none.
    """

    cluster_queue_stop: StopPolicy = "None"
    local_queue_stop: StopPolicy = "None"
    checks: tuple[str, ...] = ()
    blocked: PendingCause | None = None
    uncounted: str = ""
    nodes: NodesAwaited | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step. ``after`` is the workload as it should be written. ``deactivate``: ``spec.active`` becomes false with
    it.
    """

    after: Workload
    events: tuple[Event, ...] = ()
    deactivate: bool = False


def step(workload: Workload, queues: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """The next step of a workload; None if no rule requires one."""
    if is_true(workload.status.conditions, reasons.FINISHED):
        return None
    for rule in _RULES:
        found = rule(workload, queues, config, now_s)
        if found is not None:
            return found
    return None


def queue_policies(engine: Engine, workload: Workload) -> QueuePolicies:
    """The rules of the ClusterQueue whose quota the workload holds, else of the one of its LocalQueue."""
    cluster = engine.state.cluster
    local = cluster.local_queues.get(local_queue_of(workload))
    admission = workload.status.admission
    name = admission.cluster_queue if admission is not None else local.spec.cluster_queue if local is not None else ""
    queue = cluster.queues.get(ClusterQueueName(name))
    checks: tuple[str, ...] = ()
    if queue is not None and admission is not None:
        flavors = {
            FlavorName(flavor)
            for pod_set_assignment in admission.pod_set_assignments
            for flavor in pod_set_assignment.flavors.values()
        }
        checks = checks_for(queue.object, flavors)
    elif admission is not None:
        # Its ClusterQueue is gone: its checks stay as they are.
        checks = tuple(state.name for state in workload.status.admission_checks)
    return QueuePolicies(
        cluster_queue_stop="None" if queue is None else queue.policies.stop,
        local_queue_stop="None" if local is None else local.spec.stop_policy or "None",
        checks=checks,
        blocked=unreservable(engine, workload) if admission is not None else None,
        uncounted=_uncounted(engine, workload) if admission is None else "",
        nodes=nodes_awaited(engine, workload) if admission is not None else None,
    )


def nodes_awaited(engine: Engine, workload: Workload) -> NodesAwaited | None:
    """The nodes to come that the workload waits for, with how long it does: what its job says, else its flavors."""
    key, cluster = WorkloadKey(workload.key), engine.state.cluster
    holder = cluster.holders.get(key) if key in cluster.coming else None
    reserved = find_condition(workload.status.conditions, reasons.QUOTA_RESERVED)
    if holder is None or reserved is None:
        return None
    names = tuple(sorted(cluster.awaited_flavors(holder)))
    told = [workload, *(cluster.flavors[name] for name in names if name in cluster.flavors)]
    texts = (each.metadata.annotations.get(PROVISION_TIMEOUT) for each in told)
    limit_s = next((found for text in texts if (found := timeout_s(text)) is not None), PROVISION_TIMEOUT_S)
    return NodesAwaited(flavors=names, until_s=epoch_s(reserved.last_transition_time) + limit_s, limit_s=limit_s)


def led_since(queues: QueuePolicies, begun_s: float) -> QueuePolicies:
    """The rules under a leader that began at that time, in seconds since 1970."""
    nodes = queues.nodes
    if nodes is None or nodes.until_s >= begun_s + FOUND_WITHIN_S:
        return queues
    return msgspec.structs.replace(queues, nodes=msgspec.structs.replace(nodes, until_s=begun_s + FOUND_WITHIN_S))


def _uncounted(engine: Engine, workload: Workload) -> str:
    claims = engine.state.device_claims.count(workload)
    return pending.uncounted_claims(claims.problem) if claims is not None and claims.problem else ""


def due_s(workload: Workload, config: EngineConfig, queues: QueuePolicies | None = None) -> float | None:
    """Seconds since 1970 at which ``step`` may return another step because of the time alone; None for never."""
    conditions = workload.status.conditions
    if is_true(conditions, reasons.FINISHED):
        return None
    times = [
        *_pods_ready_deadlines(workload, config.wait_for_pods_ready),
        *_execution_deadlines(workload),
        *_stale_deadlines(workload),
        *verdict_deadlines(workload),
    ]
    if queues is not None and queues.nodes is not None:
        times.append(queues.nodes.until_s)
    state = workload.status.requeue_state
    requeued = find_condition(conditions, reasons.REQUEUED)
    if requeued is not None and requeued.status == "False" and state is not None and state.requeue_at is not None:
        times.append(epoch_s(state.requeue_at))
    return min(times, default=None)


def backoff_s(key: WorkloadKey, count: int, rules: WaitForPodsReady) -> float:
    """Seconds of the back-off before the ``count``-th requeue: doubled each time, bounded, a little spread."""
    doubled = rules.backoff_base_s * 2.0 ** min(count - 1, 62)
    spread = int.from_bytes(hashlib.sha256(f"{key}/{count}".encode()).digest()[:4]) / 2**32
    return min(doubled * (1.0 + _JITTER * spread), rules.backoff_max_s)


# -- the rules, in order -----------------------------------------------------------------------------------------------


def _deactivation(workload: Workload, _: QueuePolicies, __: EngineConfig, now_s: float) -> Step | None:
    """A workload marked for deactivation becomes inactive; an inactive workload holds no quota and does not queue."""
    conditions = workload.status.conditions
    target = find_condition(conditions, reasons.DEACTIVATION_TARGET)
    marked = target is not None and target.status == "True"
    if workload.spec.active:
        return Step(after=workload, deactivate=True) if marked else None
    reason, message = DEACTIVATED, pending.not_active()
    if target is not None and marked:
        reason, message = f"DeactivatedDueTo{target.reason}", target.message
    if _held(workload) and not is_true(conditions, reasons.EVICTED):
        return _evict(workload, reason, message, now_s)
    requeued = find_condition(conditions, reasons.REQUEUED)
    if requeued is None or requeued.status != "False" or not requeued.reason.startswith(DEACTIVATED):
        after = status.held_back(workload, reason, message, state=RequeueState(), now_s=now_s)
        return Step(after=_with(after, requeue_state=None))
    return None


def _requeue(workload: Workload, queues: QueuePolicies, _: EngineConfig, now_s: float) -> Step | None:
    """A workload on hold may queue again: it is active again, its queue is not stopped, or its back-off is over."""
    requeued = find_condition(workload.status.conditions, reasons.REQUEUED)
    if not workload.spec.active or requeued is None or requeued.status != "False":
        return None
    if requeued.reason.startswith(DEACTIVATED):
        after = status.requeued(workload, "Reactivated", "The workload is active again", now_s)
        cleared = tuple(
            condition for condition in after.status.conditions if condition.type != reasons.DEACTIVATION_TARGET
        )
        return Step(after=_with(after, requeue_state=None, conditions=cleared))
    for reason, stop, name in (
        (CLUSTER_QUEUE_STOPPED, queues.cluster_queue_stop, "ClusterQueue"),
        (LOCAL_QUEUE_STOPPED, queues.local_queue_stop, "LocalQueue"),
    ):
        if requeued.reason == reason:
            restarted = stop == "None"
            message = statuses.queue_restarted(name)
            return Step(after=status.requeued(workload, f"{name}Restarted", message, now_s)) if restarted else None
    if requeued.reason == PendingReason.ON_HOLD:
        return None  # its job's reconciler takes it off hold
    if requeued.reason == reasons.INADMISSIBLE:
        counted = "Its claims of devices can be counted now"
        return None if queues.uncounted else Step(after=status.requeued(workload, "ClaimsCounted", counted, now_s))
    state = workload.status.requeue_state
    waits = state is not None and state.requeue_at is not None and epoch_s(state.requeue_at) > now_s
    # A back-off that begins in the future was set by a clock that has been put back since: it may be hours too long.
    if waits and epoch_s(requeued.last_transition_time) <= now_s + _SKEW_S:
        return None
    after = status.requeued(workload, "BackoffFinished", "The back-off is over", now_s)
    if state is not None:
        after = _with(after, requeue_state=msgspec.structs.replace(state, requeue_at=None))
    return Step(after=after)


def _claims(workload: Workload, queues: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """A workload whose claims of devices cannot be counted does not queue until they can."""
    conditions = workload.status.conditions
    if not queues.uncounted or not workload.spec.active or _held(workload):
        return None
    requeued = find_condition(conditions, reasons.REQUEUED)
    waits = requeued is not None and requeued.status == "False"
    if waits and requeued is not None and not _tells_otherwise(requeued, queues.uncounted):
        return None
    told = status.unreserved(workload, PendingReason.MISCONFIGURED, queues.uncounted, now_s=now_s, gates=config.gates)
    kept = workload.status.requeue_state
    after = status.held_back(told, reasons.INADMISSIBLE, queues.uncounted, state=kept or RequeueState(), now_s=now_s)
    return Step(after=_with(after, requeue_state=kept))


def _tells_otherwise(requeued: Condition, uncounted: str) -> bool:
    """Whether the workload is held back for claims, and its condition has another reason about them."""
    return requeued.reason == reasons.INADMISSIBLE and requeued.message != uncounted


def _checks(workload: Workload, queues: QueuePolicies, _: EngineConfig, now_s: float) -> Step | None:
    """The checks of the workload's queue are written into its status; a rejected check deactivates the workload, one in
    Retry evicts it.
    """
    if not _held(workload) or is_true(workload.status.conditions, reasons.EVICTED):
        return None
    states = workload.status.admission_checks
    synced = status.synced_checks(states, queues.checks, now_s)
    if synced != states:
        return Step(after=_with(workload, admission_checks=synced))
    rejected = [state for state in states if state.state == "Rejected"]
    if rejected:
        message = statuses.check_rejected(rejected[0].name, rejected[0].message)
        return _mark(workload, ADMISSION_CHECK, message, "AdmissionCheckRejected", now_s)
    retrying = [state for state in states if state.state == "Retry"]
    if not retrying:
        return None
    message = statuses.check_retries(retrying[0].name, retrying[0].message)
    delay_s = max((state.requeue_after_seconds or 0 for state in retrying), default=0)
    counted = _with(workload, admission_checks=tuple(_counted(state) for state in states))
    return _evict(counted, ADMISSION_CHECK, message, now_s, delay_s=delay_s)


def _stops(workload: Workload, queues: QueuePolicies, _: EngineConfig, now_s: float) -> Step | None:
    """HoldAndDrain evicts admitted workloads."""
    conditions = workload.status.conditions
    if not is_true(conditions, reasons.ADMITTED) or not _held(workload) or is_true(conditions, reasons.EVICTED):
        return None
    for reason, stop, name in (
        (CLUSTER_QUEUE_STOPPED, queues.cluster_queue_stop, "ClusterQueue"),
        (LOCAL_QUEUE_STOPPED, queues.local_queue_stop, "LocalQueue"),
    ):
        if stop == "HoldAndDrain":
            return _evict(workload, reason, statuses.queue_stopped(name, stop), now_s, hold=True)
    return None


def _held_up(workload: Workload, queues: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """A gate, or a queue that is stopped, takes the reservation from a workload that is not admitted yet."""
    stopped = queues.cluster_queue_stop != "None" or queues.local_queue_stop != "None"
    gated = queues.blocked is not None and queues.blocked.reason is PendingReason.ADMISSION_GATED
    return _unreserved(workload, queues, config, now_s) if stopped or gated else None


def _nodes(workload: Workload, queues: QueuePolicies, _: EngineConfig, now_s: float) -> Step | None:
    """A workload whose nodes do not come in time gives its quota back, and queues again. The engine lets none of these
    flavors come for a while, and so tries the next.
    """
    awaited, conditions = queues.nodes, workload.status.conditions
    if awaited is None or awaited.until_s > now_s or is_true(conditions, reasons.EVICTED):
        return None
    if not _held(workload) or is_true(conditions, reasons.ADMITTED):
        return None
    message = statuses.nodes_did_not_come(", ".join(awaited.flavors), exact(awaited.limit_s))
    return _evict(workload, reasons.NODES_DID_NOT_COME, message, now_s)


def _lost_queue(workload: Workload, queues: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """A queue that is gone or not active takes the reservation too, unless all checks are ready by now."""
    ready = status.admitted_if_ready(workload, checks=queues.checks, now_s=now_s, gates=config.gates)
    return None if is_true(ready.status.conditions, reasons.ADMITTED) else _unreserved(workload, queues, config, now_s)


def _unreserved(workload: Workload, queues: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """Releases the quota of a workload whose job was never started: nothing is evicted."""
    conditions, cause = workload.status.conditions, queues.blocked
    if cause is None or not _held(workload) or is_true(conditions, reasons.ADMITTED):
        return None
    if is_true(conditions, reasons.EVICTED):
        return None
    after = status.unreserved(workload, cause.reason, cause.message, now_s=now_s, gates=config.gates)
    states = tuple(restarted(state, now_s) for state in after.status.admission_checks)
    gated = cause.reason is PendingReason.ADMISSION_GATED
    event = _event(workload, EventType.NORMAL if gated else EventType.WARNING, cause.reason, cause.message)
    return Step(after=_with(after, admission_checks=states), events=(event,))


def _preemption_gates(workload: Workload, _: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """The status has a state for each preemption gate of the spec."""
    states = workload.status.preemption_gates
    if not config.gates.on("MultiKueueOrchestratedPreemption"):
        return None
    synced = status.synced_preemption_gates(workload, now_s)
    return Step(after=_with(workload, preemption_gates=synced)) if synced != states else None


def _pods_ready(workload: Workload, _: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """A workload whose pods are not ready in time is evicted with a growing back-off, and deactivated at last."""
    rules = config.wait_for_pods_ready
    late = [deadline for deadline in _pods_ready_deadlines(workload, rules) if deadline <= now_s]
    if rules is None or not late:
        return None
    count = _requeues(workload)
    if rules.backoff_limit_count is not None and count > rules.backoff_limit_count:
        message = statuses.requeued_too_often(count - 1)
        return _mark(workload, REQUEUING_LIMIT_EXCEEDED, message, None, now_s)
    started = _started(workload.status.conditions)
    limit_s = rules.recovery_timeout_s if started else rules.timeout_s
    message = statuses.pods_not_ready_in_time("ready again" if started else "ready", exact(limit_s or 0.0))
    wait_s = backoff_s(WorkloadKey(workload.key), count, rules)
    return _evict(workload, PODS_READY_TIMEOUT, message, now_s, delay_s=wait_s, count=count)


def _gang_not_scheduled(workload: Workload, _: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """A gang that kube-scheduler does not start is evicted, with the back-off and the budget of pods that do not get
    ready.
    """
    verdict = gang_verdict(workload)
    if verdict is None or not any(deadline <= now_s for deadline in verdict_deadlines(workload)):
        return None
    rules, count = config.wait_for_pods_ready or WaitForPodsReady(), _requeues(workload)
    if rules.backoff_limit_count is not None and count > rules.backoff_limit_count:
        message = statuses.gang_refused_too_often(count - 1)
        return _mark(workload, REQUEUING_LIMIT_EXCEEDED, message, None, now_s)
    reason, message = reasons.PREEMPTED_BY_SCHEDULER, verdict.message
    if verdict.reason != reasons.PREEMPTED_BY_SCHEDULER:
        lost = "quota" if verdict.reason == reasons.POD_GROUP_NOT_MADE else "places"
        reason, message = reasons.GANG_NOT_SCHEDULED, statuses.gang_given_up(lost, exact(PATIENCE_S), verdict.message)
    wait_s = backoff_s(WorkloadKey(workload.key), count, rules)
    return _evict(workload, reason, message, now_s, delay_s=wait_s, count=count)


def _requeues(workload: Workload) -> int:
    """The number of the workload's next requeue with a back-off, from 1."""
    return ((workload.status.requeue_state or RequeueState()).count or 0) + 1


def _stale(workload: Workload, _: QueuePolicies, __: EngineConfig, now_s: float) -> Step | None:
    """A foreign gang that has run below its minimum for too long is evicted as a whole, and queues anew."""
    if not any(deadline <= now_s for deadline in _stale_deadlines(workload)):
        return None
    lost = _pods_lost(workload.status.conditions)
    why = lost.message if lost is not None else ""
    message = statuses.below_minimum_for(exact(patience_s(workload.metadata.annotations)), why)
    return _evict(workload, reasons.STALE_GANG, message, now_s)


def _execution_time(workload: Workload, _: QueuePolicies, __: EngineConfig, now_s: float) -> Step | None:
    if not any(deadline <= now_s for deadline in _execution_deadlines(workload)):
        return None
    limit_s = workload.spec.maximum_execution_time_seconds
    message = statuses.ran_too_long(limit_s)
    return _mark(workload, MAXIMUM_EXECUTION_TIME_EXCEEDED, message, MAXIMUM_EXECUTION_TIME_EXCEEDED, now_s)


def _admission(workload: Workload, queues: QueuePolicies, config: EngineConfig, now_s: float) -> Step | None:
    """A workload whose checks are all ready is admitted."""
    conditions = workload.status.conditions
    if not _held(workload) or is_true(conditions, reasons.ADMITTED) or is_true(conditions, reasons.EVICTED):
        return None
    after = status.admitted_if_ready(workload, checks=queues.checks, now_s=now_s, gates=config.gates)
    if after == workload:
        return None
    events: tuple[Event, ...] = ()
    if is_true(after.status.conditions, reasons.ADMITTED) and workload.status.admission is not None:
        message = statuses.admitted_by(workload.status.admission.cluster_queue)
        events = (_event(workload, EventType.NORMAL, "Admitted", message),)
    return Step(after=after, events=events)


_RULES = (
    _preemption_gates,
    _deactivation,
    _requeue,
    _claims,
    _checks,
    _stops,
    _held_up,
    _nodes,
    _pods_ready,
    _gang_not_scheduled,
    _stale,
    _execution_time,
    _lost_queue,
    _admission,
)


# -- what the rules share ----------------------------------------------------------------------------------------------


def _held(workload: Workload) -> bool:
    return is_true(workload.status.conditions, reasons.QUOTA_RESERVED)


def _started(conditions: tuple[Condition, ...]) -> bool:
    """Whether the workload's pods have been ready before: pods that are missing now have to recover."""
    ready = find_condition(conditions, reasons.PODS_READY)
    return ready is not None and ready.status == "False" and ready.reason == "WaitForRecovery"


def _pods_ready_deadlines(workload: Workload, rules: WaitForPodsReady | None) -> Iterator[float]:
    conditions = workload.status.conditions
    admitted = find_condition(conditions, reasons.ADMITTED)
    if rules is None or admitted is None or admitted.status != "True" or is_true(conditions, reasons.EVICTED):
        return
    ready = find_condition(conditions, reasons.PODS_READY)
    if ready is not None and ready.status == "True":
        return
    if ready is not None and _started(conditions):
        if rules.recovery_timeout_s is not None:
            yield epoch_s(ready.last_transition_time) + rules.recovery_timeout_s
    else:
        since_s = epoch_s(admitted.last_transition_time)
        yield (since_s if ready is not None else max(since_s, rules.looks_since_s)) + rules.timeout_s


def _stale_deadlines(workload: Workload) -> Iterator[float]:
    """The times at which the workload's gang becomes stale. A gang of which a pod has succeeded is not stale: it
    is about to end.
    """
    conditions = workload.status.conditions
    admitted = find_condition(conditions, reasons.ADMITTED)
    lost = _pods_lost(conditions)
    if lost is None or admitted is None or admitted.status != "True" or is_true(conditions, reasons.EVICTED):
        return
    limit_s = patience_s(workload.metadata.annotations)
    if limit_s >= 0 and not workload.status.reclaimable_pods:
        yield max(epoch_s(lost.last_transition_time), epoch_s(admitted.last_transition_time)) + limit_s


def _pods_lost(conditions: tuple[Condition, ...]) -> Condition | None:
    """The condition that says that pods are missing which existed: of a pod group, or of a job."""
    waits = find_condition(conditions, reasons.WAITING_FOR_PODS)
    if waits is not None and (waits.status, waits.reason) == ("True", reasons.PODS_FAILED):
        return waits
    return find_condition(conditions, reasons.PODS_READY) if _started(conditions) else None


def _execution_deadlines(workload: Workload) -> Iterator[float]:
    conditions = workload.status.conditions
    limit_s = workload.spec.maximum_execution_time_seconds
    admitted = find_condition(conditions, reasons.ADMITTED)
    if limit_s is None or admitted is None or admitted.status != "True" or is_true(conditions, reasons.EVICTED):
        return
    if not is_true(conditions, reasons.DEACTIVATION_TARGET):
        past_s = workload.status.accumulated_past_execution_time_seconds or 0
        yield epoch_s(admitted.last_transition_time) + limit_s - past_s


def _evict(
    workload: Workload,
    reason: str,
    message: str,
    now_s: float,
    *,
    delay_s: float | None = None,
    count: int | None = None,
    hold: bool = False,
) -> Step:
    """The eviction of a workload. ``delay_s``: it is requeued after this time; ``hold``: once its queue is not stopped
    any more.
    """
    after = evicted(workload, reason, message, now_s=now_s)
    if delay_s is not None:
        old = workload.status.requeue_state or RequeueState()
        at = status.moment(now_s) + timedelta(seconds=delay_s)
        state = RequeueState(count=old.count if count is None else count, requeue_at=at)
        after = status.held_back(after, reason, message, state=state, now_s=now_s)
    elif hold:
        kept = workload.status.requeue_state
        after = status.held_back(after, reason, message, state=kept or RequeueState(), now_s=now_s)
        after = _with(after, requeue_state=kept)
    return Step(after=after, events=(_event(workload, EventType.NORMAL, f"EvictedDueTo{reason}", message),))


def _mark(workload: Workload, reason: str, message: str, event: str | None, now_s: float) -> Step | None:
    """Marks the workload for deactivation: the next step makes it inactive, the one after that evicts it."""
    if is_true(workload.status.conditions, reasons.DEACTIVATION_TARGET):
        return None
    after = deactivation_target(workload, reason, message, now_s)
    events = () if event is None else (_event(workload, EventType.WARNING, event, message),)
    return Step(after=after, events=events)


def _counted(state: AdmissionCheckState) -> AdmissionCheckState:
    if state.state != "Retry":
        return state
    return msgspec.structs.replace(state, retry_count=(state.retry_count or 0) + 1)


def _event(workload: Workload, type_: EventType, reason: str, message: str) -> Event:
    return Event(WorkloadKey(workload.key), type_, reason, message)


def _with(workload: Workload, **changes: object) -> Workload:
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, **changes))
