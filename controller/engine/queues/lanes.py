"""An order over pending workloads in which all of one shape are parked and woken by one step.

A lane keeps a heap for each shape and one heap over the shapes that are awake. Parking a shape takes it out of the
upper heap, waking puts it back: neither touches the workloads themselves, however many wait (KEP-10080's equivalence
hashing walks them all). Entries that are out of date are left in the heaps and dropped when they come to the top.
"""

import heapq
from collections.abc import Iterator
from itertools import count

from controller.engine.queues.pending import OrderKey, PendingWorkload

_Entry = tuple[OrderKey, int, PendingWorkload]


class _Shape:
    """All queued workloads of one shape, the first on top."""

    __slots__ = ("awake", "entries", "live", "name", "shown")

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: list[_Entry] = []
        self.live = 0
        self.awake = True
        self.shown: OrderKey | None = None
        """The key under which the lane's heap knows this shape; None while it does not."""

    def top(self) -> _Entry | None:
        while self.entries:
            entry = self.entries[0]
            if entry is entry[2].entry:
                return entry
            heapq.heappop(self.entries)
        return None


def _groups(pending: PendingWorkload) -> set[str]:
    return {pending.family, pending.kin}


class Lane:
    """The workloads of one ClusterQueue, or, where LocalQueues take turns by usage, of one LocalQueue in it."""

    __slots__ = ("_asleep", "_families", "_order", "_sequence", "_shapes")

    def __init__(self) -> None:
        self._shapes: dict[str, _Shape] = {}
        self._asleep: dict[str, _Shape] = {}
        self._families: dict[str, dict[str, _Shape]] = {}
        """The shapes of each family and of each kin; with no run times in them there is one in each family."""
        self._order: list[tuple[OrderKey, int, _Shape]] = []
        self._sequence = count()

    def __len__(self) -> int:
        return sum(shape.live for shape in self._shapes.values())

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def push(self, pending: PendingWorkload, *, asleep: bool = False) -> None:
        """Into the order; ``asleep`` says how the first of its shape comes, the others follow it."""
        shape = self._shapes.get(pending.shape)
        if shape is None:
            shape = self._shapes[pending.shape] = _Shape(pending.shape)
            for name in _groups(pending):
                self._families.setdefault(name, {})[pending.shape] = shape
            if asleep:
                self._put_to_sleep(shape)
        entry: _Entry = (pending.order(), next(self._sequence), pending)
        pending.entry = entry
        heapq.heappush(shape.entries, entry)
        shape.live += 1
        self._show(shape)

    def remove(self, pending: PendingWorkload) -> None:
        """Out of the order. It must be in."""
        shape = self._shapes[pending.shape]
        pending.entry = None
        shape.live -= 1
        if shape.live == 0:
            del self._shapes[pending.shape]
            for name in _groups(pending):
                group = self._families[name]
                del group[pending.shape]
                if not group:
                    del self._families[name]
            self._asleep.pop(pending.shape, None)
            shape.awake = False
            shape.shown = None
        else:
            if len(shape.entries) > 2 * shape.live + 16:
                shape.entries = [entry for entry in shape.entries if entry[2].entry is entry]
                heapq.heapify(shape.entries)
            self._show(shape)

    def first(self) -> PendingWorkload | None:
        """The first that is awake: it is left on top of its shape, and its shape on top of the lane."""
        order = self._order
        while order:
            key, _, shape = order[0]
            # Keys are told apart as objects: what a shape is shown under is what was pushed last, and none in sleep.
            if shape.shown is key and (top := shape.top()) is not None:
                return top[2]
            heapq.heappop(order)
        return None

    def pop(self) -> PendingWorkload | None:
        """Take out the first that is awake."""
        head = self.first()
        if head is None:
            return None
        shape = self._order[0][2]
        if shape.live == 1:
            self.remove(head)
            return head
        heapq.heappop(shape.entries)
        head.entry = None
        shape.live -= 1
        top = shape.top()
        assert top is not None
        shape.shown = top[0]
        heapq.heapreplace(self._order, (top[0], next(self._sequence), shape))
        return head

    def park(self, name: str) -> None:
        """Put everything of this shape, family or kin to sleep. A family may go by the name of one of its shapes."""
        one = self._shapes.get(name)
        alone = () if one is None else (one,)
        for found in self._families[name].values() if name in self._families else alone:
            if found.awake:
                self._put_to_sleep(found)

    def wake(self) -> bool:
        """Wake all shapes; whether there was one asleep."""
        asleep, self._asleep = self._asleep, {}
        for shape in asleep.values():
            shape.awake = True
            self._show(shape)
        return bool(asleep)

    @property
    def sleeping(self) -> int:
        return sum(shape.live for shape in self._asleep.values())

    def asleep(self, pending: PendingWorkload) -> bool:
        return pending.shape in self._asleep

    def listed(self, *, awake: bool) -> Iterator[PendingWorkload]:
        """In no particular order: those awake, or those asleep."""
        for shape in self._shapes.values():
            if shape.awake is awake:
                yield from (entry[2] for entry in shape.entries if entry[2].entry is entry)

    def _put_to_sleep(self, shape: _Shape) -> None:
        shape.awake = False
        shape.shown = None
        self._asleep[shape.name] = shape

    def _show(self, shape: _Shape) -> None:
        top = shape.top()
        if not shape.awake or top is None or shape.shown == top[0]:
            return
        shape.shown = top[0]
        heapq.heappush(self._order, (top[0], next(self._sequence), shape))
        if len(self._order) > 4 * len(self._shapes) + 16:
            self._order = [
                (one.shown, next(self._sequence), one)
                for one in self._shapes.values()
                if one.awake and one.shown is not None
            ]
            heapq.heapify(self._order)
