"""The pods of placed workloads: where each runs or is to run, the pod set it belongs to, and which pods have ended.

Nodes are known by the names of their objects; pods that are not bound yet name their node by its hostname label.
"""

from collections.abc import Mapping
from typing import Final

from controller.scheduler.devices.grants import GrantOwner, PodFacts

_MOST_OVER: Final = 4096
_NONE: Final[Mapping[str, PodFacts]] = {}


class KnownPods:
    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}
        """Node name by hostname label, for nodes whose label is not their name."""
        self._labels: dict[str, str] = {}
        self._facts: dict[str, PodFacts] = {}
        self._over: dict[str, None] = {}
        """The pods that had a place and ended most recently: an agent may report them still, or only afterwards."""
        self._where: dict[str, str] = {}
        self._on_node: dict[str, dict[str, PodFacts]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._facts

    # -- events ------------------------------------------------------------------------------------------------------

    def set_host(self, name: str, label: str | None) -> bool:
        """Store the hostname label of a node, None without one. Returns whether the node is known by another label than
        before.
        """
        known = self._labels.pop(name, None)
        if known is not None:
            self._hosts.pop(known, None)
        if label is not None and label != name:
            self._hosts[label] = name
            self._labels[name] = label
        if self._labels.get(name) == known:
            return False
        called = {node for node in (known, label, name) if node is not None}
        for key in [key for node in called for key, facts in self.on(node).items() if self.name(facts.node) != node]:
            facts = self._facts[key]
            self._drop(key)
            self._file(key, facts)
        return True

    def tell(self, key: str, now: PodFacts | None) -> tuple[str, ...]:
        """Store a pod's facts; None for a pod that is over or has no node. Returns the nodes that the pod was on and is
        on; none where nothing changed.
        """
        if self._facts.get(key) == now:
            return ()
        old = self._where.get(key)
        new = None
        if old is not None:
            self._drop(key)
            if now is None:
                self.remember(key)
        if now is not None:
            self._over.pop(key, None)
            new = self._file(key, now)
        return tuple(dict.fromkeys(name for name in (old, new) if name is not None))

    def remember(self, key: str) -> None:
        """Remember a pod that has ended."""
        self._over[key] = None
        if len(self._over) > _MOST_OVER:
            del self._over[next(iter(self._over))]

    def forget(self, key: str) -> None:
        """Forget an ended pod that no node reports any more."""
        self._over.pop(key, None)

    # -- questions ---------------------------------------------------------------------------------------------------

    def name(self, host: str) -> str:
        return self._hosts.get(host, host)

    def get(self, key: str) -> PodFacts | None:
        return self._facts.get(key)

    def is_over(self, key: str) -> bool:
        return key in self._over

    def on(self, name: str) -> Mapping[str, PodFacts]:
        """The pods of a node, by key."""
        return self._on_node.get(name, _NONE)

    def of(self, name: str, owner: GrantOwner) -> list[tuple[str, PodFacts]]:
        """The owner's pods on a node, sorted by key."""
        there = self._on_node.get(name)
        return [] if there is None else [(key, there[key]) for key in sorted(there) if there[key].owner == owner]

    def of_workload(self, workload: str) -> list[tuple[str, PodFacts]]:
        return [(key, facts) for key, facts in self._facts.items() if facts.owner.workload == workload]

    def validate(self) -> None:
        """AssertionError where the indexes do not agree."""
        expected = {key: self.name(facts.node) for key, facts in self._facts.items()}
        if self._where != expected:
            raise AssertionError(f"pods are filed under {self._where}, expected {expected}")
        found = {key: name for name, there in self._on_node.items() for key in there}
        if found != expected or not all(self._on_node.values()):
            raise AssertionError(f"pods are on {found}, expected {expected}")
        if len(self._over) > _MOST_OVER or not self._over.keys().isdisjoint(self._facts):
            raise AssertionError("a pod is known and over, or too many are remembered")

    # -- inside ------------------------------------------------------------------------------------------------------

    def _drop(self, key: str) -> None:
        name = self._where.pop(key)
        del self._facts[key], self._on_node[name][key]
        if not self._on_node[name]:
            del self._on_node[name]

    def _file(self, key: str, facts: PodFacts) -> str:
        name = self.name(facts.node)
        self._facts[key] = facts
        self._where[key] = name
        self._on_node.setdefault(name, {})[key] = facts
        return name
