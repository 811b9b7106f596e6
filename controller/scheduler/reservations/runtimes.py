"""When a workload ends that is told to run for a time (``runtime_s``): backfill and forecasts depend on it.

A workload that outlives its runtime is expected to go on for a tenth of the time that it has run.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.model.resources import WorkloadKey
from controller.scheduler.model.toldtimes import runtime_s
from controller.scheduler.model.workload import WorkloadInfo
from controller.scheduler.quota.queuestate import Holder

_OVERTIME: Final = 0.1
# An overdue workload is never expected to end now: its quota would count as free while the workload still holds it.
_SHORTEST_S: Final = 1.0


def ends_at_s(holder: Holder, now_s: float) -> float | None:
    """The time at which the holder is expected to release its quota; None for a job of unknown length."""
    lasts_s = runtime_s(holder.info.workload)
    if lasts_s is None:
        return None
    end_s = holder.reserved_at_s + lasts_s
    if end_s > now_s:
        return end_s
    return now_s + max(_SHORTEST_S, _OVERTIME * (now_s - holder.reserved_at_s))


def would_end_s(info: WorkloadInfo, now_s: float) -> float | None:
    """The time at which a workload that is admitted now would end; None for one of unknown length."""
    lasts_s = runtime_s(info.workload)
    return None if lasts_s is None else now_s + lasts_s


class NodeEnds:
    """When the last workload of each node ends, by the host's name. It observes the holders of the cluster.

    ``_ends``: host -> the end of each workload that has pods there, infinite where it is not known; no host is without
    any. ``_last`` caches the latest of them: 0.1 us in place of a look at all workloads of a node.
    """

    def __init__(self) -> None:
        self._ends: dict[str, dict[WorkloadKey, float]] = {}
        self._last: dict[str, float] = {}

    def busy_until(self, host: str) -> float:
        """The time at which the last workload there ends; 0 for a node without one."""
        last = self._last.get(host)
        if last is None:
            last = self._last[host] = max(self._ends.get(host, {}).values(), default=0.0)
        return last

    def added(self, holder: Holder) -> None:
        lasts_s = runtime_s(holder.info.workload)
        end_s = inf if lasts_s is None else holder.reserved_at_s + lasts_s
        for host in _hosts(holder):
            self._ends.setdefault(host, {})[holder.key] = end_s
            self._last.pop(host, None)

    def removed(self, holder: Holder) -> None:
        for host in _hosts(holder):
            there = self._ends.get(host, {})
            there.pop(holder.key, None)
            if not there:
                self._ends.pop(host, None)
            self._last.pop(host, None)

    def changed(self, known: Holder, holder: Holder) -> None:
        self.removed(known)
        self.added(holder)

    def validate(self, holders: Mapping[WorkloadKey, Holder]) -> None:
        """DriftError where the ends are not those of the holders."""
        fresh = NodeEnds()
        for holder in holders.values():
            fresh.added(holder)
        if fresh._ends != self._ends or any(fresh.busy_until(host) != last for host, last in self._last.items()):
            raise DriftError(f"ends by node: kept {self._ends}, counted {fresh._ends}")


def _hosts(holder: Holder) -> set[str]:
    places = (pod_set.topology for pod_set in holder.info.pod_sets if pod_set.topology is not None)
    return {domain.values[-1] for place in places for domain in place.domains}
