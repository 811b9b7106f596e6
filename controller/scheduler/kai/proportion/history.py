"""What queues had of the cluster over time: the past use that the division subtracts from their portion.

Source: time-based fair share of KAI Scheduler (``usageDBConfig``). Use is allocation, as a fraction of the capacity:

    use = sum of fractions * seconds / sum of observed seconds, each second weighted by 0.5 ** (age / half life)

over the window: the last hours, or the time since it began anew; without a half-life all of it counts alike. Seconds in
which no sample was taken are not observed, and count for no queue. Sums are kept in buckets of time, within which a
queue's use counts as even.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.kai.proportion.queues import Amounts
from controller.scheduler.model.config import QueueUsage
from controller.scheduler.model.resources import ResourceName

BUCKETS: Final = 40
"""The number of buckets in a window, without the current one."""
_LONGEST: Final = 64 * 1024
"""Characters of a record at most: one of forty buckets has some two thousand."""
_BUCKET_BOUND: Final = 2**53
"""Limit of bucket numbers: ages are floats, exact below it."""


class QueueRecord(msgspec.Struct, rename="camel"):
    """The stored form of a queue's history. ``observed``: the observed seconds by bucket; ``used``: by resource and
    bucket the fraction of the capacity times seconds.
    """

    bucket_seconds: float
    observed: dict[int, float]
    used: dict[str, dict[int, float]]


class QueueHistory:
    """The history of all queues. ``_observed`` is one for all; no queue has more of a bucket than it. The usage is
    computed as of the last sample, or of the last record that was restored.
    """

    def __init__(self, rules: QueueUsage) -> None:
        self._rules = rules
        self._bucket_s = rules.span_s / BUCKETS
        self._half_life_s = rules.half_life_s
        self._observed: dict[int, float] = {}
        self._used: dict[QueueName, dict[ResourceName, dict[int, float]]] = {}
        self._at_s: float | None = None
        self._usage: dict[QueueName, dict[ResourceName, float]] | None = None

    @property
    def bucket_s(self) -> float:
        """Seconds of a bucket."""
        return self._bucket_s

    @property
    def at_s(self) -> float | None:
        """The time of the last sample; None without one."""
        return self._at_s

    def sample(self, allocated: Mapping[QueueName, Amounts], capacity: Amounts, now_s: float) -> None:
        """Count that each queue had ``allocated`` since the last sample. The first sample counts nothing, nor does
        one after the clock went back.
        """
        before_s, self._at_s = self._at_s, now_s
        since_s = now_s if before_s is None else max(before_s, self._rules.begin_s(now_s))
        if before_s is not None and since_s > before_s:
            self._observed.clear()
            self._used.clear()
        self._usage = None
        for bucket, seconds in self._split(since_s, now_s):
            self._observed[bucket] = self._observed.get(bucket, 0.0) + seconds
            for name, amounts in allocated.items():
                for resource, amount in amounts.items():
                    whole = capacity.get(resource, 0.0)
                    if amount > 0.0 and whole > 0.0:
                        sums = self._used.setdefault(name, {}).setdefault(resource, {})
                        sums[bucket] = sums.get(bucket, 0.0) + min(1.0, amount / whole) * seconds
        self._prune(now_s)

    def usage(self) -> Mapping[QueueName, Amounts]:
        """The use of each queue by resource, as fractions of the capacity."""
        if self._usage is None:
            weights = {bucket: self._weight(bucket) for bucket in self._observed}
            whole = sum(seconds * weights[bucket] for bucket, seconds in self._observed.items())
            self._usage = {
                name: {
                    resource: sum(part * weights.get(bucket, 0.0) for bucket, part in sums.items()) / whole
                    for resource, sums in by_resource.items()
                }
                for name, by_resource in (self._used.items() if whole > 0.0 else ())
            }
        return self._usage

    def names(self) -> Iterable[QueueName]:
        """The queues that have a history."""
        return self._used.keys()

    def record(self, name: QueueName) -> str:
        """The record of the queue to be stored: JSON."""
        used = {
            str(resource): {bucket: round(part, 3) for bucket, part in sums.items()}
            for resource, sums in self._used.get(name, {}).items()
        }
        observed = {bucket: round(seconds, 3) for bucket, seconds in self._observed.items()}
        return msgspec.json.encode(QueueRecord(self._bucket_s, observed, used)).decode()

    def restore(self, name: QueueName, text: str) -> bool:
        """Take over a record that an earlier process stored, once for each queue. Returns False for text that is no
        record, or one of other rules: the queue's history then begins anew.
        """
        if name in self._used:
            return True
        try:
            record = msgspec.json.decode(text[:_LONGEST], type=QueueRecord)
        except (msgspec.DecodeError, RecursionError):
            return False
        if record.bucket_seconds != self._bucket_s or not _is_sound(record):
            return False
        for bucket, seconds in record.observed.items():
            self._observed[bucket] = max(self._observed.get(bucket, 0.0), seconds)
        self._used[name] = {ResourceName(resource): dict(sums) for resource, sums in record.used.items()}
        self._usage = None
        if self._at_s is not None:
            self._prune(self._at_s)
        return True

    def forget(self, name: QueueName) -> None:
        """Forget the history of a queue that is gone."""
        self._used.pop(name, None)
        self._usage = None

    def validate(self) -> None:
        """AssertionError where a queue had more of a bucket than was observed of it."""
        for name, by_resource in self._used.items():
            for resource, sums in by_resource.items():
                for bucket, part in sums.items():
                    observed = self._observed.get(bucket, 0.0)
                    assert 0.0 <= part <= observed + 1e-2, f"{name}: {part} of {resource} in {observed} seconds"

    def _bucket(self, at_s: float) -> int:
        return math.floor(at_s / self._bucket_s)

    def _split(self, since_s: float, until_s: float) -> Iterable[tuple[int, float]]:
        """The seconds in each bucket that still counts at the end."""
        last = self._bucket(until_s)
        for bucket in range(max(self._bucket(since_s), last - BUCKETS), last + 1):
            begin_s, end_s = max(since_s, bucket * self._bucket_s), min(until_s, (bucket + 1) * self._bucket_s)
            if end_s > begin_s:
                yield bucket, end_s - begin_s

    def _weight(self, bucket: int) -> float:
        """The weight of each second of the bucket, as of the end of the current one."""
        if not self._half_life_s:
            return 1.0
        now = max(self._observed) if self._at_s is None else self._bucket(self._at_s)
        return float(0.5 ** ((now - bucket) * self._bucket_s / self._half_life_s))

    def _prune(self, now_s: float) -> None:
        """Drop what is older than the window, and what a clock that was ahead observed."""
        now, begin_s = self._bucket(now_s), self._rules.begin_s(now_s)
        first = max(now - BUCKETS, self._bucket(begin_s))
        for sums in (self._observed, *(sums for by_resource in self._used.values() for sums in by_resource.values())):
            for bucket in [bucket for bucket in sums if not first <= bucket <= now]:
                del sums[bucket]


def _is_sound(record: QueueRecord) -> bool:
    """Whether the record is plausible: anybody who may write the Queue may have written it. It may have more buckets
    than a window: those of a clock that was ahead are pruned, and the others are not lost with them.
    """
    if len(record.used) > BUCKETS or not all(0 <= bucket < _BUCKET_BOUND for bucket in record.observed):
        return False
    if not all(0.0 <= seconds <= record.bucket_seconds + 1.0 for seconds in record.observed.values()):
        return False
    return all(
        bucket in record.observed and 0.0 <= part <= record.observed[bucket] + 1e-2
        for sums in record.used.values()
        for bucket, part in sums.items()
    )
