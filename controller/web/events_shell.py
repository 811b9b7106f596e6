"""Server-sent events: rounds while somebody looks, and for each reader what he lacks.

Bounded: rounds take at most a tenth of a core, a reader has one frame under way, and one that does not take it is cut.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from controller.web.frames import GZIP, Frame, Frames, Place, marked, read_mark, stored
from controller.web.live import TOPICS, Live, State
from controller.web.sight import Audience, QueueOf, Sight
from kube.clock import Clock
from kube.errors import KubeError

log = logging.getLogger(__name__)

ROUND_S: Final = 1.0
_SHARE: Final = 10
"""A round of x seconds is followed by a pause of x times this."""
BEAT_S: Final = 15.0
LOOK_AGAIN_S: Final = 30.0
"""So often a stream asks anew whether its user is still known, and what may be seen."""
READ_S: Final = 20.0
"""A reader has to take each piece in this time."""
_PIECE: Final = 64 * 1024
_AUDIENCES: Final = 24
MOST_STREAMS: Final = 400
MOST_OF_ONE: Final = 8


Looked = tuple[Sight, Mapping[str, str]]
"""What a user sees, and topics that are denied with the reason."""


@dataclass(frozen=True)
class Watch:
    """What a stream is about. ``look`` is None once the user is known no more, and raises KubeError."""

    user: str
    topics: tuple[str, ...]
    last_id: str
    look: Callable[[], Awaitable[Looked | None]]
    hello: Callable[[], Mapping[str, Any]]
    packed: bool = False


class Hub:
    """``state``: of this replica while it leads. ``known``: namespaces that were ever seen; it only grows."""

    def __init__(
        self, state: Callable[[], State | None], known: Callable[[], AbstractSet[str]], queue_of: QueueOf, clock: Clock
    ) -> None:
        self._state = state
        self.known = known
        self._queue_of = queue_of
        self._clock = clock
        self.live = Live()
        self._audiences: dict[Sight, Audience] = {}
        self._streams: dict[str, int] = {}
        self._wanted: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self._rounds: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._soon = asyncio.Event()
        self._closed = False
        self._frames = Frames()
        self._making: dict[Place, asyncio.Future[Frame | None]] = {}
        self._thread = asyncio.Lock()
        self._of: object = None
        self._rounded: set[str] = set()
        """Topics of which there was a round in this term."""
        self.spent_s = 0.0
        """In rounds, all together."""

    @property
    def streams(self) -> int:
        return sum(self._streams.values())

    def full(self, user: str) -> bool:
        return self.streams >= MOST_STREAMS or self._streams.get(user, 0) >= MOST_OF_ONE

    async def close(self) -> None:
        """All streams end."""
        self._closed = True
        self._changed.set()
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
            self._rounds = None

    # -- rounds ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _looking(self, user: str, topics: Collection[str]) -> Any:
        self._streams[user] = self._streams.get(user, 0) + 1
        for topic in topics:
            self._wanted[topic] += 1
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._run(), name="page-rounds")
        try:
            yield
        finally:
            self._streams[user] -= 1
            if not self._streams[user]:
                del self._streams[user]
            for topic in topics:
                self._wanted[topic] -= 1

    async def _run(self) -> None:
        while self.streams:
            try:
                took_s = await self.round()
            except Exception:
                # One row that cannot be made is no reason to leave all readers without any.
                log.exception("the page's rows could not be brought up to date")
                took_s = ROUND_S
                self._tell()
            self._soon.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(ROUND_S, took_s * _SHARE)):
                    await self._soon.wait()

    async def round(self) -> float:
        """One round of the topics that somebody looks at: how many seconds it kept the loop."""
        state = self._state()
        if state is None:
            return 0.0
        if state.engine is not self._of:
            # Another term: its rows are told as a whole.
            self.live, self._of = Live(), state.engine
            self._audiences.clear()
            self._rounded.clear()
        topics = [topic for topic, count in self._wanted.items() if count]
        took_s, begun_s = 0.0, time.perf_counter()
        for _ in self.live.round(state, topics):
            took_s += time.perf_counter() - begun_s
            await asyncio.sleep(0)
            begun_s = time.perf_counter()
        took_s += time.perf_counter() - begun_s
        self.spent_s += took_s
        self._rounded.update(topics)
        self._tell()
        return took_s

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # -- frames ------------------------------------------------------------------------------------------------------

    def audience(self, sight: Sight) -> Audience:
        found = self._audiences.pop(sight, None) or Audience(sight, self.known, self._queue_of)
        self._audiences[sight] = found
        while len(self._audiences) > _AUDIENCES:
            del self._audiences[next(iter(self._audiences))]
        return found

    async def frame(self, audience: Audience, topic: str, since: int | None) -> Frame | None:
        """What readers of this audience lack who have ``since``: made once, however many ask. None for nothing."""
        live = self.live
        revision = live.tables[topic].revision
        if since == revision:
            return None
        at = Place(live.epoch, audience.sight.id, topic, since)
        kept = self._frames.get(at)
        if kept is not None and kept.revision == revision:
            return kept
        making = self._making.get(at)
        if making is None:
            making = self._making[at] = asyncio.ensure_future(self._made(live, audience, at))
            making.add_done_callback(lambda _: self._making.pop(at, None))
        return await asyncio.shield(making)

    async def _made(self, live: Live, audience: Audience, at: Place) -> Frame | None:
        async with self._thread:
            changes = live.tables[at.topic].since(at.since)
            if changes is None:
                return None
            rows = audience.rows(at.topic, changes)
            frame = await asyncio.to_thread(Frame.of, at.topic, changes, rows)
        self._frames.put(at, frame)
        return frame

    # -- one reader --------------------------------------------------------------------------------------------------

    async def serve(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        """Until the reader goes, or its user is known no more. Raises what ``look`` raises before anything is sent."""
        looked = await watch.look()
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Accel-Buffering": "no"}
        if watch.packed:
            headers["Content-Encoding"] = "gzip"
        response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
        reader = _Reader(request, response, packed=watch.packed)
        with self._looking(watch.user, watch.topics):
            try:
                await response.prepare(request)
                await reader.begin()
                await self._send(reader, watch, looked)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
            except ConnectionError:
                pass
        return response

    async def _send(self, reader: "_Reader", watch: Watch, looked: Looked | None) -> None:
        looked_s = beat_s = self._clock.monotonic()
        epoch, has, said = "", dict[str, int](), object()
        while looked is not None and not reader.gone and not self._closed:
            sight, denied = looked
            if said != denied:
                # The first round makes what ``hello`` tells of.
                await self._first_round(reader, watch.topics)
                await reader.tell("hello", {**watch.hello(), "denied": dict(denied), "levels": self.live.levels})
                said = denied
            before = f"{self.live.epoch}.{sight.id}"
            if epoch != before:
                has = read_mark(watch.last_id, before) if not epoch else {}
                epoch = before
            changed = self._changed
            if await self._deltas(reader, sight, [topic for topic in watch.topics if topic not in denied], has):
                await reader.mark(marked(epoch, has))
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await changed.wait()
            now_s = self._clock.monotonic()
            if now_s - beat_s >= BEAT_S or not changed.is_set():
                beat_s = now_s
                await reader.tell("beat", {"now": self._clock.wall()})
            if now_s - looked_s >= LOOK_AGAIN_S:
                looked_s = now_s
                looked = await self._looked_again(watch)

    async def _first_round(self, reader: "_Reader", topics: Collection[str]) -> None:
        """Wait for one where there was none of these topics yet. Raises TimeoutError."""
        async with asyncio.timeout(READ_S):
            while not self._rounded.issuperset(topics) and not reader.gone and not self._closed:
                self._soon.set()
                await self._changed.wait()

    async def _looked_again(self, watch: Watch) -> Looked | None:
        """A stream ends where the API server does not answer: its reader comes again, and is told why."""
        try:
            return await watch.look()
        except KubeError:
            return None

    async def _deltas(self, reader: "_Reader", sight: Sight, topics: Collection[str], has: dict[str, int]) -> bool:
        sent = False
        for topic in topics:
            frame = await self.frame(self.audience(sight), topic, has.get(topic))
            if frame is not None:
                await reader.send(frame)
                has[topic] = frame.revision
                sent = True
        return sent


class _Reader:
    """One connection. Every piece has to be taken in time. Raises TimeoutError and ConnectionError."""

    def __init__(self, request: web.Request, response: web.StreamResponse, *, packed: bool) -> None:
        self._request = request
        self._response = response
        self._packed = packed

    @property
    def gone(self) -> bool:
        return self._request.transport is None or self._request.transport.is_closing()

    async def begin(self) -> None:
        if self._packed:
            await self._write(GZIP)

    async def tell(self, event: str, data: Mapping[str, Any]) -> None:
        await self._text(b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data)))

    async def mark(self, text: str) -> None:
        await self._text(b"event: mark\nid: %b\ndata: {}\n\n" % text.encode())

    async def send(self, frame: Frame) -> None:
        await self._write(frame.packed if self._packed else frame.body)

    async def _text(self, raw: bytes) -> None:
        await self._write(stored(raw) if self._packed else raw)

    async def _write(self, raw: bytes) -> None:
        for start in range(0, len(raw), _PIECE):
            async with asyncio.timeout(READ_S):
                await self._response.write(raw[start : start + _PIECE])
