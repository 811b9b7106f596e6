"""The HTTPS server: /convert and /mutate-... for the API server, /healthz and /readyz for the kubelet.

The certificate can be exchanged while it serves: new connections get the new one, open ones go on.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from controller import conversion
from controller.webhooks import jobs, pods, serving
from controller.webhooks.apart.bodies import MANY_BYTES, ONE_BYTES, Bodies, Body, BodyTooLargeError, NoRoomError
from controller.webhooks.tls import Served, load, tried

_READ_S: Final = 20.0
"""A slower sender is cut off, and so is who takes its answer more slowly."""
_TURN_S: Final = 5.0
"""So long a large body waits for the one before it, unread."""
_AGAIN_S: Final = 1
"""What is said of room: the API server tries ten times."""
_LINGER_S: Final = 2.0
"""So long the rest of a refused body is thrown away, so that its sender reads the answer."""
_LIGHT_BYTES: Final = 256 * 1024
"""Larger bodies are answered one at a time: decoded they take ten times as much."""

Answer = Callable[[bytes], bytes]
AskingAnswer = Callable[[bytes], Awaitable[bytes]]
"""Of one object, and after a look at what the deciding process knows."""
Ready = Callable[[], bool]


class WebhookServer:
    """Serves on ``host``:``port`` (0: any free one) from ``start`` to ``stop``. Answers by path: ``mutate``, which by
    default has none that need a configuration, and ``asking`` for those that look at other objects.

    ``client_ca``: what a client's certificate must be signed by on all paths but /convert and the probes; empty where
    none is asked for. ``ready``: whether all that answers depend on is known; conversion needs nothing.
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
            # Optional: the API server has no certificate to show for a conversion.
            self._context.verify_mode = ssl.CERT_OPTIONAL
            self._context.load_verify_locations(cadata=client_ca)
        self.bodies = Bodies()
        self._closed = asyncio.Event()
        """Set whenever a body is closed, and replaced."""
        self._light = ThreadPoolExecutor(2, "light")
        self._heavy = ThreadPoolExecutor(1, "heavy")
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that it listens on; only while it serves."""
        assert self._runner is not None, "not started"
        return int(self._runner.addresses[0][1])

    @property
    def serving(self) -> bool:
        return self._runner is not None

    async def use(self, served: Served) -> None:
        """Present this certificate from now on. Raises CertificateError; the one before then stays in use."""
        # A trial first: a failure in the live context would leave it without a certificate.
        tried(served)
        load(self._context, served.certificate, served.key)

    async def start(self) -> None:
        """Listen. ``use`` comes first. Raises OSError for a port that is taken."""
        app = web.Application()
        app.router.add_post("/convert", self._convert)
        for path in self.mutate:
            app.router.add_post(path, self._mutated)
        for path in self._asking:
            app.router.add_post(path, self._asked)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        # Callers are not known: nothing is unpacked for them.
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=2.0, auto_decompress=False, lingering_time=_LINGER_S
        )
        await runner.setup()
        try:
            await self._listen(runner)
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner

    async def _listen(self, runner: web.AppRunner) -> None:
        await web.TCPSite(runner, self._host, self._port, ssl_context=self._context).start()

    async def stop(self) -> None:
        """Finish what is being answered (2 s), then close."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
        for pool in (self._light, self._heavy):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _convert(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, conversion.answer, MANY_BYTES)

    async def _mutated(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        return await self._answered(request, self.mutate[request.path], ONE_BYTES)

    async def _asked(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        async with self._body(request, ONE_BYTES) as body:
            found = await self._asking[request.path](await _read(request, body))
            return await _written(request, found)

    def _check(self, request: web.Request) -> None:
        if self._asks_for_clients and not (request.transport and request.transport.get_extra_info("peercert")):
            raise web.HTTPUnauthorized(text="a client certificate is needed here\n")
        if not self._ready():
            raise web.HTTPServiceUnavailable(text="not ready\n", headers={"Retry-After": str(_AGAIN_S)})

    async def _answered(self, request: web.Request, answer: Answer, most_bytes: int) -> web.StreamResponse:
        async with self._body(request, most_bytes) as body:
            given = await _read(request, body)
            pool = self._light if len(given) <= _LIGHT_BYTES else self._heavy
            found = await asyncio.get_running_loop().run_in_executor(pool, answer, given)
            del given
            return await _written(request, found)

    @asynccontextmanager
    async def _body(self, request: web.Request, most_bytes: int) -> AsyncIterator[Body]:
        """A body counts until its answer has been taken."""
        body: Body | None = None
        try:
            body = await self._opened(request.content_length, most_bytes)
            yield body
        except BodyTooLargeError as error:
            raise web.HTTPRequestEntityTooLarge(most_bytes, 0, text=f"{error}\n") from None
        except NoRoomError:
            text, again = "too much is being answered\n", {"Retry-After": str(_AGAIN_S)}
            raise web.HTTPTooManyRequests(text=text, headers=again) from None
        except MemoryError:
            raise web.HTTPServiceUnavailable(text="too large for the memory that is left\n") from None
        finally:
            if body is not None:
                body.close()
                self._closed.set()
                self._closed = asyncio.Event()

    async def _opened(self, announced_bytes: int | None, most_bytes: int) -> Body:
        until_s = asyncio.get_running_loop().time() + _TURN_S
        while True:
            try:
                return self.bodies.open(announced_bytes, most_bytes)
            except NoRoomError:
                try:
                    async with asyncio.timeout_at(until_s):
                        await self._closed.wait()
                except TimeoutError:
                    raise NoRoomError from None

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self._ready() else web.Response(status=503, text="not ready\n")


async def _read(request: web.Request, body: Body) -> bytes:
    """The body, of which no more is held than ``body`` has taken."""
    found = bytearray()  # grows in place: joined parts would be held twice
    try:
        async with asyncio.timeout(_READ_S):
            async for part in request.content.iter_any():
                body.take(len(part))
                found += part
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    return bytes(found)


async def _written(request: web.Request, found: bytes) -> web.StreamResponse:
    """The answer, taken by whoever asked: one who does not is cut off."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(found)
    try:
        async with asyncio.timeout(_READ_S):
            await response.prepare(request)
            await response.write(found)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response
