"""Sends many writes to many objects: in order for one object, side by side for different ones, tried again where it
helps.

    submit(write) -> lane of that object -> one of ``parallel`` workers -> API server -> outcome in the write's future

Each object has a lane. Only its first write is ever under way, so what was submitted first arrives first. Writes of one
lane that share a ``slot`` say the same thing at different times (a status): the newest replaces those that still wait.
A write without an answer, or with 429 or 5xx, is tried again here for as long as it takes; every other outcome is
returned as a value, since only the caller knows what a conflict means. A try whose answer was lost may have been
applied: ``attempts`` above 1 says that an AlreadyExists or a failed ``test`` can be the write's own echo.

No attempt is begun while ``may_write`` returns False, and none leaves that was begun before (``kube.fencing``): a
leader that lost its lease stops here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from failpoints import points
from kube.client import Client
from kube.clock import Backoff, Clock, RateLimit, sleep
from kube.errors import ConflictError, ForbiddenError, InvalidError, KubeError, NotFoundError, UnavailableError
from kube.fencing import fenced
from kube.writing.writes import (
    Abandoned,
    Conflicted,
    Missing,
    Outcome,
    Refused,
    Superseded,
    Verb,
    Write,
    WriteObserver,
    Written,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

_AWAY = frozenset({None, 429, 503})
"""The statuses that speak of the server, not of one object: all lanes wait."""
_REPEAT_LOG_S = 60.0
DOUBT_S = 30.0
"""The seconds for which a refusal is not believed after an attempt without an answer: an API server that has just
started knows no roles yet, and a caller who takes the write for refused would undo what may have been done.
"""


class Tuning(Struct, frozen=True, kw_only=True):
    """The limits of writes at one time, and the pauses after a failure.

    At most ``limit`` writes wait or are under way. ``parallel`` above the client's ``connections`` gains nothing.
    Pauses grow from ``first_pause_s`` to ``longest_pause_s``, with jitter.
    """

    parallel: int = 8
    limit: int = 4096
    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0
    field_owner: str = "tessera"


class _Nobody:
    def attempted(self, write: Write[Any], latency_s: float, status: int | None) -> None:
        pass

    def finished(self, write: Write[Any], outcome: Outcome[Any], waited_s: float) -> None:
        pass


@dataclass
class _Pending:
    write: Write[Any]
    future: asyncio.Future[Any]
    since_s: float
    attempts: int = 0
    unanswered_s: float | None = None
    """The time at which an attempt was last cut off: it may have been carried out."""


@dataclass
class _Lane:
    """The writes of one object. While it is ``active``, a worker has it, or it is queued for one, or a pause of it
    runs.
    """

    waiting: deque[_Pending] = field(default_factory=deque)
    active: bool = False
    backoff: Backoff | None = None


DEFAULTS = Tuning()


class Writer:
    """Sends submitted writes. Open it with ``async with``; use it from one event loop.

    ``submit`` waits for room, which slows down a caller that is faster than the server. ``random`` returns 0 to 1,
    ``rate`` None sets no limit.

    All fields are written on that loop. An object has a lane in ``_lanes`` while a write of it waits, is under way or
    pauses; an active lane is in exactly one place: its key once in ``_ready``, with one worker, or in the pause of one
    task of ``_parked``. ``_pending`` counts writes whose future is not settled, and ``_idle`` is set exactly while it
    is 0.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        random: Callable[[], float],
        tuning: Tuning = DEFAULTS,
        rate: RateLimit | None = None,
        may_write: Callable[[], bool] = lambda: True,
        observer: WriteObserver | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._tuning = tuning
        self._rate = rate
        self._may_write = may_write
        self._observer = observer or _Nobody()
        self._lanes: dict[Hashable, _Lane] = {}
        self._ready: asyncio.Queue[Hashable] = asyncio.Queue()
        self._room = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._pending = 0
        self._in_flight = 0
        self._closed = False
        self._workers: list[asyncio.Task[None]] = []
        self._parked: set[asyncio.Task[None]] = set()
        self._away = self._backoff()
        self._away_until_s = 0.0
        self._outage = 0
        self._said_s: float | None = None

    def _backoff(self) -> Backoff:
        tuning = self._tuning
        return Backoff(random=self._random, initial_s=tuning.first_pause_s, maximum_s=tuning.longest_pause_s)

    async def __aenter__(self) -> Self:
        self._workers = [asyncio.create_task(self._work(), name=f"writer-{n}") for n in range(self._tuning.parallel)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settle unwritten writes as Abandoned; call ``drain`` first where they matter."""
        self._closed = True
        tasks = [*self._workers, *self._parked]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        for lane in list(self._lanes.values()):
            while lane.waiting:
                pending = lane.waiting.popleft()
                self._settle(pending, Abandoned("closed", pending.attempts))
        self._lanes.clear()
        self._room.set()

    @property
    def pending(self) -> int:
        """The number of writes submitted and not settled."""
        return self._pending

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for their answer."""
        return self._in_flight

    @property
    def may_write(self) -> bool:
        """Whether writes may leave this process now."""
        return self._may_write()

    @property
    def has_room(self) -> bool:
        return self._pending < self._tuning.limit

    async def submit(self, write: Write[T]) -> "asyncio.Future[Outcome[T]]":
        """Queue ``write``; waits while the queue is full. The future's result is the outcome; it never raises."""
        while not self.has_room and not self._closed:
            self._room.clear()
            await self._room.wait()
        return self.put(write)

    def put(self, write: Write[T]) -> "asyncio.Future[Outcome[T]]":
        """Queue a write like ``submit``, for callers that cannot wait: the queue grows beyond its limit. See
        ``has_room``.
        """
        future: asyncio.Future[Outcome[T]] = asyncio.get_running_loop().create_future()
        pending = _Pending(write, future, self._clock.monotonic())
        self._pending += 1
        self._idle.clear()
        if self._closed:
            self._settle(pending, Abandoned("closed"))
            return future
        key = write.lane
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        if write.slot is not None:
            self._supersede(lane, write.slot)
        lane.waiting.append(pending)
        if not lane.active:
            lane.active = True
            self._ready.put_nowait(key)
        return future

    async def drain(self) -> None:
        """Return when no write is pending."""
        await self._idle.wait()

    def _supersede(self, lane: _Lane, slot: Hashable) -> None:
        """Settle the writes of that slot that wait in ``lane``; a write under way is not in ``waiting``."""
        for pending in [write for write in lane.waiting if write.write.slot == slot]:
            lane.waiting.remove(pending)
            self._settle(pending, Superseded())

    async def _work(self) -> None:
        while True:
            key = await self._ready.get()
            # A write is taken out of its lane after all waiting, so that until then a newer one can replace it.
            await self._until_back()
            if self._rate is not None:
                await self._rate.take()
            lane = self._lanes[key]
            pending = lane.waiting.popleft()
            if not self._may_write():
                self._settle(pending, Abandoned("another process may hold the lease", pending.attempts))
                self._next(key, lane)
                continue
            pause_s = await self._attempt(lane, pending)
            if pause_s is None:
                if lane.waiting:
                    await asyncio.sleep(0)  # callers that wait for the outcome run before the next body is made
                self._next(key, lane)
            else:
                self._park(key, pause_s)

    async def _attempt(self, lane: _Lane, pending: _Pending) -> float | None:
        """Send one request; return the pause that this lane alone must make before its next, None for no pause."""
        write, outage = pending.write, self._outage
        started_s = self._clock.monotonic()
        pending.attempts += 1
        self._in_flight += 1
        status: int | None = 200
        outcome: Outcome[Any]
        try:
            with fenced(self._may_write):
                points.before(write.failpoint)
                sent = await self._send(write)
                points.after(write.failpoint)
                outcome = Written(sent, pending.attempts)
        except UnavailableError as error:
            status = error.status
            return self._failed(lane, pending, error, outage)
        except KubeError as error:
            status = error.status
            if isinstance(error, ForbiddenError) and self._is_doubtful(pending):
                self._put_back(lane, pending, error)
                return self._pause_s(lane)
            outcome = _refusal(error, pending.attempts)
        except asyncio.CancelledError:
            self._settle(pending, Abandoned("closed", pending.attempts))
            raise
        finally:
            self._in_flight -= 1
            self._observer.attempted(write, self._clock.monotonic() - started_s, status)
        lane.backoff = None
        self._back()
        self._settle(pending, outcome)
        return None

    async def _send(self, write: Write[T]) -> T | None:
        client, at, owner = self._client, write.namespace, self._tuning.field_owner
        resource, name, kind, sub = write.resource, write.name, write.kind, write.subresource
        body = _built(write)
        match write.verb:
            case Verb.CREATE:
                return await client.create(resource, body, kind, namespace=at)
            case Verb.UPDATE:
                return await client.update(
                    resource, name, body, kind, field_manager=owner, namespace=at, subresource=sub
                )
            case Verb.DELETE:
                await client.delete(resource, name, namespace=at, uid=body, foreground=write.foreground)
                return None
            case Verb.APPLY:
                return await client.apply(
                    resource,
                    name,
                    body,
                    kind,
                    field_manager=owner,
                    force=write.force,
                    namespace=at,
                    subresource=sub,
                )
            case Verb.MERGE_PATCH:
                return await client.merge_patch(
                    resource, name, body, kind, field_manager=owner, namespace=at, subresource=sub
                )
            case Verb.JSON_PATCH:
                return await client.json_patch(
                    resource, name, body, kind, field_manager=owner, namespace=at, subresource=sub
                )

    def _is_doubtful(self, pending: _Pending) -> bool:
        cut_s = pending.unanswered_s
        return cut_s is not None and self._clock.monotonic() < cut_s + DOUBT_S

    def _put_back(self, lane: _Lane, pending: _Pending, error: KubeError) -> None:
        """Put the write back at the head of its lane, unless a newer one waits in its place."""
        slot = pending.write.slot
        if slot is not None and any(write.write.slot == slot for write in lane.waiting):
            self._settle(pending, Superseded())
        else:
            lane.waiting.appendleft(pending)
        self._say(error)

    def _pause_s(self, lane: _Lane) -> float:
        lane.backoff = lane.backoff or self._backoff()
        return lane.backoff.next()

    def _failed(self, lane: _Lane, pending: _Pending, error: UnavailableError, outage: int) -> float | None:
        """Handle an attempt that the API server did not carry out, or did not answer."""
        if error.status is None:
            pending.unanswered_s = self._clock.monotonic()
        self._put_back(lane, pending, error)
        if error.status not in _AWAY:
            return max(self._pause_s(lane), error.retry_after_s or 0.0)
        # Requests that were under way together fail together: one outage is one step of the backoff.
        if outage == self._outage:
            self._outage += 1
            pause_s = max(self._away.next(), error.retry_after_s or 0.0)
            self._away_until_s = self._clock.monotonic() + pause_s
        return None

    async def _until_back(self) -> None:
        while (wait_s := self._away_until_s - self._clock.monotonic()) > 0:
            await sleep(self._clock, wait_s)

    def _back(self) -> None:
        self._away.reset()
        if self._said_s is not None:
            log.info("writes go through again")
            self._said_s = None

    def _say(self, error: KubeError) -> None:
        now_s = self._clock.monotonic()
        if self._said_s is None or now_s - self._said_s >= _REPEAT_LOG_S:
            self._said_s = now_s
            log.warning("a write did not go through, trying on (%d wait): %s", self._pending, error)

    def _next(self, key: Hashable, lane: _Lane) -> None:
        """Queue the lane again, or delete it where no write waits."""
        if lane.waiting:
            self._ready.put_nowait(key)
        else:
            del self._lanes[key]

    def _park(self, key: Hashable, pause_s: float) -> None:
        async def later() -> None:
            await sleep(self._clock, pause_s)
            self._ready.put_nowait(key)

        task = asyncio.create_task(later())
        self._parked.add(task)
        task.add_done_callback(self._parked.discard)

    def _settle(self, pending: _Pending, outcome: Outcome[Any]) -> None:
        self._pending -= 1
        if self._pending == 0:
            self._idle.set()
        self._room.set()
        self._observer.finished(pending.write, outcome, self._clock.monotonic() - pending.since_s)
        if not pending.future.done():  # the task that waited may have been cancelled
            pending.future.set_result(outcome)


def _built(write: Write[Any]) -> Any:
    """The body as JSON; a DELETE's uid unchanged."""
    try:
        body = write.body() if callable(write.body) else write.body
        return body if write.verb is Verb.DELETE else msgspec.Raw(msgspec.json.encode(body))
    except Exception as error:  # the caller's code: it must not end the worker
        log.exception("the body of %s %s %s could not be made", write.verb.value, write.resource.plural, write.name)
        raise InvalidError(f"the body could not be made: {error!r}") from error


def _refusal(error: KubeError, attempts: int) -> Conflicted | Missing | Refused:
    match error:
        case ConflictError():
            return Conflicted(error, attempts)
        case NotFoundError():
            return Missing(error, attempts)
    return Refused(error, attempts)
