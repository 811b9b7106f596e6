"""How long an eviction is worth waiting with, by how long ends take to be seen. Pure; times are handed in.

All that is known of an end is when it is seen. Whoever reports it (a job's controller, a kubelet, a client with limits)
may be seconds behind, and the workload holds its quota until then: evicted meanwhile, it runs once more for nothing.
"""

import math
from collections import deque
from typing import Final

from controller.engine.conditions import reasons
from controller.engine.conditions.decisions import Evicted
from controller.engine.model.resources import WorkloadKey
from controller.objects.meta import is_true
from controller.objects.workload import Workload
from controller.writing.pace import Pace

_PACE_S: Final = 10.0
"""The pace of ends is that of so many seconds: a server that stalls for a moment has not stopped."""
_LAST: Final = 256
"""Of these no more than so many are kept: the last ones."""
_FEWEST: Final = 3
"""Fewer ends in that time teach nothing."""
_QUICK_PER_S: Final = 3.0
"""Where more that started lately end each second, it is no calm cluster, however little is decided meanwhile."""
_SHORTEST_S: Final = 1.0
"""Ends of one moment are taken to have come in this time."""
_ENDS: Final = 1.5
"""So many times as long as ends take: the pace varies, and the youngest, which are evicted first, end last."""


class Endings:
    """How long it takes at present until workloads that run are seen to have ended.

    By Little's law that is how many run, divided by the ends a second, whatever reports wait for. Only what was seen to
    start within ``memory_s`` counts on either side: jobs that run for longer say nothing about those that come and go.
    With a memory of 0 nothing is learned. Times are of the monotonic clock.

    ``_running`` has the workloads that were seen to start since ``now - memory_s`` and not to stop, in that order, and
    ``_ends`` when the last ones were seen to end; older ones are dropped with the next that comes or asks.
    """

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._running: dict[WorkloadKey, float] = {}
        self._ends: deque[float] = deque(maxlen=_LAST)

    def observed(self, before: Workload | None, workload: Workload, now_s: float) -> None:
        """Its newest state, and the one ``before``. One that is admitted when it is first seen started at any time."""
        key, conditions = WorkloadKey(workload.key), workload.status.conditions
        if is_true(conditions, reasons.FINISHED):
            self.ended(key, now_s)
        elif not is_true(conditions, reasons.ADMITTED) or is_true(conditions, reasons.EVICTED):
            self._running.pop(key, None)
        elif self._memory_s > 0 and before is not None and not is_true(before.status.conditions, reasons.ADMITTED):
            self._forget(now_s)
            self._running[key] = now_s

    def ended(self, key: WorkloadKey, now_s: float) -> None:
        """It has finished, or is gone."""
        self._forget(now_s)
        if self._running.pop(key, None) is not None:
            self._ends.append(now_s)

    def take_s(self, now_s: float) -> float | None:
        """Seconds until all that run now are seen to have ended, at the present pace of ends; None where that is longer
        than twice ``memory_s``, in which most of them would not have ended, or where too few ended to say.
        """
        per_s = self.per_second(now_s)
        self._forget(now_s)
        take_s = len(self._running) / per_s if per_s > 0 else math.inf
        return take_s if take_s < 2 * self._memory_s else None

    def per_second(self, now_s: float) -> float:
        """Ends since the first of those that are kept; 0 where they are too few to say."""
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
    """``least_s`` where nothing is known of ends, 0 to hold nothing; ``most_s``: how far that grows with what is known,
    0 for not at all, and then only many decisions make a cluster busy.

    A preemptor waits for ``most_s`` in all, and twice for ``least_s`` if that is longer.
    """

    def __init__(self, least_s: float, most_s: float, pace: Pace) -> None:
        self.endings = Endings(most_s)
        self._least_s = least_s
        self._most_s = most_s
        self._pace = pace

    def hold_s(self, eviction: Evicted, waited_s: float, now_s: float, monotonic_s: float) -> float:
        """How long it is held back, by a preemptor that has waited for so long: not at all in a calm cluster.

        The time by both clocks: a quota is reserved at a Unix time, and so is the pace of decisions.
        A victim that has run for longer than ``most_s`` is not one of those that come and go.
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
