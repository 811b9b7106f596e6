"""Recent events: the last XID of each GPU, and counts over a sliding window. Pure.

A bounded number of counts is kept for each window, however many events there are: those of one second are one count.
"""

from collections import deque
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

from msgspec import Struct

from inventory.devices import GpuUuid

KindT = TypeVar("KindT", bound=Hashable)

MOST_KINDS = 64
"""The most different events of one GPU that are told apart within one window; further ones are not counted."""


class SlidingCounts(Generic[KindT]):
    """The number of events of each kind on each GPU in the last ``window_s`` seconds, to a second.

    ``Sampler`` sets ``window_s`` anew with new settings: what was counted stays as long as they say.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._seen: dict[GpuUuid, deque[tuple[int, dict[KindT, int]]]] = {}

    def add(self, gpu: GpuUuid, kind: KindT, now_s: float) -> None:
        """Count one event, at a time that never goes back."""
        seen = self._seen.setdefault(gpu, deque())
        self._expire(seen, now_s)
        second = int(now_s)
        if not seen or seen[-1][0] != second:
            seen.append((second, {}))
        counts = seen[-1][1]
        if kind in counts or len(counts) < MOST_KINDS:
            counts[kind] = counts.get(kind, 0) + 1

    def counts(self, gpu: GpuUuid, now_s: float) -> dict[KindT, int]:
        """The counts by kind, at most ``MOST_KINDS``; empty where nothing was seen."""
        seen = self._seen.get(gpu)
        if seen is None:
            return {}
        self._expire(seen, now_s)
        sums: dict[KindT, int] = {}
        for _, counts in seen:
            for kind, count in counts.items():
                if kind in sums or len(sums) < MOST_KINDS:
                    sums[kind] = sums.get(kind, 0) + count
        return sums

    def keep(self, gpus: Collection[GpuUuid]) -> None:
        """Drop the GPUs that are not in ``gpus``."""
        for gpu in self._seen.keys() - set(gpus):
            del self._seen[gpu]

    def _expire(self, seen: deque[tuple[int, dict[KindT, int]]], now_s: float) -> None:
        while seen and seen[0][0] + 1 <= now_s - self.window_s:
            seen.popleft()

    def validate(self) -> None:
        """Check that seconds ascend, that counts are positive, and that their number is bounded."""
        for gpu, seen in self._seen.items():
            seconds = [second for second, _ in seen]
            assert seconds == sorted(set(seconds)), f"{gpu}: seconds out of order"
            assert all(0 < len(counts) <= MOST_KINDS for _, counts in seen), f"{gpu}: too many kinds"
            assert all(count > 0 for _, counts in seen for count in counts.values()), f"{gpu}: an empty count"


class LastXid(Struct, frozen=True):
    xid: int
    at_s: float


class XidMemory:
    """The last XID of each GPU, forgotten ``shown_s`` seconds after it was seen. ``Sampler`` sets ``shown_s`` anew
    with new settings.
    """

    def __init__(self, shown_s: float) -> None:
        self.shown_s = shown_s
        self._last: dict[GpuUuid, LastXid] = {}

    def add(self, gpu: GpuUuid, xid: int, now_s: float) -> None:
        self._last[gpu] = LastXid(xid, now_s)

    def last(self, gpu: GpuUuid, now_s: float) -> int:
        """The last XID; 0 where none was seen within ``shown_s``."""
        seen = self._last.get(gpu)
        return seen.xid if seen is not None and now_s < seen.at_s + self.shown_s else 0

    def keep(self, gpus: Collection[GpuUuid]) -> None:
        """Drop the GPUs that are not in ``gpus``."""
        for gpu in self._last.keys() - set(gpus):
            del self._last[gpu]
