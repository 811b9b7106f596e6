"""Edits JSON without changing the argument: every object and list on the way is copied before it is changed.

``null`` reads as absent, as it does for the API server. A value of another type than the schema's is a ConversionError
that names the field.
"""

from typing import Any, Final

Json = dict[str, Any]

_NAMES: Final = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


class ConversionError(ValueError):
    """The object cannot be converted: one line that names the field, what was found and what was expected."""


def kind_of(value: Any) -> str:
    """JSON's name for the type of ``value``."""
    return _NAMES.get(type(value), "null")


def child(parent: Json, key: str, path: str) -> Json | None:
    """A copy of the object ``parent[key]``, which replaces it there; None if there is none. ``parent`` is the caller's
    own.
    """
    value = parent.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ConversionError(f"{path}.{key}: found {kind_of(value)}, expected object")
    parent[key] = fresh = dict(value)
    return fresh


def children(parent: Json, key: str, path: str) -> list[Json]:
    """Copies of the objects in the list ``parent[key]``, which replace them there; empty if there is no list."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConversionError(f"{path}.{key}: found {kind_of(value)}, expected array")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise ConversionError(f"{path}.{key}[{index}]: found {kind_of(item)}, expected object")
    parent[key] = fresh = [dict(item) for item in value]
    return fresh


def text(parent: Json, key: str, path: str) -> str:
    """The string ``parent[key]``, empty if there is none."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConversionError(f"{path}.{key}: found {kind_of(value)}, expected string")
    return value


def texts(parent: Json, key: str, path: str) -> list[str]:
    """The list of strings ``parent[key]``, empty if there is none."""
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConversionError(f"{path}.{key}: expected an array of strings")
    return value


def drop(parent: Json | None, *keys: str) -> None:
    """Removes these fields."""
    if parent is not None:
        for key in keys:
            parent.pop(key, None)


def rename(parent: Json | None, old: str, new: str) -> None:
    """Renames ``old`` to ``new``. An existing ``new`` is no field of the object's version: it is dropped."""
    if parent is None:
        return
    parent.pop(new, None)
    if (value := parent.pop(old, None)) is not None:
        parent[new] = value
