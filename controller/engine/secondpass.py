"""The second pass: a workload that holds quota gets the places of its pods.

Places are chosen late where nodes are made for the workload (an admission check provisions them), and chosen again for
what ran on a node that failed. Flavors and quota stay as they are.
"""

from collections.abc import Mapping

import msgspec

from controller.engine.cluster import Cluster
from controller.engine.entry import Entry
from controller.engine.gates import FeatureGates
from controller.engine.placement import NotPlaced, PlacementRequest
from controller.engine.podrequests import pod_requests, whole_amount
from controller.engine.queuestate import Holder
from controller.engine.records import Rule
from controller.engine.resources import FlavorName
from controller.engine.status import topology_assignment
from controller.engine.workload import TopologyUsage
from controller.objects.workload import Admission, PodSet, PodSetAssignment, Workload


def wants_second_pass(workload: Workload, *, checks_ready: bool) -> bool:
    """Holds quota, and places are lost, or are outstanding and the checks they wait for are ready."""
    admission = workload.status.admission
    if admission is None:
        return False
    if workload.status.unhealthy_nodes:
        return True
    return checks_ready and any(one.delayed_topology_request == "Pending" for one in admission.pod_set_assignments)


def place_again(entry: Entry, cluster: Cluster) -> None:
    """Decide on an entry that holds quota: PLACED with its places, or NOT_PLACED."""
    holder = entry.holder
    if holder is None:
        raise ValueError(f"{entry.key} holds no quota: there is no second pass for it")
    with cluster.trial():
        cluster.release(holder)
        found = cluster.placement.place(_requests(holder), on_empty=False)
    if isinstance(found, NotPlaced):
        entry.decide(Rule.NOT_PLACED, f"pod set {found.pod_set}: {found.problem}")
    else:
        entry.places = found.topologies
        entry.decide(Rule.PLACED)


def with_places(admission: Admission, places: Mapping[str, TopologyUsage], gates: FeatureGates) -> Admission:
    """The admission with the new places; what was outstanding is Ready."""

    def placed(one: PodSetAssignment) -> PodSetAssignment:
        given = topology_assignment(places.get(one.name), gates) or one.topology_assignment
        state = "Ready" if one.delayed_topology_request == "Pending" else one.delayed_topology_request
        return msgspec.structs.replace(one, topology_assignment=given, delayed_topology_request=state)

    return msgspec.structs.replace(admission, pod_set_assignments=tuple(map(placed, admission.pod_set_assignments)))


def placed_holder(holder: Holder, places: Mapping[str, TopologyUsage]) -> Holder:
    """The same charge with the new places."""
    pod_sets = tuple(
        msgspec.structs.replace(one, topology=places.get(one.name, one.topology)) for one in holder.info.pod_sets
    )
    return msgspec.structs.replace(holder, info=msgspec.structs.replace(holder.info, pod_sets=pod_sets))


def _requests(holder: Holder) -> list[PlacementRequest]:
    """One for each pod set that waits for its places; for all of them where a node was lost."""
    workload = holder.info.workload
    admission = workload.status.admission
    waiting = {
        one.name
        for one in (admission.pod_set_assignments if admission is not None else ())
        if one.delayed_topology_request == "Pending" or (workload.status.unhealthy_nodes and one.topology_assignment)
    }
    sets: dict[str, PodSet] = {one.name: one for one in workload.spec.pod_sets}
    found = []
    for one in holder.info.pod_sets:
        flavor: FlavorName | None = next(iter(one.flavors.values()), None)
        if one.name not in waiting or one.name not in sets or flavor is None:
            continue
        pod_set = sets[one.name]
        single = {name: whole_amount(name, nanos) for name, nanos in pod_requests(pod_set.template.spec).items()}
        found.append(
            PlacementRequest(pod_set=pod_set, count=one.count, flavor=flavor, single_pod=single, previous=one.topology)
        )
    return found
