"""The engine's view of the cluster: flavors, queues, and which workload holds which quota. One undo log serves quota,
placement and holders, so a try is ``with cluster.trial(): ...``. Nothing here makes decisions.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple, Protocol

from controller.objects.core import LimitRange, Namespace
from controller.objects.queues import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology
from controller.scheduler.cluster.comingbackoff import ComingBackoff
from controller.scheduler.cluster.keptpods import KeptPods
from controller.scheduler.devices.cache import HeldPlace
from controller.scheduler.devices.grants import GrantOwner
from controller.scheduler.model.caches import ByIdentity
from controller.scheduler.model.config import EngineConfig
from controller.scheduler.model.limitrange import LimitSummary
from controller.scheduler.model.resources import (
    Amount,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueueKey,
    WorkloadKey,
)
from controller.scheduler.model.undo import Trial, UndoLog
from controller.scheduler.model.workload import PodSetRequests
from controller.scheduler.quota.queuestate import Holder, QueueState
from controller.scheduler.quota.quota import QuotaTree, UnknownClusterQueueError
from controller.scheduler.quota.quotaspec import cluster_queue_spec, cohort_spec
from controller.scheduler.topology.nodes import LEAVING
from controller.scheduler.topology.placement import Topologies
from controller.scheduler.topology.port import NoTopology, Placement, PlacementRules


class DriftError(AssertionError):
    """A sum that is kept differs from the sum of its parts: a bug of the engine, never a user's mistake."""


_REMEMBERED: Final = 16_384


class HolderObserver(Protocol):
    """An observer that is called for every holder that comes or goes, also within a trial and when the trial
    is undone.
    """

    def added(self, holder: Holder) -> None: ...

    def removed(self, holder: Holder) -> None: ...

    def changed(self, known: Holder, holder: Holder) -> None:
        """Called when a holder is replaced by one of the same workload, queue and usage; anything else may differ."""


class Granted(NamedTuple):
    """What a workload gets in a decision that is being made."""

    cluster_queue: ClusterQueueName
    local_queue: LocalQueueKey
    pod_sets: tuple[PodSetRequests, ...]


class Cluster:
    """The cluster as its objects and decisions leave it. Others read the mappings; only the methods write them.

    ``holders`` are all workloads with quota, each under its key, and the same objects as in the ``holders`` of its
    queue; what a holder uses is charged to ``quota`` and, where it has places, to ``placement``, once. ``observers``
    are called for every holder in the order of the changes; ``observe`` adds one before the first change. A trial
    undoes all of this together through ``undo``; objects (queues, flavors, checks, nodes) change outside of trials.
    """

    def __init__(self, config: EngineConfig | None = None, placement: Placement | None = None) -> None:
        self.config = config or EngineConfig()
        self.undo = UndoLog()
        self.quota = QuotaTree(self.undo)
        self.placement: Placement = placement or _placement(self.undo, self.config, self._held)
        self.flavors: dict[FlavorName, ResourceFlavor] = {}
        self.topologies: dict[str, Topology] = {}
        self._topological: set[FlavorName] = set()
        """Flavors that name a topology, or did: a workload that runs on such a flavor is counted there to its end."""
        self._places = ByIdentity[Holder, Sequence[HeldPlace]](_REMEMBERED)
        self.checks: dict[str, AdmissionCheck] = {}
        self.local_queues: dict[LocalQueueKey, LocalQueue] = {}
        self.queues: dict[ClusterQueueName, QueueState] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.limits: dict[str, LimitSummary] = {}
        """LimitRanges by namespace; absent where a namespace has none."""
        self.holders: dict[WorkloadKey, Holder] = {}
        self.kept_pods = KeptPods()
        self.promised: AbstractSet[WorkloadKey] = frozenset()
        """Holders for which nodes come, and whose pods have no places there yet: a set of ``HolderNotes``, which alone
        changes it. ``EngineState`` puts it here once.
        """
        self.coming: AbstractSet[WorkloadKey] = frozenset()
        """Holders without places that wait for nodes which can come: a set of ``HolderNotes``, which alone changes it.
        ``EngineState`` puts it here once.
        """
        self.coming_backoff = ComingBackoff()
        self.counted_on: dict[WorkloadKey, tuple[int, object, Any]] = {}
        """The places that each workload of ``coming`` counted on when they were last looked for, with ``offers`` of
        that time and what it asked for: a cache that ``comingnodes`` alone writes, to be spared a search in each cycle.
        """
        self.granted: dict[WorkloadKey, Granted] = {}
        """What was given in the trial that is open to workloads whose queue keeps a part on demand: they are no holders
        yet. Empty outside of trials.
        """
        self.offers = 0
        """A number that grows when nodes offer something else (``ClusterEvents``), or places on them come free
        (``EngineState``).
        """
        self.observers: list[HolderObserver] = []
        self.generation = 0
        """A number that grows with every change of flavors, checks, topologies and queues: what was compiled from them
        is then stale.
        """
        self.scope = 0
        """A number that grows with every change of namespaces and LimitRanges."""

    def trial(self) -> Trial:
        return self.undo.trial()

    def grant(self, key: WorkloadKey, granted: Granted) -> None:
        """Note in ``granted`` what a workload gets, for the trial that is open."""
        self.granted[key] = granted
        self.undo.record(self.granted.pop, key, None)

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
        """Forget the queue. Returns its former holders, which hold nothing now."""
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

    def restate_flavor(self, flavor: ResourceFlavor) -> None:
        """Store a flavor of which nothing has changed that decides."""
        self.flavors[FlavorName(flavor.metadata.name)] = flavor

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
        """Set all LimitRanges of a namespace, replacing those of before."""
        summary = LimitSummary(ranges)
        if summary.empty:
            self.limits.pop(namespace, None)
        else:
            self.limits[namespace] = summary
        self.scope += 1

    # -- who holds quota ---------------------------------------------------------------------------------------------

    def add_holder(self, holder: Holder, *, charged: bool = False) -> None:
        """Charge a workload, whether or not it fits, unless it is charged already. The workload must not hold anything
        yet.
        """
        if holder.info.key in self.holders:
            raise DriftError(f"{holder.key} holds quota already")
        if not charged:
            self.charge(holder)
        self._remember(holder)
        self.undo.record(self._forget, holder)

    def remove_holder(self, key: WorkloadKey) -> Holder | None:
        """Give back what the workload holds. Returns the holder; None where the workload holds nothing."""
        holder = self.holders.get(key)
        if holder is None:
            return None
        self.release(holder)
        self._forget(holder)
        self.undo.record(self._remember, holder)
        return holder

    def replace_holder(self, holder: Holder) -> None:
        """Replace the holder of a workload by a new one. Where it takes the same as before no sums change."""
        known = self.holders[holder.key]
        alike = known.cluster_queue == holder.cluster_queue and known.usage == holder.usage
        if alike and self._placed(known) == self._placed(holder):
            self._exchange(known, holder)
            self.undo.record(self._exchange, holder, known)
        else:
            self.remove_holder(holder.key)
            self.add_holder(holder)

    def charge(self, holder: Holder) -> None:
        """Charge only the sums of quota and placement; for trials."""
        self.quota.add_usage(holder.cluster_queue, holder.usage)
        for place in self._placed(holder):
            self.placement.add(*place)

    def release(self, holder: Holder) -> None:
        """Takes back what ``charge`` charged."""
        self.quota.remove_usage(holder.cluster_queue, holder.usage)
        for place in self._placed(holder):
            self.placement.remove(*place)

    def vacate(self, holder: Holder) -> None:
        """Release only the places, for trials: an elastic slice's places go to its successor. Does nothing for a
        workload that holds none.
        """
        if self.holders.get(holder.key) is holder:
            for place in self._placed(holder):
                self.placement.remove(*place)

    def validate(self) -> None:
        """Recompute what is kept; DriftError or QuotaDriftError names the first differences."""
        for audit in self.audits():
            audit()

    def audits(self) -> tuple[Callable[[], None], ...]:
        """The parts of ``validate``, each of which must hold by itself outside of trials."""
        return (
            self.quota.validate,
            self._validate_holders,
            self._validate_places,
            self.coming_backoff.validate,
            self._kept,
        )

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

    def _kept(self) -> None:
        try:
            self.kept_pods.validate()
        except AssertionError as error:
            raise DriftError(str(error)) from error

    def on_nodes(self, flavors: Iterable[FlavorName]) -> FlavorName | None:
        """The one of a pod set's flavors whose nodes the pod set runs on: at most one of them has a topology."""
        names = tuple(flavors)
        return next((name for name in names if name in self._topological), names[0] if names else None)

    def awaited_flavors(self, holder: Holder) -> frozenset[FlavorName]:
        """The flavors with a topology on which pod sets of the holder wait for places."""
        waiting = (each for each in holder.info.pod_sets if each.topology is None)
        found = (self.on_nodes(each.flavors.values()) for each in waiting)
        return frozenset(name for name in found if name is not None and name in self._topological)

    @property
    def awaits_nodes(self) -> bool:
        """Whether nodes are on their way to workloads, onto which nothing else may be moved."""
        return bool(self.promised or self.coming)

    def on_topology(self, queue: QueueState) -> bool:
        """Whether some or all of the workloads that the queue admits get places on nodes."""
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
        """The places of the holder's pod sets, each with the flavor whose nodes it runs on. Cached, since trials ask
        repeatedly.
        """
        known = self._places.get(id(holder))
        if known is not None:
            return known[1]
        held_places = []
        for pod_set in holder.info.pod_sets:
            flavor = self.on_nodes(pod_set.flavors.values()) if pod_set.topology is not None else None
            if pod_set.topology is not None and flavor is not None:
                held_places.append((flavor, pod_set.topology, GrantOwner(holder.key, pod_set.name)))
        return self._places.keep(holder, held_places) if held_places else held_places

    def _count_on(self, flavor: FlavorName) -> None:
        """Take in that a flavor has a topology: holders that came before are counted on its nodes from now on."""
        uncounted = [
            holder
            for holder in self.holders.values()
            if any(
                pod_set.topology is not None and flavor in pod_set.flavors.values() for pod_set in holder.info.pod_sets
            )
        ]
        for holder in uncounted:
            for place in self._placed(holder):
                self.placement.remove(*place)
        self._topological.add(flavor)
        self._places.clear()
        for holder in uncounted:
            for place in self._placed(holder):
                self.placement.add(*place)

    def observe(self, observer: HolderObserver) -> None:
        """Tell the observer of every later change of a holder; of those that are there it is told nothing."""
        self.observers.append(observer)

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
        return NoTopology()
    more = config.extensions
    rules = PlacementRules(
        packs=more.keep_linked_gpus,
        claims=config.claim_rules.placed,
        own_places=more.own_places,
        leaving=LEAVING | more.leaving_taints if more.leaving_nodes else frozenset(),
        empty_nodes=more.empty_nodes,
        coming=more.coming_nodes,
    )
    return Topologies(undo, config.gates, rules=rules, held=held)
