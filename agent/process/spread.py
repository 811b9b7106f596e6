"""Spreads the requests that all agents of a fleet make to the API server at the same time. Pure.

    node name, what is asked for -> phase() -> a place in the window, always the same

A server that comes back, or a driver that is upgraded everywhere, moves every agent in the same second. Each then waits
for a place of its own in a window, which follows from its node's name: no agent knows how many others there are, and a
hash spreads any number of them evenly.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from agent.config.settings import Settings
from kube.clock import Backoff
from kube.reading.watch import Pace

WATCH_S: Final = (1800.0, 3600.0)
"""The range in seconds of how long a watch lasts. A dead one is noticed within minutes anyhow: its bookmarks do not
come.
"""
SOON: Final = 0.3
"""The share of the window for the node's pods: a request of the kubelet waits for news of its pod, no longer than 2 s
with the usual window."""


def phase(*names: str) -> float:
    """A number from 0 up to 1 for these names: the same in each process, evenly distributed over many names."""
    digest = hashlib.blake2b("\0".join(names).encode(errors="replace"), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56


def fleet_backoff(random: Callable[[], float]) -> Backoff:
    """A back-off with pauses from nothing to twice their base: agents that failed together do not come back together.

    The longest pauses are short: a late agent lengthens the time in which the server is not back for everybody.
    """
    return Backoff(random=random, initial_s=1.0, maximum_s=30.0, jitter=1.0)


class Spread(Struct, frozen=True):
    """One agent's places in the window. ``window_s`` is how long a fleet takes to ask once, 0 for all at once.
    ``restarted``: another agent has published this node since it booted, so nothing waits for the first report of this
    one.
    """

    node: str = ""
    window_s: float = 0.0
    restarted: bool = False

    def pause_s(self, what: str, share: float = 1.0) -> float:
        """The seconds that this agent waits before it asks for ``what`` in a share of the window."""
        return phase(self.node, what) * self.window_s * share

    def start_s(self, what: str, share: float = 1.0) -> float:
        """The seconds that this agent waits after a start of the process."""
        return self.pause_s(what, share) if self.restarted else 0.0

    def every_s(self, what: str, shortest_s: float, longest_s: float) -> float:
        """The agent's period for ``what`` in seconds: agents that have done it together once drift apart."""
        return shortest_s + phase(self.node, what, "period") * (longest_s - shortest_s)

    def pace(self, what: str, share: float = 1.0) -> Pace:
        """The pace at which this agent watches ``what``."""
        return Pace(
            lasts_s=int(self.every_s(what, *WATCH_S)),
            after_cut_s=self.pause_s(what, share),
            begin_s=self.start_s(what, share),
        )


def spread_of(settings: Settings, *, restarted: bool = False) -> Spread:
    """The places in the window of the agent with these settings."""
    return Spread(settings.node_name, settings.api_spread_s, restarted)
