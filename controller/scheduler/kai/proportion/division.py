"""Division of one resource among sibling queues: quota first, then what is left over by priority and weight.

Source: the resource division of KAI Scheduler's proportion plugin. Amounts are floats in the resource's own unit
(devices, milli-CPU, bytes), ``math.inf`` is unlimited. A fair share is no limit: it decides only order and reclaim.

    asked     = min(limit, request), request being what runs and what waits
    quota     = every queue first gets min(quota, asked), even where the quotas together exceed the total
    portion   = max(0, w + k * (w - u)) for each queue of a priority that still asks, w being its weight as a fraction
                of theirs and u its past use as a fraction of the capacity
    a round   = each of them gets its portion of the rest, rounded down to whole units, but not more than it asks for;
                rounds follow as long as one of them asked for less than its part
    remainder = what rounding left is given out in whole units, by priority, the largest rounded off part first

What whole units give beyond an ask is less than one unit for each queue.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NewType

QueueName = NewType("QueueName", str)
"""metadata.name of a queue that shares in proportion."""


@dataclass(frozen=True)
class KaiQueueRequest:
    """What one queue may have of the resource, and what it requests. ``usage`` is its past use as a fraction of the
    capacity, between 0 and 1. ``created`` is in seconds; together with ``uid`` it orders queues where nothing else
    does.
    """

    queue: QueueName
    quota: float
    limit: float = math.inf
    weight: float = 1.0
    request: float = 0.0
    usage: float = 0.0
    priority: int = 0
    created: float = 0.0
    uid: str = ""

    @property
    def asked(self) -> float:
        return min(self.limit, self.request)


@dataclass
class Division:
    """A division in progress. ``shares`` has every queue; ``rest`` is what no queue got, never below 0."""

    shares: dict[QueueName, float]
    rest: float
    _rounded_off: dict[QueueName, float] = field(default_factory=dict)
    """What the last round took off a queue's part; a queue that got its whole request is not in it."""

    def round(self, asking: Sequence[KaiQueueRequest], usage_weight: float) -> bool:
        """One round among queues of one priority. Returns whether another round may give more."""
        portions = _portions(asking, usage_weight)
        total = sum(portions)
        if total == 0.0:
            return False
        start, again = self.rest, False
        for demand, portion in zip(asking, portions, strict=True):
            part = start * portion / total
            missing = demand.asked - self.shares[demand.queue]
            if missing <= part:
                amount = missing
                self._rounded_off.pop(demand.queue, None)
                again = again or missing < part
            else:
                amount = math.floor(part)
                self._rounded_off[demand.queue] = part - amount
            self.shares[demand.queue] += amount
            self.rest -= amount
        return again

    def give_remainder(self, band: Iterable[KaiQueueRequest]) -> None:
        rounded = [demand for demand in band if self._rounded_off.get(demand.queue)]
        for demand in sorted(rounded, key=lambda c: (-self._rounded_off[c.queue], c.created, c.uid)):
            if self.rest <= 0.0:
                return
            given = min(1.0, self.rest)
            self.shares[demand.queue] += given
            self.rest -= given


def divide(total: float, demands: Sequence[KaiQueueRequest], usage_weight: float = 0.0) -> Division:
    """The fair share of each queue. ``usage_weight`` (KAI's k value) is how strongly past use counts; 0:
    not at all.
    """
    return divide_over_quota(divide_quota(total, demands), demands, usage_weight)


def divide_quota(total: float, demands: Iterable[KaiQueueRequest]) -> Division:
    """The division by quotas alone."""
    shares = {c.queue: min(total if math.isinf(c.quota) else c.quota, c.asked) for c in demands}
    return Division(shares, max(0.0, total - sum(shares.values())))


def divide_over_quota(division: Division, demands: Sequence[KaiQueueRequest], usage_weight: float = 0.0) -> Division:
    """Add what is left over to the shares of ``division``, and return it."""
    ordered = sorted(demands, key=lambda demand: -demand.priority)
    bands = [list(band) for _, band in groupby(ordered, key=lambda demand: demand.priority)]
    for band in bands:
        while division.rest > 0.0:
            asking = [c for c in band if c.weight > 0.0 and c.asked > division.shares[c.queue]]
            if not asking or not division.round(asking, usage_weight):
                break
    for band in bands:
        division.give_remainder(band)
    return division


def _portions(asking: Sequence[KaiQueueRequest], usage_weight: float) -> list[float]:
    weights = sum(demand.weight for demand in asking)
    parts = ((demand.weight / weights, demand.usage) for demand in asking)
    return [max(0.0, part + usage_weight * (part - usage)) for part, usage in parts]
