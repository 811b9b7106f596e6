"""Work in parts on the event loop, which has at least as much time for all else."""

import asyncio
import time
from typing import Final, TypeVar

from controller.insight.forecast.parts import Parts

T = TypeVar("T")
_SLICE_S: Final = 0.003


async def worked(parts: Parts[T]) -> T:
    """The result of the work. It works for some milliseconds and then pauses as long."""
    while True:
        begun_s = time.perf_counter()
        try:
            while time.perf_counter() - begun_s < _SLICE_S:
                next(parts)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(time.perf_counter() - begun_s)
