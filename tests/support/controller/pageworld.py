"""The page's server on an engine, with the port's TLS and an API server that behaves."""

import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from controller.cluster.config.settings import Address
from controller.cluster.webhooks.keeper import OwnCertificates, SecretName
from controller.cluster.webhooks.service import service_names
from controller.insight.podtroubles import FailurePolicy
from controller.objects.core import Node
from controller.objects.decode import GpuNode
from controller.people.history.figures import Figures
from controller.people.page.assets import Assets, asset
from controller.people.page.events_shell import Hub
from controller.people.page.live import State
from controller.people.page.pods_shell import PodsOfWorkload
from controller.people.page.server_shell import Others, PageServer, Source
from controller.people.page.session import Seals
from controller.people.visibility.answers import Answers
from controller.people.visibility.identity import User
from controller.people.visibility.reviews_shell import Reviews
from controller.people.visibility.server_shell import Leader, ViewServer
from controller.people.visibility.service_shell import ViewService
from controller.scheduler.engine import Engine
from kube.client import Client
from kube.clock import Backoff
from kube.testing import FakeApiServer, VirtualClock
from tests.support.controller.viewworld import SERVED_AS, FrontProxyWorld
from tests.support.engine.world import World

SERVICE = ("tessera-system", "tessera-controller")
Json = dict[str, Any]


class Files(Assets):
    """A page of two files."""

    def __init__(self) -> None:
        page = {"index.html": b"<h1>page</h1>", "signin.html": b"<h1>sign in</h1>", "views/a.js": b"export {}"}
        self._files = {name: asset(name, body) for name, body in page.items()}


@dataclass
class PageScene:
    api: FakeApiServer
    service: ViewService
    page: PageServer
    clock: VirtualClock
    proxy: FrontProxyWorld
    world: World
    nodes: dict[str, Node] = field(default_factory=dict)
    gpu_nodes: dict[str, GpuNode] = field(default_factory=dict)
    pods: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Figures] = field(default_factory=dict)
    leads: bool = True

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.service.server.port}"

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.service.server.trust.own.decode())

    def browser(self, tls: ssl.SSLContext | None = None, **options: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=tls or self.tls())
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **options)

    async def ask(
        self, path: str | URL, method: str = "GET", tls: ssl.SSLContext | None = None, **options: Any
    ) -> tuple[int, bytes, Any]:
        """Status, body and headers."""
        async with (
            self.browser(tls) as browser,
            browser.request(
                method,
                URL(f"{self.url}{path}", encoded=True),
                server_hostname=SERVED_AS,
                allow_redirects=False,
                **options,
            ) as answer,
        ):
            return answer.status, await answer.read(), answer.headers

    def may(self, *namespaces: str, fleet: bool = True, queues: bool = True) -> None:
        """The user may list workloads of these namespaces alone."""

        def allows(spec: Json) -> bool:
            asked = spec.get("resourceAttributes", {})
            if asked.get("resource") == "workloads":
                return asked.get("namespace", "") in namespaces
            return bool(fleet if asked.get("resource") == "fleetviews" else queues)

        self.api.allows = allows


async def events(answer: aiohttp.ClientResponse, *, until: str = "mark") -> list[tuple[str, Json, str]]:
    """Name, data and id of events, as they come, up to the first of this name."""
    found: list[tuple[str, Json, str]] = []
    name = event_id = ""
    data: Json = {}
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        key, _, value = line.partition(": ")
        if key == "event":
            name = value
        elif key == "id":
            event_id = value
        elif key == "data":
            data = json.loads(value)
        elif not line:
            found.append((name, data, event_id))
            if name == until:
                return found
            name, event_id = "", ""
    return found


@asynccontextmanager
async def page_served(world: World, spaces: list[str], *, others: Others | None = None) -> AsyncIterator[PageScene]:
    """The user ``person`` has the token ``secret-token``."""
    clock, proxy = VirtualClock(wall_s=time.time()), FrontProxyWorld()
    async with FakeApiServer() as api, Client(api.config) as client:
        api.users["secret-token"] = {"username": "person", "groups": ["people"]}
        proxy.install(api)
        engine: Engine = world.engine

        def answers() -> Answers | None:
            return Answers(engine, world.workloads.get, world.now_s) if scene.leads else None

        def state() -> State | None:
            return (
                State(
                    engine, lambda: scene.nodes, lambda: scene.gpu_nodes, scene.pods.get, scene.figures, lambda _: None
                )
                if scene.leads
                else None
            )

        async def relay(_request: web.Request, path: str, user: User) -> web.StreamResponse:
            return web.json_response({"relayed": path, "user": user.name})

        async def ask(_path: str, _user: User, _body: bytes | None) -> tuple[int, bytes]:
            return 200, b"{}"

        reviews = Reviews(client, clock)
        leader = Leader(answers, lambda: frozenset(spaces), ask)
        server = ViewServer(Address("127.0.0.1", 0), reviews, leader, clock)
        certificates = OwnCertificates(
            client, SecretName(SERVICE[0], "web"), names=service_names(*SERVICE), clock=clock
        )
        service = ViewService(client, server, certificates, SERVICE, clock=clock, backoff=Backoff(random=lambda: 0.5))
        hub = Hub(state, lambda: frozenset(spaces), lambda: Answers(engine, world.workloads.get, 0).queue_of, clock)
        pods = PodsOfWorkload(client, lambda: list(scene.gpu_nodes.values()), FailurePolicy(), clock)
        source = Source(answers, state, lambda: spaces, relay, Seals(lambda: service.secrets).of, pods.of)
        page = PageServer(server, reviews, source, hub, clock, assets=Files(), others=others)
        server.page = page
        scene = PageScene(api, service, page, clock, proxy, world)
        await service.round()
        try:
            yield scene
        finally:
            await hub.close()
            await server.stop()
