"""Tasks of the process, the clock that they follow, and the programs that they run."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self


@contextlib.asynccontextmanager
async def started(*words: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the program in a session of its own; processes of that session that live at the end are killed. Raises
    OSError.

    ``options`` are those of ``asyncio.create_subprocess_exec``.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*words, **options, start_new_session=True))
    try:
        # Without the shield, a cancelled start would make asyncio kill the program alone and wait for its pipes, which
        # children keep open.
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            await _end(await starting)
        raise
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        # The whole session is killed: a child of the program would keep our pipes open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def until_poll(interval_s: float) -> float:
    """Seconds to the next whole multiple of ``interval_s``: polls that fall together cost the process one wake-up."""
    return interval_s - time.monotonic() % interval_s


class SteadyClock:
    """Seconds since the epoch that never jump: the wall clock at the start, carried on by the monotonic one.

    Call it for the time. Within one process it only grows, whatever an administrator or NTP does to the clock.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._offset_s + time.monotonic()


class TaskSet:
    """Tasks that end with the ``async with`` block. No task is expected to return."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cancel()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    async def replace(self, functions: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """End the tasks that run, then call and start these, by name: a cancellation in between leaves none unrun."""
        await self._cancel()
        self._tasks = {asyncio.create_task(function(), name=name) for name, function in functions.items()}

    async def wait(self, wake: asyncio.Event, timeout_s: float) -> None:
        """Wait until ``wake`` is set or the time is over. Raises what a task raised."""
        waiter = asyncio.create_task(wake.wait())
        try:
            done, _ = await asyncio.wait({waiter, *self._tasks}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {waiter}:
                task.result()
        finally:
            waiter.cancel()

    async def _cancel(self) -> None:
        # The tasks are kept until they have ended: where this is cancelled itself, the block's end comes back for them.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = set()


class Alarm:
    """Calls ``function`` on the event loop once, at the time that was set last."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._timer: asyncio.TimerHandle | None = None

    def set(self, delay_s: float | None) -> None:
        """Set the alarm to ``delay_s`` from now, in place of any earlier time; None: no alarm."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay_s is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._function()
