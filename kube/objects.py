"""The few parts of every object that callers read, as structs; unknown fields are skipped when decoding."""

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field


class OwnerReference(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The owner of the object: garbage collection removes it with its owner. ``uid`` identifies it."""

    api_version: str
    kind: str
    name: str
    uid: str


class ManagedFieldsEntry(Struct, frozen=True, rename="camel"):
    """The fields that one manager owns; ``fields`` is the FieldsV1 tree (``f:metadata`` -> ``f:labels`` -> ...)."""

    manager: str = ""
    operation: str = ""
    fields: dict[str, Any] = field(default_factory=dict, name="fieldsV1")


class ObjectMeta(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The metadata that every object has. Absent lists and maps read as empty."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class Metadata(Struct, frozen=True):
    """Any object, reduced to its metadata."""

    metadata: ObjectMeta = ObjectMeta()


class HeadMeta(Struct, frozen=True, rename="camel"):
    """The metadata by which an object is told from others, and from its own earlier states."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Head(Struct, frozen=True):
    """Any object, reduced to what it is: for lists and watches of many, of which nothing else is decoded."""

    metadata: HeadMeta = HeadMeta()


class ObjectReference(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object that an Event regards."""

    api_version: str
    kind: str
    name: str
    uid: str = ""
    namespace: str = ""


def label_managers(meta: ObjectMeta, key: str) -> tuple[str, ...]:
    """The names of the managers that own label ``key``, sorted."""
    return _managers(meta, "f:labels", key)


def annotation_managers(meta: ObjectMeta, key: str) -> tuple[str, ...]:
    """The names of the managers that own annotation ``key``, sorted."""
    return _managers(meta, "f:annotations", key)


def _managers(meta: ObjectMeta, part: str, key: str) -> tuple[str, ...]:
    owners = {
        entry.manager for entry in meta.managed_fields if f"f:{key}" in entry.fields.get("f:metadata", {}).get(part, {})
    }
    return tuple(sorted(owners))


def timestamp(wall_s: float) -> str:
    """``wall_s`` (seconds since 1970) as the API writes a Time (metav1): RFC 3339, in UTC, whole seconds."""
    return datetime.fromtimestamp(int(wall_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
