"""What the engine knows of the cluster: flavors, queues, and which workload holds which quota.

One undo log serves quota, placement and holders, so a try is ``with cluster.trial(): ...``. Nothing here decides.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from controller.engine.devices.cache import HeldPlace
from controller.engine.devices.grants import GrantOwner
from controller.engine.model.config import EngineConfig
from controller.engine.model.identity import ByIdentity
from controller.engine.model.limitrange import LimitSummary
from controller.engine.model.resources import (
    Amount,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    WorkloadKey,
)
from controller.engine.model.undo import Trial, UndoLog
from controller.engine.quota.queuestate import Holder, QueueState
from controller.engine.quota.quota import QuotaTree, UnknownClusterQueueError
from controller.engine.quota.quotaspec import cluster_queue_spec, cohort_spec
from controller.engine.topology.placement import Topologies
from controller.engine.topology.port import Everywhere, Placement
from controller.objects.core import LimitRange, Namespace
from controller.objects.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology


class DriftError(AssertionError):
    """A sum that is kept differs from the sum of its parts: a bug of the engine, never a user's mistake."""


_REMEMBERED: Final = 16_384


class HolderObserver(Protocol):
    """Told of every holder that comes or goes, of those too that a trial brings and takes back."""

    def added(self, holder: Holder) -> None: ...

    def removed(self, holder: Holder) -> None: ...

    def changed(self, known: Holder, holder: Holder) -> None:
        """The same workload, the same queue and usage; anything else may differ."""


class Cluster:
    """The cluster as its objects and decisions leave it. The mappings are for reading; the methods write them.

    ``holders`` are all workloads with quota, each under its key, and the same objects as in the ``holders`` of its
    queue; what a holder uses is charged to ``quota`` and, where it has places, to ``placement``, once. ``observers``
    hear of every holder in the order of the changes. A trial takes all of this back together through ``undo``; objects
    (queues, flavors, checks, nodes) change outside of trials.
    """

    def __init__(self, config: EngineConfig | None = None, placement: Placement | None = None) -> None:
        self.config = config or EngineConfig()
        self.undo = UndoLog()
        self.quota = QuotaTree(self.undo)
        self.placement: Placement = placement or _placement(self.undo, self.config, self._held)
        self.flavors: dict[FlavorName, ResourceFlavor] = {}
        self.topologies: dict[str, Topology] = {}
        self._topological: set[FlavorName] = set()
        """Flavors that name a topology, or did: a workload that runs on one is counted there to its end."""
        self._places = ByIdentity[Holder, Sequence[HeldPlace]]()
        self.checks: dict[str, AdmissionCheck] = {}
        self.local_queues: dict[LocalQueueKey, LocalQueue] = {}
        self.queues: dict[ClusterQueueName, QueueState] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.limits: dict[str, LimitSummary] = {}
        """LimitRanges by namespace; absent where a namespace has none."""
        self.holders: dict[WorkloadKey, Holder] = {}
        self.observers: list[HolderObserver] = []
        self.generation = 0
        """Moves on with every change of flavors, checks, topologies and queues: what is compiled from them is stale."""
        self.scope = 0
        """Moves on with every change of namespaces and LimitRanges."""

    def trial(self) -> Trial:
        return self.undo.trial()

    def queue(self, name: ClusterQueueName) -> QueueState:
        try:
            return self.queues[name]
        except KeyError:
            raise UnknownClusterQueueError(name) from None

    # -- objects -----------------------------------------------------------------------------------------------------

    def set_cluster_queue(self, cluster_queue: ClusterQueue) -> None:
        name = ClusterQueueName(cluster_queue.metadata.name)
        self.quota.set_cluster_queue(name, cluster_queue_spec(cluster_queue))
        state = self.queues.get(name)
        if state is None:
            self.queues[name] = QueueState(cluster_queue, self.quota.cluster_queue(name))
        else:
            state.respecify(cluster_queue)
        self.generation += 1

    def remove_cluster_queue(self, name: ClusterQueueName) -> tuple[Holder, ...]:
        """Forget the queue. Those that held its quota are returned: they hold nothing now."""
        state = self.queue(name)
        gone = tuple(state.holders.values())
        for holder in gone:
            self.remove_holder(holder.key)
        self.quota.remove_cluster_queue(name)
        del self.queues[name]
        self.generation += 1
        return gone

    def set_cohort(self, cohort: Cohort) -> None:
        self.quota.set_cohort(CohortName(cohort.metadata.name), cohort_spec(cohort))

    def remove_cohort(self, name: CohortName) -> None:
        self.quota.remove_cohort(name)

    def set_flavor(self, flavor: ResourceFlavor) -> None:
        name = FlavorName(flavor.metadata.name)
        self.flavors[name] = flavor
        self.placement.set_flavor(flavor)
        if flavor.spec.topology_name is not None and name not in self._topological:
            self._count_on(name)
        self.generation += 1

    def remove_flavor(self, name: FlavorName) -> None:
        if self.flavors.pop(name, None) is not None:
            self.placement.remove_flavor(name)
            self.generation += 1

    def set_check(self, check: AdmissionCheck) -> None:
        self.checks[check.metadata.name] = check
        self.generation += 1

    def remove_check(self, name: str) -> None:
        if self.checks.pop(name, None) is not None:
            self.generation += 1

    def set_topology(self, topology: Topology) -> None:
        self.topologies[topology.metadata.name] = topology
        self.placement.set_topology(topology)
        self.generation += 1

    def remove_topology(self, name: str) -> None:
        if self.topologies.pop(name, None) is not None:
            self.placement.remove_topology(name)
            self.generation += 1

    def set_local_queue(self, queue: LocalQueue) -> None:
        self.local_queues[LocalQueueKey(queue.key)] = queue

    def remove_local_queue(self, key: LocalQueueKey) -> None:
        self.local_queues.pop(key, None)

    def set_namespace(self, namespace: Namespace) -> None:
        self.namespaces[namespace.metadata.name] = namespace
        self.scope += 1

    def remove_namespace(self, name: str) -> None:
        self.namespaces.pop(name, None)
        self.scope += 1

    def set_limit_ranges(self, namespace: str, ranges: Iterable[LimitRange]) -> None:
        """All LimitRanges of a namespace, in place of those told before."""
        summary = LimitSummary(ranges)
        if summary.empty:
            self.limits.pop(namespace, None)
        else:
            self.limits[namespace] = summary
        self.scope += 1

    # -- who holds quota ---------------------------------------------------------------------------------------------

    def add_holder(self, holder: Holder, *, charged: bool = False) -> None:
        """Charge a workload, whether or not it fits, unless it is charged already. It must not hold anything yet."""
        if holder.info.key in self.holders:
            raise DriftError(f"{holder.key} holds quota already")
        if not charged:
            self.charge(holder)
        self._remember(holder)
        self.undo.record(self._forget, holder)

    def remove_holder(self, key: WorkloadKey) -> Holder | None:
        """Give back what the workload holds; None where it holds nothing."""
        holder = self.holders.get(key)
        if holder is None:
            return None
        self.release(holder)
        self._forget(holder)
        self.undo.record(self._remember, holder)
        return holder

    def replace_holder(self, holder: Holder) -> None:
        """Something is told anew of a workload that holds quota. Where it takes what it took, the sums stand."""
        known = self.holders[holder.key]
        alike = known.cluster_queue == holder.cluster_queue and known.usage == holder.usage
        if alike and self._placed(known) == self._placed(holder):
            self._exchange(known, holder)
            self.undo.record(self._exchange, holder, known)
        else:
            self.remove_holder(holder.key)
            self.add_holder(holder)

    def charge(self, holder: Holder) -> None:
        """The sums alone, for trials: quota and topology."""
        self.quota.add_usage(holder.cluster_queue, holder.usage)
        for place in self._placed(holder):
            self.placement.add(*place)

    def release(self, holder: Holder) -> None:
        """The reverse of ``charge``."""
        self.quota.remove_usage(holder.cluster_queue, holder.usage)
        for place in self._placed(holder):
            self.placement.remove(*place)

    def vacate(self, holder: Holder) -> None:
        """Its places alone, for trials: those of a slice are its successor's to keep. Nothing where it holds none."""
        if self.holders.get(holder.key) is holder:
            for place in self._placed(holder):
                self.placement.remove(*place)

    def validate(self) -> None:
        """Recompute what is kept; DriftError or QuotaDriftError names the first differences."""
        for audit in self.audits():
            audit()

    def audits(self) -> tuple[Callable[[], None], ...]:
        """The parts of ``validate``, each of which holds by itself outside of trials."""
        return self.quota.validate, self._validate_holders, self._validate_places

    def _validate_holders(self) -> None:
        for name, state in self.queues.items():
            sums: dict[FlavorResource, Amount] = {}
            for key, holder in state.holders.items():
                if holder.cluster_queue != name or self.holders.get(key) is not holder:
                    raise DriftError(f"{key} is kept by {name} and not by the cluster, or in another queue")
                for fr, amount in holder.usage.items():
                    sums[fr] = sums.get(fr, 0) + amount
            if {fr: amount for fr, amount in sums.items() if amount} != state.node.used():
                raise DriftError(f"{name}: charged {state.node.used()}, its workloads hold {sums}")
        if len(self.holders) != sum(len(state.holders) for state in self.queues.values()):
            raise DriftError("a workload holds quota in no queue")

    def _validate_places(self) -> None:
        try:
            self._places.validate()
            self.placement.validate([(flavor, usage) for flavor, usage, _ in self._held()])
        except AssertionError as error:
            raise DriftError(str(error)) from error

    def on_nodes(self, flavors: Iterable[FlavorName]) -> FlavorName | None:
        """Of the flavors of one pod set the one whose nodes it runs on: no two of them have a topology."""
        names = tuple(flavors)
        return next((name for name in names if name in self._topological), names[0] if names else None)

    def on_topology(self, queue: QueueState) -> bool:
        """Whether what it admits is given places on nodes, all of it or some."""
        return any(flavor in self._topological for group in queue.groups for flavor in group.flavors)

    def implies_topology(self, queue: QueueState) -> bool:
        """Whether all flavors of the queue have a topology: a pod set that asks for none is placed all the same."""
        names = [name for group in queue.groups for name in group.flavors]
        flavors = [self.flavors.get(name) for name in names]
        return bool(names) and all(flavor is not None and flavor.spec.topology_name is not None for flavor in flavors)

    def _held(self) -> list[HeldPlace]:
        """All places that are held, outside of trials."""
        known = self._places
        return [
            place
            for holder in self.holders.values()
            for place in (known[id(holder)][1] if id(holder) in known else self._placed(holder))
        ]

    def _placed(self, holder: Holder) -> Sequence[HeldPlace]:
        """The pod sets that have places, by the flavor whose nodes they run on. Trials ask again and again."""
        known = self._places.get(id(holder))
        if known is not None:
            return known[1]
        found = []
        for pod_set in holder.info.pod_sets:
            flavor = self.on_nodes(pod_set.flavors.values()) if pod_set.topology is not None else None
            if pod_set.topology is not None and flavor is not None:
                found.append((flavor, pod_set.topology, GrantOwner(holder.key, pod_set.name)))
        if not found:
            return found
        if len(self._places) >= _REMEMBERED:
            self._places.clear()
        self._places[id(holder)] = (holder, found)
        return found

    def _count_on(self, flavor: FlavorName) -> None:
        """The flavor turns out to have a topology: who was told before it is counted there from now on."""
        told = [
            holder
            for holder in self.holders.values()
            if any(
                pod_set.topology is not None and flavor in pod_set.flavors.values() for pod_set in holder.info.pod_sets
            )
        ]
        for holder in told:
            for place in self._placed(holder):
                self.placement.remove(*place)
        self._topological.add(flavor)
        self._places.clear()
        for holder in told:
            for place in self._placed(holder):
                self.placement.add(*place)

    def _forget(self, holder: Holder) -> None:
        del self.holders[holder.key]
        self.queues[holder.cluster_queue].holders.pop(holder.key, None)
        for observer in self.observers:
            observer.removed(holder)

    def _exchange(self, known: Holder, holder: Holder) -> None:
        self.holders[holder.key] = holder
        self.queues[holder.cluster_queue].holders[holder.key] = holder
        for observer in self.observers:
            observer.changed(known, holder)

    def _remember(self, holder: Holder) -> None:
        key = holder.info.key
        self.holders[key] = holder
        self.queues[holder.cluster_queue].holders[key] = holder
        for observer in self.observers:
            observer.added(holder)


def _placement(undo: UndoLog, config: EngineConfig, held: Callable[[], Iterable[HeldPlace]]) -> Placement:
    if not config.gates.on("TopologyAwareScheduling"):
        return Everywhere()
    claims = config.claim_rules.placed
    more = config.extensions
    return Topologies(
        undo, config.gates, held=held, packs=more.keep_linked_gpus, claims=claims, own_places=more.own_places
    )
