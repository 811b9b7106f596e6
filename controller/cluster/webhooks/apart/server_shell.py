"""The HTTPS server: /convert and /mutate-... for the API server, /healthz and /readyz for the kubelet.

The certificate can be exchanged while it serves: new connections get the new one, open ones go on.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

from aiohttp.web_exceptions import (
    HTTPMethodNotAllowed,
    HTTPNotFound,
    HTTPRequestEntityTooLarge,
    HTTPServiceUnavailable,
    HTTPTooManyRequests,
    HTTPUnauthorized,
)
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

from controller.cluster.webhooks import jobs, pods, serving
from controller.cluster.webhooks.apart.bodies import (
    MANY_BYTES,
    ONE_BYTES,
    Bodies,
    BodiesFullError,
    Body,
    BodyTooLargeError,
)
from controller.cluster.webhooks.tls import Served, load, tried
from controller.objects import conversion
from kube.listening.connection import Times
from kube.listening.listener import Listener
from kube.listening.places import Group, PlaceLimits
from kube.listening.sockets import listening

CONNECTIONS: Final = 256
_SHAKING: Final = 64
"""Connections of ``CONNECTIONS`` that are kept for TLS handshakes."""
_PROVED: Final = 64
"""Connections of ``CONNECTIONS`` that are kept for clients with a certificate, if one is required."""
API_SERVER: Final = Group("api-server")
_BACKLOG: Final = 256
_TURN_S: Final = 5.0
"""The longest time that a large body waits, unread, for the one before it."""
_AGAIN_S: Final = 1
"""The Retry-After of a refusal for lack of room: the API server tries ten times."""
_LINGER_S: Final = 2.0
"""The time for which the rest of a refused body is read and dropped, so that its sender reads the answer."""
_END_S: Final = 2.0
_UNREAD_BYTES: Final = 16 * 1024
"""Unread bytes that each connection buffers beside its body: twice as many stop its sender."""
_PIECE_BYTES: Final = 128 * 1024
_LIGHT_BYTES: Final = 256 * 1024
"""Larger bodies are answered one at a time: decoded they take ten times as much."""

Answer = Callable[[bytes], bytes]
AskingAnswer = Callable[[bytes], Awaitable[bytes]]
"""The asynchronous answer to a review of one object, which asks for what the deciding process knows."""
Ready = Callable[[], bool]
Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]


def places(*, proved: bool) -> PlaceLimits:
    """The limits of connections. ``proved``: whether clients may show a certificate. One address may have all common
    places: the API server may be the only client, and if there are others, whoever holds most makes room.
    """
    common = CONNECTIONS - _SHAKING - (_PROVED if proved else 0)
    groups = {API_SERVER: _PROVED} if proved else {}
    return PlaceLimits(common=common, per_address=common, per_user=common, shaking=_SHAKING, groups=groups)


class WebhookServer:
    """Serves on ``host``:``port`` (0: any free one) from ``start`` to ``stop``. Answers by path: ``mutate``, which by
    default has none that need a configuration, and ``asking`` for answers that depend on other objects.

    ``client_ca``: the authority that must have signed a client's certificate on all paths but /convert and the probes;
    empty if none is required. ``ready``: whether all that answers depend on is known; conversion needs nothing.
    """

    def __init__(
        self,
        *,
        host: str = "0.0.0.0",  # noqa: S104 - the API server comes from another machine
        port: int = 9443,
        client_ca: str = "",
        mutate: Mapping[str, Answer] | None = None,
        asking: Mapping[str, AskingAnswer] | None = None,
        ready: Ready = lambda: True,
        times: Times | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._ready = ready
        own = {"/mutate-job": jobs.answer, "/mutate-pod": pods.answer, "/mutate-serving": serving.answer}
        self.mutate: Mapping[str, Answer] = {**own, **(mutate or {})}
        self._asking = dict(asking or {})
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._asks_for_clients = bool(client_ca)
        if client_ca:
            # The certificate is optional: the API server has none to show for a conversion.
            self._context.verify_mode = ssl.CERT_OPTIONAL
            self._context.load_verify_locations(cadata=client_ca)
        self.bodies = Bodies()
        self._closed = asyncio.Event()
        """An event that is set whenever a body is closed, and then replaced."""
        self.answered = 0
        """The number of bodies that have been read and closed."""
        self._light = ThreadPoolExecutor(2, "light")
        self._heavy = ThreadPoolExecutor(1, "heavy")
        self._listener = Listener(
            places(proved=bool(client_ca)),
            times,
            tls=self._context,
            group_of_peer=lambda transport: API_SERVER if transport.get_extra_info("peercert") else None,
        )
        self._routes: Mapping[tuple[str, str], Handler] = {
            ("POST", "/convert"): self._convert,
            **{("POST", path): self._mutated for path in self.mutate},
            **{("POST", path): self._asked for path in self._asking},
            ("GET", "/healthz"): self._healthz,
            ("GET", "/readyz"): self._readyz,
        }
        self._server: Server | None = None
        self.port = 0
        """The port that it listens on; 0 before ``start`` and after ``stop``."""

    @property
    def serving(self) -> bool:
        return self._server is not None

    async def use(self, served: Served) -> None:
        """Presents this certificate from now on. Raises CertificateError; the former certificate then stays in use."""
        # The certificate is tried first: a failure in the live context would leave it without one.
        tried(served)
        load(self._context, served.certificate, served.key)

    async def start(self) -> None:
        """Listens. ``use`` comes first. Raises OSError for a port that is taken."""
        sockets = listening(self._host, self._port, backlog=_BACKLOG)
        # Callers are not authenticated: nothing is decompressed for them.
        self._server = Server(
            self._handled,
            access_log=None,
            auto_decompress=False,
            lingering_time=_LINGER_S,
            read_bufsize=_UNREAD_BYTES,
        )
        self.port = int(sockets[0].getsockname()[1])
        self._listener.serve(self._server, sockets)

    async def stop(self) -> None:
        """Finishes the answers in progress (2 s), then closes."""
        if self._server is not None:
            server, self._server, self.port = self._server, None, 0
            await self._listener.close()
            await server.shutdown(_END_S)
        for pool in (self._light, self._heavy):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _handled(self, request: BaseRequest) -> StreamResponse:
        return await self._listener.answered(request, self._routed)

    async def _routed(self, request: BaseRequest) -> StreamResponse:
        handler = self._routes.get((request.method, request.path))
        if handler is None:
            known = {method for method, path in self._routes if path == request.path}
            raise HTTPMethodNotAllowed(request.method, known) if known else HTTPNotFound
        try:
            return await handler(request)
        except OSError:  # the client broke off, or was too slow: the listener says so when it cannot answer
            return Response(status=400)

    async def _convert(self, request: BaseRequest) -> StreamResponse:
        return await self._answered(request, conversion.answer, MANY_BYTES)

    async def _mutated(self, request: BaseRequest) -> StreamResponse:
        self._check(request)
        return await self._answered(request, self.mutate[request.path], ONE_BYTES)

    async def _asked(self, request: BaseRequest) -> StreamResponse:
        self._check(request)
        async with self._body(request, ONE_BYTES) as body:
            found = await self._asking[request.path](await _read(request, body))
            return await _written(request, found)

    def _check(self, request: BaseRequest) -> None:
        if self._asks_for_clients and not (request.transport and request.transport.get_extra_info("peercert")):
            raise HTTPUnauthorized(text="a client certificate is needed here\n")
        if not self._ready():
            raise HTTPServiceUnavailable(text="not ready\n", headers={"Retry-After": str(_AGAIN_S)})

    async def _answered(self, request: BaseRequest, answer: Answer, most_bytes: int) -> StreamResponse:
        async with self._body(request, most_bytes) as body:
            given = await _read(request, body)
            pool = self._light if len(given) <= _LIGHT_BYTES else self._heavy
            found = await asyncio.get_running_loop().run_in_executor(pool, answer, given)
            del given
            return await _written(request, found)

    @asynccontextmanager
    async def _body(self, request: BaseRequest, most_bytes: int) -> AsyncIterator[Body]:
        """The body of a request, which counts as held until its answer has been sent."""
        body: Body | None = None
        try:
            body = await self._opened(request.content_length, most_bytes)
            yield body
        except BodyTooLargeError as error:
            raise HTTPRequestEntityTooLarge(most_bytes, 0, text=f"{error}\n") from None
        except BodiesFullError:
            text, again = "too much is being answered\n", {"Retry-After": str(_AGAIN_S)}
            raise HTTPTooManyRequests(text=text, headers=again) from None
        except MemoryError:
            raise HTTPServiceUnavailable(text="too large for the memory that is left\n") from None
        finally:
            if body is not None:
                body.close()
                self.answered += 1
                self._closed.set()
                self._closed = asyncio.Event()

    async def _opened(self, announced_bytes: int | None, most_bytes: int) -> Body:
        until_s = asyncio.get_running_loop().time() + _TURN_S
        while True:
            try:
                return self.bodies.open(announced_bytes, most_bytes)
            except BodiesFullError:
                try:
                    async with asyncio.timeout_at(until_s):
                        await self._closed.wait()
                except TimeoutError:
                    raise BodiesFullError from None

    async def _healthz(self, _request: BaseRequest) -> Response:
        return Response(text="ok\n")

    async def _readyz(self, _request: BaseRequest) -> Response:
        return Response(text="ok\n") if self._ready() else Response(status=503, text="not ready\n")


async def _read(request: BaseRequest, body: Body) -> bytes:
    """The bytes of the body; no more are held than ``body`` has counted."""
    received = bytearray()  # grows in place: joined parts would be held twice
    try:
        async for part in request.content.iter_any():
            body.take(len(part))
            received += part
        return bytes(received)
    finally:
        # An error keeps this frame alive, and aiohttp keeps the error of a connection that breaks off.
        received.clear()


async def _written(request: BaseRequest, found: bytes) -> StreamResponse:
    """Sends the answer and waits until it has been read. Raises OSError for a client that breaks off, or is cut off."""
    response = StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(found)
    await response.prepare(request)
    for start in range(0, len(found), _PIECE_BYTES):
        # The answer is sent in pieces: bytes that are written at once are held a second time, encrypted.
        await response.write(found[start : start + _PIECE_BYTES])
        await asyncio.sleep(0)  # so that the end of the connection is heard of before the next
    await response.write_eof()
    return response
