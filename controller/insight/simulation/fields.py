"""The fields of the kinds that a simulation reads, and their types: a field that the API lacks is most often a misspelt
one.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from controller.insight.simulation.problems import field, nearest
from controller.insight.simulation.sources import Path_

TABLE: Final = Path(__file__).with_name("fields.json")
"""Written by ``python -m hack.crds``, which describes it."""

REQUIREMENTS: Final = "io.k8s.api.core.v1.ResourceRequirements"
POD_SPEC: Final = "io.k8s.api.core.v1.PodSpec"
"""Types of the table whose values are checked by more than their type."""

_SHOWN: Final = 12
"""The number of known names up to which all are listed if none is similar."""
_MAP: Final = "{}"
_LIST: Final = "[]"
_SCALAR: Final = "#"


class Unknown(msgspec.Struct, frozen=True):
    """A field that does not exist. ``path`` leads to it, by keys and indices; ``known`` are the fields that do
    exist.
    """

    path: Path_
    known: tuple[str, ...]

    @property
    def field(self) -> str:
        """The field as messages name it: ``spec.resourceGroups[0].flavours``."""
        return field(self.path)

    @property
    def expected(self) -> str:
        near = nearest(str(self.path[-1]), self.known)
        if near:
            return near
        if len(self.known) <= _SHOWN:
            return f"one of {', '.join(sorted(self.known))}"
        return f"one of the {len(self.known)} fields that the API has here"


class _Table(msgspec.Struct):
    kinds: dict[str, str]
    types: dict[str, dict[str, str]]


def typed(data: Mapping[str, Any]) -> Iterator[tuple[Path_, str, Any]]:
    """Every value of an object whose type is known, with its path and type: a name, or ``#string`` and the like of each
    scalar, also of values in lists and maps. Nulls are left out; nothing is yielded for a kind that is not in the
    table.
    """
    root = _table().kinds.get(f"{data.get('apiVersion')} {data.get('kind')}")
    if root is not None:
        yield from _values(data, root, ())


def _values(value: Any, type_: str, path: Path_) -> Iterator[tuple[Path_, str, Any]]:
    """The typed values below a value. If it is no map, or no list, where one is expected, it is yielded with ``{}`` or
    ``[]`` as its type.
    """
    if value is None or not type_:
        return
    if type_.startswith(_MAP):
        if not isinstance(value, dict):
            yield path, _MAP, value
            return
        for key, item in value.items():
            yield from _values(item, type_.removeprefix(_MAP), (*path, str(key)))
    elif type_.startswith(_LIST):
        if not isinstance(value, list):
            yield path, _LIST, value
            return
        for index, item in enumerate(value):
            yield from _values(item, type_.removeprefix(_LIST), (*path, index))
    elif type_.startswith(_SCALAR):
        yield path, type_, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from () if isinstance(item, list) else _values(item, type_, (*path, index))
    else:
        yield path, type_, value
        fields = _table().types[type_]
        for key, item in value.items() if isinstance(value, dict) else ():
            yield from _values(item, fields.get(key, ""), (*path, str(key)))


def is_known(version: str, kind: str) -> bool:
    """Whether the table has the kind."""
    return f"{version} {kind}" in _table().kinds


def unknown_fields(data: Mapping[str, Any]) -> Iterator[Unknown]:
    """The unknown fields of an object, in its own order; none where its kind is not in the table."""
    root = _table().kinds.get(f"{data.get('apiVersion')} {data.get('kind')}")
    if root is not None:
        yield from _below(data, root, ())


@cache
def _table() -> _Table:
    """The table, read once: decoding it takes 2 ms, and a file of manifests asks it about every object."""
    return msgspec.json.decode(TABLE.read_bytes(), type=_Table)


def _below(value: Any, type_: str, path: Path_) -> Iterator[Unknown]:
    """The unknown fields below a value. A ``value`` of another shape than its type, such as a list in a list, is left
    to the decoder.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield from _below(item, type_, (*path, index))
    if not isinstance(value, dict):
        return
    if type_.startswith(_MAP):
        for key, item in value.items():
            yield from _below(item, type_.removeprefix(_MAP), (*path, str(key)))
        return
    fields = _table().types[type_]
    for key, item in value.items():
        inner = fields.get(key)
        if inner is None:
            yield Unknown((*path, str(key)), tuple(fields))
        elif inner and _SCALAR not in inner:
            yield from _below(item, inner, (*path, key))
