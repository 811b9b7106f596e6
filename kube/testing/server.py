"""An API server in this process: real HTTP, real watches, outages on demand.

async with FakeApiServer() as server:
    server.create("nodes", "node-1", {...})
    client = Client(server.config)
"""

import asyncio
import copy
import json
import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web

from kube.config import ClusterConfig
from kube.errors import KubeError, UnavailableError
from kube.resources import Resource
from kube.testing.store import Change, Key, Store

_OWN_REVIEWS: Final = "selfsubjectaccessreviews"
_ACCESS_REVIEWS: Final = "subjectaccessreviews"
_TOKEN_REVIEWS: Final = "tokenreviews"  # noqa: S105 - a kind's name
_REVIEWS: Final = (_OWN_REVIEWS, _ACCESS_REVIEWS, _TOKEN_REVIEWS)
"""Kinds whose objects are created, answered and not kept."""

_VERSION: Final = re.compile(r"/apis?/((?:[^/]+/)?v[^/]+)")


class ServedRequest(tuple[str, str, str]):
    """One call that the server saw: method, path, content type."""

    __slots__ = ()

    @property
    def method(self) -> str:
        return self[0]

    @property
    def path(self) -> str:
        return self[1]


class FakeApiServer:
    """Serves every resource that is asked for, unless ``unknown`` names its plural (as if its CRD were missing)."""

    def __init__(self) -> None:
        self.store = Store()
        self.requests: list[ServedRequest] = []
        """The calls served, oldest first. The playground forgets them (``Stage``), which runs for hours."""
        self.down = False
        """When True, every connection is cut without an answer."""
        self.mute = False
        """When True, connections are taken and no call is ever answered."""
        self.refuse: Callable[[str, str], int | KubeError | None] = lambda _method, _path: None
        """A function of method and path to a status (or an error) to answer instead of serving, or None."""
        self.unknown: set[str] = set()
        self._installed: set[Resource] = set()
        """The kinds that discovery names though they have no object."""
        self.lose_answer: Callable[[str, str], bool] = lambda _method, _path: False
        """A function of method and path; True serves the call and cuts the connection before its answer."""
        self.pruned: dict[str, tuple[str, ...]] = {}
        """The path of a field that a kind's CRD does not know, by plural: a merge patch loses it."""
        self.hold: asyncio.Event | None = None
        """An event that, if set here, calls other than watches wait for before they are served."""
        self.denied: set[tuple[str, str]] = set()
        """The verbs and plurals that a SelfSubjectAccessReview refuses; all others are allowed."""
        self.allows: Callable[[dict[str, Any]], bool] = lambda _: True
        """The answer of a SubjectAccessReview to its spec."""
        self.reviewed: list[dict[str, Any]] = []
        """The specs of the SubjectAccessReviews seen, oldest first; the playground's ``Stage`` forgets them."""
        self.users: dict[str, dict[str, Any]] = {}
        """The user of each token for a TokenReview, which knows no other token. Tests and ``played`` add to it."""
        self.checks_namespaces = False
        """Whether an object is refused in a namespace that does not exist, as on a real server."""
        self.token: str | None = None
        """The only bearer token that is let in; None lets all in. ``played`` sets it before the first client is made.
        """
        self._bookmarks = 0
        self._streams: set[asyncio.Transport] = set()
        self._grown = asyncio.Event()
        self._closing = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def config(self) -> ClusterConfig:
        """The configuration of a client of this server."""
        return ClusterConfig(server=f"http://127.0.0.1:{self._port}", token=self.token)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._notify()
        if self._runner is not None:
            await self._runner.cleanup()

    def create(self, resource: Resource, name: str, body: dict[str, Any] | None = None, *, namespace: str = "") -> Any:
        """Create an object as another client would."""
        return self._changed(self.store.create(_key(resource, name, namespace), body or {"metadata": {}}))

    def delete(self, resource: Resource, name: str, *, namespace: str = "") -> None:
        self.store.delete(_key(resource, name, namespace))
        self._notify()

    def install(self, resource: Resource) -> None:
        """Serve the kind and name it in discovery, also while it has no object."""
        self.unknown.discard(resource.plural)
        self._installed.add(resource)

    def uninstall(self, resource: Resource) -> None:
        """Remove the kind as when its CRD is deleted: its objects go, then its watches end and its paths are
        not found.
        """
        for collection, namespace, name in list(self.store.objects):
            if collection == resource.path():
                self.store.delete((collection, namespace, name))
        self.unknown.add(resource.plural)
        self._notify()

    def merge(
        self, resource: Resource, name: str, patch: dict[str, Any], *, manager: str = "test", namespace: str = ""
    ) -> Any:
        """Change an object as another client would."""
        return self._changed(self.store.merge_patch(_key(resource, name, namespace), patch, manager))

    def apply(self, resource: Resource, name: str, body: dict[str, Any], *, manager: str) -> Any:
        """Apply as another manager would, by force."""
        return self._changed(self.store.apply(_key(resource, name, ""), body, manager, force=True))

    def get(self, resource: Resource, name: str, *, namespace: str = "") -> Any:
        return self.store.get(_key(resource, name, namespace)).render()

    def list_all(self, resource: Resource) -> list[Any]:
        return self.store.list_all(resource.path(), "")

    def seen(self, method: str, part: str) -> list[ServedRequest]:
        """The calls of ``method`` whose path contains ``part``."""
        return [request for request in self.requests if request.method == method and part in request.path]

    def written(self, part: str) -> list[ServedRequest]:
        """The calls that changed an existing object, as a whole or by a patch, whose path contains ``part``."""
        return [request for request in self.requests if request.method in ("PUT", "PATCH") and part in request.path]

    def _changed(self, body: Any) -> Any:
        self._notify()
        return body

    def _notify(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(ServedRequest((request.method, request.path, request.content_type)))
        if self.down:
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=500)
        if self.mute:
            await self._closing.wait()
        refused = self.refuse(request.method, request.path)
        if refused is not None:
            return _status(refused if isinstance(refused, KubeError) else _refusal(request, refused))
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(KubeError("Unauthorized", status=401, reason="Unauthorized"))
        if self.hold is not None and request.query.get("watch") != "true":
            await self.hold.wait()
        try:
            answer = await self._serve(request)
        except KubeError as error:
            answer = _status(error)
        if self.lose_answer(request.method, request.path) and request.transport is not None:
            request.transport.abort()
        return answer

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/apis":
            return self._groups()
        if (version := _VERSION.fullmatch(request.path)) is not None:
            return self._resources(version[1])
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.0"})
        collection, namespace, name = parse_path(request.path)
        if _plural(collection) in self.unknown:
            return _status(KubeError("the server could not find the requested resource", status=404, reason="NotFound"))
        if name is None and request.method == "GET":
            if request.query.get("watch") == "true":
                return await self._watch(request, collection, namespace)
            return self._list(request, collection, namespace)
        raw = await request.read()
        body = json.loads(raw) if raw else {}
        if _plural(collection) in _REVIEWS:
            return web.json_response({**body, "status": self._reviewed(_plural(collection), body["spec"])})
        lost = namespace and ("/api/v1/namespaces", "", namespace) not in self.store.objects
        if self.checks_namespaces and request.method == "POST" and lost:
            return _status(KubeError(f'namespaces "{namespace}" not found', status=404, reason="NotFound"))
        before = copy.deepcopy(self.store) if request.query.get("dryRun") == "All" else None
        try:
            answer = self._write(request, (collection, namespace, name or self._name(body["metadata"])), body)
        finally:
            self.store = before or self.store
        self._notify()
        return web.json_response(answer)

    def _name(self, metadata: dict[str, Any]) -> str:
        """The name of a new object, made from ``generateName`` where it has none."""
        if not metadata.get("name"):
            metadata["name"] = f"{metadata['generateName']}{self.store.version:05}"
        return str(metadata["name"])

    def _reviewed(self, plural: str, spec: dict[str, Any]) -> dict[str, Any]:
        if plural == _TOKEN_REVIEWS:
            user = self.users.get(spec["token"])
            return {"authenticated": True, "user": user} if user is not None else {"error": "invalid bearer token"}
        if plural == _ACCESS_REVIEWS:
            self.reviewed.append(spec)
            return {"allowed": self.allows(spec)}
        asked = spec["resourceAttributes"]
        return {"allowed": (asked["verb"], asked["resource"]) not in self.denied}

    def _groups(self) -> web.Response:
        """The answer of discovery: groups that have an object, and those that a test installed."""
        stored = {
            collection.split("/apis/")[1].rsplit("/", 1)[0]
            for collection, _, _ in self.store.objects
            if "/apis/" in collection
        }
        installed = {resource.api_version for resource in self._installed}
        versions = [{"groupVersion": version} for version in sorted(stored | installed)]
        return web.json_response({"kind": "APIGroupList", "groups": [{"versions": [version]} for version in versions]})

    def _resources(self, version: str) -> web.Response:
        """The answer of discovery for one version of a group: the kinds that a test installed."""
        resources = [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
            for each in self._installed
            if each.api_version == version
        ]
        if not resources:
            return _status(KubeError("the server could not find the requested resource", status=404, reason="NotFound"))
        return web.json_response({"kind": "APIResourceList", "groupVersion": version, "resources": resources})

    def _list(self, request: web.Request, collection: str, namespace: str) -> web.Response:
        """One page of a list. Its place is an index, so later pages see what has changed since, unlike the real
        ones.
        """
        matching = [stored for stored in self.store.find(collection, namespace) if _selected(request, stored.body)]
        first, limit = int(request.query.get("continue", "0")), int(request.query.get("limit", "0")) or len(matching)
        meta = {"resourceVersion": str(self.store.version)}
        if first + limit < len(matching):
            meta["continue"] = str(first + limit)
        page = [stored.render() for stored in matching[first : first + limit]]
        return web.json_response({"metadata": meta, "items": page})

    def _write(self, request: web.Request, key: Key, body: Any) -> Any:
        manager = request.query.get("fieldManager", "test")
        match request.method, request.content_type:
            case "GET", _:
                return self.store.get(key).render()
            case "POST", _ if parse_subresource(request.path) == "eviction":
                self.store.delete(key, body.get("deleteOptions", {}).get("preconditions", {}).get("uid"))
                return {"status": "Success"}
            case "POST", _:
                return self.store.create(key, body, manager)
            case "PUT", _:
                of_status = parse_subresource(request.path) == "status"
                return (self.store.update_status if of_status else self.store.update)(key, body, manager)
            case "DELETE", _:
                foreground = body.get("propagationPolicy") == "Foreground"
                self.store.delete(key, body.get("preconditions", {}).get("uid"), foreground=foreground)
                return {"status": "Success"}
            case "PATCH", "application/apply-patch+yaml":
                return self.store.apply(key, body, manager, force=request.query.get("force") == "true")
            case "PATCH", "application/json-patch+json":
                return self.store.json_patch(key, body, manager)
            case "PATCH", "application/merge-patch+json":
                return self.store.merge_patch(key, _without(body, self.pruned.get(_plural(key[0]), ())), manager)
        raise KubeError("unsupported", status=415)

    async def _watch(self, request: web.Request, collection: str, namespace: str) -> web.StreamResponse:
        version = int(request.query.get("resourceVersion", "0"))
        self.store.since(version)  # too old: a plain 410, before the stream starts
        response = web.StreamResponse()
        await response.prepare(request)
        transport = request.transport
        assert transport is not None
        self._streams.add(transport)
        bookmarks = self._bookmarks
        try:
            while not self._closing.is_set() and not transport.is_closing():
                grown = self._grown
                gone = _plural(collection) in self.unknown
                for change in self.store.since(version):
                    version = change.version
                    type_ = _concerns(change, collection, namespace) and _type(request, change)
                    if type_:
                        line = json.dumps({"type": type_, "object": change.body})
                        await response.write(line.encode() + b"\n")
                if bookmarks != self._bookmarks:
                    bookmarks, version = self._bookmarks, self.store.version
                    mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}
                    await response.write(json.dumps(mark).encode() + b"\n")
                if gone:
                    break
                await grown.wait()
        except KubeError as error:  # the place was forgotten: told within the stream, as the real server does
            await response.write(json.dumps({"type": "ERROR", "object": _status_object(error)}).encode() + b"\n")
        finally:
            self._streams.discard(transport)
        return response

    @property
    def watchers(self) -> int:
        """The number of open watches."""
        return len(self._streams)

    def bookmark(self) -> None:
        """Send a bookmark on every open watch, though nothing happened."""
        self._bookmarks += 1
        self._notify()

    def cut(self) -> None:
        """Go down and break the watches that are open."""
        self.down = True
        for transport in self._streams:
            transport.abort()
        self._notify()


def parse_path(path: str) -> tuple[str, str, str | None]:
    """The (collection path without namespace, namespace, name) of an API URL."""
    parts = path.strip("/").split("/")
    head, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:  # noqa: PLR2004 - /namespaces/NAME/plural
        namespace, rest = rest[1], rest[2:]
    return "/" + "/".join([*head, rest[0]]), namespace, rest[1] if len(rest) > 1 else None


def parse_subresource(path: str) -> str:
    """The subresource in a path, such as ``status``; empty for the object itself."""
    collection, namespace, name = parse_path(path)
    depth = collection.count("/") + (2 if namespace else 0) + (1 if name else 0)
    return "/".join(path.strip("/").split("/")[depth:])


def _plural(collection: str) -> str:
    return collection.rsplit("/", 1)[1]


def _without(body: Any, path: tuple[str, ...]) -> Any:
    if not path or path[0] not in body:
        return body
    rest = {key: value for key, value in body.items() if key != path[0]}
    return rest if len(path) == 1 else {**rest, path[0]: _without(body[path[0]], path[1:])}


def _key(resource: Resource, name: str, namespace: str) -> Key:
    return resource.path(), namespace, name


def _concerns(change: Change, collection: str, namespace: str) -> bool:
    return change.collection == collection and namespace in ("", change.namespace)


def _type(request: web.Request, change: Change) -> str:
    """The event type for a watch with a selector, which objects enter and leave. Empty for no event."""
    was = change.before is not None and _selected(request, change.before)
    if not _selected(request, change.body):
        return "DELETED" if was else ""
    return "ADDED" if change.type == "MODIFIED" and not was else change.type


def _selected(request: web.Request, item: dict[str, Any]) -> bool:
    """Whether the request's selectors match: ``a.b=c`` field selectors, ``a=b`` and ``a`` label selectors, as far as
    tests use them.
    """
    labels = item["metadata"].get("labels", {})
    for term in filter(None, request.query.get("labelSelector", "").split(",")):
        key, equals, wanted = term.partition("=")
        if key not in labels or (equals and labels[key] != wanted):
            return False
    for term in filter(None, request.query.get("fieldSelector", "").split(",")):
        path, _, wanted = term.partition("=")
        value: Any = item
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value != wanted:
            return False
    return True


_RBAC_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def _refusal(request: web.Request, status: int) -> KubeError:
    """The error that a test asked for; a 403 names the user who lacks the right."""
    if status != 403:  # noqa: PLR2004 - HTTP's own number
        return KubeError("refused by the test", status=status, reason="Test")
    if request.path == "/apis":
        return KubeError('forbidden: User "test" cannot get path "/apis"', status=403, reason="Forbidden")
    what = parse_path(request.path)[0].rsplit("/", 1)[1] + "/" + parse_subresource(request.path)
    right = f'cannot {_RBAC_VERBS[request.method]} resource "{what.rstrip("/")}"'
    return KubeError(f'forbidden: User "test" {right}', status=403, reason="Forbidden")


def _status(error: KubeError) -> web.Response:
    asked_s = error.retry_after_s if isinstance(error, UnavailableError) else None
    headers = {"Retry-After": f"{asked_s:.0f}"} if asked_s is not None else {}
    return web.json_response(_status_object(error), status=error.status or 500, headers=headers)


def _status_object(error: KubeError) -> dict[str, Any]:
    code = error.status or 500
    return {"kind": "Status", "status": "Failure", "message": str(error), "reason": error.reason, "code": code}
