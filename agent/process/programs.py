"""Programs of the host's, run to their end or ended."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from typing import Any


@contextlib.asynccontextmanager
async def started(*words: str, **options: Any) -> AsyncIterator[asyncio.subprocess.Process]:
    """The program in a session of its own; whatever lives of that at the end is killed. Raises OSError.

    ``options`` are those of ``asyncio.create_subprocess_exec``.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*words, **options, start_new_session=True))
    try:
        # Cancelled while it starts, asyncio kills the program alone and waits for its pipes, which children keep open.
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
        # The whole session: a child of the program would keep our pipes open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
