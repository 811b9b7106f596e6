"""Preferring devices without holding anybody up: the shell around ``inventory.preference``.

A search on links that are not tabulated yet (13 to 16 GPUs, arbitrary links) takes up to some hundred milliseconds. It
runs in slices between the loop's other work, not on a thread: Python's threads take turns of 5 ms, and an Allocate that
comes meanwhile would wait for them; a slice is over within one.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from deviceplugin.view import ResourceView
from inventory.ids import DeviceId
from inventory.preference import PendingPreference, UnknownDeviceError, any_answer

BUDGET_S = 0.4
SLICE_S = 0.002
GAP_S = 0.001


class Preferrer:
    """Answers GetPreferredAllocation. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, budget_s: float = BUDGET_S) -> None:
        self._clock = clock
        self._budget_s = budget_s

    async def choose(
        self, view: ResourceView, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[DeviceId, ...]:
        """The best set, or the best found within the budget. Raises UnsatisfiableError where no set exists at all."""
        free, pinned = [DeviceId(one) for one in available], [DeviceId(one) for one in required]
        try:
            pending = view.chooser.start(available=free, required=pinned, size=size, policy=view.policy)
        except UnknownDeviceError:
            # Kubelet's list is older than ours: any answer it understands beats an error, which would fail the pod.
            return any_answer(free, pinned, size)
        deadline = self._clock() + self._budget_s
        while True:
            if self._slice(pending) or self._clock() >= deadline:
                return pending.best.devices
            # A true pause: an RPC is several turns of the loop, and with sleep(0) each turn would cost it a slice.
            await asyncio.sleep(GAP_S)

    def _slice(self, pending: PendingPreference) -> bool:
        """Improve for at most a slice (and one step); True when nothing better will come."""
        end = self._clock() + SLICE_S
        while not pending.step():
            if self._clock() >= end:
                return False
        return True
