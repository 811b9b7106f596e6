"""Takes in queues of Volcano and KAI: the objects that the mirror makes of them go into the cluster like any other.

Their LocalQueues are made on demand: a namespace reaches a mirrored queue by its name as soon as a workload of the
namespace names it. A LocalQueue object of that name in the namespace takes precedence, for it is the namespace's own.
"""

from collections.abc import Iterable

from controller.foreign.objects.kai import KaiQueue
from controller.objects.core import Node
from controller.objects.meta import KubernetesObject
from controller.objects.queues import ClusterQueue, Cohort, ResourceFlavor, Topology
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.mirror.mirror import Change, Mirror, Tell
from controller.scheduler.mirror.specs import Adoption, QueueOwner, System
from controller.scheduler.model.resources import ClusterQueueName, CohortName, FlavorName, LocalQueueKey
from controller.scheduler.quota.queuestate import QueueState
from controller.scheduler.state.clusterevents import ClusterEvents
from controller.scheduler.state.enginestate import EngineState
from controller.scheduler.state.intake import local_queue_of
from inventory.api.names import QUEUE_USAGE


class MirrorEvents:
    """The events of Volcano's and KAI's queues. ``mirror`` may be read by others. ``_reached``: the LocalQueues that
    exist for a mirrored queue and have no object; all lead to leaves.
    """

    def __init__(self, state: EngineState, cluster: ClusterEvents) -> None:
        self.mirror = Mirror()
        self._state = state
        self._cluster = cluster
        self._reached: set[LocalQueueKey] = set()

    def put(self, queue: QueueOwner) -> None:
        self.mirror.put(queue)
        history, stored = self._state.queue_history, queue.metadata.annotations.get(QUEUE_USAGE)
        if history is not None and stored is not None and isinstance(queue, KaiQueue):
            history.restore(QueueName(queue.metadata.name), stored)

    def gone(self, kind: type[QueueOwner], name: str) -> None:
        self.mirror.gone(kind, name)
        if self._state.queue_history is not None and kind is KaiQueue:
            self._state.queue_history.forget(QueueName(name))

    def imply(self, system: System, how: Adoption) -> None:
        """Note that the system has its own Queues from now on, whoever created any."""
        self.mirror.imply(system, how)

    def node(self, node: Node) -> None:
        self.mirror.node(node)

    def node_gone(self, name: str) -> None:
        self.mirror.node_gone(name)

    def name_taken(self, name: str, now_s: float) -> None:
        """Called before a ClusterQueue of this name is taken in: a mirrored queue of that name is removed first."""
        self.mirror.take_name(name)
        self.flush(now_s)

    def name_free(self, name: str) -> None:
        """Called after the ClusterQueue of this name went."""
        self.mirror.free_name(name)

    def flush(self, now_s: float) -> None:
        """Take in all changes of the mirror; called before anything is decided or asked."""
        self._carry_out(self.mirror.changes(), now_s)

    def reach(self, key: LocalQueueKey, now_s: float) -> None:
        """Make the LocalQueue of a mirrored queue, if there is one: called when a workload names it, or when the
        LocalQueue object is gone.
        """
        if key in self._state.cluster.local_queues:
            return
        made = self.mirror.local_queue(key)
        if made is not None:
            self._reached.add(key)
            self._cluster.set_local_queue(made, now_s)

    def queue_of(self, key: LocalQueueKey) -> QueueState | None:
        """The ClusterQueue that a LocalQueue leads to, or would lead to if a workload named it."""
        local = self._state.cluster.local_queues.get(key) or self.mirror.local_queue(key)
        return self._state.cluster.queues.get(ClusterQueueName(local.spec.cluster_queue)) if local is not None else None

    def given(self, key: LocalQueueKey) -> None:
        """Note that the LocalQueue has an object now."""
        self._reached.discard(key)

    def _carry_out(self, changes: Iterable[Change], now_s: float) -> None:
        moved = False
        for change in changes:
            if isinstance(change, Tell):
                self._tell(change.given, now_s)
                moved = moved or isinstance(change.given, ClusterQueue)
            else:
                self._untell(change.kind, change.name, now_s)
                moved = True
        if moved:
            self._reach_all(now_s)

    def _tell(self, given: KubernetesObject, now_s: float) -> None:
        match given:
            case ClusterQueue():
                self._cluster.set_cluster_queue(given, now_s)
            case Cohort():
                self._cluster.set_cohort(given, now_s)
            case ResourceFlavor():
                self._cluster.set_flavor(given, now_s)
            case Topology():
                self._cluster.set_topology(given)

    def _untell(self, kind: type[KubernetesObject], name: str, now_s: float) -> None:
        if kind is ClusterQueue:
            self._cluster.remove_cluster_queue(ClusterQueueName(name), now_s)
        elif kind is Cohort:
            self._cluster.remove_cohort(CohortName(name))
        elif kind is ResourceFlavor:
            self._cluster.remove_flavor(FlavorName(name))
        elif kind is Topology:
            self._cluster.remove_topology(name)

    def _reach_all(self, now_s: float) -> None:
        """Make and remove LocalQueues after mirrored queues have come or gone."""
        for key in sorted(self._reached):
            if self.mirror.local_queue(key) is None:
                self._reached.discard(key)
                self._cluster.remove_local_queue(key, now_s)
        for key in {local_queue_of(workload) for workload in self._state.workloads.objects.values()}:
            self.reach(key, now_s)
