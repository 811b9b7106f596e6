"""The part of nomination that places pods: after quota has chosen the flavors, the nodes of those flavors are searched.

A workload that fits by quota and finds no place now needs preemption; one that finds none even with all candidates
preempted does not fit. The other functions serve the cycle, which places again once it knows its victims.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from controller.messages.pending import nodes_rest
from controller.messages.spans import second
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.gangplaces import beside_its_own
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assignment import FlavorAttempt, FlavorChoice, Mode, NoFitReason, PodSetChoice
from controller.scheduler.flavors.plan import FlavorPlan, OnNodes
from controller.scheduler.model.deviceclaims import claim_names
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import FlavorName, ResourceName
from controller.scheduler.model.workload import TopologyUsage, is_growth
from controller.scheduler.topology.coming import coming_pods
from controller.scheduler.topology.gangdomains import bounds_of
from controller.scheduler.topology.port import PlacementNoFit, PlacementRequest

_replace: Final = msgspec.structs.replace


def conflicts(chosen: Sequence[PodSetChoice], plan: FlavorPlan) -> list[PodSetChoice]:
    """Refuses pod sets without one clear topology. A pod set runs on the nodes of one topology: it is refused if its
    resources are on several, and if it has none and is bound to one (a pod set that requests nothing gets no flavor).
    """
    return [
        _unless_torn(choice, sorted(_flavors(choice, index, plan.on_nodes)), is_bound=index in plan.bound)
        for index, choice in enumerate(chosen)
    ]


def _unless_torn(choice: PodSetChoice, flavors: Sequence[FlavorName], *, is_bound: bool) -> PodSetChoice:
    if is_bound and not flavors and not choice.refused:
        problem = "its pods must be placed, and it has no flavor that names a topology"
        return _replace(choice, refused=True, choices={}, problems=(*choice.problems, problem))
    if len(flavors) <= 1:
        return choice
    problem = f"its resources are on several flavors with a topology: {', '.join(flavors)}"
    return _replace(choice, refused=True, problems=(*choice.problems, problem))


def requests(
    cluster: Cluster, incoming: Incoming, chosen: Sequence[PodSetChoice], plan: FlavorPlan
) -> list[PlacementRequest]:
    """The placement requests of the workload; pod sets whose topology waits for a check are left out."""
    workload = incoming.info.workload
    specs, bounds = workload.spec.pod_sets, bounds_of(workload)
    overruns = cluster.placement.overruns(workload)
    placements = []
    for index, choice in enumerate(chosen):
        for flavor in _flavors(choice, index, plan.on_nodes):
            if not choice.delayed_topology:
                previous = _previous(incoming, choice.name)
                placements.append(
                    PlacementRequest(
                        pod_set=beside_its_own(cluster, workload, specs[index]),
                        asked=plan.topology_requests[index],
                        count=choice.count,
                        flavor=flavor,
                        single_pod=one_pod(specs[index].template.spec),
                        implied=plan.implied and index not in plan.asking,
                        previous=previous,
                        grows=is_growth(workload),
                        claims=claim_names(workload.metadata.namespace, specs[index].template),
                        within=bounds.get(choice.name, ()),
                        overruns=overruns,
                        spot=plan.spot,
                    )
                )
    return placements


def place(
    cluster: Cluster, wanted: Sequence[PlacementRequest], chosen: Sequence[PodSetChoice]
) -> tuple[list[PodSetChoice], NoFitReason]:
    """``chosen`` with their topologies, or with the lower modes that they get where no place was found."""
    sets = list(chosen)
    fits = all(pod_set.mode is Mode.FIT for pod_set in sets)
    no_more: PlacementNoFit | None = None
    # If quota is short places are of no use yet: it is enough to know that there are some.
    if fits or len(wanted) > 1 or not cluster.placement.can_place(wanted):
        answer = cluster.placement.place(wanted, on_empty=False)
        if isinstance(answer, PlacementNoFit):
            coming = _with_coming(cluster, wanted, sets) if fits else None
            if isinstance(coming, list):
                return coming, NoFitReason.NONE
            no_more = coming
            sets = _downgraded(sets, answer, Mode.PREEMPT)
        elif fits:
            return with_topologies(sets, answer.topologies), NoFitReason.NONE
    answer = cluster.placement.place(wanted, on_empty=True)
    if isinstance(answer, PlacementNoFit):
        return _told(_downgraded(sets, answer, Mode.NO_FIT), no_more), NoFitReason.TopologyPlacementFailed
    # These places are reserved while nothing can be preempted; with victims the workload gets the places that they
    # leave.
    return with_topologies(_contested(_told(sets, no_more), wanted), answer.topologies), NoFitReason.NONE


def _with_coming(
    cluster: Cluster, wanted: Sequence[PlacementRequest], chosen: list[PodSetChoice]
) -> list[PodSetChoice] | PlacementNoFit | None:
    """The choices with places on nodes that are there and nodes to come; where these do not do either, what keeps
    nodes from coming, None where none can come at all. If any pod waits for its node all do: a workload starts as a
    whole.
    """
    if any(each.delayed_topology for each in chosen):
        return None
    closed = cluster.coming_backoff.closed
    if closed and (resting := next((each for each in wanted if each.flavor in closed), None)) is not None:
        until_s = cluster.coming_backoff.until_s(resting.flavor) or 0.0
        return PlacementNoFit(resting.pod_set.name, nodes_rest(resting.flavor, second(until_s)))
    answer = cluster.placement.place_coming(wanted)
    if answer is None:
        return None
    if isinstance(answer, PlacementNoFit):
        return _replace(answer, problem=cluster.placement.coming_shortage(wanted, answer))
    coming = {name: usage for name, usage in answer.topologies.items() if usage.domains}
    if not any(map(coming_pods, coming.values())):
        return with_topologies(chosen, coming)
    return [
        _replace(each, coming=coming[each.name], delayed_topology=True) if each.name in coming else each
        for each in chosen
    ]


def _told(chosen: list[PodSetChoice], no_more: PlacementNoFit | None) -> list[PodSetChoice]:
    """The choices with one problem more: what keeps nodes from coming."""
    if no_more is None or not no_more.problem:
        return chosen
    return [
        _replace(each, problems=(*each.problems, no_more.problem)) if each.name == no_more.pod_set else each
        for each in chosen
    ]


def _contested(chosen: Iterable[PodSetChoice], wanted: Sequence[PlacementRequest]) -> list[PodSetChoice]:
    """Lowers every resource of the placed pod sets to PREEMPT. What is free by quota may be free in pieces that hold no
    pod; so victims are sought by each of these resources, and others must give way within the quota of each (Kueue's
    ``updateModeForTASRequests``).
    """
    placed = {request.pod_set.name for request in wanted}
    return [
        _replace(choice, choices=_lower(choice.choices, Mode.PREEMPT)) if choice.name in placed else choice
        for choice in chosen
    ]


def _lower(choices: Mapping[ResourceName, FlavorChoice], mode: Mode) -> dict[ResourceName, FlavorChoice]:
    """The choices with ``mode`` in place of FIT. Choices that do not fit now keep their mode, except for NO_FIT, which
    replaces all.
    """
    return {
        name: FlavorChoice(choice.flavor, min(choice.mode, mode), choice.borrow, choice.tried_index)
        if choice.mode is Mode.FIT or mode is Mode.NO_FIT
        else choice
        for name, choice in choices.items()
    }


def with_topologies(chosen: Iterable[PodSetChoice], placed: Mapping[str, TopologyUsage]) -> list[PodSetChoice]:
    """The choices with their topologies. A pod set of no pods has none."""
    found = {name: usage for name, usage in placed.items() if usage.domains}
    return [_replace(choice, topology=found[choice.name]) if choice.name in found else choice for choice in chosen]


def _flavors(assigned: PodSetChoice, index: int, on_nodes: OnNodes) -> set[FlavorName]:
    return {choice.flavor for choice in assigned.choices.values()} & on_nodes.get(index, frozenset())


def _previous(incoming: Incoming, name: str) -> TopologyUsage | None:
    if incoming.replaces is None:
        return None
    return next((pod_set.topology for pod_set in incoming.replaces.info.pod_sets if pod_set.name == name), None)


def _downgraded(chosen: Sequence[PodSetChoice], failed: PlacementNoFit, mode: Mode) -> list[PodSetChoice]:
    return [_lowered(choice, failed, mode) if choice.name == failed.pod_set else choice for choice in chosen]


def _lowered(assigned: PodSetChoice, failed: PlacementNoFit, mode: Mode) -> PodSetChoice:
    problem = failed.problem
    choices = _lower(assigned.choices, mode)
    problems = assigned.problems if problem in assigned.problems else (*assigned.problems, problem)
    attempts = assigned.attempts
    if mode is Mode.NO_FIT:
        flavors = {choice.flavor for choice in choices.values()}
        attempts = tuple(_unplaced(attempt) if attempt.flavor in flavors else attempt for attempt in attempts)
    return _replace(assigned, choices=choices, problems=problems, attempts=attempts, unplaced=failed.unplaced)


def _unplaced(attempt: FlavorAttempt) -> FlavorAttempt:
    if attempt.mode is Mode.NO_FIT:
        return attempt
    reason = NoFitReason.TopologyPlacementFailed
    return FlavorAttempt(flavor=attempt.flavor, mode=Mode.NO_FIT, borrow=attempt.borrow, no_fit_reason=reason)
