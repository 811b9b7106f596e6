"""What the agent's listeners answer: probes and metrics to the network, its report and releases to people on the node.

Loaded when the devices are listed: aiohttp is a third of what a start costs, and no pod waits for it.
"""

import math
import socket

import msgspec
from aiohttp import web

from agent.report import Answers
from kube.metrics import TEXT_TYPE

LONGEST_RELEASE_S = 600.0


class Handlers:
    """aiohttp's side of ``agent.serving.endpoints``."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._runners: list[web.AppRunner] = []

    async def serve(self, public: list[socket.socket], local: socket.socket) -> None:
        """Answer on sockets that listen already."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._exposition)
        await self._run(app, public)
        app = web.Application()
        app.router.add_get("/v1/node", self._node)
        app.router.add_post("/v1/release", self._on_release)
        await self._run(app, [local])

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()

    async def _run(self, app: web.Application, sockets: list[socket.socket]) -> None:
        if not sockets:
            return
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, auto_decompress=False)
        await runner.setup()
        self._runners.append(runner)
        for listener in sockets:
            await web.SockSite(runner, listener).start()

    async def _healthz(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's handler shape
        return _verdict(self._answers.healthy())

    async def _readyz(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return _verdict(self._answers.ready())

    async def _exposition(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=self._answers.exposition(), headers={"Content-Type": TEXT_TYPE})

    async def _node(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=msgspec.json.encode(self._answers.report()), content_type="application/json")

    async def _on_release(self, request: web.Request) -> web.Response:
        try:
            seconds = float(request.query.get("seconds", ""))
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= LONGEST_RELEASE_S:
            return web.Response(status=400, text=f"seconds: expected a number up to {LONGEST_RELEASE_S:g}\n")
        if "gpu" in request.query:
            return await self._let_go(request.query["gpu"], seconds, forced=request.query.get("force") == "true")
        self._answers.release(seconds)
        return web.Response(text="ok\n")

    async def _let_go(self, gpu: str, seconds: float, *, forced: bool) -> web.Response:
        release_gpu = self._answers.release_gpu
        if not gpu.isdecimal() or release_gpu is None:
            return web.Response(status=400, text="gpu: expected the index of a GPU\n")
        try:
            return web.Response(text=f"{await release_gpu(int(gpu), seconds, forced)}\n")
        except ValueError as refused:
            return web.Response(status=409, text=f"{refused}\n")


def _verdict(problem: str | None) -> web.Response:
    return web.Response(text=f"{problem}\n", status=503) if problem else web.Response(text="ok\n")
