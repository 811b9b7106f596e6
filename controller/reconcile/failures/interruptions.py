"""Nodes that are taken away with notice: why one is, and whom that concerns. Pure.

Providers and autoscalers say so by a taint, or by deleting the Node, whose finalizer keeps it until its pods are gone.
"""

from collections.abc import Collection

from controller.messages import statuses as words
from controller.objects.core import Node


def notice_of(node: Node, taints: Collection[str]) -> str:
    """The sign by which the node leaves: a taint's key, or that it is being deleted; empty while it stays."""
    if node.metadata.deletion_timestamp is not None:
        return words.node_deleted()
    return next((taint.key for taint in node.spec.taints if taint.key in taints), "")


class Interruptions:
    """The nodes that leave, each with its sign. A node is told of once for each sign."""

    def __init__(self, taints: Collection[str]) -> None:
        self._taints = taints
        self._leaving: dict[str, str] = {}

    def set_node(self, name: str, node: Node | None) -> bool:
        """Store a node; None for one that is gone. Returns whether its workloads are to leave now."""
        sign = notice_of(node, self._taints) if node is not None else ""
        before = self._leaving.pop(name, "")
        if sign:
            self._leaving[name] = sign
        return bool(sign) and sign != before

    def sign(self, name: str) -> str:
        """Why the node leaves; empty where it does not, or not any more."""
        return self._leaving.get(name, "")

    @property
    def leaving(self) -> frozenset[str]:
        return frozenset(self._leaving)
