"""Changes on their way from the watches to the one task that works on them, in order, a batch at a time."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from kube.clock import Clock, sleep
from kube.reading.reflector import Change
from kube.resources import Resource


class ObjectChange(NamedTuple):
    """One change of an object of ``resource``."""

    resource: Resource
    change: Change[Any]


class Inbox:
    """The queue of changes. ``put`` never blocks. ``wake`` makes the next ``gather`` return without changes as well.
    ``batch_s``: the time for which ``gather`` waits on once there are changes.

    The feeds put, the core's task alone gathers and takes. Each ``put`` and ``wake`` sets ``_event``, ``gather`` alone
    clears it: it never sleeps on a change that came between two calls.
    """

    def __init__(self, clock: Clock, *, batch_s: Callable[[], float]) -> None:
        self._clock = clock
        self._batch_s = batch_s
        self._changes: deque[ObjectChange] = deque()
        self._event = asyncio.Event()

    def __len__(self) -> int:
        return len(self._changes)

    def put(self, observed: ObjectChange) -> None:
        self._changes.append(observed)
        self._event.set()

    def wake(self) -> None:
        self._event.set()

    async def gather(self, timeout_s: float | None) -> bool:
        """Waits for changes or ``timeout_s``; then a moment more, so that simultaneous changes are worked on together.

        Returns whether there were changes or a ``wake``.
        """
        woken = await self._clock.wait(self._event, timeout_s)
        if woken and (batch_s := self._batch_s()) > 0:
            await sleep(self._clock, batch_s)
        self._event.clear()
        return woken

    def take(self, most: int) -> list[ObjectChange]:
        """Takes up to ``most`` changes, the oldest first."""
        return [self._changes.popleft() for _ in range(min(most, len(self._changes)))]
