"""NVML event sets: registrations for GPUs, and waiting without polling.

A registration names a GPU and the epoch of the handle it was made with; after a reset no event of that GPU arrives
until it is registered anew with a new handle. A set whose registered GPU is lost reports that from every wait, once its
queue is empty, as the library does.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

from simulator.hardware.hardware import Notice

QUEUE_LIMIT = 4096
"""The most notices kept for a set that nobody waits on; the oldest go first."""


class FreedError(RuntimeError):
    """The set was freed, perhaps during a wait."""


class EventSet:
    """One event set. Every method may be called from any thread: ``_changed`` guards all fields."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[Notice] = deque(maxlen=QUEUE_LIMIT)
        self._kinds: dict[tuple[int, int], int] = {}
        self._freed = False

    def register(self, gpu: int, epoch: int, kinds: int) -> None:
        """Listen to these kinds of events of a GPU, in addition to those of earlier calls."""
        with self._changed:
            self._kinds[gpu, epoch] = self._kinds.get((gpu, epoch), 0) | kinds

    def registrations(self) -> list[tuple[int, int]]:
        """The (GPU, epoch) pairs listened to."""
        with self._changed:
            return list(self._kinds)

    def deliver(self, notice: Notice) -> None:
        """Queue a notice if this set listens to it."""
        with self._changed:
            if self._kinds.get((notice.gpu, notice.epoch), 0) & notice.kind:
                self._queue.append(notice)
                self._changed.notify()

    def stray(self, notice: Notice) -> None:
        """Queue a notice if this set listens to its kind, whichever GPU it is of."""
        with self._changed:
            if any(kinds & notice.kind for kinds in self._kinds.values()):
                self._queue.append(notice)
                self._changed.notify()

    def wake(self) -> None:
        """Let waiters check again: some GPU's state changed."""
        with self._changed:
            self._changed.notify_all()

    def free(self) -> None:
        """End the set; waits in progress raise FreedError."""
        with self._changed:
            self._freed = True
            self._changed.notify_all()

    def wait(self, timeout_s: float, lost: Callable[[tuple[int, int]], bool]) -> Notice | None:
        """The next notice; None after the timeout.

        Raises LookupError when no notice is queued and a registered GPU is ``lost``, FreedError when the set is gone.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._freed:
                    raise FreedError
                if self._queue:
                    return self._queue.popleft()
                if any(lost(registration) for registration in self._kinds):
                    raise LookupError
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
