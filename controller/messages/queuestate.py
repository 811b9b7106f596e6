"""The state of a queue in one word, whether it lets workloads start: the same in lists, in ``tessera top`` and on the
page.
"""

from collections.abc import Collection, Iterable
from typing import Final

OPEN: Final = "open"
INACTIVE: Final = "inactive"
NO_NODES: Final = "no nodes"
_STOPPED: Final = {"Hold": "stopped", "HoldAndDrain": "draining"}


def queue_state(stop_policy: str, *, active: bool, nodeless: bool) -> str:
    """The state of a ClusterQueue. ``stop_policy``: its spec.stopPolicy, None if it has none. ``nodeless``: none of its
    flavors selects a node.
    """
    if (stopped := _STOPPED.get(stop_policy)) is not None:
        return stopped
    if not active:
        return INACTIVE
    return NO_NODES if nodeless else OPEN


def is_nodeless(flavors: Iterable[str], lacking: Collection[str]) -> bool:
    """Whether a queue has flavors, and none of them has a node. ``lacking``: flavors that select none."""
    found = tuple(flavors)
    return bool(found) and all(flavor in lacking for flavor in found)


def local_queue_state(stop_policy: str, cluster_queue: str | None) -> str:
    """The state of a LocalQueue. ``cluster_queue``: the state of its ClusterQueue, None if that does not exist."""
    return _STOPPED.get(stop_policy) or cluster_queue or INACTIVE
