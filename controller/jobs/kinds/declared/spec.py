"""JobKind objects read from JSON: each as a whole, or refused in one sentence with field, value found and value
expected.

The API server has checked the objects that it stores. Files for simulations have passed no API server, and a CRD of
another version may accept more: nothing here trusts either.
"""

import re
from typing import Any, Final

import msgspec

from controller.jobs.framework.raw import Json, shown
from controller.jobs.kinds.declared.rules import broken
from controller.objects.meta import Struct
from inventory.api.jobkind import SHAPES, SpecFields

_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$(?:\.(?P<path>.*))?`)?$", re.DOTALL)
_EXPECTED: Final = re.compile(r"Expected (?P<wanted>.*), got (?P<found>.*)", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MAX_DEPTH: Final = 20


class JobKindError(ValueError):
    """The JobKind cannot be used: one sentence that begins with the field's path."""


class Declaration(Struct, frozen=True, kw_only=True):
    """A JobKind that can be read. ``created``: the time that the API server wrote; older ones sort first."""

    name: str
    spec: SpecFields
    created: str = ""
    leaving: bool = False


def read(given: Json) -> Declaration:
    """The JobKind in an object. Raises JobKindError."""
    metadata = given.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(name := metadata.get("name"), str):
        raise JobKindError("metadata.name: expected PLURAL.GROUP, found none")
    spec = _spec(_without_nulls(given.get("spec"), _MAX_DEPTH))
    problem = next(broken(spec), None)
    if problem is not None:
        raise JobKindError(problem)
    wanted = f"{spec.plural}.{spec.group}"
    if name != wanted:
        raise JobKindError(f"metadata.name: expected {wanted}, found {shown(name)}")
    created = metadata.get("creationTimestamp")
    return Declaration(
        name=name,
        spec=spec,
        created=created if isinstance(created, str) else "",
        leaving=bool(metadata.get("deletionTimestamp")),
    )


def _spec(given: Any) -> SpecFields:
    if not isinstance(given, dict):
        raise JobKindError(f"spec: expected an object, found {'none' if given is None else type(given).__name__}")
    try:
        return msgspec.convert(given, SpecFields)
    except (msgspec.ValidationError, OverflowError) as error:
        raise JobKindError(_sentence(str(error), given)) from None


def _sentence(error: str, given: Json) -> str:
    split = _AT.match(" ".join(error.split()))
    assert split is not None
    path = f"spec.{split['path']}" if split["path"] else "spec"
    if missing := _MISSING.match(split["what"]):
        return f"{path}.{missing['name']}: expected a value, found none"
    if unknown := _UNKNOWN.match(split["what"]):
        return f"{path}.{shown(unknown['name'])[1:-1]}: expected no such field, found one"
    if wrong := _EXPECTED.match(split["what"]):
        return f"{path}: expected {wrong['wanted']}, found {wrong['found']}".replace("`", "")
    found = _at(given, split["path"] or "")
    what = split["what"].removeprefix("Expected ").replace("`str`", "a string").replace("`int`", "a number")
    what = next((words for pattern, words in SHAPES.items() if repr(pattern) in what), what).replace("`", "")
    return f"{path}: expected {what}, found {shown(found)}"[:500]


def _at(value: Any, path: str) -> Any:
    """The value at the path in the library's error; None for keys of maps, which the path does not name."""
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


def _without_nulls(value: Any, depth: int) -> Any:
    """The value without nulls, which the API server reads as absent."""
    if depth == 0:
        raise JobKindError(f"spec: expected at most {_MAX_DEPTH} levels, found more")
    if isinstance(value, dict):
        return {key: _without_nulls(item, depth - 1) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item, depth - 1) for item in value]
    return value
