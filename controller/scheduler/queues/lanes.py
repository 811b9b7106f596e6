"""An order over pending workloads in which all workloads of one shape are parked and woken in one step.

A lane keeps a heap for each shape and one heap over the shapes that are not parked. Parking a shape takes it out of the
upper heap, waking puts it back: neither touches the workloads themselves, however many wait (KEP-10080's equivalence
hashing walks them all). Items that are out of date are left in the heaps and dropped when they come to the top.
"""

import heapq
from collections.abc import Iterator
from itertools import count

from controller.scheduler.queues.pending import PendingWorkload

_Item = tuple[int, int, float, str, str, PendingWorkload]
"""The fields of a workload's ``order()`` and the workload itself, flat: a separate key would cost 48 bytes more for
each workload that waits.
"""


class _Shape:
    """All queued workloads of one shape, the first on top.

    An item of ``items`` is valid while it is its workload's ``entry``; ``live`` is the number of valid items. Only the
    lane writes here. ``__slots__`` save 40 bytes of each: where no two workloads are alike there are as many.
    """

    __slots__ = ("items", "live", "name", "parked", "shown")

    def __init__(self, name: str) -> None:
        self.name = name
        self.items: list[_Item] = []
        self.live = 0
        self.parked = False
        self.shown: _Item | None = None
        """The shape's valid item in the lane's ``_order``; None while it has none."""

    def top(self) -> _Item | None:
        while self.items:
            item = self.items[0]
            if item is item[-1].entry:
                return item
            heapq.heappop(self.items)
        return None


def _prefixes(pending: PendingWorkload) -> set[str]:
    return {pending.untimed_shape, pending.quota_shape, pending.sum_shape}


class Lane:
    """The workloads of one ClusterQueue or, where LocalQueues take turns by usage, of one LocalQueue in it.

    Invariants: ``_shapes`` holds the shapes with a live item, and no other. ``_parked`` holds those of them whose
    ``parked`` is set. Every other shape is in ``_order`` with the item that is ``shown``, which equals its top.
    """

    def __init__(self) -> None:
        self._shapes: dict[str, _Shape] = {}
        self._parked: dict[str, _Shape] = {}
        self._by_prefix: dict[str, dict[str, _Shape]] = {}
        """The shapes by their untimed, quota and sum shape: the sets that are parked together."""
        self._order: list[tuple[_Item, int, _Shape]] = []
        """A heap. An entry is out of date if its item is not the one ``shown`` of its shape."""
        self._sequence = count()

    def __len__(self) -> int:
        return sum(shape.live for shape in self._shapes.values())

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def push(self, pending: PendingWorkload, *, parked: bool = False) -> None:
        """Put the workload into the order. ``parked`` counts for the first workload of a shape only; later ones share
        the state of the shape.
        """
        shape = self._shapes.get(pending.shape)
        if shape is None:
            shape = self._shapes[pending.shape] = _Shape(pending.shape)
            for name in _prefixes(pending):
                self._by_prefix.setdefault(name, {})[pending.shape] = shape
            if parked:
                self._park(shape)
        item: _Item = (*pending.order(), pending)
        pending.entry = item
        heapq.heappush(shape.items, item)
        shape.live += 1
        self._show(shape)

    def remove(self, pending: PendingWorkload) -> None:
        """Take the workload out of the order; it must be in it."""
        shape = self._shapes[pending.shape]
        pending.entry = None
        shape.live -= 1
        if shape.live == 0:
            del self._shapes[pending.shape]
            for name in _prefixes(pending):
                shapes = self._by_prefix[name]
                del shapes[pending.shape]
                if not shapes:
                    del self._by_prefix[name]
            self._parked.pop(pending.shape, None)
            shape.shown = None
        else:
            if len(shape.items) > 2 * shape.live + 16:
                shape.items = [item for item in shape.items if item[-1].entry is item]
                heapq.heapify(shape.items)
            self._show(shape)

    def first(self) -> PendingWorkload | None:
        """The first workload that is not parked. It stays on top of its shape, and its shape on top of the lane."""
        order = self._order
        while order:
            shown, _, shape = order[0]
            # Compared by identity: an equal item of an earlier push is out of date too.
            if shape.shown is shown and (top := shape.top()) is not None:
                return top[-1]
            heapq.heappop(order)
        return None

    def pop(self) -> PendingWorkload | None:
        """Take out the first workload that is not parked."""
        head = self.first()
        if head is None:
            return None
        shape = self._order[0][2]
        if shape.live == 1:
            self.remove(head)
            return head
        heapq.heappop(shape.items)
        head.entry = None
        shape.live -= 1
        top = shape.top()
        assert top is not None
        shape.shown = top
        heapq.heapreplace(self._order, (top, next(self._sequence), shape))
        return head

    def park(self, name: str) -> None:
        """Park every workload of this shape, which may be a whole, untimed, quota or sum shape. A prefix may be the
        name of a shape too.
        """
        alone = self._shapes.get(name)
        shapes = self._by_prefix.get(name, {} if alone is None else {name: alone})
        for shape in shapes.values():
            if not shape.parked:
                self._park(shape)

    def wake(self) -> bool:
        """Put all parked shapes back into the order. Returns whether there was one."""
        parked, self._parked = self._parked, {}
        for shape in parked.values():
            shape.parked = False
            self._show(shape)
        return bool(parked)

    @property
    def parked(self) -> int:
        """The number of workloads in parked shapes."""
        return sum(shape.live for shape in self._parked.values())

    def is_parked(self, pending: PendingWorkload) -> bool:
        return pending.shape in self._parked

    def listed(self, *, parked: bool) -> Iterator[PendingWorkload]:
        """The workloads of parked shapes, or of the others, in no particular order."""
        for shape in self._shapes.values():
            if shape.parked is parked:
                yield from (item[-1] for item in shape.items if item[-1].entry is item)

    def _park(self, shape: _Shape) -> None:
        shape.parked = True
        shape.shown = None
        self._parked[shape.name] = shape

    def _show(self, shape: _Shape) -> None:
        top = shape.top()
        if shape.parked or top is None or shape.shown == top:
            return
        shape.shown = top
        heapq.heappush(self._order, (top, next(self._sequence), shape))
        if len(self._order) > 4 * len(self._shapes) + 16:
            self._order = [
                (shown.shown, next(self._sequence), shown)
                for shown in self._shapes.values()
                if not shown.parked and shown.shown is not None
            ]
            heapq.heapify(self._order)
