"""Runners of the suites that ask one topology for places: nodes in, domains out."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controller.objects.core import Node, Pod
from controller.objects.decode import decode
from controller.objects.placeencoding import Domain
from controller.objects.placeencoding import decode as decode_topology
from controller.objects.queues import ResourceFlavor, Topology
from controller.objects.workload import PodSet, PodSetTopologyRequest, TopologyAssignment, Workload
from controller.scheduler.model.resources import FlavorName, ResourceName
from controller.scheduler.model.undo import UndoLog
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.topology.nodes import PODS
from controller.scheduler.topology.placement import Topologies
from controller.scheduler.topology.port import Placed, PlacementNoFit, PlacementRequest
from controller.scheduler.topology.replacement import stays
from controller.scheduler.topology.requests import topology_request
from tests.conformance.replay import Case, Difference, first_difference, runner

FLAVOR = FlavorName("default")


def topologies_of(case: Case) -> Topologies:
    given = case.input
    topologies = Topologies(UndoLog(), case.gates)
    levels = tuple(given["levels"])
    topologies.set_topology(
        decode({"metadata": {"name": "default"}, "spec": {"levels": [{"nodeLabel": one} for one in levels]}}, Topology)
    )
    spec = {"nodeLabels": given.get("nodeLabels") or {}, "topologyName": "default"}
    if given.get("tolerations"):
        spec["tolerations"] = given["tolerations"]
    topologies.set_flavor(decode({"metadata": {"name": "default"}, "spec": spec}, ResourceFlavor))
    for data in given.get("nodes") or ():
        topologies.set_node(decode(data, Node))
    for data in given.get("pods") or ():
        topologies.set_pod(decode(data, Pod))
    for identity, totals in (given.get("effectiveTASUsage") or {}).items():
        topologies.add(FLAVOR, _totals(levels, identity.split(","), totals))
    return topologies


def _totals(levels: tuple[str, ...], values: list[str], totals: Mapping[str, int]) -> TopologyUsage:
    """As one pod that takes everything; every pod counts itself."""
    each = {ResourceName(name): amount for name, amount in totals.items()}
    each[PODS] = each.get(PODS, 0) - 1
    shown = levels[-len(values) :]
    return TopologyUsage(levels=shown, domains=(Domain(tuple(values), 1),), single_pod=each)


def _request(given: Mapping[str, Any], workload: Workload | None) -> PlacementRequest:
    pod_set = decode(given["podSet"], PodSet)
    group = given.get("podSetGroupName")
    if group:
        asked = pod_set.topology_request or PodSetTopologyRequest()
        asked = msgspec.structs.replace(asked, pod_set_group_name=group)
        pod_set = msgspec.structs.replace(pod_set, topology_request=asked)
    each = {ResourceName(name): amount for name, amount in (given.get("singlePodRequests") or {}).items()}
    previous: TopologyAssignment | None = None
    lost = None
    if given.get("previousAssignment"):
        previous = decode(given["previousAssignment"], TopologyAssignment)
    if workload is not None and workload.status.unhealthy_nodes and workload.status.admission is not None:
        lost = workload.status.unhealthy_nodes[0].name
        sets = {one.name: one.topology_assignment for one in workload.status.admission.pod_set_assignments}
        previous = sets.get(pod_set.name)
    return PlacementRequest(
        pod_set=pod_set,
        asked=topology_request(pod_set),
        count=given["count"],
        flavor=FLAVOR,
        single_pod=each,
        implied=given.get("implied", False),
        previous=None
        if previous is None
        else TopologyUsage(levels=previous.levels, domains=tuple(decode_topology(previous)), single_pod=each),
        lost=lost,
    )


@runner("cache-TestFindTopologyAssignments")
@runner("cache-TestFindTopologyAssignmentsMultiLayerReplacement")
def find_assignments(case: Case) -> Difference | None:
    topologies = topologies_of(case)
    workload = decode(case.input["workload"], Workload) if case.input.get("workload") else None
    requests = [_request(one, workload) for one in case.input["podSets"]]
    if workload is not None and case.gates.on("SkipReassignmentForPodOwnedWorkloads") and stays(workload):
        requests = [msgspec.structs.replace(one, stays=True) for one in requests]
    found = topologies.place(requests, on_empty=False)
    topologies.validate_trees()
    wanted = case.expect["wantPodSets"]
    if isinstance(found, PlacementNoFit):
        # The sets that were placed before the one that failed are not told: all or nothing.
        failing = [one["podSetName"] for one in wanted if one.get("failureReason")]
        return None if found.pod_set in failing and found.problem else Difference("failing", failing, found)
    return next(filter(None, (_compare(one, found) for one in wanted)), None)


def _compare(wanted: Mapping[str, Any], found: Placed) -> Difference | None:
    path = f"podSets.{wanted['podSetName']}"
    usage = found.topologies.get(wanted["podSetName"])
    shown = usage and {
        "levels": list(usage.levels),
        "domains": [{"count": pods, "values": list(values)} for values, pods in usage.domains],
    }
    return first_difference(bool(wanted.get("failureReason")), False, f"{path}.failureReason") or first_difference(
        wanted.get("topologyAssignment"), shown, f"{path}.topologyAssignment"
    )
