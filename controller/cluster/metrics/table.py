"""Every series that the controller serves, in one table: a test compares docs/controller-metrics.md with it."""

from enum import Enum
from typing import Final

from msgspec import Struct


class Type(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(Struct, frozen=True):
    """A family of series. ``name`` is the exposed one: counters end in ``_total``. ``buckets`` are seconds, for
    histograms.
    """

    name: str
    type: Type
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


WAITS_S: Final = (1.0, *(2.5 * 2**power for power in range(14)))
"""Kueue's buckets of waiting times."""
FAST_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

_KIND = ("job_kind",)
_CQ = ("cluster_queue",)
_CQP = ("cluster_queue", "priority_class")
_LQ = ("name", "namespace")
_LQP = ("name", "namespace", "priority_class")
_UNITS = ("namespace", "local_queue", "flavor", "unit")
_LFR = ("name", "namespace", "flavor", "resource")
_FR = ("cohort", "cluster_queue", "flavor", "resource")


def _counter(name: str, labels: tuple[str, ...], help_: str) -> Family:
    return Family(name, Type.COUNTER, labels, help_)


def _gauge(name: str, labels: tuple[str, ...], help_: str) -> Family:
    return Family(name, Type.GAUGE, labels, help_)


def _histogram(name: str, labels: tuple[str, ...], help_: str, buckets: tuple[float, ...] = WAITS_S) -> Family:
    return Family(name, Type.HISTOGRAM, labels, help_, buckets)


COUNTED: Final = (
    _counter("kueue_admission_attempts_total", ("result",), "Workloads tried in cycles: success or inadmissible"),
    _histogram("kueue_admission_attempt_duration_seconds", ("result",), "Time of a cycle", FAST_S),
    _counter("kueue_quota_reserved_workloads_total", _CQP, "Workloads that were given quota"),
    _histogram("kueue_quota_reserved_wait_time_seconds", _CQP, "From creation or requeueing to the reservation"),
    _counter("kueue_admitted_workloads_total", _CQP, "Workloads that were admitted"),
    _histogram("kueue_admission_wait_time_seconds", _CQP, "From creation or requeueing to admission"),
    _histogram("kueue_admission_checks_wait_time_seconds", _CQP, "From the reservation to admission"),
    _histogram("kueue_ready_wait_time_seconds", _CQP, "From creation or requeueing until all pods were ready"),
    _histogram("kueue_admitted_until_ready_wait_time_seconds", _CQP, "From admission until all pods were ready"),
    _histogram("kueue_execution_time_seconds", _CQP, "From admission to the end"),
    _counter("kueue_finished_workloads_total", _CQP, "Workloads that ended"),
    _counter(
        "kueue_evicted_workloads_total",
        ("cluster_queue", "reason", "underlying_cause", "priority_class"),
        "Evictions, by their reason",
    ),
    _counter(
        "kueue_evicted_workloads_once_total",
        ("cluster_queue", "reason", "underlying_cause", "priority_class"),
        "Workloads that were evicted for the first time",
    ),
    _histogram("kueue_workload_eviction_latency_seconds", _CQ, "From an eviction to the release of its quota"),
    _histogram(
        "kueue_pods_ready_to_evicted_time_seconds",
        ("cluster_queue", "reason", "underlying_cause"),
        "From when all pods were ready to an eviction that found them so",
    ),
    _histogram(
        "kueue_workload_creation_latency_seconds",
        ("job_kind",),
        "From a job's creation to that of its Workload (gate MetricForWorkloadCreationLatency)",
    ),
    _counter(
        "kueue_preempted_workloads_total",
        ("preempting_cluster_queue", "reason"),
        "Preempted workloads, by the preemptor's ClusterQueue and the rule",
    ),
    _counter("kueue_replaced_workload_slices_total", _CQ, "Elastic slices that a larger one replaced"),
    _counter(
        "kueue_preemption_target_recomputations_total",
        ("cluster_queue", "result"),
        "Preemptors whose victims were taken by another preemptor, decided anew: deferred_fit (it fits once those are"
        " gone), new_targets (other victims are evicted) or skipped (neither)",
    ),
    _counter(
        "kueue_cohort_subtree_admitted_workloads_total", ("cohort", "priority_class"), "Admitted below the cohort"
    ),
    _histogram(
        "kueue_pod_scheduling_gate_removal_seconds",
        ("cluster_queue", "name", "is_group"),
        "From the admission of a pod's workload until the gate of that name was off the pod",
    ),
    _counter("kueue_local_queue_quota_reserved_workloads_total", _LQP, "Workloads that were given quota"),
    _counter("kueue_local_queue_admitted_workloads_total", _LQP, "Workloads that were admitted"),
    _counter("kueue_local_queue_finished_workloads_total", _LQP, "Workloads that ended"),
    _counter(
        "kueue_local_queue_evicted_workloads_total",
        ("name", "namespace", "reason", "underlying_cause", "priority_class"),
        "Evictions, by their reason",
    ),
    _histogram(
        "kueue_local_queue_quota_reserved_wait_time_seconds", _LQP, "From creation or requeueing to the reservation"
    ),
    _histogram("kueue_local_queue_admission_wait_time_seconds", _LQP, "From creation or requeueing to admission"),
    _histogram("kueue_local_queue_admission_checks_wait_time_seconds", _LQP, "From the reservation to admission"),
    _histogram(
        "kueue_local_queue_ready_wait_time_seconds", _LQP, "From creation or requeueing until all pods were ready"
    ),
    _histogram(
        "kueue_local_queue_admitted_until_ready_wait_time_seconds", _LQP, "From admission until all pods were ready"
    ),
    _histogram("kueue_local_queue_execution_time_seconds", _LQP, "From admission to the end"),
    _counter("tessera_admitted_workloads_total", _KIND, "Workloads that were admitted, by the kind of their job"),
    _counter("tessera_evicted_workloads_total", ("job_kind", "reason"), "Evictions, by the kind of the job"),
    _counter(
        "tessera_finished_workloads_total",
        ("job_kind", "reason"),
        "Workloads that ended, by the kind of their job; reason FailedToStart: it could not be started",
    ),
    _counter(
        "tessera_consolidation_moves_total",
        _CQ,
        "Workloads that were evicted because another fits once they have moved to places that were found for them",
    ),
    _counter(
        "tessera_consolidation_lost_gpu_seconds_total",
        _CQ,
        "Their GPUs times the seconds from admission to the move: the work that was lost",
    ),
    _counter("tessera_job_starts_total", _KIND, "Jobs that were told to run (kinds with a suspend field)"),
    _counter("tessera_job_suspensions_total", _KIND, "Jobs that were suspended (kinds with a suspend field)"),
    _counter("tessera_decisions_total", ("outcome",), "Decisions, by outcome"),
    _histogram("tessera_decision_seconds", (), "Time to decide on one workload", FAST_S),
    _histogram("tessera_write_seconds", ("verb", "resource"), "Time until the API server answered a write", FAST_S),
    _counter("tessera_writes_total", ("verb", "resource", "result"), "Writes, by result"),
    _counter(
        "tessera_topology_ungated_pods_total",
        ("result",),
        "Pods that were ungated with their node, by the result of the patch",
    ),
    _counter(
        "tessera_device_plans_total",
        ("result",),
        "Pods with a device plan that got devices: honoured, swapped within the pod set, drifted",
    ),
    _counter(
        "tessera_gpu_failures_total",
        ("action",),
        "Actions on pods whose GPU failed: notify, evict, requeue-gang, held-back",
    ),
    _counter(
        "tessera_flavor_interruptions_total",
        ("flavor",),
        "Nodes of the flavor that were taken away while pods of queued workloads were on them",
    ),
    _counter(
        "tessera_gpu_repair_grants_total",
        ("action",),
        "Steps of repairs of GPUs that were granted to agents: drain, reset, reboot",
    ),
    _counter(
        "tessera_gpu_drains_total",
        ("action",),
        "Actions on pods whose GPU is drained: tell, evict, requeue-gang; refused by a disruption budget for long",
    ),
    _counter(
        "tessera_gpu_repair_breaker_trips_total",
        ("flavor",),
        "Times that repairs of a flavor's GPUs began to wait for its budget",
    ),
    _counter("tessera_drift_total", (), "Sums of the engine that differed from their parts when recomputed"),
    _counter(
        "tessera_engine_rebuilds_total",
        ("result",),
        "Rebuilds of all sums of the engine from the objects: sound, or unsound if they still differ from their parts",
    ),
)
"""Families that are counted when events happen."""

READ: Final = (
    _gauge("kueue_pending_workloads", ("cluster_queue", "status"), "Pending workloads: active or inadmissible"),
    _gauge(
        "kueue_pending_scheduling_hashes",
        ("cluster_queue", "status"),
        "Shapes of pending workloads: workloads of one shape get the same decision",
    ),
    _gauge(
        "tessera_gpu_repair_breaker_tripped",
        ("flavor",),
        "1: repairs of the flavor's GPUs wait for its budget; no-flavor.tessera.dev: of nodes of no flavor",
    ),
    _gauge(
        "tessera_flavor_interruptions_per_node_day",
        ("flavor",),
        "How often that was for each day of a node, over tessera.spot.interruptionsWindow",
    ),
    _gauge("kueue_finished_workloads", _CQ, "Workloads that ended and are not deleted yet"),
    _gauge("kueue_reserving_active_workloads", _CQ, "Workloads with quota"),
    _gauge("kueue_admitted_active_workloads", _CQ, "Admitted workloads that have not ended"),
    _gauge(
        "kueue_admission_cycle_preemption_skips",
        _CQ,
        "Preemptions put off in the last cycle because their victims overlapped",
    ),
    _gauge("kueue_cluster_queue_status", ("cluster_queue", "status"), "1 for its status: pending, active, terminating"),
    _gauge(
        "kueue_unadmitted_workloads",
        ("cluster_queue", "reason", "underlying_cause"),
        "Pending workloads by reason, as far as one of their shape has been tried",
    ),
    _gauge("kueue_cluster_queue_weighted_share", ("cluster_queue", "cohort"), "Dominant resource share over weight"),
    _gauge("kueue_cohort_weighted_share", ("cohort",), "Dominant resource share over weight"),
    _gauge(
        "kueue_cluster_queue_info",
        ("cluster_queue", "cohort", "parent_cohort", "root_cohort"),
        "1: its place in the cohort tree",
    ),
    _gauge("kueue_cohort_info", ("cohort", "parent_cohort", "root_cohort"), "1: its place in the cohort tree"),
    _gauge("kueue_cohort_subtree_quota", ("cohort", "flavor", "resource"), "Nominal quota of the cohort's subtree"),
    _gauge(
        "kueue_cohort_subtree_resource_reservations",
        ("cohort", "flavor", "resource"),
        "Reserved in the cohort's subtree",
    ),
    _gauge("kueue_cohort_subtree_admitted_active_workloads", ("cohort",), "Admitted below the cohort and not ended"),
    _gauge(
        "kueue_build_info",
        ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
        "1: the version that runs",
    ),
    _gauge("kueue_cluster_queue_resource_usage", _FR, "Used by admitted workloads (enableClusterQueueResources)"),
    _gauge("kueue_cluster_queue_resource_reservation", _FR, "Reserved (enableClusterQueueResources)"),
    _gauge(
        "kueue_cluster_queue_resource_pending",
        ("cohort", "cluster_queue", "resource"),
        "Requested by pending workloads (enableClusterQueueResources)",
    ),
    _gauge("kueue_cluster_queue_nominal_quota", _FR, "Nominal quota (enableClusterQueueResources)"),
    _gauge("kueue_cluster_queue_borrowing_limit", _FR, "Borrowing limit, +Inf without (enableClusterQueueResources)"),
    _gauge("kueue_cluster_queue_lending_limit", _FR, "Lending limit, +Inf without (enableClusterQueueResources)"),
    _gauge("kueue_local_queue_pending_workloads", ("name", "namespace", "status"), "Pending workloads"),
    _gauge("kueue_local_queue_finished_workloads", _LQ, "Workloads that ended and are not deleted yet"),
    _gauge(
        "kueue_local_queue_unadmitted_workloads",
        ("name", "namespace", "reason", "underlying_cause"),
        "Pending workloads by reason, as far as one of their shape has been tried",
    ),
    _gauge("kueue_local_queue_reserving_active_workloads", _LQ, "Workloads with quota"),
    _gauge("kueue_local_queue_admitted_active_workloads", _LQ, "Admitted workloads that have not ended"),
    _gauge("kueue_local_queue_status", ("name", "namespace", "active"), "1 for whether it is active: True or False"),
    _gauge("kueue_local_queue_resource_usage", _LFR, "Used by admitted workloads"),
    _gauge("kueue_local_queue_resource_reservation", _LFR, "Reserved"),
    _gauge("kueue_local_queue_admission_fair_sharing_usage", _LQ, "Past usage, by which its ClusterQueue orders it"),
    _gauge(
        "tessera_local_queue_admissible_units",
        _UNITS,
        "Units of a shape in tessera.dev/units that would be admitted now, beside what runs",
    ),
    _gauge(
        "tessera_local_queue_usable_units",
        _UNITS,
        "The same, with the units that what the LocalQueue holds is worth",
    ),
    _gauge(
        "tessera_workloads",
        ("job_kind", "state"),
        "Workloads by the kind of their job: pending, reserving (quota, and checks to wait for), admitted or finished",
    ),
    _gauge(
        "tessera_queue_allocated",
        ("queue_name", "resource"),
        "What the workloads of a KAI Queue and of those below it hold: GPUs of all models, cores, bytes",
    ),
    _gauge("tessera_queue_capacity", ("resource",), "What there is for KAI's Queues"),
    _gauge(
        "tessera_queue_usage_answer_timestamp_seconds",
        (),
        "When Prometheus was asked for the past use that it answered last (tessera.kai.usage); absent before",
    ),
    _gauge("tessera_queue_usage_unanswered", (), "1 while Prometheus does not answer what Queues had before, else 0"),
    _gauge("tessera_leading", (), "1 while this replica leads"),
    _gauge(
        "tessera_parked_workloads",
        ("cluster_queue", "reason"),
        "Inadmissible workloads, which wait for a change, by reason",
    ),
    _gauge(
        "tessera_largest_placeable_gang",
        ("flavor", "level"),
        "Free healthy devices in the domain of this level that has most: the largest gang of one-GPU pods there",
    ),
    _gauge(
        "tessera_gpus",
        ("state",),
        "GPUs of all nodes, each in one state: held (idle ones too), free, watched (on probation), fault (out of "
        "service), off (free, on a node that takes no pods)",
    ),
    _gauge(
        "tessera_gpu_fragmentation_ratio",
        ("flavor",),
        "The expected share of free devices that recent requests could not use",
    ),
    _gauge("tessera_writes_pending", (), "Writes that are not finished"),
    _gauge(
        "tessera_watch_lag_seconds", ("resource",), "Since the last event or bookmark of the kind from the API server"
    ),
    _gauge("tessera_undecodable_objects", ("resource",), "Objects that could not be decoded, and are ignored"),
    _gauge("tessera_events_dropped", (), "Events that were not written, because too many came at once"),
)
"""Families that are read from the engine when they are scraped. Followers serve those that need no engine."""

FAMILIES: Final = (*COUNTED, *READ)
ROLE: Final = "replica_role"
"""The label that every series has: leader, follower or standalone."""
