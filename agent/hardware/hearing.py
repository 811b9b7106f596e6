"""Decides which thread waits for the GPUs' events: one for all, or each GPU's own where anything is out of the
ordinary.

    together: one set has every GPU, one thread waits; a GPU's own thread is free for the next call
    apart:    a set and a wait for each GPU, on its own thread, so that what hangs or fails is that GPU's own matter

    apart ----every GPU was read, and has joined a new set--> together
    together --the wait fails or hangs, a GPU was reset, an event is of no GPU of the set--> apart

GPUs join by a call on their own threads, and a set is waited on when all have: it is never changed under a wait. Until
the new ones are heard the old ones are; what both tell is told once. An XID that a GPU repeats in that moment may count
once for both.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from functools import partial

from agent.hardware.query import CallTimedOut, NvmlError
from agent.hardware.worker import GpuWorker, Slot, XidEvent, address, free_set, join, make_set

log = logging.getLogger(__name__)

RETIRE_TIMEOUT_S = 2.0
TOGETHER_AGAIN_S = 300.0
"""Seconds for which GPUs stay apart, unless a discovery finds all well before."""


class Hearing:
    """The events of one session's GPUs at a time. All state is written on the event loop.

    ``on_event`` gets each XID with the slot that it came to; None where it came to the set of all, and no GPU in it has
    the event's handle. ``_thread`` waits for all together, None while they are apart. ``_stuck`` are threads that hung
    in a wait: while one does, nothing is tried together. ``_changing`` is the lock to change the threads or ``_slots``.
    """

    def __init__(self, on_event: Callable[[Slot | None, XidEvent], None]) -> None:
        self._on_event = on_event
        self._slots: Sequence[Slot] = ()
        self._thread: GpuWorker | None = None
        self._stuck: list[GpuWorker] = []
        self._changing = asyncio.Lock()
        self._once: Once | None = None
        self._apart_since_s = 0.0
        self._hurried_until_s = 0.0
        """Until when threads wait in short turns, also those that are made meanwhile: by ``time.monotonic``."""
        self._strangers = False
        """Whether events carried handles that nobody has registered: then only a set for each GPU tells whose
        they are.
        """
        self._mending: asyncio.Task[None] | None = None

    async def hear(self, slots: Sequence[Slot]) -> None:
        """Hear these GPUs, which have handles, and no others."""
        async with self._changing:
            self._slots = tuple(slots)
            thread = self._thread
            if thread is not None and not thread.late and thread.watches_all({address(slot.handle) for slot in slots}):
                return
            if not await self._together():
                await self._apart()

    async def renew(self, slot: Slot) -> None:
        """Hear this GPU anew: it has another handle, or its own thread has stopped hearing it."""
        async with self._changing:
            if self._thread is not None:
                await self._apart()
            else:
                await _listen(slot)

    def deaf(self, slot: Slot) -> bool:
        """Whether this GPU is not heard any more, and ``renew`` may help."""
        return self._thread is None and slot.worker.deaf

    def hurry(self, seconds: float) -> None:
        """Shorten the waits for ``seconds``, as ``GpuWorker.hurry`` does: a session's end waits less."""
        self._hurried_until_s = time.monotonic() + seconds
        if self._thread is not None:
            self._thread.hurry(seconds)

    def told(self, slot: Slot, event: XidEvent) -> None:
        """Take an event that came to a GPU's own thread."""
        self._tell(slot.worker, slot, event)

    def tend(self) -> None:
        """Mend the waits; called every few seconds, and when waiting fails.

        GPUs part when the wait for all hangs or has failed, and come together again after some time.
        """
        if self._mending is not None and not self._mending.done():
            return
        thread = self._thread
        if thread is not None and (thread.late or thread.deaf):
            log.warning("waiting for the events of all GPUs %s", "hangs" if thread.late else "has failed")
            self._mending = asyncio.create_task(self._mend(self._apart))
        elif thread is None and self._slots and self._now_s() > self._apart_since_s + TOGETHER_AGAIN_S:
            self._apart_since_s = self._now_s()
            self._mending = asyncio.create_task(self._mend(self._together))

    async def close(self) -> None:
        """Hear nothing more. Raises CallTimedOut where a thread hangs in a wait.

        A change that the session's end cuts off leaves a thread that is about to end: it is waited for.
        """
        if self._mending is not None:
            self._mending.cancel()
        async with self._changing:
            self._slots = ()
            thread, self._thread = self._thread, None
            if thread is not None:
                await self._retire(thread)
        if self._still_stuck():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETIRE_TIMEOUT_S):
                    await asyncio.gather(*(thread.wait_ended() for thread in self._stuck))
        if self._still_stuck():
            raise CallTimedOut("a wait for events has not come back")

    async def _mend(self, change: Callable[[], Awaitable[object]]) -> None:
        async with self._changing:
            await change()

    async def _together(self) -> bool:
        """Let one thread hear all GPUs; False, and nothing has changed, where that cannot be."""
        slots = self._slots
        ready = all(slot.gpu is not None and slot.gpu.readable for slot in slots)
        if not slots or not ready or self._strangers or self._still_stuck():
            return False
        thread = GpuWorker("events", partial(self._heard, slots), self.tend)
        thread.hurry(self._hurried_until_s - time.monotonic())
        with self._overlap():
            try:
                if await self._fill(thread, slots):
                    await self._take_over(thread, slots)
                    return True
            except NvmlError as failed:
                log.debug("events are waited for one by one: %s", failed)
                self._stuck.append(thread)
                if self._thread is thread:
                    await self._apart()
            finally:
                if self._thread is not thread:
                    thread.close()
        return False

    async def _fill(self, thread: GpuWorker, slots: Sequence[Slot]) -> bool:
        """Give the thread a set that every GPU has joined; False where one cannot. Raises NvmlError."""
        events = await thread.call(make_set)
        joins = (slot.worker.call(partial(join, events, slot.handle)) for slot in slots)
        joined = await asyncio.gather(*joins, return_exceptions=True)
        if any(isinstance(outcome, CallTimedOut) for outcome in joined):
            return False  # that call may come back at any time: its set is left to it, as its thread is
        if not all(outcome is True for outcome in joined):
            await thread.call(partial(free_set, events))
            return False
        await thread.adopt(events, {address(slot.handle): place for place, slot in enumerate(slots)})
        return True

    async def _take_over(self, thread: GpuWorker, slots: Sequence[Slot]) -> None:
        before, self._thread = self._thread, thread
        owners = [slot.worker for slot in slots if slot.worker.listens]
        if before is None and not owners:
            return
        thread.hurry(max(RETIRE_TIMEOUT_S, self._hurried_until_s - time.monotonic()))
        if before is not None:
            await self._retire(before)
        await asyncio.gather(*(owner.unwatch(RETIRE_TIMEOUT_S) for owner in owners), return_exceptions=True)
        await thread.drain()

    async def _apart(self) -> None:
        """Let each GPU's own thread hear it."""
        thread, self._thread = self._thread, None
        self._apart_since_s = self._now_s()
        slots = [slot for slot in self._slots if thread is not None or not slot.worker.watches(slot.handle)]
        with self._overlap():
            try:
                await asyncio.gather(*(_listen(slot) for slot in slots))
            finally:  # cancelled by the session's end, too: nothing may wait when NVML is shut down
                if thread is not None:
                    await self._retire(thread)
            if thread is not None:
                await asyncio.gather(*(slot.worker.drain() for slot in slots), return_exceptions=True)

    async def _retire(self, thread: GpuWorker) -> None:
        """Let the thread tell what its set still has, and end."""
        try:
            await thread.unwatch(RETIRE_TIMEOUT_S)
        except NvmlError as failed:
            log.warning("a wait for events does not come back", extra={"error": str(failed)})
            self._stuck.append(thread)
        except asyncio.CancelledError:
            self._stuck.append(thread)
            raise
        finally:
            thread.close()

    def _still_stuck(self) -> bool:
        self._stuck = [thread for thread in self._stuck if not thread.ended]
        return bool(self._stuck)

    def _heard(self, slots: Sequence[Slot], event: XidEvent) -> None:
        """Take an event that came to the set of all these GPUs."""
        if not self._slots:
            return
        if event.place is not None:
            self._tell(slots, slots[event.place], event)
            return
        self._strangers = True
        self._on_event(None, event)
        thread = self._thread
        if thread is not None and (self._mending is None or self._mending.done()):
            log.info("events carry handles that are no GPU's: each GPU waits for its own from now on")
            self._mending = asyncio.create_task(self._mend(self._apart))

    def _tell(self, source: object, slot: Slot, event: XidEvent) -> None:
        key = slot.index, event.xid, event.gi, event.ci
        if slot in self._slots and (self._once is None or self._once.is_first(id(source), key)):
            self._on_event(slot, event)

    @contextlib.contextmanager
    def _overlap(self) -> Iterator[None]:
        """A context in which both the old sets and the new are heard, and what both tell is told once."""
        self._once = Once()
        try:
            yield
        finally:
            self._once = None

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


class Once:
    """Counts events that several sources tell: an event counts as often as the source told it that told it most
    often.
    """

    def __init__(self) -> None:
        self._by_source: Counter[tuple[Hashable, Hashable]] = Counter()
        self._told: Counter[Hashable] = Counter()

    def is_first(self, source: Hashable, event: Hashable) -> bool:
        """Whether this is a new event, rather than one known from another source."""
        self._by_source[source, event] += 1
        first = self._by_source[source, event] > self._told[event]
        self._told[event] += first
        return first


async def _listen(slot: Slot) -> None:
    try:
        heard = await slot.worker.watch(slot.handle)
    except NvmlError as failed:
        log.warning("no XID events", extra={"gpu": slot.index, "error": str(failed)})
        return
    if not heard:
        log.info("this GPU has no XID events", extra={"gpu": slot.index})
