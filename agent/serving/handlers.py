"""Answers the requests to the agent's listeners: probes and metrics to the network, its report and releases to people
on the node.

This module is loaded when the devices are listed: aiohttp is a third of what a start costs, and no pod waits for it.
Only the lower half of its server is loaded: routes, middlewares and the rest of ``aiohttp.web`` are another MiB, for
five paths.
"""

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

from agent.report import Answers
from agent.serving.ownaddresses import NODE, OwnAddresses
from kube.listening.connection import Times
from kube.listening.listener import Listener
from kube.listening.places import PlaceLimits
from kube.metrics import TEXT_TYPE

LONGEST_RELEASE_S = 600.0
STOP_WITHIN_S = 0.5
PUBLIC = PlaceLimits(common=120, per_address=16, per_user=16, groups={NODE: 8})
"""The limits of the public port. The kubelet's probes share it with anybody who reaches the pod: 8 of the 128 places
are for the node alone.
"""
LOCAL = PlaceLimits(common=32, per_address=32, per_user=32)
Answer = Callable[[BaseRequest], Awaitable[Response]]
Paths = Mapping[str, tuple[str, Answer]]
"""The method and the answer of each path."""


class Handlers:
    """aiohttp's side of ``agent.serving.endpoints``."""

    def __init__(self, answers: Answers, node_addresses: Sequence[str] = (), times: Times | None = None) -> None:
        """``node_addresses``: addresses of this node beside those that its routes tell. ``times``: the time limits of
        peers, where they are not the usual ones.
        """
        self._answers = answers
        self._node_addresses = node_addresses
        self._times = times
        self._servers: list[tuple[Server, Listener]] = []

    def serve(self, public: list[socket.socket], local: socket.socket | None) -> None:
        """Answer on sockets that listen already; ``local`` None: there is no local socket."""
        probes: Paths = {
            "/healthz": ("GET", self._healthz),
            "/readyz": ("GET", self._readyz),
            "/metrics": ("GET", self._exposition),
        }
        own = OwnAddresses(given=self._node_addresses)
        self._run(probes, public, Listener(PUBLIC, self._times, group_of_address=own.group_of))
        people: Paths = {
            "/v1/node": ("GET", self._node),
            "/v1/release": ("POST", self._on_release),
            "/v1/return": ("POST", self._on_return),
        }
        self._run(people, [] if local is None else [local], Listener(LOCAL, self._times))

    async def stop(self) -> None:
        for server, listener in self._servers:
            await listener.close()
            await asyncio.sleep(0)  # requests that have come are begun before idle connections are closed
            server.pre_shutdown()
            await server.shutdown(STOP_WITHIN_S)

    def _run(self, paths: Paths, sockets: list[socket.socket], listener: Listener) -> None:
        async def found(request: BaseRequest) -> Response:
            method, answer = paths.get(request.path, ("", None))
            if answer is None:
                return Response(status=404, text="404: Not Found")
            if request.method not in {method, "HEAD" if method == "GET" else method}:
                return Response(status=405, text="405: Method Not Allowed", headers={"Allow": method})
            return await answer(request)

        async def bounded(request: BaseRequest) -> StreamResponse:
            return await listener.answered(request, found)

        server = Server(bounded, access_log=None, auto_decompress=False)
        listener.serve(server, sockets)
        self._servers.append((server, listener))

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

    async def _on_return(self, request: BaseRequest) -> Response:
        give_back, gpu = self._answers.give_back, request.query.get("gpu", "")
        if not gpu.isdecimal() or give_back is None:
            return Response(status=400, text="gpu: expected the index of a GPU\n")
        try:
            return Response(text=f"{give_back(int(gpu))}\n")
        except ValueError as refused:
            return Response(status=409, text=f"{refused}\n")


def _verdict(problem: str | None) -> Response:
    return Response(text=f"{problem}\n", status=503) if problem else Response(text="ok\n")
