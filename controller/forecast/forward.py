"""One tree of queues let forward in time, with given run times: when does each workload that waits start?

It repeats what cycles decide by sums: the order of the heads, what fits beside what, conservative backfill by the times
that were told. Nothing new arrives, nothing is evicted, and places on nodes are not looked at. The engine itself, run
forward, takes 3 to 145 seconds for 1,000 workloads (``docs/decisions/070-forecasts-let-sums-run-forward.md``).
"""

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from controller.engine.model.resources import Amount, FlavorResource, WorkloadKey
from controller.engine.quota.cells import Cell
from controller.engine.quota.shares import share
from controller.forecast.model import Charge, Charges, Held, Line, Tree, Waiting

STOPPING_S: Final = 30.0
"""So long an evicted workload is taken to hold what it has."""
HORIZON_S: Final = 60 * 86_400.0
_OVERTIME: Final = 0.1
_GRAIN_S: Final = 1.0
_ALIKE: Final = 16
"""So many workloads that ask for the same are looked at for one that may pass a reserved head."""
_LOOKS: Final = 4
"""So many looks the ends that were told stand as they are: reservations are estimates of estimates."""


class _Block(NamedTuple):
    """A head that does not fit, and what may pass it: what ends by ``start_s``, or takes no more than ``spare``."""

    order: int
    start_s: float
    spare: dict[FlavorResource, Amount]

    def leaves(self, charges: Charges) -> bool:
        """Whether these may run beyond its start."""
        spare = self.spare
        for fr, _, amount in charges:  # noqa: SIM110  a generator costs more than the loop
            if amount > spare.get(fr, amount):
                return False
        return True

    def narrow(self, charges: Charges) -> None:
        for charge in charges:
            if charge.fr in self.spare:
                self.spare[charge.fr] -= charge.amount


_ToldSums = dict[FlavorResource, tuple[list[float], list[Amount]]]
"""When those that run end by what was told, the soonest first, and what they hold together up to there."""


class _Queue:
    """The workloads of one line that still wait: by shape, each in order."""

    __slots__ = ("first", "line", "shapes")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.shapes: dict[int, deque[tuple[int, Waiting]]] = {}
        for order, waiting in enumerate(line.waiting):
            self.shapes.setdefault(waiting.shape, deque()).append((order, waiting))
        self.first = self._first()
        """The shape of the one that is tried first; None for an empty queue."""

    def _first(self) -> int | None:
        return min(self.shapes, key=lambda shape: self.shapes[shape][0][0]) if self.shapes else None

    def take(self, shape: int, at: int) -> None:
        """The workload at this place of its shape starts."""
        some = self.shapes[shape]
        del some[at]
        if not some:
            del self.shapes[shape]
        self.first = self._first()


class _Need(NamedTuple):
    """A shape and what it asks of one flavor-resource: with less than that free in the tree it need not be tried."""

    amount: Amount
    line: int
    shape: int


class Forward:
    """``run`` once. It charges the cells of the model, and gives everything back at its end.

    ``total_s``: how long each workload runs altogether, from its start; None is for ever.
    """

    def __init__(
        self,
        tree: Tree,
        now_s: float,
        total_s: Mapping[WorkloadKey, float | None],
        *,
        backfill: bool,
        fair: bool,
        grain: float = 0.01,
    ) -> None:
        """``grain``: ends that lie closer together than this part of the time from now are looked at together."""
        self._tree = tree
        self._begin_s = now_s
        self._total_s = total_s
        self._backfill = backfill
        self._fair = fair
        self._grain = grain
        self._queues = [_Queue(line) for line in tree.lines]
        self._left = sum(len(line.waiting) for line in tree.lines)
        self._needs = _needs(tree)
        self._rooms = {fr: _room_of(tree, fr) for fr in self._needs}
        self._least: dict[tuple[int, int], list[tuple[FlavorResource, Amount]]] = {}
        """The same by line and shape."""
        for fr, needs in self._needs.items():
            for need in needs:
                self._least.setdefault((need.line, need.shape), []).append((fr, need.amount))
        self._ends: list[tuple[float, int]] = []
        self._told: list[tuple[float, int]] = []
        """Ends by what was told, sorted; backfill goes by them."""
        self._told_of: dict[int, float] = {}
        self._running: dict[int, Charges] = {}
        self._number = 0
        self._freed: dict[FlavorResource, Amount] = {}
        """What has ended since now: those that lack places wait for as much as they ask for."""
        self.starts: dict[WorkloadKey, float] = {}
        """Seconds from now to each start, once ``run`` is over; those that never start within the horizon are not in
        it.
        """
        self._times: _ToldSums = {}
        self._blocks: dict[int, tuple[int, _Block | None]] = {}
        """By line the order of its head and its reservation, until ``_stale_s``."""
        self._stale_s = -math.inf

    def run(self) -> Iterator[None]:
        """To the end, in parts: to pause between."""
        now_s = begin_s = self._begin_s
        for held in self._tree.held:
            self._hold(held)
        self._sweep(now_s)
        backoffs = {waiting.due_s for line in self._tree.lines for waiting in line.waiting}
        due = sorted(due_s for due_s in backoffs if begin_s < due_s < math.inf)
        while self._left and (self._ends or due):
            first_s = min(self._ends[0][0] if self._ends else math.inf, due[0] if due else math.inf)
            if first_s - begin_s > HORIZON_S:
                break
            until_s = first_s + max(_GRAIN_S, self._grain * (first_s - begin_s))
            while self._ends and self._ends[0][0] <= until_s:
                end_s, number = heapq.heappop(self._ends)
                now_s = max(now_s, end_s)
                self._end(number)
            while due and due[0] <= until_s:
                now_s = max(now_s, due.pop(0))
            self._sweep(now_s)
            yield
        for charges in self._running.values():
            for charge in charges:
                charge.cell.charge(-charge.amount)

    # -- who runs ----------------------------------------------------------------------------------------------------

    def _hold(self, held: Held) -> None:
        now_s = self._begin_s
        total_s = self._total_s.get(held.key)
        end_s = None if total_s is None else max(held.since_s + total_s, now_s)
        told_s = None
        if held.told_s is not None:
            told_s = held.since_s + held.told_s
            told_s = told_s if told_s > now_s else now_s + max(_GRAIN_S, _OVERTIME * (now_s - held.since_s))
        if held.leaving:
            end_s = told_s = now_s + STOPPING_S
        self._charge(held.charges, end_s, told_s)

    def _charge(self, charges: Charges, end_s: float | None, told_s: float | None) -> None:
        number = self._number = self._number + 1
        for charge in charges:
            charge.cell.charge(charge.amount)
        self._running[number] = charges
        if end_s is not None:
            heapq.heappush(self._ends, (end_s, number))
        if told_s is not None and self._backfill:
            insort(self._told, (told_s, number))
            self._told_of[number] = told_s

    def _end(self, number: int) -> None:
        for charge in self._running.pop(number):
            charge.cell.charge(-charge.amount)
            self._freed[charge.fr] = self._freed.get(charge.fr, 0) + charge.amount
        told_s = self._told_of.pop(number, None)
        if told_s is not None:
            del self._told[bisect_left(self._told, (told_s, number))]

    # -- who starts --------------------------------------------------------------------------------------------------

    def _sweep(self, now_s: float) -> None:
        """Each workload that fits starts: a head of every line in turn, as cycles try them."""
        rooms = {fr: _free(*cells) for fr, cells in self._rooms.items()}
        heads = self._possible(rooms)
        turn = [(self._rank(0, line, some[0][1]), line) for line, some in heads.items()]
        heapq.heapify(turn)
        while turn:
            rank, line = heapq.heappop(turn)
            queue, some = self._queues[line], heads[line]
            _, shape = heapq.heappop(some)
            if queue.line.strict and shape != queue.first:
                continue
            charges = self._fitting(queue.shapes[shape][0][1], now_s)
            at = self._passing(line, shape, charges, now_s) if charges is not None else None
            if charges is not None and at is not None:
                self._start(queue, shape, at, charges, now_s)
                for charge in charges:
                    if charge.fr in rooms:
                        rooms[charge.fr] = _free(*self._rooms[charge.fr])
                if shape in queue.shapes:
                    heapq.heappush(some, (queue.shapes[shape][0][0], shape))
            while some and not any(amount <= rooms[fr] for fr, amount in self._least[line, some[0][1]]):
                heapq.heappop(some)
            if some:
                heapq.heappush(turn, (self._rank(int(rank[0]) + 1, line, some[0][1]), line))

    def _possible(self, rooms: Mapping[FlavorResource, Amount]) -> dict[int, list[tuple[int, int]]]:
        """By line the first of each shape, as order and shape, for which there may be room anywhere in the tree."""
        found: dict[int, dict[int, None]] = {}
        for fr, needs in self._needs.items():
            for need in needs:
                if need.amount > rooms[fr]:
                    break
                if need.shape in self._queues[need.line].shapes:
                    found.setdefault(need.line, {})[need.shape] = None
        return {
            line: sorted((self._queues[line].shapes[shape][0][0], shape) for shape in shapes)
            for line, shapes in found.items()
        }

    def _rank(self, number: int, line: int, shape: int) -> tuple[float, ...]:
        """Lower first: earlier heads of their queues, then by the rules of one cycle."""
        queue = self._queues[line]
        waiting = queue.shapes[shape][0][1]
        if self._fair:
            return (number, *share(queue.line.node).rank, -waiting.priority, waiting.queued_at_s, line)
        borrows = any(_borrow(options[0]) for options in waiting.choices if options)
        return (number, borrows, -waiting.priority, waiting.queued_at_s, line)

    def _fitting(self, waiting: Waiting, now_s: float) -> Charges | None:
        """What it is charged if it starts now: of each group the first flavor with room."""
        if waiting.due_s > now_s:
            return None
        found: list[Charge] = []
        for options in waiting.choices:
            fits = next((charges for charges in options if _fit(charges, found)), None)
            if fits is None:
                return None
            found += fits
        if waiting.lacks_places and any(self._freed.get(charge.fr, 0) < charge.amount for charge in found):
            return None
        return tuple(found)

    def _start(self, queue: _Queue, shape: int, at: int, charges: Charges, now_s: float) -> None:
        waiting = queue.shapes[shape][at][1]
        queue.take(shape, at)
        self._left -= 1
        self.starts[waiting.key] = now_s - self._begin_s
        total_s = self._total_s.get(waiting.key)
        end_s = None if total_s is None else now_s + total_s
        told_s = None if waiting.told_s is None else now_s + waiting.told_s
        self._charge(charges, end_s, told_s)

    # -- backfill ----------------------------------------------------------------------------------------------------

    def _passing(self, line: int, shape: int, charges: Charges, now_s: float) -> int | None:
        """The place in its shape of the first that may start: of those that ask alike a shorter one may pass.

        One that takes of what reservations leave narrows them: the next cannot take it.
        """
        if not self._backfill:
            return 0
        own, others = self._block(line, now_s), []
        if _borrow(charges):
            found = (self._block(other, now_s) for other in range(len(self._queues)) if other != line)
            others = [block for block in found if block is not None]
        # A workload that ends later than this takes what another queue's head needs.
        latest_s = min((block.start_s for block in others if not block.leaves(charges)), default=math.inf)
        own_leaves = own is None or own.leaves(charges)
        for at, (order, waiting) in enumerate(islice(self._queues[line].shapes[shape], _ALIKE)):
            end_s = math.inf if waiting.told_s is None else now_s + waiting.told_s
            behind = own is not None and order > own.order and end_s > own.start_s
            if end_s > latest_s or (behind and not own_leaves):
                continue
            narrowed = [block for block in others if end_s > block.start_s]
            for block in [*narrowed, own] if own is not None and behind else narrowed:
                block.narrow(charges)
            return at
        return None

    def _block(self, line: int, now_s: float) -> _Block | None:
        """The reservation of the line's head, by the ends that were told; kept for some looks while it is the head."""
        if now_s >= self._stale_s:
            self._stale_s = now_s + _LOOKS * max(_GRAIN_S, self._grain * (now_s - self._begin_s))
            self._times, self._blocks = self._told_sums(), {}
        queue = self._queues[line]
        if queue.first is None:
            return None
        order, waiting = queue.shapes[queue.first][0]
        known = self._blocks.get(line)
        if known is None or known[0] != order:
            known = self._blocks[line] = (order, _blocked(waiting, order, self._times, now_s))
        return known[1]

    def _told_sums(self) -> _ToldSums:
        found: _ToldSums = {}
        for told_s, number in self._told:
            for charge in self._running[number]:
                ends, sums = found.setdefault(charge.fr, ([], []))
                ends.append(told_s)
                sums.append(charge.amount + (sums[-1] if sums else 0))
        return found


def _blocked(waiting: Waiting, order: int, times: _ToldSums, now_s: float) -> _Block | None:
    """None for a head that fits, and where what was told does not say when it will."""
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
    return _Block(order, start_s, spare)


def _fit(charges: Charges, before: Sequence[Charge]) -> bool:
    for charge in charges:
        taken = sum(other.amount for other in before if other.fr == charge.fr) if before else 0
        if charge.amount + taken > charge.cell.available():
            return False
    return True


def _borrow(charges: Charges) -> bool:
    for _, cell, amount in charges:  # noqa: SIM110  a generator costs more than the loop
        if cell.usage + amount > cell.subtree_quota:
            return True
    return False


def _needs(tree: Tree) -> dict[FlavorResource, list[_Need]]:
    """By flavor-resource the shapes that may be charged there, the smallest first. A shape without any need is not in
    it: no flavor is open to it.
    """
    found: dict[FlavorResource, set[_Need]] = {}
    for number, line in enumerate(tree.lines):
        for waiting in line.waiting:
            for charges in waiting.choices[0] if waiting.choices else ():
                if charges:
                    most = max(charges, key=lambda charge: charge.amount / max(1, _top(charge.cell).subtree_quota))
                    found.setdefault(most.fr, set()).add(_Need(most.amount, number, waiting.shape))
    return {fr: sorted(needs) for fr, needs in found.items()}


def _top(cell: Cell) -> Cell:
    while cell.parent is not None:
        cell = cell.parent
    return cell


def _free(top: Cell, reserves: Sequence[Cell]) -> Amount:
    """No less than what is free anywhere in the tree."""
    return top.subtree_quota - top.usage + sum(cell.local_available() for cell in reserves)


def _room_of(tree: Tree, fr: FlavorResource) -> tuple[Cell, tuple[Cell, ...]]:
    """The root's cell, and those below it that keep something to themselves: what is free is in these."""
    root = tree.lines[0].node.root()
    below = [root]
    for node in below:
        below += [*node.cohorts.values(), *node.queues.values()]
    cells = [node.cells[fr] for node in below if fr in node.cells]
    return _top(cells[-1]), tuple(cell for cell in cells if cell.local_quota and cell.parent is not None)
