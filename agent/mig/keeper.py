"""Brings every GPU's MIG to what is wished of it and keeps it there: one try after another, each GPU by itself.

A refused wish is not tried again until somebody asks again (``again``, or another wish): refusing is not waiting. One
that waits is tried when the holders change and every few seconds; one that failed, after a while.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from agent.mig.change import GpuChange, Ground, Hands
from agent.mig.journal import Journal
from agent.mig.outcomes import MigState, MigStatus, Outcome, Wish
from inventory.devices import Gpu
from inventory.gpulayout import WhenBusy
from inventory.ids import GpuUuid

log = logging.getLogger(__name__)

WAIT_POLL_S = 5.0
RETRY_S = 60.0
DRAIN_S = 600.0
"""Pods that are evicted and still there after that keep the layout they hold: Failed."""
SETTLE_S = 30.0


class Surroundings(Ground, Protocol):
    """What the keeper needs of the agent beside what one change needs."""

    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs as last discovered."""

    async def rediscover(self) -> None:
        """Have a discovery taken in that began after this call; bounded."""

    async def settle(self, gpu: GpuUuid, going: frozenset[str]) -> None:
        """Nothing of the GPU is withheld any more but ``going`` (UUIDs)."""

    def evict(self, pods: frozenset[str], why: str) -> None:
        """Have these pods evicted (``namespace/name``); replaces an earlier call, none ends it."""

    def told(self, status: MigStatus) -> None:
        """A GPU's status is another now."""

    def hands(self, gpu: Gpu, *, may_close: bool) -> Hands: ...


class MigKeeper:
    """All GPUs of a node. ``now`` gives seconds since the epoch."""

    def __init__(self, around: Surroundings, journal: Journal, now: Callable[[], float]) -> None:
        self._around = around
        self._journal = journal
        self._now = now
        self._wishes: dict[GpuUuid, Wish] = {}
        self._undone: set[GpuUuid] = set()
        self._poked = asyncio.Event()
        self._passing = asyncio.Lock()
        self._tried_s: dict[GpuUuid, float] = {}
        self.statuses: dict[GpuUuid, MigStatus] = {}

    def want(self, wishes: Mapping[GpuUuid, Wish], *, again: bool = False) -> None:
        """What is wished from now on; ``again``: somebody asked anew, so that what was refused is tried once more."""
        for gpu in [gpu for gpu in self.statuses if again or self._wishes.get(gpu) != wishes.get(gpu)]:
            del self.statuses[gpu]
        self._wishes = dict(wishes)
        self._poked.set()

    def poke(self) -> None:
        """Something that matters may have changed: holders, instances."""
        self._poked.set()

    async def run(self) -> None:
        """Keep until cancelled."""
        while True:
            self._poked.clear()
            await self._pass(may_close=True)
            waiting = [one.state for one in self.statuses.values() if one.state in (MigState.WAITING, MigState.FAILED)]
            try:
                async with asyncio.timeout(WAIT_POLL_S if waiting else None):
                    await self._poked.wait()
            except TimeoutError:
                continue

    async def settle(self) -> bool:
        """At the start, before anything is advertised: GPUs without instances get theirs, and interrupted ones too.

        Bounded. True where something is other than the last discovery said.
        """
        first = {
            gpu.uuid
            for gpu in self._around.gpus()
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

    async def _pass(self, *, may_close: bool, only: set[GpuUuid] | None = None) -> bool:
        """Try all that is due. True where something was changed: by then it is discovered anew, but for ``only``."""
        async with self._passing:
            due = [gpu for gpu in self._around.gpus() if (only is None or gpu.uuid in only) and self._is_due(gpu)]
            wishes = [self._wishes.get(gpu.uuid) for gpu in due]
            tries = zip(due, wishes, strict=True)
            outcomes = await asyncio.gather(*(self._try(gpu, wish, may_close=may_close) for gpu, wish in tries))
            changed = any(outcome.changed for outcome in outcomes)
            if changed and only is None:
                await self._around.rediscover()
            for gpu, wish, outcome in zip(due, wishes, outcomes, strict=True):
                self._note(gpu, wish, outcome)
                await self._around.settle(gpu.uuid, outcome.going)
            self._drain()
            return changed

    def _is_due(self, gpu: Gpu) -> bool:
        wish, status = self._wishes.get(gpu.uuid), self.statuses.get(gpu.uuid)
        if not gpu.readable:
            return False
        if wish is None:
            # Left by an earlier life in the middle of a change, and wished by nobody any more.
            return gpu.uuid not in self._undone and self._interrupted(gpu.uuid)
        if status is None:
            return True
        if status.state is MigState.REFUSED:
            return False
        if status.state is MigState.FAILED:
            return self._now() - self._tried_s[gpu.uuid] >= RETRY_S
        return status.state is MigState.WAITING or not is_so(gpu, wish)

    async def _try(self, gpu: Gpu, wish: Wish | None, *, may_close: bool) -> Outcome:
        self._tried_s[gpu.uuid] = self._now()
        hands = self._around.hands(gpu, may_close=may_close)
        change = GpuChange(gpu.uuid, f"GPU {gpu.index}", hands=hands, ground=self._around, journal=self._journal)
        if wish is None:
            self._undone.add(gpu.uuid)
            return await change.undo()
        return await change.bring(wish)

    def _note(self, gpu: Gpu, wish: Wish | None, outcome: Outcome) -> None:
        """Remember how it stands. What was tried for a wish that is another by now says nothing about that one."""
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
            self._around.told(status)

    def _drain(self) -> None:
        pods: set[str] = set()
        for gpu, status in self.statuses.items():
            wish = self._wishes.get(gpu)
            if wish is not None and _drains(wish, status.state, status.pods):
                pods.update(status.pods)
        self._around.evict(frozenset(pods), "the GPU's MIG layout is being changed")


def _drains(wish: Wish, state: MigState, pods: tuple[str, ...]) -> bool:
    return wish.when_busy is WhenBusy.DRAIN and state is MigState.WAITING and bool(pods)


def is_so(gpu: Gpu, wish: Wish) -> bool:
    """Whether a discovery shows the GPU as it is wished."""
    if wish.profiles is None:
        return not gpu.mig_enabled
    return gpu.mig_enabled and Counter(mig.profile for mig in gpu.mig_instances) == Counter(wish.profiles)
