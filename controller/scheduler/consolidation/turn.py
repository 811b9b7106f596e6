"""When ClusterQueues' workloads are moved: once cycles find nothing more, and only for workloads that lack places.

The rule is our own (``tessera.consolidation``): at most so many moves an hour, none of a workload that has not run for
its minimum, that the eviction history bars, or that was moved for the same one before. A turn decides on one workload
at most, and on nothing while any cycle has something to try. It tries 8 shapes, and none for a second after a turn
without a plan.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from controller.scheduler.cluster.cluster import Cluster
from controller.scheduler.consolidation.emptying import Emptied
from controller.scheduler.consolidation.freeing import FreeTurn
from controller.scheduler.consolidation.line import Alike, Line, Order
from controller.scheduler.consolidation.planner import MayMove, Planner, lacks_places
from controller.scheduler.decisions.records import Rule
from controller.scheduler.flavors.assigner import FlavorAssigner
from controller.scheduler.model.config import Consolidation
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey
from controller.scheduler.preemption.history import EvictionHistory
from controller.scheduler.preemption.index import started_at_s
from controller.scheduler.preemption.moves import Moves
from controller.scheduler.queues.entry import Entry
from controller.scheduler.quota.queuestate import Holder
from controller.scheduler.reservations.reservations import Reservations

INTERVAL_S: Final = 1.0
"""Minimum seconds between searches for plans while none is found: a busy cluster changes all the time."""
MOST_TRIED: Final = 8
"""Shapes of workloads that one turn looks at."""

TryWorkload = Callable[[WorkloadKey], Entry | None]
"""Tries a pending workload now, only to answer a question; None for a workload that is not pending."""
Waits = Callable[[WorkloadKey], bool]
"""Returns whether a workload is pending."""
IsOpen = Callable[[ClusterQueueName], bool]


class PackTurn:
    """The turns of moves. ``_line`` has the workloads that lacked places when they were tried last. A round of turns
    tries each shape once; it begins anew with each change of the engine's state, and at ``_due_s``, when more workloads
    may move only because time has passed.
    """

    def __init__(
        self,
        cluster: Cluster,
        assigner: FlavorAssigner,
        reservations: Reservations,
        moves: Moves,
        history: EvictionHistory,
        limits: Consolidation,
    ) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._reservations = reservations
        self._moves = moves
        self._history = history
        self._limits = limits
        self._line = Line()
        self._freeing = FreeTurn(cluster, assigner, reservations, moves, limits) if limits.frees_nodes else None
        self._seen = -1
        self._spent = False
        """Whether no workload might move at the last turn."""
        self._not_before_s = 0.0
        self._due_s: float | None = None

    def note(self, entries: Iterable[Entry], now_s: float) -> None:
        """Take in the decisions of a cycle."""
        for entry in entries:
            if entry.pending is not None and lacks_places(entry):
                self._line.join(entry.key, _alike(entry), _order(entry))
                self.tell(entry, now_s)
            else:
                self._line.leave(entry.key)

    def tell(self, entry: Entry, now_s: float) -> None:
        """Set the detail of an entry that lacks places: whether it waits because the hour's moves are spent."""
        if lacks_places(entry):
            entry.detail = self._moves.spent(now_s)

    def due(self, changes: int, now_s: float) -> bool:
        """Whether moves are looked for now; not while promised nodes come, onto which a workload could be moved."""
        return self._line_due(changes, now_s) or (self._freeing is not None and self._freeing.due(changes, now_s))

    def _line_due(self, changes: int, now_s: float) -> bool:
        if not self._line or self._cluster.awaits_nodes or now_s < self._not_before_s:
            return False
        return self._goes_on(changes) or (self._due_s is not None and self._due_s <= now_s)

    def next_due_s(self, changes: int) -> float | None:
        freeing_s = self._freeing.next_due_s(changes) if self._freeing is not None else None
        times = [due_s for due_s in (self._next_line_s(changes), freeing_s) if due_s is not None]
        return min(times, default=None)

    def freed(self, changes: int, now_s: float, is_open: IsOpen, waits: Callable[[], bool]) -> Emptied | None:
        """The node that is freed now, where that is due. ``waits``: returns whether any workload waits."""
        if self._freeing is None or not self._freeing.due(changes, now_s):
            return None
        return self._freeing.take(changes, now_s, is_open, waits=waits())

    def _next_line_s(self, changes: int) -> float | None:
        if not self._line or self._cluster.awaits_nodes:
            return None
        return self._not_before_s if self._goes_on(changes) else self._due_s

    def _goes_on(self, changes: int) -> bool:
        return self._seen != changes or (self._line.left and not self._spent)

    def take(self, changes: int, now_s: float, ask: TryWorkload, waits: Waits, is_open: IsOpen) -> Entry | None:
        """Decide on the first workload for which others move, and return its entry; None where there is none."""
        if not self._line_due(changes, now_s):
            return None
        if self._seen != changes or (self._due_s is not None and self._due_s <= now_s):
            self._line.begin_round()
            self._seen, self._due_s = changes, None
        left = self._moves.left(now_s)
        self._spent = left == 0
        if not self._spent:
            planner = Planner(self._cluster, self._assigner, now_s, left)
            found = self._first(planner, now_s, self._entries(ask, waits), is_open)
            if found is not None:
                return found
        self._not_before_s = now_s + INTERVAL_S
        next_s = self._moves.next_s(now_s)
        if next_s is not None:
            self._due_at(next_s)
        return None

    def validate(self) -> None:
        """DriftError where a waiting shape was passed over."""
        self._line.validate()

    def _first(self, planner: Planner, now_s: float, entries: Mapping[Alike, Entry], is_open: IsOpen) -> Entry | None:
        tried: list[Alike] = []
        first: Entry | None = None
        with self._cluster.trial():
            self._reservations.charge()
            for alike, entry in entries.items():
                tried.append(alike)
                plan = planner.plan(entry, self._may_move_for(entry, now_s, is_open))
                if plan is not None:
                    entry.assignment, entry.targets = plan
                    entry.decide(Rule.PREEMPTS)
                    first = entry
                    break
        self._line.turn(tried)
        if first is not None:
            self._line.leave(first.key)
        return first

    def _entries(self, ask: TryWorkload, waits: Waits) -> dict[Alike, Entry]:
        """The next shapes in the line, each with its first workload that still lacks places."""
        self._line.keep(waits)
        entries: dict[Alike, Entry] = {}
        for alike in self._line.shapes():
            entry = self._entry_of(alike, ask)
            if entry is not None:
                entries[alike] = entry
            if len(entries) == MOST_TRIED:
                break
        return entries

    def _entry_of(self, alike: Alike, ask: TryWorkload) -> Entry | None:
        for key in self._line.of(alike):
            entry = ask(key)
            if entry is not None and lacks_places(entry):
                return entry
            self._line.leave(key)
        return None

    def _may_move_for(self, entry: Entry, now_s: float, is_open: IsOpen) -> MayMove:
        barred = self._history.barred(entry.incoming)

        def may_move(holder: Holder) -> bool:
            started_s = started_at_s(holder)
            if started_s is None or holder.key in barred or not is_open(holder.cluster_queue):
                return False
            if self._moves.moved_for(holder.key, entry.key):
                return False
            if started_s + self._limits.minimum_runtime_s > now_s:
                self._due_at(started_s + self._limits.minimum_runtime_s)
                return False
            return True

        return may_move

    def _due_at(self, at_s: float) -> None:
        self._due_s = at_s if self._due_s is None else min(self._due_s, at_s)


def _alike(entry: Entry) -> Alike:
    return entry.incoming.queue.name, entry.incoming.shape or entry.key


def _order(entry: Entry) -> Order:
    return -entry.incoming.priority, entry.incoming.queued_at_s, entry.key
