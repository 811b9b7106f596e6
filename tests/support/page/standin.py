"""A server of the page for its own tests and measurements: rows and details are made by the controller's encoder, and
streams are served by its hub. Who signs in, history and what-if are made up. ``python -m tests.support.page.standin``
runs it by hand.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web

from controller.people.page.assets import SAFE, Assets
from controller.people.page.detail import Detail, told, waste
from controller.people.page.events_shell import Hub, Looked, Watch
from controller.people.page.live import TOPICS
from controller.people.page.queuerows import job_of
from controller.people.visibility.routes import Asked, Attributes, What
from controller.scheduler.model.resources import WorkloadKey
from kube.clock import SystemClock
from tests.support.hang import HANG_S
from tests.support.page.objects import NOW
from tests.support.page.state import HIDDEN, Row, State, made


class StandIn:
    """One state, told to all who ask; ``change`` changes it. ``signed_in``: whoever asks. ``busy``: that many questions
    of who is signed in are refused for being too many. ``refused``: files that are refused for that once.
    """

    def __init__(self, state: State, *, signed_in: bool = True, mark: str = "") -> None:
        self.state = state
        self._mark = mark
        self._streams: set[asyncio.WriteTransport] = set()
        self._loop = asyncio.new_event_loop()
        self._assets = Assets()
        self._clock = _Clock()
        self._hub = Hub(state.read, lambda: state.known, lambda: state.answers.queue_of, self._clock)
        self.signed_in = signed_in
        self.busy = 0
        self.refused: set[str] = set()
        self.port = 0

    @contextlib.contextmanager
    def running(self, port: int = 0) -> Iterator["StandIn"]:
        ready, done = threading.Event(), asyncio.Event()

        async def serve() -> None:
            app = web.Application()
            app.router.add_get("/", self._index)
            app.router.add_get("/page/session", self._session)
            app.router.add_post("/page/session", self._sign_in)
            app.router.add_delete("/page/session", self._sign_out)
            app.router.add_get("/page/events", self._events)
            app.router.add_get("/page/workloads/{namespace}/{name}", self._workload)
            app.router.add_get("/page/nodes/{name}", self._node)
            app.router.add_get("/page/waste", self._waste)
            app.router.add_get("/page/history", self._history)
            app.router.add_post("/page/whatif", self._what_if)
            app.router.add_get("/page/{file:.+}", self._file)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
            self.port = int(runner.addresses[0][1])
            ready.set()
            await done.wait()
            await self._hub.close()
            await runner.cleanup()

        thread = threading.Thread(target=self._loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        assert ready.wait(HANG_S)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(done.set)
            thread.join(HANG_S)
            self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def change(self, done: Callable[[State], None]) -> None:
        """Another state, told to all who look by the next round."""

        async def on_the_loop() -> None:
            done(self.state)

        asyncio.run_coroutine_threadsafe(on_the_loop(), self._loop).result(HANG_S)

    def cut(self) -> None:
        """All streams end, as when the server restarts."""

        def abort() -> None:
            for each in tuple(self._streams):
                each.abort()

        self._loop.call_soon_threadsafe(abort)

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _index(self, _: web.Request) -> web.Response:
        name, code = ("index.html", 200) if self.signed_in else ("signin.html", 401)
        return self._served(name, code)

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name in self.refused:
            self.refused.remove(name)
            raise web.HTTPTooManyRequests
        return self._served(name)

    def _served(self, name: str, code: int = 200) -> web.Response:
        found = self._assets.get(name)
        if found is None:
            raise web.HTTPNotFound
        headers = {**SAFE, "Cache-Control": "no-store", "Content-Type": found.type}
        return web.Response(body=found.body, status=code, headers=headers)

    async def _session(self, _: web.Request) -> web.Response:
        if self.busy:
            self.busy -= 1
            return _json({"message": "too many requests: try again"}, 429)
        if not self.signed_in:
            return _json({"message": "sign in first", "oidc": "Company login"}, 401)
        return _json({"user": f"alice{self._mark}", "groups": ["people"], "expires": None, "how": "token"})

    async def _sign_in(self, request: web.Request) -> web.Response:
        if (await request.json())["token"] != "right":
            return _json({"message": f"the API server does not know this token{self._mark}"}, 401)
        self.signed_in = True
        return web.Response(status=204)

    async def _sign_out(self, _: web.Request) -> web.Response:
        self.signed_in = False
        return web.Response(status=204)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if not self.signed_in:
            return _json({"message": "sign in first"}, 401)
        transport = request.transport
        assert transport is not None
        self._streams.add(transport)

        async def look() -> Looked:
            return self.state.visible, {}

        def hello() -> Row:
            return {"user": "alice", "version": "0.1.0", "now": self._clock.wall(), "history": True}

        last, packed = request.headers.get("Last-Event-ID", ""), "gzip" in request.headers.get("Accept-Encoding", "")
        try:
            return await self._hub.serve(request, Watch("alice", TOPICS, last, look, hello, packed))
        finally:
            self._streams.discard(transport)

    async def _workload(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        right = Attributes("get", resource="workloadviews", namespace=namespace, name=name)
        asked, key = Asked(What.WORKLOAD, right), WorkloadKey(f"{namespace}/{name}")
        answers = self.state.answers
        gathered = answers.gathered(asked, self.state.foretold(key))
        if gathered is None:
            return _json({"message": f'workloads "{key}" not found'}, 404)
        found = answers.shown(asked, gathered, {HIDDEN})["status"]
        gpus = [gpu for some in self._detail.gpus_of(key) for gpu in some]
        workload = self.state.workloads[key]
        return _json(told(found, gpus, job_of(workload), self.state.pods_shown(workload)))

    @property
    def _detail(self) -> Detail:
        return Detail(self.state.read(), NOW)

    def _seen(self, row: Row) -> web.Response:
        return _json(self.state.visible.shown(row, self.state.known, self.state.answers.queue_of))

    async def _node(self, request: web.Request) -> web.Response:
        row = self._detail.node(request.match_info["name"])
        return self._seen(row) if row is not None else _json({"message": "not found"}, 404)

    async def _waste(self, _: web.Request) -> web.Response:
        table = (await self._hub.fleet())[1]
        return self._seen(waste((row.raw for _, row in sorted(table.rows.items())), self.state.figures))

    async def _history(self, request: web.Request) -> web.Response:
        if request.query["what"] == "workload":
            return _json({"configured": False, "why": f"no Prometheus is configured{self._mark}"})
        points = [round(60 + 50 * ((at * 7) % 13) / 13) for at in range(24)]
        series = [
            {"name": "used", "resource": "nvidia.com/gpu", "points": points},
            {"name": "nominal", "resource": "nvidia.com/gpu", "points": [96] * 24},
        ]
        body = {"configured": True, "what": "queue", "name": "", "step": 3600, "start": NOW - 86400, "series": series}
        return _json(body)

    async def _what_if(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if "nonsense" in asked.get("manifest", ""):
            return _json({"message": f"line 1: found nonsense, expected a manifest{self._mark}"}, 422)
        present, simulated = {"admitted": 40, "pending": 12}, {"admitted": 44, "pending": 8}
        change = {"workload": "team-research/job-wait-00000", "hidden": False, "queue": "research", "before": "pending"}
        return _json(
            {
                "present": present,
                "simulated": simulated,
                "queues": [{"name": "research", "present": present, "simulated": simulated}],
                "changes": [change | {"after": "admitted", "why": f"fits now{self._mark}"}],
                "arrived": [
                    {"workload": "default/what-if", "state": "pending", "why": f"needs 16, 4 free{self._mark}"}
                ],
                "warnings": [f"runtimes are not known{self._mark}"],
                "tookS": 0.8,
                "note": "Simulated on the present state.",
            }
        )


def _json(body: Any, code: int = 200) -> web.Response:
    return web.json_response(body, status=code, headers={"Cache-Control": "no-store"})


class _Clock(SystemClock):
    """The state's time, from when this server began."""

    def __init__(self) -> None:
        self._begun_s = self.monotonic()

    def wall(self) -> float:
        return NOW + self.monotonic() - self._begun_s


if __name__ == "__main__":
    with StandIn(made(nodes=1000, workloads=10_000)).running(8099) as server:
        print(server.url)  # noqa: T201
        threading.Event().wait()
