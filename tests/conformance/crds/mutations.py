"""Systematic slips in an object, found by walking its schema: each value dropped, emptied, of another type, too long,
negative, misspelt or repeated, each absent field added, each unknown one too."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

Schema = dict[str, Any]
Change = tuple[str, Any]
"""What was done and where, and the changed value."""

_MOST_COPIES: Final = 100
_LONGEST: Final = 2000
_QUANTITIES: Final = (0, -1, "-1", "1.5", "1n", "500m", "abc", "", 1.5, True, "1e3", "8Gi")


def slips(schema: Schema, given: dict[str, Any]) -> Iterator[Change]:
    """Every slip in what a user writes of an object: all but its name, kind and status."""
    for key in [key for key in given if key not in ("apiVersion", "kind", "metadata", "status")]:
        rest = {name: value for name, value in given.items() if name != key}
        yield f"{key} dropped", rest
        for what, value in changes(schema["properties"][key], given[key], key):
            yield what, {**rest, key: value}


def changes(schema: Schema, value: Any, path: str = "") -> Iterator[Change]:
    """Every slip in ``value``, one at a time."""
    if isinstance(value, dict):
        yield from _object(schema, value, path)
    elif isinstance(value, list):
        yield from _list(schema, value, path)
    elif schema.get("x-kubernetes-int-or-string"):
        yield from ((f"{path}={other!r}", other) for other in _QUANTITIES)
    elif isinstance(value, bool):
        yield f"{path} as text", "yes"
        yield f"{path} turned", not value
    elif isinstance(value, int):
        yield from ((f"{path}={other!r}", other) for other in (0, -1, 1, 2**31 - 1, 2**31, 2**63, "x", 1.5))
    elif isinstance(value, str):
        yield from _text(schema, path)


def _object(schema: Schema, value: dict[str, Any], path: str) -> Iterator[Change]:
    properties = schema.get("properties", {})
    loose = schema.get("additionalProperties")
    for key, inner in value.items():
        rest = {name: other for name, other in value.items() if name != key}
        yield f"{path}.{key} dropped", rest
        yield f"{path}.{key} null", {**value, key: None}
        yield f"{path}.{key} of another type", {**value, key: "x" if isinstance(inner, dict | list) else {}}
        below = properties.get(key, loose if isinstance(loose, dict) else {})
        for what, changed in changes(below, inner, f"{path}.{key}"):
            yield what, {**value, key: changed}
    for key, below in properties.items():
        if key not in value:
            yield f"{path}.{key} added", {**value, key: sample(below)}
    if properties:
        yield f"{path}.unknownField added", {**value, "unknownField": "x"}
    if isinstance(loose, dict):
        yield f"{path} with 20 more keys", {**value, **{f"key-{n}": sample(loose) for n in range(20)}}
    yield f"{path} emptied", {}


def _list(schema: Schema, value: list[Any], path: str) -> Iterator[Change]:
    below = schema.get("items", {})
    yield f"{path} emptied", []
    yield f"{path} of another type", {}
    if not value:
        return
    yield f"{path}[-1] twice", [*value, deepcopy(value[-1])]
    yield f"{path}[0] removed", value[1:]
    if (most := schema.get("maxItems", _MOST_COPIES)) < _MOST_COPIES:
        yield f"{path} at most long", _copies(schema, value, most)
        yield f"{path} too long", _copies(schema, value, most + 1)
    for what, changed in changes(below, value[0], f"{path}[0]"):
        yield what, [changed, *value[1:]]


def _copies(schema: Schema, value: list[Any], count: int) -> list[Any]:
    """``count`` items, distinct by the list's keys."""
    made = [deepcopy(value[index % len(value)]) for index in range(count)]
    for index, item in enumerate(made):
        if isinstance(item, str):
            made[index] = f"{item}-{index}"
        elif isinstance(item, dict):
            for key in schema.get("x-kubernetes-list-map-keys", ()):
                item[key] = f"x-{index}"
    return made


def _text(schema: Schema, path: str) -> Iterator[Change]:
    yield f"{path} as a number", 7
    for other in schema.get("enum", ()):
        yield f"{path}={other!r}", other
    for other in ("", "Bad_Name!", "nonsense", "a.b", "a/b", "A", "-a"):
        yield f"{path}={other!r}", other
    longest = schema.get("maxLength", _LONGEST)
    if longest < _LONGEST:
        yield f"{path} at most long", "a" * longest
        yield f"{path} too long", "a" * (longest + 1)


def sample(schema: Schema) -> Any:
    """The least that fits a schema."""
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    match schema.get("type"):
        case "object":
            needed = schema.get("required", ())
            return {key: sample(schema["properties"][key]) for key in needed}
        case "array":
            return [sample(schema["items"])] if schema.get("minItems") else []
        case "integer":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
    if schema.get("format") == "date-time":
        return "2025-01-01T00:00:00Z"
    return "a" * max(1, schema.get("minLength", 1))
