"""Nodes whose agent does not run, by the pods of the agents: the sign of life that costs agents no request. Pure.

pods, time -> AgentPods -> since when no agent runs on a node

An agent says nothing while nothing changes, so its silence tells nothing. Its pod does: the kubelet says within seconds
that its container has ended, and a probe ends one that hangs. An agent that is no pod has no such sign: where the
namespace has none, nothing is concluded (decision 147).
"""

from collections import Counter
from typing import Final

from controller.objects.core import AgentPod

AWAY_S: Final = 60.0
"""The time without an agent after which its last word counts as old: an upgrade replaces one in less."""


class AgentPods:
    """``set_pod`` takes the pods of ``namespace``; pods of other namespaces are anybody's, and say nothing.

    ``_runs`` has the node of each pod that runs, ``_agents`` how many run on each node. ``_since_s`` has nodes without
    one, from when that was seen or first asked. ``_is_known``: there was a pod of an agent in this term.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._runs: dict[str, str] = {}
        self._agents: Counter[str] = Counter()
        self._since_s: dict[str, float] = {}
        self._is_known = False

    def set_pod(self, namespace: str, name: str, pod: AgentPod | None, now_s: float) -> set[str]:
        """Takes a pod as it is now; None: it is gone. Returns the nodes on which an agent now runs, or does not."""
        if namespace != self._namespace:
            return set()
        self._is_known |= pod is not None
        before = self._runs.get(name, "")
        node = pod.spec.node_name if pod is not None and pod.runs else ""
        if node == before:
            return set()
        changed: set[str] = set()
        if before:
            del self._runs[name]
            self._agents[before] -= 1
            if not self._agents[before]:
                del self._agents[before]
                self._since_s[before] = now_s
                changed.add(before)
        if node:
            self._runs[name] = node
            self._agents[node] += 1
            if self._agents[node] == 1:
                self._since_s.pop(node, None)
                changed.add(node)
        return changed

    def forget(self, node: str) -> None:
        """Drops a node that is gone."""
        self._since_s.pop(node, None)

    def missing_since_s(self, node: str, now_s: float) -> float | None:
        """Since when no agent runs on the node; None while one does, and where agents are no pods."""
        if not self._is_known or node in self._agents:
            return None
        return self._since_s.setdefault(node, now_s)

    def validate(self) -> None:
        """Recomputes the counts. Raises AssertionError where they differ."""
        assert self._agents == Counter(self._runs.values()), "agents are counted that do not run"
        assert self._since_s.keys().isdisjoint(self._agents), "a node misses an agent that runs"
