"""Manifests as text into documents that know where they came from. Nothing here knows what a document means."""

from typing import Any, Final

import msgspec
import yaml

Json = dict[str, Any]

_LOADER: Final[type] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class InputError(ValueError):
    """A manifest is wrong: one line with file, document, object and field, fit to be shown as it is."""


class Document(msgspec.Struct, frozen=True):
    """One document of a file, counted from 1. Items of a ``List`` carry the number of their list."""

    file: str
    number: int
    data: Json

    def error(self, text: object) -> InputError:
        return InputError(f"{self.file}: document {self.number}: {text}")

    @property
    def kind(self) -> str:
        return str(self.data.get("kind", ""))

    @property
    def version(self) -> str:
        return str(self.data.get("apiVersion", ""))


class _Loader(_LOADER):  # type: ignore[misc]
    """Times stay the text they are in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in _LOADER.yaml_implicit_resolvers.items()  # type: ignore[attr-defined]
}


def documents(text: str, file: str) -> list[Document]:
    """The documents of a YAML stream (or JSON text), empty ones left out. Raises InputError."""
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
        if not isinstance(data.get("metadata"), dict) or not isinstance(data["metadata"].get("name"), str):
            raise document.error(f"{document.kind}: metadata.name: expected a name")
        return [document]
    items = data["items"]
    return [one for item in items for one in _flat(Document(document.file, document.number, item))]


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]
