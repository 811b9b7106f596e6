"""The second pass: a workload that holds quota gets the places of its pods.

Places are chosen late where nodes are made for the workload (an admission check provisions them), and chosen again for
pods that ran on a node that failed. Flavors and quota stay as they are. Beyond Kueue, a workload that awaits nodes
takes places that come free meanwhile.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto

import msgspec

from controller.objects.placeencoding import Domain
from controller.objects.provisioning import NODE_MAKING, PROVISIONING
from controller.objects.queues import AdmissionCheck
from controller.objects.workload import Admission, PodSet, PodSetAssignment, Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.gangplaces import where_it_was
from controller.scheduler.decisions.records import Rule
from controller.scheduler.decisions.status import topology_assignment
from controller.scheduler.flavors.spot import spot_rule_of
from controller.scheduler.model.deviceclaims import claim_names
from controller.scheduler.model.gates import FeatureGates
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import FlavorName
from controller.scheduler.model.workload import PodSetRequests, TopologyUsage
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.gangdomains import bounds_of
from controller.scheduler.topology.port import Placed, PlacementRequest
from controller.scheduler.topology.replacement import stays
from controller.scheduler.topology.requests import topology_request


class Awaits(Enum):
    """What a workload with quota awaits of an autoscaler. PROMISED: its request was provisioned, and its pods have no
    places yet. COMING: no check requests nodes; it fits once nodes have come that flavors' templates say can come.
    """

    NOTHING = auto()
    NODES = auto()
    PROMISED = auto()
    COMING = auto()


def awaited(workload: Workload, wanted: Iterable[str], checks: Mapping[str, AdmissionCheck]) -> Awaits:
    """What a workload whose pods have no places yet awaits of an autoscaler, by the ``wanted`` checks of its queue.

    NOTHING also while a check of another kind is not ready: places are chosen after it. Nodes to come are awaited all
    the same, so that they are kept meanwhile.
    """
    admission = workload.status.admission
    delayed = admission is not None and any(
        given.delayed_topology_request == "Pending" for given in admission.pod_set_assignments
    )
    if not delayed:
        return Awaits.NOTHING
    states = {state.name: state for state in workload.status.admission_checks}
    wanted = tuple(wanted)
    if not any(name in checks and checks[name].spec.controller_name in NODE_MAKING for name in wanted):
        return Awaits.COMING
    ours = [name for name in wanted if name in checks and checks[name].spec.controller_name == PROVISIONING]
    others = [states[name].state if name in states else "Pending" for name in wanted if name not in ours]
    if not ours or any(state != "Ready" for state in others):
        return Awaits.NOTHING
    own = [states[name] for name in ours if name in states]
    if len(own) == len(ours) and all(state.state == "Ready" for state in own):
        return Awaits.PROMISED if any(state.pod_set_updates for state in own) else Awaits.NOTHING
    return Awaits.NODES if all(state.state in ("Ready", "Pending") for state in own) else Awaits.NOTHING


def wants_second_pass(workload: Workload, *, checks_ready: bool, gates: FeatureGates) -> bool:
    """Whether the workload holds quota, and places are lost, or outstanding while the checks that they wait for are
    ready.
    """
    admission = workload.status.admission
    if admission is None:
        return False
    if workload.status.unhealthy_nodes and gates.on("TASFailedNodeReplacement"):
        return True
    return checks_ready and any(given.delayed_topology_request == "Pending" for given in admission.pod_set_assignments)


def place_again(entry: Entry, cluster: Cluster) -> None:
    """Decide on an entry that holds quota: PLACED with its places, NOT_PLACED, or NODE_LOST, which evicts it. What it
    has kept stays charged meanwhile, so that the new places are found beside the old ones.
    """
    holder = entry.holder
    if holder is None:
        raise ValueError(f"{entry.key} holds no quota: there is no second pass for it")
    placed = cluster.placement.place(placement_requests(holder, cluster), on_empty=False)
    if isinstance(placed, Placed):
        entry.places, entry.moved = placed.topologies, placed.moved
        entry.decide(Rule.PLACED)
        return
    gives_up = holder.info.workload.status.unhealthy_nodes and cluster.config.gates.on(
        "TASFailedNodeReplacementFailFast"
    )
    rule = Rule.NODE_LOST if gives_up else Rule.NOT_PLACED
    entry.decide(rule, f"pod set {placed.pod_set}: {placed.problem}")


def with_places(admission: Admission, places: Mapping[str, TopologyUsage], gates: FeatureGates) -> Admission:
    """The admission with the new places; outstanding topology requests become Ready."""

    def placed(known: PodSetAssignment) -> PodSetAssignment:
        topology = topology_assignment(places.get(known.name), gates) or known.topology_assignment
        state = "Ready" if known.delayed_topology_request == "Pending" else known.delayed_topology_request
        return msgspec.structs.replace(known, topology_assignment=topology, delayed_topology_request=state)

    return msgspec.structs.replace(admission, pod_set_assignments=tuple(map(placed, admission.pod_set_assignments)))


def placed_holder(holder: Holder, places: Mapping[str, TopologyUsage]) -> Holder:
    """The holder with the new places and the same charge."""
    pod_sets = tuple(
        msgspec.structs.replace(pod_set, topology=places.get(pod_set.name, pod_set.topology))
        for pod_set in holder.info.pod_sets
    )
    return msgspec.structs.replace(holder, info=msgspec.structs.replace(holder.info, pod_sets=pod_sets))


def placement_requests(holder: Holder, cluster: Cluster) -> list[PlacementRequest]:
    """A placement request for each pod set that waits for its places, or that had pods on the lost node. Of a workload
    whose admission no object shows yet those wait that have none.
    """
    workload, gates = holder.info.workload, cluster.config.gates
    admission = workload.status.admission
    lost = workload.status.unhealthy_nodes[0].name if workload.status.unhealthy_nodes else None
    outstanding = {
        given.name
        for given in (admission.pod_set_assignments if admission is not None else ())
        if given.delayed_topology_request == "Pending"
    }
    if admission is None:
        implied = cluster.implies_topology(cluster.queue(holder.cluster_queue))
        placed = (each.name for each in workload.spec.pod_sets if implied or topology_request(each).placed)
        outstanding = {*placed} - {held.name for held in holder.info.pod_sets if held.topology is not None}
    pinned = gates.on("SkipReassignmentForPodOwnedWorkloads") and stays(workload)
    sets, bounds = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}, bounds_of(workload)
    spot = spot_rule_of(cluster, holder)
    placements = []
    for held in holder.info.pod_sets:
        flavor = _on_nodes(held, cluster)
        concerned = held.name in outstanding if lost is None else _runs_on(held.topology, lost)
        if not concerned or held.name not in sets or flavor is None:
            continue
        pod_set = where_it_was(cluster, holder, bounds.get(held.name, ()), updated(sets[held.name], workload))
        placements.append(
            PlacementRequest(
                pod_set=pod_set,
                asked=topology_request(pod_set),
                count=held.count,
                flavor=flavor,
                single_pod=one_pod(sets[held.name].template.spec),
                implied=not topology_request(sets[held.name]).placed,
                previous=held.topology if lost is not None else None,
                lost=lost,
                beside=_partners(held, holder, sets, lost) if lost is not None else (),
                stays=pinned,
                claims=claim_names(workload.metadata.namespace, sets[held.name].template),
                within=bounds.get(held.name, ()) if lost is None else (),
                overruns=cluster.placement.overruns(workload),
                spot=spot,
            )
        )
    return placements


def _partners(held: PodSetRequests, holder: Holder, sets: Mapping[str, PodSet], lost: str) -> tuple[Domain, ...]:
    """The places where the other pod sets of the group stay."""
    group = _group(sets[held.name])
    if group is None:
        return ()
    return tuple(
        domain
        for other in holder.info.pod_sets
        if other.name != held.name and other.topology is not None and _group(sets.get(other.name)) == group
        for domain in other.topology.domains
        if domain.values[-1] != lost
    )


def _group(pod_set: PodSet | None) -> str | None:
    asked = pod_set.topology_request if pod_set is not None else None
    return asked.pod_set_group_name if asked is not None else None


def _on_nodes(pod_set: PodSetRequests, cluster: Cluster) -> FlavorName | None:
    """The flavor whose topology the pod set runs on; None if it runs on none."""
    for name in pod_set.flavors.values():
        flavor = cluster.flavors.get(name)
        if flavor is not None and flavor.spec.topology_name is not None:
            return name
    return None


def _runs_on(places: TopologyUsage | None, node: str) -> bool:
    return places is not None and any(domain.values[-1] == node for domain in places.domains)


def updated(pod_set: PodSet, workload: Workload) -> PodSet:
    """The pod set with the node selectors and tolerations that admission checks add to its pods."""
    updates = [
        update
        for check in workload.status.admission_checks
        for update in check.pod_set_updates
        if update.name == pod_set.name
    ]
    if not updates:
        return pod_set
    spec = pod_set.template.spec
    selector, tolerations = dict(spec.node_selector), list(spec.tolerations)
    for update in updates:
        selector |= update.node_selector
        tolerations += update.tolerations
    spec = msgspec.structs.replace(spec, node_selector=selector, tolerations=tuple(tolerations))
    return msgspec.structs.replace(pod_set, template=msgspec.structs.replace(pod_set.template, spec=spec))
