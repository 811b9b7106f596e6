"""The objects that a reflector has, by name."""

from collections.abc import Iterator
from sys import intern
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import Struct

T = TypeVar("T")


class ObjectKey(NamedTuple):
    """An object's name; ``namespace`` is empty for cluster-scoped kinds."""

    namespace: str
    name: str


class CachedObject(Struct, Generic[T], frozen=True, gc=False):
    """One object as it was last understood. Another ``uid`` under the same key is another object. ``gc=False``: made
    for each answer, in 42 ns in place of 76.
    """

    object: T
    uid: str
    resource_version: str


def own_metadata(made: Any) -> Any:
    """The object's own metadata, if they are whole: with ``namespace``, ``name``, ``uid`` and ``resource_version``, so
    that they need not be kept beside it. None for an object that keeps less.
    """
    try:
        own = made.metadata
        is_whole = own.name and own.uid and own.resource_version
    except AttributeError:
        return None
    return own if is_whole else None


class Entries(Generic[T]):
    """A map from ObjectKey to CachedObject. Both are made anew for each answer: kept, they would take 112 bytes an
    object.

    ``_kept`` has objects by ``namespace/name``, a text that is interned since a listener may keep the object by it too.
    An object whose own metadata say the same as its CachedObject stands for it.
    """

    def __init__(self) -> None:
        self._kept: dict[str, T | CachedObject[T]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[ObjectKey]:
        return map(_key, self._kept)

    def objects(self) -> Iterator[T]:
        """The objects, in no order."""
        return (kept.object if isinstance(kept, CachedObject) else kept for kept in self._kept.values())

    def get(self, key: ObjectKey) -> CachedObject[T] | None:
        kept = self._kept.get("/".join(key))
        return None if kept is None else _entry(kept)

    def put(self, key: ObjectKey, entry: CachedObject[T]) -> None:
        own = own_metadata(entry.object)
        is_told = own is not None and (own.uid, own.resource_version) == (entry.uid, entry.resource_version)
        self._kept[intern("/".join(key))] = entry.object if is_told else entry

    def pop(self, key: ObjectKey) -> CachedObject[T] | None:
        """Remove the entry and return it; None where there is none."""
        kept = self._kept.pop("/".join(key), None)
        return None if kept is None else _entry(kept)


def _key(text: str) -> ObjectKey:
    """The key in ``namespace/name``. Names and namespaces have no slash: they are parts of paths."""
    namespace, _, name = text.partition("/")
    return ObjectKey(namespace, name)


def _entry(kept: T | CachedObject[T]) -> CachedObject[T]:
    if isinstance(kept, CachedObject):
        return kept
    own = cast("Any", kept).metadata
    return CachedObject(kept, own.uid, own.resource_version)
