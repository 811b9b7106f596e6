"""Whether a request fits: asked repeatedly while victims are released and charged back.

Source: Kueue's preemption (workloadFits, fillBackWorkloads). A question changes nothing, and filling back keeps the
request fitting. It costs a comparison for each flavor-resource, and a search for places where pods need them.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.gangplaces import beside_its_own
from controller.scheduler.cluster.incoming import Incoming, Target
from controller.scheduler.flavors.assignment import Assignment
from controller.scheduler.flavors.spot import spot_rule
from controller.scheduler.model.deviceclaims import claim_names
from controller.scheduler.model.podrequests import pod_requests, whole_amount
from controller.scheduler.model.resources import Amount, FlavorResource
from controller.scheduler.quota.quotanode import QuotaNode
from controller.scheduler.topology.gangdomains import bounded_request, bounds_of
from controller.scheduler.topology.port import PlacementRequest


class NeededCapacity(msgspec.Struct, frozen=True, gc=False):
    """The capacity that a request needs. ``usage`` is what the ClusterQueue would be charged, ``places`` the pod sets
    that must be placed on nodes.

    Any placement will do: the one that an assignment carries was found on an empty cluster, and insisting on it would
    evict others from exactly those nodes. ``gc=False``: it is made for every try, in 42 ns in place of 76.
    """

    node: QuotaNode
    usage: Mapping[FlavorResource, Amount]
    places: tuple[PlacementRequest, ...] = ()
    nodes_fit: Callable[[], bool] = lambda: True

    def fits(self, *, borrowing: bool = True) -> bool:
        """Whether the request fits into quota and onto nodes now; without ``borrowing`` only the ClusterQueue's own
        quota counts.
        """
        return self.quota_fits(self.usage, borrowing=borrowing) and self.placed()

    def quota_fits(self, frs: Iterable[FlavorResource], *, borrowing: bool = True) -> bool:
        """Whether the request for these flavor-resources fits into quota now."""
        for fr in frs:
            amount = self.usage.get(fr, 0)
            if amount > self.node.available(fr) or (not borrowing and self.node.borrowing_with(fr, amount)):
                return False
        return True

    def placed(self) -> bool:
        return not self.places or self.nodes_fit()


def needed_capacity(cluster: Cluster, incoming: Incoming, assignment: Assignment) -> NeededCapacity:
    places = tuple(_places(cluster, incoming, assignment))
    return NeededCapacity(incoming.queue.node, assignment.usage, places, cluster.placement.question(places))


def _places(cluster: Cluster, incoming: Incoming, assignment: Assignment) -> Iterable[PlacementRequest]:
    """The assignment's pod sets that need nodes of a topology; those whose places wait for a second pass are
    left out.
    """
    workload = incoming.info.workload
    specified, bounds = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}, bounds_of(workload)
    implied, spot = cluster.implies_topology(incoming.queue), spot_rule(cluster, incoming)
    for choice in assignment.pod_sets:
        pod_set = specified.get(choice.name)
        if pod_set is None or not choice.choices or choice.delayed_topology:
            continue
        bounded = bounds.get(choice.name, ())
        asked = bounded_request(pod_set, () if implied else bounded)
        for name in dict.fromkeys(chosen.flavor for chosen in choice.choices.values()):
            flavor = cluster.flavors.get(name)
            if flavor is None or not cluster.placement.needs(asked, flavor, implied=implied):
                continue
            single = pod_requests(pod_set.template.spec)
            yield PlacementRequest(
                pod_set=beside_its_own(cluster, workload, pod_set),
                asked=asked,
                count=choice.count,
                flavor=name,
                single_pod={resource: whole_amount(resource, nanos) for resource, nanos in single.items()},
                implied=implied and not asked.placed,
                claims=claim_names(workload.metadata.namespace, pod_set.template),
                within=bounded,
                overruns=cluster.placement.overruns(workload),
                spot=spot,
            )
            break


def fill_back(cluster: Cluster, targets: list[Target], fits: Callable[[], bool]) -> None:
    """Charge victims back that turn out not to be needed, from the last but one to the first.

    The last victim made the request fit, so it stays. Kueue (fillBackWorkloads) fills the gap with the last target,
    which moves only targets checked before: the same victims, in another order.
    """
    for place in range(len(targets) - 2, -1, -1):
        cluster.charge(targets[place].holder)
        if fits():
            del targets[place]
        else:
            cluster.release(targets[place].holder)
