"""Workloads with the time at which each is due, for what is done at a time and not for a change."""

import heapq
from collections.abc import Iterator

from controller.engine.model.resources import WorkloadKey

_Entry = tuple[float, int, WorkloadKey]


class DueTimes:
    """One time for each workload at most, in seconds since 1970. Of those due at one time the lower ``rank`` comes
    first, then the lower key.

    ``_due`` says what counts. ``_heap`` has each entry of it, the same object, and entries that were replaced or
    removed since, which are dropped when they come up.
    """

    def __init__(self) -> None:
        self._due: dict[WorkloadKey, _Entry] = {}
        self._heap: list[_Entry] = []

    def set(self, key: WorkloadKey, due_s: float | None, rank: int = 0) -> None:
        """In place of an earlier time; None for never."""
        if due_s is None:
            self._due.pop(key, None)
        elif self._due.get(key) != (entry := (due_s, rank, key)):
            self._due[key] = entry
            heapq.heappush(self._heap, entry)

    def next_s(self) -> float | None:
        """When the first is due; None where there is none."""
        while self._heap:
            entry = self._heap[0]
            if self._due.get(entry[2]) is entry:
                return entry[0]
            heapq.heappop(self._heap)
        return None

    def due(self, now_s: float) -> Iterator[WorkloadKey]:
        """Those that are due by now, and due no more once they are yielded. Times may be set meanwhile."""
        while (due_s := self.next_s()) is not None and due_s <= now_s:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            yield key
