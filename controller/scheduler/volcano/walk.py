"""Finds the best leaf of a tree, by an order of siblings at each level, again after each change, in time proportional
to the depth.

The key of a Queue depends on what it has and on what comes first below it, so a change at a leaf changes the keys on
its path to the top and no others.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.volcano.tree import FairTree

K = TypeVar("K")


class Walk(ABC, Generic[K]):
    """The best leaf of a tree. ``_heaps``: for each parent its children with their keys. An item is valid while its
    stamp is the child's; a child in whose subtree nothing is left has a stamp and no item. Keys are those of the last
    ``refresh`` of each leaf.
    """

    def __init__(self, tree: FairTree) -> None:
        self._tree = tree
        self._heaps: dict[QueueName | None, list[tuple[K, int, QueueName]]] = {}
        self._stamps: dict[QueueName, int] = {}

    @abstractmethod
    def _has(self, leaf: QueueName) -> bool:
        """Whether anything is left in the leaf."""

    @abstractmethod
    def _key(self, name: QueueName, leaf: QueueName) -> K:
        """The key of a Queue among its siblings; ``leaf`` is the best leaf below it. The smallest key is the best."""

    def build(self) -> None:
        for parent, siblings in reversed([*self._tree.downwards()]):
            for name in siblings:
                self._push(name, parent)

    def best(self) -> QueueName | None:
        return self._below(None)

    def refresh(self, leaves: Iterable[QueueName]) -> None:
        """Recompute keys after changes in these leaves."""
        for leaf in leaves:
            for name in self._tree.names(leaf):
                self._push(name, self._tree.queues[name].parent)

    def _push(self, name: QueueName, parent: QueueName | None) -> None:
        stamp = self._stamps[name] = self._stamps.get(name, 0) + 1
        leaf = self._leaf_of(name)
        if leaf is not None:
            heappush(self._heaps.setdefault(parent, []), (self._key(name, leaf), stamp, name))

    def _leaf_of(self, name: QueueName) -> QueueName | None:
        if name in self._tree.leaves:
            return name if self._has(name) else None
        return self._below(name)

    def _below(self, parent: QueueName | None) -> QueueName | None:
        heap = self._heaps.get(parent, [])
        while heap:
            _, stamp, name = heap[0]
            if self._stamps[name] == stamp:
                return self._leaf_of(name)
            heappop(heap)
        return None
