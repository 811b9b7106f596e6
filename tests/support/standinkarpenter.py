"""A stand-in for autoscalers that act on pending pods (Karpenter, Cluster Autoscaler): pods and the time in, nodes out.

It looks at pods that kube-scheduler has found no node for, and at no others: a gated pod has no such verdict, one below
the priority of -10 is passed over. For each it orders one node of the pool that the pod's node selector names, which
comes after a while; it orders none for a pod that has one on its way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

EXPENDABLE = -10


@dataclass
class StandInKarpenter:
    """``node``: the body of the n-th node of a pool. ``never``: pools of which none ever comes."""

    node: Callable[[str, int], Json]
    delay_s: float = 0.0
    never: frozenset[str] = frozenset()
    made: list[str] = field(default_factory=list)
    """Names of nodes that have come."""
    _ordered: dict[str, tuple[float, str]] = field(default_factory=dict)
    """The time at which a pod's node comes, and its pool, by the uid of the pod."""
    _counts: dict[str, int] = field(default_factory=dict)

    def look(self, pods: Sequence[Json], now_s: float) -> Iterator[Json]:
        for pod in pods:
            if (pool := self._wants(pod)) and pod["metadata"]["uid"] not in self._ordered:
                self._ordered[pod["metadata"]["uid"]] = now_s + self.delay_s, pool
        for uid, (due_s, pool) in list(self._ordered.items()):
            if due_s > now_s or not pool:
                continue
            self._ordered[uid] = due_s, ""
            number = self._counts[pool] = self._counts.get(pool, 0) + 1
            body = self.node(pool, number)
            self.made.append(body["metadata"]["name"])
            yield body

    def _wants(self, pod: Json) -> str:
        """The pool of which the pod needs a node; empty if it needs none."""
        spec = pod["spec"]
        pool: str = spec.get("nodeSelector", {}).get("pool", "")
        if spec.get("nodeName") or spec.get("schedulingGates") or spec.get("priority", 0) < EXPENDABLE:
            return ""
        if pool in self.never or pod["metadata"].get("deletionTimestamp"):
            return ""
        verdicts = pod.get("status", {}).get("conditions", [])
        unfit = any((one["type"], one["status"]) == ("PodScheduled", "False") for one in verdicts)
        return pool if unfit and HOST not in spec.get("nodeSelector", {}) else ""


HOST = "kubernetes.io/hostname"
