"""One tree of queues run forward in time, with given run times: when does each workload that waits start?

The run repeats the decisions of cycles by sums: the order of the heads, what fits beside what, conservative backfill by
told run times. Nothing new arrives, nothing is evicted, and places on nodes are known by ``gates`` alone. The engine
itself, run forward, takes 3 to 145 seconds for 1,000 workloads
(``docs/decisions/070-forecasts-let-sums-run-forward.md``).
"""

import heapq
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from controller.insight.forecast.backfill import Queue, Reservations
from controller.insight.forecast.model import Charges, Choices, Gate, Held, Tree, Waiting
from controller.scheduler.model.resources import Amount, FlavorResource, WorkloadKey
from controller.scheduler.quota.cells import Cell
from controller.scheduler.quota.shares import share

STOPPING_S: Final = 30.0
"""The time for which an evicted workload is taken to hold its quota."""
HORIZON_S: Final = 60 * 86_400.0
"""The seconds after which nothing is looked for but the quotas that calendars give."""
_OVERTIME: Final = 0.1
_GRAIN_S: Final = 1.0
_LOOKS: Final = 4
"""Sweeps for which the told ends stand as they are: reservations are estimates of estimates."""


Gates = Mapping[int, tuple[Gate, ...]]
"""Gates by shape, the first to open first. A shape without a key starts as sums allow; a shape with no gates never
starts."""
_NO_GATES: Final[Gates] = {}


class _Need(NamedTuple):
    """A shape and its request of one flavor-resource: with less than that free in the tree the shape need not be
    tried.
    """

    amount: Amount
    line: int
    shape: int


class Forward:
    """One run: ``run`` is called once. It charges the cells of the model and changes quotas as calendars say, and takes
    all of that back at its end.

    ``total_s``: the seconds that each workload runs altogether, from its start; None is for ever.
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
        gates: Gates = _NO_GATES,
        charged: dict[WorkloadKey, Charges] | None = None,
    ) -> None:
        """``grain``: ends that lie closer together than this part of the time from now are handled in one sweep.
        ``charged``: takes in what each workload is charged when it starts.
        """
        self._tree = tree
        self._begin_s = now_s
        self._total_s = total_s
        self._backfill = backfill
        self._fair = fair
        self._grain = grain
        self._charged = charged
        self._queues = [Queue(line) for line in tree.lines]
        self._left = sum(len(line.waiting) for line in tree.lines)
        self._needs = _needs(tree)
        """The needs of shapes of which some workload still waits."""
        self._free_in = {fr: _cells_with_free(tree, fr) for fr in self._needs}
        self._least: dict[tuple[int, int], list[tuple[FlavorResource, Amount]]] = {}
        """The needs of ``_needs`` by line and shape."""
        for fr, needs in self._needs.items():
            for need in needs:
                self._least.setdefault((need.line, need.shape), []).append((fr, need.amount))
        self._ends: list[tuple[float, int]] = []
        self._told: list[tuple[float, int]] = []
        """Ends by told run times, sorted; backfill goes by them."""
        self._told_of: dict[int, float] = {}
        self._running: dict[int, Charges] = {}
        self._number = 0
        self._open = dict.fromkeys(gates, 0)
        """The number of workloads that may start, by shape that has gates: a gate that opens adds one, and so does the
        end of a workload of the shape."""
        self._opens: dict[WorkloadKey, list[int]] = {}
        """The shapes whose gates the end of a workload opens."""
        self._timed: list[tuple[float, int]] = []
        """Gates that open at a time, sorted: the workloads that end then are of another tree."""
        self._gated: dict[int, int] = {}
        """The shapes of workloads that gates let in, by number."""
        self._keys: dict[int, WorkloadKey] = {}
        held = {each.key for each in tree.charged}
        for shape, some in gates.items():
            for after, at_s in some:
                if after in held:
                    self._opens.setdefault(after, []).append(shape)
                else:
                    self._timed.append((at_s, shape))
        self._timed.sort()
        self.starts: dict[WorkloadKey, float] = {}
        """Seconds from now to each start, once ``run`` is over; workloads that never start within the horizon are not
        in it."""
        self._reservations = Reservations(self._queues)
        self._stale_s = -math.inf
        """The time at which reservations are renewed."""

    def run(self) -> Iterator[None]:
        """Runs to the end, with pauses."""
        now_s = begin_s = self._begin_s
        for held in self._tree.charged:
            self._hold(held)
        for charge, at_s in self._tree.absent:
            self._charge((charge,), max(at_s, begin_s), at_s)
        self._sweep(now_s)
        backoffs = {waiting.due_s for line in self._tree.lines for waiting in line.waiting}
        changes = deque(self._tree.changes)
        before = {change.cell: change.cell.quota for change in changes}
        times = (*backoffs, *(at_s for at_s, _ in self._timed), *(change.at_s for change in changes))
        due = sorted(due_s for due_s in times if begin_s < due_s < math.inf)
        while self._left and (self._ends or due):
            first_s = min(self._ends[0][0] if self._ends else math.inf, due[0] if due else math.inf)
            if first_s - begin_s > HORIZON_S and not changes:
                break
            until_s = first_s + max(_GRAIN_S, self._grain * (first_s - begin_s))
            # Each quota that calendars give has a sweep of its own: a window that is short for its distance counts too.
            change_s = next((change.at_s for change in changes if change.at_s > first_s), math.inf)
            until_s = min(until_s, math.nextafter(change_s, first_s))
            while self._ends and self._ends[0][0] <= until_s:
                end_s, number = heapq.heappop(self._ends)
                now_s = max(now_s, end_s)
                self._end(number)
            while due and due[0] <= until_s:
                now_s = max(now_s, due.pop(0))
            while self._timed and self._timed[0][0] <= now_s:
                self._open[self._timed.pop(0)[1]] += 1
            while changes and changes[0].at_s <= now_s:
                change = changes.popleft()
                change.cell.configure(change.quota)
            self._sweep(now_s)
            yield
        for cell, quota in before.items():
            cell.configure(quota)
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
        number = self._charge(held.charges, end_s, told_s)
        if held.key in self._opens:
            self._keys[number] = held.key

    def _charge(self, charges: Charges, end_s: float | None, told_s: float | None) -> int:
        number = self._number = self._number + 1
        for charge in charges:
            charge.cell.charge(charge.amount)
        self._running[number] = charges
        if end_s is not None:
            heapq.heappush(self._ends, (end_s, number))
        if told_s is not None and self._backfill:
            insort(self._told, (told_s, number))
            self._told_of[number] = told_s
        return number

    def _end(self, number: int) -> None:
        for charge in self._running.pop(number):
            charge.cell.charge(-charge.amount)
        if self._open:
            for shape in self._opens.get(self._keys.get(number, WorkloadKey("")), ()):
                self._open[shape] += 1
            if number in self._gated:
                self._open[self._gated.pop(number)] += 1
        told_s = self._told_of.pop(number, None)
        if told_s is not None:
            del self._told[bisect_left(self._told, (told_s, number))]

    # -- who starts --------------------------------------------------------------------------------------------------

    def _sweep(self, now_s: float) -> None:
        """Starts each workload that fits: a head of every line in turn, as cycles try them."""
        free = {fr: _free(*cells) for fr, cells in self._free_in.items()}
        heads = self._possible(free)
        turn = [(self._rank(0, line, some[0][1]), line) for line, some in heads.items()]
        heapq.heapify(turn)
        while turn:
            rank, line = heapq.heappop(turn)
            queue, some = self._queues[line], heads[line]
            _, shape = heapq.heappop(some)
            if queue.strict and queue.head is not None and shape != queue.head[1].shape:
                continue
            if self._may_fit(free, line, shape):
                charges = self._tried(line, shape, now_s)
                if charges is not None:
                    for charge in charges:
                        if charge.fr in free:
                            free[charge.fr] = _free(*self._free_in[charge.fr])
                    if not any(needs and needs[0].amount <= free[fr] for fr, needs in self._needs.items()):
                        return
                    if shape in queue.shapes:
                        heapq.heappush(some, (queue.shapes[shape][0][0], shape))
            while some and not self._may_fit(free, line, some[0][1]):
                heapq.heappop(some)
            if some:
                heapq.heappush(turn, (self._rank(int(rank[0]) + 1, line, some[0][1]), line))

    def _may_fit(self, free: Mapping[FlavorResource, Amount], line: int, shape: int) -> bool:
        for fr, amount in self._least[line, shape]:  # noqa: SIM110  a generator costs more than the loop
            if amount <= free[fr]:
                return True
        return False

    def _possible(self, free: Mapping[FlavorResource, Amount]) -> dict[int, list[tuple[int, int]]]:
        """The first workload of each shape by line, as order and shape, which may fit somewhere in the
        tree.
        """
        by_line: dict[int, dict[int, None]] = {}
        for fr, needs in self._needs.items():
            for need in needs:
                if need.amount > free[fr]:
                    break
                by_line.setdefault(need.line, {})[need.shape] = None
        return {
            line: sorted((self._queues[line].shapes[shape][0][0], shape) for shape in shapes)
            for line, shapes in by_line.items()
        }

    def _rank(self, number: int, line: int, shape: int) -> tuple[float, ...]:
        """The rank of a candidate, lower first: earlier heads of their queues, then by the rules of one cycle."""
        queue = self._queues[line]
        _, waiting = queue.shapes[shape][0]
        if self._fair:
            return (number, *share(queue.node).rank, -waiting.priority, waiting.queued_at_s, line)
        borrows = any(_borrow(options[0]) for options in waiting.choices if options)
        return (number, borrows, -waiting.priority, waiting.queued_at_s, line)

    def _tried(self, line: int, shape: int, now_s: float) -> Charges | None:
        """Starts the first workload of the shape, or one that may pass it, and returns its charges. None if none may
        start.
        """
        charges = self._fitting(self._queues[line].shapes[shape][0][1], now_s)
        if charges is None:
            return None
        at = self._passing(line, shape, charges, now_s) if self._backfill else 0
        if at is not None:
            self._start(line, shape, at, charges, now_s)
            return charges
        return None

    def _fitting(self, waiting: Waiting, now_s: float) -> Charges | None:
        """The charges of the workload if it starts now: of each group the first flavor that has enough free. None if it
        may not.
        """
        if waiting.due_s > now_s or self._open.get(waiting.shape, 1) <= 0:
            return None
        return first_fit(waiting.choices)

    def _passing(self, line: int, shape: int, charges: Charges, now_s: float) -> int | None:
        if now_s >= self._stale_s:
            self._stale_s = now_s + _LOOKS * max(_GRAIN_S, self._grain * (now_s - self._begin_s))
            self._reservations.renew((told_s, self._running[number]) for told_s, number in self._told)
        return self._reservations.passing(line, shape, charges, now_s, borrows=_borrow(charges))

    def _start(self, line: int, shape: int, at: int, charges: Charges, now_s: float) -> None:
        queue = self._queues[line]
        head = queue.head
        waiting = queue.take(shape, at)
        if queue.head is not head:
            self._reservations.forget(line)
        if shape not in queue.shapes:
            for fr, amount in self._least[line, shape]:
                needs = self._needs[fr]
                del needs[bisect_left(needs, _Need(amount, line, shape))]
        self._left -= 1
        self.starts[waiting.key] = now_s - self._begin_s
        total_s = self._total_s.get(waiting.key)
        end_s = None if total_s is None else now_s + total_s
        told_s = None if waiting.told_s is None else now_s + waiting.told_s
        if self._charged is not None:
            self._charged[waiting.key] = charges
        number = self._charge(charges, end_s, told_s)
        if shape in self._open:
            self._open[shape] -= 1
            self._gated[number] = shape


def first_fit(choices: Choices) -> Charges | None:
    """The charges on the first flavor of each group that has enough free; None if a group has none."""
    fitting: Charges = ()
    for options in choices:
        for charges in options:
            if _fit(charges, fitting):
                fitting = (*fitting, *charges) if fitting else charges
                break
        else:
            return None
    return fitting


def _fit(charges: Charges, before: Charges) -> bool:
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
    """The shapes that may be charged to each flavor-resource, the smallest need first. A shape without any need is not
    in it: no flavor is open to it.
    """
    by_resource: dict[FlavorResource, set[_Need]] = {}
    for number, line in enumerate(tree.lines):
        for waiting in line.waiting:
            for charges in waiting.choices[0] if waiting.choices else ():
                if charges:
                    most = max(charges, key=lambda charge: charge.amount / max(1, _top(charge.cell).subtree_quota))
                    by_resource.setdefault(most.fr, set()).add(_Need(most.amount, number, waiting.shape))
    return {fr: sorted(needs) for fr, needs in by_resource.items()}


def _top(cell: Cell) -> Cell:
    while cell.parent is not None:
        cell = cell.parent
    return cell


def _free(top: Cell, reserves: Sequence[Cell]) -> Amount:
    """An amount no less than what is free anywhere in the tree."""
    return top.subtree_quota - top.usage + sum(cell.local_available() for cell in reserves)


def _cells_with_free(tree: Tree, fr: FlavorResource) -> tuple[Cell, tuple[Cell, ...]]:
    """The root's cell, and the cells below it that keep something to themselves: free quota is in these."""
    root = tree.lines[0].node.root()
    below = [root]
    for node in below:
        below += [*node.cohorts.values(), *node.queues.values()]
    cells = [node.cells[fr] for node in below if fr in node.cells]
    return _top(cells[-1]), tuple(cell for cell in cells if cell.local_quota and cell.parent is not None)
