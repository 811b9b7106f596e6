"""Where pods of a gang may go: pods that join a gang go into the domains of its other pods, and gangs with exclusive
domains go into domains apart from each other.
"""

from collections.abc import Iterable, Iterator, Mapping

from controller.objects.workload import PodSet, Workload
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.model.podrequests import one_pod
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import PodSetRequests, TopologyUsage, minimum_of
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.gangdomains import (
    exclusive_levels,
    in_domain,
    leaf_of,
    outside,
    path_bounds,
    shape_of,
)
from controller.scheduler.topology.port import Bound


def beside_its_own(cluster: Cluster, workload: Workload, pod_set: PodSet) -> PodSet:
    """The pod set restricted to the domains where it may go: apart from the exclusive domains of other gangs and, for
    pods above a minimum, inside the domains that the minimum is bound to. A minimum that is itself above another is
    bound by that one too. Any other pod set is returned unchanged.
    """
    pod_set = _apart(cluster, workload, pod_set)
    for holder in minimums_of(cluster, workload):
        shape = shape_of(holder.info.workload)
        leaf = leaf_of(pod_set)
        bounds = () if shape is None else path_bounds(shape, leaf)
        pod_set = _in_domains_of(cluster, holder, bounds, pod_set, leaf)
    return pod_set


def _apart(cluster: Cluster, workload: Workload, pod_set: PodSet) -> PodSet:
    """The pod set outside of exclusive domains of other gangs, and outside of domains where a gang with an exclusive
    domain has pods; unchanged where the workload shares domains.
    """
    own = exclusive_levels(workload)
    if not own:
        return pod_set
    taken: dict[str, set[str]] = {}
    for holder in cluster.holders.values():
        theirs = holder.info.workload
        if holder.key == workload.key or theirs.metadata.namespace != workload.metadata.namespace:
            continue
        if not (others := exclusive_levels(theirs)):
            continue
        for held in holder.info.pod_sets:
            for level, value in _values(cluster, own | others, held.topology):
                taken.setdefault(level, set()).add(value)
    return outside(pod_set, taken)


class ExclusiveDomains:
    """Places of gangs with exclusive domains that were chosen in one cycle, which no holder shows yet. Each is kept
    with its namespace and node labels.
    """

    def __init__(self) -> None:
        self._gangs: list[tuple[str, frozenset[str], tuple[TopologyUsage, ...]]] = []

    def add(self, workload: Workload, places: Iterable[TopologyUsage]) -> None:
        if levels := exclusive_levels(workload):
            self._gangs.append((workload.metadata.namespace, levels, tuple(places)))

    def meets(self, cluster: Cluster, workload: Workload, places: Iterable[TopologyUsage]) -> bool:
        """Whether these places of a workload with exclusive domains share a domain with places that another such gang
        got in this cycle.
        """
        own = exclusive_levels(workload) if self._gangs else frozenset()
        if not own:
            return False
        wanted = tuple(places)
        return any(
            {found for each in theirs for found in _values(cluster, own | levels, each)}
            & {found for each in wanted for found in _values(cluster, own | levels, each)}
            for namespace, levels, theirs in self._gangs
            if namespace == workload.metadata.namespace
        )


def _values(cluster: Cluster, levels: frozenset[str], places: TopologyUsage | None) -> Iterator[tuple[str, str]]:
    for domain in places.domains if places is not None else ():
        labels = cluster.placement.labels_of(domain.values[-1])
        yield from ((level, labels[level]) for level in levels if level in labels)


def minimums_of(cluster: Cluster, workload: Workload) -> Iterator[Holder]:
    """The holders of the minimums that the workload is above, the nearest first, as far as they hold quota. Ends at a
    circle, since anybody may write one.
    """
    seen: set[WorkloadKey] = set()
    minimum = minimum_of(workload)
    while minimum is not None and minimum not in seen:
        seen.add(minimum)
        holder = cluster.holders.get(minimum)
        if holder is None:
            return
        yield holder
        minimum = minimum_of(holder.info.workload)


def where_it_was(cluster: Cluster, holder: Holder, bounds: tuple[Bound, ...], pod_set: PodSet) -> PodSet:
    """The pod set of a holder, some of whose pods are placed anew, inside the present domains of its ``bounds``."""
    shape = shape_of(holder.info.workload)
    leaf = "" if shape is None else shape.members.get(pod_set.name, "")
    if not bounds:
        return pod_set
    return _in_domains_of(cluster, holder, bounds, _apart(cluster, holder.info.workload, pod_set), leaf)


def _in_domains_of(cluster: Cluster, holder: Holder, bounds: tuple[Bound, ...], pod_set: PodSet, leaf: str) -> PodSet:
    asked = pod_set.topology_request
    values: dict[str, str] = {}
    if asked is not None and asked.required:
        _take(values, asked.required, _nodes_alike(cluster, holder, pod_set, leaf))
    for bound in bounds:
        if bound.required:
            _take(values, bound.level, _nodes_of(cluster, holder, bound))
    return in_domain(pod_set, values) if values else pod_set


def _take(values: dict[str, str], level: str, nodes: Iterable[Mapping[str, str]]) -> None:
    """Add the level's value from the first of the nodes that has the label, unless the level has a value already."""
    value = next((labels[level] for labels in nodes if level in labels), None)
    if value is not None:
        values.setdefault(level, value)


def _nodes_alike(cluster: Cluster, holder: Holder, pod_set: PodSet, leaf: str) -> Iterator[Mapping[str, str]]:
    """Labels of the nodes of those pod sets of the holder that are in the same subgroup and request the same: another
    role's domain is its own.
    """
    shape = shape_of(holder.info.workload)
    members = {} if shape is None else shape.members
    wanted = one_pod(pod_set.template.spec)
    by_name = {known.name: known for known in holder.info.workload.spec.pod_sets}
    for held in holder.info.pod_sets:
        known = by_name.get(held.name)
        if known is None or known.topology_request != pod_set.topology_request or members.get(held.name, "") != leaf:
            continue
        if one_pod(known.template.spec) == wanted:
            yield from _labels(cluster, held)


def _nodes_of(cluster: Cluster, holder: Holder, bound: Bound) -> Iterator[Mapping[str, str]]:
    """Labels of the nodes of the pod sets that the bound applies to: those of its subgroup, or all."""
    shape = shape_of(holder.info.workload)
    for pod_set in holder.info.pod_sets:
        leaf = "" if shape is None else shape.members.get(pod_set.name, "")
        if bound.group and (shape is None or bound not in path_bounds(shape, leaf)):
            continue
        yield from _labels(cluster, pod_set)


def _labels(cluster: Cluster, pod_set: PodSetRequests) -> Iterator[Mapping[str, str]]:
    for domain in pod_set.topology.domains if pod_set.topology is not None else ():
        yield cluster.placement.labels_of(domain.values[-1])
