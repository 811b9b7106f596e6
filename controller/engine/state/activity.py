"""Whether a ClusterQueue takes part: the reasons of its condition Active, and those of a LocalQueue's."""

from collections.abc import Iterator
from typing import NamedTuple

from controller.engine.cluster.cluster import Cluster
from controller.engine.conditions.sentences import listed
from controller.engine.model.resources import ClusterQueueName
from controller.engine.quota.queuestate import QueueState
from controller.objects.meta import is_true
from controller.objects.queues import LocalQueue

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
PROVISIONING = "kueue.x-k8s.io/provisioning-request"


class Inactive(NamedTuple):
    """One reason why a queue takes nothing in: the API's code and our sentence."""

    reason: str
    message: str


def queue_problems(state: QueueState, cluster: Cluster) -> tuple[Inactive, ...]:
    """All that keeps a ClusterQueue from admitting, the weightiest first; empty while it is active."""
    return tuple(_queue_problems(state, cluster))


def _queue_problems(state: QueueState, cluster: Cluster) -> Iterator[Inactive]:
    if state.object.metadata.deletion_timestamp is not None:
        yield Inactive("Terminating", "The ClusterQueue is being deleted")
    if state.policies.stop != "None":
        yield Inactive("Stopped", f"The ClusterQueue is stopped ({state.policies.stop})")
    flavors = [flavor for group in state.groups for flavor in group.flavors]
    missing = [flavor for flavor in flavors if flavor not in cluster.flavors]
    if missing:
        yield Inactive("FlavorNotFound", f"There are no such ResourceFlavors: {listed(missing)}")
    named = [cluster.flavors[flavor].spec.topology_name for flavor in flavors if flavor in cluster.flavors]
    lacking = sorted({name for name in named if name is not None and name not in cluster.topologies})
    if lacking and cluster.config.gates.on("TopologyAwareScheduling"):
        yield Inactive("TopologyNotFound", f"There are no such Topologies: {listed(lacking)}")
    yield from _check_problems(state, cluster)
    if state.node.in_cycle():
        yield Inactive("Unknown", "Its Cohorts name each other in a circle")


def _check_problems(state: QueueState, cluster: Cluster) -> Iterator[Inactive]:
    strategy = state.object.spec.admission_checks_strategy
    rules = strategy.admission_checks if strategy is not None else ()
    missing = [rule.name for rule in rules if rule.name not in cluster.checks]
    if missing:
        yield Inactive("AdmissionCheckNotFound", f"There are no such AdmissionChecks: {listed(missing)}")
    known = [(rule, cluster.checks[rule.name]) for rule in rules if rule.name in cluster.checks]
    sleeping = [rule.name for rule, check in known if not is_true(check.status.conditions, "Active")]
    if sleeping:
        yield Inactive("AdmissionCheckInactive", f"These AdmissionChecks are not active: {listed(sleeping)}")
    remote = [rule for rule, check in known if check.spec.controller_name == MULTIKUEUE]
    if len(remote) > 1:
        names = listed(rule.name for rule in remote)
        yield Inactive("MultipleMultiKueueAdmissionChecks", f"One MultiKueue check at most, found {names}")
    if any(rule.on_flavors for rule in remote):
        yield Inactive("MultiKueueAdmissionCheckAppliedPerFlavor", "A MultiKueue check holds for all flavors or none")
    if remote and any(check.spec.controller_name == PROVISIONING for _, check in known):
        yield Inactive("MultiKueueWithProvisioningRequest", "A MultiKueue check stands beside one that makes nodes")


def local_queue_problem(queue: LocalQueue, cluster: Cluster, *, queue_active: bool) -> Inactive | None:
    """Why a LocalQueue leads nowhere now; None while it is active."""
    if (queue.spec.stop_policy or "None") != "None":
        return Inactive("Stopped", f"The LocalQueue is stopped ({queue.spec.stop_policy})")
    if ClusterQueueName(queue.spec.cluster_queue) not in cluster.queues:
        return Inactive("ClusterQueueDoesNotExist", f"There is no ClusterQueue {queue.spec.cluster_queue}")
    if not queue_active:
        return Inactive("ClusterQueueIsInactive", f"ClusterQueue {queue.spec.cluster_queue} is not active")
    return None
