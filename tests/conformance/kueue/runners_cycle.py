"""Runners of the suites about whole scheduling cycles: objects in, ``Engine.cycle``, statuses and events out.

The runner is the API server of the case: it keeps the objects, takes what decisions write, and tells the engine. Only
statuses are compared, because a cycle writes nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from controller.objects.decode import decode, decode_object
from controller.objects.meta import Time, epoch_s, is_true, to_json
from controller.objects.quantity import parse_quantity
from controller.objects.queues import ClusterQueue
from controller.objects.workload import Admission, Workload
from controller.scheduler.decisions.decisions import Decisions, Event, Evicted
from controller.scheduler.engine import Engine
from controller.scheduler.model.config import (
    AdmissionFairSharing,
    EngineConfig,
    FairSharing,
    PreemptionStrategy,
    QuotaCheckStrategy,
    WaitForPodsReady,
)
from controller.scheduler.model.resources import ClusterQueueName, LocalQueueKey, ResourceName, WorkloadKey
from tests.conformance.kueue.runners_workload import duration_s, request_rules
from tests.conformance.replay import Case, Difference, first_difference, runner

_KINDS = (
    "namespaces",
    "resourceFlavors",
    "topologies",
    "nodes",
    "pods",
    "admissionChecks",
    "cohorts",
    "clusterQueues",
    "localQueues",
    "objects",
)


def engine_config(case: Case) -> EngineConfig:
    config = case.input.get("config") or {}
    fair, afs, ready = (config.get(key) for key in ("fairSharing", "admissionFairSharing", "waitForPodsReady"))
    strategies = (fair.get("preemptionStrategies") or ()) if isinstance(fair, Mapping) else ()
    given = FairSharing(strategies=tuple(map(PreemptionStrategy, strategies))) if strategies else FairSharing()
    return EngineConfig(
        gates=case.gates,
        fair_sharing=given if fair else None,
        admission_fair_sharing=_admission_fair_sharing(afs) if afs else None,
        wait_for_pods_ready=WaitForPodsReady(block_admission=bool(ready.get("blockAdmission"))) if ready else None,
        quota_check_strategy=QuotaCheckStrategy(config.get("quotaCheckStrategy") or "BlockUndeclared"),
        request_rules=request_rules(config),
    )


def _admission_fair_sharing(given: Mapping[str, Any]) -> AdmissionFairSharing:
    weights = {ResourceName(name): float(weight) for name, weight in (given.get("resourceWeights") or {}).items()}
    return AdmissionFairSharing(
        half_life_s=duration_s(given.get("usageHalfLifeTime") or "0s"),
        sampling_interval_s=duration_s(given.get("usageSamplingInterval") or "0s"),
        resource_weights=weights,
    )


class Api:
    """The objects of a case, what was written to them, and the engine that is told."""

    def __init__(self, case: Case) -> None:
        self.now_s = epoch_s(decode({"at": case.input["now"]}, dict[str, Time])["at"])
        self.engine = Engine(engine_config(case))
        self.workloads: dict[WorkloadKey, Workload] = {}
        self.events: list[Event] = []
        self.error: str | None = case.input.get("admissionError") or case.input.get("patchStatusErr")
        self.writes = 0
        for kind in _KINDS:
            for data in case.input.get(kind) or ():
                self.engine.put(decode_object(data), self.now_s)
        for data in case.input["workloads"]:
            self.write(decode(data, Workload))
        self.engine.validate()

    def write(self, workload: Workload) -> None:
        self.workloads[WorkloadKey(workload.key)] = workload
        self.engine.put(workload, self.now_s)

    def cycle(self) -> Decisions:
        """One cycle, its writes made or refused, the changes seen."""
        decisions = self.engine.cycle(self.now_s)
        self.engine.validate()
        for decision in decisions.made:
            after = decision.status()
            if self.error is not None:
                self.engine.failed(decision, self.now_s, str(self.error))
                if isinstance(decision, Evicted) and "not found" not in str(self.error):
                    self.events += decision.refused_events()
                continue
            self.writes += 1
            self.events += decision.events()
            self.write(msgspec.structs.replace(self.workloads[WorkloadKey(after.key)], status=after.status))
            self.engine.validate()
        return decisions

    def reservations(self) -> dict[str, Any]:
        """What the engine has charged, as admissions. The peer goes on counting a slice that was replaced until it
        hears of its own write; ours has given its quota to the successor by then.
        """
        state = self.engine.state
        replaced = [
            key
            for key, workload in self.workloads.items()
            if is_true(workload.status.conditions, "Finished") and workload.status.admission is not None
        ]
        keys = [*state.cluster.holders, *(key for key in replaced if key not in state.cluster.holders)]
        return {key: admission_json(self.workloads[key].status.admission) for key in keys}

    def active(self) -> dict[str, list[str]]:
        return self._by_queue(self.engine.state.queues.active)

    def parked(self) -> dict[str, list[str]]:
        return self._by_queue(self.engine.state.queues.parked)

    def _by_queue(self, listed: Any) -> dict[str, list[str]]:
        names = sorted(self.engine.state.cluster.queues)
        found = {str(name): sorted(one.key for one in listed(ClusterQueueName(name))) for name in names}
        return {name: keys for name, keys in found.items() if keys}


def admission_json(admission: Admission | None) -> Any:
    return None if admission is None else to_json(admission)


def wanted_admissions(given: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: admission_json(decode(one, Admission)) for key, one in (given or {}).items()}


def status_json(workload: Workload) -> dict[str, Any]:
    """Conditions by type; of texts only whether there is one."""
    found: dict[str, Any] = to_json(workload.status)
    for key in ("conditions", "admissionChecks"):
        by_name = {one.get("type") or one.get("name"): one for one in found.get(key) or ()}
        for one in by_name.values():
            one["message"] = bool(one.get("message"))
        if by_name:
            found[key] = by_name
    return found


def compare_workloads(wanted: Iterable[Mapping[str, Any]] | None, api: Api) -> Difference | None:
    decoded = [decode(dict(one), Workload) for one in wanted or ()]
    return first_difference(
        {one.key: status_json(one) for one in decoded},
        {key: status_json(workload) for key, workload in api.workloads.items()},
        "workloads",
    )


def compare_events(case: Case, api: Api, *, null_is_none: bool = False) -> Difference | None:
    """``null_is_none``: no wanted events are none at all; else nothing is compared then."""
    wanted = case.expect.get("wantEvents")
    if wanted is None and not null_is_none:
        return None
    rules = case.expect["eventCompare"]
    silent = rules["ignoreMessage"]
    expected = [[one["object"], one["type"], one["reason"], silent or bool(one["message"])] for one in wanted or ()]
    found = [[one.workload, str(one.type), str(one.reason), silent or bool(one.message)] for one in api.events]
    if rules["ignoreOrder"]:
        expected.sort()
        found.sort()
    return first_difference(expected, found, "events")


def compare_left(case: Case, api: Api) -> Difference | None:
    def wanted(key: str) -> dict[str, list[str]]:
        return {queue: sorted(keys) for queue, keys in (case.expect.get(key) or {}).items() if keys}

    return first_difference(wanted("wantLeft"), api.active(), "left") or first_difference(
        wanted("wantInadmissibleLeft"), api.parked(), "inadmissibleLeft"
    )


@runner("scheduler-TestSchedule")
@runner("scheduler-TestScheduleForFairSharing")
@runner("scheduler-TestScheduleRecomputePreemptionTargets")
@runner("scheduler-TestScheduleConcurrentAdmission")
def schedule(case: Case) -> Difference | None:
    api = Api(case)
    decisions = api.cycle()
    skipped = case.expect.get("wantSkippedPreemptions") or {}
    recomputed = case.expect.get("wantPreemptionTargetRecomputations") or {}
    return (
        compare_workloads(case.expect["wantWorkloads"], api)
        or first_difference(wanted_admissions(case.expect["wantAssignments"]), api.reservations(), "assignments")
        or compare_left(case, api)
        or compare_events(case, api)
        or first_difference(
            dict(skipped),
            {name: decisions.skipped_preemptions.get(ClusterQueueName(name), 0) for name in skipped},
            "skippedPreemptions",
        )
        or first_difference(recomputed, _recomputed(decisions, recomputed), "recomputations")
    )


def _recomputed(decisions: Decisions, named: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """What a case does not name it does not read: Kueue counts recomputations that came to nothing as well."""
    found = decisions.recomputations
    return {
        name: {result: found.get(ClusterQueueName(name), {}).get(result, 0) for result in results}
        for name, results in named.items()
    }


@runner("scheduler-TestScheduleForTAS")
def schedule_on_nodes(case: Case) -> Difference | None:
    """A second later, so that second passes are due."""
    api = Api(case)
    api.now_s += 1.0
    return _on_nodes(case, api)


@runner("scheduler-TestScheduleForTASCohorts")
@runner("scheduler-TestScheduleForTASPreemption")
def schedule_on_shared_nodes(case: Case) -> Difference | None:
    api = Api(case)
    return _on_nodes(case, api) or compare_workloads(case.expect["wantWorkloads"], api)


def _on_nodes(case: Case, api: Api) -> Difference | None:
    """What was admitted before and runs well is not looked at."""
    running = {
        key
        for key, workload in api.workloads.items()
        if is_true(workload.status.conditions, "Admitted") and not workload.status.unhealthy_nodes
    }
    api.cycle()
    reserved = {key: admission for key, admission in api.reservations().items() if key not in running}
    return (
        first_difference(wanted_admissions(case.expect["wantNewAssignments"]), reserved, "newAssignments")
        or compare_left(case, api)
        or compare_events(case, api, null_is_none=True)
    )


@runner("scheduler-TestScheduleForAFS")
def schedule_by_usage(case: Case) -> Difference | None:
    """``deleteQueue`` goes from the API alone: the engine is not told, as Kueue's queues are not."""
    api = Api(case)
    namespaces = {one["metadata"]["name"]: one["metadata"]["namespace"] for one in case.input["localQueues"]}
    for name, resources in (case.input.get("initialUsage") or {}).items():
        consumed = {ResourceName(one): float(parse_quantity(text).fraction) for one, text in resources.items()}
        api.engine.state.usage.restore(LocalQueueKey(f"{namespaces[name]}/{name}"), consumed, api.now_s)
    for _ in range(case.input["cycles"]):
        api.cycle()
    return compare_workloads(case.expect["wantWorkloads"], api)


@runner("scheduler-TestLastSchedulingContext")
def two_cycles(case: Case) -> Difference | None:
    api = Api(case)
    api.cycle()
    first = compare_workloads(case.expect["wantWorkloads"], api)
    if first is not None:
        return first
    for key in case.input["deleteWorkloads"] or ():
        namespace, _, name = key.partition("/")
        del api.workloads[WorkloadKey(key)]
        api.engine.drop(Workload, namespace, name, api.now_s)
    api.cycle()
    return first_difference(
        wanted_admissions(case.expect["wantAdmissionsOnSecondSchedule"]), api.reservations(), "secondAdmissions"
    )


@runner("scheduler-TestScheduleForPreserveFlavorScanProgress")
def scan_progress(case: Case) -> Difference | None:
    api = Api(case)
    queues = [decode(one, ClusterQueue) for one in case.input["clusterQueues"]]
    for index in range(case.input["cycles"]):
        api.cycle()
        for queue in queues:
            if not case.input.get("noChurn"):
                quota = case.input["churnQuotas"][index % 2]
                api.engine.put(_with_quota(queue, case.input["churnFlavor"], quota), api.now_s)
            api.engine.state.wake(ClusterQueueName(queue.metadata.name))
    found = {}
    for want, name in (("wantBlockerFlavor", "blocker"), ("wantPendingFlavor", "pending")):
        admission = api.workloads[WorkloadKey(f"default/{name}")].status.admission
        flavors = admission.pod_set_assignments[0].flavors if admission is not None else {}
        found[want] = next(iter(flavors.values()), "")
    return first_difference(dict(case.expect), found)


def _with_quota(queue: ClusterQueue, flavor: str, nominal: str) -> ClusterQueue:
    data = to_json(queue)
    for group in data["spec"]["resourceGroups"]:
        for one in group["flavors"]:
            if one["name"] == flavor:
                for resource in one["resources"]:
                    resource["nominalQuota"] = nominal
    return decode(data, ClusterQueue)


@runner("scheduler-TestSecondPassDoesNotRepushEntryPenalty")
@runner("scheduler-TestSecondPassSkipsWaitForPodsReadyBlock")
def second_pass(case: Case) -> Difference | None:
    api = Api(case)
    api.now_s += 1.0
    api.cycle()
    workload = next(iter(api.workloads.values()))
    conditions, admission = workload.status.conditions, workload.status.admission
    sets = admission.pod_set_assignments if admission is not None else ()
    local_queue = LocalQueueKey(f"{workload.metadata.namespace}/{workload.spec.queue_name}")
    lost = {one["name"] for data in case.input["workloads"] for one in data["status"].get("unhealthyNodes") or ()}
    places = str([to_json(one.topology_assignment) for one in sets if one.topology_assignment is not None])
    found = {
        "wantQuotaReserved": is_true(conditions, "QuotaReserved"),
        "wantAdmitted": is_true(conditions, "Admitted"),
        "wantStatusPatches": api.writes,
        "wantTopologyAssigned": any(one.topology_assignment is not None for one in sets),
        "wantDelayedTopologyRequest": next((one.delayed_topology_request for one in sets), None),
        "wantNotOnNode": next((name for name in lost if name not in places), ""),
        "wantPendingPenalty": api.engine.state.usage.penalised(local_queue, WorkloadKey(workload.key)),
    }
    return first_difference(dict(case.expect), {key: found[key] for key in case.expect})
