"""Runners of the suites about one workload: its requests, defaults, validation, usage, place in the queue, topology."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from controller.objects import placeencoding as topologyencoding
from controller.objects.core import LimitRange, RuntimeClass
from controller.objects.decode import decode
from controller.objects.meta import Time, epoch_s, to_json
from controller.objects.placeencoding import Domain
from controller.objects.workload import TopologyAssignment, Workload
from controller.scheduler.model.limitrange import LimitRangeNoFit, LimitSummary
from controller.scheduler.model.podrequests import RequestRules, Transformation
from controller.scheduler.model.resources import FlavorName, ResourceName
from controller.scheduler.model.workload import (
    PodSetRequests,
    WorkloadInfo,
    adjusted,
    limit_range_problems,
    queue_order_time_s,
    resource_problems,
    usage_of,
)
from tests.conformance.replay import Case, Difference, first_difference, runner

_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def duration_s(text: str) -> float:
    """A Go duration such as 1h30m."""
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([0-9.]+)(ms|h|m|s)", text))


def request_rules(config: Mapping[str, Any] | None) -> RequestRules:
    """The rules of a case's ``config``; the transformations come keyed by input, or as a list."""
    config = config or {}
    given = config.get("resourceTransformations") or {}
    entries = given.values() if isinstance(given, Mapping) else given
    prefixes = config.get("excludedResourcePrefixes") or config.get("excludeResourcePrefixes") or ()
    return RequestRules(exclude_prefixes=prefixes, transformations=[transformation(entry) for entry in entries])


def transformation(entry: Mapping[str, Any]) -> Transformation:
    return decode({**entry, "multiply_by": entry.get("multiplyBy")}, Transformation)


def workload_of(data: Any) -> Workload:
    return decode(data, Workload)


@runner("workload-TestNewInfo")
def new_info(case: Case) -> Difference | None:
    rules = request_rules(case.input.get("config"))
    info = WorkloadInfo.of(workload_of(case.input["workload"]), rules=rules, gates=case.gates)
    wanted = case.expect["wantInfo"]
    found = {
        "clusterQueue": info.cluster_queue,
        "totalRequests": [pod_set_json(pod_set) for pod_set in info.pod_sets],
    }
    return first_difference(
        {
            "clusterQueue": wanted["clusterQueue"],
            "totalRequests": [with_lists(one) for one in wanted.get("totalRequests") or []],
        },
        found,
    )


def with_lists(pod_set: Mapping[str, Any]) -> dict[str, Any]:
    """A wanted pod set with its empty parts written out, so that only values are compared."""
    return {"name": "", "flavors": {}, "requests": {}, **pod_set}


def pod_set_json(pod_set: PodSetRequests) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": pod_set.name,
        "count": pod_set.count,
        "requests": dict(pod_set.requests),
        "flavors": dict(pod_set.flavors),
    }
    if pod_set.topology is not None:
        single = dict(pod_set.topology.single_pod)
        found["topologyRequest"] = {
            "levels": list(pod_set.topology.levels),
            "domainRequests": [
                {"values": list(domain.values), "count": domain.pods, "singlePodRequests": single}
                for domain in pod_set.topology.domains
            ],
        }
    return found


@runner("workload-TestAdjustResources")
def adjust_resources(case: Case) -> Difference | None:
    classes = [decode(one, RuntimeClass) for one in case.input.get("runtimeClasses") or []]
    workload = workload_of(case.input["wl"])
    ranges = [decode(one, LimitRange) for one in case.input.get("limitranges") or []]
    found = adjusted(
        workload,
        overheads={one.metadata.name: one.overhead.pod_fixed for one in classes if one.overhead is not None},
        limits=LimitSummary(one for one in ranges if one.metadata.namespace == workload.metadata.namespace),
    )
    return first_difference(to_json(workload_of(case.expect["wantWl"])), to_json(found))


@runner("workload-TestValidateResources")
def validate_resources(case: Case) -> Difference | None:
    return problems_differ(case, resource_problems(workload_of(case.input["workloadInfo"]["obj"])))


@runner("workload-TestValidateLimitRange")
def validate_limit_range(case: Case) -> Difference | None:
    limits = LimitSummary([decode(case.input["limitRange"], LimitRange)] if case.input.get("limitRange") else [])
    return problems_differ(case, limit_range_problems(workload_of(case.input["workload"]), limits))


def problems_differ(case: Case, problems: Iterable[LimitRangeNoFit]) -> Difference | None:
    """The wanted field and resources of each error; its sentence is ours."""
    pattern = re.compile(r"(?P<path>[^:]+): Invalid value: (?P<names>\[[^\]]*\]): ")
    wanted = []
    for one in case.expect["wantError"] or []:
        match = pattern.match(one["error"])
        assert match is not None, one["error"]
        wanted.append([match["path"], re.findall(r'"([^"]+)"', match["names"])])
    return first_difference(wanted, [[problem.path, list(problem.resources)] for problem in problems], "errors")


@runner("workload-TestResourceUsage")
def resource_usage(case: Case) -> Difference | None:
    info = case.input["info"] or {}
    pod_sets = tuple(
        PodSetRequests(
            name=one.get("name", ""),
            count=one["count"],
            requests={ResourceName(name): amount for name, amount in (one.get("requests") or {}).items()},
            flavors={ResourceName(name): FlavorName(flavor) for name, flavor in (one.get("flavors") or {}).items()},
        )
        for one in info.get("totalRequests") or []
    )
    usage = usage_of(pod_sets)
    found = {
        "assigned": [
            {"flavor": cell.flavor, "resource": cell.resource, "amount": amount}
            for cell, amount in sorted(usage.assigned.items())
        ],
        "unassigned": dict(usage.unassigned),
    }
    return first_difference(case.expect["want"], found)


@runner("workload-TestGetQueueOrderTimestamp")
def queue_order(case: Case) -> Difference | None:
    workload = workload_of(case.input["workload"])
    for name, by_eviction in (("wantForEviction", True), ("wantForCreation", False)):
        found = queue_order_time_s(workload, timeout_requeues_by_eviction=by_eviction, gates=case.gates)
        wanted = epoch_s(decode({"at": case.expect[name]}, dict[str, Time])["at"])
        if difference := first_difference(wanted, found, name):
            return difference
    return None


@runner("tas-TestV1Beta2FromInternal")
def topology_encoding(case: Case) -> Difference | None:
    domains = [Domain(tuple(one["values"]), one["count"]) for one in case.input["domains"]]
    by_prefix = case.gates.on("TASAssignmentsEncodingByHostnamePrefix")
    encoded = topologyencoding.encode(case.input["levels"], domains, by_hostname_prefix=by_prefix)
    wanted = case.expect["v1beta2"]
    read = list(topologyencoding.decode(decode(wanted, TopologyAssignment)))
    return (
        first_difference(wanted, to_json(encoded), "v1beta2")
        or first_difference([list(one) for one in domains], [list(one) for one in read], "decoded")
        or first_difference(case.expect["podCounts"], [one.pods for one in read], "podCounts")
        or first_difference(case.expect["totalDomainCount"], len(read), "totalDomainCount")
    )
