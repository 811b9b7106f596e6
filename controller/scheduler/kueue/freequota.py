"""Whether the nodes could ever take a workload's pods, as few as it may start with: the answer that it would get if no
workload used quota of its cohort. Where quota is short the assigner does not search for places, so its own answer does
not tell.
"""

import msgspec

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.decisions.records import DecisionRecord, Rule
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Assignment, Mode, NoFitReason
from controller.scheduler.flavors.partialadmission import fewest
from controller.scheduler.flavors.topologystep import requests
from controller.scheduler.topology.port import Placed


def with_nodes_asked(
    cluster: Cluster, assigner: FlavorAssigner, incoming: Incoming, record: DecisionRecord
) -> DecisionRecord:
    """The decision that would be made with all quota of the cohort free, if it is that nothing fits even on empty
    nodes; else ``record``. The quota is freed only within a trial of the cluster.

    The cost is proportional to the flavors of the cohort's ClusterQueues, plus a placement on empty nodes.
    """
    assignment = record.assignment
    if record.rule is not Rule.NO_FIT or assignment is None or assignment.mode is not Mode.NO_FIT:
        return record
    plan = assigner.plan(incoming)
    if assignment.no_fit_reason is not NoFitReason.WaitingForQuota or not (
        plan.on_nodes or plan.asking or plan.implied
    ):
        return record
    with cluster.trial():
        found = _assigned(cluster, assigner, incoming)
    if found.mode is not Mode.NO_FIT or found.no_fit_reason is not NoFitReason.TopologyPlacementFailed:
        return record
    return msgspec.structs.replace(record, assignment=found)


def could_start(cluster: Cluster, assigner: FlavorAssigner, incoming: Incoming) -> bool:
    """Whether the workload would be admitted with all quota of the cohort free and no preemptible workload on the
    nodes, and nodes to come of all flavors counted on: those of which nodes did not come in time are tried again.
    """
    with cluster.coming_backoff.ended(), cluster.trial():
        assignment = _assigned(cluster, assigner, incoming)
        if assignment.mode is not Mode.NO_FIT:
            return True
        if assignment.no_fit_reason is not NoFitReason.TopologyPlacementFailed:
            return False
        # Nodes that are full now and nodes to come hold it together: nobody is preempted for that, and all may end.
        wanted = requests(cluster, incoming, assignment.pod_sets, assigner.plan(incoming))
        return isinstance(cluster.placement.place_coming(wanted, on_empty=True), Placed)


def _assigned(cluster: Cluster, assigner: FlavorAssigner, incoming: Incoming) -> Assignment:
    """The answer with all quota of the cohort free. To be asked within a trial."""
    for name in incoming.queue.node.root().queue_names():
        cluster.quota.remove_usage(name, cluster.queue(name).node.used())
    return assigner.assign(incoming, counts=fewest(incoming.info, cluster.config.gates))
