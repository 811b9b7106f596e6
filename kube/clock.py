"""The waits of loops: a clock, growing pauses between attempts, turns after news, and a token bucket.

The clock is an argument of every loop, so that tests need not wait.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from kube.errors import KubeError, StartingError, UnavailableError

_STARTING_MOST_S = 5.0
"""The longest pause in seconds for a server that sets up storage; no API server asks for more then."""
_STARTING_S = 1.0
"""The pause in seconds that an API server asks for while it sets up storage; a watch's answer does not say it."""


class Backoff:
    """Exponential backoff with full-range jitter of +-``jitter``. ``random`` returns 0 to 1 and is handed in.

    Without jitter, every agent of a fleet would come back at the same instant after an outage.
    """

    def __init__(
        self,
        *,
        random: Callable[[], float],
        initial_s: float = 0.5,
        maximum_s: float = 60.0,
        factor: float = 2.0,
        jitter: float = 0.25,
    ) -> None:
        self._random = random
        self._initial_s = initial_s
        self._maximum_s = maximum_s
        self._factor = factor
        self._jitter = jitter
        self._base_s = initial_s

    def next(self) -> float:
        """Seconds to wait before the next attempt; each call without a ``reset`` makes the following one longer."""
        base = self._base_s
        self._base_s = min(base * self._factor, self._maximum_s)
        return base * (1 + self._jitter * (2 * self._random() - 1))

    def spread(self, seconds: float) -> float:
        """``seconds`` made up to twice as long at random, so that clients that get one answer do not come back
        together.
        """
        return seconds * (1 + self._random())

    def reset(self) -> None:
        """Start again from the shortest pause, after an attempt that succeeded."""
        self._base_s = self._initial_s


def pause_s(error: KubeError, backoff: Backoff) -> float:
    """The seconds to wait after ``error``: the back-off's, after the pause that the server asks of all clients alike.

    After the answer of a server that only sets up storage the wait is one to two times the pause that it asks for, and
    later pauses of the back-off do not grow by it.
    """
    if isinstance(error, StartingError):
        return backoff.spread(min(error.retry_after_s or _STARTING_S, _STARTING_MOST_S))
    asked_s = error.retry_after_s if isinstance(error, UnavailableError) else None
    return (asked_s or 0.0) + backoff.next()


class Clock(Protocol):
    """Seconds, and a way to wait for them or for an event, whichever is first."""

    def monotonic(self) -> float:
        """The seconds of a clock that only grows; they mean nothing outside this process."""

    def wall(self) -> float:
        """Unix seconds, for times that are shown."""

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        """Wait until ``event`` is set (True) or ``timeout_s`` have passed (False); None waits for the event alone."""


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait ``seconds`` on ``clock``."""
    await clock.wait(asyncio.Event(), seconds)


class Turns:
    """The turns of a loop that works after news, and at times. It is used on one event loop.

    ``wake`` and ``again`` may be called by anybody at any time. What is asked for before a turn begins is done in it:
    ``next`` forgets it. Of several times that ``again`` was asked for the earliest counts.
    """

    def __init__(self, clock: Clock, *, together_s: float) -> None:
        """``together_s``: the seconds for which news are gathered before a turn."""
        self._clock = clock
        self._together_s = together_s
        self._news = asyncio.Event()
        self._again_s: float | None = None

    def wake(self) -> None:
        """Ask for a turn now."""
        self._news.set()

    def again(self, after_s: float) -> None:
        """Ask for a turn in ``after_s`` seconds."""
        at_s = self._clock.wall() + after_s
        self._again_s = at_s if self._again_s is None else min(self._again_s, at_s)

    async def next(self, due_s: float | None = None) -> None:
        """Wait for the next turn. ``due_s``: the wall second by which the loop has work of its own; None for none."""
        at_s = min((time_s for time_s in (due_s, self._again_s) if time_s is not None), default=None)
        await self._clock.wait(self._news, None if at_s is None else max(0.0, at_s - self._clock.wall()))
        await sleep(self._clock, self._together_s)
        self._news.clear()
        self._again_s = None


class RateLimit:
    """Lets ``burst`` calls through at once and ``qps`` a second after that, in the order in which they asked.

    Each waiting caller has a token of its own: two callers never wake for the same one.
    """

    def __init__(self, *, qps: float, burst: int, clock: Clock) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps and burst: found {qps} and {burst}, expected more than 0 and at least 1")
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_s = clock.monotonic()

    async def take(self) -> None:
        """Wait until the call may be made."""
        wait_s = self.reserve(self._clock.monotonic())
        if wait_s > 0:
            await sleep(self._clock, wait_s)

    def reserve(self, now_s: float) -> float:
        """Take one token, a future one if need be; return the seconds until it is there."""
        grown = (now_s - self._filled_s) * self._qps
        self._tokens = min(float(self._burst), self._tokens + grown) - 1
        self._filled_s = now_s
        return max(0.0, -self._tokens / self._qps)
