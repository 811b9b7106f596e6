"""One node of a config file's tree with its file and key path: the data of a message, and typed ways down."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from yamlfile.parsers import Parser, Unfit
from yamlfile.tree import SHOWN, ConfigError, Oddity, YamlKind, YamlNode


def _strict(path: str) -> bool:  # noqa: ARG001 - one answer for every path
    return False


def _forgiven(path: str) -> bool:  # noqa: ARG001 - one answer for every path
    return True


class Document(Struct, frozen=True, kw_only=True):
    """The settings that all places of one file share. ``lenient`` says where an unknown key is a warning and not an
    error.

    ``any_case`` says for which key paths capitals do not matter, ``as_go`` which keys may be given twice or merged (in
    a text that was read with ``forgiving``).
    """

    file: str
    lenient: Callable[[str], bool] = _strict
    any_case: Callable[[str], bool] = _strict
    as_go: Callable[[str], bool] = _forgiven
    warnings: list[str] = field(default_factory=list)


class Place:
    """One node of a file. ``path`` is the key path as messages show it: ``sharing.resources[0].name``; empty for the
    whole file.
    """

    __slots__ = ("document", "node", "path")

    def __init__(self, document: Document, path: str, node: YamlNode) -> None:
        self.document = document
        self.path = path
        self.node = node

    @property
    def where(self) -> str:
        return f"{self.document.file}:{self.node.line}"

    def error(self, expected: str, found: str = "") -> ConfigError:
        return ConfigError(self.where, self.path, found or self.node.describe(), expected)

    def warn(self, text: str) -> None:
        self.document.warnings.append(f"{self.where}: {self.path}: {text}")

    def value(self, parser: Parser) -> Any:
        """The node read by ``parser``. Raises ConfigError."""
        try:
            return parser.from_node(self.node)
        except Unfit as unfit:
            raise self.error(parser.expected, unfit.found) from None

    @property
    def is_null(self) -> bool:
        return self.node.kind is YamlKind.NULL

    @property
    def is_empty(self) -> bool:
        """Whether the node is an empty string or an empty list."""
        node = self.node
        return (node.kind is YamlKind.STRING and not node.text) or (node.kind is YamlKind.LIST and not node.items)

    def children(self) -> Iterable[tuple[str, "Place"]]:
        """The keys of a section with what they hold; null is an empty section. Raises ConfigError for anything else."""
        if self.is_null:
            return []
        if self.node.kind is not YamlKind.MAP:
            raise self.error("a section")
        for oddity in self.node.odd:
            self._take_as_go(oddity)
        return [(key, self._child(key, node)) for key, node in self.node.entries.items()]

    def _take_as_go(self, oddity: Oddity) -> None:
        where = f"{self.document.file}:{oddity.line}"
        for key in oddity.keys:
            if not self.document.as_go(self._path_of(key)):
                raise ConfigError(where, self._path_of(key), oddity.found, oddity.expected)
        if oddity.read_as:
            path = self._path_of(oddity.keys[0]) if oddity.keys else self.path
            self.document.warnings.append(": ".join(part for part in (where, path, oddity.read_as) if part))

    def _child(self, key: str, node: YamlNode) -> "Place":
        return Place(self.document, self._path_of(key), node)

    def _path_of(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def items(self) -> list["Place"]:
        """The values of a list. Raises ConfigError for anything else."""
        if self.node.kind is not YamlKind.LIST:
            raise self.error("a list")
        return [Place(self.document, f"{self.path}[{index}]", node) for index, node in enumerate(self.node.items)]

    def fields(self, known: Iterable[str]) -> dict[str, "Place"]:
        """The children of a section that are not null, by name; others than ``known`` are reported as unknown."""
        names = list(known)
        by_name: dict[str, Place] = {}
        for key, name, place in self.named(names):
            if name is None:
                place.unknown(key, names)
            elif not place.is_null:
                by_name[name] = place
        return by_name

    def required(self, fields: Mapping[str, "Place"], key: str) -> "Place":
        """The place of ``key`` in ``fields``, which are this place's own. Raises ConfigError where it is not there."""
        if key not in fields:
            raise self.error(f"the key {key}", "none")
        return fields[key]

    def named(self, known: Iterable[str]) -> list[tuple[str, str | None, "Place"]]:
        """The children: each with its key and the name in ``known`` that it has, None for no such name.

        Where capitals do not matter, several keys may be one name: the last in the order of characters counts, as with
        Go's reader, which sorts them; the others are warned of.
        """
        children = list(self.children())
        names = set(known)
        folded = {name.lower(): name for name in names if self.document.any_case(self._path_of(name))}
        name_of = {key: key if key in names else folded.get(key.lower()) for key, _ in children}
        winner = {name: key for key, name in sorted(name_of.items()) if name is not None}
        chosen: list[tuple[str, str | None, Place]] = []
        for key, place in children:
            name = name_of[key]
            if name is not None and winner[name] != key:
                place.warn(f"{winner[name]} is the same key and wins")
            else:
                chosen.append((key, name, place))
        return chosen

    def unknown(self, key: str, known: Iterable[str]) -> None:
        """Report an unknown key of this place: an error, or a warning where the document is lenient."""
        import difflib  # imported for mistakes alone

        names = list(known)
        near = difflib.get_close_matches(key[:SHOWN], names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        if not self.document.lenient(self.path):
            raise self.error(f"one of {', '.join(sorted(names))}", f"an unknown key{hint}")
        self.warn(f"unknown key, ignored{hint}")
