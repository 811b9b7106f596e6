"""The fields of the kinds that a simulation reads: a field that the API lacks is most often a misspelt one."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

TABLE: Final = Path(__file__).with_name("fields.json")
"""Written by ``python -m hack.crds``, which describes it."""

_SHOWN: Final = 12
"""Up to so many known names are listed in full where none is similar."""
_MAP: Final = "{}"

Path_ = tuple[str | int, ...]


class Unknown(msgspec.Struct, frozen=True):
    """A field that does not exist. ``path`` leads to it, by keys and indices; ``known`` are those that do."""

    path: Path_
    known: tuple[str, ...]

    @property
    def field(self) -> str:
        """As messages name it: ``spec.resourceGroups[0].flavours``."""
        words = (f"[{part}]" if isinstance(part, int) else f".{part}"[:61] for part in self.path)
        return "".join(words).removeprefix(".")

    @property
    def expected(self) -> str:
        import difflib  # for mistakes alone

        lowered = {name.lower(): name for name in self.known}
        near = difflib.get_close_matches(str(self.path[-1])[:60].lower(), lowered, n=1)
        if near:
            return lowered[near[0]]
        if len(self.known) <= _SHOWN:
            return f"one of {', '.join(sorted(self.known))}"
        return f"one of the {len(self.known)} fields that the API has here"


class _Table(msgspec.Struct):
    kinds: dict[str, str]
    types: dict[str, dict[str, str]]


def unknown_fields(data: Mapping[str, Any]) -> Iterator[Unknown]:
    """The unknown fields of an object, in its own order; none where its kind is not in the table."""
    root = _table().kinds.get(f"{data.get('apiVersion')} {data.get('kind')}")
    if root is not None:
        yield from _below(data, root, ())


@cache
def _table() -> _Table:
    return msgspec.json.decode(TABLE.read_bytes(), type=_Table)


def _below(value: Any, type_: str, path: Path_) -> Iterator[Unknown]:
    """A ``value`` of another shape than its type, such as a list in a list, is left to the decoder."""
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
        elif inner:
            yield from _below(item, inner, (*path, key))
