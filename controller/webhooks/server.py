"""The HTTPS server: /convert and /mutate-... for the API server, /healthz and /readyz for the kubelet.

The certificate can be exchanged while it serves: new connections get the new one, open ones go on.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from controller import conversion
from controller.webhooks import jobs, pods, serving
from controller.webhooks.keeper import Served
from controller.webhooks.tls import load

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""An unpaged list comes as one review of all its objects, which take several times as much once decoded."""
_SMALL_BYTES: Final = 4 * 1024 * 1024
"""Larger bodies are read and answered one at a time."""
_READ_S: Final = 20.0
"""A slower sender is cut off: callers are not authenticated, and must not hold a connection."""

Answer = Callable[[bytes], bytes]
AskingAnswer = Callable[[bytes], Awaitable[bytes]]
"""Of a small body, and after a look at other objects."""


class WebhookServer:
    """Serves on ``host``:``port`` (0: any free one) from ``start`` to ``stop``. More answers by path: ``mutate``, and
    ``asking`` for those that look at other objects.
    """

    def __init__(
        self,
        *,
        host: str = "0.0.0.0",  # noqa: S104 - the API server comes from another machine
        port: int = 9443,
        mutate_job: Answer = jobs.answer,
        mutate_pod: Answer = pods.answer,
        mutate_serving: Answer = serving.answer,
        mutate: Mapping[str, Answer] | None = None,
        asking: Mapping[str, AskingAnswer] | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._host = host
        self._port = port
        self._ready = ready
        own = {"/mutate-job": mutate_job, "/mutate-pod": mutate_pod, "/mutate-serving": mutate_serving}
        self._mutate = {**own, **(mutate or {})}
        self._asking = dict(asking or {})
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._large = asyncio.Lock()
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that it listens on; only while it serves."""
        assert self._runner is not None, "not started"
        return int(self._runner.addresses[0][1])

    @property
    def serving(self) -> bool:
        return self._runner is not None

    def use(self, served: Served) -> None:
        """Present this certificate from now on. Raises CertificateError; the one before then stays in use."""
        # A trial first: a failure in the live context would leave it without a certificate.
        load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), served.certificate, served.key)
        load(self._context, served.certificate, served.key)

    async def start(self) -> None:
        """Listen. ``use`` comes first. Raises OSError for a port that is taken."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/convert", self._convert)
        for path in self._mutate:
            app.router.add_post(path, self._mutated)
        for path in self._asking:
            app.router.add_post(path, self._asked)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        # Callers are not known, and a packed body would be unpacked on the controller's loop.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0, auto_decompress=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port, ssl_context=self._context).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Finish what is being answered (2 s), then close."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _convert(self, request: web.Request) -> web.Response:
        return await self._answered(request, conversion.answer)

    async def _mutated(self, request: web.Request) -> web.Response:
        return await self._answered(request, self._mutate[request.path])

    async def _asked(self, request: web.Request) -> web.Response:
        length = request.content_length
        if length is None or length > _SMALL_BYTES:
            raise web.HTTPRequestEntityTooLarge(_SMALL_BYTES, length or 0)
        found = await self._asking[request.path](await _read(request))
        return web.Response(body=found, content_type="application/json")

    async def _answered(self, request: web.Request, answer: Answer) -> web.Response:
        length = request.content_length
        if length is not None and length <= _SMALL_BYTES:
            return await _answer(request, answer)
        async with self._large:
            return await _answer(request, answer)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self._ready() else web.Response(status=503, text="not ready\n")


async def _answer(request: web.Request, answer: Answer) -> web.Response:
    # In a thread: a list of many thousand objects must not block the controller's loop.
    found = await asyncio.to_thread(answer, await _read(request))
    return web.Response(body=found, content_type="application/json")


async def _read(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_READ_S):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
