"""Virtual time: what is due when. Times are seconds since 1970, like the engine's."""

import heapq
import math
from collections.abc import Iterator

from controller.engine.resources import WorkloadKey

_SAMPLE_S = 30.0
_SAMPLES = 32


class Alarms:
    """One time for each workload at most; setting it anew replaces the old one."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, WorkloadKey]] = []
        self._due_s: dict[WorkloadKey, tuple[float, int]] = {}
        self._count = 0

    def set(self, key: WorkloadKey, due_s: float | None) -> None:
        if due_s is None:
            self._due_s.pop(key, None)
            return
        self._count += 1
        self._due_s[key] = (due_s, self._count)
        heapq.heappush(self._heap, (due_s, self._count, key))

    def next_s(self) -> float | None:
        while self._heap:
            due_s, count, key = self._heap[0]
            if self._due_s.get(key) == (due_s, count):
                return due_s
            heapq.heappop(self._heap)
        return None

    def due(self, now_s: float) -> Iterator[WorkloadKey]:
        """Those whose time has come, in the order in which they were set for it; each is told once."""
        while (next_s := self.next_s()) is not None and next_s <= now_s:
            _, _, key = heapq.heappop(self._heap)
            del self._due_s[key]
            yield key


def sample_times(before_s: float, now_s: float, interval_s: float) -> Iterator[float]:
    """When past usage is looked at on the way from one time to the next, ``now_s`` included.

    As often as the controller looks, and no more than so many times: while nothing changes, one sample over a long time
    is what many over its parts come to.
    """
    step_s = max(min(interval_s, _SAMPLE_S), (now_s - before_s) / _SAMPLES)
    if step_s <= 0:
        yield now_s
        return
    for number in range(1, math.ceil((now_s - before_s) / step_s)):
        yield before_s + number * step_s
    yield now_s
