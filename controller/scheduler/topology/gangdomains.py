"""Placement of gangs in topology domains: the pod sets of a subgroup, and of all subgroups below it, go into one domain
of the subgroup's level.

A ``Bound`` is the level of a subgroup, given as a node label. A domain of a bound is the set of nodes with one value of
that label, inside the domains chosen for the subgroups above. Values are tried one after another, parents before their
children, until the whole gang has places. ``PlacementRequest.within`` names the bounds of a pod set, the outermost
first.

Pod sets that share a ResourceClaim must run on one node, that of the claim's devices: while the claim has no node, they
get a bound at the hostname level.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from controller.objects.core import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm
from controller.objects.meta import LabelSelectorRequirement
from controller.objects.placeencoding import HOSTNAME_LABEL
from controller.objects.workload import PodSet, Workload
from controller.scheduler.model.deviceclaims import ClaimKey, ClaimNames
from controller.scheduler.model.gangshape import GangShape, GangShapeError, gang_shape
from controller.scheduler.topology.nodes import NodeFacts
from controller.scheduler.topology.port import Bound, Placed, PlacementNoFit, PlacementRequest
from controller.scheduler.topology.requests import TopologyRequest, topology_request
from inventory.api.names import GANG, SUBGROUP

_TRIES: Final = 256
"""Domains into which their subgroup fits that are tried for one gang at most: with nested subgroups the number of
combinations multiplies.
"""
_FRUITLESS: Final = 1024
"""Domains that seemed large enough and turned out not to be, at most: each costs a search over all nodes."""

FittingNode = tuple[NodeFacts, int]
"""A node that is open to a pod set, and how many of its pods fit there; all of its pods where that is not known."""
FindFittingNodes = Callable[[PlacementRequest], Sequence[FittingNode]]
Place = Callable[[Sequence[PlacementRequest]], Placed | PlacementNoFit]
_Chosen = Mapping[Bound, str]
"""The chosen value of the level's label, by bound."""


def bounds_of(workload: Workload) -> Mapping[str, tuple[Bound, ...]]:
    """The bounds of the workload's pod sets, by pod set name; pod sets without bounds are left out."""
    said = workload.metadata.annotations.get(GANG)
    if said is None:
        return {}
    known, others = _bounds(said)
    return {**{pod_set.name: others for pod_set in workload.spec.pod_sets}, **known} if others else known


def bounded_request(pod_set: PodSet, bounds: Sequence[Bound]) -> TopologyRequest:
    """The topology request of a pod set whose gang has bounds: if it asks for no places itself, it asks for places
    anywhere, which flavors without a topology cannot give. Bounds that are only preferred change nothing.
    """
    asked = topology_request(pod_set)
    level = next((bound.level for bound in bounds if bound.required), "")
    if asked.placed or not level:
        return asked
    return msgspec.structs.replace(asked, unconstrained=True, bound=level)


def shape_of(workload: Workload) -> GangShape | None:
    """The gang's shape; None for a gang without subgroups or levels, or whose annotation the controller did
    not write.
    """
    return None if GANG not in workload.metadata.annotations else _shape(workload.metadata.annotations[GANG])


def path_bounds(shape: GangShape, leaf: str) -> tuple[Bound, ...]:
    """The bounds of pods in subgroup ``leaf``, the outermost first. ``leaf`` is empty for pods of no subgroup."""
    groups = {group.name: group for group in shape.groups}
    path = []
    at = leaf
    while at in groups and groups[at] not in path:
        path.append(groups[at])
        at = groups[at].parent
    levels = [("", shape.required_level, shape.preferred_level, False)]
    levels += [(each.name, each.required_level, each.preferred_level, each.exclusive) for each in reversed(path)]
    return tuple(
        Bound(group=name, level=level, required=required, exclusive=required and exclusive)
        for name, strict, wished, exclusive in levels
        for level, required in ((strict, True), (wished, False))
        if level
    )


def leaf_of(pod_set: PodSet) -> str:
    """The subgroup of a pod above a gang's minimum; empty for none."""
    return pod_set.template.metadata.annotations.get(SUBGROUP, "")


@lru_cache(maxsize=1024)
def _shape(said: str) -> GangShape | None:
    """The shape in an annotation, cached: decoded in 3 us, for every try; jobs of one template have the same text."""
    try:
        return gang_shape({GANG: said})
    except GangShapeError:
        return None


@lru_cache(maxsize=1024)
def _bounds(said: str) -> tuple[Mapping[str, tuple[Bound, ...]], tuple[Bound, ...]]:
    """The bounds by pod set, for pod sets in a subgroup, and the bounds of all other pod sets. Cached as ``_shape`` is:
    computed in 6 us for two subgroups.
    """
    shape = _shape(said)
    if shape is None:
        return {}, ()
    found = {name: path_bounds(shape, leaf) for name, leaf in shape.members.items()}
    return {name: bounds for name, bounds in found.items() if bounds}, path_bounds(shape, "")


def exclusive_levels(workload: Workload) -> frozenset[str]:
    """The node labels whose domains the workload has to itself; see ``GangShape``."""
    said = workload.metadata.annotations.get(GANG)
    return frozenset() if said is None else _exclusive_levels(said)


@lru_cache(maxsize=1024)
def _exclusive_levels(said: str) -> frozenset[str]:
    """The levels in an annotation, cached: found in 0.1 us and computed in 0.5 us, for every gang of a cycle."""
    shape = _shape(said)
    return frozenset() if shape is None else shape.exclusive_levels


def outside(pod_set: PodSet, taken: Mapping[str, Collection[str]]) -> PodSet:
    """The pod set, restricted to nodes without these label values; its own node rules still hold."""
    if not taken:
        return pod_set
    kept_out = tuple(
        LabelSelectorRequirement(key=level, operator="NotIn", values=tuple(sorted(values)))
        for level, values in sorted(taken.items())
    )
    spec, replace = pod_set.template.spec, msgspec.structs.replace
    affinity = spec.affinity or Affinity()
    nodes = affinity.node_affinity or NodeAffinity()
    required = nodes.required_during_scheduling_ignored_during_execution
    terms = (NodeSelectorTerm(),) if required is None else required.node_selector_terms
    selector = NodeSelector(
        node_selector_terms=tuple(
            replace(term, match_expressions=(*term.match_expressions, *kept_out))
            for term in terms
            if required is None or term.match_expressions or term.match_fields  # an empty term matches nothing
        )
    )
    nodes = replace(nodes, required_during_scheduling_ignored_during_execution=selector)
    spec = replace(spec, affinity=replace(affinity, node_affinity=nodes))
    return replace(pod_set, template=replace(pod_set.template, spec=spec))


def in_domain(pod_set: PodSet, values: Mapping[str, str]) -> PodSet:
    """The pod set, restricted to nodes with these labels; its own node rules still hold."""
    spec = pod_set.template.spec
    selector = {**values, **spec.node_selector}
    template = msgspec.structs.replace(pod_set.template, spec=msgspec.structs.replace(spec, node_selector=selector))
    return msgspec.structs.replace(pod_set, template=template)


def joined_by_claims(
    requests: Sequence[PlacementRequest], open_claims: Callable[[ClaimNames], Collection[ClaimKey]]
) -> tuple[dict[str, PlacementRequest], frozenset[str]]:
    """Two results. For each pod set that shares a ResourceClaim with another: its request with one more bound, one
    node. And the names of all but the first pod set of each group so bound. ``open_claims`` returns those of a pod's
    claims that have no node yet.
    """
    joined: list[tuple[frozenset[ClaimKey], list[PlacementRequest]]] = []
    for request in requests:
        keys = frozenset(open_claims(request.claims)) if request.claims is not None else frozenset[ClaimKey]()
        if not keys:
            continue
        members = [request]
        for each in [each for each in joined if each[0] & keys]:
            joined.remove(each)
            keys, members = keys | each[0], [*each[1], *members]
        joined.append((keys, members))
    with_others: dict[str, PlacementRequest] = {}
    following: set[str] = set()
    for keys, members in joined:
        if len(members) > 1:
            bound = Bound(group="", level=HOSTNAME_LABEL, required=True, claims=tuple(sorted(keys)))
            following |= {request.pod_set.name for request in members[1:]}
            for request in members:
                within = (*request.within, bound)
                with_others[request.pod_set.name] = msgspec.structs.replace(request, within=within)
    return with_others, frozenset(following)


def placed_within(
    requests: Sequence[PlacementRequest], fitting_nodes: FindFittingNodes, place: Place
) -> Placed | PlacementNoFit:
    """Places the requests in domains of their bounds. ``place`` answers for requests without bounds."""
    return _Search(requests, fitting_nodes, place).run(0, {})


class _Search:
    """A search over the values of all bounds. ``_left`` counts the remaining tries: a gang whose strict bounds need
    more stays pending. When no tries are left preferred bounds are dropped; one placement without them is always tried.
    """

    def __init__(self, requests: Sequence[PlacementRequest], fitting_nodes: FindFittingNodes, place: Place) -> None:
        self._requests = requests
        self._fitting_nodes = {request.pod_set.name: fitting_nodes(request) for request in requests if request.within}
        self._place = place
        self._bounds = tuple(dict.fromkeys(bound for request in requests for bound in request.within))
        self._left = _TRIES
        self._fruitless = _FRUITLESS

    def run(self, at: int, chosen: _Chosen) -> Placed | PlacementNoFit:
        """Finds domains for the bounds from index ``at`` on; ``chosen`` has those of the bounds before it."""
        if at == len(self._bounds):
            return self._tried(self._requests, chosen)
        bound = self._bounds[at]
        members = [request for request in self._requests if bound in request.within]
        problem = PlacementNoFit(members[0].pod_set.name, self._problem(bound, members))
        for value in self._values(bound, members, chosen):
            if self._left <= 0 or self._fruitless <= 0:
                problem = PlacementNoFit(problem.pod_set, f"{problem.problem}, after {_TRIES} tries")
                break
            trial = {**chosen, bound: value}
            if isinstance(self._tried(members, trial), PlacementNoFit):
                self._fruitless -= 1
                continue
            self._left -= 1
            found = self.run(at + 1, trial)
            if isinstance(found, Placed):
                return found
            problem = found if at + 1 < len(self._bounds) else problem
        return problem if bound.required else self.run(at + 1, chosen)

    def _problem(self, bound: Bound, members: Sequence[PlacementRequest]) -> str:
        if bound.claims:
            claims = f"ResourceClaim{'s' if len(bound.claims) > 1 else ''} {', '.join(bound.claims)}"
            names = [request.pod_set.name for request in members]
            return f"no node has room for all pods of pod sets {', '.join(names)}, which share {claims}"
        whom = f"subgroup {bound.group}" if bound.group else "the gang"
        fitting = [facts for request in members for facts, _ in self._fitting_nodes[request.pod_set.name]]
        if fitting and not any(bound.level in facts.labels for facts in fitting):
            return f"no node with room for pods of {whom} has the label {bound.level}"
        return f"no domain of {bound.level} has room for {whom}"

    def _values(self, bound: Bound, members: Sequence[PlacementRequest], chosen: _Chosen) -> list[str]:
        """The values of the bound's label, inside the domains chosen around it, whose nodes can take
        each member.
        """
        for_all = [self._large_enough(bound, request, _labels(request, chosen)) for request in members]
        others = {
            value
            for other, value in chosen.items()
            if bound.exclusive and other.exclusive and other.level == bound.level and other.group != bound.group
        }
        return sorted(frozenset.intersection(*for_all) - others)

    def _large_enough(self, bound: Bound, request: PlacementRequest, outer: Mapping[str, str]) -> frozenset[str]:
        own = request.pod_set.template.spec.node_selector.get(bound.level)
        pods: Counter[str] = Counter()
        for facts, fitting in self._fitting_nodes[request.pod_set.name]:
            value = facts.labels.get(bound.level)
            if value is None or own not in (None, value):
                continue
            if all(facts.labels.get(name) == label for name, label in outer.items()):
                pods[value] += fitting
        return frozenset(value for value, count in pods.items() if count >= request.count)

    def _tried(self, requests: Sequence[PlacementRequest], chosen: _Chosen) -> Placed | PlacementNoFit:
        return self._place([_bounded(request, chosen) for request in requests])


def _bounded(request: PlacementRequest, chosen: _Chosen) -> PlacementRequest:
    pod_set = in_domain(request.pod_set, _labels(request, chosen))
    return msgspec.structs.replace(request, pod_set=pod_set, within=())


def _labels(request: PlacementRequest, chosen: _Chosen) -> dict[str, str]:
    return {bound.level: chosen[bound] for bound in request.within if bound in chosen}
