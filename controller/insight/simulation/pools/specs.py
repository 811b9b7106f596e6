"""Node pools and interruptions as a fleet file describes them. Times are seconds; those of events count from the start
of the simulation.
"""

from typing import Final

import msgspec


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool. ``nodes``: the names of all that it may have at once; at least ``min_nodes`` of them are kept.

    ``delay_s``: from the order of a node until the node is there. ``remove_after_s``: from the last pod of a node until
    the node goes. ``cooldown_s``: from the end of an interruption until the pool gives nodes again.
    """

    name: str
    nodes: tuple[str, ...]
    min_nodes: int = 0
    delay_s: float = 0.0
    remove_after_s: float = 600.0
    cooldown_s: float = 3600.0
    price_per_hour: float = 0.0
    spot: bool = False


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of a pool, or one node, are gone ``notice_s`` after ``at_s``. One of ``pool`` and ``node`` is empty."""

    at_s: float
    notice_s: float
    pool: str = ""
    node: str = ""


class PoolFleet(msgspec.Struct, frozen=True, kw_only=True):
    """What of a fleet comes and goes."""

    pools: tuple[Pool, ...] = ()
    interruptions: tuple[Interruption, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pools or self.interruptions)


FIXED: Final = PoolFleet()
"""A fleet in which no node comes or goes."""
