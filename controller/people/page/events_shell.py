"""Server-sent events: rounds of the tables while a page is open, and for each reader the changes that it lacks.

The cost is bounded: rounds and the deltas made of them take at most a ninth of a core, and snapshots half of a thread.
A reader has one frame under way, and a reader that does not take it is cut.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from controller.people.page.frames import Frame, Frames, Place, marked, read_mark
from controller.people.page.live import TOPICS, Live, State
from controller.people.page.readers_shell import READ_S, Held, Reader
from controller.people.page.table import Changes, Table
from controller.people.page.visiblenamespaces import QueueOf, Variants, VisibleNamespaces
from controller.people.visibility.server_shell import RefusedError
from kube.clock import Clock
from kube.errors import KubeError

log = logging.getLogger(__name__)

ROUND_S: Final = 1.0
_SHARE: Final = 8
"""A round of x seconds, with the deltas of the one before, is followed by a pause of x times this."""
_MOST_REST_S: Final = 1.0
"""The longest rest of a snapshot's thread, which rests for as long as the snapshot took."""
BEAT_S: Final = 15.0
LOOK_AGAIN_S: Final = 30.0
"""The interval at which a stream reviews anew whether its user is still known, and what the user may see."""
KNOWN_S: Final = 300.0
"""The longest time that a stream goes on unreviewed while reviews are refused because too many are asked."""
_COME_AGAIN_S: Final = 60.0
"""The time after which the browser of a user who may see nothing connects again."""
_KEPT_S: Final = 3.0
"""The greatest age of rows in an answer to a reader without a stream."""
MOST_STREAMS: Final = 400
MOST_OF_ONE: Final = 8


Looked = tuple[VisibleNamespaces, Mapping[str, str]]
"""The namespaces that a user may see, and the topics that are denied with the reason of each."""


@dataclass(frozen=True)
class Watch:
    """The subject of a stream. ``look`` reviews what the user may see: None once the user is known no more. It raises
    KubeError, and RefusedError where reviews are refused now.
    """

    user: str
    topics: tuple[str, ...]
    last_id: str
    look: Callable[[], Awaitable[Looked | None]]
    hello: Callable[[], Mapping[str, Any]]
    packed: bool = False


class Hub:
    """All streams of this replica and the tables that they read. ``state``: of this replica while it leads, else None.
    ``known``: namespaces that were ever seen; it only grows. ``queue_of``: returns a function that may be called on a
    thread from now on.
    """

    def __init__(
        self,
        state: Callable[[], State | None],
        known: Callable[[], AbstractSet[str]],
        queue_of: Callable[[], QueueOf],
        clock: Clock,
    ) -> None:
        self._state = state
        self.known = known
        self._queue_of = queue_of
        self._clock = clock
        self.live = Live()
        self._variants = Variants()
        self._streams: dict[str, int] = {}
        self._wanted: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self._rounds: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._soon = asyncio.Event()
        self._closed = False
        self._frames = Frames()
        self._making: dict[Place, asyncio.Future[Frame | None]] = {}
        self._thread = asyncio.Lock()
        self._deltas_s = 0.0
        """CPU time of deltas since the last round: with many readers who see different things it is more than a
        round's."""
        self._rests_until_s = float("-inf")
        """No frame is made before this time: a thread that makes a snapshot keeps the interpreter from the event
        loop."""
        self._of: object = None
        self._rounded: dict[str, float] = {}
        """Topics that had a round in this term, and when each had its last."""
        self._turn = asyncio.Lock()
        """Held during a round: two rounds at once would take each other's rows for removed."""
        self._asking = asyncio.Lock()
        self._held = Held()
        self.spent_s = 0.0
        """CPU time of all rounds."""

    @property
    def streams(self) -> int:
        return sum(self._streams.values())

    async def close(self) -> None:
        """Ends all streams."""
        self._closed = True
        self._changed.set()
        if self._rounds is not None:
            self._rounds.cancel()
            await asyncio.gather(self._rounds, return_exceptions=True)
            self._rounds = None

    # -- rounds ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _placed(self, user: str) -> Iterator[None]:
        """Counts a stream of the user while the context is open. It is entered before anything is awaited, so that the
        count cannot be passed. Raises RefusedError.
        """
        if self.streams >= MOST_STREAMS or self._streams.get(user, 0) >= MOST_OF_ONE:
            raise RefusedError(429, "too many open pages: close one", after_s=10.0)
        self._streams[user] = self._streams.get(user, 0) + 1
        try:
            yield
        finally:
            self._streams[user] -= 1
            if not self._streams[user]:
                del self._streams[user]

    @contextmanager
    def _looking(self, topics: Collection[str]) -> Iterator[None]:
        for topic in topics:
            self._wanted[topic] += 1
        if topics and (self._rounds is None or self._rounds.done()):
            self._rounds = asyncio.create_task(self._run(), name="page-rounds")
        try:
            yield
        finally:
            for topic in topics:
                self._wanted[topic] -= 1

    async def _run(self) -> None:
        while any(self._wanted.values()):
            try:
                took_s = await self.round([topic for topic, count in self._wanted.items() if count])
            except Exception:
                # A row that cannot be made must not leave all readers without any. A reader that waits for a first
                # round asks for the next at once, which would fail as this one did.
                log.exception("the page's rows could not be brought up to date")
                self._tell()
                await asyncio.sleep(ROUND_S)
                continue
            self._soon.clear()
            spent_s, self._deltas_s = took_s + self._deltas_s, 0.0
            with suppress(TimeoutError):
                async with asyncio.timeout(max(ROUND_S, spent_s * _SHARE)):
                    await self._soon.wait()

    async def round(self, topics: Collection[str]) -> float:
        """Brings the tables of these topics up to date, and returns the CPU time of that. Seconds on the clock would
        make a round on a busy machine look expensive.
        """
        async with self._turn:
            state = self._state()
            if state is None:
                return 0.0
            if state.engine is not self._of:
                # A new term began: its rows are sent as a whole.
                self.live, self._of = Live(), state.engine
                self._variants = Variants()
                self._rounded.clear()
            took_s, begun_s = 0.0, time.thread_time()
            for _ in self.live.round(state, topics):
                took_s += time.thread_time() - begun_s
                await asyncio.sleep(0)
                begun_s = time.thread_time()
            took_s += time.thread_time() - begun_s
            self.spent_s += took_s
            self._rounded.update(dict.fromkeys(topics, self._clock.monotonic()))
        self._tell()
        return took_s

    async def fleet(self) -> tuple[str, Table]:
        """The fleet's epoch and table, some seconds old at most, for readers without a stream."""
        async with self._asking:
            state, at_s = self._state(), self._rounded.get("fleet")
            old = at_s is None or self._clock.monotonic() - at_s >= _KEPT_S
            if old or (state is not None and state.engine is not self._of):
                await self.round(["fleet"])
            return self.live.epoch, self.live.tables["fleet"]

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # -- frames ------------------------------------------------------------------------------------------------------

    async def frame(self, visible: VisibleNamespaces, topic: str, since: int | None) -> Frame | None:
        """The frame with all that readers who may see this lack who have revision ``since``; None if they lack nothing.
        A frame is made once, however many readers ask.
        """
        live = self.live
        revision = live.tables[topic].revision
        if since == revision:
            return None
        at = Place(live.epoch, visible.id, topic, since)
        kept = self._frames.get(at)
        if kept is not None and kept.revision == revision:
            return kept
        making = self._making.get(at)
        if making is None:
            making = self._making[at] = asyncio.ensure_future(self._made(live, visible, at))
            making.add_done_callback(lambda _: self._making.pop(at, None))
        return await asyncio.shield(making)

    async def _made(self, live: Live, visible: VisibleNamespaces, at: Place) -> Frame | None:
        async with self._thread:
            await asyncio.sleep(max(0.0, self._rests_until_s - self._clock.monotonic()))
            changes = live.tables[at.topic].since(at.since)
            if changes is None:
                return None
            # Both are bound here: the thread must not read what the loop changes meanwhile.
            rows = self._variants.rows(visible, at.topic, changes, self.known(), self._queue_of())
            frame, took_s = await asyncio.to_thread(_timed, at.topic, changes, rows)
            if changes.whole:
                self._rests_until_s = self._clock.monotonic() + min(_MOST_REST_S, took_s)
            else:
                self._deltas_s += took_s
        self._frames.put(at, frame)
        return frame

    # -- one reader --------------------------------------------------------------------------------------------------

    async def serve(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        """Serves one stream until the reader goes or its user is known no more. Before anything is sent it raises
        RefusedError, and what ``look`` raises.
        """
        with self._placed(watch.user):
            looked = await watch.look()
            headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Accel-Buffering": "no"}
            if watch.packed:
                headers["Content-Encoding"] = "gzip"
            response = web.StreamResponse(headers={**headers, "Content-Type": "text/event-stream"})
            reader = Reader(request, response, self._held, packed=watch.packed)
            with self._looking(watch.topics if looked is not None and _shown(watch, looked) else ()):
                try:
                    await response.prepare(request)
                    await reader.begin()
                    await self._send(reader, watch, looked)
                except TimeoutError:
                    reader.cut()
                except ConnectionError:
                    pass
            return response

    async def _send(self, reader: Reader, watch: Watch, looked: Looked | None) -> None:
        looked_s = known_s = beat_s = self._clock.monotonic()
        epoch, has, last_denied = "", dict[str, int](), object()
        while looked is not None and not reader.gone and not self._closed:
            (visible, denied), shown = looked, _shown(watch, looked)
            if last_denied != denied:
                # The first round makes the tables that ``hello`` describes.
                await self._first_round(reader, shown)
                await reader.tell("hello", {**watch.hello(), "denied": dict(denied), "levels": self.live.levels})
                last_denied = denied
            if not shown:
                # A user who may see nothing is told why, and keeps no place.
                return await reader.retry(_COME_AGAIN_S)
            before = f"{self.live.epoch}.{visible.id}"
            if epoch != before:
                has = read_mark(watch.last_id, before) if not epoch else {}
                epoch = before
            changed = self._changed
            if await self._deltas(reader, visible, shown, has):
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
                try:
                    looked, known_s = await watch.look(), now_s
                except RefusedError:
                    # Too many reviews are asked for, which need not be this user's doing.
                    looked = looked if now_s - known_s < KNOWN_S else None
                except KubeError:
                    # The reader connects again, and is told why.
                    looked = None
        return None

    async def _first_round(self, reader: Reader, topics: Collection[str]) -> None:
        """Waits for a round of these topics if they had none in this term. Raises TimeoutError."""
        async with asyncio.timeout(READ_S):
            while not self._rounded.keys() >= set(topics) and not reader.gone and not self._closed:
                self._soon.set()
                await self._changed.wait()

    async def _deltas(
        self, reader: Reader, visible: VisibleNamespaces, topics: Collection[str], has: dict[str, int]
    ) -> bool:
        sent = False
        for topic in topics:
            frame = await self.frame(visible, topic, has.get(topic))
            if frame is not None:
                has[topic], raw = frame.revision, frame.packed if reader.packed else frame.body
                # A slow reader keeps the one encoding that it takes.
                del frame
                await reader.send(raw)
                sent = True
        return sent


def _timed(topic: str, changes: Changes, rows: Iterator[tuple[str, bytes]]) -> tuple[Frame, float]:
    """A frame of the changes, and the CPU time that it took on this thread."""
    begun_s = time.thread_time()
    frame = Frame.of(topic, changes, rows)
    return frame, time.thread_time() - begun_s


def _shown(watch: Watch, looked: Looked) -> list[str]:
    return [topic for topic in watch.topics if topic not in looked[1]]
