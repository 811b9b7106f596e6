"""Works out preferred sets of GPUs ahead of the first request for them, a little at a time.

This module is the only one in which the table's arithmetic meets the event loop's time.
"""

import asyncio
from collections.abc import Callable

from inventory.preference.linktable import LinkTable

FILL_FIRST_S = 0.15
FILL_GAP_S = 0.004


class LinkScores:
    """Fills the table of preferred sets. ``table`` gives the present links' table; ``clock`` gives seconds."""

    def __init__(self, table: Callable[[], LinkTable], clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Start filling the table of the new links."""
        self._changed.set()

    async def run(self) -> None:
        """Fill each new table until cancelled."""
        while True:
            # The event is cleared before the work, not after: links found during the work must not be missed.
            self._changed.clear()
            for _ in self._table().fill():
                await asyncio.sleep(FILL_GAP_S)
            await self._changed.wait()

    async def begin(self) -> None:
        """Fill the table for at most ``FILL_FIRST_S`` before pods are let in: enough for every regular machine."""
        end_s = self._clock() + FILL_FIRST_S
        for _ in self._table().fill():
            if self._clock() >= end_s:
                return
            await asyncio.sleep(0)
