"""Serves an aiohttp application behind a listener."""

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from kube.listening.listener import Listener
from kube.listening.sockets import listening


def within(listener: Listener) -> Middleware:
    """The outermost middleware of an application whose connections ``listener`` accepts."""

    @web.middleware
    async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await listener.answered(request, handler)

    return bounded


class Serving:
    """One application that serves from ``start`` to ``stop``."""

    def __init__(self, runner: web.AppRunner, listener: Listener, port: int) -> None:
        self._runner = runner
        self._listener = listener
        self.port = port

    @classmethod
    async def start(
        cls, app: web.Application, listener: Listener, host: str, port: int, *, stop_within_s: float, **options: Any
    ) -> "Serving":
        """Start serving. ``app`` has ``within(listener)`` as its middleware; ``options`` are those of aiohttp's server.
        ``port`` is then the one in use, which the system chose for 0. Raises OSError for an address that is taken.

        Bodies are not unpacked: aiohttp would do that on the loop before their sender is known, and 400 KB can hold the
        loop for seconds.
        """
        sockets = listening(host, port)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=stop_within_s, auto_decompress=False, **options)
        await runner.setup()
        assert runner.server is not None
        listener.serve(runner.server, sockets)
        return cls(runner, listener, int(sockets[0].getsockname()[1]))

    async def stop(self) -> None:
        """Stop accepting, finish the answers under way (within ``stop_within_s``), then close."""
        await self._listener.close()
        await asyncio.sleep(0)
        await self._runner.cleanup()
