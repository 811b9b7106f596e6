"""Walks a config file's tree: each key is one of the table's, a section with a reader of its own, or unknown."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from agent.config.errors import ConfigError
from agent.config.parsers import Parser, Unfit
from agent.config.table import BY_PATH, OWN_SECTIONS
from agent.config.tree import Kind, Node


class Place:
    """One node of the tree with its file and key path: what an error message needs, and typed ways down."""

    def __init__(self, file: str, path: str, node: Node, warnings: list[str]) -> None:
        self.file = file
        self.path = path
        self.node = node
        self.warnings = warnings

    def error(self, expected: str, found: str = "") -> ConfigError:
        return ConfigError(f"{self.file}:{self.node.line}", self.path, found or self.node.describe(), expected)

    def warn(self, text: str) -> None:
        self.warnings.append(f"{self.file}:{self.node.line}: {self.path}: {text}")

    def value(self, parser: Parser) -> Any:
        """The node read by ``parser``. Raises ConfigError."""
        try:
            return parser.from_node(self.node)
        except Unfit as unfit:
            raise self.error(parser.expected, unfit.found) from None

    @property
    def is_null(self) -> bool:
        return self.node.kind is Kind.NULL

    def children(self) -> Iterable[tuple[str, "Place"]]:
        """The keys of a section with what they hold; null is an empty section. Raises ConfigError for anything else."""
        if self.is_null:
            return []
        if self.node.kind is not Kind.MAP:
            raise self.error("a section")
        return [(key, self._child(key, node)) for key, node in self.node.entries.items()]

    def _child(self, key: str, node: Node) -> "Place":
        return Place(self.file, f"{self.path}.{key}" if self.path else key, node, self.warnings)

    def items(self) -> list["Place"]:
        """The values of a list. Raises ConfigError for anything else."""
        if self.node.kind is not Kind.LIST:
            raise self.error("a list")
        return [
            Place(self.file, f"{self.path}[{index}]", node, self.warnings) for index, node in enumerate(self.node.items)
        ]

    def fields(self, known: Iterable[str]) -> dict[str, "Place"]:
        """The children of a section that are not null, by name; others than ``known`` are reported as unknown."""
        names = list(known)
        found: dict[str, Place] = {}
        for key, place in self.children():
            if key not in names:
                place.unknown(names)
            elif not place.is_null:
                found[key] = place
        return found

    def unknown(self, known: Iterable[str]) -> None:
        """A key nobody knows: an error in our own sections, a warning elsewhere, as NVIDIA's plugin is lenient."""
        name = self.path.rpartition(".")[2]
        near = difflib.get_close_matches(name, list(known), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        if self.path.partition(".")[0] in OWN_SECTIONS:
            raise ConfigError(
                f"{self.file}:{self.node.line}",
                self.path,
                f"an unknown key{hint}",
                f"one of {', '.join(sorted(known))}",
            )
        self.warn(f"unknown key, ignored{hint}")


Reader = Callable[[Place, dict[str, Any]], None]
"""Reads one special section into the values (by Settings target)."""


def read_tree(root: Node, file: str, special: dict[str, Reader]) -> tuple[dict[str, Any], list[str]]:
    """Values by Settings target, and warnings. ``special`` holds the readers of sections that are no plain settings.

    Raises ConfigError.
    """
    values: dict[str, Any] = {}
    warnings: list[str] = []
    known = _known_paths(special)
    _walk(Place(file, "", root, warnings), values, special, known)
    return values, warnings


def _known_paths(special: Iterable[str]) -> dict[str, list[str]]:
    """For each section, the keys it may hold."""
    known: dict[str, list[str]] = {}
    for path in (*BY_PATH, *special):
        section, _, key = path.rpartition(".")
        known.setdefault(section, []).append(key)
        while section:
            outer, _, key = section.rpartition(".")
            if key not in known.setdefault(outer, []):
                known[outer].append(key)
            section = outer
    return known


def _walk(place: Place, values: dict[str, Any], special: dict[str, Reader], known: dict[str, list[str]]) -> None:
    for _, child in place.children():
        path = child.path
        if child.is_null and (path in BY_PATH or path in special):
            continue  # a key without a value is as if it were not there
        if path in special:
            special[path](child, values)
        elif path in BY_PATH:
            _take(child, values)
        elif path in known:
            _walk(child, values, special, known)
        else:
            child.unknown(known[place.path])


def _take(place: Place, values: dict[str, Any]) -> None:
    option = BY_PATH[place.path]
    value = place.value(option.parser)
    if not option.target:
        place.warn(option.help)
    elif option.target in values and option.paths[0] != place.path:
        place.warn(f"{option.paths[0]} is given too and wins")
    else:
        values[option.target] = value
