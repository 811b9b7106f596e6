"""Takes in the objects of the cluster's side: queues, cohorts, flavors, checks, limits. Pending workloads are tried
again where something may have changed for them; an unchanged object wakes none.
"""

from collections.abc import Iterable

from controller.objects.core import LimitRange, Namespace, Node, Pod, RuntimeClass
from controller.objects.decode import GpuNode
from controller.objects.deviceclaims import DeviceClass, ResourceClaim, ResourceSlice
from controller.objects.meta import KubernetesObject, epoch_s, is_true
from controller.objects.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from controller.scheduler.flavors.spot import words_of
from controller.scheduler.model.resources import ClusterQueueName, CohortName, FlavorName, LocalQueueKey, ResourceName
from controller.scheduler.quota.prices import by_price, calm_first, hourly_price, is_by_price, is_interrupted_often
from controller.scheduler.quota.queuestate import QueueState
from controller.scheduler.state.enginestate import EngineState
from controller.scheduler.state.workloadevents import WorkloadEvents
from inventory.api.names import NODE_TEMPLATE


class ClusterEvents:
    def __init__(self, state: EngineState, workloads: WorkloadEvents) -> None:
        self._state = state
        self._workloads = workloads
        self._ordered: dict[str, ClusterQueue] = {}
        """The ClusterQueues whose flavors are tried in an order that the flavors decide, as they were given."""
        self._offered: set[FlavorName] = set()
        """Flavors whose users are noted to be woken. Valid while ``_offered_at`` equals the present counts: nothing
        else has happened since.
        """
        self._offered_at = (-1, -1)

    # -- queues ------------------------------------------------------------------------------------------------------

    def put_quotas(self, given: ClusterQueue | Cohort, now_s: float) -> None:
        """Take in an object that has quotas."""
        if isinstance(given, ClusterQueue):
            self.set_cluster_queue(given, now_s)
        else:
            self.set_cohort(given, now_s)

    def keep_times(self, now_s: float) -> None:
        """Take in anew what has other quotas since a window of its calendar began or ended, and let nodes come again of
        flavors whose back-off is over.
        """
        for name in self._state.cluster.coming_backoff.over(now_s):
            self._wake_users(name)
        for given in self._state.calendars.due(now_s):
            self.put_quotas(given, now_s)

    def set_cluster_queue(self, queue: ClusterQueue, now_s: float) -> None:
        state, name = self._state, ClusterQueueName(queue.metadata.name)
        queue = self._in_order(state.calendars.through(queue, now_s), queue)
        known = state.cluster.queues.get(name)
        going = queue.metadata.deletion_timestamp is not None
        if known is not None and known.object.spec == queue.spec and words_of(known.object) == words_of(queue):
            was_going = known.object.metadata.deletion_timestamp is not None
            known.object = queue
            if going == was_going:
                return
        old_root = known.node.root() if known is not None else None
        state.cluster.set_cluster_queue(queue)
        self._workloads.adopt(name, now_s)
        state.queues.cluster_queue_changed(name, now_s)
        if old_root is not None and old_root is not state.cluster.queues[name].node.root():
            state.wake_tree(old_root)
        state.touch()

    def _in_order(self, queue: ClusterQueue, original: ClusterQueue) -> ClusterQueue:
        """The queue with its flavors in the order in which they are tried now. The ``original`` is taken in again when
        that changes: ``queue`` has the quotas of a window of its calendar.
        """
        beyond, flavors = self._state.config.extensions, self._state.cluster.flavors
        priced = beyond.priced_flavors and is_by_price(queue)
        calm = beyond.interruptions is not None and any(len(group.flavors) > 1 for group in queue.spec.resource_groups)
        if not (priced or calm):
            self._ordered.pop(queue.metadata.name, None)
            return queue
        self._ordered[queue.metadata.name] = original
        if priced:
            queue = by_price(queue, flavors)
        return calm_first(queue, flavors) if calm else queue

    def remove_cluster_queue(self, name: ClusterQueueName, now_s: float) -> None:
        state = self._state
        known = state.cluster.queues.get(name)
        if known is None:
            return
        parent = known.node.parent
        state.calendars.gone(ClusterQueue, name)
        self._ordered.pop(name, None)
        self._workloads.strand(name, state.cluster.remove_cluster_queue(name))
        state.activity.forget(name)
        state.queues.cluster_queue_changed(name, now_s)
        state.wake_tree(parent)

    def set_local_queue(self, given: LocalQueue, now_s: float) -> None:
        state, key = self._state, LocalQueueKey(given.key)
        known = state.cluster.local_queues.get(key)
        state.cluster.set_local_queue(given)
        if state.config.extensions.spot_words and words_of(known) != words_of(given):
            self._workloads.reshape(key, now_s)
        if known is not None and known.spec == given.spec:
            return
        sharing = given.spec.fair_sharing
        weight = sharing.weight if sharing is not None else None
        state.usage.set_weight(key, 1.0 if weight is None else float(weight.fraction))
        self._restore_usage(key, given)
        state.queues.local_queue_changed(key, now_s)
        state.touch()

    def _restore_usage(self, key: LocalQueueKey, given: LocalQueue) -> None:
        """Restore the usage that was written before a restart, unless this engine has a newer record."""
        kept = given.status.fair_sharing
        written = kept.admission_fair_sharing_status if kept is not None else None
        if written is None or written.last_update is None or self._state.usage.record(key) is not None:
            return
        consumed = {ResourceName(name): float(amount.fraction) for name, amount in written.consumed_resources.items()}
        self._state.usage.restore(key, consumed, epoch_s(written.last_update))

    def remove_local_queue(self, key: LocalQueueKey, now_s: float) -> None:
        state = self._state
        state.cluster.remove_local_queue(key)
        state.usage.forget(key)
        state.queues.local_queue_changed(key, now_s)
        state.touch()

    def set_cohort(self, cohort: Cohort, now_s: float) -> None:
        state, name = self._state, CohortName(cohort.metadata.name)
        cohort = state.calendars.through(cohort, now_s)
        node = state.cluster.quota.cohorts.get(name)
        before = None if node is None else (node.root(), node.quota_generation(), node.spec)
        state.cluster.set_cohort(cohort)
        node = state.cluster.quota.cohorts[name]
        if before is not None and before[2] == node.spec and before[0] is node.root():
            return
        if before is not None and before[0] is not node.root():
            state.wake_tree(before[0])
        state.wake_tree(node)

    def remove_cohort(self, name: CohortName) -> None:
        state = self._state
        node = state.cluster.quota.cohorts.get(name)
        if node is None:
            return
        root = node.root()
        state.calendars.gone(Cohort, name)
        state.cluster.remove_cohort(name)
        state.wake_tree(root)
        if node.root() is not root:
            state.wake_tree(node)

    # -- what queues refer to ----------------------------------------------------------------------------------------

    def set_flavor(self, given: ResourceFlavor, now_s: float) -> None:
        name = FlavorName(given.metadata.name)
        known = self._state.cluster.flavors.get(name)
        moves = hourly_price(known) != hourly_price(given) or is_interrupted_often(known) != is_interrupted_often(given)
        if known is not None and known.spec == given.spec and _template(known) == _template(given) and not moves:
            self._state.cluster.restate_flavor(given)
            return
        self._state.cluster.offers += 1
        self._state.cluster.set_flavor(given)
        for queue in tuple(self._ordered.values()) if moves else ():
            self.set_cluster_queue(queue, now_s)
        self._wake_users(name)

    def remove_flavor(self, name: FlavorName) -> None:
        self._state.cluster.remove_flavor(name)
        self._wake_users(name)

    def _wake_users(self, flavor: FlavorName) -> None:
        self._wake(queue for queue in self._state.cluster.queues.values() if _names(queue, flavor))

    def set_topology(self, given: Topology) -> None:
        known = self._state.cluster.topologies.get(given.metadata.name)
        if known is None or known.spec != given.spec:
            self._state.cluster.set_topology(given)
            self._wake_all()

    def remove_topology(self, name: str) -> None:
        self._state.cluster.remove_topology(name)
        self._wake_all()

    # -- nodes and what runs on them outside queues --------------------------------------------------------------------

    def set_node(self, given: Node) -> None:
        offered = self._state.cluster.placement.set_node(given)
        if given.takes_pods and offered and self._state.cluster.coming_backoff.closed:
            self._came(offered)
        self._offer(offered)

    def _came(self, flavors: frozenset[FlavorName]) -> None:
        """A node of these flavors takes pods: more may come."""
        for name in self._state.cluster.coming_backoff.came(flavors):
            self._wake_users(name)

    def remove_node(self, name: str) -> None:
        self._offer(self._state.cluster.placement.remove_node(name))

    def set_pod(self, given: Pod) -> None:
        if not self._state.cluster.kept_pods.put(given):
            self._state.ease()
        self._offer(self._state.cluster.placement.set_pod(given))

    def remove_pod(self, key: str) -> None:
        if not self._state.cluster.kept_pods.remove(key):
            self._state.ease()
        self._offer(self._state.cluster.placement.remove_pod(key))

    def set_gpu_node(self, given: GpuNode) -> None:
        self._offer(self._state.cluster.placement.set_gpu_node(given))

    def remove_gpu_node(self, name: str) -> None:
        """Remove a GpuNode. From now on the node's GPUs are only counted, not placed one by one."""
        self._offer(self._state.cluster.placement.remove_gpu_node(name))

    def _offer(self, flavors: frozenset[FlavorName]) -> None:
        """Wake the users of flavors whose nodes offer something else now. Thousands of nodes may come one after the
        other: the users are woken once.
        """
        state = self._state
        if self._offered_at != (state.changes, state.queues.carried_out):
            self._offered.clear()
        for flavor in sorted(flavors - self._offered):
            self._wake_users(flavor)
        if flavors:
            state.cluster.offers += 1
            state.notes.hurry()
            self._offered |= flavors
            state.touch()
            self._offered_at = (state.changes, state.queues.carried_out)

    # -- checks ------------------------------------------------------------------------------------------------------

    def set_check(self, given: AdmissionCheck) -> None:
        known = self._state.cluster.checks.get(given.metadata.name)
        active = is_true(given.status.conditions, "Active")
        if known is not None and known.spec == given.spec and active == is_true(known.status.conditions, "Active"):
            return
        self._state.cluster.set_check(given)
        self._wake(queue for queue in self._state.cluster.queues.values() if _asks(queue, given.metadata.name))

    def remove_check(self, name: str) -> None:
        self._state.cluster.remove_check(name)
        self._wake(queue for queue in self._state.cluster.queues.values() if _asks(queue, name))

    # -- namespaces and defaults -------------------------------------------------------------------------------------

    def set_namespace(self, given: Namespace) -> None:
        known = self._state.cluster.namespaces.get(given.metadata.name)
        self._state.cluster.set_namespace(given)
        if known is None or known.metadata.labels != given.metadata.labels:
            self._wake_all()

    def remove_namespace(self, name: str) -> None:
        self._state.cluster.remove_namespace(name)

    def set_limit_range(self, given: LimitRange, now_s: float) -> None:
        if self._state.defaults.set_limit_range(given):
            self._limits_changed(given.metadata.namespace, now_s)

    def remove_limit_range(self, namespace: str, name: str, now_s: float) -> None:
        if self._state.defaults.remove_limit_range(namespace, name):
            self._limits_changed(namespace, now_s)

    def _limits_changed(self, namespace: str, now_s: float) -> None:
        self._state.cluster.set_limit_ranges(namespace, self._state.defaults.limit_ranges(namespace))
        self._workloads.refill(now_s, namespace=namespace)
        self._wake_all()

    def set_runtime_class(self, given: RuntimeClass, now_s: float) -> None:
        if self._state.defaults.set_runtime_class(given):
            self._workloads.refill(now_s)

    def remove_runtime_class(self, name: str, now_s: float) -> None:
        if self._state.defaults.remove_runtime_class(name):
            self._workloads.refill(now_s)

    # -- devices by claim --------------------------------------------------------------------------------------------

    def set_claim_object(self, given: KubernetesObject, now_s: float) -> None:
        """Store a DeviceClass, ResourceClaim, ResourceClaimTemplate or ResourceSlice."""
        self._offer(self._state.cluster.placement.set_claim_object(given))
        if isinstance(given, ResourceSlice) and not self._state.cluster.config.claim_rules.reads_slices:
            return
        if self._state.device_claims.book.put(given):
            self._claims_changed(type(given), given.metadata.namespace, given.metadata.name, now_s)

    def remove_claim_object(self, kind: type[KubernetesObject], namespace: str, name: str, now_s: float) -> None:
        self._offer(self._state.cluster.placement.remove_claim_object(kind, namespace, name))
        if self._state.device_claims.book.drop(kind, namespace, name):
            self._claims_changed(kind, namespace, name, now_s)

    def _claims_changed(self, kind: type[KubernetesObject], namespace: str, name: str, now_s: float) -> None:
        claims = self._state.device_claims
        if kind is DeviceClass:
            # An extended resource may stand for the class, and any workload may request it.
            claims.all_changed()
            self._workloads.refill(now_s)
        elif kind is ResourceSlice:
            claims.all_changed()
        else:
            if kind is ResourceClaim:
                claims.claim_changed(f"{namespace}/{name}")
            self._workloads.recount(claims.affected_by(kind, namespace, name), now_s)

    def _wake(self, queues: Iterable[QueueState]) -> None:
        self._state.touch()
        for queue in queues:
            self._state.wake(queue.name)

    def _wake_all(self) -> None:
        self._state.touch()
        self._state.queues.wake_all()


def _template(flavor: ResourceFlavor) -> str | None:
    return flavor.metadata.annotations.get(NODE_TEMPLATE)


def _names(queue: QueueState, flavor: FlavorName) -> bool:
    return any(flavor in group.flavors for group in queue.groups)


def _asks(queue: QueueState, check: str) -> bool:
    strategy = queue.object.spec.admission_checks_strategy
    return strategy is not None and any(rule.name == check for rule in strategy.admission_checks)
