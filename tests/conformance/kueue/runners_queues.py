"""Runners of the suites about queues: who is tried first, and what a ClusterQueue's status says."""

from typing import Any

import msgspec

from controller.objects.decode import decode
from controller.objects.meta import epoch_s, is_true, to_json
from controller.objects.quantity import parse_quantity
from controller.objects.queues import ClusterQueue, LocalQueue
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.model.config import AdmissionFairSharing, EngineConfig
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.podrequests import RequestRules
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, ResourceName, WorkloadKey
from controller.scheduler.model.workload import WorkloadInfo, effective_priority
from controller.scheduler.queues.pendingqueues import PendingQueues
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.quota.queueusage import reservation, usage
from controller.scheduler.quota.usagehistory import UsageHistory
from controller.scheduler.state.intake import Shapes
from tests.conformance.kueue.runners_workload import duration_s
from tests.conformance.replay import Case, Difference, first_difference, runner


def admission_fair_sharing(data: dict[str, Any] | None) -> AdmissionFairSharing | None:
    if data is None:
        return None
    return AdmissionFairSharing(
        half_life_s=duration_s(data.get("usageHalfLifeTime") or "0s"),
        sampling_interval_s=duration_s(data.get("usageSamplingInterval") or "0s"),
        resource_weights={ResourceName(name): float(one) for name, one in (data.get("resourceWeights") or {}).items()},
    )


@runner("queue-TestFsAdmission")
def first_in_line(case: Case) -> Difference | None:
    afs = admission_fair_sharing(case.input["afsConfig"])
    cluster = Cluster(EngineConfig(gates=case.gates, admission_fair_sharing=afs))
    history = UsageHistory(afs)
    queue = decode(case.input["cq"], ClusterQueue)
    cluster.set_cluster_queue(queue)
    for data in case.input["lqs"]:
        local_queue = decode(data, LocalQueue)
        spec = msgspec.structs.replace(local_queue.spec, cluster_queue=queue.metadata.name)
        cluster.set_local_queue(msgspec.structs.replace(local_queue, spec=spec))
        weight = spec.fair_sharing.weight if spec.fair_sharing else None
        history.set_weight(LocalQueueKey(local_queue.key), 1.0 if weight is None else float(weight.fraction))
    for key, consumed in (case.input["initConsumedResources"] or {}).items():
        amounts = {ResourceName(name): float(parse_quantity(one).fraction) for name, one in consumed.items()}
        history.restore(LocalQueueKey(key), amounts, 0.0)
    queues, shapes = PendingQueues(cluster, history.usage), Shapes()
    for data in case.input["wls"]:
        workload = decode(data, Workload)
        key = WorkloadKey(workload.key)
        pending, _ = shapes.pending_of(key, workload, cluster.config, limits=LimitSummary(), overheads={})
        queues.put(pending, now_s=0.0)
        queues.validate()
    head = queues.heads(0.0, open_for=lambda _: True)[0]
    return first_difference(case.expect["wantWl"]["metadata"]["name"], head.info.workload.metadata.name)


@runner("cache-TestClusterQueueUsage")
def cluster_queue_usage(case: Case) -> Difference | None:
    cluster = Cluster(EngineConfig(gates=case.gates))
    queue = decode(case.input["clusterQueue"], ClusterQueue)
    cluster.set_cluster_queue(queue)
    for data in case.input["workloads"]:
        workload = decode(data, Workload)
        conditions = workload.status.conditions
        info = WorkloadInfo.of(workload, rules=RequestRules(), gates=case.gates)
        cluster.add_holder(
            Holder(
                info=info,
                cluster_queue=info.cluster_queue,
                local_queue=LocalQueueKey(f"{workload.metadata.namespace}/{workload.spec.queue_name}"),
                usage=info.usage().assigned,
                priority=effective_priority(workload, case.gates),
                reserved_at_s=0.0,
                queued_at_s=epoch_s(workload.metadata.creation_timestamp),
                admitted=is_true(conditions, "Admitted"),
            )
        )
        cluster.validate()
    state = cluster.queue(ClusterQueueName(queue.metadata.name))
    found = {
        "wantReservedResources": to_json(reservation(state)),
        "wantUsedResources": to_json(usage(state)),
        "wantReservingWorkloads": len(state.holders),
        "wantAdmittedWorkloads": sum(holder.admitted for holder in state.holders.values()),
    }
    return first_difference(dict(case.expect), found)
