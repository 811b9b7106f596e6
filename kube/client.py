"""The API client: bytes over aiohttp, msgspec into the caller's struct.

Each call returns the decoded object or raises one of ``kube.errors``. Bodies are any msgspec-encodable value. Nothing
is retried here except one 401 after a token rotated: the caller decides when to try again.
"""

import asyncio
import os
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec
from msgspec import Struct

from kube import depth
from kube.clock import Clock, SystemClock
from kube.config import ClusterConfig, TokenSource
from kube.errors import UnavailableError, from_response, from_status
from kube.resources import Resource

if TYPE_CHECKING:  # a third of a small program's start: loaded with the first client that is opened
    import aiohttp

T = TypeVar("T")
Decode = Callable[[bytes], T]
"""A function from JSON to the caller's object; each call says what happens to its exceptions."""

_JSON = "application/json"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML, and every server since 1.16 takes it under this name
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PAGE, _MOST_PAGE, _PAGE_BYTES = 500, 5000, 4 << 20
"""The items of a list's first page, and the most of any; the other pages have as many as come to _PAGE_BYTES of JSON,
which bounds the undecoded bytes held. For each page of a list the API server goes over all items that are left: in
pages of 500 that was a third of its time for 100,000.
"""
_SLICE = 50
"""The number of items that are decoded without a pause."""
_PAGE_S = 60.0
"""The seconds that a page may take where the server is busy, while some of it comes at least every _SILENT_S: a list
holds up no write, and a list that is given up starts again at its first page.
"""
_SILENT_S = 10.0

_USER = re.compile(r"//[^/\s]*@")
"""The user and password of an address in an error: a proxy's has its password there."""
_QUIET_S = 150.0
"""The seconds without a line after which a watch counts as dead: bookmarks come about once a minute."""


class Listing(Struct, Generic[T], frozen=True):
    """A list and the version from which a watch continues it."""

    items: tuple[T, ...]
    resource_version: str


class WatchEvent(Struct, Generic[T], frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, or BOOKMARK, which carries a resource version and no object."""

    type: str
    resource_version: str
    object: T | None


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _RawList(Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _RawEvent(Struct):
    type: str
    object: msgspec.Raw


class _Version(Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(Struct):
    metadata: _Version


class _GroupVersion(Struct, rename="camel"):
    group_version: str = ""


class _Group(Struct):
    versions: tuple[_GroupVersion, ...] = ()


class _GroupList(Struct):
    groups: tuple[_Group, ...] = ()


class Selection(Struct, frozen=True):
    """The objects of a kind that are meant: selectors in the API's own syntax, None for all."""

    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None

    def params(self) -> dict[str, str]:
        named = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {key: value for key, value in named.items() if value is not None}


EVERYTHING = Selection()


class Client:
    """The client of one API server. Open it with ``async with``; use it from one event loop.

    ``compressed``: large answers may come as gzip. That costs both sides CPU, and is not worth it inside of one
    network. At most ``connections`` are kept and used at once, one call on each; watches have their own beside them, so
    that no number of watches ever keeps a write waiting. Both sessions are set while the client is open, and None
    before and after.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        timeout_s: float = 10.0,
        user_agent: str = "tessera",
        clock: Clock | None = None,
        connections: int = 8,
        compressed: bool = True,
    ) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._user_agent = user_agent
        self._connections = connections
        self._encodings = {} if compressed else {"Accept-Encoding": "identity"}
        self._tokens = TokenSource(config, monotonic=(clock or SystemClock()).monotonic)
        self._session: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        tls = self._config.ssl_context() or True
        self._session, self._watches = self._open_session(tls, self._connections), self._open_session(tls, 0)
        return self

    def _open_session(self, tls: ssl.SSLContext | bool, connections: int) -> "aiohttp.ClientSession":
        """A session with at most ``connections`` connections; 0 sets no limit."""
        from kube.fencing import FencedRequest
        from kube.leanaiohttp import aiohttp

        # True leaves TLS to the URL: aiohttp ignores it for http servers.
        connector = aiohttp.TCPConnector(ssl=tls, limit=connections)
        own = {"User-Agent": self._user_agent, "Accept": _JSON} | self._encodings
        return aiohttp.ClientSession(
            connector=connector,
            headers=[*own.items(), *self._config.headers],
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=FencedRequest,
            proxy=self._config.proxy_url,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in (self._session, self._watches):
            if session is not None:
                await session.close()
        self._session = self._watches = None

    async def get(
        self,
        resource: Resource,
        name: str,
        kind: type[T],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        params: Mapping[str, str] | None = None,
    ) -> T:
        path = resource.path(name, namespace=namespace, subresource=subresource)
        return _decode(await self._request("GET", path, params=params), kind)

    async def list_all(self, resource: Resource, kind: type[T], selection: Selection = EVERYTHING) -> Listing[T]:
        """List all objects, read page by page."""
        return await self.list_decoded(resource, decoder(kind), selection)

    async def list_decoded(
        self,
        resource: Resource,
        decode: Decode[T],
        selection: Selection = EVERYTHING,
        *,
        metadata_only: bool = False,
    ) -> Listing[T]:
        """List all objects as ``decode`` makes them.

        ``metadata_only``: the server may leave out all but the metadata.
        """
        items: list[T] = []
        async with aclosing(self.list_pages(resource, decode, selection, metadata_only=metadata_only)) as pages:
            async for page in pages:
                items += page.items
        return Listing(items=tuple(items), resource_version=page.resource_version)

    async def list_pages(
        self,
        resource: Resource,
        decode: Decode[T],
        selection: Selection = EVERYTHING,
        *,
        metadata_only: bool = False,
    ) -> AsyncGenerator[Listing[T]]:
        """``list_decoded`` by pages, at least one. The server makes a page while the one before is decoded, so that
        never more than the JSON of two is held.
        """
        params = selection.params() | {"limit": str(_PAGE)}
        path, accept = resource.path(namespace=selection.namespace), _METADATA if metadata_only else _JSON
        coming = asyncio.create_task(self._page(path, params, accept))
        try:
            while True:
                raw_page = await coming
                page = _decode(raw_page, _RawList)
                more = page.metadata.continue_
                if more:
                    fitting = len(page.items or ()) * _PAGE_BYTES // len(raw_page)
                    params = params | {"continue": more, "limit": str(max(_PAGE, min(fitting, _MOST_PAGE)))}
                    coming = asyncio.create_task(self._page(path, params, accept))
                del raw_page
                items: list[T] = []
                for number, raw in enumerate(page.items or ()):
                    if number % _SLICE == 0:
                        await asyncio.sleep(0)  # the next request is sent, and others have their turn
                    items.append(decode(bytes(raw)))
                page.items = None  # frees the page's JSON
                yield Listing(items=tuple(items), resource_version=page.metadata.resource_version)
                if not more:
                    return
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _page(self, path: str, params: Mapping[str, str], accept: str) -> bytes:
        import aiohttp

        silent_s = max(_SILENT_S, self._timeout_s)
        timeout = aiohttp.ClientTimeout(
            total=max(_PAGE_S, self._timeout_s), sock_connect=self._timeout_s, sock_read=silent_s
        )
        return await self._request("GET", path, params=params, accept=accept, within=timeout)

    async def text(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """GET a path that is not an object: a container's log, or a Pod's answer through the API server's proxy."""
        return await self._request("GET", path, params=params)

    async def group_versions(self) -> frozenset[str]:
        """The ``group/version`` of everything that is served beside the core group. Every account may read it."""
        groups = _decode(await self._request("GET", "/apis"), _GroupList).groups
        return frozenset(version.group_version for group in groups for version in group.versions)

    async def document(self, path: str, kind: type[T]) -> T:
        """GET a path that is not an object's: discovery, OpenAPI."""
        return _decode(await self._request("GET", path), kind)

    async def create(
        self,
        resource: Resource,
        body: Any,
        kind: type[T],
        *,
        name: str | None = None,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """POST, with ``name`` and ``subresource`` to a part of an object, such as its eviction. An object of that name
        is a ConflictError with reason AlreadyExists. ``dry_run``: nothing is kept.
        """
        path, params = resource.path(name, namespace=namespace, subresource=subresource), _dry(dry_run)
        return _decode(await self._request("POST", path, params=params, body=body), kind)

    async def update(
        self,
        resource: Resource,
        name: str,
        body: Any,
        kind: type[T],
        *,
        field_manager: str | None = None,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> T:
        """PUT the whole object; a resourceVersion inside makes it conditional. ``field_manager``: see merge_patch."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        params = {"fieldManager": field_manager} if field_manager else None
        return _decode(await self._request("PUT", path, params=params, body=body), kind)

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: Any,
        kind: type[T],
        *,
        field_manager: str,
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> T:
        """Server-side apply: ``body`` is everything ``field_manager`` wants; fields that it applied before and not now
        are removed.

        An object that is not there is created, unless ``body`` carries a uid (then: ConflictError). ``force`` takes
        fields over from other managers instead of raising ConflictError.
        """
        params = {"fieldManager": field_manager, "force": "true" if force else "false"}
        path = resource.path(name, namespace=namespace, subresource=subresource)
        return _decode(await self._request("PATCH", path, params=params, body=body, content_type=_APPLY), kind)

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: list[dict[str, Any]],
        kind: type[T],
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> T:
        """RFC 6902. A ``test`` that fails is an InvalidError."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        params = {"fieldManager": field_manager}
        raw = await self._request("PATCH", path, params=params, body=operations, content_type=_JSON_PATCH)
        return _decode(raw, kind)

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        kind: type[T],
        *,
        field_manager: str | None = None,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """RFC 7386; a resourceVersion inside makes it conditional. Without ``field_manager`` the user agent is it."""
        path = resource.path(name, namespace=namespace, subresource=subresource)
        params = ({"fieldManager": field_manager} if field_manager else {}) | _dry(dry_run)
        raw = await self._request("PATCH", path, params=params, body=body, content_type=_MERGE_PATCH)
        return _decode(raw, kind)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        foreground: bool = False,
        background: bool = False,
        dry_run: bool = False,
    ) -> None:
        """DELETE; with ``uid`` only the object of that uid (ConflictError otherwise).

        ``foreground``: it stays until the garbage collector has deleted what it owns. ``background``: what it owns goes
        after it. With neither, the kind decides, and a batch/v1 Job leaves its pods behind.
        """
        body: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if foreground or background:
            body["propagationPolicy"] = "Foreground" if foreground else "Background"
        path = resource.path(name, namespace=namespace)
        await self._request("DELETE", path, params=_dry(dry_run), body=body or None)

    async def watch(
        self,
        resource: Resource,
        kind: type[T],
        *,
        resource_version: str,
        selection: Selection = EVERYTHING,
        timeout_s: int = 300,
    ) -> AsyncIterator[WatchEvent[T]]:
        """Changes after ``resource_version``, until the server ends the stream (normal, after about ``timeout_s``).

        Raises ExpiredError where the version is too old, UnavailableError where the connection breaks.
        """
        decoded = self.watch_decoded(
            resource,
            decoder(kind),
            resource_version=resource_version,
            selection=selection,
            timeout_s=timeout_s,
        )
        async with aclosing(decoded) as events:
            async for event in events:
                yield event

    async def watch_decoded(
        self,
        resource: Resource,
        decode: Decode[T],
        *,
        resource_version: str,
        selection: Selection = EVERYTHING,
        timeout_s: int = 300,
    ) -> AsyncGenerator[WatchEvent[T]]:
        """``watch`` with objects as ``decode`` makes them."""
        import aiohttp

        params = selection.params() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        path = resource.path(namespace=selection.namespace)
        what = f"WATCH {path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_s, sock_read=_QUIET_S)
        try:
            async with self._open(self._watches, "GET", path, params=params, timeout=timeout) as response:
                if response.status >= 400:  # noqa: PLR2004 - HTTP's own number
                    raise from_response(what, response.status, await response.read())
                async for line in _lines(response.content):
                    yield _watch_event(what, line, decode)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{what}: {describe(error)}") from None

    def passed_on(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> "AbstractAsyncContextManager[aiohttp.ClientResponse]":
        """The answer as it comes, whatever its status: for a proxy. A stream may be silent for a minute.

        Raises aiohttp.ClientError, TimeoutError, OSError, and UnavailableError where there is no token.
        """
        import aiohttp

        timeout = aiohttp.ClientTimeout(sock_connect=self._timeout_s, sock_read=max(60.0, self._timeout_s))
        return self._open(self._watches, method, path, params=params, data=data, headers=headers, timeout=timeout)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        within: "aiohttp.ClientTimeout | None" = None,
    ) -> bytes:
        """One call; the body of a success, or the error that the status stands for."""
        import aiohttp

        data = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": accept} | ({"Content-Type": content_type} if data is not None else {})
        timeout = within or aiohttp.ClientTimeout(total=self._timeout_s)
        for attempt in (1, 2):
            try:
                async with self._open(
                    self._session, method, path, params=params, data=data, headers=headers, timeout=timeout
                ) as answer:
                    raw = await answer.read()
                    status, retry_after = answer.status, answer.headers.get("Retry-After")
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:  # of addresses: `--server`
                raise UnavailableError(f"{method} {path}: {describe(error)}") from None
            if status == 401 and attempt == 1 and self._tokens.refused():  # noqa: PLR2004
                continue
            if status >= 400:  # noqa: PLR2004 - HTTP's own numbers
                raise from_response(f"{method} {path}", status, raw, retry_after)
            return raw
        raise AssertionError("unreachable: the second attempt returns or raises")

    def _open(
        self,
        session: "aiohttp.ClientSession | None",
        method: str,
        path: str,
        *,
        timeout: "aiohttp.ClientTimeout",
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> "AbstractAsyncContextManager[aiohttp.ClientResponse]":
        if session is None:
            raise RuntimeError("the client is not open: use it inside `async with`")
        sent = dict(headers or {})
        token = self._tokens.token()
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        return session.request(
            method,
            self._config.server + path,
            params=params,
            data=data,
            headers=sent,
            timeout=timeout,
            server_hostname=self._config.tls_server_name,
            allow_redirects=False,
        )


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


async def _lines(stream: "aiohttp.StreamReader") -> AsyncIterator[bytes]:
    """Lines of any length: the reader's own ``readline`` gives up at 64 KiB, and objects are larger."""
    rest = bytearray()
    async for chunk in stream.iter_any():
        rest += chunk
        *lines, last = rest.split(b"\n")
        rest = last
        for line in lines:
            if line:
                yield bytes(line)


def _watch_event(what: str, line: bytes, decode: Decode[T]) -> WatchEvent[T]:
    raw = _decode(line, _RawEvent)
    body = bytes(raw.object)
    if raw.type == "ERROR":
        raise from_status(what, body)
    version = _decode(body, _Versioned).metadata.resource_version
    return WatchEvent(type=raw.type, resource_version=version, object=None if raw.type == "BOOKMARK" else decode(body))


def decoder(kind: type[T]) -> Decode[T]:
    """Decodes into ``kind``; UnavailableError where that cannot be."""
    return lambda raw: _decode(raw, kind)


def _decode(raw: bytes, kind: type[T]) -> T:
    try:
        return depth.decode(raw, kind)
    except msgspec.MsgspecError as error:
        # An answer that is no such object comes from a proxy before the server, so that another try may succeed.
        raise UnavailableError(f"the answer is no {kind.__name__}: {error}") from None


def describe(error: BaseException) -> str:
    """The reason why no answer came, in a few words: ``127.0.0.1:6443: connection refused``."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return f"{error.host}:{error.port}: {os.strerror(error.os_error.errno).lower()}"
    return _USER.sub("//", str(error)) or type(error).__name__
