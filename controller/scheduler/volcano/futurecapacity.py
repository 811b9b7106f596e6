"""What a waiting workload would find after others have ended: their quota, their places, and what the bounds of
mirrored Queues leave. A question is asked within a trial of the cluster, which takes back what it charges and releases.
"""

from typing import NamedTuple

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.cluster.incoming import Incoming
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.flavors.assignment import Mode
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.preemption.trialstarts import charge_assignment
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.volcano.rules import Bounds
from controller.scheduler.volcano.tree import FairTree, is_preemptible, needs


class TreeBounds(NamedTuple):
    """The tree of a mirrored Queue, made for the question, and the bounds that it sets."""

    tree: FairTree
    rules: Bounds


class FutureCapacity:
    """The state of one question. ``ends`` and ``enters`` may be called in any order."""

    def __init__(
        self, cluster: Cluster, assigner: FlavorAssigner, incoming: Incoming, bounds: TreeBounds | None
    ) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._incoming = incoming
        self._bounds = bounds

    def ends(self, holder: Holder) -> None:
        self._cluster.release(holder)
        leaf = QueueName(holder.cluster_queue)
        if self._bounds is not None and leaf in self._bounds.tree.leaves and not holder.evicted:
            self._charge(leaf, holder, sign=-1)

    def enters(self) -> bool:
        """Whether one such workload fits now; if so it holds its quota and places from then on."""
        incoming, bounds = self._incoming, self._bounds
        leaf = QueueName(incoming.queue.name)
        if bounds is not None:
            system = bounds.tree.system
            need, preemptible = needs(incoming.info, system), is_preemptible(incoming.info, incoming.priority, system)
            if bounds.rules.refusal(bounds.tree, leaf, need, preemptible=preemptible):
                return False
        found = self._assigner.assign(incoming)
        if found.mode is not Mode.FIT:
            return False
        charge_assignment(self._cluster, incoming, found)
        if bounds is not None:
            self._charge(leaf, incoming, sign=1)
        return True

    def _charge(self, leaf: QueueName, of: Holder | Incoming, *, sign: int) -> None:
        if self._bounds is not None:
            tree = self._bounds.tree
            preemptible = is_preemptible(of.info, of.priority, tree.system)
            tree.charge(leaf, needs(of.info, tree.system), preemptible=preemptible, sign=sign)
