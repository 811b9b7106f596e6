"""Brings every GPU's MIG to its wish and keeps it there: one try after another, each GPU by itself.

A refused wish is tried again only when it is asked for again (``again``, or another wish). A wish that waits is tried
when the holders change and every few seconds; one that failed, after a while, and so is whatever left a GPU half cut:
its instances are withheld until the change is finished or undone.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from agent.mig.change import GpuChange, MigHardware, NodeServices
from agent.mig.journal import Journal
from agent.mig.outcomes import MigState, MigStatus, Outcome, Wish
from inventory.devices import Gpu, GpuUuid
from inventory.layout.entries import WhenBusy

log = logging.getLogger(__name__)

WAIT_POLL_S = 5.0
RETRY_S = 60.0
DRAIN_S = 600.0
"""The seconds after which pods that were evicted and are still there keep the layout they hold, and the wish is
Failed.
"""
SETTLE_S = 30.0


class ReconcilerServices(NodeServices, Protocol):
    """The parts of the agent that the reconciler uses, beside those that one change uses."""

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs as last discovered."""

    async def rediscover(self) -> None:
        """Return when a discovery that began after this call was taken in; bounded in time."""

    async def settle(self, gpu: GpuUuid, going: frozenset[str]) -> None:
        """Hear that a try has ended: withhold no device of the GPU any more but ``going`` (UUIDs), and those that its
        journal says are half cut.
        """

    def evict(self, pods: frozenset[str], why: str) -> None:
        """Let these pods (``namespace/name``) be evicted, in place of those of an earlier call; none ends the
        evictions.
        """

    def told(self, status: MigStatus) -> None:
        """Hear that a GPU's status has changed."""

    def nvml(self, gpu: Gpu, *, may_close: bool) -> MigHardware: ...


class MigReconciler:
    """The reconciler of all GPUs of a node. ``now`` gives seconds since the epoch."""

    def __init__(self, services: ReconcilerServices, journal: Journal, now: Callable[[], float]) -> None:
        self._services = services
        self._journal = journal
        self._now = now
        self._wishes: dict[GpuUuid, Wish] = {}
        self._undone: set[GpuUuid] = set()
        self._poked = asyncio.Event()
        self._running: dict[GpuUuid, asyncio.Task[bool]] = {}
        self._broken: BaseException | None = None
        self._tried_s: dict[GpuUuid, float] = {}
        self._news = 0
        self._heard: dict[GpuUuid, int] = {}
        """The value of ``_news`` when each GPU was tried last."""
        self.statuses: dict[GpuUuid, MigStatus] = {}

    def want(self, wishes: Mapping[GpuUuid, Wish], *, again: bool = False) -> None:
        """Take the wishes from now on; ``again``: refused wishes are tried once more."""
        for gpu in [gpu for gpu in self.statuses if again or self._wishes.get(gpu) != wishes.get(gpu)]:
            del self.statuses[gpu]
        self._wishes = dict(wishes)
        self.poke()

    def poke(self) -> None:
        """Hear that holders or instances may have changed."""
        self._news += 1
        self._poked.set()

    def is_running(self, gpu: GpuUuid) -> bool:
        """Whether a change of the GPU is under way, from its first step to the discovery that shows its outcome."""
        return gpu in self._running

    async def run(self) -> None:
        """Reconcile until cancelled. A change that takes long, or hangs, delays no other GPU's."""
        try:
            while True:
                self._poked.clear()
                for gpu in self._due():
                    work = self._one(gpu, self._wishes.get(gpu.uuid), may_close=True)
                    self._running[gpu.uuid] = asyncio.create_task(work, name=f"mig-{gpu.index}")
                    self._running[gpu.uuid].add_done_callback(partial(self._ended, gpu.uuid))
                await self._rest()
        finally:
            tasks = list(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rest(self) -> None:
        """Wait until a GPU is due. Raises the error of a try: tries end in outcomes, so an error is a defect."""
        impatient = any(status.state in (MigState.WAITING, MigState.FAILED) for status in self.statuses.values())
        impatient = impatient or any(self._half_cut(gpu.uuid) for gpu in self._services.gpus())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_POLL_S if impatient else None):
                await self._poked.wait()
        if self._broken is not None:
            raise self._broken

    def _ended(self, gpu: GpuUuid, task: "asyncio.Task[bool]") -> None:
        del self._running[gpu]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
        # A new wish came meanwhile, or this GPU is the first that waits: the time to rest is another now.
        self._poked.set()

    async def settle(self) -> bool:
        """Give GPUs without instances theirs, and finish interrupted changes, at the start and before anything is
        advertised.

        Bounded in time. True where the GPUs differ from the last discovery.
        """
        first = {
            gpu.uuid
            for gpu in self._services.gpus()
            if gpu.uuid in self._wishes and (not gpu.mig_instances or self._interrupted(gpu.uuid))
        }
        changed = False
        try:
            async with asyncio.timeout(SETTLE_S):
                changed = await self._pass(only=first, may_close=False)
        except TimeoutError:
            log.warning("MIG layouts are not restored yet: the others are advertised", extra={"after_s": SETTLE_S})
        return changed

    def _interrupted(self, gpu: GpuUuid) -> bool:
        entry = self._journal.read(gpu)
        return entry is not None and not entry.done

    def _half_cut(self, gpu: GpuUuid) -> bool:
        entry = self._journal.read(gpu)
        return entry is not None and entry.half_cut(self._services.boot_id)

    def _retries(self, gpu: GpuUuid) -> bool:
        return self._now() - self._tried_s[gpu] >= RETRY_S

    async def _pass(self, *, may_close: bool, only: set[GpuUuid] | None = None) -> bool:
        """Try all GPUs that are due. True where something was changed: by then it is discovered anew, but for
        ``only``.
        """
        due = [gpu for gpu in self._due() if only is None or gpu.uuid in only]
        tries = [self._one(gpu, self._wishes.get(gpu.uuid), may_close=may_close, discover=only is None) for gpu in due]
        return any(await asyncio.gather(*tries))

    def _due(self) -> list[Gpu]:
        return [gpu for gpu in self._services.gpus() if gpu.uuid not in self._running and self._is_due(gpu)]

    async def _one(self, gpu: Gpu, wish: Wish | None, *, may_close: bool, discover: bool = True) -> bool:
        """Give one GPU its turn; True where it was changed."""
        outcome = await self._try(gpu, wish, may_close=may_close)
        if outcome.changed and discover:
            await self._services.rediscover()
        self._note(gpu, wish, outcome)
        await self._services.settle(gpu.uuid, outcome.going)
        self._drain()
        return outcome.changed

    def _is_due(self, gpu: Gpu) -> bool:
        wish, status = self._wishes.get(gpu.uuid), self.statuses.get(gpu.uuid)
        if not gpu.readable:
            return False
        if wish is None:
            # A change was interrupted in its middle, by an earlier process or by a failure, and is no longer wanted.
            if gpu.uuid in self._undone:
                return self._retries(gpu.uuid) and self._half_cut(gpu.uuid)
            return self._interrupted(gpu.uuid)
        if status is None:
            return True
        if status.state is MigState.REFUSED:
            return self._retries(gpu.uuid) and self._half_cut(gpu.uuid)
        if status.state is MigState.FAILED:
            return self._retries(gpu.uuid)
        news = self._heard[gpu.uuid] < self._news
        if status.state is MigState.WAITING:
            return news or self._now() - self._tried_s[gpu.uuid] >= WAIT_POLL_S
        # Without news the GPU would be tried again and again where a wish is spelled otherwise than NVML spells it.
        return news and not is_so(gpu, wish)

    async def _try(self, gpu: Gpu, wish: Wish | None, *, may_close: bool) -> Outcome:
        self._tried_s[gpu.uuid], self._heard[gpu.uuid] = self._now(), self._news
        nvml = self._services.nvml(gpu, may_close=may_close)
        change = GpuChange(gpu.uuid, f"GPU {gpu.index}", nvml=nvml, services=self._services, journal=self._journal)
        if wish is None:
            self._undone.add(gpu.uuid)
            return await change.undo()
        return await change.bring(wish)

    def _note(self, gpu: Gpu, wish: Wish | None, outcome: Outcome) -> None:
        """Record the outcome, unless the wish has changed since: then it says nothing about the new wish."""
        if wish is None or wish != self._wishes.get(gpu.uuid):
            return
        old = self.statuses.get(gpu.uuid)
        state, sentence = outcome.state, outcome.sentence
        same = old is not None and old.state is state
        since_s = old.since_s if old is not None and same else self._now()
        if _drains(wish, state, outcome.pods) and self._now() - since_s >= DRAIN_S:
            state, since_s = MigState.FAILED, self._now()
            sentence = f"GPU {gpu.index}: {', '.join(outcome.pods)} did not go within {DRAIN_S:g} s of being evicted"
        status = MigStatus(gpu.uuid, gpu.index, str(wish), state, sentence, since_s, outcome.pods)
        self.statuses[gpu.uuid] = status
        if old is None or (old.state, old.sentence) != (state, sentence):
            self._services.told(status)

    def _drain(self) -> None:
        pods: set[str] = set()
        for gpu, status in self.statuses.items():
            wish = self._wishes.get(gpu)
            if wish is not None and _drains(wish, status.state, status.pods):
                pods.update(status.pods)
        self._services.evict(frozenset(pods), "the GPU's MIG layout is being changed")


def _drains(wish: Wish, state: MigState, pods: tuple[str, ...]) -> bool:
    return wish.when_busy is WhenBusy.DRAIN and state is MigState.WAITING and bool(pods)


def is_so(gpu: Gpu, wish: Wish) -> bool:
    """Whether a discovery shows the GPU as it is wished."""
    if wish.profiles is None:
        return not gpu.mig_enabled
    if wish.slots is not None:
        there = Counter((mig.profile, mig.start) for mig in gpu.mig_instances)
        return there == Counter((slot.profile, slot.start) for slot in wish.slots)
    return gpu.mig_enabled and Counter(mig.profile for mig in gpu.mig_instances) == Counter(wish.profiles)
