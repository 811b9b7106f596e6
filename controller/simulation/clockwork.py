"""Virtual time: what is due when. Times are seconds since 1970, like the engine's."""

import heapq
from collections.abc import Iterator

from controller.engine.model.resources import WorkloadKey


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
