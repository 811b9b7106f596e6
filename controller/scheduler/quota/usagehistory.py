"""Past usage of LocalQueues, for ClusterQueues whose LocalQueues take turns by it (KEP-4136, admission fair sharing).

    alpha(t)  = 1 - 0.5 ** (t / half life)              half life 0: nothing is remembered
    consumed' = consumed * (1 - alpha(elapsed)) + running * alpha(elapsed)       at every sample
    penalty   = requests * alpha(sampling interval)      from the reservation until it is counted as consumed
    usage     = sum over resources of weight * (consumed + pending penalties) / LocalQueue weight

Amounts are in the units in which a quantity is written (cores, bytes, devices), so memory outweighs everything unless
``resource_weights`` says otherwise. A weight of 0 or less means infinite usage.
"""

import math
from collections.abc import Mapping

import msgspec

from controller.scheduler.model.config import AdmissionFairSharing
from controller.scheduler.model.resources import CPU, Amount, LocalQueueKey, ResourceName, WorkloadKey

Consumed = dict[ResourceName, float]
"""Amounts in cores, bytes, devices."""

_MILLI = 1000.0


class UsageRecord(msgspec.Struct, frozen=True):
    """The record of a LocalQueue in ``LocalQueue.status.fairSharing.admissionFairSharingStatus``."""

    consumed: Mapping[ResourceName, float]
    at_s: float


class UsageHistory:
    """The past usage of all LocalQueues. Every method that depends on the time takes it; ``usage`` answers for the
    latest time that any of them was given.
    """

    def __init__(self, config: AdmissionFairSharing | None) -> None:
        self._config = config
        self._records: dict[LocalQueueKey, UsageRecord] = {}
        self._penalties: dict[LocalQueueKey, dict[WorkloadKey, Consumed]] = {}
        self._weights: dict[LocalQueueKey, float] = {}
        self._ahead: set[LocalQueueKey] = set()
        """LocalQueues whose record is from the future by this clock, and was sampled since."""

    @property
    def on(self) -> bool:
        return self._config is not None

    def set_weight(self, queue: LocalQueueKey, weight: float) -> None:
        """Set ``spec.fairSharing.weight`` of the LocalQueue, 1 when absent."""
        self._weights[queue] = weight

    def restore(self, queue: LocalQueueKey, consumed: Mapping[ResourceName, float], at_s: float) -> None:
        """Take over a record that was written before a restart."""
        self._records[queue] = UsageRecord(dict(consumed), at_s)

    def forget(self, queue: LocalQueueKey) -> None:
        """Forget a LocalQueue that is gone, with what it used."""
        for kept in (self._records, self._penalties, self._weights):
            kept.pop(queue, None)
        self._ahead.discard(queue)

    def record(self, queue: LocalQueueKey) -> UsageRecord | None:
        return self._records.get(queue)

    def due(self, queue: LocalQueueKey, now_s: float) -> bool:
        """Whether the next sample must be taken now."""
        due_s = self.due_s(queue, now_s)
        return due_s is not None and due_s <= now_s

    def due_s(self, queue: LocalQueueKey, now_s: float) -> float | None:
        """The time at which the next sample must be taken; None where none is taken."""
        if self._config is None:
            return None
        record = self._records.get(queue)
        if record is None or (record.at_s > now_s and queue not in self._ahead):
            return now_s
        return min(record.at_s, now_s) + self._config.sampling_interval_s

    def sample(self, queue: LocalQueueKey, running: Mapping[ResourceName, Amount], now_s: float) -> UsageRecord:
        """Let the past decay and add ``running``, what the LocalQueue's admitted workloads hold, since the last sample.
        If the clock went back no time is counted, and a record from the future is sampled once.
        """
        record = self._records.get(queue) or UsageRecord({}, now_s)
        share = self._alpha(max(now_s - record.at_s, 0.0))
        units = in_units(running)
        consumed = {
            name: record.consumed.get(name, 0.0) * (1 - share) + units.get(name, 0.0) * share
            for name in ({**record.consumed, **units} if self._remembers else ())
        }
        self._records[queue] = made = UsageRecord(consumed, max(now_s, record.at_s))
        (self._ahead.add if record.at_s > now_s else self._ahead.discard)(queue)
        return made

    def penalise(self, queue: LocalQueueKey, key: WorkloadKey, requests: Mapping[ResourceName, Amount]) -> None:
        """Add a penalty for a reservation: until it counts as consumed it counts in full for one sampling interval."""
        if self._config is None or not self._remembers:
            return
        share = self._alpha(self._config.sampling_interval_s)
        penalty = {name: amount * share for name, amount in in_units(requests).items()}
        self._penalties.setdefault(queue, {})[key] = penalty

    def settle(self, queue: LocalQueueKey, key: WorkloadKey, now_s: float) -> None:
        """Turn the penalty of a workload that was admitted into past usage."""
        penalty = self._drop(queue, key)
        if penalty:
            record = self._records.get(queue) or UsageRecord({}, now_s)
            consumed = {
                name: record.consumed.get(name, 0.0) + penalty.get(name, 0.0) for name in {**record.consumed, **penalty}
            }
            self._records[queue] = UsageRecord(consumed, record.at_s)

    def pardon(self, queue: LocalQueueKey, key: WorkloadKey) -> None:
        """Drop the penalty of a reservation that came to nothing: rolled back, deleted, or moved to another queue."""
        self._drop(queue, key)

    def penalised(self, queue: LocalQueueKey, key: WorkloadKey) -> bool:
        return key in self._penalties.get(queue, {})

    def usage(self, queue: LocalQueueKey) -> float:
        """The number by which LocalQueues are ordered, lower first."""
        weight = self._weights.get(queue, 1.0)
        if weight <= 0:
            return math.inf
        record = self._records.get(queue)
        parts = [*([record.consumed] if record else []), *self._penalties.get(queue, {}).values()]
        weights = self._config.resource_weights if self._config is not None else {}
        # fsum: the order in which penalties came must not decide between two LocalQueues.
        return math.fsum(weights.get(name, 1.0) * used for part in parts for name, used in part.items()) / weight

    def _drop(self, queue: LocalQueueKey, key: WorkloadKey) -> Consumed | None:
        penalties = self._penalties.get(queue)
        if penalties is None:
            return None
        penalty = penalties.pop(key, None)
        if not penalties:
            del self._penalties[queue]
        return penalty

    @property
    def _remembers(self) -> bool:
        return self._config is not None and self._config.half_life_s > 0

    def _alpha(self, elapsed_s: float) -> float:
        """How much of a new value counts after ``elapsed_s``."""
        half_life_s = self._config.half_life_s if self._config is not None else 0.0
        return 1.0 if half_life_s <= 0 else 1.0 - 0.5 ** (elapsed_s / half_life_s)


def in_units(amounts: Mapping[ResourceName, Amount]) -> Consumed:
    """Engine amounts as cores, bytes and devices."""
    return {name: amount / _MILLI if name == CPU else float(amount) for name, amount in amounts.items()}
