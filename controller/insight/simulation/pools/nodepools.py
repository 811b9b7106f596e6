"""Which nodes of a fleet are there, which are coming and which are leaving. Pure: times are passed in, as seconds since
1970.

A node is ordered when a workload is placed on it, comes after the pool's delay, and goes when nothing has run on it for
the pool's ``remove_after_s``, down to the pool's minimum. A workload keeps its nodes from its placement until it ends
or is evicted, whether they are there or not: so no node is promised to more pods than it holds, because the engine
places pods on nodes that are coming as on those that are there.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from math import inf

import msgspec

from controller.insight.simulation.pools.specs import Interruption, Pool, PoolFleet
from controller.scheduler.model.resources import WorkloadKey


class NodePhase(StrEnum):
    """The phase of a node. A CLOSED one does not come, whoever needs it: its pool was interrupted."""

    ABSENT = "absent"
    CLOSED = "closed"
    COMING = "coming"
    PRESENT = "present"
    LEAVING = "leaving"


_THERE = (NodePhase.PRESENT, NodePhase.LEAVING)


class NodeEvent(StrEnum):
    """What happens to a node of a pool."""

    ORDERED = "Ordered"
    READY = "Ready"
    CANCELLED = "Cancelled"
    """The node was ordered, and its pool was interrupted before it came."""
    INTERRUPTED = "Interrupted"
    """The notice: the node is there until it is removed."""
    REMOVED = "Removed"


class NodeChange(msgspec.Struct, frozen=True):
    """One event of a node. ``pool`` is empty for a node of no pool."""

    at_s: float
    node: str
    pool: str
    event: NodeEvent


class Hit(msgspec.Struct, frozen=True):
    """A workload that an interruption takes nodes from, and these nodes. ``waits``: not all of its nodes are there."""

    key: WorkloadKey
    interruption: Interruption
    nodes: tuple[str, ...]
    waits: bool


class _Slot:
    """One node by its name. ``due_s``: when its phase ends: when a coming node is there, a leaving one gone, a closed
    one may come again; infinite in other phases. ``users``: the workloads that have pods on it. ``idle_s``: since when
    a node that is there has had none; infinite while it has. ``since_s``: since when it is there. ``closed_s``: until
    when a leaving node will be closed at least, by an interruption during the notice of another.
    """

    def __init__(self, name: str, pool: Pool | None) -> None:
        self.name = name
        self.pool = pool
        self.phase = NodePhase.ABSENT
        self.due_s = inf
        self.idle_s = inf
        self.since_s = inf
        self.closed_s = -inf
        self.users: set[WorkloadKey] = set()

    @property
    def pool_name(self) -> str:
        return "" if self.pool is None else self.pool.name

    @property
    def removable_s(self) -> float:
        """When the node goes if nothing needs it until then."""
        return inf if self.pool is None else self.idle_s + self.pool.remove_after_s


class NodePools:
    """The nodes of a fleet."""

    def __init__(self, fleet: PoolFleet, fixed: Iterable[str], base_s: float) -> None:
        """``fixed``: nodes of no pool, which are there from the start, at ``base_s``."""
        self._pools = {pool.name: pool for pool in fleet.pools}
        self._interruptions = sorted(fleet.interruptions, key=lambda each: each.at_s)
        self._next = 0
        """Index of the interruption that comes next."""
        self._base_s = base_s
        self._slots = {name: _Slot(name, None) for name in fixed}
        self._slots |= {name: _Slot(name, pool) for pool in fleet.pools for name in pool.nodes}
        self._of: dict[str, list[_Slot]] = {
            pool.name: [self._slots[name] for name in pool.nodes] for pool in fleet.pools
        }
        self._held: dict[WorkloadKey, tuple[_Slot, ...]] = {}
        self._spent: dict[str, float] = dict.fromkeys(self._pools, 0.0)
        """Seconds of nodes that have gone, by pool."""
        self.log: list[NodeChange] = []
        self._changed = set(self._slots)
        first = {name for pool in fleet.pools for name in pool.nodes[: pool.min_nodes]}
        for slot in self._slots.values():
            if slot.pool is None or slot.name in first:
                self._arrive(slot, base_s)

    # -- questions ---------------------------------------------------------------------------------------------------

    def phase(self, node: str) -> NodePhase:
        return self._slots[node].phase

    def missing(self, key: WorkloadKey) -> tuple[str, ...]:
        """The nodes of the workload that are not there yet."""
        return tuple(slot.name for slot in self._held.get(key, ()) if slot.phase is NodePhase.COMING)

    def holds(self, key: WorkloadKey) -> bool:
        """Whether the workload has places, on nodes that are there or coming."""
        return key in self._held

    def ready_s(self, coming: Iterable[str]) -> float:
        """When the last of these nodes, which are all coming, is there."""
        return max(self._slots[name].due_s for name in coming)

    def resting(self) -> Iterator[tuple[str, float]]:
        """The pools that give no node now because of an interruption, each with the time at which it gives some again;
        infinite where that is not known yet.
        """
        for name, slots in self._of.items():
            shut = [slot for slot in slots if slot.phase in (NodePhase.CLOSED, NodePhase.LEAVING)]
            if shut and not any(slot.phase is NodePhase.ABSENT for slot in slots):
                yield name, min((slot.due_s for slot in shut if slot.phase is NodePhase.CLOSED), default=inf)

    def pools_of(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """The names of the pools of these nodes, each once."""
        return tuple(dict.fromkeys(self._slots[name].pool_name for name in nodes))

    def due_s(self, *, jobs_left: bool) -> float | None:
        """When the next node comes or goes, or the next interruption begins. ``jobs_left``: whether any job has not
        ended; if none, only what happens until the last node on its way has come or gone is of interest.
        """
        phases = (NodePhase.COMING, NodePhase.LEAVING, *((NodePhase.CLOSED,) if jobs_left else ()))
        times = [slot.due_s for slot in self._slots.values() if slot.phase in phases]
        times += [slot.removable_s for slots in self._of.values() for slot in self._removable(slots)]
        next_s = min((time for time in times if time < inf), default=None)
        if self._next == len(self._interruptions) or not (jobs_left or next_s is not None):
            return next_s
        interrupted_s = self._base_s + self._interruptions[self._next].at_s
        return interrupted_s if next_s is None else min(next_s, interrupted_s)

    def node_seconds(self, until_s: float) -> dict[str, float]:
        """The seconds for which nodes were there until ``until_s``, summed over the nodes of each pool."""
        return {
            name: self._spent[name] + sum(max(0.0, until_s - slot.since_s) for slot in slots if slot.phase in _THERE)
            for name, slots in self._of.items()
        }

    # -- changes -----------------------------------------------------------------------------------------------------

    def take(self, key: WorkloadKey, nodes: Iterable[str], now_s: float) -> None:
        """The workload has places on these nodes; those that are absent are ordered."""
        slots = tuple(self._slots[name] for name in dict.fromkeys(nodes) if name in self._slots)
        assert key not in self._held, f"{key} has nodes already"
        if slots:
            self._held[key] = slots
        for slot in slots:
            assert slot.phase not in (NodePhase.CLOSED, NodePhase.LEAVING), f"{slot.name} takes no pods"
            slot.users.add(key)
            slot.idle_s = inf
            if slot.phase is NodePhase.ABSENT:
                self._order(slot, now_s)

    def give_back(self, key: WorkloadKey, now_s: float) -> None:
        """The workload has no pods any more. Nodes that were ordered for it come all the same."""
        for slot in self._held.pop(key, ()):
            slot.users.discard(key)
            if not slot.users and slot.phase in _THERE:
                slot.idle_s = now_s

    def interrupt(self, now_s: float) -> list[Hit]:
        """Begins the interruptions that are due, and returns the workloads that must be evicted, which the caller does
        before it calls ``advance``. Nodes that are coming do not come.
        """
        hits: dict[WorkloadKey, Hit] = {}
        while self._next < len(self._interruptions):
            interruption = self._interruptions[self._next]
            if self._base_s + interruption.at_s > now_s:
                break
            self._next += 1
            slots = self._of[interruption.pool] if interruption.pool else [self._slots[interruption.node]]
            concerned = set(slots)
            for key, held in self._held.items():
                if names := tuple(slot.name for slot in held if slot in concerned):
                    hits.setdefault(key, Hit(key, interruption, names, waits=bool(self.missing(key))))
            for slot in slots:
                self._notice(slot, interruption, now_s)
        return list(hits.values())

    def advance(self, now_s: float) -> list[WorkloadKey]:
        """Applies what is due by now except for the removal of idle nodes. Returns the workloads whose last missing
        node has come, in the order in which they got their places.
        """
        ready: set[WorkloadKey] = set()
        for slot in [slot for slot in self._slots.values() if slot.due_s <= now_s]:
            match slot.phase:
                case NodePhase.COMING:
                    self._arrive(slot, now_s)
                    ready |= {key for key in slot.users if not self.missing(key)}
                case NodePhase.LEAVING:
                    self._remove(slot, now_s)
                case _:
                    self._set(slot, NodePhase.ABSENT)
        for pool in self._pools.values():
            self._fill(pool, now_s)
        return [key for key in self._held if key in ready]

    def remove_idle(self, now_s: float) -> None:
        """Removes nodes that have been idle for long enough, down to each pool's minimum; to be called once all
        decisions of a moment are made.
        """
        for slots in self._of.values():
            due = sorted(self._removable(slots), key=lambda slot: slot.idle_s)
            spare = self._above_minimum(slots)
            for slot in [slot for slot in due if slot.removable_s <= now_s][:spare]:
                self._remove(slot, now_s)

    def changed(self) -> list[str]:
        """The names of nodes whose phase has changed since the last call, sorted; all at the first one."""
        names = sorted(self._changed)
        self._changed.clear()
        return names

    # -- inside ------------------------------------------------------------------------------------------------------

    def _removable(self, slots: list[_Slot]) -> Iterator[_Slot]:
        """The idle nodes of a pool, if it has more than its minimum."""
        if self._above_minimum(slots) > 0:
            yield from (slot for slot in slots if slot.phase is NodePhase.PRESENT and slot.idle_s < inf)

    @staticmethod
    def _above_minimum(slots: list[_Slot]) -> int:
        pool = slots[0].pool
        least = pool.min_nodes if pool is not None else 0
        return sum(slot.phase is NodePhase.PRESENT for slot in slots) - least

    def _fill(self, pool: Pool, now_s: float) -> None:
        """Orders what the pool lacks of its minimum, as far as it gives nodes now."""
        slots = self._of[pool.name]
        there = sum(slot.phase in (NodePhase.PRESENT, NodePhase.COMING) for slot in slots)
        for slot in [slot for slot in slots if slot.phase is NodePhase.ABSENT][: max(0, pool.min_nodes - there)]:
            self._order(slot, now_s)

    def _order(self, slot: _Slot, now_s: float) -> None:
        assert slot.pool is not None, "a node of no pool does not come"
        self._note(slot, NodeEvent.ORDERED, now_s)
        if slot.pool.delay_s <= 0.0:
            self._arrive(slot, now_s)
            return
        self._set(slot, NodePhase.COMING, now_s + slot.pool.delay_s)

    def _arrive(self, slot: _Slot, now_s: float) -> None:
        self._set(slot, NodePhase.PRESENT)
        slot.since_s = now_s
        slot.idle_s = inf if slot.users else now_s
        self._note(slot, NodeEvent.READY, now_s)

    def _notice(self, slot: _Slot, interruption: Interruption, now_s: float) -> None:
        gone_s = now_s + interruption.notice_s
        back_s = inf if slot.pool is None else gone_s + slot.pool.cooldown_s
        match slot.phase:
            case NodePhase.COMING:
                self._note(slot, NodeEvent.CANCELLED, now_s)
                self._set(slot, NodePhase.CLOSED, back_s)
            case NodePhase.PRESENT:
                self._note(slot, NodeEvent.INTERRUPTED, now_s)
                self._set(slot, NodePhase.LEAVING, gone_s)
            case NodePhase.LEAVING:
                slot.due_s, slot.closed_s = min(slot.due_s, gone_s), max(slot.closed_s, back_s)
            case NodePhase.ABSENT if interruption.pool:
                self._set(slot, NodePhase.CLOSED, back_s)
            case NodePhase.CLOSED:
                slot.due_s = max(slot.due_s, back_s)

    def _remove(self, slot: _Slot, now_s: float) -> None:
        assert not slot.users, f"{slot.name} goes with pods on it"
        self._note(slot, NodeEvent.REMOVED, now_s)
        if slot.pool is not None:
            self._spent[slot.pool.name] += now_s - slot.since_s
        if slot.phase is NodePhase.LEAVING:
            back_s = inf if slot.pool is None else now_s + slot.pool.cooldown_s
            self._set(slot, NodePhase.CLOSED, max(back_s, slot.closed_s))
            slot.closed_s = -inf
        else:
            self._set(slot, NodePhase.ABSENT)
        slot.since_s = slot.idle_s = inf

    def _set(self, slot: _Slot, phase: NodePhase, due_s: float = inf) -> None:
        slot.phase, slot.due_s = phase, due_s
        self._changed.add(slot.name)

    def _note(self, slot: _Slot, event: NodeEvent, now_s: float) -> None:
        self.log.append(NodeChange(now_s, slot.name, slot.pool_name, event))

    def validate(self, now_s: float) -> None:
        """Recomputes all that is kept twice. AssertionError for a difference."""
        for key, slots in self._held.items():
            assert all(key in slot.users for slot in slots), f"{key} is no user of its nodes"
        for slot in self._slots.values():
            assert {key for key, slots in self._held.items() if slot in slots} == slot.users, f"users of {slot.name}"
            assert not slot.users or slot.phase in (NodePhase.COMING, NodePhase.PRESENT), f"pods on {slot.name}"
            idle = slot.phase in _THERE and not slot.users
            assert (slot.idle_s < inf) == idle, f"{slot.name} is {'not ' if idle else ''}idle"
            assert (slot.since_s < inf) == (slot.phase in _THERE), f"{slot.name} is {slot.phase}"
            assert slot.phase is not NodePhase.COMING or slot.due_s < inf, f"{slot.name} never comes"
        for name, seconds in self.node_seconds(now_s).items():
            assert abs(seconds - self._logged(name, now_s)) < 1e-3, f"node-seconds of {name}"  # noqa: PLR2004

    def _logged(self, pool: str, until_s: float) -> float:
        """The node-seconds of a pool by its log."""
        sign = {NodeEvent.READY: -1, NodeEvent.REMOVED: 1}
        own = [change for change in self.log if change.pool == pool and change.event in sign]
        up = sum(-sign[change.event] for change in own)
        return up * until_s + sum(sign[change.event] * change.at_s for change in own)
