"""An API server's front door: proxies to a Service's or a Pod's port as the real one does, all else to the server."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from kube.testing import FakeApiServer

_PROXIED = re.compile(r"/api/v1/namespaces/([^/]+)/(services|pods)/([^/:]+):(\w+)/proxy(/.*)")


class FrontDoor:
    """``ports``: what ``services/<name>`` and ``pods/<name>`` lead to; ``asked``: every proxied path;
    ``forbidden``: paths, as a pattern, that RBAC refuses."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self.ports: dict[str, int] = {}
        self.asked: list[str] = []
        self.forbidden = ""
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        if self.forbidden and re.search(self.forbidden, request.path):
            said = {"kind": "Status", "reason": "Forbidden", "message": f"{request.path} is forbidden"}
            return web.json_response(said, status=403)
        found = _PROXIED.fullmatch(request.path)
        base, path, headers = self._server.config.server, request.path, dict(request.headers)
        if found is not None:
            namespace, kind, name, port, path = found.groups()
            self.asked.append(f"{kind}/{name}:{port}{path}")
            where = self.ports.get(f"{kind}/{name}") if namespace == "tessera-system" else None
            if where is None:
                return web.json_response({"message": f'no endpoints available for service "{name}"'}, status=503)
            base, headers = f"http://127.0.0.1:{where}", {}
        url = f"{base}{path}" + (f"?{request.query_string}" if request.query_string else "")
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(request.method, url, headers=headers, data=await request.read()) as answer,
            ):
                return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)
        except aiohttp.ClientError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)


@asynccontextmanager
async def front_door(server: FakeApiServer) -> AsyncIterator[FrontDoor]:
    door = FrontDoor(server)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", door.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    door.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield door
    finally:
        await runner.cleanup()


def kubeconfig(folder: Path, url: str) -> Path:
    """A person's file that leads to ``url``."""
    file = folder / "kubeconfig"
    context = {"cluster": "c", "user": "u", "namespace": "team"}
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": context}],
                "current-context": "x",
            }
        )
    )
    return file
