"""A changing set of background tasks whose failures surface where they are waited for."""

import asyncio
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self


class TaskSet:
    """Tasks that end with the ``async with`` block. None of them is expected to return."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cancel()

    async def replace(self, coroutines: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """End the tasks that run and start these, by name."""
        await self._cancel()
        self._tasks = {asyncio.create_task(one, name=name) for name, one in coroutines.items()}

    async def wait(self, wake: asyncio.Event, timeout_s: float) -> None:
        """Until ``wake`` is set or the time is over. Raises what a task raised."""
        waiter = asyncio.create_task(wake.wait())
        try:
            done, _ = await asyncio.wait({waiter, *self._tasks}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {waiter}:
                task.result()
        finally:
            waiter.cancel()

    async def _cancel(self) -> None:
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
