"""An event loop on which time passes only while nothing else can happen: a story takes its CPU, however long it lasts.

Its controller, its API server and what plays the cluster share one loop. Where all of them wait, the loop's clock goes
on to the first timer. So a busy machine makes nobody late, and no wait of a story takes real time.
"""

import asyncio
import contextlib
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack
from unittest import mock

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_LOOKS: Final = 3
"""How often the loop looks at its sockets before time goes on. What a process sends to itself is there when the call
returns, unless the kernel puts its delivery off: it may, when another process has this processor.
"""
_THREADS_S: Final = 0.005
EPOCH_S: Final = 1_799_999_992.0
"""The wall second at which stories begin: eight seconds before eight in the morning, UTC, so that windows of calendars
begin and end in them."""


class _Selector(selectors.DefaultSelector):
    """Waits for sockets alone; a wait for a timer moves the clock in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0
        """Seconds since the beginning of the loop, by its own clock."""
        self.threads = 0
        """Calls that threads are working on: time stands still meanwhile."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            return super().select(None)
        if self.threads:
            return super().select(_THREADS_S)
        for _ in range(_LOOKS):
            if ready := super().select(0):
                return ready
        self.passed_s += timeout
        return ready


class WarpedLoop(asyncio.SelectorEventLoop):
    """``time`` is in seconds since the loop began."""

    def __init__(self) -> None:
        self._own = _Selector()
        super().__init__(self._own)

    def time(self) -> float:
        return self._own.passed_s

    def wall(self) -> float:
        return EPOCH_S + self._own.passed_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], T], *args: *Arguments
    ) -> "asyncio.Future[T]":
        future = super().run_in_executor(executor, func, *args)
        self._own.threads += 1
        future.add_done_callback(self._returned)
        return future

    def _returned(self, _: "asyncio.Future[Any]") -> None:
        self._own.threads -= 1


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end on a loop of its own, whose clock is the process's meanwhile. Raises what it raises."""
    with asyncio.Runner(loop_factory=WarpedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, WarpedLoop)
        with _clock(loop):
            return runner.run(work)


@contextlib.contextmanager
def _clock(loop: WarpedLoop) -> Iterator[None]:
    with mock.patch.object(time, "time", loop.wall), mock.patch.object(time, "monotonic", loop.time):
        yield
