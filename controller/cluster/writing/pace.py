"""How fast decisions are written, how long the API server takes, and what that leaves for other writes.

Every write costs the API server as much as an admission does (about 10 ms of its CPU). While decisions are written
quickly, or the API server answers slowly, conditions of waiting workloads, queue statuses and Events get a small
allowance: a waiting workload gains by the next admission, not by another report that it waits. Conditions and statuses
are not lost: their newest state is written as soon as there is room. Pure; times are arguments.
"""

import math
from typing import Final

_MEMORY_S: Final = 3.0
_QUICK_PER_S: Final = 10.0
_PROMPT_S: Final = 0.025
"""The longest time that an API server that is not busy takes for a write."""
_SLOW_S: Final = 4 * _PROMPT_S
"""The latency from which the server sets the pace of decisions."""
_SMOOTHED: Final = 16
"""The number of answers over which the latency is averaged, if they come in quick succession."""
_LONGEST_BATCH_S: Final = 0.1


class Pace:
    """Decisions written a second, and seconds until the API server's answer: both averages that decay in ``_MEMORY_S``.

    One Pace for a term. The observers of the core and of the writer feed it, in the event loop's one thread; allowances
    and the core read it. ``_rate`` is as of ``_at_s``, ``_latency_s`` as of ``_answered_s``. Neither time is ever in
    the future: after a clock was put back both move back with it, since otherwise the averages would not decay until
    the clock had caught up.
    """

    def __init__(self) -> None:
        self._rate = 0.0
        self._at_s = 0.0
        self._latency_s = 0.0
        self._answered_s = 0.0

    def carried_out(self, now_s: float) -> None:
        """Notes that one decision has been written."""
        self._rate = self.per_second(now_s) + 1.0 / _MEMORY_S
        self._at_s = now_s

    def per_second(self, now_s: float) -> float:
        """Decisions written a second; it decays to 0.37 in ``_MEMORY_S``."""
        self._at_s = min(now_s, self._at_s)
        return self._rate * math.exp((self._at_s - now_s) / _MEMORY_S)

    def quick(self, now_s: float) -> bool:
        """Whether so many decisions are written that other writes have to stand back."""
        return self.per_second(now_s) >= _QUICK_PER_S

    def answered(self, latency_s: float, now_s: float) -> None:
        """Notes that a write was answered, or given up, after ``latency_s``. The rarer writes are, the more each
        counts.
        """
        aged = -math.expm1(-max(0.0, now_s - self._answered_s) / _MEMORY_S)
        self._latency_s += (max(0.0, latency_s) - self._latency_s) * max(1 / _SMOOTHED, aged)
        self._answered_s = now_s

    def latency_s(self, now_s: float) -> float:
        """The latency; it decays while nothing is written: a server of which nothing is known counts as prompt."""
        self._answered_s = min(now_s, self._answered_s)
        return self._latency_s * math.exp((self._answered_s - now_s) / _MEMORY_S)

    def promptness(self, now_s: float) -> float:
        """1 for an API server that is not busy, 0.1 for one that takes ten times as long: above 0, at most 1."""
        return _PROMPT_S / max(_PROMPT_S, self.latency_s(now_s))

    def batch_s(self, least_s: float, now_s: float) -> float:
        """Seconds to wait for more changes before deciding.

        A busy server is slow to show changes and to take writes: a quarter of its latency more delays no workload by
        much, and the changes that come meanwhile are decided on together.
        """
        return min(max(least_s, self.latency_s(now_s) / 4), max(least_s, _LONGEST_BATCH_S)) if least_s else 0.0

    def busy(self, now_s: float) -> bool:
        """Whether much is decided, or a slow API server allows no more."""
        return self.quick(now_s) or self.latency_s(now_s) >= _SLOW_S


class Allowance:
    """A rate of writes: ``rate`` a second on average, less as the API server gets slower, ``quick_rate`` at least and
    while decisions are written quickly; ``burst`` at once.
    """

    def __init__(self, pace: Pace, *, rate: float, quick_rate: float, burst: float) -> None:
        self._pace = pace
        self._rate = rate
        self._quick_rate = quick_rate
        self._burst = burst
        self._tokens = burst
        self._filled_s = -math.inf

    def left(self, now_s: float, at_least: float = 0.0) -> float:
        """Writes that may be made now. ``at_least``: a rate that holds however quick decisions are."""
        rate = max(self.rate(now_s), at_least)
        grown = 0.0 if math.isinf(self._filled_s) else max(0.0, now_s - self._filled_s) * rate
        self._tokens = min(max(self._burst, at_least), self._tokens + grown)
        self._filled_s = now_s
        return self._tokens

    def take(self) -> None:
        self._tokens -= 1.0

    def rate(self, now_s: float) -> float:
        if self._pace.quick(now_s):
            return self._quick_rate
        return max(self._quick_rate, self._rate * self._pace.promptness(now_s))
