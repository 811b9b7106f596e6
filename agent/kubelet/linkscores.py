"""Works out preferred sets of GPUs ahead of the first request for them, a little at a time.

It stands alone as the one place where the table's arithmetic meets the event loop's time.
"""

import asyncio
from collections.abc import Callable

from inventory.preference.linktable import LinkTable

FILL_FIRST_S = 0.15
FILL_GAP_S = 0.004


class LinkScores:
    """``table`` gives the links as they are now; ``clock`` gives seconds."""

    def __init__(self, table: Callable[[], LinkTable], clock: Callable[[], float]) -> None:
        self._table = table
        self._clock = clock
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """The links are new ones."""
        self._changed.set()

    async def run(self) -> None:
        """Fill each new table until cancelled."""
        while True:
            # Cleared before, not after: links found anew during the work must not be missed.
            self._changed.clear()
            for _ in self._table().fill():
                await asyncio.sleep(FILL_GAP_S)
            await self._changed.wait()

    async def begin(self) -> None:
        """Up to a moment's work before pods are let in: enough for every regular machine."""
        end_s = self._clock() + FILL_FIRST_S
        for _ in self._table().fill():
            if self._clock() >= end_s:
                return
            await asyncio.sleep(0)
