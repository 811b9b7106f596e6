"""The holders of the nodes that a refused workload would need, looked up when its refusal is read."""

from collections import Counter
from collections.abc import Mapping

import msgspec

from controller.engine.cluster.cluster import Cluster
from controller.engine.conditions.records import DecisionRecord, TakenNodes
from controller.engine.conditions.sentences import namespace_of
from controller.engine.model.resources import WorkloadKey
from controller.engine.quota.queuestate import Holder
from controller.engine.topology.fullnodes import FullNodes


def with_taken_nodes(cluster: Cluster, record: DecisionRecord, now_s: float, *, every_name: bool) -> DecisionRecord:
    """The record with what has the nodes. Not within a trial.

    ``every_name``: for readers from whom names are hidden afterwards, as views do. A condition names workloads of its
    own namespace alone, and for others their ClusterQueue.
    """
    found = (pod_set.refusal for pod_set in (record.assignment.pod_sets if record.assignment is not None else ()))
    refusal = next((each for each in found if each is not None), None)
    full = cluster.placement.full_nodes(refusal, now_s) if refusal is not None else None
    if full is None:
        return record
    own = None if every_name else namespace_of(record.workload)
    return msgspec.structs.replace(record, taken=_taken(full, cluster.holders, own))


def _taken(full: FullNodes, holders: Mapping[WorkloadKey, Holder], own: str | None) -> TakenNodes:
    by = Counter[str]()
    for workloads, nodes in full.held.items():
        for name in {_name(workload, holders, own) for workload in workloads}:
            by[name] += nodes
    ranked = sorted(by.items(), key=lambda each: (-each[1], each[0]))
    return TakenNodes(by=tuple(ranked), outside=full.outside, unfit=full.unfit)


def _name(workload: WorkloadKey, holders: Mapping[WorkloadKey, Holder], own: str | None) -> str:
    if own is None or namespace_of(workload) == own:
        return workload
    holder = holders.get(workload)
    return f"workloads of queue {holder.cluster_queue}" if holder is not None else "workloads of other namespaces"
