"""The clock that the loops of this package take as an argument, so that tests need not wait."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds, and a way to wait for them or for an event, whichever is first."""

    def monotonic(self) -> float:
        """Seconds that only grow; no meaning outside this process."""

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
