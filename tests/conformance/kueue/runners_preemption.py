"""Runners of the suites about preemption alone: the assignment is given, the victims are asked for."""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.objects.decode import decode
from controller.objects.meta import Time, epoch_s, find_condition, is_true, to_json
from controller.objects.queues import ClusterQueue, Cohort, ResourceFlavor
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming, Target
from controller.scheduler.decisions.evictionstatus import evicted
from controller.scheduler.flavors.assignment import Assignment, FlavorChoice, Mode, PodSetChoice
from controller.scheduler.model.config import BOTH_STRATEGIES, EngineConfig, FairSharing, PreemptionStrategy
from controller.scheduler.model.podrequests import RequestRules
from controller.scheduler.model.resources import (
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
)
from controller.scheduler.model.workload import WorkloadInfo, effective_priority, queue_order_time_s
from controller.scheduler.preemption.search import Preemption
from controller.scheduler.quota.queuestate import Holder
from tests.conformance.replay import Case, Difference, first_difference, runner


def fair_sharing(config: Any) -> FairSharing | None:
    """``false``, or the strategies of the case."""
    if not config:
        return None
    names = config.get("preemptionStrategies") if isinstance(config, Mapping) else None
    return FairSharing(strategies=tuple(PreemptionStrategy(name) for name in names or BOTH_STRATEGIES))


def cluster_of(case: Case) -> Cluster:
    """The case's objects, with the admitted workloads charged."""
    config = EngineConfig(
        gates=case.gates, fair_sharing=fair_sharing((case.input.get("config") or {}).get("fairSharing"))
    )
    cluster = Cluster(config)
    for data in case.input["resourceFlavors"]:
        cluster.set_flavor(decode(data, ResourceFlavor))
    for data in case.input.get("cohorts") or ():
        cluster.set_cohort(decode(data, Cohort))
    for data in case.input["clusterQueues"]:
        cluster.set_cluster_queue(decode(data, ClusterQueue))
    for data in case.input["admitted"] or ():
        cluster.add_holder(holder_of(case, decode(data, Workload)))
    cluster.validate()
    return cluster


def holder_of(case: Case, workload: Workload) -> Holder:
    info = WorkloadInfo.of(workload, rules=RequestRules(), gates=case.gates)
    conditions = workload.status.conditions
    reserved = find_condition(conditions, "QuotaReserved")
    return Holder(
        info=info,
        cluster_queue=info.cluster_queue,
        local_queue=local_queue_of(workload),
        usage=info.usage().assigned,
        priority=effective_priority(workload, case.gates),
        reserved_at_s=epoch_s(reserved.last_transition_time if reserved is not None else None),
        queued_at_s=queued_at_s(case, workload),
        evicted=is_true(conditions, "Evicted"),
        admitted=is_true(conditions, "Admitted"),
    )


def local_queue_of(workload: Workload) -> LocalQueueKey:
    return LocalQueueKey(f"{workload.metadata.namespace}/{workload.spec.queue_name}")


def queued_at_s(case: Case, workload: Workload) -> float:
    return queue_order_time_s(workload, timeout_requeues_by_eviction=True, gates=case.gates)


def incoming_of(case: Case, cluster: Cluster) -> Incoming:
    workload = decode(case.input["incoming"], Workload)
    return Incoming(
        info=WorkloadInfo.of(workload, rules=RequestRules(), gates=case.gates),
        queue=cluster.queue(ClusterQueueName(case.input["targetCQ"])),
        local_queue=local_queue_of(workload),
        priority=effective_priority(workload, case.gates),
        queued_at_s=queued_at_s(case, workload),
    )


def assignment_of(incoming: Incoming, flavors: Mapping[str, Mapping[str, Any]]) -> Assignment:
    """``flavors``: by pod set and resource, {name, mode}; whatever needs preemption is in mode Preempt."""
    modes = {"Fit": Mode.FIT, "Preempt": Mode.PREEMPT, "NoFit": Mode.NO_FIT}
    pod_sets, usage = [], dict[FlavorResource, int]()
    for one in incoming.info.pod_sets:
        choices = {
            ResourceName(resource): FlavorChoice(FlavorName(given["name"]), modes[given["mode"]], 0, 0)
            for resource, given in flavors.get(one.name, {}).items()
        }
        for resource, choice in choices.items():
            fr = FlavorResource(choice.flavor, resource)
            usage[fr] = usage.get(fr, 0) + one.requests.get(resource, 0)
        pod_sets.append(PodSetChoice(name=one.name, count=one.count, requests=one.requests, choices=choices))
    return Assignment(pod_sets=tuple(pod_sets), mode=Mode.PREEMPT, usage=usage)


def targets_of(case: Case, flavors: Mapping[str, Mapping[str, Any]]) -> tuple[Cluster, tuple[Target, ...]]:
    cluster = cluster_of(case)
    incoming = incoming_of(case, cluster)
    preemption = Preemption(cluster, lambda _: 0.0)
    found = preemption.targets(incoming, assignment_of(incoming, flavors), now_s(case))
    cluster.validate()
    return cluster, found


def now_s(case: Case) -> float:
    return epoch_s(decode({"now": case.input["now"]}, dict[str, Time])["now"])


@runner("preemption-TestPreemption")
@runner("preemption-TestHierarchicalPreemptions")
def victims(case: Case) -> Difference | None:
    given = case.input["assignment"]["podSets"]
    cluster, targets = targets_of(case, {one["name"]: one.get("flavors") or {} for one in given})
    gone = {target.holder.key: target for target in targets}
    after = []
    for holder in cluster.holders.values():
        workload, target = holder.info.workload, gone.get(holder.key)
        if target is not None and not holder.evicted:
            workload = evicted(workload, "Preempted", "Preempted", now_s=now_s(case), preemption=target.reason)
        after.append(workload)
    wanted = [decode(data, Workload) for data in case.expect["wantWorkloads"] or ()]
    return first_difference(case.expect["wantPreempted"], len(targets), "wantPreempted") or first_difference(
        listed(wanted), listed(after), "wantWorkloads"
    )


def listed(workloads: Iterable[Workload]) -> dict[str, Any]:
    """By key; conditions by type, of a text only whether there is one. Resource versions mean nothing."""
    found = {}
    for workload in workloads:
        data = to_json(workload)
        conditions = {one["type"]: one for one in data.get("status", {}).get("conditions", ())}
        for one in conditions.values():
            one["message"] = bool(one.get("message"))
        data.setdefault("status", {})["conditions"] = conditions
        data.get("metadata", {}).pop("resourceVersion", None)
        found[workload.key] = data
    return found


@runner("preemption-TestFairPreemptions")
def fair_victims(case: Case) -> Difference | None:
    main = {"cpu": {"name": case.input["assignmentFlavor"], "mode": "Preempt"}}
    _, targets = targets_of(case, {"main": main})
    return first_difference(
        sorted(case.expect["wantPreempted"] or ()), sorted(f"{one.holder.key}:{one.reason}" for one in targets)
    )
