"""Nodes that came for a workload which requested them: kept for it until its pods have places (our own rule,
``requests_withdrawn``).

A ProvisioningRequest is provisioned before all of its nodes are there: they come one by one, and the gang is placed
when the last has come. Until then no other workload is placed on a node that was created after the gang got its quota,
is of one of its flavors, and has the labels that the request's check added to its pods. An autoscaler does not say
which nodes it made for which request: workloads that were promised nodes of one flavor may take each other's, which are
as many together.

It lasts while the autoscaler's booking does: a booking that expires sends the workload back to its queue.
"""

from collections.abc import Iterator

from controller.objects.placeencoding import HOSTNAME_LABEL, Domain
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.kueue.secondpass import updated
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.queuestate import Holder

_KEEPER = GrantOwner(WorkloadKey(""), "promised nodes")


class PromisedNodes:
    """The charges of one cycle, made within its trial, which undoes them.

    Invariant: between ``__init__`` and the end of the trial ``_charged`` is charged to the cluster, except while a
    workload is decided on that the nodes were promised to.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Charges all that is free on the promised nodes."""
        self._cluster = cluster
        self._charged: list[tuple[FlavorName, TopologyUsage]] = []
        self._charge()

    def _charge(self) -> None:
        self._charged = list(self._kept())
        for flavor, usage in self._charged:
            self._cluster.placement.add(flavor, usage, _KEEPER)

    def open(self, entry: Entry) -> None:
        """Gives the nodes free for a workload that they were promised to: it is decided on next."""
        if self._charged and entry.key in self._cluster.promised:
            for flavor, usage in self._charged:
                self._cluster.placement.remove(flavor, usage, _KEEPER)

    def close(self, entry: Entry) -> None:
        """Takes what that workload has left."""
        if self._charged and entry.key in self._cluster.promised:
            self._charge()

    def _kept(self) -> Iterator[tuple[FlavorName, TopologyUsage]]:
        seen: set[str] = set()
        for key in sorted(self._cluster.promised):
            holder = self._cluster.holders.get(key)
            for flavor, selector in _selectors(holder, self._cluster) if holder is not None else ():
                since_s = holder.reserved_at_s if holder is not None else 0.0
                for node, free in self._cluster.placement.free_by_node(flavor, since_s=since_s):
                    mine = all(node.labels.get(name) == value for name, value in selector.items())
                    if not mine or node.name in seen:
                        continue
                    seen.add(node.name)
                    amounts = {name: amount for name, amount in free.items() if amount > 0}
                    domain = Domain((node.labels.get(HOSTNAME_LABEL, node.name),), 1)
                    yield flavor, TopologyUsage(levels=(HOSTNAME_LABEL,), domains=(domain,), single_pod=amounts)


def _selectors(holder: Holder, cluster: Cluster) -> Iterator[tuple[FlavorName, dict[str, str]]]:
    """The flavors with a topology that the holder's pods wait for places on, each with the pods' node selector."""
    workload = holder.info.workload
    sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    for held in holder.info.pod_sets:
        flavor = cluster.on_nodes(held.flavors.values())
        if flavor is not None and held.topology is None and held.name in sets:
            yield flavor, updated(sets[held.name], workload).template.spec.node_selector
