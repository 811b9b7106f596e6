"""An event loop whose time passes only while nothing is left to do: an hour of waiting costs nothing, and the same
program takes the same way each time. No sockets and no threads: nobody would wait for them.
"""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from kube.clock import SystemClock

T = TypeVar("T")

EPOCH_S = 1_700_000_000.0
"""Unix time at the start: any whole second."""


class _Jumping(selectors.SelectSelector):
    """Instead of waiting for a socket it moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nobody for the time: this would never end")
        self.now_s += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 0 seconds."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


class LoopClock(SystemClock):
    """The running loop's time in place of the machine's."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return EPOCH_S + self.monotonic()


def stamp(at_s: float) -> str:
    """Of Unix seconds, as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def run(work: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
