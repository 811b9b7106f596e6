"""A proxy of ours between one client and the API server, that misbehaves as it is told.

It ends the client's TLS with the API server's own certificate and opens a connection to the server for each of the
client's. Bytes go through unread but for the first line of a request, which tells whether it is a watch, and for the
modes that answer themselves.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self

from hack.cluster.controlplane.pki import Pki

CHUNK: Final = 1 << 16
HEAD: Final = 1 << 20
"""A request's head and body is at most so long in the modes that hold it whole."""
_RELEASE_S: Final = 60.0
_ANSWER_S: Final = 10.0
_LEASES: Final = b"/apis/coordination.k8s.io/"
_CLOSING_S: Final = 0.05
"""Connections that were aborted close in the loop's next rounds."""
_REASONS: Final = {
    401: "Unauthorized",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}


@dataclass(frozen=True)
class Mode:
    """What it does. ``answer``: HTTP's code for each request, 0 for none; ``reads``: for GET alone.

    ``bursts_s``: it answers itself for so long, is plain for as long, and so on; the connections end at each turn.
    ``delay_s`` holds back each chunk of an answer, ``lag_s`` each of a watch, in order. ``twice``: each request is sent
    to the server a second time on a connection of its own, whose answer is thrown away. ``stale``: what is read is
    answered as it was when it was first asked for in this mode. ``holds``: writes wait in the proxy until ``release``,
    unanswered. Leases are passed on in both: who leads goes on to lead.
    """

    cut: bool = False
    delay_s: float = 0.0
    lag_s: float = 0.0
    twice: bool = False
    answer: int = 0
    reads: bool = False
    bursts_s: float = 0.0
    stale: bool = False
    holds: bool = False

    @property
    def reads_requests(self) -> bool:
        """Whether requests are read one by one."""
        return bool(self.answer or self.twice or self.lag_s or self.stale or self.holds)


PLAIN: Final = Mode()
Passed = Callable[[int, bool, bytes], None]


@dataclass
class Counted:
    connections: int = 0
    answered: int = 0
    doubled: int = 0
    stale: int = 0
    held: int = 0


class Proxy:
    """One client's. Its loop has a thread; ``set`` is called from any other. ``mode`` is written by the loop alone."""

    def __init__(
        self, target: tuple[str, int], pki: Pki, passed: Passed = lambda _connection, _up, _data: None
    ) -> None:
        """``passed`` gets what goes through in plain mode: the connection's number, whether it goes to the server, and
        the bytes.
        """
        self._target = target
        self._passed = passed
        self._pki = pki
        self._mode = PLAIN
        self._open: set[asyncio.StreamWriter] = set()
        self._lists: dict[bytes, bytes] = {}
        """In a stale mode the answers to lists, by the first line of their requests."""
        self._held: list[bytes] = []
        self._turns: asyncio.TimerHandle | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._inner = ssl.create_default_context(cafile=pki.ca)
        self._outer = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.present("apiserver")
        self.counted = Counted()
        self._server: asyncio.Server | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def present(self, name: str) -> None:
        """The certificate of new connections: ``NAME.crt`` and ``NAME.key`` of the cluster's."""
        self._outer.load_cert_chain(self._pki.file(f"{name}.crt"), self._pki.file(f"{name}.key"))

    def set(self, mode: Mode) -> None:
        """From now on so; connections that are there end, since they were made under another mode."""

        async def change() -> None:
            if self._turns is not None:
                self._turns.cancel()
                self._turns = None
            self._mode = mode
            self._lists.clear()
            self._held.clear()
            self._drop()
            if mode.bursts_s:
                self._turns = self._loop.call_later(mode.bursts_s, self._turn, mode, replace(mode, answer=0))

        asyncio.run_coroutine_threadsafe(change(), self._loop).result(10)

    def _turn(self, before: Mode, now: Mode) -> None:
        """From a burst of answers of its own to a time without, or back."""
        self._mode = now
        self._drop()
        self._turns = self._loop.call_later(now.bursts_s, self._turn, now, before)

    def release(self) -> int:
        """Sends the writes that it holds, in the order in which they came. How many there were; their answers are
        nobody's: whoever wrote them has given up.
        """

        async def sent() -> int:
            held, self._held = self._held, []
            for request in held:
                await self._again(request)
            return len(held)

        return asyncio.run_coroutine_threadsafe(sent(), self._loop).result(_RELEASE_S)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._outer, limit=HEAD)
        return int(self._server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        self._mode = Mode(cut=True)
        if self._turns is not None:
            self._turns.cancel()
        if self._server is not None:
            self._server.close()
        self._drop()
        tasks = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(_CLOSING_S)

    def _drop(self) -> None:
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counted.connections += 1
        state = _Connection(self.counted.connections)
        self._open.add(writer)
        try:
            await self._relay(reader, writer, self._mode, state)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, asyncio.CancelledError):
            pass  # the client, the server or the proxy is gone: so is the connection, and this task was its own
        finally:
            self._open.discard(writer)
            if not writer.is_closing():
                writer.transport.abort()

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mode: Mode, state: "_Connection"
    ) -> None:
        if mode.cut:
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target, ssl=self._inner, limit=HEAD)
        self._open.add(far_writer)
        up = asyncio.ensure_future(self._up(reader, writer, far_writer, mode, state))
        down = asyncio.ensure_future(self._down(far_reader, writer, mode, state))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if down.done() and not down.cancelled() and down.exception() is None and not writer.is_closing():
                writer.close()  # what was written goes out first; an abort would drop it
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            self._open.discard(far_writer)
            far_writer.transport.abort()

    async def _up(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far: asyncio.StreamWriter,
        mode: Mode,
        state: "_Connection",
    ) -> None:
        if mode.reads_requests:
            while True:
                request = await _request(reader)
                state.watches = b"watch=" in request.partition(b"\r\n")[0]
                is_read, is_lease = request.startswith(b"GET"), _LEASES in request.partition(b"\r\n")[0]
                if mode.answer and (is_read or not mode.reads):
                    self.counted.answered += 1
                    writer.write(_refusal(mode.answer))
                    await writer.drain()
                    continue
                if mode.holds and not is_read and not is_lease:
                    self.counted.held += 1
                    self._held.append(request)
                    await asyncio.Event().wait()  # until the connection ends
                if mode.stale and is_read and not is_lease and not state.watches:
                    writer.write(await self._listed(request))
                    await writer.drain()
                    writer.close()
                    return
                far.write(request)
                await far.drain()
                if mode.twice and not state.watches:
                    self.counted.doubled += 1
                    state.beside.add(asyncio.ensure_future(self._again(request)))
        while data := await reader.read(CHUNK):
            self._passed(state.number, True, data)
            far.write(data)
            await far.drain()

    async def _down(
        self, far: asyncio.StreamReader, writer: asyncio.StreamWriter, mode: Mode, state: "_Connection"
    ) -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=4096)

        async def write() -> None:
            while True:
                due_s, data = await waiting.get()
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        writing = asyncio.ensure_future(write())
        try:
            while data := await far.read(CHUNK):
                self._passed(state.number, False, data)
                held_s = mode.lag_s if state.watches else mode.delay_s
                await waiting.put((loop.time() + held_s, data))
            await waiting.put((loop.time(), b""))
            await writing
        finally:
            writing.cancel()

    async def _listed(self, request: bytes) -> bytes:
        """The whole answer, after which the connection ends."""
        line, _, rest = request.partition(b"\r\n")
        if line in self._lists:
            self.counted.stale += 1
            return self._lists[line]
        kept = [each for each in rest.split(b"\r\n") if not each.lower().startswith(b"connection:")]
        reader, far = await asyncio.open_connection(*self._target, ssl=self._inner, limit=HEAD)
        try:
            far.write(b"\r\n".join([line, b"Connection: close", *kept]))
            await far.drain()
            self._lists[line] = await asyncio.wait_for(reader.read(-1), _ANSWER_S)
        finally:
            far.transport.abort()
        return self._lists[line]

    async def _again(self, request: bytes) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*self._target, ssl=self._inner)
            try:
                writer.write(request)
                await writer.drain()
                await asyncio.wait_for(reader.read(CHUNK), 5)
            except TimeoutError:
                pass
            finally:
                writer.transport.abort()


@dataclass
class _Connection:
    """``watches``: whether its last request was a watch, whose answer never ends."""

    number: int = 0
    watches: bool = False
    beside: set["asyncio.Future[None]"] = field(default_factory=set)


async def _request(reader: asyncio.StreamReader) -> bytes:
    """One request with its body, whose length its head tells. ValueError where it does not."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
    }
    if b"transfer-encoding" in fields:
        raise ValueError("a request without a length")
    return head + await reader.readexactly(int(fields.get(b"content-length", 0)))


def _refusal(code: int) -> bytes:
    reason = _REASONS[code]
    body = (
        f'{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"{reason}",'
        f'"message":"chaos: {reason}","code":{code}}}'
    ).encode()
    more = "Retry-After: 1\r\n" if code == 429 else ""  # noqa: PLR2004 - Too Many Requests
    head = f"HTTP/1.1 {code} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body
