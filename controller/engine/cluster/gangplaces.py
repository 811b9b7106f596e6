"""Where pods that join a gang may go: in the domains that its other pods are in."""

from collections.abc import Iterator, Mapping

from controller.engine.cluster.cluster import Cluster
from controller.engine.model.workload import minimum_of
from controller.engine.quota.queuestate import Holder
from controller.engine.topology.gangdomains import in_domain, leaf_of, path_bounds, shape_of
from controller.engine.topology.port import Bound
from controller.objects.workload import PodSet, Workload


def beside_minimum(cluster: Cluster, workload: Workload, pod_set: PodSet) -> PodSet:
    """The pod set of a pod above a minimum in the domains that the minimum is bound to; any other as it is."""
    minimum = minimum_of(workload)
    holder = cluster.holders.get(minimum) if minimum is not None else None
    if holder is None:
        return pod_set
    shape = shape_of(holder.info.workload)
    leaf = leaf_of(pod_set)
    bounds = () if shape is None else path_bounds(shape, leaf)
    return _in_domains_of(cluster, holder, bounds, pod_set)


def where_it_was(cluster: Cluster, holder: Holder, bounds: tuple[Bound, ...], pod_set: PodSet) -> PodSet:
    """A pod set of the holder's in the domains of its ``bounds``: of it some pods are placed anew."""
    return _in_domains_of(cluster, holder, bounds, pod_set) if bounds else pod_set


def _in_domains_of(cluster: Cluster, holder: Holder, bounds: tuple[Bound, ...], pod_set: PodSet) -> PodSet:
    asked = pod_set.topology_request
    own = [Bound(group="", level=asked.required, required=True)] if asked is not None and asked.required else []
    values: dict[str, str] = {}
    for bound in (*own, *(bound for bound in bounds if bound.required)):
        for labels in _nodes_of(cluster, holder, bound):
            if bound.level in labels:
                values.setdefault(bound.level, labels[bound.level])
                break
    return in_domain(pod_set, values) if values else pod_set


def _nodes_of(cluster: Cluster, holder: Holder, bound: Bound) -> Iterator[Mapping[str, str]]:
    """Labels of the nodes of the pod sets that the bound holds for; of all of them where it is no subgroup's."""
    shape = shape_of(holder.info.workload)
    for pod_set in holder.info.pod_sets:
        leaf = "" if shape is None else shape.members.get(pod_set.name, "")
        if bound.group and (shape is None or bound not in path_bounds(shape, leaf)):
            continue
        for domain in pod_set.topology.domains if pod_set.topology is not None else ():
            yield cluster.placement.labels_of(domain.values[-1])
