"""What a cycle must know of workloads with quota beside their usage: second passes, pods not ready, replaced slices."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.quota.queuestate import Holder

SECOND_PASS_FIRST_S: Final = 1.0
SECOND_PASS_LAST_S: Final = 30.0
_LONG_AGO_S: Final = 1.0


class SecondPass(NamedTuple):
    """A second pass to come. ``waited_s``: the wait that ends at ``due_s``; the next one is twice as long."""

    due_s: float
    waited_s: float


class HolderNotes:
    """Notes on workloads with quota. ``WorkloadEvents`` writes what objects say, ``Outcomes`` what a cycle decided.

    ``unready``: workloads that are admitted and whose pods are not all ready. ``replaced``: holder -> the elastic slice
    that it replaced, while that one holds quota as well. ``passes``: second passes to come. ``undecided``: workloads
    that waited here until their object showed an admission that no decision of this engine is about, until the next
    cycle has looked at them. A key of these is that of a workload with quota, or of a slice whose end is decided.
    Holders that got new places in a second pass are kept for one cycle: from the next cycle on the places that they
    left counts for workloads refused beside them.

    ``awaiting``: workloads that await nodes of an autoscaler, with a second pass to come; ``promised``: those of them
    whose request was provisioned. ``coming``: workloads with quota that fit once nodes have come which their flavors'
    templates say can come; no other has a note of both kinds.
    """

    def __init__(self) -> None:
        self._unready: set[WorkloadKey] = set()
        self._replaced: dict[WorkloadKey, WorkloadKey] = {}
        self._passes: dict[WorkloadKey, SecondPass] = {}
        self._undecided: set[WorkloadKey] = set()
        self._moved: list[Holder] = []
        self._awaiting: set[WorkloadKey] = set()
        self._promised: set[WorkloadKey] = set()
        self._coming: set[WorkloadKey] = set()
        self.coming: AbstractSet[WorkloadKey] = self._coming
        self.awaiting: AbstractSet[WorkloadKey] = self._awaiting
        self.promised: AbstractSet[WorkloadKey] = self._promised
        self.unready: AbstractSet[WorkloadKey] = self._unready
        self.replaced: Mapping[WorkloadKey, WorkloadKey] = self._replaced
        self.passes: Mapping[WorkloadKey, SecondPass] = self._passes
        self.undecided: AbstractSet[WorkloadKey] = self._undecided

    def forget(self, key: WorkloadKey) -> bool:
        """Drop the notes on a workload that no longer holds quota. Returns whether nodes were kept for it."""
        promised = self.set_awaiting(key, awaiting=False, promised=False)
        had_nodes = key in self._coming
        self._coming.discard(key)
        self._unready.discard(key)
        self._passes.pop(key, None)
        self._replaced.pop(key, None)
        self._undecided.discard(key)
        return promised or had_nodes

    def note_undecided(self, key: WorkloadKey) -> None:
        self._undecided.add(key)

    def take_undecided(self) -> list[WorkloadKey]:
        """The workloads sorted by key; none is left."""
        found = sorted(self._undecided)
        self._undecided.clear()
        return found

    def set_unready(self, key: WorkloadKey, *, unready: bool) -> bool:
        """Note whether the workload's pods are not all ready. Returns whether that is new."""
        if unready == (key in self._unready):
            return False
        (self._unready.add if unready else self._unready.discard)(key)
        return True

    def set_replaced(self, key: WorkloadKey, old: WorkloadKey) -> None:
        self._replaced[key] = old

    def drop_replaced(self, key: WorkloadKey) -> None:
        self._replaced.pop(key, None)

    def set_awaiting(self, key: WorkloadKey, *, awaiting: bool, promised: bool) -> bool:
        """Note what the workload awaits of an autoscaler. Returns whether nodes were kept for it until now."""
        (self._awaiting.add if awaiting else self._awaiting.discard)(key)
        ended = key in self._promised and not promised
        (self._promised.add if promised else self._promised.discard)(key)
        return ended

    def set_coming(self, key: WorkloadKey, *, coming: bool) -> bool:
        """Note whether the workload waits for nodes that can come. Returns whether some were kept for it until now."""
        ended = key in self._coming and not coming
        (self._coming.add if coming else self._coming.discard)(key)
        return ended

    # -- second passes -----------------------------------------------------------------------------------------------

    def want_pass(self, key: WorkloadKey, now_s: float) -> None:
        """Schedule a second pass, unless one is scheduled already."""
        if key not in self._passes:
            self.pass_soon(key, now_s)

    def pass_soon(self, key: WorkloadKey, now_s: float) -> None:
        self._passes[key] = SecondPass(now_s + SECOND_PASS_FIRST_S, SECOND_PASS_FIRST_S)

    def pass_later(self, key: WorkloadKey, now_s: float) -> None:
        """Schedule another second pass after one that found no place: the wait doubles, up to
        ``SECOND_PASS_LAST_S``.
        """
        known = self._passes.get(key)
        waited_s = SECOND_PASS_FIRST_S / 2 if known is None else known.waited_s
        wait_s = min(2 * waited_s, SECOND_PASS_LAST_S)
        self._passes[key] = SecondPass(now_s + wait_s, wait_s)

    def hurry(self) -> None:
        """Nodes have changed, or places are free: workloads that await some are tried in the next cycle."""
        for key in (*self._awaiting, *self._coming):
            known = self._passes.get(key)
            if known is not None:
                self._passes[key] = known._replace(due_s=min(known.due_s, _LONG_AGO_S))

    def drop_pass(self, key: WorkloadKey) -> None:
        self._passes.pop(key, None)

    def passes_due(self, now_s: float) -> list[WorkloadKey]:
        """The workloads whose second pass is due, sorted by key."""
        return sorted(key for key, due in self._passes.items() if due.due_s <= now_s) if self._passes else []

    @property
    def ask_for_a_cycle(self) -> bool:
        """Whether there is something that the next cycle takes."""
        return bool(self._replaced or self._moved or self._undecided)

    def note_moved(self, holder: Holder) -> None:
        self._moved.append(holder)

    def take_moved(self) -> list[Holder]:
        moved = self._moved
        if moved:
            self._moved = []
        return moved

    def validate(self, holders: Mapping[WorkloadKey, Holder], ended: AbstractSet[WorkloadKey]) -> None:
        kept = {*self._unready, *self._replaced, *self._passes, *self._undecided, *self._awaiting, *self._coming}
        strange = kept - holders.keys() - ended
        if not self._promised <= self._awaiting:
            raise DriftError(f"nodes are kept for {sorted(self._promised - self._awaiting)[:5]}, which await none")
        if both := self._promised & self._coming:
            raise DriftError(f"nodes are kept twice for {sorted(both)[:5]}")
        if strange:
            raise DriftError(f"notes on workloads without quota: {sorted(strange)[:5]}")
