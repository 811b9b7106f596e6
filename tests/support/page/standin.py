"""A server that speaks docs/page-protocol.md from rows in memory, for the page's own tests and measurements.

It serves the page's files with the headers of the controller. ``python -m tests.support.page.standin`` runs it by hand.
"""

import asyncio
import contextlib
import json
import mimetypes
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.page.state import LEVELS, NOW, Row, State, made

WEB = Path(__file__).parents[3] / "controller" / "web"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
TOPICS = ("fleet", "queues", "pending", "workloads")


class StandIn:
    """One state, told to all who ask; ``tell`` changes it. Signed in is who has the cookie."""

    def __init__(self, state: State, *, signed_in: bool = True, mark: str = "") -> None:
        self._state = state
        self._mark = mark
        self._revision = 1
        self._streams: set[asyncio.Queue[bytes]] = set()
        self._loop = asyncio.new_event_loop()
        self.signed_in = signed_in
        self.port = 0
        self.snapshots = {topic: self._event("snapshot", topic, state.topic(topic), []) for topic in TOPICS}

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
            for stream in self._streams:
                stream.put_nowait(b"")
            await runner.cleanup()

        thread = threading.Thread(target=self._loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(done.set)
            thread.join(10)
            self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def tell(self, topic: str, rows: dict[str, Row], gone: tuple[str, ...] = ()) -> None:
        """These rows are so from now on, for new readers and for those that listen."""
        self._revision += 1
        held = self._state.topic(topic)
        held.update(rows)
        for key in gone:
            held.pop(key, None)
        delta = self._event("delta", topic, rows, list(gone))
        self.snapshots[topic] = self._event("snapshot", topic, held, [])
        self._send(delta)

    def cut(self) -> None:
        """All streams end, as when the server restarts."""
        self._send(b"")

    def _send(self, event: bytes) -> None:
        def put() -> None:
            for stream in self._streams:
                stream.put_nowait(event)

        self._loop.call_soon_threadsafe(put)

    def _event(self, kind: str, topic: str, rows: dict[str, Row], gone: list[str]) -> bytes:
        body = {"topic": topic, "revision": self._revision, "set": rows, "gone": gone, "cut": 0}
        return f"event: {kind}\nid: a.{self._revision}\ndata: {json.dumps(body)}\n\n".encode()

    # -- requests ----------------------------------------------------------------------------------------------------

    async def _index(self, _: web.Request) -> web.Response:
        name, code = ("index.html", 200) if self.signed_in else ("signin.html", 401)
        return _served(WEB / "page" / name, code)

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        path = (WEB / name if name.startswith("vendor/") else WEB / "page" / name).resolve()
        if not path.is_relative_to(WEB) or not path.is_file():
            raise web.HTTPNotFound
        return _served(path)

    async def _session(self, _: web.Request) -> web.Response:
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
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        stream: asyncio.Queue[bytes] = asyncio.Queue()
        self._streams.add(stream)
        hello = {"user": "alice", "version": "0.1.0", "now": NOW, "levels": LEVELS, "history": True, "denied": {}}
        await response.write(f"retry: 300\nevent: hello\ndata: {json.dumps(hello)}\n\n".encode())
        try:
            for topic in TOPICS:
                await response.write(self.snapshots[topic])
            while event := await stream.get():
                await response.write(event)
        finally:
            self._streams.discard(stream)
        return response

    async def _workload(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        waiting = next((row for row in self._state.pending.values() if row["workload"] == key), None)
        running = next((row for row in self._state.workloads.values() if row["workload"] == key), None)
        if waiting is None and running is None:
            return _json({"message": f'workloads "{key}" not found'}, 404)
        return _json(_waits(waiting, self._mark) if waiting else self._runs(running or {}))

    def _runs(self, row: Row) -> Row:
        gpus = [
            {"node": node["name"], "index": gpu["index"], "uuid": gpu["uuid"], "pod": holder["pod"]}
            | {"health": gpu["health"], "busy": gpu["busy"], "usedMiB": gpu["usedMiB"]}
            for node in self._state.fleet.values()
            for gpu in node["gpus"]
            for part in gpu["parts"]
            for holder in part["holders"]
            if holder["workload"] == row["workload"]
        ]
        conditions = [_condition("QuotaReserved", 4000, ""), _condition("Admitted", 3990, "The workload is admitted")]
        return _told(row, "Admitted", self._mark) | {"gpus": gpus, "conditions": conditions}

    async def _node(self, request: web.Request) -> web.Response:
        row = self._state.fleet.get(request.match_info["name"])
        if row is None:
            return _json({"message": "not found"}, 404)
        links = [{"a": a, "b": b, "kind": "NV18"} for a in range(8) for b in range(a + 1, 8)]
        faults = [
            {"gpu": gpu["index"], "uuid": gpu["uuid"], "state": gpu["health"], "reason": reason, "since": gpu["since"]}
            | {"runbook": {"title": "TesseraGpuXid", "text": f"# TesseraGpuXid\n\n1. Drain the node.{self._mark}"}}
            for gpu in row["gpus"]
            for reason in gpu["reasons"]
        ]
        resources = [{"name": "nvidia.com/gpu", "devices": 8, "sharing": "none"}]
        return _json(row | {"links": links, "resources": resources, "faults": faults})

    async def _waste(self, _: web.Request) -> web.Response:
        idle, unused = [], []
        for node in self._state.fleet.values():
            for gpu in node["gpus"]:
                where = {key: gpu[key] for key in ("index", "uuid", "product")} | {"node": node["name"]}
                holders = [holder for part in gpu["parts"] for holder in part["holders"]]
                if holders and gpu["busy"] == 0:
                    idle.append(where | holders[0] | {"since": NOW - 90 * gpu["index"] - 5000, "busy": 0.0})
                elif not holders:
                    unused.append(where | {"why": f"no pod holds it{self._mark}"})
        sentence = f"It has held 8 GPUs for 3 d and used none: end it, or ask for fewer.{self._mark}"
        advice = [
            {"kind": "neverUsed", "sentence": sentence, "workload": row["workload"], "hidden": row["hidden"]}
            for row in list(self._state.workloads.values())[:4]
        ]
        return _json({"idle": idle, "unused": unused, "advice": advice, "measured": True, "why": None})

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


def _more(mark: str) -> Row:
    sentences = (
        f"6 GPUs instead of 16 would fit now{mark}",
        "It would fit after the end of team-research/job-train-0001",
    )
    before = [{"workload": "team-research/job-wait-00008"}, {"workload": "a workload of queue research"}]
    return {"before": before, "changes": [{"sentence": sentence} for sentence in sentences]}


def _told(row: Row, state: str, mark: str) -> Row:
    return {
        "workload": row["workload"],
        "localQueue": row["localQueue"],
        "clusterQueue": row["queue"],
        "priority": row["priority"],
        "state": state,
        "conditions": [],
        "admission": None,
        "decision": None,
        "blocked": None,
        "position": None,
        "story": [_record(NOW - 4000, "fits", f"Fits without borrowing{mark}")],
        "devices": [],
        "gpus": [],
        "forecast": None,
        "change": None,
    }


def _waits(row: Row, mark: str) -> Row:
    resources = [
        {"resource": "nvidia.com/gpu", "needed": "16", "available": "4", "nominal": "64", "used": "60", "atMost": "96"}
        | {
            "heldBy": [
                {"workload": "team-research/job-train-0001", "clusterQueue": "research", "amount": "12"}
                | {"priority": 0}
            ]
        }
    ]
    decision = _record(NOW - 3, "no_quota", row["sentence"])
    story = [_record(NOW - 900 + 30 * at, "no_quota", row["sentence"]) for at in range(20)]
    return _told(row, "Pending", mark) | {
        "position": row["position"],
        "forecast": row["forecast"] and row["forecast"] | _more(mark),
        "decision": decision | {"wouldAdmit": {"podSet": "main", "flavor": "h100", "resources": resources}},
        "story": [_record(NOW - 5000, "no_quota", "Nothing is free"), *story],
        "conditions": [_condition("QuotaReserved", 900, row["sentence"], "False")],
        "change": f"12 GPUs less, or the end of team-research/job-train-0001{mark}",
    }


def _record(at: float, rule: str, sentence: str) -> Row:
    details = ["pod set main: 2 pods, nvidia.com/gpu 16", "  flavor h100: lacks 12"]
    return {
        "at": at,
        "rule": rule,
        "reason": "WaitingForQuota",
        "sentence": sentence,
        "details": details,
        "preempts": [],
    }


def _condition(kind: str, ago_s: float, message: str, status: str = "True") -> Row:
    at = datetime.fromtimestamp(NOW - ago_s, tz=UTC)
    return {"type": kind, "status": status, "lastTransitionTime": at.isoformat(), "message": message, "reason": "x"}


def _json(body: Any, code: int = 200) -> web.Response:
    return web.json_response(body, status=code, headers={"Cache-Control": "no-store"})


def _served(path: Path, code: int = 200) -> web.Response:
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return web.Response(body=path.read_bytes(), status=code, content_type=kind, headers=headers)


if __name__ == "__main__":
    with StandIn(made(nodes=1000, workloads=10_000)).running(8099) as server:
        print(server.url)  # noqa: T201
        threading.Event().wait()
