"""An API server's front door: aggregated groups go to the controller by a front proxy, all else to the server."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from controller.cluster.process.process import Process
from controller.people.visibility.routes import KUEUE_GROUP
from inventory.api.names import VIEW_GROUP
from kube.testing import FakeApiServer
from tests.support.controller.viewworld import PERSON, FrontProxyWorld, asked, trusted, until_served

_AGGREGATED = re.compile(rf"(/openapi/v3)?/apis/({re.escape(VIEW_GROUP)}|{re.escape(KUEUE_GROUP)})/.*")
_POD = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/:]+):(\w+)/proxy(/.*)")


class FrontDoor:
    """``behind``: the controller that aggregated groups lead to, once there is one; ``asked``: what it was asked;
    ``forbidden``: paths, with or without their query, as a pattern, that RBAC refuses. ``refuses``: by a pattern of
    the path where something is created, the status and the message. ``user``: whom all requests are of. ``pods``: ports
    on this machine that Pods' proxies lead to, by the Pods' names."""

    def __init__(self, server: FakeApiServer) -> None:
        self._server = server
        self.proxy = FrontProxyWorld()
        self.behind: Process | None = None
        self.user = PERSON
        self.asked: list[str] = []
        self.pods: dict[str, int] = {}
        self.forbidden = ""
        self.refuses: dict[str, tuple[int, str]] = {}
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        if self.forbidden and any(re.search(self.forbidden, each) for each in (request.path, request.path_qs)):
            said = {"kind": "Status", "reason": "Forbidden", "message": f"{request.path} is forbidden"}
            return web.json_response(said, status=403)
        for pattern, (status, message) in self.refuses.items():
            if request.method == "POST" and re.search(pattern, request.path):
                body = {"kind": "Status", "reason": "Invalid", "message": message}
                return web.json_response(body, status=status)
        found = _AGGREGATED.fullmatch(request.path)
        # Kueue's own server, where no controller is behind this one: what it answers is made as an object.
        if found is not None and (self.behind is not None or found[2] == VIEW_GROUP):
            return await self._aggregated(request)
        base, path, headers = self._server.config.server, request.path, dict(request.headers)
        if (pod := _POD.fullmatch(path)) is not None:
            self.asked.append(f"{pod[1]}:{pod[2]}{pod[3]}")
            if pod[1] not in self.pods:
                return web.json_response({"kind": "Status", "message": f"pod {pod[1]} is not reached"}, status=503)
            base, path, headers = f"http://127.0.0.1:{self.pods[pod[1]]}", pod[3], {}
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

    async def _aggregated(self, request: web.Request) -> web.Response:
        """As the real one: 404 without a body of its own where no APIService leads anywhere."""
        if self.behind is None:
            return web.Response(text="404 page not found\n", status=404)
        self.asked.append(request.path_qs)
        port, tls = await until_served(self.behind), self.proxy.shows(trusted(self.behind))
        sent = await request.read() if request.body_exists else None
        code, body = await asked(port, request.path_qs, tls, method=request.method, user=self.user, data=sent)
        return web.Response(body=body, status=code, content_type="application/json")


@asynccontextmanager
async def front_door(server: FakeApiServer) -> AsyncIterator[FrontDoor]:
    door = FrontDoor(server)
    door.proxy.install(server)
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
