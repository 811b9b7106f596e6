"""Whether a queue is active: the reasons of the condition Active of ClusterQueues and of LocalQueues."""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from controller.messages import pending, queuestate
from controller.messages import queues as words
from controller.objects.meta import is_true
from controller.objects.provisioning import PROVISIONING
from controller.objects.queues import LocalQueue
from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.decisions.sentences import listed
from controller.scheduler.model.resources import ClusterQueueName, FlavorName
from controller.scheduler.quota.prices import interruption_rate, is_interrupted_often
from controller.scheduler.quota.queuestate import QueueState

MULTIKUEUE = "kueue.x-k8s.io/multikueue"


class Inactive(NamedTuple):
    """One reason why a queue admits nothing: the API's code and our sentence."""

    reason: str
    message: str


def queue_problems(state: QueueState, cluster: Cluster) -> Iterator[Inactive]:
    """Every reason that keeps a ClusterQueue from admitting, the most important first; none while it is active."""
    if state.object.metadata.deletion_timestamp is not None:
        yield Inactive("Terminating", words.deleted())
    if state.policies.stop != "None":
        yield Inactive("Stopped", words.stopped(state.policies.stop))
    flavors = [flavor for group in state.groups for flavor in group.flavors]
    missing = [flavor for flavor in flavors if flavor not in cluster.flavors]
    if missing:
        yield Inactive("FlavorNotFound", words.no_flavors(listed(missing)))
    named = [cluster.flavors[flavor].spec.topology_name for flavor in flavors if flavor in cluster.flavors]
    lacking = sorted({name for name in named if name is not None and name not in cluster.topologies})
    if lacking and cluster.config.gates.on("TopologyAwareScheduling"):
        yield Inactive("TopologyNotFound", words.no_topologies(listed(lacking)))
    yield from _check_problems(state, cluster)
    if state.node.in_cycle():
        yield Inactive("Unknown", words.cohorts_in_circle())


def flavors_without_nodes(state: QueueState, cluster: Cluster) -> dict[FlavorName, str]:
    """Flavors of a queue that select no node, with a sentence that says which labels no node has: quota of them is
    quota of nothing. Such a queue is active, as in Kueue: nodes may come.
    """
    flavors = dict.fromkeys(flavor for group in state.groups for flavor in group.flavors)
    told = ((flavor, cluster.placement.lacks_nodes(flavor)) for flavor in flavors)
    return {flavor: pending.flavor_without_nodes(flavor, lacks) for flavor, lacks in told if lacks}


def interrupted_flavors(state: QueueState, cluster: Cluster) -> dict[FlavorName, str]:
    """Flavors of a queue whose nodes are taken away while they serve, with a sentence that says how often, and whether
    other flavors are tried first for it.
    """
    sentences: dict[FlavorName, str] = {}
    for group in state.groups if cluster.config.extensions.interruptions is not None else ():
        for name in group.flavors:
            flavor = cluster.flavors.get(name)
            if rate := interruption_rate(flavor):
                last = is_interrupted_often(flavor) and len(group.flavors) > 1
                sentences[name] = (pending.flavor_comes_last if last else pending.flavor_interrupted)(name, f"{rate:g}")
    return sentences


def is_nodeless(state: QueueState, lacking: Collection[FlavorName]) -> bool:
    """Whether none of the queue's flavors has a node."""
    return queuestate.is_nodeless((flavor for group in state.groups for flavor in group.flavors), lacking)


def _check_problems(state: QueueState, cluster: Cluster) -> Iterator[Inactive]:
    strategy = state.object.spec.admission_checks_strategy
    rules = strategy.admission_checks if strategy is not None else ()
    missing = [rule.name for rule in rules if rule.name not in cluster.checks]
    if missing:
        yield Inactive("AdmissionCheckNotFound", words.no_checks(listed(missing)))
    known = [(rule, cluster.checks[rule.name]) for rule in rules if rule.name in cluster.checks]
    sleeping = [rule.name for rule, check in known if not is_true(check.status.conditions, "Active")]
    if sleeping:
        yield Inactive("AdmissionCheckInactive", words.checks_inactive(listed(sleeping)))
    remote = [rule for rule, check in known if check.spec.controller_name == MULTIKUEUE]
    if len(remote) > 1:
        names = listed(rule.name for rule in remote)
        yield Inactive("MultipleMultiKueueAdmissionChecks", words.several_multikueue_checks(names))
    if any(rule.on_flavors for rule in remote):
        yield Inactive("MultiKueueAdmissionCheckAppliedPerFlavor", words.multikueue_by_flavor())
    if remote and any(check.spec.controller_name == PROVISIONING for _, check in known):
        yield Inactive("MultiKueueWithProvisioningRequest", words.multikueue_with_provisioning())


class QueueActivity:
    """Which ClusterQueues are active. Asked in every cycle (15 us each), so answers are remembered until something that
    they depend on changes: they are valid for one number of changes of the cluster's objects (``Cluster.generation``)
    and of the forest of quotas (``QuotaTree.generation``); both numbers only grow.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._problems: dict[ClusterQueueName, tuple[_Seen, tuple[Inactive, ...]]] = {}
        self._open = _Answers(self._ask)
        self._open_objects = self._open_quotas = -1
        """The generations for which ``_open`` holds answers."""

    def problems(self, name: ClusterQueueName) -> tuple[Inactive, ...]:
        """Why the ClusterQueue admits nothing; empty while it is active."""
        state = self._cluster.queues[name]
        seen = _Seen(self._cluster.generation, state.version, state.node.quota_generation())
        known = self._problems.get(name)
        if known is None or known[0] != seen:
            known = self._problems[name] = (seen, tuple(queue_problems(state, self._cluster)))
        return known[1]

    def open_now(self) -> Callable[[ClusterQueueName], bool]:
        """A function that says whether a ClusterQueue is active, valid until the next event."""
        objects, quotas = self._cluster.generation, self._cluster.quota.generation
        if objects != self._open_objects or quotas != self._open_quotas:
            self._open.clear()
            self._open_objects, self._open_quotas = objects, quotas
        return self._open.__getitem__

    def is_open(self, name: ClusterQueueName) -> bool:
        """Whether the ClusterQueue is active: it admits workloads, and its workloads may be preempted for others."""
        return self.open_now()(name)

    def forget(self, name: ClusterQueueName) -> None:
        self._problems.pop(name, None)

    def _ask(self, name: ClusterQueueName) -> bool:
        return not self.problems(name)


class _Seen(NamedTuple):
    """The versions for which a ClusterQueue's problems were determined."""

    objects: int
    queue: int
    quotas: int


class _Answers(dict[ClusterQueueName, bool]):
    """Answers by name; a missing answer is computed."""

    def __init__(self, ask: Callable[[ClusterQueueName], bool]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, name: ClusterQueueName) -> bool:
        answer = self[name] = self._ask(name)
        return answer


def local_queue_problem(queue: LocalQueue, cluster: Cluster, *, queue_active: bool) -> Inactive | None:
    """Why a LocalQueue leads to no active ClusterQueue now; None while it is active."""
    if (queue.spec.stop_policy or "None") != "None":
        return Inactive("Stopped", words.local_queue_stopped(queue.spec.stop_policy or ""))
    if ClusterQueueName(queue.spec.cluster_queue) not in cluster.queues:
        return Inactive("ClusterQueueDoesNotExist", words.leads_nowhere(queue.spec.cluster_queue))
    if not queue_active:
        return Inactive("ClusterQueueIsInactive", words.leads_to_inactive(queue.spec.cluster_queue))
    return None
