"""What the API server does with an object by its CRD: defaults, pruning, types and bounds, and the rules in CEL."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from jsonschema import Draft202012Validator

from tests.conformance.crds import crdfiles
from tests.support.controller.celpolicies import evaluated

Json = dict[str, Any]
Path = tuple[str | int, ...]

_ZEROS: Final[dict[str, Any]] = {"string": "", "array": [], "object": {}, "integer": 0, "number": 0, "boolean": False}


class Refusal(NamedTuple):
    field: str
    sentence: str
    of_bounds: bool = False
    """The sentence is jsonschema's, where a server has its own."""
    of_a_gap: bool = False
    """The value is required and was left out: no API server lets that through to a webhook, Kueue's neither."""


class Whole(NamedTuple):
    """An object as the API server has it, with the zero value of its type for each gap: what is required and absent."""

    value: Json
    gaps: frozenset[Path]


@cache
def schema(kind: str) -> Json:
    found: Json = _for_python(crdfiles.schema(crdfiles.ours(kind), "v1beta2"))
    return found


def _for_python(node: Any) -> Any:
    """Go's place for the flag of a pattern is not Python's."""
    if isinstance(node, dict):
        return {key: _for_python(below) for key, below in node.items()}
    if isinstance(node, list):
        return [_for_python(below) for below in node]
    return node.replace("^(?i)", "(?i)^") if isinstance(node, str) else node


def whole(kind: str, given: Json) -> Whole:
    gaps: set[Path] = set()
    parts: Json = {key: value for key, value in schema(kind).items() if key != "required"}
    value = _completed(parts, given, (), gaps)
    return Whole({**value, "metadata": given.get("metadata") or {}}, frozenset(gaps))


def _completed(node: Json, value: Any, path: Path, gaps: set[Path]) -> Any:
    if isinstance(value, list):
        return [_completed(node.get("items", {}), item, (*path, at), gaps) for at, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if "properties" not in node:
        below = node.get("additionalProperties") or {}
        return {key: _completed(below, item, (*path, key), gaps) for key, item in value.items() if item is not None}
    return _completed_parts(node, value, path, gaps)


def _completed_parts(node: Json, value: Json, path: Path, gaps: set[Path]) -> Json:
    made: Json = {}
    for key, below in node["properties"].items():
        found = value.get(key)
        if found is None or (found == "" and below.get("type") == "string"):
            if "default" in below:
                found = below["default"]
            elif key in node.get("required", ()):
                gaps.add((*path, key))
                found = _zero(below)
            else:
                continue
        made[key] = _completed(below, found, (*path, key), gaps)
    return made


def _zero(node: Json) -> Any:
    return "0" if node.get("x-kubernetes-int-or-string") else _ZEROS[node["type"]]


def refusals(kind: str, new: Whole, old: Whole | None) -> list[Refusal]:
    """A value that lies there as it was may stay, whatever is wrong with it."""
    found = list(_bounds(kind, new, old))
    before = None if old is None else old.value
    firm = any(not one.of_a_gap for one in found)
    return found if firm else found + list(_rules(schema(kind), new.value, before, ()))


def _bounds(kind: str, new: Whole, old: Whole | None) -> Iterator[Refusal]:
    for error in Draft202012Validator(schema(kind)).iter_errors(new.value):
        path: Path = tuple(error.absolute_path)
        if old is None or _at(old.value, path) != _at(new.value, path):
            of_a_gap = any(path[: len(gap)] == gap for gap in new.gaps)
            yield Refusal(_spelled(path), error.message, of_bounds=True, of_a_gap=of_a_gap)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _spelled(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _rules(node: Json, value: Any, old: Any, path: Path) -> Iterator[Refusal]:
    """Of this value and all below it. Rules about a change are asked where there is a value before."""
    if value == old and old is not None:
        return
    for rule in node.get("x-kubernetes-validations", ()):
        of_a_change = "oldSelf" in rule["rule"]
        if (not of_a_change or old is not None) and not evaluated(rule["rule"], {"self": value, "oldSelf": old}):
            yield Refusal(_spelled(path) + rule.get("fieldPath", ""), rule["message"])
    if isinstance(value, dict):
        for key, item in value.items():
            below = node.get("properties", {}).get(key) or node.get("additionalProperties") or {}
            yield from _rules(below, item, old.get(key) if isinstance(old, dict) else None, (*path, key))
    if isinstance(value, list):
        yield from _items(node, value, old, path)


def _items(node: Json, value: list[Any], old: Any, path: Path) -> Iterator[Refusal]:
    keys = node.get("x-kubernetes-list-map-keys")
    named = [_key(item, keys) for item in value]
    if (keys or node.get("x-kubernetes-list-type") == "set") and len(set(named)) < len(named):
        yield Refusal(_spelled(path), "an item appears twice", of_bounds=True)
    before = {_key(item, keys): item for item in old or ()} if keys else {}
    for at, item in enumerate(value):
        yield from _rules(node["items"], item, before.get(named[at]), (*path, at))


def _key(item: Any, keys: list[str] | None) -> Any:
    return tuple(item.get(key) for key in keys) if keys else repr(item)
