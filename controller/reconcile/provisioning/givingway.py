"""Nodes that pods of queues wait for, and placeholders that gave way there.

kube-scheduler preempts no pod for the sake of a device: it looks at what claims have as if all of them stayed. So a
placeholder that has devices by claim is removed as soon as a pod of any workload is sent to its node and waits; and no
other is made in its place before that pod has its devices, or it would get them first.
"""

from typing import Final

from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.model.resources import WorkloadKey

LONGEST_S: Final = 30.0
"""The seconds for which no other is made: the pod may wait for something else than devices."""


class GivingWay:
    """Invariant, which ``validate`` recomputes: ``_by_node`` has each pod of ``_node_of`` exactly once."""

    def __init__(self) -> None:
        self._node_of: dict[str, str] = {}
        """The node that each pod was sent to and has not got yet, by key of the pod."""
        self._by_node: dict[str, set[str]] = {}
        """The pods that wait for a node; one that none waits for has no entry."""
        self._gave: dict[WorkloadKey, dict[str, float]] = {}
        """When a placeholder of a workload last gave way, by node. ``holds_back`` drops what counts no more."""

    def tell(self, pod: str, node: str) -> bool:
        """Note the node that a pod waits for; empty for none. Returns whether it now waits for another than before."""
        before = self._node_of.pop(pod, "")
        if before:
            self._by_node[before].discard(pod)
            if not self._by_node[before]:
                del self._by_node[before]
        if node:
            self._node_of[pod] = node
            self._by_node.setdefault(node, set()).add(pod)
        return bool(node) and node != before

    def is_awaited(self, node: str) -> bool:
        return node in self._by_node

    def gave(self, workload: WorkloadKey, node: str, now_s: float) -> None:
        """Note that a placeholder of the workload gives way on a node."""
        self._gave.setdefault(workload, {})[node] = now_s

    def holds_back(self, workload: WorkloadKey, now_s: float) -> bool:
        """Whether a pod still waits where a placeholder of the workload gave way."""
        nodes = self._gave.pop(workload, {})
        still = {
            node: since_s for node, since_s in nodes.items() if self.is_awaited(node) and now_s < since_s + LONGEST_S
        }
        if still:
            self._gave[workload] = still
        return bool(still)

    def forget(self, workload: WorkloadKey) -> None:
        self._gave.pop(workload, None)

    def validate(self) -> None:
        """Raises DriftError."""
        again: dict[str, set[str]] = {}
        for pod, node in self._node_of.items():
            again.setdefault(node, set()).add(pod)
        if again != self._by_node:
            raise DriftError("pods by the node that they wait for differ from all pods that wait")
