"""The listener: it tells who asks and whether the user may, and answers with what the user may see.

Limits hold for each user and for all together: how often, how many connections, how long a request may take to send or
its answer to read.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec
from aiohttp import web

from controller.cluster.config.settings import Address
from controller.insight.forecast.service_shell import BusyError
from controller.insight.forecast.shown import Foretold, Json
from controller.insight.forecast.submitted import NotQueuedError
from controller.people.visibility.answers import Answers
from controller.people.visibility.documents import documents, status
from controller.people.visibility.identity import (
    AMONG_REPLICAS,
    MAX_GROUPS,
    FrontProxy,
    User,
    bearer,
    from_headers,
    is_replica,
    speaks_for_users,
)
from controller.people.visibility.limits import Buckets
from controller.people.visibility.redaction import namespaces
from controller.people.visibility.reviews_shell import Reviews
from controller.people.visibility.routes import Asked, BadRequestError, What, created, manifest_of, parsed
from controller.people.visibility.tls import Door, peer_of, trusted_by
from kube.clock import Clock
from kube.errors import KubeError
from kube.listening.apps import Serving, within
from kube.listening.connection import Times
from kube.listening.listener import REFUSALS, Listener
from kube.listening.places import Group, PlaceLimits

log = logging.getLogger(__name__)

PER_S: Final = 10.0
BURST: Final = 50
"""Requests of one user in a burst, and of unknown tokens from one address."""
_USERS: Final = 4_096
PROXY: Final = Group("front proxy")
AMONG_US: Final = Group("replica")
LIMITS: Final = PlaceLimits(
    common=432, per_address=32, per_user=16, shaking=64, groups={PROXY: 64, AMONG_US: 16}, kept_from_streams=16
)
TIMES: Final = Times(idle_by_group={PROXY: 600.0})
"""Idle times of connections. The API server keeps connections open for later users: closing one under a request would
fail that."""
_BODY_BYTES: Final = 256 * 1024
"""The most bytes of a manifest. No other request needs a body."""
HEAD_BYTES: Final = {None: 1 << 15, PROXY: 1 << 18, AMONG_US: 1 << 18}
"""The front proxy and replicas write a header for each of a user's groups; tokens have some thousand bytes."""
_OTHER_HEADERS: Final = 100
"""Headers beside one for each of a user's groups."""
_USER: Final = web.RequestKey("user", str)
ANONYMOUS: Final = "system:anonymous"
AUTHENTICATED: Final = "system:authenticated"
READ_S: Final = 20.0
"""The time in which the body of a request must arrive."""
REVIEWED: Final = "/replicas/reviews"
"""The path on which a replica passes reviews of dry runs to the leader."""
RECORDED: Final = "/replicas/history"
"""The path on which a replica asks the leader for its record of the past."""


@dataclass(frozen=True)
class Trust:
    """The certificate authorities that are trusted now. ``own``: the replicas', PEM. ``bundle``: by which peers are
    verified.
    """

    own: bytes = b""
    proxy: FrontProxy | None = None

    @property
    def bundle(self) -> bytes:
        return self.own + (self.proxy.trusted if self.proxy is not None else b"")


async def _nothing_foretold(_: Asked) -> Foretold:
    return Foretold()


async def _nothing_submitted(_: Any, __: str) -> Json | None:
    return None


async def _nothing_reviewed(_: bytes) -> bytes | None:
    return None


async def _nothing_recorded(_: int) -> bytes | None:
    return None


@dataclass(frozen=True)
class Leader:
    """The leader, as any replica asks it. ``answers``: of this replica while it leads, else None. ``known``: namespaces
    that may be named in them.

    ``ask``: asks the leading replica for a user, with the body that was sent: status and body. ``foretold``: forecasts
    for a question. ``submitted``: the forecast of a manifest in a namespace. ``reviewed``: the forecast of a dry run
    that another replica was asked about, without names; None while this replica does not lead. ``recorded``: rows
    of this replica's record before an hour; None without one.
    """

    answers: Callable[[], Answers | None]
    known: Callable[[], frozenset[str]]
    ask: Callable[[str, User, bytes | None], Awaitable[tuple[int, bytes]]]
    foretold: Callable[[Asked], Awaitable[Foretold]] = _nothing_foretold
    submitted: Callable[[Any, str], Awaitable[Json | None]] = _nothing_submitted
    reviewed: Callable[[bytes], Awaitable[bytes | None]] = _nothing_reviewed
    recorded: Callable[[int], Awaitable[bytes | None]] = _nothing_recorded


class RefusedError(Exception):
    """The request is not answered: an HTTP status and one sentence."""

    def __init__(self, code: int, message: str, *, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.after_s = after_s


class Credentials(Protocol):
    """Credentials beside headers that may tell who asks."""

    def token(self, request: web.Request) -> str | None: ...
    def user(self, request: web.Request) -> User | None: ...


class Page(Protocol):
    """The page for browsers at the same port. ``owns``: whether this path is the page's."""

    def owns(self, path: str) -> bool: ...
    async def handle(self, request: web.Request) -> web.StreamResponse: ...


class ViewServer:
    """Serves from ``start`` to ``stop``. ``door.use`` comes first. ``page`` may be set before."""

    def __init__(
        self,
        address: Address,
        reviews: Reviews,
        leader: Leader,
        clock: Clock,
        *,
        limits: PlaceLimits = LIMITS,
        times: Times = TIMES,
    ) -> None:
        self._address = address
        self._reviews = reviews
        self._leader = leader
        self._clock = clock
        self._users: Buckets[str] = Buckets(per_s=PER_S, burst=BURST, most=_USERS)
        self._addresses: Buckets[str] = Buckets(per_s=PER_S, burst=BURST, most=_USERS)
        self._documents = {path: msgspec.json.encode(body) for path, body in documents().items()}
        self._paths = frozenset(self._documents)
        self._serving: Serving | None = None
        self.door = Door()
        self.listener = Listener(
            limits, times, tls=self.door.context, head_bytes=HEAD_BYTES, group_of_peer=self._group_of
        )
        self.trust = Trust()
        """The authorities of the certificates in use; ``ViewService.round`` replaces it with those of ``door``."""
        self.port = 0
        self.page: Page | None = None
        """The page that is served beside the API; ``view_service`` sets it once, before the first request."""
        self._foretelling: set[str] = set()
        """Users who wait for a forecast of an object that does not exist yet."""
        self._making = asyncio.Semaphore(1)
        """Held while an answer is made, one at a time: users wait for each other, and the engine does not wait for
        them."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One lock for each user: a user waits for ``_making`` with one request, however many there are."""

    @property
    def serving(self) -> bool:
        return self._serving is not None

    async def start(self) -> None:
        """Listens. Raises OSError for a port that is taken."""
        app = web.Application(client_max_size=_BODY_BYTES, middlewares=[within(self.listener)])
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_response_prepare.append(self._answering)
        self._serving = await Serving.start(
            app,
            self.listener,
            self._address.host,
            self._address.port,
            stop_within_s=2.0,
            max_headers=MAX_GROUPS + _OTHER_HEADERS,
        )
        self.port = self._serving.port

    async def stop(self) -> None:
        if self._serving is not None:
            serving, self._serving = self._serving, None
            await serving.stop()

    async def _answering(self, request: web.Request, response: web.StreamResponse) -> None:
        """Counts the connection as its user's when an answer begins, if the answer grants the request."""
        user = request.get(_USER)
        if user is not None and response.status not in REFUSALS:
            self.listener.granted(request, user)

    # -- one request -------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.page is not None and self.page.owns(request.path):
            return await self.page.handle(request)
        try:
            code, body = await self._answered(request)
            after_s = 0.0
        except RefusedError as refused:
            code, body, after_s = refused.code, msgspec.json.encode(status(refused.code, str(refused))), refused.after_s
        except KubeError as failed:
            log.warning("a question about rights got no answer: %s", failed)
            code, after_s = 503, 1.0
            body = msgspec.json.encode(status(code, "the API server does not say who may see this: try again"))
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        if after_s:
            headers["Retry-After"] = str(max(1, round(after_s)))
        if code == web.HTTPUnauthorized.status_code:
            headers["WWW-Authenticate"] = "Bearer"
        response = web.Response(body=body, status=code, headers=headers, content_type="application/json")
        connection = connection_of(request)
        if connection is not None and trusted_by(connection) != self.trust.bundle:
            # The peer was verified by former authorities and does not count: it may connect again.
            response.force_close()
        return response

    def count(self, user: User) -> None:
        """Counts one more request of this user. Raises RefusedError."""
        wait_s = self._users.take(user.name, self._clock.monotonic())
        if wait_s:
            raise RefusedError(429, f"too many requests: at most {PER_S:.0f} a second for each user", after_s=wait_s)

    async def _answered(self, request: web.Request) -> tuple[int, bytes]:
        if request.rel_url.raw_path == REVIEWED:
            return 200, await self._reviewed(request)
        if request.rel_url.raw_path == RECORDED:
            return 200, await self._recorded(request)
        user, forwarded = await self.user(request)
        self.count(user)
        if request.method == "POST" and (sent := created(request.rel_url.raw_path)) is not None:
            return await self._created(request, sent, user, forwarded=forwarded)
        if request.method != "GET":
            raise RefusedError(405, f"method: found {request.method[:20]!r}, expected GET")
        if request.body_exists:
            raise RefusedError(413, "body: found one, expected none")
        try:
            asked = parsed(request.rel_url.raw_path, request.query, self._paths)
        except BadRequestError as wrong:
            raise RefusedError(400, str(wrong)) from None
        if asked is None:
            raise RefusedError(404, "the server could not find the requested resource")
        if not await self._reviews.may(user, asked.right):
            raise RefusedError(403, f'User "{user.name}" may not {asked.right}')
        if asked.what is What.DOCUMENT:
            return 200, self._documents[asked.path]
        answers = self._leader.answers()
        if answers is not None:
            return 200, await asyncio.to_thread(msgspec.json.encode, await self.shown(answers, asked, user))
        if forwarded:
            raise RefusedError(503, "no replica leads now: try again", after_s=2.0)
        return await self._leader.ask(request.rel_url.raw_path_qs, user, None)

    async def _reviewed(self, request: web.Request) -> bytes:
        """The answer to a dry run that another replica was asked about. Only replicas may ask: the webhooks' port
        authenticates nobody, so no user stands behind it.
        """
        if request.method != "POST" or not is_replica(
            peer_of(connection_of(request), self.trust.bundle), self.trust.own
        ):
            raise RefusedError(404, "the server could not find the requested resource")
        found = await self._leader.reviewed(await self._body(request))
        if found is None:
            raise RefusedError(503, "no replica leads now: try again", after_s=2.0)
        return found

    async def _recorded(self, request: web.Request) -> bytes:
        """The record of this replica. Only replicas may ask: it names every queue."""
        if request.method != "GET" or not is_replica(
            peer_of(connection_of(request), self.trust.bundle), self.trust.own
        ):
            raise RefusedError(404, "the server could not find the requested resource")
        before = request.query.get("before", "")
        if not re.fullmatch(r"[0-9]{1,9}", before):
            raise RefusedError(400, f"before: found {before[:20]!r}, expected the number of an hour")
        found = await self._leader.recorded(int(before))
        if found is None:
            raise RefusedError(503, "this replica has no record of the past")
        return found

    async def _body(self, request: web.Request) -> bytes:
        """The body of a request. Raises RefusedError."""
        try:
            async with asyncio.timeout(READ_S):
                return await request.read()
        except (TimeoutError, web.HTTPRequestEntityTooLarge):
            raise RefusedError(413, f"body: expected at most {_BODY_BYTES} bytes, within {READ_S:.0f} s") from None

    async def _created(self, request: web.Request, asked: Asked, user: User, *, forwarded: bool) -> tuple[int, bytes]:
        """Answers a Forecast that was sent. The body is read after the review of the right, and is not stored."""
        if not await self._reviews.may(user, asked.right):
            raise RefusedError(403, f'User "{user.name}" may not {asked.right}')
        body = await self._body(request)
        answers = self._leader.answers()
        if answers is None:
            if forwarded:
                raise RefusedError(503, "no replica leads now: try again", after_s=2.0)
            return await self._leader.ask(request.rel_url.raw_path_qs, user, body)
        try:
            manifest = manifest_of(body)
            with self._only_one(user):
                forecast = await self._leader.submitted(manifest, asked.namespace)
        except (BadRequestError, NotQueuedError) as wrong:
            raise RefusedError(400, f"spec.manifest: {wrong}") from None
        except (BusyError, TimeoutError):
            raise RefusedError(429, "too many forecasts are asked for: try again", after_s=2.0) from None
        if forecast is None:
            raise RefusedError(503, "no replica leads now: try again", after_s=2.0)
        named = await asyncio.to_thread(namespaces, forecast, self._leader.known())
        hidden = await self._reviews.hidden(user, named, granted=asked.namespace)
        return 201, msgspec.json.encode(answers.foretold(asked, manifest, forecast, hidden))

    @contextmanager
    def _only_one(self, user: User) -> Iterator[None]:
        """Marks that a forecast is made for this user. Raises RefusedError while another one is: places are few, and
        for all users.
        """
        if user.name in self._foretelling:
            raise RefusedError(429, "one forecast at a time for each user: try again", after_s=2.0)
        self._foretelling.add(user.name)
        try:
            yield
        finally:
            self._foretelling.discard(user.name)

    async def shown(self, answers: Answers, asked: Asked, user: User) -> Any:
        """The answer as this user may see it. Raises RefusedError and KubeError."""
        foretold = await self._leader.foretold(asked)
        turn = self._turns.setdefault(user.name, asyncio.Lock())
        async with turn, self._making:
            for _ in answers.prepared(asked):
                await asyncio.sleep(0)
            gathered = answers.gathered(asked, foretold)
            if gathered is None:
                raise RefusedError(404, f'{asked.right.resource}.{asked.right.group} "{asked.name}" not found')
            found = await asyncio.to_thread(namespaces, gathered, self._leader.known())
        hidden = await self._reviews.hidden(user, found, granted=asked.namespace)
        async with turn, self._making:
            return await asyncio.to_thread(answers.shown, asked, gathered, hidden)

    # -- who asks ----------------------------------------------------------------------------------------------------

    async def user(self, request: web.Request, credentials: Credentials | None = None) -> tuple[User, bool]:
        """The user, and whether another replica handed the request on. Headers come first. Raises RefusedError and
        KubeError.
        """
        user, is_forwarded = await self._user(request, credentials)
        if self.listener.full(request, user.name):
            raise RefusedError(429, "too many connections of one user", after_s=1.0)
        request[_USER] = user.name
        return user, is_forwarded

    def stream(self, request: web.Request) -> None:
        """Takes a place for an answer without end. Raises RefusedError if none is left."""
        if not self.listener.stream(request):
            raise RefusedError(503, "too many open pages through the API server: close one", after_s=10.0)

    def _group_of(self, transport: asyncio.Transport) -> Group | None:
        """The group of connections of a replica or the API server's front proxy, which bring many users' requests; None
        for others.
        """
        peer, trust = peer_of(transport.get_extra_info("ssl_object"), self.trust.bundle), self.trust
        if is_replica(peer, trust.own):
            return AMONG_US
        proxied = trust.proxy is not None and speaks_for_users(peer, trust.proxy, trust.own)
        return PROXY if proxied else None

    async def _user(self, request: web.Request, credentials: Credentials | None) -> tuple[User, bool]:
        headers = list(request.headers.items())
        peer, trust = peer_of(connection_of(request), self.trust.bundle), self.trust
        if is_replica(peer, trust.own):
            user = from_headers(headers, AMONG_REPLICAS)
            return self._known(user), True
        if trust.proxy is not None and speaks_for_users(peer, trust.proxy, trust.own):
            user = from_headers(headers, trust.proxy)
            if user is not None:
                return self._known(user), False
        token = bearer(headers)
        if token is None and credentials is not None:
            if (known := credentials.user(request)) is not None:
                return self._known(known), False
            token = credentials.token(request)
        if token is None:
            raise RefusedError(401, "Unauthorized: expected a bearer token")
        return await self.reviewed(request, token), False

    async def reviewed(self, request: web.Request, token: str) -> User:
        """The user whose token it is. Raises RefusedError and KubeError."""
        # Behind an Ingress all users have one address: a stranger there must not keep out users who were known before.
        known = self._reviews.was_known(token)
        wait_s = 0.0 if known else self._addresses.take(request.remote or "", self._clock.monotonic())
        if wait_s:
            raise RefusedError(429, "too many requests from this address", after_s=wait_s)
        return self._known(await self._reviews.user(token))

    def _known(self, user: User | None) -> User:
        """The user. Raises RefusedError for None; the API server hands anonymous requests on as a user of that name."""
        if user is None or user.name == ANONYMOUS:
            raise RefusedError(401, "Unauthorized: the credentials are not known, or have expired")
        # The group is added as every API server does: the API server's own parts come without a group, to discover what
        # is served.
        return user if AUTHENTICATED in user.groups else replace(user, groups=(*user.groups, AUTHENTICATED))


def connection_of(request: web.Request) -> ssl.SSLObject | None:
    return request.transport.get_extra_info("ssl_object") if request.transport is not None else None
