"""Manifests as text into documents that know their file and number, with warnings for fields that the API lacks.

What a document means is not known here.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import yaml

from controller.simulation.fields import Unknown, unknown_fields

Json = dict[str, Any]

_LOADER: Final[type] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_MERGE: Final = "tag:yaml.org,2002:merge"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_START: Final = 58
"""A generated name has 63 characters at most, as the API server makes them up."""


class InputError(ValueError):
    """A manifest is wrong: one line with file, document, object and field, fit to be shown as it is."""


class Document(msgspec.Struct, frozen=True):
    """One document of a file, counted from 1. Items of a ``List`` carry its number, and the path that leads to them."""

    file: str
    number: int
    data: Json
    path: tuple[str | int, ...] = ()

    def error(self, text: object) -> InputError:
        return InputError(f"{self.file}: document {self.number}: {' '.join(str(text).split())}")

    @property
    def kind(self) -> str:
        return str(self.data.get("kind", ""))

    @property
    def version(self) -> str:
        return str(self.data.get("apiVersion", ""))


class _Loader(_LOADER):  # type: ignore[misc]
    """Times stay text, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in _LOADER.yaml_implicit_resolvers.items()  # type: ignore[attr-defined]
}


def documents(text: str, file: str) -> list[Document]:
    """The documents of a YAML stream (or JSON text), empty ones left out. Raises InputError.

    A name may be left to the API server (``metadata.generateName``), see ``named``.
    """
    found: list[Document] = []
    try:
        for number, data in enumerate(yaml.load_all(text, Loader=_Loader), 1):
            if data is not None:
                found += _flat(Document(file, number, data))
    except yaml.MarkedYAMLError as wrong:
        mark = wrong.problem_mark or wrong.context_mark
        place = f"{file}:{mark.line + 1}" if mark else file
        raise InputError(f"{place}: no YAML: {wrong.problem or wrong.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as wrong:
        if isinstance(wrong, InputError):
            raise
        raise InputError(f"{file}: no YAML: {' '.join(str(wrong).split())[:200]}") from None
    return found


def _flat(document: Document) -> list[Document]:
    """The document itself, or what a ``List`` holds."""
    data = document.data
    if not isinstance(data, dict):
        raise document.error(f"found {type(data).__name__}, expected an object with apiVersion and kind")
    for key in ("apiVersion", "kind"):
        if not isinstance(data.get(key), str):
            raise document.error(f"{key}: found {_shown(data.get(key))}, expected a text")
    if not document.kind.endswith("List") or not isinstance(data.get("items"), list):
        metadata = data.get("metadata")
        if not isinstance(metadata, dict) or not _is_named(metadata):
            raise document.error(f"{document.kind}: metadata.name: expected a name")
        return [document]
    inside = (
        Document(document.file, document.number, item, (*document.path, "items", index))
        for index, item in enumerate(data["items"])
    )
    return [nested for item in inside for nested in _flat(item)]


def _is_named(metadata: Json) -> bool:
    """An empty name is none."""
    said = metadata.get("name") or metadata.get("generateName")
    return isinstance(said, str) and said != ""


def named(found: Iterable[Document]) -> list[Document]:
    """With the names that are left to the API server: their start and five letters or digits, as it makes them up.

    Each time others, and the same for the same files: results can be compared.
    """
    listed = list(found)
    taken = {_place(document, document.data["metadata"].get("name")) for document in listed}
    return [_with_name(document, taken) for document in listed]


def _with_name(document: Document, taken: set[tuple[object, ...]]) -> Document:
    metadata = document.data["metadata"]
    if metadata.get("name"):
        return document
    start = metadata["generateName"][:_LONGEST_START]
    names = (f"{start}{_suffix(f'{document.kind}/{start}/{count}')}" for count in itertools.count())
    name = next(name for name in names if _place(document, name) not in taken)
    taken.add(_place(document, name))
    return Document(
        document.file, document.number, {**document.data, "metadata": {**metadata, "name": name}}, document.path
    )


def _place(document: Document, name: object) -> tuple[object, ...]:
    """What no two objects have in common."""
    return document.version.partition("/")[0], document.kind, document.data["metadata"].get("namespace"), name


def _suffix(of: str) -> str:
    drawn = hashlib.sha256(of.encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in drawn[:5])


def unknown(text: str, found: Iterable[Document]) -> Iterator[str]:
    """A line, fit to be shown, for every field of documents of ``text`` that its kind does not have."""
    for document in found:
        for unknown_field in unknown_fields(document.data):
            line = _line(text, document.number, (*document.path, *unknown_field.path))
            yield f"{document.file}:{line}: {_told(document, unknown_field)}"


def _told(document: Document, one: Unknown) -> str:
    metadata = document.data["metadata"]
    name = str(metadata.get("name") or metadata.get("generateName"))
    return f"{document.kind} {name[:63]}: {one.field}: found an unknown field, expected {one.expected}"


def _line(text: str, number: int, path: Sequence[str | int]) -> int:
    """The line of the key at the end of ``path``: the text is parsed again, since plain data knows no lines."""
    node = next(itertools.islice(yaml.compose_all(text, Loader=_LOADER), number - 1, None))
    line = node.start_mark.line
    for step in path:
        if isinstance(step, int):
            node = node.value[step]
            continue
        pairs = {key.value: (key, value) for key, value in _merged(node)}
        if step not in pairs:
            break
        key, node = pairs[step]
        line = key.start_mark.line
    return int(line) + 1


def _merged(node: Any) -> Iterator[tuple[Any, Any]]:
    """A mapping's keys and values; what its merge keys bring in comes first, as what stands beside them counts."""
    for key, value in node.value:
        if key.tag == _MERGE:
            for child in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
                yield from _merged(child)
    yield from (pair for pair in node.value if pair[0].tag != _MERGE)


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]
