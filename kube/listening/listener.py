"""Accepts connections within bounds: ``kube.listening.places`` decides who gets a place, and ``Connection`` for how
long.

Connections are accepted here and not by ``loop.create_server``, which reports no connection before its TLS handshake is
done: a thousand silent peers would hold a thousand sockets and no place.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from kube.listening.connection import HEAD_BYTES, Connection, Times
from kube.listening.places import ConnectionId, Group, PlaceLimits, Places
from kube.listening.sockets import is_reserved

if TYPE_CHECKING:  # each process decides which parts of aiohttp are loaded, and when
    from aiohttp.web_request import BaseRequest
    from aiohttp.web_response import StreamResponse

R = TypeVar("R", bound="BaseRequest")

log = logging.getLogger(__name__)

REFUSALS: Final = frozenset({401, 403, 429})
"""The statuses after which a connection is closed: a refused peer would hold a place for nothing."""
_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FULL_AGAIN_S: Final = 0.2
_PIECE_BYTES: Final = 1 << 16
_LOCAL: Final = "local"
"""The address of all peers of a Unix socket."""


def _keep_versions_quiet() -> None:
    """Keep the versions of Python and aiohttp out of the header Server that strangers see.

    An application's signal cannot do this: a request that cannot be parsed is answered before it reaches one.
    """
    from aiohttp import web_response  # the server has loaded it by now

    vars(web_response)["SERVER_SOFTWARE"] = "tessera"


class Listener:
    """Listens from ``serve`` to ``close``. It is used on one event loop alone.

    ``_connections`` has exactly the connections that have a place, and those that were just told to close.
    """

    def __init__(
        self,
        limits: PlaceLimits,
        times: Times | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        head_bytes: Mapping[Group | None, int] | None = None,
        group_of_address: Callable[[str], Group | None] = lambda _: None,
        group_of_peer: Callable[[asyncio.Transport], Group | None] = lambda _: None,
    ) -> None:
        """``head_bytes``: the most bytes of a request line and its headers, by group, None for peers without a group;
        ``HEAD_BYTES`` for groups that it lacks. ``group_of_address``: the group of a peer by its IP address; all
        addresses of a group count as one. ``group_of_peer``: the group by what the TLS handshake proved, called with
        ``tls`` alone.
        """
        self.places = Places(limits)
        self._times = times or Times()
        self._tls = tls
        self._head_bytes = head_bytes or {}
        self._group_of_address = group_of_address
        self._group_of_peer = group_of_peer
        self._connections: dict[ConnectionId, Connection] = {}
        self._by_protocol: dict[object, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._shaking: dict[ConnectionId, asyncio.Task[None]] = {}
        self._make: Callable[[], asyncio.Protocol] | None = None
        self._sockets: list[socket.socket] = []
        self._again: dict[socket.socket, asyncio.TimerHandle] = {}
        self._last = 0

    def serve(self, make: Callable[[], asyncio.Protocol], sockets: Sequence[socket.socket]) -> None:
        """Accept on sockets that listen already and do not block. ``make`` makes aiohttp's Server, whose handler
        answers through ``answered``.
        """
        _keep_versions_quiet()
        self._make = make
        self._sockets = list(sockets)
        for each in sockets:
            self._listen(each)

    async def close(self) -> None:
        """Stop accepting, and close the sockets and handshakes. The HTTP server ends open connections."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            asyncio.get_running_loop().remove_reader(each)
        for timer in self._again.values():
            timer.cancel()
        for task in (*self._tasks, *self._shaking.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._shaking.values(), return_exceptions=True)
        for each in sockets:
            each.close()

    async def answered(self, request: R, handler: "Callable[[R], Awaitable[StreamResponse]]") -> "StreamResponse":
        """The answer of ``handler``, with its phases reported to the connection. The answer is sent here, and not by
        aiohttp after the handler, so that its end is known; a client that breaks off is not an error of the handler.
        """
        from aiohttp.web_response import Response

        connection = self._by_protocol.get(request.protocol)
        if connection is None:
            return Response(status=400)  # the connection is gone since the request was read: nobody gets this answer
        connection.began(request)
        self.places.began(connection.id)
        try:
            response = await _made(handler, request)
            if response.status in REFUSALS and connection.group is None:
                response.force_close()
            await _sent(response, request)
            if isinstance(response, Exception):
                raise response  # aiohttp wants its exceptions raised, and finds this one answered
            return response
        finally:
            self.places.ended(connection.id)
            connection.ended()

    def full(self, request: "BaseRequest", user: str) -> bool:
        """Whether ``user`` has no connection left for this request, which is then to be refused."""
        connection = self._by_protocol.get(request.protocol)
        return connection is not None and self.places.full(connection.id, user)

    def granted(self, request: "BaseRequest", user: str) -> None:
        """Count the connection for the user from now on: the user may have what was asked for."""
        connection = self._by_protocol.get(request.protocol)
        if connection is None:
            return
        for each in self.places.granted(connection.id, user):
            self._abort(each)

    def stream(self, request: "BaseRequest") -> bool:
        """Make the answer a stream. False where no place can be spared for it."""
        connection = self._by_protocol.get(request.protocol)
        if connection is None:
            return True
        connection.streams = self.places.stream(connection.id)
        return connection.streams

    # -- accepting ---------------------------------------------------------------------------------------------------

    def _listen(self, listening: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        # The event loop's own accept loses the connection that it accepted when its task is cancelled: the peer waits
        # until the garbage is collected.
        try:
            accepted, peer = listening.accept()
        except OSError as failed:
            if failed.errno in _FULL:
                log.warning("no connection can be accepted: %s", failed.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                self._again[listening] = loop.call_later(_FULL_AGAIN_S, self._listen, listening)
            return
        accepted.setblocking(False)
        self._take(accepted, str(peer[0]) if peer else _LOCAL)

    def _take(self, accepted: socket.socket, address: str) -> None:
        if is_reserved(accepted.fileno()):
            accepted.close()
            return
        self._last += 1
        number = ConnectionId(self._last)
        group = self._group_of_address(address)
        counted = address if group is None else group
        closed = self.places.arrived(number, counted, shaking=self._tls is not None, group=group)
        for each in closed:
            self._abort(each)
        if number in closed:
            accepted.close()
            return
        connection = self._connections[number] = Connection(number, self._times, self._known)
        connection.lost = lambda: self._left(connection)
        task = self._shaking[number] = self._begin(self._connect(connection, accepted))
        task.add_done_callback(lambda ended: self._connected(connection, accepted, cancelled=ended.cancelled()))

    def _begin(self, work: Awaitable[None]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        shake_s = None if self._tls is None else self._times.handshake_s
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=shake_s,
                ssl_shutdown_timeout=shake_s,
            )
        except OSError as failed:  # TLS errors and time-outs are OSErrors too
            _broke_off(failed)
            self._left(connection)

    def _connected(self, connection: Connection, accepted: socket.socket, *, cancelled: bool) -> None:
        self._shaking.pop(connection.id, None)
        if cancelled:
            self._left(connection)
            if connection.transport is None:
                accepted.close()  # no transport may have taken it over yet

    def _known(self, connection: Connection) -> asyncio.Protocol | None:
        """The HTTP protocol for a peer that is known now; None where the peer gets no place."""
        if connection.id not in self._connections:
            return None
        assert connection.transport is not None
        assert self._make is not None
        if self._tls is not None:
            connection.group = self._group_of_peer(connection.transport)
            closed = self.places.identified(connection.id, connection.group)
            for each in closed:
                self._abort(each)
            if connection.id in closed:
                return None
        connection.head_bytes = self._head_bytes.get(connection.group, HEAD_BYTES)
        protocol = self._make()
        self._by_protocol[protocol] = connection
        return protocol

    def _abort(self, number: ConnectionId) -> None:
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        if (task := self._shaking.pop(number, None)) is not None and connection.transport is None:
            task.cancel()
        connection.abort()

    def _left(self, connection: Connection) -> None:
        self.places.left(connection.id)
        self._connections.pop(connection.id, None)
        self._by_protocol.pop(connection.inner, None)


async def _made(handler: "Callable[[R], Awaitable[StreamResponse]]", request: R) -> "StreamResponse":
    """The handler's response, raised ones included."""
    from aiohttp.web_response import StreamResponse

    try:
        return await handler(request)
    except Exception as raised:
        if not isinstance(raised, StreamResponse):
            raise
        return raised


async def _sent(response: "StreamResponse", request: "BaseRequest") -> None:
    try:
        await response.prepare(request)
        await _body_sent(response, request)
        await response.write_eof()
    except ConnectionError as broken:
        _broke_off(broken)


async def _body_sent(response: "StreamResponse", request: "BaseRequest") -> None:
    """Send a large body in pieces. In one piece all of it would go into the transport's buffer, and TLS says only at
    the next write that the peer does not read: the answer would count as taken.
    """
    from aiohttp.web_response import Response, StreamResponse

    body = response.body if isinstance(response, Response) else None
    if not isinstance(body, bytes) or len(body) <= _PIECE_BYTES or request.method == "HEAD":
        return
    pieces = memoryview(body)
    for start in range(0, len(body), _PIECE_BYTES):
        if request.transport is None or request.transport.is_closing():
            raise ConnectionResetError("the peer is gone")
        await response.write(pieces[start : start + _PIECE_BYTES])
        # A write to a peer that is gone raises nothing: the loop tells of the loss.
        await asyncio.sleep(0)
    await StreamResponse.write_eof(response)


def _broke_off(error: OSError) -> None:
    """Log that a peer broke off, as ``kube.brokenpeers`` logs it for asyncio and aiohttp."""
    log.debug("a peer broke off", extra={"error": " ".join(str(error).split()) or type(error).__name__})
