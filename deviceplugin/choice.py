"""Prefers devices without holding anybody up: the shell around ``inventory.preference.preference``.

Where the controller planned which devices the next container gets, a ``Planner`` says so, and the links do not decide.

A search on links that are not tabulated yet (13 to 16 GPUs, arbitrary links) takes up to some hundred milliseconds. It
runs in slices between the loop's other work, not on a thread: Python's threads take turns of 5 ms, and an Allocate that
comes meanwhile would wait for them; a slice is over within one.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from deviceplugin.view import ResourceView
from inventory.devices import DeviceId, ResourceName
from inventory.preference.preference import PendingPreference, UnknownDeviceError, UnsatisfiableError, any_answer

BUDGET_S = 0.4
SLICE_S = 0.002
GAP_S = 0.001


class Advice(Protocol):
    """A planner's advice. ``devices``: the planned ones, empty where no plan decides. ``avoid``: those that are planned
    for others.

    ``gpus``: for percents, the number of GPUs that they are to lie on; 0 where the pod's annotation names no valid
    number.
    """

    @property
    def devices(self) -> tuple[DeviceId, ...]: ...
    @property
    def avoid(self) -> frozenset[DeviceId]: ...
    @property
    def gpus(self) -> int: ...


class Planner(Protocol):
    """The plans for pods. ``advise`` may wait a moment for news; ``given`` gets the devices that Allocate
    handed out.
    """

    async def advise(
        self, resource: ResourceName, available: Sequence[DeviceId], required: Sequence[DeviceId], size: int
    ) -> Advice: ...

    def given(self, resource: ResourceName, devices: Iterable[DeviceId]) -> None: ...

    def gpus_asked(self, resource: ResourceName, size: int) -> frozenset[int]:
        """The numbers of GPUs on which a request of that size may be meant to lie; empty where no waiting pod asks for
        it.
        """
        ...


class Preferrer:
    """Answers GetPreferredAllocation. ``clock`` is monotonic seconds; without a ``planner`` the links alone decide."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        budget_s: float = BUDGET_S,
        planner: Planner | None = None,
    ) -> None:
        self._clock = clock
        self._budget_s = budget_s
        self._planner = planner

    def given(self, view: ResourceView, devices: Iterable[str]) -> None:
        """Record that Allocate handed these devices out."""
        if self._planner is not None:
            self._planner.given(view.resource.name, map(DeviceId, devices))

    def gpus_asked(self, view: ResourceView, size: int) -> frozenset[int]:
        """The numbers of GPUs on which the percents of a request of that size may lie: one, unless a waiting pod asks
        for more.
        """
        asked = self._planner.gpus_asked(view.resource.name, size) if self._planner is not None else frozenset()
        return asked or frozenset({1})

    async def choose(
        self, view: ResourceView, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[DeviceId, ...]:
        """The best set, or the best found within the budget. Raises UnsatisfiableError where no set exists at all.

        A request for no device gets an empty answer, as from NVIDIA's plugin.
        """
        if size == 0 and not required:
            return ()
        gpus = 1
        free, pinned = [DeviceId(device) for device in available], [DeviceId(device) for device in required]
        if self._planner is not None:
            # The kubelet may not know yet which devices are Unhealthy: the choice must be one that Allocate will grant.
            usable = [device for device in free if device not in view.unhealthy]
            advice = await self._planner.advise(view.resource.name, usable, pinned, size)
            if advice.devices:
                return advice.devices
            free, gpus = _without(free, advice.avoid.difference(pinned), size), advice.gpus
        try:
            pending = self._start(view, free, [DeviceId(device) for device in available], pinned, size, gpus)
        except UnknownDeviceError:
            # The kubelet's list is older than ours: any answer it understands beats an error, which would fail the pod.
            return any_answer(free, pinned, size)
        deadline = self._clock() + self._budget_s
        while True:
            if self._slice(pending) or self._clock() >= deadline:
                return pending.best.devices
            # GAP_S is a true pause: an RPC is several turns of the loop, and with sleep(0) each turn would cost it a
            # slice.
            await asyncio.sleep(GAP_S)

    @staticmethod
    def _start(
        view: ResourceView,
        free: Sequence[DeviceId],
        every: Sequence[DeviceId],
        pinned: Sequence[DeviceId],
        size: int,
        gpus: int,
    ) -> PendingPreference:
        """Start a choice from ``free``; where that has no answer, though ``every`` may have one (percents of one GPU),
        from ``every``.
        """
        try:
            return view.chooser.start(available=free, required=pinned, size=size, policy=view.policy, gpus=gpus)
        except UnsatisfiableError:
            if len(free) == len(every):
                raise
            return view.chooser.start(available=every, required=pinned, size=size, policy=view.policy, gpus=gpus)

    def _slice(self, pending: PendingPreference) -> bool:
        """Improve ``pending`` for at most a slice (and one step); True when no better set will come."""
        end = self._clock() + SLICE_S
        while not pending.step():
            if self._clock() >= end:
                return False
        return True


def _without(free: list[DeviceId], avoid: frozenset[DeviceId], size: int) -> list[DeviceId]:
    """``free`` without the devices that are planned for other pods, where enough are left."""
    rest = [device for device in free if device not in avoid] if avoid else free
    return rest if len(rest) >= size else free
