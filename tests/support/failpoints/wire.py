"""What a write carries on its way to the API server, and a write that arrives late: after its sender's successor.

The request that follows ``points.before`` names the failpoint in a header of its own. So the API server knows what it
is, and can keep it back: its sender dies without an answer, and it arrives whenever the test says so.
"""

import copy
import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, cast

import pytest
from aiohttp import web

from failpoints.names import Failpoint
from kube.client import Client
from kube.errors import KubeError
from kube.testing import FakeApiServer
from kube.testing.server import parse_path

HEADER: Final = "X-Failpoint"
UNDER_WAY: Final[ContextVar[Failpoint | None]] = ContextVar("under_way", default=None)
"""The step that comes next in this task."""
_VERBS: Final = {
    "POST": "create",
    "PUT": "update",
    "DELETE": "delete",
    "application/apply-patch+yaml": "apply",
    "application/json-patch+json": "JSON patch",
    "application/merge-patch+json": "merge patch",
}


class Sent(NamedTuple):
    """One write, as the API server has got it. Its first four fields are read as those of aiohttp's request."""

    method: str
    path: str
    content_type: str
    query: dict[str, str]
    failpoint: Failpoint
    body: Any

    @property
    def verb(self) -> str:
        return _VERBS.get(self.method) or _VERBS[self.content_type]

    @property
    def key(self) -> tuple[str, str, str]:
        collection, namespace, name = parse_path(self.path)
        return collection, namespace, name or self.body["metadata"].get("name", "")

    @property
    def ties(self) -> tuple[str, ...]:
        """What must hold of the object that is there, or nothing is written: its uid, its resourceVersion."""
        if self.verb == "create":
            return ()
        if self.verb == "JSON patch":
            tied = {each["path"].rpartition("/")[2] for each in self.body if each["op"] == "test"}
        else:
            said = self.body.get("preconditions" if self.verb == "delete" else "metadata") or {}
            tied = {name for name, value in said.items() if value}
        return tuple(name for name in ("uid", "resourceVersion") if name in tied)

    @property
    def says_nothing(self) -> bool:
        """A patch of nothing, which is sent for its answer."""
        return self.body == {} and self.verb == "merge patch"

    def __str__(self) -> str:
        return "patch of nothing" if self.says_nothing else " ".join((self.verb, *self.ties))


class Wire(FakeApiServer):
    """``sent``: every write that came through a failpoint. ``keeps``: of this one the first is kept back, as ``kept``;
    ``on_kept`` is then called.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.sent: list[Sent] = []
        self.keeps: Failpoint | None = None
        self.kept: Sent | None = None
        self.cuts = False
        """From the kept write on no write comes through, until the test has seen its sender end: aiohttp itself sends a
        PUT once more where a connection was cut.
        """
        self.on_kept: Callable[[], object] = lambda: None
        opened = Client._open

        def named(self: Client, session: Any, method: str, path: str, **more: Any) -> Any:
            if method != "GET" and (failpoint := UNDER_WAY.get()) is not None:
                UNDER_WAY.set(None)
                more["headers"] = {**more.get("headers", {}), HEADER: failpoint}
            return opened(self, session, method, path, **more)

        monkeypatch.setattr(Client, "_open", named)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        name = request.headers.get(HEADER)
        if name is None:
            return await super()._serve(request)
        raw = await request.read()
        body = json.loads(raw) if raw else {}
        sent = Sent(request.method, request.path, request.content_type, dict(request.query), Failpoint(name), body)
        self.sent.append(sent)
        if sent.failpoint is self.keeps and self.kept is None and not sent.says_nothing:
            self.kept, self.cuts = sent, True
            self.on_kept()
        if self.cuts:
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=500)
        return await super()._serve(request)

    def arrives(self, sent: Sent) -> int:
        """It comes now. The status of the answer: 200, or that of the error by which it is refused."""
        try:
            self._write(cast("web.Request", sent), sent.key, copy.deepcopy(sent.body))
        except KubeError as error:
            return error.status or 500
        finally:
            self._notify()
        return 200
