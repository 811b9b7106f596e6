"""The agent's two listeners: probes and metrics over TCP, its report on a local socket for people."""

import contextlib
import math
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from agent.config.settings import Address
from agent.report import NodeReport

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SOCKET_NAME = "agent.sock"
LONGEST_RELEASE_S = 600.0


class Endpoints:
    """Starts and stops the listeners. ``healthy`` and ``ready`` answer with None, or with why not."""

    def __init__(
        self,
        exposition: Callable[[], bytes],
        report: Callable[[], NodeReport],
        healthy: Callable[[], str | None],
        ready: Callable[[], str | None],
        release: Callable[[float], None],
        release_gpu: Callable[[int, float, bool], Awaitable[str]] | None = None,
    ) -> None:
        """``release_gpu`` gets index, seconds and whether it is to be forced; raises ValueError with why not."""
        self._text = exposition
        self._report = report
        self._healthy = healthy
        self._ready = ready
        self._release = release
        self._release_gpu = release_gpu
        self._runners: list[web.AppRunner] = []
        self._socket: Path | None = None
        self.port = 0

    async def start(self, address: Address | None, state_dir: Path) -> None:
        """Listen on both (``address`` None: on the socket alone). Raises OSError.

        ``port`` is then the TCP port in use; port 0 asks for any.
        """
        if address is not None:
            public = web.Application()
            public.router.add_get("/healthz", self._healthz)
            public.router.add_get("/readyz", self._readyz)
            public.router.add_get("/metrics", self._exposition)
            runner = await self._run(public)
            await web.TCPSite(runner, address.host, address.port).start()
            self.port = int(runner.addresses[0][1])
        local = web.Application()
        local.router.add_get("/v1/node", self._node)
        local.router.add_post("/v1/release", self._on_release)
        await self._listen_locally(await self._run(local), state_dir / SOCKET_NAME)

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        if self._socket is not None:
            with contextlib.suppress(FileNotFoundError):
                self._socket.unlink()

    async def _run(self, app: web.Application) -> web.AppRunner:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        self._runners.append(runner)
        return runner

    async def _listen_locally(self, runner: web.AppRunner, path: Path) -> None:
        # The state folder belongs to one agent: what stands there is a dead agent's.
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            await web.UnixSite(runner, str(path)).start()
        finally:
            os.umask(before)
        self._socket = path

    async def _healthz(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's handler shape
        return _verdict(self._healthy())

    async def _readyz(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return _verdict(self._ready())

    async def _exposition(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=self._text(), headers={"Content-Type": METRICS_TYPE})

    async def _node(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=msgspec.json.encode(self._report()), content_type="application/json")

    async def _on_release(self, request: web.Request) -> web.Response:
        try:
            seconds = float(request.query.get("seconds", ""))
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= LONGEST_RELEASE_S:
            return web.Response(status=400, text=f"seconds: expected a number up to {LONGEST_RELEASE_S:g}\n")
        if "gpu" in request.query:
            return await self._let_go(request.query["gpu"], seconds, forced=request.query.get("force") == "true")
        self._release(seconds)
        return web.Response(text="ok\n")

    async def _let_go(self, gpu: str, seconds: float, *, forced: bool) -> web.Response:
        if not gpu.isdecimal() or self._release_gpu is None:
            return web.Response(status=400, text="gpu: expected the index of a GPU\n")
        try:
            return web.Response(text=f"{await self._release_gpu(int(gpu), seconds, forced)}\n")
        except ValueError as refused:
            return web.Response(status=409, text=f"{refused}\n")


def _verdict(problem: str | None) -> web.Response:
    return web.Response(text=f"{problem}\n", status=503) if problem else web.Response(text="ok\n")
