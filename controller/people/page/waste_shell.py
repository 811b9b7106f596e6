"""Idle GPUs, computed from the fleet's rows on a thread, once for all readers who see the same."""

import asyncio
from typing import Any, Final

from controller.people.history.figures import FiguresOf
from controller.people.page.detail import waste
from controller.people.page.events_shell import Hub
from controller.people.page.visiblenamespaces import QueueOf, VisibleNamespaces
from controller.people.visibility.limits import Recent
from kube.clock import Clock

Json = dict[str, Any]
_KEPT_S: Final = 5.0
_READERS: Final = 64


class Waste:
    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._turn = asyncio.Lock()
        self._found: Recent[Any, Json] = Recent(most=1, life_s=_KEPT_S)
        self._shown: Recent[Any, Json] = Recent(most=_READERS, life_s=_KEPT_S)

    async def seen(self, visible: VisibleNamespaces, queue_of: QueueOf, figures: FiguresOf) -> Json:
        """The idle GPUs as readers who may see this see them, some seconds old at most."""
        async with self._turn:
            epoch, table = await self._hub.fleet()
            of, known, now_s = (epoch, table.revision, bool(figures)), self._hub.known(), self._clock.monotonic()
            kept = self._shown.get((of, visible, known), now_s)
            if kept is not None:
                return kept[0]
            unredacted = self._found.get(of, now_s)
            if unredacted is None:
                raws = [row.raw for _, row in sorted(table.rows.items())]
                unredacted = (await asyncio.to_thread(waste, raws, figures),)
                self._found.put(of, unredacted[0], now_s)
            shown: Json = await asyncio.to_thread(visible.shown, unredacted[0], known, queue_of)
            self._shown.put((of, visible, known), shown, now_s)
            return shown
