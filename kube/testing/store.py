"""The objects behind the fake API server: versions, uids and field owners. Pure, no I/O.

Server-side apply follows the real server's rules for maps and scalars; a list is one value, owned as a whole. That is
how CRDs without list types behave, and enough for labels.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from kube.errors import ConflictError, ExpiredError, InvalidError, NotFoundError

Path = tuple[str, ...]
T = TypeVar("T")
Key = tuple[str, str, str]
"""The collection path without namespace, the namespace and the name of an object."""

_DELETED_AT = "2026-01-01T00:00:00Z"
_SYSTEM = {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}


def copied(value: T) -> T:
    """A copy as it comes over the wire: JSON that shares nothing with ``value``. copy.deepcopy takes six times
    as long.
    """
    return cast("T", msgspec.json.decode(msgspec.json.encode(value)))


@dataclass
class Manager:
    """One managedFields entry: the manager, its operation, its leaf paths."""

    name: str
    operation: str
    paths: set[Path]


@dataclass
class Stored:
    """One object and its field managers."""

    body: dict[str, Any]
    managers: list[Manager] = field(default_factory=list)

    def render(self) -> dict[str, Any]:
        """The object as a client sees it."""
        body = copied(self.body)
        body["metadata"]["managedFields"] = [
            {"manager": m.name, "operation": m.operation, "fieldsV1": _fields(m.paths)}
            for m in self.managers
            if m.paths
        ]
        return body


@dataclass(frozen=True)
class Change:
    """One entry of the watch log; ``before`` is the object as of the entry before."""

    version: int
    type: str
    collection: str
    namespace: str
    body: dict[str, Any]
    before: dict[str, Any] | None = None


class Store:
    """Everything the fake server holds. ``finalizers``: deleted objects stay while they have some, as on a real server.
    ``stamp`` gives the creation time of an object that has none; None leaves it out, ``played`` sets the
    wall clock. ``changes`` is the log that watches read, oldest first; ``Stage`` cuts it at its beginning, and a watch
    that is behind what is left gets the status 410.
    """

    def __init__(self) -> None:
        self.finalizers = False
        self.stamp: Callable[[], str] | None = None
        self.version = 100
        self.objects: dict[Key, Stored] = {}
        self.changes: list[Change] = []
        self._told: dict[Key, dict[str, Any]] = {}
        self._uids = 0

    def list_all(self, collection: str, namespace: str) -> list[dict[str, Any]]:
        return [stored.render() for stored in self.find(collection, namespace)]

    def find(self, collection: str, namespace: str) -> list[Stored]:
        """The objects of a collection, in the order of their names. Rendering is left to the caller, who may want a
        page of them.
        """
        there = [key for key in self.objects if key[0] == collection and namespace in ("", key[1])]
        return [self.objects[key] for key in sorted(there)]

    def get(self, key: Key) -> Stored:
        if key not in self.objects:
            raise NotFoundError(f"{key[0]} {key[2]!r} not found", status=404, reason="NotFound")
        return self.objects[key]

    def create(self, key: Key, body: dict[str, Any], manager: str = "test") -> dict[str, Any]:
        if key in self.objects:
            raise ConflictError(f"{key[2]!r} already exists", status=409, reason="AlreadyExists")
        stored = Stored(body=self._birth(key, body))
        stored.managers.append(Manager(manager, "Update", set(_leaves(stored.body))))
        return self._commit(key, stored, "ADDED")

    def update(self, key: Key, body: dict[str, Any], manager: str = "test") -> dict[str, Any]:
        stored = self.get(key)
        meta = body.get("metadata", {})
        _check(stored, meta.get("uid"), meta.get("resourceVersion"))
        fresh = copied(body)
        fresh["metadata"] = meta | {name: stored.body["metadata"][name] for name in ("uid", "name")}
        fresh["metadata"].pop("managedFields", None)
        return self._replace(key, stored, fresh, manager)

    def update_status(self, key: Key, body: dict[str, Any], manager: str = "test") -> dict[str, Any]:
        """Store the status of a custom resource. The metadata is compared all the same: a field that is missing in
        ``body`` stays and has no owner any more, one that differs is ``manager``'s without having changed.
        """
        stored = self.get(key)
        meta = body.get("metadata", {})
        if _is_custom(key) and not meta.get("resourceVersion"):
            message = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise InvalidError(message, status=422, reason="Invalid")
        _check(stored, meta.get("uid"), meta.get("resourceVersion"))
        fresh = {name: part for name, part in stored.body.items() if name != "status"}
        if "status" in body:
            fresh["status"] = copied(body["status"])
        compared = {name: part for name, part in body.items() if name != "spec"}
        return self._replace(key, stored, fresh, manager, compared | {"spec": stored.body.get("spec", {})})

    def merge_patch(self, key: Key, patch: dict[str, Any], manager: str = "test") -> dict[str, Any]:
        stored = self.get(key)
        _check(stored, patch.get("metadata", {}).get("uid"), patch.get("metadata", {}).get("resourceVersion"))
        return self._replace(key, stored, _merge(stored.body, patch), manager)

    def json_patch(self, key: Key, operations: list[dict[str, Any]], manager: str = "test") -> dict[str, Any]:
        stored = self.get(key)
        body = copied(stored.body)
        for operation in operations:
            _patch_one(body, operation)
        return self._replace(key, stored, body, manager)

    def apply(self, key: Key, body: dict[str, Any], manager: str, *, force: bool) -> dict[str, Any]:
        body = _with_conditions(self.objects.get(key), body)
        wanted = set(_leaves(body))
        uid = body.get("metadata", {}).get("uid")
        if key not in self.objects:
            if uid:
                raise ConflictError(f"uid mismatch: {key[2]!r} is not there", status=409, reason="Conflict")
            stored = Stored(body=self._birth(key, body), managers=[Manager(manager, "Apply", wanted)])
            return self._commit(key, stored, "ADDED")
        stored = self.get(key)
        _check(stored, uid, body.get("metadata", {}).get("resourceVersion"))
        before = copied(stored.body)
        _settle_conflicts(stored, body, wanted, manager, force=force)
        mine = next((m for m in stored.managers if (m.name, m.operation) == (manager, "Apply")), None)
        if mine is None:
            mine = Manager(manager, "Apply", set())
            stored.managers.append(mine)
        dropped, mine.paths = mine.paths - wanted, wanted
        for path in wanted:
            _set(stored.body, path, _at(body, path))
        for path in dropped:
            if not any(path in other.paths for other in stored.managers):
                _unset(stored.body, path)
        # As on the real server, an apply that changes nothing writes nothing.
        return stored.render() if stored.body == before else self._commit(key, stored, "MODIFIED")

    def delete(self, key: Key, uid: str | None = None, *, foreground: bool = False) -> None:
        """Delete the object. ``foreground``: it waits for a garbage collector, which is not here."""
        stored = self.get(key)
        _check(stored, uid, None)
        if foreground:
            stored.body["metadata"].setdefault("finalizers", []).append("foregroundDeletion")
        if self.finalizers and stored.body["metadata"].get("finalizers"):
            stored.body["metadata"].setdefault("deletionTimestamp", _DELETED_AT)
            self._log(key, stored, "MODIFIED")
            return
        del self.objects[key]
        self._log(key, stored, "DELETED")

    def since(self, version: int) -> list[Change]:
        """Changes after ``version``; ExpiredError if the log no longer reaches back so far."""
        if self.changes and version < self.changes[0].version - 1:
            raise ExpiredError("too old resource version", status=410, reason="Expired")
        return self.changes[bisect_right(self.changes, version, key=_version) :]

    def compact(self) -> None:
        """Forget the log, so that older watches must list again."""
        self.version += 2  # a version in between that no watch can see any more
        self.changes = [Change(self.version, "COMPACTED", "", "", {})]

    def _birth(self, key: Key, body: dict[str, Any]) -> dict[str, Any]:
        self._uids += 1
        fresh = copied(body)
        meta = fresh.setdefault("metadata", {})
        meta.update(name=key[2], uid=f"uid-{self._uids:04}")
        if self.stamp is not None:
            meta.setdefault("creationTimestamp", self.stamp())
        if key[1]:
            meta["namespace"] = key[1]
        return fresh

    def _replace(
        self, key: Key, stored: Stored, body: dict[str, Any], manager: str, said: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Take a write that is not an apply: the fields that it changes belong to its manager alone afterwards.
        ``said`` are the fields that it asked for, where others are stored.
        """
        said = body if said is None else said
        old, new = set(_leaves(stored.body)), set(_leaves(said))
        changed = {path for path in new if path not in old or _at(said, path) != _at(stored.body, path)}
        for other in stored.managers:
            other.paths -= changed | (old - new)
        mine = next((m for m in stored.managers if (m.name, m.operation) == (manager, "Update")), None)
        if mine is None:
            mine = Manager(manager, "Update", set())
            stored.managers.append(mine)
        mine.paths |= changed
        stored.body = body
        return self._commit(key, stored, "MODIFIED")

    def _commit(self, key: Key, stored: Stored, change: str) -> dict[str, Any]:
        self.objects[key] = stored
        return self._log(key, stored, change)

    def _log(self, key: Key, stored: Stored, change: str) -> dict[str, Any]:
        self.version += 1
        meta = stored.body["metadata"]
        meta["resourceVersion"] = str(self.version)
        if self.finalizers and change == "MODIFIED" and "deletionTimestamp" in meta and not meta.get("finalizers"):
            del self.objects[key]
            change = "DELETED"
        rendered = stored.render()
        before = self._told.pop(key, None)
        self.changes.append(Change(self.version, change, key[0], key[1], rendered, before))
        if change != "DELETED":
            self._told[key] = rendered
        return rendered


def _version(change: Change) -> int:
    return change.version


def _is_custom(key: Key) -> bool:
    """Whether the group is not one of Kubernetes' own: those have no dot, or end in ``.k8s.io`` (as ``kueue.x-k8s.io``
    does not).
    """
    group = key[0].strip("/").split("/")[1]
    return "." in group and not group.endswith(".k8s.io")


def _check(stored: Stored, uid: str | None, version: str | None) -> None:
    meta = stored.body["metadata"]
    if uid is not None and uid != meta["uid"]:
        raise ConflictError(f"Precondition failed: UID in precondition: {uid}", status=409, reason="Conflict")
    if version is not None and version != meta["resourceVersion"]:
        raise ConflictError("the object has been modified", status=409, reason="Conflict")


def _with_conditions(stored: Stored | None, body: dict[str, Any]) -> dict[str, Any]:
    """The body with the conditions that others wrote beside its own: the real server merges these lists by type."""
    own = body.get("status", {}).get("conditions")
    if stored is None or not isinstance(own, list):
        return body
    types = {each["type"] for each in own}
    others = [each for each in stored.body.get("status", {}).get("conditions", ()) if each["type"] not in types]
    return {**body, "status": {**body["status"], "conditions": [*others, *own]}}


def _settle_conflicts(stored: Stored, body: dict[str, Any], wanted: set[Path], manager: str, *, force: bool) -> None:
    for other in stored.managers:
        if (other.name, other.operation) == (manager, "Apply"):
            continue
        taken = {path for path in wanted & other.paths if _at(stored.body, path) != _at(body, path)}
        if taken and not force:
            names = ", ".join(".".join(path) for path in sorted(taken))
            raise ConflictError(f"conflict with {other.name!r}: {names}", status=409, reason="Conflict")
        other.paths -= taken


def _leaves(value: dict[str, Any], prefix: Path = ()) -> list[Path]:
    """The paths of all scalars and lists, without those that the server itself writes. An empty map owns nothing."""
    leaves: list[Path] = []
    for key, item in value.items():
        if not prefix and key in ("apiVersion", "kind"):
            continue
        if prefix == ("metadata",) and key in _SYSTEM:
            continue
        path = (*prefix, key)
        leaves += _leaves(item, path) if isinstance(item, dict) else [path]
    return leaves


def _fields(paths: set[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for part in path:
            node = node.setdefault(f"f:{part}", {})
    return tree


def _at(body: dict[str, Any], path: Path) -> Any:
    value: Any = body
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _set(body: dict[str, Any], path: Path, value: Any) -> None:
    for part in path[:-1]:
        body = body.setdefault(part, {})
    body[path[-1]] = copied(value)


def _unset(body: dict[str, Any], path: Path) -> None:
    for part in path[:-1]:
        body = body.get(part, {})
    body.pop(path[-1], None)


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return copied(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _patch_one(body: dict[str, Any], operation: dict[str, Any]) -> None:
    """Apply one RFC 6902 operation on maps, which may stand in lists: test, add, replace, remove."""
    path = tuple(part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    for place, part in reversed(list(enumerate(path[:-1]))):
        if part.isdigit() and isinstance(found := _at(body, path[:place]), list) and int(part) < len(found):
            body, path = found[int(part)], path[place + 1 :]
            break
    present = path[-1] in (_at(body, path[:-1]) or {})
    match operation["op"]:
        case "test":
            if not present or _at(body, path) != operation["value"]:
                raise InvalidError(f"test of {operation['path']} failed", status=422, reason="Invalid")
        case "add" | "replace":
            _set(body, path, operation["value"])
        case "remove" if present:
            _unset(body, path)
        case _:
            raise InvalidError(f"{operation['op']} {operation['path']} is impossible", status=422, reason="Invalid")
