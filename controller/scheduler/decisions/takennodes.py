"""The holders of the nodes that a refused workload would need, looked up when its refusal is read."""

from collections.abc import Mapping
from operator import itemgetter

import msgspec

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.decisions.records import DecisionRecord, TakenNodes
from controller.scheduler.decisions.sentences import namespace_of
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.topology.fullnodes import FullNodes


def with_taken_nodes(cluster: Cluster, record: DecisionRecord, now_s: float, *, every_name: bool) -> DecisionRecord:
    """The record with the holders of the full nodes. Not to be called within a trial.

    ``every_name``: names all workloads, for readers from whom names are hidden afterwards, as views do. A condition
    names only workloads of its own namespace, and for others their ClusterQueue.
    """
    found = (pod_set.unplaced for pod_set in (record.assignment.pod_sets if record.assignment is not None else ()))
    unplaced = next((each for each in found if each is not None), None)
    full = cluster.placement.full_nodes(unplaced, now_s) if unplaced is not None else None
    if full is None:
        return record
    own = None if every_name else namespace_of(record.workload)
    return msgspec.structs.replace(record, taken=ranked(full, cluster.holders, own))


def ranked(full: FullNodes, holders: Mapping[WorkloadKey, Holder], own: str | None) -> TakenNodes:
    """The numbers of nodes by holder, most nodes first."""
    by: dict[str, int] = {}
    names: dict[ClusterQueueName | None, str] = {None: "workloads of other namespaces"}
    prefix = None if own is None else f"{own}/"
    for workloads, nodes in full.held.items():
        named: list[str] = []
        for workload in workloads:
            if prefix is None or workload.startswith(prefix):
                named.append(workload)
            else:
                holder = holders.get(workload)
                queue = None if holder is None else holder.cluster_queue
                named.append(names.get(queue) or names.setdefault(queue, f"workloads of queue {queue}"))
        for name in named if len(named) == 1 else set(named):
            by[name] = by.get(name, 0) + nodes
    # Equal numbers are ordered by name: the second sort is stable.
    every = sorted(by.items(), key=itemgetter(0))
    every.sort(key=itemgetter(1), reverse=True)
    return TakenNodes(by=tuple(every), outside=full.outside, unfit=full.unfit)
