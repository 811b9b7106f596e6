"""Moves of running workloads: the cost of one, and how many there were lately.

A move is an eviction for which another place was found in the same decision. It is a restart, and costs what any
preemption costs (``price``).

The rules are our own (``tessera.consolidation``): so many moves an hour, and none twice for the same workload. A
question costs a pass over the moves of the last hour.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from controller.scheduler.cluster.incoming import Move, Price, gpus_of
from controller.scheduler.cluster.keptpods import KeptPods, stays
from controller.scheduler.model.config import Consolidation
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.workload import TopologyUsage, WorkloadInfo
from controller.scheduler.preemption.index import checkpoints_held, started_at_s
from controller.scheduler.preemption.price import lost_s, restart_s
from controller.scheduler.quota.queuestate import Holder

WINDOW_S: Final = 3600.0


def move_of(holder: Holder, places: Iterable[TopologyUsage | None], now_s: float, max_grace_s: float) -> Move:
    """The move of a holder. ``places``: where its pod sets are to run."""
    held = (pod_set.topology for pod_set in holder.info.pod_sets)
    return Move(_hosts(held), _hosts(places), lost_gpu_seconds(holder, now_s, max_grace_s))


def _hosts(places: Iterable[TopologyUsage | None]) -> tuple[str, ...]:
    found = (domain.values[-1] for place in places if place is not None for domain in place.domains)
    return tuple(dict.fromkeys(found))


def lost_gpu_seconds(holder: Holder, now_s: float, max_grace_s: float) -> float:
    """The holder's GPUs, parts of GPUs included, times the seconds of work that it loses; without its restart."""
    return price_of(holder, now_s, max_grace_s).work


def price_of(holder: Holder, now_s: float, max_grace_s: float) -> Price:
    """What the holder loses if it stops now. One that has not started loses nothing. ``max_grace_s`` is that of the
    engine's extensions.
    """
    started_s = started_at_s(holder)
    if started_s is None:
        return Price(0.0, 0.0)
    told, gpus = checkpoints_held(holder, max_grace_s), gpus_of(holder)
    return Price(gpus * lost_s(told, started_s, now_s), gpus * restart_s(told))


def is_kept_in_place(info: WorkloadInfo, pods: KeptPods) -> bool:
    """Whether pods of the workload are not moved, by its templates or by what the pods say since."""
    templates = (pod_set.template for pod_set in info.workload.spec.pod_sets)
    return any(stays(template.metadata.annotations) for template in templates) or pods.any_of(info.workload)


class Moves:
    """The workloads that moved in the last hour, and for which workload each did. Times are whole seconds, as
    conditions carry them.

    ``_at`` outlives the workloads: one that is gone moved all the same. A new leader knows only the last moves of
    workloads that still exist, from their condition. ``_causes`` maps a workload that waits to those that moved for it
    since; only this process knows them.
    """

    def __init__(self, limits: Consolidation | None) -> None:
        self._limits = limits
        self._at: dict[WorkloadKey, set[int]] = {}
        self._causes: dict[WorkloadKey, set[WorkloadKey]] = {}

    def moved(self, key: WorkloadKey, by: WorkloadKey, now_s: float) -> None:
        """Note a decision that the workload moves for another."""
        self.seen(key, now_s)
        self._causes.setdefault(by, set()).add(key)

    def seen(self, key: WorkloadKey, at_s: float) -> None:
        """Note from the workload's condition that it moved at that time."""
        self._at.setdefault(key, set()).add(int(at_s))

    def taken_back(self, key: WorkloadKey, by: WorkloadKey | None, now_s: float) -> None:
        """Take back a move whose eviction was not written. ``by``: None for one that was to free a node."""
        self._at.get(key, set()).discard(int(now_s))
        if by is not None:
            self._causes.get(by, set()).discard(key)

    def served(self, by: WorkloadKey) -> None:
        """Forget the moves for a workload that waits no longer: if it ever waits again, that is another cause."""
        self._causes.pop(by, None)

    def moved_for(self, key: WorkloadKey, by: WorkloadKey) -> bool:
        """Whether the workload has moved already for this one, which still waits."""
        return key in self._causes.get(by, ())

    def left(self, now_s: float) -> int:
        """How many workloads may move now."""
        if self._limits is None:
            return 0
        return max(0, self._limits.moves_per_hour - len(self._counted(now_s)))

    def spent(self, now_s: float) -> str:
        """Why no workload may move now, in words; empty while one may, or where moves are off."""
        if self._limits is None or self.left(now_s) > 0:
            return ""
        next_s, said = self.next_s(now_s), f"tessera.consolidation.movesPerHour is {self._limits.moves_per_hour}"
        before = "" if next_s is None else f" before {datetime.fromtimestamp(next_s, UTC):%H:%M:%SZ}"
        return f"no running workload may move for it{before}: {said}"

    def next_s(self, now_s: float) -> float | None:
        """The time at which the oldest move of the last hour ceases to count; None without one."""
        counted = self._counted(now_s)
        return min(counted) + WINDOW_S if counted else None

    def _counted(self, now_s: float) -> list[int]:
        for key in [key for key, times in self._at.items() if max(times, default=0) + WINDOW_S <= now_s]:
            del self._at[key]
        return [at_s for times in self._at.values() for at_s in times if at_s + WINDOW_S > now_s]
