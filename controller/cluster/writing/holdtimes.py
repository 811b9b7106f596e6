"""How long to hold back an eviction, by how long it takes until ends of workloads are seen. Pure; times are arguments.

An end is known only when it is seen. Its reporter (a job's controller, a kubelet, a client with limits) may be seconds
behind, and the workload holds its quota until then: if it is evicted meanwhile, it runs once more for nothing.
"""

import math
from collections import deque
from typing import Final

from controller.cluster.writing.pace import Pace
from controller.objects.meta import is_true
from controller.objects.workload import Workload
from controller.scheduler.decisions import reasons
from controller.scheduler.decisions.decisions import Evicted
from controller.scheduler.model.resources import WorkloadKey

_PACE_S: Final = 10.0
"""The time over which the pace of ends is measured: a server that stalls for a moment has not stopped."""
_LAST: Final = 256
"""The most ends in that time that are kept: the last ones."""
_FEWEST: Final = 3
"""The fewest ends in that time that tell a pace."""
_QUICK_PER_S: Final = 3.0
"""Ends a second, of workloads that started lately, from which a cluster counts as busy, however little is decided
meanwhile."""
_SHORTEST_S: Final = 1.0
"""The time in which ends of one moment are taken to have come."""
_ENDS: Final = 1.5
"""The factor by which a hold is longer than ends take: the pace varies, and the youngest, which are evicted first, end
last."""


class Endings:
    """The time that passes at present until running workloads are seen to have ended.

    By Little's law it is the number of running workloads, divided by the ends a second, whatever reports wait for. Only
    what was seen to start within ``memory_s`` counts on either side: jobs that run for longer say nothing about those
    that come and go. With a memory of 0 nothing is learned. Times are of the monotonic clock.

    ``_running`` has the workloads that were seen to start since ``now - memory_s`` and not to stop, in that order, and
    ``_ends`` when the last ones were seen to end; older ones are dropped with the next that comes or asks.
    """

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._running: dict[WorkloadKey, float] = {}
        self._ends: deque[float] = deque(maxlen=_LAST)

    def observed(self, before: Workload | None, workload: Workload, now_s: float) -> None:
        """Notes a workload's newest state, and the state ``before``. A workload that is admitted when it is first seen
        may have started at any time, and does not count.
        """
        key, conditions = WorkloadKey(workload.key), workload.status.conditions
        if is_true(conditions, reasons.FINISHED):
            self.ended(key, now_s)
        elif not is_true(conditions, reasons.ADMITTED) or is_true(conditions, reasons.EVICTED):
            self._running.pop(key, None)
        elif self._memory_s > 0 and before is not None and not is_true(before.status.conditions, reasons.ADMITTED):
            self._forget(now_s)
            self._running[key] = now_s

    def ended(self, key: WorkloadKey, now_s: float) -> None:
        """Notes that the workload has finished, or is gone."""
        self._forget(now_s)
        if self._running.pop(key, None) is not None:
            self._ends.append(now_s)

    def take_s(self, now_s: float) -> float | None:
        """Seconds until all workloads that run now are seen to have ended, at the present pace of ends; None if that is
        longer than twice ``memory_s``, in which most of them would not have ended, or if too few ended to tell.
        """
        per_s = self.per_second(now_s)
        self._forget(now_s)
        take_s = len(self._running) / per_s if per_s > 0 else math.inf
        return take_s if take_s < 2 * self._memory_s else None

    def per_second(self, now_s: float) -> float:
        """Ends a second since the first of those that are kept; 0 if they are too few to tell."""
        while self._ends and self._ends[0] < now_s - _PACE_S:
            self._ends.popleft()
        if len(self._ends) < _FEWEST:
            return 0.0
        return len(self._ends) / max(_SHORTEST_S, now_s - self._ends[0])

    def _forget(self, now_s: float) -> None:
        while self._running:
            key = next(iter(self._running))
            if self._running[key] >= now_s - self._memory_s:
                return
            del self._running[key]


class HoldTimes:
    """Tells how long to hold back evictions: ``least_s`` while nothing is known of ends, 0 to hold nothing; ``most_s``:
    the bound up to which that grows with what is known, 0 for no growth, and then only many decisions make a cluster
    busy.

    A preemptor waits for ``most_s`` in all, and twice for ``least_s`` if that is longer.
    """

    def __init__(self, least_s: float, most_s: float, pace: Pace) -> None:
        self.endings = Endings(most_s)
        self._least_s = least_s
        self._most_s = most_s
        self._pace = pace

    def hold_s(self, eviction: Evicted, waited_s: float, now_s: float, monotonic_s: float) -> float:
        """Seconds to hold back an eviction of a preemptor that has waited for ``waited_s``: 0 in a calm cluster.

        The time is given by both clocks: a quota is reserved at a Unix time, and the pace of decisions goes by that as
        well. A victim that has run for longer than ``most_s`` is not one of those that come and go.
        """
        if self._least_s <= 0 or not self._is_busy(now_s, monotonic_s):
            return 0.0
        started_lately = now_s - eviction.holder.reserved_at_s <= self._most_s
        take_s = self.endings.take_s(monotonic_s) if started_lately else None
        wanted_s = self._least_s if take_s is None else max(self._least_s, _ENDS * take_s)
        return max(0.0, min(wanted_s, max(self._most_s, 2 * self._least_s) - waited_s))

    def _is_busy(self, now_s: float, monotonic_s: float) -> bool:
        if self._most_s <= 0:
            return self._pace.quick(now_s)
        return self._pace.busy(now_s) or self.endings.per_second(monotonic_s) > _QUICK_PER_S
