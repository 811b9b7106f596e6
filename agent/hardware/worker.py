"""One daemon thread for each GPU: NVML calls can hang, and a hung GPU must hang nothing but itself.

The thread takes calls from a short queue; between calls it waits in NVML for events, where it has a set of them: which
thread has one is decided in ``hearing``. Daemon threads, because an executor's threads would hold the process's exit
until the driver answers, which may be never.
"""

import asyncio
import ctypes
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import pynvml
from msgspec import Struct

from agent.hardware.query import CallFailed, CallTimedOut, NvmlError, ask, must
from inventory.devices import Gpu

log = logging.getLogger(__name__)

T = TypeVar("T")

EVENT_WAIT_MS = 1000
HURRIED_WAIT_MS = 50
"""The length in ms of the thread's waits for events after ``GpuWorker.hurry``: a call has to wait until the present one
ends.
"""
ALERT_S = 3.0
"""The seconds after an event in which waits are as short: a fault is often followed by the end of the session, so that
the GPU can be reset.
"""
CALL_TIMEOUT_S = 5.0
HANGS_AFTER_S = 5.0
"""The seconds by which a wait for events must exceed its time to count as hanging."""
QUEUE_LENGTH = 8
MAX_LATE_EVENTS = 64
"""The most events that are still taken out of a set before it is freed."""
WHOLE_GPU = 0xFFFFFFFF
EVENT_TYPES = (
    pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError | pynvml.nvmlEventTypeSingleBitEccError
)


class XidEvent(Struct, frozen=True):
    """An XID as NVML delivered it. ``gi`` and ``ci`` are None when it concerns the whole GPU.

    ``place`` is what ``GpuWorker.adopt`` was given for the event's handle. ``device`` is that handle where it is not
    one of those listened to, else None: some libraries deliver an event to whichever set is waited on.
    """

    xid: int
    gi: int | None = None
    ci: int | None = None
    device: Any = None
    place: int | None = None


class GpuWorker:
    """Runs NVML calls of one GPU (or of the driver as a whole) one after another, off the event loop.

    ``_events``, ``_watched``, ``_failed`` and ``_waits_until_s`` are written by the thread alone; the loop reads them,
    and may see a value that is one call old. ``_hurried_until_s`` is written by the loop alone. Futures are completed
    on the loop, never on the thread.

    ``_watched`` has the addresses of the handles listened to. A set that failed is kept, and not waited on: events
    still in it are told when it is freed.

    ``on_event`` is called on the event loop for each XID of the handles listened to, ``on_deaf`` when waiting has
    failed.
    """

    def __init__(
        self,
        name: str,
        on_event: Callable[[XidEvent], None] | None = None,
        on_deaf: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._on_deaf = on_deaf
        # SimpleQueue rather than a Queue with a bound: a Queue's lock and condition are Python, and cost more than the
        # rest of a call's way. The loop alone puts, so that the length it looks at before is a bound.
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._events: Any = None
        self._watched: Mapping[int | None, int | None] = {}
        self._failed = False
        self._waits_until_s: float | None = None
        self._hurried_until_s = 0.0
        self._ended = asyncio.Event()
        """The event is set when the thread has made its last call."""
        self._thread = threading.Thread(target=self._run, name=f"nvml-{name}", daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[], T], timeout_s: float = CALL_TIMEOUT_S) -> T:
        """Run ``function`` on the thread. Raises what it raises, and CallTimedOut when it (or one before it) hangs."""
        if self._calls.qsize() >= QUEUE_LENGTH:
            raise CallTimedOut("earlier NVML calls of this GPU have not returned")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._calls.put((function, answer))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise CallTimedOut(f"NVML did not answer within {timeout_s:g} s") from None

    async def watch(self, handle: Any) -> bool:
        """Deliver this handle's events from now on, in place of an earlier handle's. False where the GPU has none."""
        return await self.call(lambda: self._register(handle))

    async def adopt(self, events: Any, places: Mapping[int | None, int]) -> None:
        """Wait on this set from now on, in place of an earlier one. ``places``: by address, the handles that are in it.

        Whatever this raises, the set is the thread's: it frees it.
        """
        await self.call(lambda: self._take(events, places))

    async def drain(self) -> None:
        """Tell the events that have come to the set until now."""
        await self.call(self._drain)

    def watches(self, handle: Any) -> bool:
        """Whether events of this very handle, and of no other, are heard now."""
        return self.watches_all({address(handle)})

    def watches_all(self, addresses: Collection[int | None]) -> bool:
        """Whether events of just these handles are heard now."""
        return self._events is not None and not self._failed and set(self._watched) == set(addresses)

    @property
    def listens(self) -> bool:
        """Whether the thread has a set of events."""
        return self._events is not None

    @property
    def deaf(self) -> bool:
        """Whether waiting for events failed since ``watch``: they are heard again only after another ``watch``."""
        return bool(self._watched) and (self._events is None or self._failed)

    @property
    def late(self) -> bool:
        """Whether a wait for events has not come back in its time, and for so long that it must be called hanging."""
        until_s = self._waits_until_s
        return until_s is not None and time.monotonic() > until_s + HANGS_AFTER_S

    @property
    def ended(self) -> bool:
        """Whether the thread has made its last call, after ``close``."""
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Wait until the thread has made its last call, after ``close``."""
        await self._ended.wait()

    async def unwatch(self, timeout_s: float) -> None:
        """Stop hearing events. Raises CallTimedOut when the thread hangs."""
        await self.call(self._release, timeout_s)

    def hurry(self, seconds: float) -> None:
        """Let calls of the next ``seconds`` wait at most 50 ms for the thread: it waits for events in shorter turns."""
        self._hurried_until_s = time.monotonic() + seconds

    def close(self) -> None:
        """Let the thread end after what it is doing, without waiting for it."""
        self._calls.put(None)

    def _register(self, handle: Any) -> bool:
        self._release()
        self._watched = {address(handle): None}
        try:
            self._events = make_set()
            if join(self._events, handle):
                return True
        except CallFailed as refused:
            log.debug("no events: %s", refused)
        except NvmlError:
            self._free()
            raise
        self._free()
        self._watched = {}
        return False

    def _take(self, events: Any, places: Mapping[int | None, int]) -> None:
        self._release()
        self._events, self._watched = events, places

    def _release(self) -> None:
        self._drain()
        self._watched = {}
        self._free()

    def _drain(self) -> None:
        for _ in range(MAX_LATE_EVENTS):
            if not self._wait_for_event(0):
                break

    def _free(self) -> None:
        events, self._events, self._failed = self._events, None, False
        if events is not None:
            free_set(events)

    def _run(self) -> None:
        alert_until_s = 0.0
        while True:
            try:
                item = self._calls.get(block=self._events is None or self._failed)
            except queue.Empty:
                short = time.monotonic() < max(self._hurried_until_s, alert_until_s)
                if self._wait_for_event(min(HURRIED_WAIT_MS, EVENT_WAIT_MS) if short else EVENT_WAIT_MS):
                    alert_until_s = time.monotonic() + ALERT_S
                continue
            if item is None:
                self._release()
                self._tell(self._ended.set)
                return
            if not item[1].done():  # the caller has given up: the handles that it meant may be gone
                self._answer(*item)

    def _answer(self, function: Callable[[], Any], answer: "asyncio.Future[Any]") -> None:
        try:
            result = function()
        except NvmlError as failed:
            self._tell(_fail, answer, failed)
        except Exception as failed:  # noqa: BLE001 - a thread's boundary: the caller gets whatever it was
            self._tell(_fail, answer, failed)
        else:
            self._tell(_resolve, answer, result)

    def _wait_for_event(self, wait_ms: int) -> bool:
        """Tell the next event; False where none came."""
        if self._events is None:
            return False
        self._waits_until_s = time.monotonic() + wait_ms / 1000
        try:
            data = pynvml.nvmlEventSetWait_v2(self._events, wait_ms)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT and not self._failed:
                # The GPU is lost or the driver stopped: without this the wait would fail again at once, for ever. The
                # next probe says what happened, and a recovered GPU is watched anew.
                log.debug("no more events from %s: %s", self._thread.name, error)
                self._failed = True
                self._tell(self._on_deaf)
            return False
        finally:
            self._waits_until_s = None
        if data.eventType == pynvml.nvmlEventTypeXidCriticalError and self._on_event is not None:
            gi, ci = (None if v == WHOLE_GPU else int(v) for v in (data.gpuInstanceId, data.computeInstanceId))
            there = address(data.device)
            if there is None and len(self._watched) == 1:  # a library that names no GPU: in this set it can be one only
                (there,) = self._watched
            device, place = None if there in self._watched else data.device, self._watched.get(there)
            self._tell(self._on_event, XidEvent(xid=int(data.eventData), gi=gi, ci=ci, device=device, place=place))
        return True

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop is closed: the agent is ending.
            log.debug("an NVML answer came after the end")


def make_set() -> Any:
    """A new event set. Raises as ``query.must``."""
    return must(pynvml.nvmlEventSetCreate)


def join(events: Any, handle: Any) -> bool:
    """Add this GPU's events to the set; False where it has none. Raises as ``query.must``."""
    supported = ask(pynvml.nvmlDeviceGetSupportedEventTypes, handle)
    if not supported:
        return False
    must(pynvml.nvmlDeviceRegisterEvents, handle, supported & EVENT_TYPES, events)
    return True


def free_set(events: Any) -> None:
    """Free the event set; a failure is logged."""
    try:
        must(pynvml.nvmlEventSetFree, events)
    except NvmlError as failed:
        log.debug("event set not freed: %s", failed)


def address(handle: Any) -> int | None:
    """The identity of a handle: the address in its opaque pointer."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _resolve(answer: "asyncio.Future[Any]", result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[Any]", error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


class Slot:
    """An index with its thread, and the handle and GPU last found there.

    ``Driver`` alone writes ``handle`` and ``gpu``, on the event loop and after a call has returned: threads get those
    of their call. ``handle`` is NVML's for the open session: None before the first read, and once the session is closed
    or NVML lists fewer GPUs. ``gpu`` is what the last read gave; None as long. A GPU known from before that cannot be
    read has a ``gpu`` and no ``handle``.
    """

    def __init__(self, index: int, on_event: Callable[["Slot", XidEvent], None]) -> None:
        self.index = index
        self.handle: Any = None
        self.gpu: Gpu | None = None
        self.worker = GpuWorker(f"gpu{index}", lambda event: on_event(self, event))
        self._changes: GpuWorker | None = None

    @property
    def changes(self) -> GpuWorker:
        """A second thread, for calls that take long or may hang: the GPU's probes and events go on meanwhile."""
        if self._changes is None:
            self._changes = GpuWorker(f"gpu{self.index}-mig")
        return self._changes

    async def quiet(self, timeout_s: float) -> None:
        """Wait until neither thread is inside NVML. Raises CallTimedOut when one hangs."""
        await self.worker.unwatch(timeout_s)
        if self._changes is not None:
            await self._changes.unwatch(timeout_s)
