"""The controller's plain listeners: metrics and probes. They are read-only, and show nothing secret."""

import asyncio
from collections.abc import Callable
from typing import Final, Self

from aiohttp import web
from aiohttp.typedefs import Handler

from controller.cluster.config.settings import Address
from controller.cluster.metrics.exposition import Exposition
from controller.insight.forecast.parts import Parts
from controller.insight.forecast.service_shell import worked
from kube.listening.apps import Serving, within
from kube.listening.listener import Listener as BoundedListener
from kube.listening.places import PlaceLimits
from kube.metrics import TEXT_TYPE

LIMITS: Final = PlaceLimits(common=128, per_address=16, per_user=16)


class Listener:
    """One address with its routes. Paths of several roles may share an address."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.routes: dict[str, Handler] = {}
        self._serving: Serving | None = None
        self.port = 0

    async def start(self) -> None:
        """Listens. ``port`` is then the port in use, which the system chose if 0 was asked for. Raises OSError."""
        listener = BoundedListener(LIMITS)
        app = web.Application(middlewares=[within(listener)])
        for path, handler in self.routes.items():
            app.router.add_get(path, handler)
        self._serving = await Serving.start(app, listener, self.address.host, self.address.port, stop_within_s=0.2)
        self.port = self._serving.port

    async def stop(self) -> None:
        if self._serving is not None:
            await self._serving.stop()


def probe(problem: Callable[[], str | None]) -> Handler:
    """A handler that answers 200 while ``problem`` is None, else 503 with it."""

    async def answer(_: web.Request) -> web.Response:
        found = problem()
        return web.Response(text=f"{found}\n", status=503) if found else web.Response(text="ok\n")

    return answer


def exposed(make: Callable[[], Parts[Exposition]]) -> Handler:
    """The handler of /metrics: the page is read on the loop, in parts, and written on a thread. A thousand queues have
    100,000 series, and a hundred thousand workloads take most of a second to count. One page is made at a time, and all
    who ask meanwhile get it: the port authenticates nobody, and the thread takes its time from the engine's.
    """
    making: asyncio.Task[bytes] | None = None

    async def made() -> bytes:
        return await asyncio.to_thread((await worked(make())).text)

    async def answer(_: web.Request) -> web.Response:
        nonlocal making
        if making is None or making.done():
            making = asyncio.create_task(made(), name="metrics")
        # The page is shielded: others wait for it too.
        body = await asyncio.shield(making)
        return web.Response(body=body, headers={"Content-Type": TEXT_TYPE})

    return answer


class Listeners:
    """Listeners by address, so that probes and metrics may share one."""

    def __init__(self) -> None:
        self._listeners: dict[Address, Listener] = {}

    def add(self, address: Address | None, path: str, handler: Handler) -> None:
        if address is None:
            return
        listener = self._listeners.get(address)
        if listener is None:
            listener = self._listeners[address] = Listener(address)
        listener.routes[path] = handler

    def __getitem__(self, address: Address) -> Listener:
        return self._listeners[address]

    async def __aenter__(self) -> Self:
        started: list[Listener] = []
        try:
            for listener in self._listeners.values():
                await listener.start()
                started.append(listener)
        except OSError:
            for listener in started:
                await listener.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners.values():
            await listener.stop()
