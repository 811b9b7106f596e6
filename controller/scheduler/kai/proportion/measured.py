"""Past use as measured by another system (Prometheus), and for how long it counts: it replaces the engine's own
history, and the other system may be unreachable.
"""

from collections.abc import Mapping

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts


class MeasuredUsage:
    """The last measurement. ``usage`` returns it while it is younger than ``stale_s``; otherwise the engine's history
    counts.

    Invariant: a use is a fraction of the capacity, from 0 to 1. ``away_since_s`` is set while queries fail.
    ``asked_s``: the time at which the last answer was asked for; None without one.
    """

    def __init__(self, stale_s: float) -> None:
        self._stale_s = stale_s
        self._usage: Mapping[QueueName, Amounts] = {}
        self.asked_s: float | None = None
        self.away_since_s: float | None = None

    def take(self, usage: Mapping[QueueName, Amounts], asked_s: float) -> bool:
        """Store an answer. Returns whether queries failed before it."""
        was_away, self.away_since_s = self.away_since_s is not None, None
        self._usage, self.asked_s = usage, asked_s
        return was_away

    def lost(self, now_s: float) -> bool:
        """Note a failed query. Returns whether it is the first."""
        first = self.away_since_s is None
        if first:
            self.away_since_s = now_s
        return first

    def usage(self, now_s: float) -> Mapping[QueueName, Amounts] | None:
        """The use of each queue by resource, as fractions of the capacity; None where there is no answer, or an old
        one.
        """
        until_s = self.counts_until_s
        return self._usage if until_s is not None and now_s < until_s else None

    @property
    def counts_until_s(self) -> float | None:
        """The time at which the last answer is too old; None without one."""
        return None if self.asked_s is None else self.asked_s + self._stale_s

    def validate(self) -> None:
        """AssertionError where a use is no fraction of the capacity."""
        for name, amounts in self._usage.items():
            for resource, part in amounts.items():
                assert 0.0 <= part <= 1.0, f"{name}: {part} of {resource}"
