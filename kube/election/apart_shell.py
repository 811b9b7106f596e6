"""Leadership that is renewed on a thread of its own, as long as the loop that acts shows life.

Renewals must not wait behind the work of the loop that acts: a loop that is busy for seconds would lose a lease that no
other process could use better. A loop that stands still must lose it: the thread renews only while the loop has shown
life within the last third of the lease (``kube.election.candidate``). Code that holds the interpreter's lock stops the
thread as well, and the lease runs out.

    async with LeadershipApart(connect, [LeaseRef("tessera", "tessera-controller"), ...], ...) as leadership:
        while not await leadership.lead(work):
            ...   # lost: the work was cancelled; campaign anew, or end
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, Self

from kube.client import Client
from kube.clock import Clock
from kube.election.lease import Identity, Leadership, LeaseRef, LeaseTiming

_BEATS: Final = 10
"""The number of signs of life in the time for which a loop may be silent."""
_JOIN_S: Final = 5.0


class LeadershipApart:
    """A ``Leadership`` on a thread. ``clock`` is read on both threads and waited for on both loops.

    ``_life_s`` is written by the loop that acts and read by the thread; the loop reads the fields of leadership that
    the thread writes. Each is one reference to one float, which Python reads and writes whole.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        leases: Sequence[LeaseRef],
        *,
        me: Identity,
        clock: Clock,
        random: Callable[[], float],
        timing: LeaseTiming | None = None,
    ) -> None:
        """``connect`` makes the client that renews, and is called on the thread."""
        self._connect = connect
        self._refs = tuple(leases)
        self._me = me
        self._clock = clock
        self._random = random
        self._timing = timing or LeaseTiming()
        self._life_s = clock.monotonic()
        self._leadership: Leadership | None = None
        self._theirs: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def leading(self) -> bool:
        """Whether this process may act now: by the clock, however far the thread is."""
        return self.held_for_s > 0

    @property
    def held_for_s(self) -> float:
        return self._leadership.held_for_s if self._leadership is not None else 0.0

    @property
    def waiting_for(self) -> str | None:
        """The lease that this process lacks and its holder, for people; None while it leads."""
        return self._leadership.waiting_for if self._leadership is not None else "the start of the election"

    async def __aenter__(self) -> Self:
        """Start the thread. Raises what opening the client raises."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._thread = threading.Thread(
            target=self._run, args=(asyncio.get_running_loop(), started), name="election", daemon=True
        )
        self._thread.start()
        await started
        self._beating = asyncio.create_task(self._beat(), name="sign-of-life")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._beating is not None
        assert self._theirs is not None
        assert self._thread is not None
        self._beating.cancel()
        with suppress(RuntimeError):  # the thread's loop is closed: it has ended
            self._theirs.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join, _JOIN_S)

    async def _beat(self) -> None:
        while True:
            self._life_s = self._clock.monotonic()
            await asyncio.sleep(self._timing.silence_s / _BEATS)

    async def lead(self, work: Callable[[], Awaitable[None]]) -> bool:
        """See ``Leadership.lead``. ``work`` runs on the calling loop, and the leases are released after it has
        ended.
        """
        assert self._theirs is not None
        assert self._leadership is not None
        term = _Term(asyncio.get_running_loop(), self._theirs)
        self._theirs.call_soon_threadsafe(term.begin, self._leadership)
        working: asyncio.Task[None] | None = None
        try:
            await _first(term.acquired, term.over)
            if term.acquired.done():
                working = asyncio.create_task(_awaited(work), name="leader")
                await _first(working, term.lost, term.over)
        finally:
            ended_by_itself = working is not None and working.done()
            if working is not None:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            self._theirs.call_soon_threadsafe(term.end)
            # The wait is shielded: a process that is being cancelled must still release its leases.
            await asyncio.shield(term.over)
        if working is not None and not working.cancelled():
            working.result()
        if (failure := term.failure) is not None:
            raise failure
        return ended_by_itself

    # -- on the thread -----------------------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop, started: "asyncio.Future[None]") -> None:
        try:
            asyncio.run(self._serve(loop, started))
        except Exception as failed:  # noqa: BLE001 - raised where it is waited for
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_fail, started, failed)

    async def _serve(self, loop: asyncio.AbstractEventLoop, started: "asyncio.Future[None]") -> None:
        async with self._connect() as client:
            self._theirs = asyncio.get_running_loop()
            self._leadership = Leadership(
                client,
                self._refs,
                me=self._me,
                clock=self._clock,
                random=self._random,
                timing=self._timing,
                life_s=lambda: self._life_s,
            )
            loop.call_soon_threadsafe(_succeed, started)
            await self._stop.wait()


class _Term:
    """One call of ``lead``, between two loops: ``acquired``, ``lost`` and ``over`` belong to the loop that acts, all
    other fields to the thread's. ``over`` is done when the leases are released; ``failure`` is then the campaign's
    error.
    """

    def __init__(self, ours: asyncio.AbstractEventLoop, theirs: asyncio.AbstractEventLoop) -> None:
        self._ours = ours
        self._theirs = theirs
        self.acquired: asyncio.Future[None] = ours.create_future()
        self.lost: asyncio.Future[None] = ours.create_future()
        self.over: asyncio.Future[None] = ours.create_future()
        self.failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._held = False
        self._task: asyncio.Task[bool] | None = None

    def begin(self, leadership: Leadership) -> None:
        self._task = self._theirs.create_task(leadership.lead(self._hold), name="leadership")
        self._task.add_done_callback(self._over)

    def end(self) -> None:
        """Release the leases: the work has ended, or was never begun."""
        assert self._task is not None
        self._ended.set()
        if not self._held:
            self._task.cancel()

    async def _hold(self) -> None:
        """Hold leadership until it is lost or the work ends. Once lost, the leases are released only after the work has
        ended: a loop that stands still has requests under way.
        """
        self._held = True
        self._tell(_succeed, self.acquired)
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            self._tell(_succeed, self.lost)
            await self._ended.wait()
            raise

    def _over(self, task: "asyncio.Task[bool]") -> None:
        if not task.cancelled():
            self.failure = task.exception()
        self._tell(_succeed, self.over)

    def _tell(self, call: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop that acts is closed: the process ends
            self._ours.call_soon_threadsafe(call, *args)


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _first(*futures: "asyncio.Future[None]") -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def _succeed(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: "asyncio.Future[None]", failure: BaseException) -> None:
    if not future.done():
        future.set_exception(failure)
