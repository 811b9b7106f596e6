"""One accepted connection: the HTTP protocol behind it, and the time limits of its peer.

A peer has ``headers_s`` for the head of a request from its first byte on (of the first request from the connection on),
which has ``head_bytes`` at most; ``body_s`` for the body; ``answer_s`` to read the answer from the moment at which it
no longer keeps up; and ``idle_s`` between requests. A peer that takes longer, or sends more, is cut off without an
answer. The time in which an answer is made is up to its handler.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from kube.listening.places import ConnectionId, Group

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest


HEAD_BYTES: Final = 1 << 14
"""The most bytes of a request line and its headers: nginx and Node.js have the same default."""
_WRITTEN_BYTES: Final = 1 << 16
"""The most bytes of an answer that may wait for the peer before the rest of the answer waits too."""


class Times(Struct, frozen=True, kw_only=True):
    """The seconds that a peer may take. ``idle_by_group``: in place of ``idle_s`` for the peers of a group."""

    handshake_s: float = 5.0
    headers_s: float = 10.0
    body_s: float = 20.0
    answer_s: float = 20.0
    idle_s: float = 75.0
    idle_by_group: Mapping[Group, float] = {}


class Head:
    """The head of one request on its way in: counts its bytes up to the empty line."""

    _END: Final = b"\r\n\r\n"

    def __init__(self) -> None:
        self.bytes = 0
        self._tail: bytes | None = b""
        """The last bytes of a head that has not ended; None once it has."""

    def came(self, data: bytes) -> None:
        if self._tail is None:
            return
        seen = self._tail + data
        end = seen.find(self._END)
        self.bytes += len(data) if end < 0 else end + len(self._END) - len(self._tail)
        self._tail = seen[-len(self._END) + 1 :] if end < 0 else None


class _Phase(Enum):
    HEADERS = auto()
    ANSWERING = auto()
    IDLE = auto()


class Connection(asyncio.Protocol):
    """Passes everything on to ``inner``, which exists from ``begin`` on.

    ``_due`` is the deadline of the present phase, ``_unread`` that of a peer which does not read: both are None where
    no deadline runs. ``Listener`` writes the public fields:

    - ``group``: the group of the peer's certificate, None without one; set once, when the peer is known.
    - ``head_bytes``: the most bytes of a request line and its headers; set together with ``group``, which decides it.
    - ``lost``: called when the connection has ended; set once, before the connection begins.
    - ``streams``: whether the answer is a stream: its peer has ``answer_s`` anew after each piece that it takes.
    """

    def __init__(
        self,
        number: ConnectionId,
        times: Times,
        made: Callable[["Connection"], asyncio.Protocol | None],
    ) -> None:
        """``made`` is called when the peer is known, after TLS; it returns the HTTP protocol, or None to close."""
        self.id = number
        self.transport: asyncio.Transport | None = None
        self.inner: asyncio.Protocol | None = None
        self.group: Group | None = None
        self.lost: Callable[[], None] = lambda: None
        self.streams = False
        self.head_bytes = HEAD_BYTES
        self._times = times
        self._made = made
        self._head = Head()
        self._phase = _Phase.HEADERS
        self._due: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # -- calls of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.inner = self._made(self)
        if self.inner is None:
            self.transport.abort()
            return
        # Above TLS the default is eight times as much, and each connection may hold it.
        self.transport.set_write_buffer_limits(high=_WRITTEN_BYTES)
        self._within(self._times.headers_s)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.inner is None:
            return
        if self._phase is _Phase.IDLE:
            self._phase, self._head = _Phase.HEADERS, Head()
            self._within(self._times.headers_s)
        if self._phase is _Phase.HEADERS:
            self._head.came(data)
            if self._head.bytes > self.head_bytes:
                # The bytes are not handed on: the parser would keep what it refuses, in an error with all of its
                # frames.
                self.abort()
                return
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received() if self.inner is not None else None

    def pause_writing(self) -> None:
        if self._unread is None:
            self._unread = asyncio.get_running_loop().call_later(self._times.answer_s, self.abort)
        if self.inner is not None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self.streams:
            self._reads_again()
        if self.inner is not None:
            self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._nothing_due()
        self._reads_again()
        if self.inner is not None:
            self.inner.connection_lost(exc)
        self.lost()

    # -- calls of the listener

    def began(self, request: "BaseRequest") -> None:
        """Take note that the headers of a request have come."""
        self._phase = _Phase.ANSWERING
        self._within(self._times.body_s)
        request.content.on_eof(self._body_came)

    def ended(self) -> None:
        """Take note that the answer was handed to the transport."""
        self._phase, self.streams = _Phase.IDLE, False
        self._reads_again()
        idle_s = self._times.idle_s if self.group is None else self._times.idle_by_group.get(self.group)
        self._within(self._times.idle_s if idle_s is None else idle_s)

    def abort(self) -> None:
        """Close at once; bytes still to be sent are not sent."""
        if self.transport is not None:
            self.transport.abort()

    def _body_came(self) -> None:
        if self._phase is _Phase.ANSWERING:
            self._nothing_due()

    def _within(self, seconds: float) -> None:
        self._nothing_due()
        if self.transport is not None and not self.transport.is_closing():
            self._due = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _nothing_due(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _reads_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
