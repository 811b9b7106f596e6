"""The page's requests: who asks, where a request comes from, and what is answered. See ``docs/page-protocol.md``.

Files of the page are public. Everything else takes a user who is signed in: by the headers that the port knows, or by
the cookie, which counts only for requests that the page itself makes.
"""

import asyncio
import hmac
import logging
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from controller.objects.workload import Workload
from controller.people.history.asked import Asked
from controller.people.history.queries import HistoryError
from controller.people.page import events_shell
from controller.people.page.assets import SAFE, Asset, Assets
from controller.people.page.detail import Detail, told
from controller.people.page.events_shell import Hub, Looked, Watch
from controller.people.page.live import TOPICS, State
from controller.people.page.queuerows import job_of
from controller.people.page.session import COOKIE, HERE, LIFE_S, Seal, Session, TooLongError
from controller.people.page.visiblenamespaces import VisibleNamespaces, hide
from controller.people.page.waste_shell import Waste
from controller.people.visibility.answers import Answers
from controller.people.visibility.documents import status
from controller.people.visibility.identity import MAX_TOKEN, User, bearer
from controller.people.visibility.limits import Buckets
from controller.people.visibility.redaction import named
from controller.people.visibility.reviews_shell import Reviews
from controller.people.visibility.routes import FLEET, QUEUES, Attributes, node_right, parsed, workloads_of
from controller.people.visibility.server_shell import RefusedError, ViewServer
from controller.scheduler.model.resources import WorkloadKey
from inventory import __version__
from inventory.api.gpunode import PLURAL
from inventory.api.names import GROUP, VIEW_GROUP, VIEW_VERSION
from kube.clock import Clock
from kube.errors import KubeError
from kube.resources import PODS

log = logging.getLogger(__name__)

Json = dict[str, Any]
AGGREGATED: Final = f"/apis/{VIEW_GROUP}/{VIEW_VERSION}/page"
"""The page through the API server; its events have a resource of their own, so that they can be watched for long."""
NO_HISTORY: Final = "no Prometheus is configured, and nothing is recorded: see tessera.page"
_RIGHTS: Final[Mapping[str, Attributes]] = {"fleet": FLEET, **dict.fromkeys(TOPICS[1:], QUEUES)}
_NODES: Final = 20
"""Nodes that are processed before the event loop gets a turn."""
FILES_PER_S: Final = 100.0
FILES_BURST: Final = 2_000
"""Requests for files of the page by one address in a burst: a page has some fifty, and behind an Ingress all users have
one address."""
_ADDRESSES: Final = 4_096
PROXIED_S: Final = 600.0
"""The longest age of an event stream whose user was told once by a proxy or another replica. After it the browser
connects again by itself, and the API server reviews its credentials anew."""
_TOKEN_BYTES: Final = MAX_TOKEN + 1024
_PART: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~-]{1,253}")
"""One part of a path: a name. It has no character with a meaning in a URL, so that it may be handed on."""


@dataclass(frozen=True)
class Source:
    """What this replica knows. ``answers`` and ``state`` are None while it does not lead; ``namespaces``: those that
    exist now. ``relay``: gets the answer of the replica that leads. ``pods``: how the pods of a Workload do.
    """

    answers: Callable[[], Answers | None]
    state: Callable[[], State | None]
    namespaces: Callable[[], list[str]]
    relay: Callable[[web.Request, str, User], Awaitable[web.StreamResponse]]
    seal: Callable[[str], Seal | None]
    pods: Callable[[Workload], Awaitable[Json | None]] | None = None


class _Browser:
    """The credentials in a browser's cookie."""

    def __init__(self, page: "PageServer") -> None:
        self._page = page

    def token(self, request: web.Request) -> str | None:
        found = self._page.session(request)
        return found.token or None if found is not None else None

    def user(self, request: web.Request) -> User | None:
        found = self._page.session(request)
        return found.user if found is not None else None


class PageServer:
    """The server of the page. ``oidc``: signs users in at a provider, where one is configured. ``others``: handlers of
    further paths; ``view_service`` replaces them once, before the page is served, since signing in needs the page.
    """

    def __init__(
        self,
        server: ViewServer,
        reviews: Reviews,
        source: Source,
        hub: Hub,
        clock: Clock,
        *,
        assets: Assets | None = None,
        others: "Others | None" = None,
    ) -> None:
        self._server = server
        self._reviews = reviews
        self._source = source
        self.hub = hub
        self._clock = clock
        self._assets = assets or Assets()
        self._browser = _Browser(self)
        self.others = others or Others()
        self._waste = Waste(hub, clock)
        self._files: Buckets[str] = Buckets(per_s=FILES_PER_S, burst=FILES_BURST, most=_ADDRESSES)

    def owns(self, path: str) -> bool:
        return inner_path(path) is not None

    def state(self) -> State | None:
        """The state that rows are made of; None while this replica does not lead."""
        return self._source.state()

    # -- one request -------------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = inner_path(request.path)
        assert path is not None
        try:
            return await self._handled(request, path)
        except RefusedError as refused:
            headers = {"Retry-After": str(max(1, round(refused.after_s)))} if refused.after_s else {}
            return answered(status(refused.code, str(refused)), refused.code, headers)
        except KubeError as failed:
            log.warning("a question about rights got no answer: %s", failed)
            words = "the API server does not say who may see this: try again"
            return answered(status(503, words), 503, {"Retry-After": "1"})

    async def _handled(self, request: web.Request, path: str) -> web.StreamResponse:
        method = request.method
        if path == "session":
            return await self._session(request)
        if path.startswith("oidc/") and self.others.sign_in is not None and method == "GET":
            return await self.others.sign_in(request, path)
        if method == "GET" and (found := self._assets.get(path)) is not None and path != "index.html":
            self._count_file(request)
            return sent(request, found)
        if path in ("", "index.html") and method == "GET":
            return await self._page(request)
        user, forwarded = await self._who(request)
        self._server.count(user)
        return await self._data(request, path, user, forwarded=forwarded)

    def _count_file(self, request: web.Request) -> None:
        """Counts one more file for an address that is not signed in. Raises RefusedError."""
        wait_s = self._files.take(request.remote or "", self._clock.monotonic())
        if wait_s:
            raise RefusedError(429, "too many requests from this address", after_s=wait_s)

    async def _who(self, request: web.Request) -> tuple[User, bool]:
        """The user who asks, and whether another replica handed the request on. Raises RefusedError and KubeError."""
        return await self._server.user(request, self._browser if from_page(request) else None)

    async def _still(self, request: web.Request, user: User) -> bool:
        """Whether the request's credentials still belong to the user. Raises KubeError, and RefusedError where reviews
        are refused now.
        """
        try:
            return (await self._who(request))[0] == user
        except RefusedError as refused:
            if refused.code == web.HTTPTooManyRequests.status_code:
                raise
            return False

    async def _page(self, request: web.Request) -> web.StreamResponse:
        try:
            await self._server.user(request, self._browser)
        except RefusedError as refused:
            if refused.code != web.HTTPUnauthorized.status_code:
                raise
            self._count_file(request)
            return sent(request, self._asset("signin.html"), 401)
        return sent(request, self._asset("index.html"))

    def _asset(self, name: str) -> Asset:
        found = self._assets.get(name)
        if found is None:
            raise RefusedError(404, "the page is not part of this image")
        return found

    async def _data(self, request: web.Request, path: str, user: User, *, forwarded: bool) -> web.StreamResponse:
        parts = path.split("/")
        if not all(_PART.fullmatch(part) for part in parts):
            raise RefusedError(404, "the server could not find the requested resource")
        known = path in ("events", "waste", "history", "whatif") or parts[0] in ("workloads", "nodes")
        if not known:
            raise RefusedError(404, "the server could not find the requested resource")
        wanted = "POST" if path == "whatif" else "GET"
        if request.method != wanted:
            raise RefusedError(405, f"method: found {request.method[:20]!r}, expected {wanted}")
        answers, state = self._source.answers(), self.state()
        if answers is None or state is None:
            if forwarded:
                raise RefusedError(503, "no replica leads now: try again", after_s=2.0)
            if path == "events":
                self._server.stream(request)
            return await self._relayed(request, f"/page/{path}", user)
        match parts:
            case ["events"]:
                return await self._events(request, user)
            case ["history"]:
                return answered(await self._history(request, user, Detail(state, self._clock.wall())))
            case ["whatif"] if self.others.what_if is not None:
                await self._needs(user, QUEUES)
                return answered(await self._seen(user, answers, await self.others.what_if(request, user)))
        return answered(await self._detail(answers, Detail(state, self._clock.wall()), user, parts))

    async def _relayed(self, request: web.Request, path: str, user: User) -> web.StreamResponse:
        """Relays a request to the leader, which knows of the user only what this replica says: this replica reviews the
        user while the stream lasts.
        """
        relay = asyncio.ensure_future(self._source.relay(request, path, user))
        known_s = self._clock.monotonic()
        try:
            while not (await asyncio.wait({relay}, timeout=events_shell.LOOK_AGAIN_S))[0]:
                try:
                    known, known_s = await self._still(request, user), self._clock.monotonic()
                except RefusedError:
                    known = self._clock.monotonic() - known_s < events_shell.KNOWN_S
                except KubeError:
                    known = False
                if not known and request.transport is not None:
                    # The next piece finds no reader, and the relay ends.
                    request.transport.abort()
            return await relay
        finally:
            relay.cancel()

    async def _detail(self, answers: Answers, detail: Detail, user: User, parts: list[str]) -> Json:
        match parts:
            case ["workloads", namespace, name]:
                return await self._workload(answers, detail, user, namespace, name)
            case ["nodes", name]:
                await self._needs(user, node_right(name))
                if (node := detail.node(name)) is None:
                    raise RefusedError(404, f'{PLURAL}.{GROUP} "{name[:253]}" not found')
                return await self._seen(user, answers, node)
            case ["waste"]:
                await self._needs(user, FLEET)
                return await self._waste.seen(await self.visible(user), answers.queue_of, detail.figures)
        raise RefusedError(404, "the server could not find the requested resource")

    async def _history(self, request: web.Request, user: User, detail: Detail) -> Json:
        try:
            asked = Asked.of(request.query)
        except HistoryError as wrong:
            raise RefusedError(400, str(wrong)) from None
        await self._needs(user, asked.right)
        if self.others.history is None:
            return {"configured": False, "why": NO_HISTORY}
        pods = {gpu["pod"].partition("/")[2] for gpu in await _gpus(detail, asked.name)} if asked.of_pods else ()
        return {**await self.others.history(asked, sorted(pods)), "what": asked.what, "name": asked.name}

    async def _needs(self, user: User, right: Attributes) -> None:
        if not await self._reviews.may(user, right):
            raise RefusedError(403, f'User "{user.name}" may not {right}')

    # -- what is answered --------------------------------------------------------------------------------------------

    async def _workload(self, answers: Answers, detail: Detail, user: User, namespace: str, name: str) -> Json:
        path = f"/apis/{VIEW_GROUP}/{VIEW_VERSION}/namespaces/{namespace}/workloadviews/{name}"
        asked = parsed(path, {}, frozenset())
        if asked is None:
            raise RefusedError(404, "the server could not find the requested resource")
        await self._needs(user, asked.right)
        view_status: Json = (await self._server.shown(answers, asked, user))["status"]
        workload = answers.workload(WorkloadKey(f"{namespace}/{name}"))
        job = job_of(workload) if workload is not None else None
        pods = await self._pods(user, workload) if workload is not None else None
        return told(view_status, await _gpus(detail, f"{namespace}/{name}"), job, pods)

    async def _pods(self, user: User, workload: Workload) -> Json | None:
        """How the workload's pods do, for users who may list pods in its namespace; None for others."""
        if self._source.pods is None or workload.status.admission is None:
            return None
        right = Attributes("list", version="v1", resource=PODS.plural, namespace=workload.metadata.namespace)
        return await self._source.pods(workload) if await self._reviews.may(user, right) else None

    async def _seen(self, user: User, answers: Answers, row: Json) -> Json:
        """The row as the user may see it. The user's rights are reviewed only for the namespaces that the row names."""
        found, known = await asyncio.to_thread(named, row), self.hub.known()
        hidden = await self._reviews.hidden(user, sorted(found.keyed) + sorted(found.said & known))
        return await asyncio.to_thread(hide, row, hidden, answers.queue_of) if hidden else row

    async def visible(self, user: User) -> VisibleNamespaces:
        if await self._reviews.may(user, workloads_of("")):
            return VisibleNamespaces(None)
        return VisibleNamespaces(await self._reviews.lists(user, self._source.namespaces()))

    # -- events ------------------------------------------------------------------------------------------------------

    async def _events(self, request: web.Request, user: User) -> web.StreamResponse:
        asked = request.query.get("topics", ",".join(TOPICS))[:200].split(",")
        topics = tuple(topic for topic in TOPICS if topic in asked)
        if not topics:
            raise RefusedError(400, f"topics: found {','.join(asked)[:60]!r}, expected some of {', '.join(TOPICS)}")

        by_others = bearer(list(request.headers.items())) is None and self.session(request) is None
        until_s = self._clock.monotonic() + (PROXIED_S if by_others else math.inf)

        async def look() -> Looked | None:
            if self._clock.monotonic() >= until_s or self.state() is None:
                return None
            if not await self._still(request, user):
                return None
            may = {right: await self._reviews.may(user, right) for right in {_RIGHTS[topic] for topic in topics}}
            denied: dict[str, str] = {
                topic: f"{user.name} may not {_RIGHTS[topic]}" for topic in topics if not may[_RIGHTS[topic]]
            }
            # No right is reviewed for a user who may see no topic.
            return await self.visible(user) if len(denied) < len(topics) else VisibleNamespaces(frozenset()), denied

        def hello() -> Json:
            history = self.others.history is not None
            return {"user": user.name, "version": __version__, "now": self._clock.wall(), "history": history}

        self._server.stream(request)
        last = request.headers.get("Last-Event-ID", "")[:400]
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        return await self.hub.serve(request, Watch(user.name, topics, last, look, hello, packed))

    # -- signing in and out ------------------------------------------------------------------------------------------

    def session(self, request: web.Request) -> Session | None:
        seal, text = self._source.seal("session"), request.cookies.get(COOKIE, "")
        found = seal.session(text, self._clock.wall()) if seal is not None and text else None
        return found if found is not None and _is_here(request, found) else None

    async def _session(self, request: web.Request) -> web.StreamResponse:
        match request.method:
            case "GET":
                return await self._session_now(request)
            case "POST" | "DELETE" if not same_origin(request):
                raise RefusedError(403, "Origin: expected the page's own")
            case "POST":
                return await self._sign_in(request)
            case "DELETE":
                response = self.with_cookie(web.Response(status=204, headers=SAFE), COOKIE, "", 0.0)
                return self.with_cookie(response, HERE, "", 0.0, http_only=False)
        raise RefusedError(405, f"method: found {request.method[:20]!r}, expected GET, POST or DELETE")

    async def _session_now(self, request: web.Request) -> web.StreamResponse:
        try:
            user, _ = await self._who(request)
        except RefusedError as refused:
            if refused.code != web.HTTPUnauthorized.status_code:
                raise
            return answered({"message": str(refused), "oidc": self.others.button}, 401)
        found = self.session(request)
        how = "kubeconfig" if found is None else "oidc" if found.user is not None else "token"
        expires = found.expires_s if found is not None else None
        return answered({"user": user.name, "groups": list(user.groups), "expires": expires, "how": how})

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        raw = await limited(request, _TOKEN_BYTES)
        try:
            token = msgspec.json.decode(raw, type=_Pasted).token.strip()
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise RefusedError(400, 'body: expected {"token": "..."}') from None
        if not token or len(token) > MAX_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
            raise RefusedError(401, "Unauthorized: this is no token")
        await self._server.reviewed(request, token)
        session = Session(expires_s=self._clock.wall() + LIFE_S, token=token)
        return self.signed_in(web.Response(status=204, headers=SAFE), session)

    def signed_in(self, response: web.Response, session: Session) -> web.Response:
        """Adds the sealed session's cookies to the response. Raises RefusedError."""
        seal = self._source.seal("session")
        if seal is None:
            raise RefusedError(503, "this replica has no key yet: try again", after_s=2.0)
        session = msgspec.structs.replace(session, here=secrets.token_urlsafe(16))
        try:
            text = seal.sealed(session)
        except TooLongError as wrong:
            raise RefusedError(400, str(wrong)) from None
        life_s = session.expires_s - self._clock.wall()
        response = self.with_cookie(response, COOKIE, text, life_s)
        return self.with_cookie(response, HERE, session.here, life_s, http_only=False)

    @staticmethod
    def with_cookie(
        response: web.Response,
        name: str,
        text: str,
        life_s: float,
        *,
        same_site: str = "Strict",
        http_only: bool = True,
    ) -> web.Response:
        response.set_cookie(
            name, text, max_age=max(0, int(life_s)), path="/", secure=True, httponly=http_only, samesite=same_site
        )
        return response


def _is_here(request: web.Request, session: Session) -> bool:
    """Whether the browser has not dropped the session."""
    return hmac.compare_digest(request.cookies.get(HERE, "").encode(), session.here.encode()) or not session.here


class _Pasted(msgspec.Struct):
    token: str


@dataclass(frozen=True)
class Others:
    """Handlers that exist only if they are configured. ``button``: the label of the button that leads to the
    provider.
    """

    sign_in: Callable[[web.Request, str], Awaitable[web.StreamResponse]] | None = None
    button: str | None = None
    history: Callable[[Asked, Sequence[str]], Awaitable[Json]] | None = None
    what_if: Callable[[web.Request, User], Awaitable[Json]] | None = None


async def _gpus(detail: Detail, key: str) -> list[Json]:
    """The GPUs that a workload holds, node by node, with pauses in which the event loop runs other tasks."""
    gpus: list[Json] = []
    for count, some in enumerate(detail.gpus_of(key)):
        gpus += some
        if count % _NODES == _NODES - 1:
            await asyncio.sleep(0)
    return gpus


def inner_path(path: str) -> str | None:
    """The path within the page, whichever way the request came; None for a path that is not the page's."""
    if path == "/":
        return ""
    if path == f"{AGGREGATED}events":
        return "events"
    for prefix in ("/page/", f"{AGGREGATED}/"):
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return None


def from_page(request: web.Request) -> bool:
    """Whether a cookie counts: the page itself asks, or a person who did not follow a link of another site."""
    if request.method == "GET":
        return request.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")
    return same_origin(request)


def same_origin(request: web.Request) -> bool:
    return request.headers.get("Origin", "") == f"https://{request.host}"


async def limited(request: web.Request, most: int) -> bytes:
    """The body of a request. Raises RefusedError if it has more than ``most`` bytes, or does not arrive."""
    body = bytearray()
    try:
        async with asyncio.timeout(10.0):
            while chunk := await request.content.read(64 * 1024):
                body += chunk
                if len(body) > most:
                    raise RefusedError(413, f"body: found more than {most} bytes")
    except TimeoutError:
        raise RefusedError(400, "body: it did not come in time") from None
    return bytes(body)


def answered(body: Json, code: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    raw = msgspec.json.encode(body)
    sent_with = {**SAFE, "Cache-Control": "no-store", **(headers or {})}
    return web.Response(body=raw, status=code, headers=sent_with, content_type="application/json")


def sent(request: web.Request, found: Asset, code: int = 200) -> web.Response:
    """A response with a file. Browsers ask each time whether it has changed."""
    cached = {**SAFE, "Cache-Control": "no-cache" if code == web.HTTPOk.status_code else "no-store", "ETag": found.etag}
    if code == web.HTTPOk.status_code and found.etag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=cached)
    headers = {**cached, "Content-Type": found.type, "Vary": "Accept-Encoding"}
    if found.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=found.packed, status=code, headers={**headers, "Content-Encoding": "gzip"})
    return web.Response(body=found.body, status=code, headers=headers)
