"""Workloads with the time at which each is due, for steps that follow from a time and not from a change."""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from controller.scheduler.model.resources import WorkloadKey

_When = tuple[float, int]


class _Slot(NamedTuple):
    """The workloads of one time and rank: ``keys`` is a heap, with keys that have another time by now."""

    when: _When
    keys: list[WorkloadKey]


class DueTimes:
    """One time for each workload at most, in seconds since 1970. Of several due at one time the lower ``rank`` comes
    first, then the lower key.

    ``_due`` is authoritative: the slot of each key, which has it among its keys. ``_slots`` has each slot by its time,
    ``_heap`` these times, each once. Outdated entries are dropped when they come up. Of a hundred thousand workloads
    many are due at one time: an entry of its own for each took twice the memory.
    """

    def __init__(self) -> None:
        self._due: dict[WorkloadKey, _Slot] = {}
        self._slots: dict[_When, _Slot] = {}
        self._heap: list[_When] = []

    def set(self, key: WorkloadKey, due_s: float | None, rank: int = 0) -> None:
        """Sets the time of a workload in place of an earlier one; None for never."""
        if due_s is None:
            self._due.pop(key, None)
            return
        when = (due_s, rank)
        slot = self._slots.get(when)
        if slot is None:
            slot = self._slots[when] = _Slot(when, [])
            heapq.heappush(self._heap, when)
        if self._due.get(key) is not slot:
            self._due[key] = slot
            heapq.heappush(slot.keys, key)

    def next_s(self) -> float | None:
        """The time of the first workload; None if there is none."""
        slot = self._first()
        return None if slot is None else slot.when[0]

    def due(self, now_s: float) -> Iterator[WorkloadKey]:
        """Yields the workloads that are due by now, each of which is then removed. Times may be set meanwhile."""
        while (slot := self._first()) is not None and slot.when[0] <= now_s:
            key = heapq.heappop(slot.keys)
            del self._due[key]
            yield key

    def _first(self) -> _Slot | None:
        """The first slot with a valid key; that key is the first of its heap."""
        while self._heap:
            slot = self._slots[self._heap[0]]
            while slot.keys:
                if self._due.get(slot.keys[0]) is slot:
                    return slot
                heapq.heappop(slot.keys)
            del self._slots[heapq.heappop(self._heap)]
        return None
