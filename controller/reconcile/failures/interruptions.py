"""Nodes that are taken away with notice: why one is, and whom that concerns. Pure.

Providers and autoscalers say so by a taint, by the condition MaintenancePlanned, or by deleting the Node, whose
finalizer keeps it until its pods are gone. A maintenance with a time is an announced drain, and one of our own repairs
drains by its own rules.
"""

import math
from collections.abc import Collection

from controller.messages import statuses as words
from controller.objects.core import Node
from controller.objects.meta import find_condition
from controller.scheduler.topology.nodes import drain_at_s
from inventory.api.names import MAINTENANCE_PLANNED, REPAIR_PLANNED


def notice_of(node: Node, taints: Collection[str]) -> str:
    """The sign by which the node leaves: a taint's key, a condition, or that it is being deleted; empty while it
    stays.
    """
    if node.metadata.deletion_timestamp is not None:
        return words.node_deleted()
    found = next((taint.key for taint in node.spec.taints if taint.key in taints), "")
    if found:
        return found
    planned = find_condition(node.status.conditions, MAINTENANCE_PLANNED)
    by_others = planned is not None and planned.status == "True" and planned.reason != REPAIR_PLANNED
    return MAINTENANCE_PLANNED if by_others and drain_at_s(node) == math.inf else ""


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
