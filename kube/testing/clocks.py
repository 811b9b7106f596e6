"""Time for tests: a clock moved by hand, and a deadline for the work of other tasks in real time."""

import asyncio
import contextlib
from collections.abc import Callable

SHORTEST_POLL_S, LONGEST_POLL_S = 0.002, 0.02
HANG_S = 120.0
"""The seconds after which a wait counts as a hang, also on a machine that others keep busy. No claim rests on it."""


class VirtualClock:
    """A ``kube.clock.Clock`` that stands still until ``advance``. It starts far from zero, so that 0 is never "now"."""

    def __init__(self, *, start_s: float = 1_000.0, wall_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s
        self._wall_offset_s = wall_s - start_s
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def monotonic(self) -> float:
        return self._now_s

    def wall(self) -> float:
        return self._now_s + self._wall_offset_s

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> bool:
        if event.is_set():
            return True
        if timeout_s is None:
            await event.wait()
            return True
        over = asyncio.Event()
        sleeper = (self._now_s + timeout_s, over)
        self._sleepers.append(sleeper)
        if timeout_s <= 0:
            over.set()
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(over.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sleepers.remove(sleeper)
            for wait in waits:
                wait.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await wait
        return event.is_set()

    @property
    def sleeping(self) -> int:
        """The number of waits that end by time."""
        return len(self._sleepers)

    def advance(self, seconds: float) -> None:
        """Move time on and wake the waits that have ended."""
        self._now_s += seconds
        for deadline_s, over in self._sleepers:
            if deadline_s <= self._now_s:
                over.set()

    @property
    def next_wake_s(self) -> float | None:
        """Seconds until the first wait ends; None without one."""
        return min((deadline_s for deadline_s, _ in self._sleepers), default=self._now_s) - self._now_s or None


async def eventually(condition: Callable[[], bool], *, within_s: float = HANG_S, what: str = "") -> None:
    """Poll ``condition`` until it holds; AssertionError after ``within_s`` real seconds.

    Polls come less often the longer it takes: a wait for a process or for a timeout must not keep a core busy.
    """
    loop = asyncio.get_running_loop()
    deadline_s, pause_s = loop.time() + within_s, SHORTEST_POLL_S
    while not condition():
        assert loop.time() < deadline_s, what or "the condition did not come true in time"
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.2, LONGEST_POLL_S)
