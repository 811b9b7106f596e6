"""Parses manifests into documents that know their file and lines, with a line for whatever an API server refuses.

This module does not know what a document means to the engine.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import yaml

from controller.insight.simulation.fields import is_known, unknown_fields
from controller.insight.simulation.problems import field, path_first, shown, steps
from controller.insight.simulation.sources import Path_, Source
from controller.insight.simulation.values import Wrong, wrong_values
from controller.jobs.framework.names import is_label_name, is_object_name
from yamlfile.levels import LOADER, deeply_nested, too_deep
from yamlfile.words import Placed, not_yaml

Json = dict[str, Any]

_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LARGEST_WHOLE: Final = 1e21
"""The whole number from which a JSON writer in Go uses exponents."""
_LONGEST_START: Final = 58
"""Characters of ``generateName`` that are kept: a generated name has 63 at most, as the API server makes names up."""


class InputError(ValueError):
    """Manifests are wrong: a line for each problem, with file, line, object and field, fit to be shown as it is."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> "InputError":
        """The error of several problems: each line once, in their order."""
        return cls("\n".join(dict.fromkeys(lines)))

    @property
    def lines(self) -> list[str]:
        return str(self).splitlines()


class Document(msgspec.Struct, frozen=True):
    """One document of a file, counted from 1. Items of a ``List`` carry its number, and the path that leads to them.

    ``source``: the file's text, where lines are searched. None: the document was made without a text, and problems name
    its number.
    """

    file: str
    number: int
    data: Json
    path: Path_ = ()
    source: Source | None = None

    def having(self, data: Json) -> "Document":
        """Another object that was made of the one in the file, at the same place."""
        return Document(self.file, self.number, data, self.path, self.source)

    def place(self, path: Path_ = ()) -> str:
        """The ``FILE:LINE`` of a field."""
        if self.source is None:
            return f"{self.file}: document {self.number}"
        return f"{self.file}:{self.source.line(self.number, (*self.path, *path))}"

    def told(self, path: Path_, sentence: str) -> str:
        """The line of a problem with a field. ``sentence``: ``found X, expected Y. NEXT STEP``."""
        return f"{self.place(path)}: {self.subject}{field(path)}: {sentence}"

    def error(self, text: object) -> InputError:
        """The error of a sentence. ``text`` may hold the path of a field, between colons."""
        said = path_first(" ".join(str(text).split()))
        return InputError(f"{self.place(self._path_in(said))}: {said}")

    @property
    def subject(self) -> str:
        """``KIND NAME: ``, as far as they are known."""
        metadata = self.data.get("metadata")
        found = metadata if isinstance(metadata, dict) else {}
        name = found.get("name") or found.get("generateName")
        # Both are as somebody wrote them: a line break in one would be another line.
        words = [
            "".join(char if char.isprintable() else "?" for char in str(each)[:63])
            for each in (self.kind, name)
            if each
        ]
        return f"{' '.join(words)}: " if words else ""

    @property
    def kind(self) -> str:
        return str(self.data.get("kind", ""))

    @property
    def version(self) -> str:
        return str(self.data.get("apiVersion", ""))

    @property
    def group(self) -> str:
        """The API group; empty for Kubernetes' core."""
        return group_of(self.version)

    @property
    def key(self) -> str:
        """``NAMESPACE/NAME``, as workloads are named."""
        metadata = self.data["metadata"]
        return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"

    def _path_in(self, text: str) -> Path_:
        """The first path of the object that a sentence names; empty if there is none."""
        for part in text.split(": "):
            found = steps(part) if " " not in part else ()
            if found and found[0] in self.data:
                return found
        return ()


def group_of(version: str) -> str:
    """The group of an ``apiVersion``; empty for Kubernetes' core."""
    group, slash, _ = version.partition("/")
    return group if slash else ""


class Reading(msgspec.Struct, frozen=True):
    """What a text holds: its ``documents``, and a line for each problem of the text and of their shape."""

    documents: list[Document]
    errors: list[str]
    warnings: list[str]


class _Loader(Placed, LOADER):  # type: ignore[misc]
    """A YAML loader that keeps times as text, as in JSON, and reads ``2.0`` as 2, as kubectl's JSON has it.

    ``has_repeated``: whether a key stands twice in one mapping.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.has_repeated = False

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        self.has_repeated |= len({key.value for key in keys}) < len(keys)
        return super().construct_mapping(node, deep)


def _number(loader: Any, node: Any) -> int | float:
    value: float = loader.construct_yaml_float(node)
    return int(value) if abs(value) < _LARGEST_WHOLE and value.is_integer() else value


_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in LOADER.yaml_implicit_resolvers.items()  # type: ignore[attr-defined]
}


def documents(text: str, file: str) -> list[Document]:
    """The documents of a YAML stream (or JSON text), empty ones left out. Raises InputError with all problems.

    A name may be left to the API server (``metadata.generateName``), see ``named``.
    """
    found = read(text, file)
    if found.errors:
        raise InputError.of(found.errors)
    return found.documents


def read(text: str, file: str, *, is_bare: bool = False) -> Reading:
    """The documents of a text and its problems: documents without a problem are read in spite of the others.

    ``is_bare``: a mapping need not be an object of the API, so that configuration files are documents too.
    """
    reading = Reading([], [], [])
    if (line := too_deep(text)) is not None:
        reading.errors.append(f"{file}:{line}: {deeply_nested()}")
        return reading
    source = Source(text)
    try:
        loader = _Loader(text)
        try:
            for number in itertools.count(1):
                if not loader.check_data():
                    break
                data = loader.get_data()
                if data is not None:
                    _sort_in(Document(file, number, data, (), source), reading, is_bare=is_bare)
        finally:
            loader.dispose()
        if loader.has_repeated:
            reading.warnings.extend(_told_twice(file, *each) for each in _repeated(text))
    except yaml.YAMLError as wrong:
        reading.errors.append(not_yaml(text, wrong).told(file))
    return reading


def _repeated(text: str) -> Iterator[tuple[Path_, int, int]]:
    """Keys that stand twice in one mapping: the path, and the lines of the one before and of this."""
    left: list[tuple[yaml.Node, Path_]] = [(node, ()) for node in yaml.compose_all(text, Loader=LOADER) if node]
    seen = set[int]()
    left.reverse()
    while left:
        node, path = left.pop()
        if id(node) in seen:  # what an alias leads to
            continue
        seen.add(id(node))
        inside: list[tuple[yaml.Node, Path_]] = []
        if isinstance(node, yaml.SequenceNode):
            inside = [(each, (*path, index)) for index, each in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            first: dict[str, int] = {}
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                line, where = key.start_mark.line + 1, (*path, str(key.value)[:63])
                if key.value in first:
                    yield where, first[key.value], line
                first.setdefault(key.value, line)
                inside.append((value, where))
        left.extend(reversed(inside))


def _told_twice(file: str, path: Path_, first: int, line: int) -> str:
    sentence = f"found it a second time, expected it once: the first, in line {first}, does not count"
    return f"{file}:{line}: warning: {field(path)}: {sentence}. Take one of them away"


def _sort_in(document: Document, found: Reading, *, is_bare: bool = False) -> None:
    """Adds the document, or the items of a ``List``, to the documents, or the problem of its shape to the errors."""
    data: Any = document.data
    if not isinstance(data, dict):
        sentence = f"found {shown(data)}, expected an object with apiVersion, kind and metadata"
        found.errors.append(f"{document.place()}: {sentence}. Correct it")
        return
    is_list = document.kind.endswith("List") and isinstance(data.get("items"), list)
    if is_bare and not is_list and not {"apiVersion", "kind", "metadata"} <= set(data):
        found.documents.append(document)
        return
    wrong = [key for key in ("apiVersion", "kind") if not isinstance(data.get(key), str)]
    for key in wrong:
        sample = "an API version such as batch/v1" if key == "apiVersion" else "a kind such as Job"
        found.errors.append(document.told((key,), f"found {shown(data.get(key))}, expected {sample}. Write it"))
    if wrong:
        return
    if is_list:
        for index, item in enumerate(data["items"]):
            path = (*document.path, "items", index)
            _sort_in(Document(document.file, document.number, item, path, document.source), found, is_bare=is_bare)
        return
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and _is_named(metadata):
        found.documents.append(document)
        return
    name = metadata.get("name") if isinstance(metadata, dict) else None
    found.errors.append(document.told(("metadata", "name"), f"found {shown(name)}, expected a name. Write it"))


def _is_named(metadata: Json) -> bool:
    """Whether the object has a name, or the start of one. An empty name is none."""
    said = metadata.get("name") or metadata.get("generateName")
    return isinstance(said, str) and said != ""


def named(found: Iterable[Document]) -> list[Document]:
    """The documents with the names that are left to the API server filled in: the start and five letters or digits.

    Names differ within one run, and are the same for the same files, so that results can be compared.
    """
    listed = list(found)
    taken = {_place(document, document.data["metadata"].get("name")) for document in listed}
    return [_with_name(document, taken) for document in listed]


def _with_name(document: Document, taken: set[tuple[object, ...]]) -> Document:
    metadata = document.data["metadata"]
    if metadata.get("name"):
        return document
    start = metadata["generateName"][:_LONGEST_START]
    names = (f"{start}{_suffix(f'{document.version}/{document.kind}/{start}/{count}')}" for count in itertools.count())
    name = next(name for name in names if _place(document, name) not in taken)
    taken.add(_place(document, name))
    return document.having({**document.data, "metadata": {**metadata, "name": name}})


def _place(document: Document, name: object) -> tuple[object, ...]:
    """The identity of an object, which no two have in common."""
    return document.group, document.kind, document.data["metadata"].get("namespace"), name


def _suffix(of: str) -> str:
    drawn = hashlib.sha256(of.encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in drawn[:5])


def unknown(document: Document) -> Iterator[str]:
    """A line, fit to be shown, for every field that its kind does not have."""
    for one in unknown_fields(document.data):
        yield document.told(one.path, f"found an unknown field, expected {one.expected}")


def judged_values(document: Document) -> tuple[list[str], list[str]]:
    """Lines for all values that the API server refuses by their type, as an amount or as a name; and warnings for
    values that it takes and that are likely not meant.
    """
    refused = list(_misnamed(document)) if is_known(document.version, document.kind) else []
    odd: list[str] = []
    for one in wrong_values(document.data):
        line = _line(document, one)
        if one.refused:
            refused.append(line)
        else:
            odd.append(warned(line))
    return refused, odd


def _misnamed(document: Document) -> Iterator[str]:
    """Lines for wrong names. The kinds that are read here have no rules of their own: a name is a DNS subdomain, a
    Namespace's a DNS label.
    """
    metadata = document.data["metadata"]
    for key in ("name", "generateName", "namespace"):
        value = metadata.get(key)
        if value is None or value == "":
            continue
        is_label = key == "namespace" or document.kind == "Namespace"
        name = str(value)
        if key == "generateName" and name.endswith("-"):
            name = f"{name[:-2]}a"  # what follows makes it a name (``maskTrailingDash``)
        if not (is_object_name(name) and (not is_label or is_label_name(name))):
            signs = "letters a to z, digits and -" if is_label else "letters a to z, digits, - and ."
            expected = f"at most {63 if is_label else 253} {signs}, with a letter or digit at both ends"
            yield document.told(("metadata", key), f"found {shown(value)}, expected {expected}. Correct it")


def warned(line: str) -> str:
    """The line of a problem as a warning: ``FILE:LINE: warning: ...``."""
    place, _, sentence = line.partition(": ")
    return f"{place}: warning: {sentence}"


def _line(document: Document, one: Wrong) -> str:
    return document.told(one.path, f"found {one.found}, expected {one.expected}. {one.hint}".removesuffix(". "))
