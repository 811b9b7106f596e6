"""The status of a Workload after a decision. Functions take a ``Workload`` and return a new one; the clock is an
argument.

Types and reasons of conditions are the API's (``kueue.x-k8s.io/v1beta2``), the sentences are ours. Every condition that
should hold is written whole; the writer computes the smallest patch.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from controller.messages import pending as pending_words
from controller.messages import statuses
from controller.messages.spans import LATEST_S
from controller.objects.meta import Condition, epoch_s, find_condition, is_true, with_condition
from controller.objects.placeencoding import encode
from controller.objects.queues import ClusterQueue
from controller.objects.workload import (
    Admission,
    AdmissionCheckState,
    PodSetAssignment,
    PodSetRequest,
    PreemptionGateState,
    RequeueState,
    TopologyAssignment,
    Workload,
    WorkloadStatus,
)
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.reasons import NotAdmittedReason, PendingReason
from controller.scheduler.flavors.assignment import PodSetChoice
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.resources import ClusterQueueName, FlavorName
from controller.scheduler.model.workload import PodSetRequests, TopologyUsage
from controller.scheduler.quota.queueusage import quantity_of

# The API server's schema limits the messages of conditions to this length.
MESSAGE_LIMIT: Final = 32768


def moment(now_s: float) -> datetime:
    """The clock as conditions carry it: whole seconds, UTC. The year 9999 is the last."""
    return datetime.fromtimestamp(min(int(now_s), LATEST_S), UTC)


# -- admission ---------------------------------------------------------------------------------------------------------


def admission_of(
    cluster_queue: ClusterQueueName,
    pod_sets: Iterable[PodSetChoice],
    gates: FeatureGates,
    held: Iterable[PodSetRequests] = (),
) -> Admission:
    """``status.admission``; a resource for which no flavor was needed is left out. ``held``: what the pod sets take
    themselves, where that is less than was requested.
    """
    own = {pod_set.name: pod_set.requests for pod_set in held}
    return Admission(
        cluster_queue=cluster_queue,
        pod_set_assignments=tuple(
            PodSetAssignment(
                name=pod_set.name,
                flavors={resource: choice.flavor for resource, choice in pod_set.choices.items()},
                resource_usage={
                    resource: quantity_of(resource, own.get(pod_set.name, pod_set.requests).get(resource, 0))
                    for resource in pod_set.choices
                },
                count=pod_set.count,
                topology_assignment=topology_assignment(pod_set.topology, gates),
                delayed_topology_request="Pending" if pod_set.delayed_topology else None,
            )
            for pod_set in pod_sets
        ),
    )


def topology_assignment(usage: TopologyUsage | None, gates: FeatureGates) -> TopologyAssignment | None:
    if usage is None:
        return None
    by_prefix = gates.on("TASAssignmentsEncodingByHostnamePrefix")
    return encode(usage.levels, usage.domains, by_hostname_prefix=by_prefix)


def checks_for(queue: ClusterQueue, flavors: Iterable[FlavorName]) -> tuple[str, ...]:
    """The checks that apply to a workload on these flavors, in the queue's order; a rule without flavors always
    applies.
    """
    strategy = queue.spec.admission_checks_strategy
    if strategy is None:
        return ()
    assigned = frozenset(flavors)
    return tuple(
        rule.name for rule in strategy.admission_checks if not rule.on_flavors or assigned.intersection(rule.on_flavors)
    )


def synced_checks(
    states: tuple[AdmissionCheckState, ...], wanted: Iterable[str], now_s: float
) -> tuple[AdmissionCheckState, ...]:
    """The states, with missing checks added as Pending, and those that no longer apply dropped."""
    known = {state.name: state for state in states}
    return tuple(
        known.get(name) or AdmissionCheckState(name=name, state="Pending", last_transition_time=moment(now_s))
        for name in wanted
    )


def checks_ready(workload: Workload, wanted: Iterable[str]) -> bool:
    """Whether every wanted check is Ready. Other checks, from before the queue changed, hold nothing up."""
    states = {state.name: state.state for state in workload.status.admission_checks}
    return all(states.get(name) == "Ready" for name in wanted)


def reserved(
    workload: Workload, admission: Admission, *, checks: tuple[str, ...], now_s: float, gates: FeatureGates
) -> Workload:
    """Quota is reserved. With all ``checks`` ready and no topology outstanding the workload is admitted as well."""
    status = workload.status
    # No check is dropped here: those of the queue and those that apply to the flavors differ until the next sync.
    missing = [name for name in checks if all(state.name != name for state in status.admission_checks)]
    states = (*status.admission_checks, *synced_checks((), missing, now_s))
    conditions = with_condition(
        status.conditions,
        _condition(
            workload,
            reasons.QUOTA_RESERVED,
            True,
            "QuotaReserved",
            statuses.holds_quota(admission.cluster_queue),
            now_s,
        ),
    )
    for type_ in (reasons.EVICTED, reasons.PREEMPTED, reasons.BLOCKED_ON_PREEMPTION_GATES):
        conditions = _closed(workload, conditions, type_, now_s)
    held = _with(
        workload, status, admission=admission, admission_checks=states, conditions=conditions, resource_requests=()
    )
    return admitted_if_ready(held, checks=checks, now_s=now_s, gates=gates)


def admitted_if_ready(workload: Workload, *, checks: tuple[str, ...], now_s: float, gates: FeatureGates) -> Workload:
    """A workload with quota becomes Admitted once nothing is outstanding; else the condition says what it still waits
    for.
    """
    if not is_true(workload.status.conditions, reasons.QUOTA_RESERVED):
        return workload
    # By the API a check that the queue does not name (any more) holds a workload back only as long as it is listed.
    states = workload.status.admission_checks
    unready = not checks_ready(workload, checks) or any(state.state != "Ready" for state in states)
    if not unready and not topology_outstanding(workload):
        return _set(workload, reasons.ADMITTED, True, "Admitted", statuses.admitted(), now_s)
    if is_true(workload.status.conditions, reasons.ADMITTED) or not gates.on("UnadmittedWorkloadsObservability"):
        return workload
    if unready:
        names = ", ".join(sorted(state.name for state in states if state.state != "Ready")) or "some"
        reason, message = NotAdmittedReason.UNSATISFIED_ADMISSION_CHECKS, statuses.checks_not_ready(names)
    else:
        reason = NotAdmittedReason.PENDING_DELAYED_TOPOLOGY_REQUESTS
        message = statuses.topology_pending()
    return _set(workload, reasons.ADMITTED, False, reason, message, now_s)


def topology_outstanding(workload: Workload) -> bool:
    admission = workload.status.admission
    return admission is not None and any(
        assignment.delayed_topology_request == "Pending" for assignment in admission.pod_set_assignments
    )


# -- waiting -----------------------------------------------------------------------------------------------------------


def pending(
    workload: Workload,
    reason: PendingReason,
    message: str,
    *,
    pod_sets: Iterable[PodSetRequests],
    now_s: float,
    gates: FeatureGates,
) -> Workload:
    """The workload holds no quota, for this reason. ``pod_sets`` are its requests as quota would count them."""
    requests = tuple(
        PodSetRequest(
            name=pod_set.name,
            resources={resource: quantity_of(resource, amount) for resource, amount in pod_set.requests.items()},
        )
        for pod_set in pod_sets
    )
    return unreserved(
        _with(workload, workload.status, resource_requests=requests), reason, message, now_s=now_s, gates=gates
    )


def unreserved(
    workload: Workload, reason: PendingReason, message: str, *, now_s: float, gates: FeatureGates
) -> Workload:
    """Quota is given back: the admission is removed, and the time since it is added to the execution time."""
    observable = gates.on("UnadmittedWorkloadsObservability")
    status = workload.status
    conditions = with_condition(
        status.conditions,
        _condition(workload, reasons.QUOTA_RESERVED, False, reason if observable else reason.coarse, message, now_s),
    )
    ran_s = executed_s(workload, now_s)
    was_admitted = is_true(status.conditions, reasons.ADMITTED)
    if was_admitted or observable:
        conditions = with_condition(
            conditions,
            _condition(
                workload,
                reasons.ADMITTED,
                False,
                NotAdmittedReason.NO_RESERVATION,
                statuses.holds_no_quota(),
                now_s,
            ),
        )
    return _with(
        workload,
        status,
        admission=None,
        conditions=conditions,
        accumulated_past_execution_time_seconds=ran_s
        if was_admitted
        else status.accumulated_past_execution_time_seconds,
    )


def executed_s(workload: Workload, now_s: float) -> int:
    """Whole seconds for which the workload has been admitted, earlier admissions included: maximumExecutionTimeSeconds
    bounds them.
    """
    status = workload.status
    past = status.accumulated_past_execution_time_seconds or 0
    admitted = find_condition(status.conditions, reasons.ADMITTED)
    if admitted is None or admitted.status != "True":
        return past
    return past + max(0, int(now_s - epoch_s(admitted.last_transition_time)))


def blocked_on_preemption_gates(workload: Workload, now_s: float) -> Workload:
    """The workload needs preemption, and one of its preemption gates is closed."""
    names = ", ".join(closed_preemption_gates(workload))
    return _set(
        workload,
        reasons.BLOCKED_ON_PREEMPTION_GATES,
        True,
        reasons.PREEMPTION_GATED,
        pending_words.preemption_gated(names),
        now_s,
    )


def waits_for_victims(workload: Workload) -> bool:
    """Whether the workload's conditions say that others are on their way out for it."""
    reserved = find_condition(workload.status.conditions, reasons.QUOTA_RESERVED)
    waits = PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS
    return reserved is not None and reserved.status == "False" and reserved.reason == waits


def closed_preemption_gates(workload: Workload) -> tuple[str, ...]:
    """The names in ``spec.preemptionGates`` whose gates are not open."""
    opened = {gate.name for gate in workload.status.preemption_gates if gate.position == "Open"}
    return tuple(gate.name for gate in workload.spec.preemption_gates if gate.name not in opened)


def synced_preemption_gates(workload: Workload, now_s: float) -> tuple[PreemptionGateState, ...]:
    """A state for each gate of the spec, in its order; a gate without a state is closed."""
    known = {state.name: state for state in workload.status.preemption_gates}
    return tuple(
        known.get(gate.name)
        or PreemptionGateState(name=gate.name, position="Closed", last_transition_time=moment(now_s))
        for gate in workload.spec.preemption_gates
    )


# -- leaving and coming back -------------------------------------------------------------------------------------------


def finished(workload: Workload, reason: str, message: str, now_s: float) -> Workload:
    return _set(workload, reasons.FINISHED, True, reason, message, now_s)


def slice_replaced(workload: Workload, by: str, now_s: float) -> Workload:
    """An elastic slice ends because a larger one has taken its place."""
    return finished(workload, reasons.WORKLOAD_SLICE_REPLACED, statuses.slice_replaced(by), now_s)


def requeued(workload: Workload, reason: str, message: str, now_s: float) -> Workload:
    """The workload may queue again: condition Requeued=True."""
    return _set(workload, reasons.REQUEUED, True, reason, message, now_s)


def held_back(workload: Workload, reason: str, message: str, *, state: RequeueState, now_s: float) -> Workload:
    """The workload may not queue before ``state.requeueAt``: condition Requeued=False."""
    parked = _set(workload, reasons.REQUEUED, False, reason, message, now_s)
    return _with(parked, parked.status, requeue_state=state)


def _closed(workload: Workload, conditions: tuple[Condition, ...], type_: str, now_s: float) -> tuple[Condition, ...]:
    """Set a condition from before this admission to False; its message keeps the old one."""
    old = find_condition(conditions, type_)
    if old is None or old.status != "True":
        return conditions
    return with_condition(
        conditions, _condition(workload, type_, False, "QuotaReserved", f"Earlier: {old.message}", now_s)
    )


def _condition(of: Workload, type_: str, status: bool, reason: str, message: str, now_s: float) -> Condition:
    return Condition(
        type=type_,
        status="True" if status else "False",
        reason=reason,
        message=message[:MESSAGE_LIMIT],
        last_transition_time=moment(now_s),
        observed_generation=of.metadata.generation,
    )


def _set(workload: Workload, type_: str, status: bool, reason: str, message: str, now_s: float) -> Workload:
    condition = _condition(workload, type_, status, reason, message, now_s)
    return _with(workload, workload.status, conditions=with_condition(workload.status.conditions, condition))


def _with(workload: Workload, status: WorkloadStatus, **changes: object) -> Workload:
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(status, **changes))
