"""What the agent keeps on disk across its own restarts: written soon after each change, and at the end."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from agent.keeping import checkpoint, layoutstate
from agent.keeping.checkpoint import Checkpoint
from agent.keeping.layoutstate import LayoutState

log = logging.getLogger(__name__)

SAVE_INTERVAL_S = 60.0
SAVE_PAUSE_S = 0.1
"""The most that a kill can make the agent forget."""


class Known(Struct, frozen=True):
    """All that is worth keeping at one moment."""

    checkpoint: Checkpoint
    layout: LayoutState


class StateFiles:
    """The files of ``folder``. ``known`` is asked for what to write; None while nothing is known."""

    def __init__(self, folder: Path, known: Callable[[], Known | None]) -> None:
        self._folder = folder
        self._known = known
        self._changed = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        self.layout = layoutstate.load(folder)
        """As it is on disk."""

    def changed(self) -> None:
        """Something is known that the files do not say."""
        self._changed.set()

    async def run(self) -> None:
        """Write after each change, and each minute, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAVE_INTERVAL_S):
                    await self._changed.wait()
            self._changed.clear()
            # On a thread: a disk may take seconds to take it in, and pods wait for this loop.
            self._saving = asyncio.create_task(asyncio.to_thread(self._save, self._known()))
            await asyncio.shield(self._saving)
            await asyncio.sleep(SAVE_PAUSE_S)

    async def close(self) -> None:
        """Write the last state, when ``run`` has ended."""
        if self._saving is not None:
            await asyncio.wait([self._saving])  # or an older state would be written over the last one
        self._save(self._known())

    def _save(self, known: Known | None) -> None:
        if known is None:
            return
        try:
            if known.layout != self.layout:
                layoutstate.save(self._folder, known.layout)
                self.layout = known.layout
            checkpoint.save(self._folder, known.checkpoint)
        except OSError as failed:
            log.warning("checkpoint not saved", extra={"error": str(failed)})
