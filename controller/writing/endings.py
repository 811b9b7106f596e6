"""How long it takes at present until workloads that start are seen to have ended. Pure; times are handed in.

What is known of an end is when it is seen. Whoever reports it (a job's controller, a kubelet, a client with limits) may
be seconds behind, and a workload holds its quota until then. By Little's law, what runs divided by the ends a second is
the time that each of them has to wait for its own end, reports that queue up somewhere included. Only what started
within ``memory_s`` counts on either side: jobs that run for longer say nothing about those that come and go.
"""

import math
from typing import Final

from controller.engine.model.resources import WorkloadKey

_SMOOTHED_S: Final = 10.0
"""The rate of ends is that of about so many seconds: a server that stalls for a moment has not stopped."""
_FEWEST: Final = 3.0
"""Fewer ends in that time teach nothing."""


class Endings:
    """``memory_s`` 0: nothing is learned.

    ``_running`` has the workloads that were seen to start since ``now - memory_s`` and not to stop, in order of that:
    an older one is dropped when somebody asks. ``_rate`` is as of ``_at_s``, which only grows.
    """

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._running: dict[WorkloadKey, float] = {}
        self._rate = 0.0
        self._at_s = 0.0

    def started(self, key: WorkloadKey, now_s: float) -> None:
        """It runs: now or already."""
        if self._memory_s > 0:
            self._running.setdefault(key, now_s)

    def stopped(self, key: WorkloadKey) -> None:
        """It runs no more, and not because it ended."""
        self._running.pop(key, None)

    def ended(self, key: WorkloadKey, now_s: float) -> None:
        self._forget(now_s)
        if self._running.pop(key, None) is not None:
            self._rate = self._per_second(now_s) + 1.0 / _SMOOTHED_S
            self._at_s = max(now_s, self._at_s)

    def takes_s(self, now_s: float) -> float | None:
        """Seconds until all that run now are seen to have ended, as ends are seen now; None where that is longer than
        ``memory_s``, or too few ended to say.
        """
        self._forget(now_s)
        rate = self._per_second(now_s)
        if rate * _SMOOTHED_S < _FEWEST:
            return None
        takes_s = len(self._running) / rate
        return takes_s if takes_s <= self._memory_s else None

    def _per_second(self, now_s: float) -> float:
        return self._rate * math.exp(-max(0.0, now_s - self._at_s) / _SMOOTHED_S)

    def _forget(self, now_s: float) -> None:
        while self._running:
            key = next(iter(self._running))
            if self._running[key] >= now_s - self._memory_s:
                return
            del self._running[key]
