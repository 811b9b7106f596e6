"""Runners of the suites about flavor assignment: which flavor each resource gets, how well it fits, and why not."""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.objects.core import Node
from controller.objects.decode import decode
from controller.objects.quantity import parse_quantity
from controller.objects.queues import AdmissionCheck, ClusterQueue, Cohort, ResourceFlavor, Topology
from controller.objects.workload import Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import (
    Assignment,
    FlavorAttempt,
    Mode,
    NoFitReason,
    PodSetChoice,
    Possibility,
)
from controller.scheduler.model.config import EngineConfig, FairSharing, QuotaCheckStrategy
from controller.scheduler.model.resources import (
    CPU,
    Amount,
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    ResourceName,
)
from controller.scheduler.model.workload import PodSetRequests, WorkloadInfo, effective_priority
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.quota.queueusage import quantity_of
from tests.conformance.kueue.runners_quota import amounts_of
from tests.conformance.kueue.runners_workload import request_rules
from tests.conformance.replay import ABSENT, Case, Difference, first_difference, runner

_REASONED = "(some reason)"
_USUAL_QUEUE = "test-clusterqueue"


class RecordedOracle:
    """Answers what the case says that a simulated preemption would find."""

    is_monotonic = False

    def __init__(self, results: Iterable[Mapping[str, Any]]) -> None:
        self._results = {(one["flavor"], one["resource"]): one for one in results}

    def simulate(self, incoming: Incoming, fr: FlavorResource, amount: Amount) -> tuple[Possibility, int]:  # noqa: ARG002
        result = self._results.get((fr.flavor, fr.resource))
        if result is None:
            return Possibility.PREEMPT, 0
        return Possibility(result["preemptionPossiblity"]), result["borrowingAfterSimulation"]


def cluster_of(case: Case) -> Cluster:
    config = case.input.get("config") or {}
    strategy = config.get("quotaCheckStrategy")
    cluster = Cluster(
        EngineConfig(
            gates=case.gates,
            fair_sharing=FairSharing() if config.get("fairSharing") else None,
            quota_check_strategy=QuotaCheckStrategy(strategy or "BlockUndeclared"),
            request_rules=request_rules(config),
        )
    )
    for data in case.input.get("resourceFlavors") or ():
        cluster.set_flavor(decode(data, ResourceFlavor))
    for data in case.input.get("topologies") or ():
        cluster.set_topology(decode(data, Topology))
    for data in case.input.get("nodes") or ():
        cluster.placement.set_node(decode(data, Node))
    for data in case.input.get("admissionChecks") or ():
        cluster.set_check(decode(data, AdmissionCheck))
    for data in case.input.get("cohorts") or ():
        cluster.set_cohort(decode(data, Cohort))
    for data in case.input["clusterQueues"]:
        cluster.set_cluster_queue(decode(data, ClusterQueue))
    for name, entries in (case.input.get("clusterQueueUsage") or {}).items():
        cluster.quota.add_usage(ClusterQueueName(name), amounts_of(entries))
    cluster.quota.validate()
    return cluster


def assignment_of(case: Case) -> Assignment:
    """The workload tried in the suites' usual queue; in the case's first where that is not there."""
    cluster = cluster_of(case)
    names = [one["metadata"]["name"] for one in case.input["clusterQueues"]]
    state = cluster.queue(ClusterQueueName(_USUAL_QUEUE if _USUAL_QUEUE in names else names[0]))
    workload = decode(case.input["workload"], Workload)
    gates = cluster.config.gates
    incoming = Incoming(
        info=WorkloadInfo.of(workload, rules=cluster.config.request_rules, gates=gates),
        queue=state,
        local_queue=LocalQueueKey("/"),
        priority=effective_priority(workload, gates),
        queued_at_s=0.0,
        replaces=_slice(case.input.get("preemptWorkloadSlice") or case.input.get("replaceWl"), state.name),
    )
    oracle = RecordedOracle(case.input.get("simulationResult") or ())
    return FlavorAssigner(cluster, oracle).assign(incoming)


def _slice(data: Mapping[str, Any] | None, queue: ClusterQueueName) -> Holder | None:
    if data is None:
        return None
    pod_sets = tuple(
        PodSetRequests(
            name=one.get("name", ""),
            count=one["count"],
            requests={ResourceName(name): amount for name, amount in (one.get("requests") or {}).items()},
            flavors={ResourceName(name): FlavorName(flavor) for name, flavor in (one.get("flavors") or {}).items()},
        )
        for one in data.get("totalRequests") or ()
    )
    return Holder(
        info=WorkloadInfo(workload=Workload(), cluster_queue=queue, pod_sets=pod_sets),
        cluster_queue=queue,
        local_queue=LocalQueueKey("/"),
        usage={},
        priority=0,
        reserved_at_s=0.0,
        queued_at_s=0.0,
    )


@runner("flavorassigner-TestDeletedFlavors")
@runner("flavorassigner-TestAssignFlavors")
def assign_flavors(case: Case) -> Difference | None:
    found, wanted = assignment_of(case), case.expect["wantAssignment"]
    sets = wanted.get("podSets") or []
    return (
        first_difference(case.expect["wantRepMode"], str(found.representative), "wantRepMode")
        or first_difference(
            {
                "borrowing": wanted["borrowing"],
                "noFitReason": wanted.get("noFitReason", ""),
                "podSets": [_wanted_set(one) for one in sets],
                "usage": _amounts(((wanted.get("usage") or {}).get("quota") or {}).get("assigned")),
            },
            {
                "borrowing": found.borrowing,
                "noFitReason": reason_of(found.no_fit_reason),
                "podSets": [_found_set(one) for one in found.pod_sets],
                "usage": {f"{fr.flavor}/{fr.resource}": amount for fr, amount in found.usage.items()},
            },
        )
        or next(filter(None, map(_attempts_differ, sets, found.pod_sets)), None)
    )


def _wanted_set(one: Mapping[str, Any]) -> dict[str, Any]:
    status = one.get("status") or {}
    return {
        "name": one.get("name", ""),
        "count": one["count"],
        "flavors": {
            resource: {key: choice[key] for key in ("name", "mode", "triedFlavorIdx")}
            for resource, choice in (one.get("flavors") or {}).items()
        },
        "requests": {name: parse_quantity(text).nanos for name, text in (one.get("requests") or {}).items()},
        "reasons": _REASONED if status.get("reasons") or status.get("err") else ABSENT,
    }


def _found_set(one: PodSetChoice) -> dict[str, Any]:
    short = any(attempt.shortfalls or attempt.problem for attempt in one.attempts)
    reasoned = one.mode is not Mode.FIT and bool(short or one.problems)
    return {
        "name": one.name,
        "count": one.count,
        "flavors": {
            str(resource): {
                "name": choice.flavor,
                "mode": str(choice.mode.representative),
                "triedFlavorIdx": choice.tried_index,
            }
            for resource, choice in one.choices.items()
        },
        "requests": {str(name): quantity_of(name, amount).nanos for name, amount in one.requests.items()},
        "reasons": _REASONED if reasoned else ABSENT,
    }


def _attempts_differ(wanted_set: Mapping[str, Any], found_set: PodSetChoice) -> Difference | None:
    """Where a flavor fits, what was tried must be as wanted; else everything wanted must have been tried."""
    listed = wanted_set.get("flavorAssignmentAttempts") or []
    if not listed:
        return None
    wanted = {one["flavor"]: _wanted_attempt(one) for one in listed}
    found = {str(one.flavor): _found_attempt(one) for one in found_set.attempts}
    if any(one["mode"] == "Fit" for one in found.values()):
        wanted = {name: attempt for name, attempt in wanted.items() if name in found}
    else:
        found = {name: attempt for name, attempt in found.items() if name in wanted}
    return first_difference(wanted, found, f"podSets.{found_set.name}.attempts")


def _wanted_attempt(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "mode": one["mode"],
        "borrow": one["borrow"],
        "preemptionPossibility": one.get("preemptionPossibility", ""),
        "noFitReason": one.get("noFitReason", ""),
        "reasons": _REASONED if one.get("reasons") else ABSENT,
    }


def _found_attempt(one: FlavorAttempt) -> dict[str, Any]:
    return {
        "mode": str(one.mode.representative),
        "borrow": one.borrow,
        "preemptionPossibility": str(one.possibility or ""),
        "noFitReason": reason_of(one.no_fit_reason),
        "reasons": _REASONED if one.shortfalls or one.problem else ABSENT,
    }


def _amounts(entries: Iterable[Mapping[str, Any]] | None) -> dict[str, Amount]:
    return {f"{one['flavor']}/{one['resource']}": one["amount"] for one in entries or ()}


def reason_of(reason: NoFitReason) -> str:
    return "" if reason is NoFitReason.NONE else reason.name


@runner("flavorassigner-TestHierarchical")
@runner("flavorassigner-TestReclaimBeforePriorityPreemption")
def chosen_flavors(case: Case) -> Difference | None:
    found = assignment_of(case)
    flavors = {str(resource): choice.flavor for resource, choice in found.pod_sets[0].choices.items()}
    return first_difference(case.expect["wantMode"], str(found.representative), "wantMode") or first_difference(
        case.expect["wantAssigment"] or {}, flavors, "wantAssigment"
    )


@runner("flavorassigner-TestIsNoFitDueToCapacityAndLimits")
def no_fit_reasons(case: Case) -> Difference | None:
    found = assignment_of(case)
    reasons = {str(one.flavor): reason_of(one.no_fit_reason) for one in found.pod_sets[0].attempts}
    wanted = case.expect["wantFlavorAttempts"] or {}
    return first_difference(
        case.expect.get("wantNoFitReason", ""), reason_of(found.no_fit_reason), "wantNoFitReason"
    ) or first_difference(
        {name: reason for name, reason in wanted.items() if name in reasons},
        {name: reason for name, reason in reasons.items() if name in wanted},
        "wantFlavorAttempts",
    )


@runner("flavorassigner-TestAssignFlavorsWithAllowedFlavors")
def allowed_flavors(case: Case) -> Difference | None:
    found = assignment_of(case)
    choice = found.pod_sets[0].choices.get(CPU)
    return first_difference(case.expect["wantRepMode"], str(found.representative), "wantRepMode") or first_difference(
        case.expect.get("wantFlavor", ""), "" if choice is None else str(choice.flavor), "wantFlavor"
    )


@runner("flavorassigner-TestAssignFlavors_LeaderWorkerSetTASFlavor")
def group_flavors(case: Case) -> Difference | None:
    found = assignment_of(case)
    wanted = case.expect["wantPodSetErrors"] or {}
    errors = {one.name: _REASONED for one in found.pod_sets if one.refused}
    return first_difference(dict.fromkeys(wanted, _REASONED), errors, "wantPodSetErrors") or first_difference(
        {
            name: {
                resource: {key: choice[key] for key in ("name", "mode", "triedFlavorIdx")}
                for resource, choice in (flavors or {}).items()
            }
            for name, flavors in (case.expect["wantPodSetFlavors"] or {}).items()
        },
        {one.name: _found_set(one)["flavors"] for one in found.pod_sets},
        "wantPodSetFlavors",
    )
