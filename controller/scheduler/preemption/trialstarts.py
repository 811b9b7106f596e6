"""Workloads that start in a trial: their quota and places are charged, and taken back when the trial ends.

Moves are planned so: those that move go, and they and the one that waits start again one after the other.
"""

from collections.abc import Iterable, Iterator

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming, Move
from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Assignment, Mode
from controller.scheduler.flavors.spot import note_granted
from controller.scheduler.model.resources import FlavorName, WorkloadKey
from controller.scheduler.model.workload import TopologyUsage
from controller.scheduler.preemption.moves import move_of
from controller.scheduler.quota.queuestate import Holder


def charge_assignment(cluster: Cluster, incoming: Incoming, assignment: Assignment) -> None:
    """Charges the assignment to quota and placement; to be called in a trial."""
    note_granted(cluster, incoming, assignment)
    cluster.quota.add_usage(incoming.queue.name, assignment.usage)
    for (flavor, place), owner in placed(cluster, incoming, assignment):
        cluster.placement.add(flavor, place, owner)


Place = tuple[tuple[FlavorName, TopologyUsage], GrantOwner]


def placed(cluster: Cluster, incoming: Incoming, assignment: Assignment) -> Iterator[Place]:
    """The places of the assignment's pods."""
    for at, pod_set in enumerate(assignment.pod_sets):
        flavor = cluster.on_nodes(choice.flavor for choice in pod_set.choices.values())
        if pod_set.topology is not None and flavor is not None:
            yield (flavor, pod_set.topology), GrantOwner(incoming.key, str(at))


def placed_holder(cluster: Cluster, holder: Holder) -> Iterator[Place]:
    for pod_set in holder.info.pod_sets:
        flavor = cluster.on_nodes(pod_set.flavors.values())
        if pod_set.topology is not None and flavor is not None:
            yield (flavor, pod_set.topology), GrantOwner(holder.key, pod_set.name)


def as_incoming(cluster: Cluster, holder: Holder) -> Incoming:
    """A holder as if it were a pending workload."""
    return Incoming(
        info=holder.info,
        queue=cluster.queue(holder.cluster_queue),
        local_queue=holder.local_queue,
        priority=holder.priority,
        queued_at_s=holder.queued_at_s,
    )


def assigned_without(
    cluster: Cluster, assigner: FlavorAssigner, gone: Iterable[Holder], starting: Iterable[Incoming]
) -> dict[WorkloadKey, Assignment] | None:
    """The assignment that each workload gets in its turn once the others have gone; None where one of them does not fit
    then.
    """
    assignments: dict[WorkloadKey, Assignment] = {}
    with cluster.trial():
        for holder in gone:
            cluster.release(holder)
        for incoming in starting:
            assignment = assigner.assign(incoming)
            if assignment.mode is not Mode.FIT:
                return None
            charge_assignment(cluster, incoming, assignment)
            assignments[incoming.key] = assignment
    return assignments


def moved_to(holder: Holder, assignment: Assignment, now_s: float, max_grace_s: float) -> Move:
    """The move of the holder to the places of this assignment."""
    return move_of(holder, (pod_set.topology for pod_set in assignment.pod_sets), now_s, max_grace_s)
