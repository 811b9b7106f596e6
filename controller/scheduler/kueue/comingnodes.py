"""Workloads that hold quota and wait for nodes that can come: what is kept for them (our own rule,
``coming_nodes``).

Such a workload has no places yet. In each cycle it is placed anew, within the cycle's trial, on nodes that are there
and on nodes that can come, by priority and as quota was reserved. All of these places are charged there, so that no
capacity is promised twice: neither a node that is on its way, nor a free place beside it that the gang counts on. As
nodes come, its places move from those to come to those that are there; when all are there its second pass takes them.
Nothing of this is stored: a new leader finds the same from the objects.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.flavors.spot import spot_rule_of
from controller.scheduler.kueue.secondpass import placement_requests
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.coming import coming_pods, is_coming
from controller.scheduler.topology.port import Placed


class ComingPlace(NamedTuple):
    """The places that a pod set counts on."""

    pod_set: str
    flavor: FlavorName
    usage: TopologyUsage

    @property
    def pods_to_come(self) -> int:
        return coming_pods(self.usage)

    @property
    def nodes_to_come(self) -> frozenset[str]:
        return frozenset(each.values[-1] for each in self.usage.domains if is_coming(each.values[-1]))

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(each.values[-1] for each in self.usage.domains)


class ComingCharges:
    """The charges of one cycle, made within its trial, which undoes them.

    Invariant: between ``__init__`` and the end of the trial ``places`` is charged to the cluster, and nothing else of
    workloads that wait for nodes. While a workload is decided on, its own places are not in it, nor those of waiting
    workloads of the same ClusterQueue with a lower priority: they do not go before it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.places: dict[WorkloadKey, tuple[ComingPlace, ...]] = {}
        self._waiting = _waiting(cluster)
        self._opened: list[Holder] = []
        for holder in self._waiting:
            self._charge(holder)

    def _charge(self, holder: Holder) -> None:
        found = _found(holder, self._cluster)
        if found:
            self.places[holder.key] = found
            self._change(holder.key, self._cluster.placement.add)

    def _change(self, key: WorkloadKey, change: Callable[[FlavorName, TopologyUsage, GrantOwner], None]) -> None:
        for place in self.places[key]:
            change(place.flavor, place.usage, GrantOwner(key, f"{place.pod_set} to come"))

    def open(self, entry: Entry) -> None:
        """Frees what is kept for the workload, and for those that do not go before it: it is decided on next."""
        queue, priority = entry.incoming.queue.name, entry.incoming.priority
        self._opened = [
            holder
            for holder in self._waiting
            if holder.key == entry.key or (holder.cluster_queue == queue and holder.priority < priority)
        ]
        for holder in self._opened:
            if holder.key in self.places:
                self._change(holder.key, self._cluster.placement.remove)
                del self.places[holder.key]

    def close(self, entry: Entry) -> None:
        """Keeps places again for those that ``open`` freed, beside what the workload has got."""
        for holder in self._opened:
            if holder.key != entry.key or not entry.places:
                self._charge(holder)
        self._opened = []


def coming_places(cluster: Cluster) -> Mapping[WorkloadKey, tuple[ComingPlace, ...]]:
    """The places that are kept for each workload that waits for nodes; one that even all nodes to come do not hold any
    more is left out. To be asked outside of trials.
    """
    if not cluster.coming:
        return {}
    with cluster.trial():
        return ComingCharges(cluster).places


def _waiting(cluster: Cluster) -> list[Holder]:
    """The workloads that wait for nodes, by priority, and then as they got their quota."""
    found = (cluster.holders.get(key) for key in cluster.coming)
    return sorted(
        (holder for holder in found if holder is not None and not holder.evicted),
        key=lambda holder: (-holder.priority, holder.reserved_at_s, holder.queued_at_s, holder.key),
    )


def _found(holder: Holder, cluster: Cluster) -> tuple[ComingPlace, ...]:
    """The workload's places on nodes that are there and nodes to come. Those of the last time, as long as neither nodes
    nor what is free on them has changed since.
    """
    asked = holder.info.pod_sets, spot_rule_of(cluster, holder)
    known = cluster.counted_on.get(holder.key)
    if known is not None and known[0] == cluster.offers and known[1] == asked:
        places: tuple[ComingPlace, ...] = known[2]
        if cluster.placement.fits([(each.flavor, each.usage) for each in places]):
            return places
    requests = placement_requests(holder, cluster)
    flavors = {each.pod_set.name: each.flavor for each in requests}
    answer = cluster.placement.place_coming(requests) if requests else None
    if not isinstance(answer, Placed):
        return ()
    found = tuple(ComingPlace(name, flavors[name], usage) for name, usage in answer.topologies.items())
    cluster.counted_on[holder.key] = (cluster.offers, asked, found)
    return found
