"""What the agent's listeners answer: probes and metrics to the network, its report and releases to people on the node.

Loaded when the devices are listed: aiohttp is a third of what a start costs, and no pod waits for it. Of its server
only the lower half is: routes, middlewares and the rest of ``aiohttp.web`` are another MiB, for five paths.
"""

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from aiohttp.web_server import Server

from agent.report import Answers
from kube.metrics import TEXT_TYPE

LONGEST_RELEASE_S = 600.0
STOP_WITHIN_S = 0.5
Answer = Callable[[BaseRequest], Awaitable[Response]]
Paths = Mapping[str, tuple[str, Answer]]
"""Method and answer by path."""


class Handlers:
    """aiohttp's side of ``agent.serving.endpoints``."""

    def __init__(self, answers: Answers, backlog: int) -> None:
        self._answers = answers
        self._backlog = backlog
        self._servers: list[tuple[Server, list[asyncio.Server]]] = []

    async def serve(self, public: list[socket.socket], local: socket.socket | None) -> None:
        """Answer on sockets that listen already; ``local`` None: there is no local one."""
        probes: Paths = {
            "/healthz": ("GET", self._healthz),
            "/readyz": ("GET", self._readyz),
            "/metrics": ("GET", self._exposition),
        }
        await self._run(probes, public)
        people: Paths = {"/v1/node": ("GET", self._node), "/v1/release": ("POST", self._on_release)}
        await self._run(people, [] if local is None else [local])

    async def stop(self) -> None:
        for server, listeners in self._servers:
            for listener in listeners:
                listener.close()
            await asyncio.sleep(0)  # requests that have come are begun before idle connections are closed
            server.pre_shutdown()
            await server.shutdown(STOP_WITHIN_S)

    async def _run(self, paths: Paths, sockets: list[socket.socket]) -> None:
        async def answer(request: BaseRequest) -> Response:
            method, found = paths.get(request.path, ("", None))
            if found is None:
                return Response(status=404, text="404: Not Found")
            if request.method not in {method, "HEAD" if method == "GET" else method}:
                return Response(status=405, text="405: Method Not Allowed", headers={"Allow": method})
            return await found(request)

        server, loop = Server(answer, access_log=None, auto_decompress=False), asyncio.get_running_loop()
        listeners = [await loop.create_server(server, sock=listener, backlog=self._backlog) for listener in sockets]
        self._servers.append((server, listeners))

    async def _healthz(self, request: BaseRequest) -> Response:  # noqa: ARG002 - aiohttp's handler shape
        return _verdict(self._answers.healthy())

    async def _readyz(self, request: BaseRequest) -> Response:  # noqa: ARG002
        return _verdict(self._answers.ready())

    async def _exposition(self, request: BaseRequest) -> Response:  # noqa: ARG002
        return Response(body=self._answers.exposition(), headers={"Content-Type": TEXT_TYPE})

    async def _node(self, request: BaseRequest) -> Response:  # noqa: ARG002
        return Response(body=msgspec.json.encode(self._answers.report()), content_type="application/json")

    async def _on_release(self, request: BaseRequest) -> Response:
        try:
            seconds = float(request.query.get("seconds", ""))
        except ValueError:
            seconds = math.nan
        if not 0 < seconds <= LONGEST_RELEASE_S:
            return Response(status=400, text=f"seconds: expected a number up to {LONGEST_RELEASE_S:g}\n")
        if "gpu" in request.query:
            return await self._let_go(request.query["gpu"], seconds, forced=request.query.get("force") == "true")
        self._answers.release(seconds)
        return Response(text="ok\n")

    async def _let_go(self, gpu: str, seconds: float, *, forced: bool) -> Response:
        release_gpu = self._answers.release_gpu
        if not gpu.isdecimal() or release_gpu is None:
            return Response(status=400, text="gpu: expected the index of a GPU\n")
        try:
            return Response(text=f"{await release_gpu(int(gpu), seconds, forced)}\n")
        except ValueError as refused:
            return Response(status=409, text=f"{refused}\n")


def _verdict(problem: str | None) -> Response:
    return Response(text=f"{problem}\n", status=503) if problem else Response(text="ok\n")
