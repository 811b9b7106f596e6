"""The workloads that wait in each line, and those that may pass a head that does not fit: conservative backfill by the
told run times, as sums.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from controller.insight.forecast.model import Charges, Line, Waiting
from controller.scheduler.model.resources import Amount, FlavorResource

_ALIKE: Final = 16
"""Workloads of one shape that are tried when a reserved head may be passed."""

SumsByEnd = dict[FlavorResource, tuple[list[float], list[Amount]]]
"""The ends of running workloads by their told run times, the soonest first, and the amount that they hold together up
to each."""


class Queue:
    """The workloads of one line that still wait: by shape, each in order. ``head``: its order and the workload that is
    tried first; None for an empty queue.
    """

    def __init__(self, line: Line) -> None:
        self.node, self.strict = line.node, line.strict
        self.shapes: dict[int, deque[tuple[int, Waiting]]] = {}
        for order, waiting in enumerate(line.waiting):
            self.shapes.setdefault(waiting.shape, deque()).append((order, waiting))
        self.head = self._first()

    def _first(self) -> tuple[int, Waiting] | None:
        # No two have the same order, so workloads are never compared.
        return min(some[0] for some in self.shapes.values()) if self.shapes else None

    def take(self, shape: int, at: int) -> Waiting:
        """Removes the workload at this place of its shape, which starts, and returns it."""
        some = self.shapes[shape]
        taken = some[at]
        del some[at]
        if not some:
            del self.shapes[shape]
        if taken is self.head:
            self.head = self._first()
        return taken[1]


class Reservation(NamedTuple):
    """A head that does not fit, and what may pass it: workloads that end by ``start_s``, or take no more than
    ``spare``.
    """

    order: int
    start_s: float
    spare: dict[FlavorResource, Amount]

    def leaves(self, charges: Charges) -> bool:
        """Whether a workload with these charges may run beyond the head's start."""
        spare = self.spare
        for fr, _, amount in charges:  # noqa: SIM110  a generator costs more than the loop
            if amount > spare.get(fr, amount):
                return False
        return True

    def narrow(self, charges: Charges) -> None:
        for charge in charges:
            if charge.fr in self.spare:
                self.spare[charge.fr] -= charge.amount


class Reservations:
    """The reservations of the heads of all lines, each made on demand. A reservation stands until its head starts or
    ``renew``.
    """

    def __init__(self, queues: Sequence[Queue]) -> None:
        self._queues = queues
        self._times: SumsByEnd = {}
        self._made: list[Reservation | None] = [None] * len(queues)
        self._by_start: list[tuple[float, int]] = []
        """Start and line of each reservation in ``_made``, the soonest first."""
        self._unknown = set(range(len(queues)))
        """Lines whose head has not been tried; ``_made`` has None for them."""

    def renew(self, running: Iterable[tuple[float, Charges]]) -> None:
        """Forgets all reservations. ``running``: the charges that are held and until when by told run times, the
        soonest first.
        """
        times: SumsByEnd = {}
        for told_s, charges in running:
            for fr, _, amount in charges:
                ends, sums = times.setdefault(fr, ([], []))
                ends.append(told_s)
                sums.append(amount + (sums[-1] if sums else 0))
        self._times = times
        self._made = [None] * len(self._queues)
        self._by_start = []
        self._unknown = set(range(len(self._queues)))

    def forget(self, line: int) -> None:
        """Drops the reservation of a line that has another head."""
        known, self._made[line] = self._made[line], None
        if known is not None:
            del self._by_start[bisect_left(self._by_start, (known.start_s, line))]
        self._unknown.add(line)

    def passing(self, line: int, shape: int, charges: Charges, now_s: float, *, borrows: bool) -> int | None:
        """The place in its shape of the first workload that may start: of several with equal requests a shorter one may
        pass.

        A workload that takes of what reservations leave narrows them: the next cannot take it. Only a workload that
        borrows takes what heads of other lines wait for.
        """
        self._look(line, now_s)
        own = self._made[line]
        if borrows:
            for other in sorted(self._unknown):
                self._look(other, now_s)
        # A workload that ends later than this takes what another queue's head needs.
        latest_s = self._latest_s(line, charges) if borrows else math.inf
        own_leaves = own is None or own.leaves(charges)
        for at, (order, waiting) in enumerate(islice(self._queues[line].shapes[shape], _ALIKE)):
            end_s = math.inf if waiting.told_s is None else now_s + waiting.told_s
            behind = own is not None and order > own.order and end_s > own.start_s
            if end_s > latest_s or (behind and not own_leaves):
                continue
            if borrows:
                for reservation in self._before(end_s, line):
                    reservation.narrow(charges)
            if own is not None and behind:
                own.narrow(charges)
            return at
        return None

    def _latest_s(self, line: int, charges: Charges) -> float:
        """The start of the first head of another line that needs one of these resources."""
        for start_s, other in self._by_start:
            reservation = self._made[other]
            if other != line and reservation is not None and not reservation.leaves(charges):
                return start_s
        return math.inf

    def _before(self, end_s: float, line: int) -> Iterator[Reservation]:
        """Reservations of other lines whose heads start before ``end_s``."""
        for start_s, other in self._by_start:
            if start_s >= end_s:
                return
            reservation = self._made[other]
            if other != line and reservation is not None:
                yield reservation

    def _look(self, line: int, now_s: float) -> None:
        if line not in self._unknown:
            return
        self._unknown.remove(line)
        head = self._queues[line].head
        made = self._made[line] = _reserved(*head, self._times, now_s) if head is not None else None
        if made is not None:
            insort(self._by_start, (made.start_s, line))


def _reserved(order: int, waiting: Waiting, times: SumsByEnd, now_s: float) -> Reservation | None:
    """The reservation of a head; None if the head fits, or if told run times do not say when it will."""
    if not all(waiting.choices):
        return None
    lacking: dict[FlavorResource, Amount] = {}
    for options in waiting.choices:
        for charge in options[0]:
            lacking[charge.fr] = lacking.get(charge.fr, -charge.cell.available()) + charge.amount
    start_s = now_s
    for fr, amount in lacking.items():
        if amount > 0:
            ends, sums = times.get(fr, ([], []))
            at = bisect_left(sums, amount)
            if at == len(sums):
                return None
            start_s = max(start_s, ends[at])
    if all(amount <= 0 for amount in lacking.values()):
        return None
    spare = {}
    for fr, amount in lacking.items():
        ends, sums = times.get(fr, ([], []))
        gone = bisect_right(ends, start_s)
        spare[fr] = (sums[gone - 1] if gone else 0) - amount
    return Reservation(order, start_s, spare)
