"""Writes the newest state of one object, and no older one.

``put`` replaces the value that waits to be written and returns at once; ``run`` writes it when the interval has passed.
Values that were replaced while the server was away are never sent: only the latest one counts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kube.clock import Backoff, Clock, pause_s
from kube.errors import ForbiddenError, InvalidError, KubeError

log = logging.getLogger(__name__)
T = TypeVar("T")

_HOPELESS_S = 30.0
"""The shortest pause in seconds after an answer that only an administrator can change."""

_REPEAT_LOG_S = 60.0


class LatestWriter(Generic[T]):
    """Writes at most once each ``min_interval_s``, retries with ``backoff``, and writes again ``resync_s`` after a
    success.

    ``write`` gets the newest value; it raises KubeError to be tried again. ``name`` is for the log.

    ``put`` and ``look_again`` may be called at any time on the event loop. The first writes ``_waiting``; the second
    ``_resync_at_s``, and while ``_writing`` also ``_gap_s``; ``run`` writes the other fields. While ``_writing``,
    ``_waiting`` has only values put since, which are written next; ``_written`` is what a resync writes again.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[T], Awaitable[None]],
        *,
        clock: Clock,
        backoff: Backoff,
        min_interval_s: float = 0.0,
        resync_s: float | None = None,
    ) -> None:
        self._name = name
        self._write = write
        self._clock = clock
        self._backoff = backoff
        self._min_interval_s = min_interval_s
        self._resync_s = resync_s
        self._waiting: tuple[T] | None = None
        self._written: tuple[T] | None = None
        self._writing = False
        self._not_before_s = 0.0
        self._resync_at_s: float | None = None
        self._written_at_s: float | None = None
        self._gap_s: float | None = None
        self._wake = asyncio.Event()
        self._logged_at_s: float | None = None

    @property
    def settled(self) -> bool:
        """Whether everything that was put has been written."""
        return self._waiting is None and not self._writing

    def put(self, value: T) -> None:
        """Set ``value`` as the next to be written. The call never blocks."""
        self._waiting = (value,)
        self._wake.set()

    def look_again(self, gap_s: float) -> None:
        """Write the last value again as soon as it was written ``gap_s`` ago; do nothing before the first write.

        A call during a write counts from the end of that: the news behind the call may have come before or after the
        write.
        """
        if self._writing:
            self._gap_s = gap_s if self._gap_s is None else min(self._gap_s, gap_s)
        if self._written_at_s is not None and self._resync_at_s is not None:
            self._resync_at_s = min(self._resync_at_s, self._written_at_s + gap_s)
            self._wake.set()

    async def run(self, begin_s: float = 0.0) -> None:
        """Write until cancelled, from ``begin_s`` seconds on."""
        self._not_before_s = self._clock.monotonic() + begin_s
        while True:
            now = self._clock.monotonic()
            due_s = self._due(now)
            if due_s is None or due_s > now:
                self._wake.clear()
                await self._clock.wait(self._wake, None if due_s is None else due_s - now)
                continue
            await self._attempt()

    def _due(self, now: float) -> float | None:
        """The time at which the next write is to be made; None: when a value is put."""
        if self._waiting is not None:
            return self._not_before_s
        if self._resync_at_s is not None:
            return max(self._resync_at_s, self._not_before_s, now if self._written is None else 0.0)
        return None

    async def _attempt(self) -> None:
        chosen = self._waiting or self._written
        assert chosen is not None, "nothing to write"
        self._waiting = self._gap_s = None
        self._writing = True
        try:
            await self._write(chosen[0])
        except KubeError as error:
            # A newer value may have come while this one was under way: it stays.
            self._waiting = self._waiting or chosen
            self._failed(error)
            return
        finally:
            self._writing = False
        now = self._clock.monotonic()
        if self._logged_at_s is not None:
            log.info("%s: written again", self._name)
        self._logged_at_s = None
        self._backoff.reset()
        self._written, self._written_at_s = chosen, now
        self._not_before_s = now + self._min_interval_s
        self._resync_at_s = None
        if self._resync_s is not None:
            self._resync_at_s = now + (self._resync_s if self._gap_s is None else min(self._resync_s, self._gap_s))

    def _failed(self, error: KubeError) -> None:
        now = self._clock.monotonic()
        wait_s = pause_s(error, self._backoff)
        if isinstance(error, ForbiddenError | InvalidError):
            wait_s = max(wait_s, _HOPELESS_S)
        self._not_before_s = now + max(wait_s, self._min_interval_s)
        if self._logged_at_s is None or now - self._logged_at_s >= _REPEAT_LOG_S:
            self._logged_at_s = now
            log.warning("%s: not written, trying again in %.0f s: %s", self._name, wait_s, error)
