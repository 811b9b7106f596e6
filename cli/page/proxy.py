"""A server on this machine alone that sends a browser's requests through the API server, with the caller's credentials.

A client that may talk to the proxy has the caller's rights on the page, so the proxy answers one browser alone: the
address that is opened works once and leaves a cookie there. Another page in that browser is kept out by the cookie's
SameSite, the Host that was asked for, and the Origin of what changes something.
"""

import asyncio
import hmac
import html
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp
from aiohttp import web

from inventory.api.names import VIEW_GROUP, VIEW_VERSION
from kube import brokenpeers
from kube.client import Client, describe
from kube.errors import KubeError
from kube.listening.apps import Serving, within
from kube.listening.listener import Listener
from kube.listening.places import PlaceLimits

HOST: Final = "127.0.0.1"
_AT: Final = f"/apis/{VIEW_GROUP}/{VIEW_VERSION}/page"
_MOST_BYTES: Final = 256 * 1024
_HANDED_ON: Final = ("Last-Event-ID", "Content-Type", "If-None-Match")
_HANDED_BACK: Final = (
    "Content-Type",
    "Cache-Control",
    "ETag",
    "Retry-After",
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Referrer-Policy",
)
_PART: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~-]{1,253}")
"""A file of the page, a namespace or a name. No character of it has a meaning in a URL."""
_METHODS: Final = ("GET", "HEAD", "POST")
_ASKED_AS: Final = {"HEAD": "GET"}
"""The method that is sent to the page, which has no HEAD of its own: the body is left out here."""
_READ_ONLY: Final = "This page is for looking: what is shown is simulated, and nothing can be changed from here.\n"
_DENIED: Final = 'This address is for the browser that "tessera page" opened. Start it again for a new one.\n'
_STOPPED_S: Final = 0.2
_LIMITS: Final = PlaceLimits(common=64, per_address=64, per_user=64)
"""The limits of connections: one browser, and other programs on this machine that try the port; all have one
address.
"""


class PageProxy:
    """The proxy. ``start`` gives the address to open; it serves until ``stop``.

    ``guarded`` False: it serves any program on this machine, as often as it likes, where no shown data is real.
    """

    def __init__(self, client: Client, *, guarded: bool = True) -> None:
        self._client = client
        self._guarded = guarded
        self._ticket: str | None = secrets.token_urlsafe(32) if guarded else None
        self._cookie = secrets.token_urlsafe(32)
        self._listener = Listener(_LIMITS)
        self._serving: Serving | None = None
        self.port = 0

    async def start(self, port: int) -> str:
        """Start serving on ``port`` and return the address; port 0: any that is free. Raises OSError for one that is
        taken.
        """
        app = web.Application(client_max_size=_MOST_BYTES, middlewares=[within(self._listener)])
        app.router.add_get("/open/{ticket}", self._open)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._serving = await Serving.start(app, self._listener, HOST, port, stop_within_s=_STOPPED_S)
        self.port = self._serving.port
        return f"http://{HOST}:{self.port}/" + (f"open/{self._ticket}" if self._guarded else "")

    async def stop(self) -> None:
        if self._serving is not None:
            await self._serving.stop()

    @property
    def _name(self) -> str:
        """The name of the cookie: browsers send those of one port to all ports."""
        return f"tessera-page-{self.port}"

    async def _open(self, request: web.Request) -> web.Response:
        presented, ticket = request.match_info["ticket"], self._ticket
        if (
            request.host != f"{HOST}:{self.port}"
            or ticket is None
            or not hmac.compare_digest(presented.encode(), ticket.encode())
        ):
            return _denied()
        self._ticket = None
        # This is not a redirect: one that a file's page began would be another site's request, which gets no Strict
        # cookie.
        headers = {"Content-Security-Policy": "default-src 'none'", "Referrer-Policy": "no-referrer"}
        response = web.Response(text=forward("/"), content_type="text/html", headers=headers)
        response.set_cookie(self._name, self._cookie, path="/", httponly=True, samesite="Strict")
        return response

    def _may(self, request: web.Request) -> bool:
        own = f"{HOST}:{self.port}"
        if not self._guarded:
            return _harmless(request)
        known = hmac.compare_digest(request.cookies.get(self._name, "").encode(), self._cookie.encode())
        changes = request.method not in ("GET", "HEAD")
        site = request.headers.get("Sec-Fetch-Site", "none")
        return (
            known
            and request.host == own
            and site in ("same-origin", "none")
            and (not changes or request.headers.get("Origin") == f"http://{own}")
        )

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        target = aggregated(request.rel_url.raw_path)
        if not self._may(request):
            return _denied() if self._guarded else web.Response(text=_READ_ONLY, status=403)
        if target is None:
            return web.Response(status=404)
        if request.method not in _METHODS:
            return web.Response(status=405)
        params = dict(request.query)
        if target == f"{_AT}events":
            params["watch"] = "true"
            self._listener.stream(request)
        headers = {name: value for name in _HANDED_ON if (value := request.headers.get(name)) is not None}
        data = await request.read() if request.body_exists else None
        response: web.StreamResponse | None = None
        try:
            async with self._client.passed_on(
                _ASKED_AS.get(request.method, request.method), target, params=params, data=data, headers=headers
            ) as answer:
                kept = {name: value for name in _HANDED_BACK if (value := answer.headers.get(name)) is not None}
                response = web.StreamResponse(status=answer.status, headers=kept)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    if request.method != "HEAD":
                        await response.write(chunk)
        except (aiohttp.ClientError, TimeoutError, OSError, KubeError) as failed:
            if response is None:
                words = {"message": f"the API server does not answer: {describe(failed)}"}
                return web.json_response(words, status=503, headers={"Retry-After": "2"})
            if request.transport is not None:
                request.transport.abort()
        return response


def _harmless(request: web.Request) -> bool:
    """Whether the request only reads, under a name of this machine, which no page of elsewhere can be behind; a
    forwarded port counts too.

    A POST to ``whatif`` only reads as well, and must come from the page itself.
    """
    if request.host.partition(":")[0] not in (HOST, "localhost"):
        return False
    asks = request.method == "POST" and request.rel_url.raw_path == "/page/whatif"
    return request.method in ("GET", "HEAD") or (asks and request.headers.get("Origin") == f"http://{request.host}")


def aggregated(raw_path: str) -> str | None:
    """The path at the API server for ``raw_path``, the path as it was sent; None where it is not the page's.

    The parts of the path are names and nothing else: text that another server or library could decode once more is
    refused.
    """
    if raw_path == "/":
        return f"{_AT}/index.html"
    if raw_path == "/page/events":
        return f"{_AT}events"
    prefix, _, inner = raw_path.partition("/page/")
    parts = inner.split("/")
    if prefix or not all(_PART.fullmatch(part) for part in parts):
        return None
    return "/".join((_AT, *parts))


def forward(address: str) -> str:
    """A page that leads on to ``address`` by itself, without a script."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Tessera</title>'
        f'<meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0;url={html.escape(address)}">'
    )


def _denied() -> web.Response:
    return web.Response(text=_DENIED, status=403)


async def serve(client: Client, port: int, opened: Callable[[str], Awaitable[None]], stop: asyncio.Event) -> None:
    """Serve until ``stop``. ``opened`` gets the address. Raises OSError for a port that is taken."""
    proxy = PageProxy(client)
    brokenpeers.install()  # a browser breaks off as it likes, and the terminal is a person's
    try:
        await opened(await proxy.start(port))
        await stop.wait()
    finally:
        await proxy.stop()
