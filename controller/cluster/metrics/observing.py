"""Counts events: decisions, transitions of workloads, writes."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from controller.cluster.metrics.instruments import Instruments
from controller.cluster.metrics.workloadkinds import job_kind
from controller.objects.meta import Condition, epoch_s, find_condition
from controller.objects.workload import Workload
from controller.scheduler.cluster.incoming import Move
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.decisions import Admitted, Decision, Decisions, Evicted, Pending, SliceReplaced
from controller.scheduler.decisions.evictionstatus import cause_of
from controller.scheduler.model.resources import ClusterQueueName
from inventory.api.names import NO_FLAVOR
from kube.writing.writes import Outcome, Write


class Counting:
    """Counts. ``local_queues``: whether they have series. ``cohorts_above``: the cohorts of a ClusterQueue; None if
    cohorts have no series. ``creations``: whether the time is counted that jobs wait for their Workload. ``declared``:
    the kinds that JobKinds name now.
    """

    def __init__(
        self,
        instruments: Instruments,
        *,
        local_queues: bool,
        cohorts_above: Callable[[ClusterQueueName], Iterable[str]] | None = None,
        creations: bool = True,
        declared: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._instruments = instruments
        self._local_queues = local_queues
        self._cohorts_above = cohorts_above
        self._creations = creations
        self._declared = declared
        self.skips: dict[ClusterQueueName, int] = {}
        self.tripped: dict[str, bool] = {}
        """Whether the breaker of repairs has tripped, by flavor."""

    # -- cycles ------------------------------------------------------------------------------------------------------

    def cycled(self, decisions: Decisions, seconds: float) -> None:
        if not decisions.made:
            return
        instruments = self._instruments
        admitted = 0
        for decision in decisions.made:
            if isinstance(decision, Pending):
                instruments.count("tessera_decisions_total", decision.record.rule.name.lower())
            elif isinstance(decision, Admitted):
                admitted += 1
                instruments.count("tessera_decisions_total", "placed" if decision.second_pass else "admitted")
            elif isinstance(decision, Evicted):
                instruments.count("tessera_decisions_total", "evicted")
        if admitted:
            instruments.count("kueue_admission_attempts_total", "success", by=admitted)
        if decisions.tried > admitted:
            instruments.count("kueue_admission_attempts_total", "inadmissible", by=decisions.tried - admitted)
        result = "success" if admitted else "inadmissible"
        instruments.observe("kueue_admission_attempt_duration_seconds", result, value=seconds)
        if decisions.tried:
            instruments.observe("tessera_decision_seconds", value=seconds / decisions.tried, times=decisions.tried)
        self.skips = dict(decisions.skipped_preemptions)
        for name, results in decisions.recomputations.items():
            for kind, times in results.items():
                instruments.count("kueue_preemption_target_recomputations_total", name, kind, by=times)

    def created(self, job_kind: str, waited_s: float) -> None:
        """Counts that a job of this kind got its Workload ``waited_s`` after it was created."""
        if self._creations:
            self._instruments.observe("kueue_workload_creation_latency_seconds", job_kind, value=max(0.0, waited_s))

    def job_started(self, job_kind: str) -> None:
        self._instruments.count("tessera_job_starts_total", job_kind)

    def job_suspended(self, job_kind: str) -> None:
        self._instruments.count("tessera_job_suspensions_total", job_kind)

    def gate_removed(self, queue: str, gate: str, grouped: bool, waited_s: float) -> None:
        """Counts that a pod's scheduling gate was removed ``waited_s`` after its workload was admitted."""
        group = "true" if grouped else "false"
        self._instruments.observe("kueue_pod_scheduling_gate_removal_seconds", queue, gate, group, value=waited_s)

    def gone_cluster_queue(self, name: str) -> None:
        """Removes the series of a deleted ClusterQueue: those of a new object of its name start at 0."""
        self._instruments.forget(cluster_queue=name)
        self._instruments.forget(preempting_cluster_queue=name)
        self.skips.pop(ClusterQueueName(name), None)

    def gone_local_queue(self, namespace: str, name: str) -> None:
        self._instruments.forget(name=name, namespace=namespace)

    def gone_cohort(self, name: str) -> None:
        self._instruments.forget(cohort=name)

    def drifted(self, *, sound: bool) -> None:
        """Counts that the engine's sums were rebuilt; ``sound``: they agree with their parts since."""
        self._instruments.count("tessera_drift_total")
        self._instruments.count("tessera_engine_rebuilds_total", "sound" if sound else "unsound")

    def pod_placed(self, result: str) -> None:
        self._instruments.count("tessera_topology_ungated_pods_total", result)

    def planned_pod(self, result: str) -> None:
        self._instruments.count("tessera_device_plans_total", result)

    def gpu_failure(self, action: str) -> None:
        self._instruments.count("tessera_gpu_failures_total", action)

    def flavor_interrupted(self, flavor: str) -> None:
        self._instruments.count("tessera_flavor_interruptions_total", flavor)

    def repair_granted(self, action: str) -> None:
        self._instruments.count("tessera_gpu_repair_grants_total", action)

    def drain(self, action: str) -> None:
        self._instruments.count("tessera_gpu_drains_total", action)

    def breakers(self, tripped: Mapping[str, bool]) -> None:
        """Takes whether the breaker of repairs has tripped, by flavor."""
        for flavor, is_tripped in tripped.items():
            if is_tripped and not self.tripped.get(flavor, False):
                self._instruments.count("tessera_gpu_repair_breaker_trips_total", flavor)
        for flavor in self.tripped.keys() - tripped.keys() - {NO_FLAVOR}:
            self._instruments.forget(flavor=flavor)
        self.tripped = dict(tripped)

    # -- what stands -------------------------------------------------------------------------------------------------

    def carried_out(self, decision: Decision, after: Workload) -> None:
        match decision:
            case Admitted(second_pass=False):
                self._reserved(after)
            case Evicted(preemption=preemption, by=by) if preemption is not None and by is not None:
                self._instruments.count("kueue_preempted_workloads_total", by.cluster_queue, preemption.value)
                if decision.move is not None:
                    self._moved(decision.holder.cluster_queue, decision.move)
            case SliceReplaced(holder=holder):
                self._instruments.count("kueue_replaced_workload_slices_total", holder.cluster_queue)

    def changed(self, before: Workload | None, after: Workload) -> None:
        """Counts conditions that have become True since ``before``; None: the change was not observed."""
        if before is None:
            return
        for type_, count in (
            (reasons.ADMITTED, self._admitted),
            (reasons.EVICTED, self._evicted),
            (reasons.PODS_READY, self._ready),
            (reasons.FINISHED, self._finished),
        ):
            now = find_condition(after.status.conditions, type_)
            if now is not None and now.status == "True" and not _was(before, type_):
                count(before, after, now)
        released = before.status.admission is not None and after.status.admission is None
        evicted = find_condition(after.status.conditions, reasons.EVICTED)
        if released and evicted is not None and before.status.admission is not None:
            reserved = find_condition(after.status.conditions, reasons.QUOTA_RESERVED)
            seconds = _since(evicted, epoch_s(reserved.last_transition_time) if reserved is not None else 0.0)
            queue = before.status.admission.cluster_queue
            self._instruments.observe("kueue_workload_eviction_latency_seconds", queue, value=seconds)

    def _moved(self, queue: ClusterQueueName, move: Move) -> None:
        self._instruments.count("tessera_consolidation_moves_total", queue)
        self._instruments.count("tessera_consolidation_lost_gpu_seconds_total", queue, by=move.lost_gpu_s)

    def _reserved(self, after: Workload) -> None:
        queue, class_ = _queue(after), _class(after)
        reserved = find_condition(after.status.conditions, reasons.QUOTA_RESERVED)
        at_s = epoch_s(reserved.last_transition_time) if reserved is not None else 0.0
        self._instruments.count("kueue_quota_reserved_workloads_total", queue, class_)
        waited_s = _waited(after, at_s)
        self._instruments.observe("kueue_quota_reserved_wait_time_seconds", queue, class_, value=waited_s)
        if self._local_queues:
            self._instruments.count("kueue_local_queue_quota_reserved_workloads_total", *_local(after), class_)
            self._observe_local("quota_reserved_wait_time_seconds", after, waited_s)

    def _admitted(self, _: Workload, after: Workload, now: Condition) -> None:
        queue, class_ = _queue(after), _class(after)
        at_s = epoch_s(now.last_transition_time)
        instruments, waited_s = self._instruments, _waited(after, at_s)
        instruments.count("kueue_admitted_workloads_total", queue, class_)
        instruments.count("tessera_admitted_workloads_total", self._kind(after))
        instruments.observe("kueue_admission_wait_time_seconds", queue, class_, value=waited_s)
        reserved = find_condition(after.status.conditions, reasons.QUOTA_RESERVED)
        if reserved is not None and after.status.admission_checks:
            value = _since(reserved, at_s)
            instruments.observe("kueue_admission_checks_wait_time_seconds", queue, class_, value=value)
            self._observe_local("admission_checks_wait_time_seconds", after, value)
        if self._local_queues:
            instruments.count("kueue_local_queue_admitted_workloads_total", *_local(after), class_)
            self._observe_local("admission_wait_time_seconds", after, waited_s)
        for cohort in self._cohorts_above(ClusterQueueName(queue)) if self._cohorts_above is not None else ():
            instruments.count("kueue_cohort_subtree_admitted_workloads_total", cohort, class_)

    def _evicted(self, before: Workload, after: Workload, now: Condition) -> None:
        queue, class_ = _queue(before) or _queue(after), _class(after)
        reason, cause = cause_of(before, now.reason)
        ready = find_condition(before.status.conditions, reasons.PODS_READY)
        if ready is not None and ready.status == "True":
            value = _since(ready, epoch_s(now.last_transition_time))
            self._instruments.observe("kueue_pods_ready_to_evicted_time_seconds", queue, reason, cause, value=value)
        self._instruments.count("kueue_evicted_workloads_total", queue, reason, cause, class_)
        self._instruments.count("tessera_evicted_workloads_total", self._kind(after), reason)
        stats = before.status.scheduling_stats
        if stats is None or not any(eviction.count for eviction in stats.evictions):
            self._instruments.count("kueue_evicted_workloads_once_total", queue, reason, cause, class_)
        if self._local_queues:
            self._instruments.count("kueue_local_queue_evicted_workloads_total", *_local(after), reason, cause, class_)

    def _ready(self, _: Workload, after: Workload, now: Condition) -> None:
        queue, class_ = _queue(after), _class(after)
        at_s = epoch_s(now.last_transition_time)
        waited_s = _waited(after, at_s)
        self._instruments.observe("kueue_ready_wait_time_seconds", queue, class_, value=waited_s)
        self._observe_local("ready_wait_time_seconds", after, waited_s)
        admitted = find_condition(after.status.conditions, reasons.ADMITTED)
        if admitted is not None:
            value = _since(admitted, at_s)
            self._instruments.observe("kueue_admitted_until_ready_wait_time_seconds", queue, class_, value=value)
            self._observe_local("admitted_until_ready_wait_time_seconds", after, value)

    def _finished(self, before: Workload, after: Workload, now: Condition) -> None:
        queue, class_ = _queue(before) or _queue(after), _class(after)
        self._instruments.count("kueue_finished_workloads_total", queue, class_)
        self._instruments.count("tessera_finished_workloads_total", self._kind(after), now.reason)
        if self._local_queues:
            self._instruments.count("kueue_local_queue_finished_workloads_total", *_local(after), class_)
        admitted = find_condition(before.status.conditions, reasons.ADMITTED)
        if admitted is not None and admitted.status == "True":
            value = _since(admitted, epoch_s(now.last_transition_time))
            self._instruments.observe("kueue_execution_time_seconds", queue, class_, value=value)
            self._observe_local("execution_time_seconds", after, value)

    def _kind(self, workload: Workload) -> str:
        return job_kind(workload, self._declared())

    def _observe_local(self, name: str, workload: Workload, value: float) -> None:
        if self._local_queues:
            self._instruments.observe(f"kueue_local_queue_{name}", *_local(workload), _class(workload), value=value)

    # -- writes (kube.writing.writes.WriteObserver) --------------------------------------------------------------------

    def attempted(self, write: Write[Any], latency_s: float, status: int | None) -> None:  # noqa: ARG002 - the observer's shape
        self._instruments.observe("tessera_write_seconds", write.verb.value, _resource(write), value=latency_s)

    def finished(self, write: Write[Any], outcome: Outcome[Any], waited_s: float) -> None:  # noqa: ARG002
        result = type(outcome).__name__.lower()
        self._instruments.count("tessera_writes_total", write.verb.value, _resource(write), result)


def _resource(write: Write[Any]) -> str:
    plural = write.resource.plural
    return f"{plural}/{write.subresource}" if write.subresource else plural


def _queue(workload: Workload) -> str:
    return workload.status.admission.cluster_queue if workload.status.admission is not None else ""


def _local(workload: Workload) -> tuple[str, str]:
    return workload.spec.queue_name, workload.metadata.namespace


def _class(workload: Workload) -> str:
    return workload.spec.priority_class_ref.name if workload.spec.priority_class_ref is not None else ""


def _was(workload: Workload, type_: str) -> bool:
    condition = find_condition(workload.status.conditions, type_)
    return condition is not None and condition.status == "True"


def _since(condition: Condition, at_s: float) -> float:
    return max(0.0, at_s - epoch_s(condition.last_transition_time))


def _waited(workload: Workload, at_s: float) -> float:
    """Seconds since the workload's creation, or since it was requeued."""
    requeued = find_condition(workload.status.conditions, reasons.REQUEUED)
    if requeued is not None and requeued.status == "True":
        return _since(requeued, at_s)
    return max(0.0, at_s - epoch_s(workload.metadata.creation_timestamp))
