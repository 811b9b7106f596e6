"""The line of workloads that wait for moves: a turn tries few shapes, and each shape comes to be tried.

Shapes are tried in the order of their last tries, whatever happened to the cluster since. A shape that begins to wait
is put beside those that were tried last, so that no number of newcomers keeps another from its try. Among equals higher
priority goes first, then earlier time.

Invariant: a shape that waits was tried no longer ago than any shape that was tried again since (``validate``). A turn
costs one look at each workload in line, and a sort of their shapes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from controller.scheduler.cluster.cluster import DriftError
from controller.scheduler.model.resources import ClusterQueueName, WorkloadKey

_MOST_ABSENT: Final = 1024
"""Shapes that do not wait now and whose last tries are remembered, at most."""

Alike = tuple[ClusterQueueName, str]
"""A ClusterQueue and a shape: the answer for one such workload holds for all."""
Order = tuple[int, float, str]
"""The sort key of workloads: the smallest is tried first."""


class Line:
    """The shapes that wait. ``_waiting``: the workloads of each shape; no shape is without any. ``_tried``: for each
    shape the turn that tried it last, or the last turn before it began to wait. ``_left``: shapes that were not tried
    in this round.

    Invariant: no waiting shape was last tried before ``_reached``: a turn takes none while an older one waits.
    """

    def __init__(self) -> None:
        self._waiting: dict[Alike, dict[WorkloadKey, Order]] = {}
        self._alike: dict[WorkloadKey, Alike] = {}
        self._tried: dict[Alike, int] = {}
        self._left: set[Alike] = set()
        self._turn = 0
        self._reached = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def left(self) -> bool:
        """Whether any shape was not tried yet in this round."""
        return bool(self._left)

    def join(self, key: WorkloadKey, alike: Alike, order: Order) -> None:
        """Add a workload that waits. It may have waited with another shape before."""
        if self._alike.get(key, alike) != alike:
            self.leave(key)
        if alike not in self._waiting:
            self._waiting[alike] = {}
            self._left.add(alike)
            # A shape that is moved up to ``_reached`` still goes before all others.
            self._tried[alike] = max(self._tried.get(alike, self._turn), self._reached)
        self._waiting[alike][key] = order
        self._alike[key] = alike

    def leave(self, key: WorkloadKey) -> None:
        """Remove a workload that waits no longer, or for something else. Its shape keeps its place for a time."""
        alike = self._alike.pop(key, None)
        if alike is None:
            return
        del self._waiting[alike][key]
        if not self._waiting[alike]:
            del self._waiting[alike]
            self._left.discard(alike)
            self._forget()

    def keep(self, waits: Callable[[WorkloadKey], bool]) -> None:
        """Remove all workloads that do not wait any more."""
        for key in [key for key in self._alike if not waits(key)]:
            self.leave(key)

    def shapes(self) -> Sequence[Alike]:
        """The shapes in the order in which they are tried."""
        return sorted(self._waiting, key=lambda alike: (self._tried[alike], min(self._waiting[alike].values())))

    def of(self, alike: Alike) -> Sequence[WorkloadKey]:
        """The waiting workloads of the shape, in their order."""
        waiting = self._waiting.get(alike, {})
        return sorted(waiting, key=waiting.__getitem__)

    def begin_round(self) -> None:
        """Begin a round after a change: any earlier try might have another result now."""
        self._left = set(self._waiting)

    def turn(self, tried: Iterable[Alike]) -> None:
        """Note that one turn has tried these: the first ones of ``shapes``, except for those that left meanwhile."""
        self._turn += 1
        for alike in tried:
            self._reached = max(self._reached, self._tried[alike])
            self._tried[alike] = self._turn
            self._left.discard(alike)

    def validate(self) -> None:
        """DriftError where a waiting shape was passed over, or the indexes differ."""
        alike = {key: shape for shape, keys in self._waiting.items() for key in keys}
        if alike != self._alike or not all(self._waiting.values()) or not self._left <= self._waiting.keys():
            raise DriftError(
                f"those that wait for moves: {self._waiting}, by workload {self._alike}, {self._left} left"
            )
        passed = [shape for shape in self._waiting if not self._reached <= self._tried[shape] <= self._turn]
        if passed:
            raise DriftError(f"others were tried for moves before {passed[:5]}")

    def _forget(self) -> None:
        absent = [alike for alike in self._tried if alike not in self._waiting]
        if len(absent) > _MOST_ABSENT:
            for alike in sorted(absent, key=self._tried.__getitem__)[: _MOST_ABSENT // 2]:
                del self._tried[alike]
