"""From a Workload object to what the engine keeps of it: a place among the pending, a holding, or nothing."""

import hashlib
from collections.abc import Mapping
from enum import Enum, auto

import msgspec

from controller.engine import reasons
from controller.engine.config import EngineConfig
from controller.engine.flavorplan import ALLOWED_FLAVORS
from controller.engine.limitrange import LimitSummary
from controller.engine.queues.pending import PendingWorkload
from controller.engine.queuestate import Holder
from controller.engine.resources import ClusterQueueName, LocalQueueKey, WorkloadKey
from controller.engine.variants import job_of
from controller.engine.workload import PodSetRequests, WorkloadInfo, adjusted, effective_priority, queue_order_time_s
from controller.objects.meta import Resources, epoch_s, find_condition, is_true
from controller.objects.quantity import Quantity
from controller.objects.workload import PodSet, Workload

ADMISSION_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
SLICE_REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


_REMEMBERED = 4096
_NOWHERE = ClusterQueueName("")


class Standing(Enum):
    """Where a workload belongs, by what its object says."""

    FINISHED = auto()
    HOLDS = auto()
    PENDING = auto()
    HELD_BACK = auto()
    """It may not queue: not active, gated, about to be deactivated, or waiting out a back-off."""


def standing(workload: Workload, config: EngineConfig) -> Standing:
    conditions = workload.status.conditions
    if is_true(conditions, reasons.FINISHED):
        return Standing.FINISHED
    if workload.status.admission is not None and is_true(conditions, reasons.QUOTA_RESERVED):
        return Standing.HOLDS
    gated = config.gates.on("AdmissionGatedBy") and workload.metadata.annotations.get(ADMISSION_GATED_BY)
    requeued = find_condition(conditions, reasons.REQUEUED)
    waits = requeued is not None and requeued.status == "False"
    if waits or gated or not workload.spec.active or is_true(conditions, reasons.DEACTIVATION_TARGET):
        return Standing.HELD_BACK
    return Standing.PENDING


def local_queue_of(workload: Workload) -> LocalQueueKey:
    return LocalQueueKey(f"{workload.metadata.namespace}/{workload.spec.queue_name}")


def replaced_slice(workload: Workload, config: EngineConfig) -> WorkloadKey | None:
    """The elastic slice that this one stands in for."""
    if not config.gates.on("ElasticJobsViaWorkloadSlices"):
        return None
    key = workload.metadata.annotations.get(SLICE_REPLACES)
    return WorkloadKey(key) if key else None


class Shapes:
    """What pending workloads of one shape have in common is kept once: their pod sets and what these ask for.

    A hundred thousand may wait, and most are alike.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, tuple[PodSet, ...], tuple[PodSetRequests, ...]]] = {}
        self._names: dict[LocalQueueKey, LocalQueueKey] = {}

    def pending_of(
        self, workload: Workload, config: EngineConfig, *, limits: LimitSummary, overheads: Mapping[str, Resources]
    ) -> PendingWorkload:
        """With the namespace's defaults in its templates, which then belong to its shape."""
        filled = adjusted(workload, overheads=overheads, limits=limits)
        if filled.spec.pod_sets != workload.spec.pod_sets:
            workload = filled
        priority = effective_priority(workload, config.gates)
        shape = shape_of(workload, priority)
        known = self._known.get(shape)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            info = WorkloadInfo.of(workload, rules=config.request_rules, gates=config.gates)
            known = self._known[shape] = (shape, workload.spec.pod_sets, info.pod_sets)
        shape, pod_sets, requests = known
        workload = msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, pod_sets=pod_sets))
        local_queue = local_queue_of(workload)
        if len(self._names) >= _REMEMBERED:
            self._names.clear()
        return PendingWorkload(
            WorkloadInfo(workload=workload, cluster_queue=_NOWHERE, pod_sets=requests),
            local_queue=self._names.setdefault(local_queue, local_queue),
            priority=priority,
            queued_at_s=queued_at_s(workload, config),
            shape=shape,
        )


def holder_of(workload: Workload, config: EngineConfig, known: Holder | None = None) -> Holder:
    """What a workload with quota is charged. Raises TopologyEncodingError."""
    info = WorkloadInfo.of(workload, rules=config.request_rules, gates=config.gates)
    conditions = workload.status.conditions
    reserved = find_condition(conditions, reasons.QUOTA_RESERVED)
    return Holder(
        info=info,
        cluster_queue=info.cluster_queue,
        local_queue=local_queue_of(workload),
        usage=info.usage().assigned,
        priority=effective_priority(workload, config.gates),
        reserved_at_s=epoch_s(reserved.last_transition_time) if reserved is not None else 0.0,
        queued_at_s=queued_at_s(workload, config) if known is None else known.queued_at_s,
        evicted=is_true(conditions, reasons.EVICTED),
        admitted=is_true(conditions, reasons.ADMITTED),
    )


def queued_at_s(workload: Workload, config: EngineConfig) -> float:
    rules = config.wait_for_pods_ready
    by_eviction = rules is None or rules.requeue_by_eviction
    return queue_order_time_s(workload, timeout_requeues_by_eviction=by_eviction, gates=config.gates)


def shape_of(workload: Workload, priority: int) -> str:
    """Equal for workloads of one ClusterQueue that are tried alike: same pods, same priority, same constraints.

    What still counts of a pod set is in it too: pods that are reclaimable ask for nothing.
    """
    annotations = workload.metadata.annotations
    parts = (
        workload.spec.pod_sets,
        workload.status.reclaimable_pods,
        priority,
        annotations.get(ALLOWED_FLAVORS, ""),
        annotations.get(SLICE_REPLACES, ""),
        job_of(workload) or "",
        workload.spec.preemption_gates,
    )
    return hashlib.sha256(_ENCODER.encode(parts)).hexdigest()[:16]


def _quantity(value: object) -> str:
    if isinstance(value, Quantity):
        return str(value.nanos)
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")


_ENCODER = msgspec.json.Encoder(enc_hook=_quantity, order="sorted")
