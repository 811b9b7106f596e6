"""Whether one pod could ever run on some node, by what nodes have when nothing runs on them and all is in service.

A sum over nodes does not tell: quota of 64 GPUs on nodes of 8 admits a pod of 9, and no scheduler finds a node for it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from controller.objects.core import Node
from controller.scheduler.model.podrequests import amounts
from controller.scheduler.model.resources import Amount, ResourceName

_KEPT_OF: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources of which the system keeps some for itself."""


def whole(node: Node) -> dict[ResourceName, Amount]:
    """What a node has. Of devices its capacity: one that is out of service returns, and ``allocatable`` leaves it out.
    Of cpu and memory ``allocatable``: what the system keeps for itself is never given.
    """
    resources = amounts(node.status.allocatable)
    for name, amount in amounts(node.status.capacity).items():
        if name not in _KEPT_OF:
            resources[name] = max(resources.get(name, 0), amount)
    return resources


def too_large(pod: Mapping[ResourceName, Amount], nodes: Iterable[Node]) -> dict[ResourceName, Amount] | None:
    """None where one of the nodes is large enough for the pod alone, or there is none. Else by resource the most that
    one node has, of those of which no node has enough; empty where no node has enough of all at once.

    A resource that no node has is not looked at: it may be a claim's, or one that a layout has yet to make.
    """
    sizes = [whole(node) for node in nodes]
    most = {name: max((size.get(name, 0) for size in sizes), default=0) for name in pod}
    asked = {name: amount for name, amount in pod.items() if amount > 0 and most[name] > 0}
    if not asked or any(all(size.get(name, 0) >= amount for name, amount in asked.items()) for size in sizes):
        return None
    return {name: most[name] for name, amount in asked.items() if most[name] < amount}
