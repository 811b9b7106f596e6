"""When ClusterQueues are asked for moves: once cycles find nothing more, for workloads that lack places alone."""

from collections.abc import Callable, Iterable
from typing import Final

from controller.engine.claims.claims import Claims
from controller.engine.cluster.cluster import Cluster
from controller.engine.conditions.records import Rule
from controller.engine.flavors.assigner import FlavorAssigner
from controller.engine.model.config import Consolidation
from controller.engine.model.resources import ClusterQueueName, WorkloadKey
from controller.engine.packing.planner import MayMove, Planner, lacks_places
from controller.engine.preemption.history import EvictionHistory
from controller.engine.preemption.index import started_at_s
from controller.engine.preemption.moves import Moves
from controller.engine.queues.entry import Entry
from controller.engine.quota.queuestate import Holder

INTERVAL_S: Final = 1.0
"""Plans are looked for that often at most while none is found: a busy cluster changes all the time."""
_MOST_TRIED: Final = 8
"""Shapes of workloads that one turn looks at."""

Ask = Callable[[WorkloadKey], Entry | None]
"""A pending workload tried now, for the question alone; None for one that is not pending."""
IsOpen = Callable[[ClusterQueueName], bool]


class PackTurn:
    """``_waiting``: those that lacked places when they were tried last, in no particular order."""

    def __init__(
        self,
        cluster: Cluster,
        assigner: FlavorAssigner,
        claims: Claims,
        moves: Moves,
        history: EvictionHistory,
        limits: Consolidation,
    ) -> None:
        self._cluster = cluster
        self._assigner = assigner
        self._claims = claims
        self._moves = moves
        self._history = history
        self._limits = limits
        self._waiting: dict[WorkloadKey, None] = {}
        self._seen = -1
        self._not_before_s = 0.0
        self._due_s: float | None = None

    def note(self, entries: Iterable[Entry]) -> None:
        """What a cycle has decided."""
        for entry in entries:
            if entry.pending is not None and lacks_places(entry):
                self._waiting[entry.key] = None
            else:
                self._waiting.pop(entry.key, None)

    def due(self, changes: int, now_s: float) -> bool:
        if not self._waiting or now_s < self._not_before_s:
            return False
        return self._seen != changes or (self._due_s is not None and self._due_s <= now_s)

    def next_due_s(self, changes: int) -> float | None:
        if not self._waiting:
            return None
        return self._not_before_s if self._seen != changes else self._due_s

    def take(self, changes: int, now_s: float, ask: Ask, is_open: IsOpen) -> Entry | None:
        """The first workload for which others move, decided on; None where there is none."""
        self._seen, self._due_s = changes, None
        planner = Planner(self._cluster, self._assigner, now_s, self._moves.left(now_s))
        entries = self._entries(ask)
        with self._cluster.trial():
            self._claims.charge()
            for entry in entries:
                plan = planner.plan(entry, self._may_move_for(entry, now_s, is_open))
                if plan is not None:
                    entry.assignment, entry.targets = plan
                    entry.decide(Rule.PREEMPTS)
                    del self._waiting[entry.key]
                    return entry
        self._not_before_s = now_s + INTERVAL_S
        next_s = self._moves.next_s(now_s)
        if next_s is not None:
            self._due_at(next_s)
        return None

    def _entries(self, ask: Ask) -> list[Entry]:
        """Those that still lack places, one of each shape, in their order."""
        found: dict[tuple[str, str], Entry] = {}
        for key in list(self._waiting):
            entry = ask(key)
            if entry is None or not lacks_places(entry):
                del self._waiting[key]
                continue
            alike = (entry.incoming.queue.name, entry.incoming.shape or key)
            known = found.get(alike)
            if known is None or _order(entry) < _order(known):
                found[alike] = entry
        return sorted(found.values(), key=_order)[:_MOST_TRIED]

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


def _order(entry: Entry) -> tuple[int, float, str]:
    return -entry.incoming.priority, entry.incoming.queued_at_s, entry.key
