"""Walks a config file's tree: each key is one of the table's, a section with a reader of its own, or unknown."""

from collections.abc import Callable, Iterable
from typing import Any

from agent.config.table import BY_PATH, OWN_SECTIONS
from yamlfile import Document, Node, Place

Reader = Callable[[Place, dict[str, Any]], None]
"""Reads one special section into the values (by Settings target)."""


def read_tree(root: Node, file: str, special: dict[str, Reader]) -> tuple[dict[str, Any], list[str]]:
    """Values by Settings target, and warnings. ``special`` holds the readers of sections that are no plain settings.

    Raises ConfigError.
    """
    values: dict[str, Any] = {}
    known = _known_paths(special)
    document = Document(file=file, lenient=_lenient)
    _walk(Place(document, "", root), values, special, known)
    return values, document.warnings


def _lenient(path: str) -> bool:
    """An unknown key is an error in our own sections, a warning elsewhere, as NVIDIA's plugin is lenient."""
    return path.partition(".")[0].partition("[")[0] not in OWN_SECTIONS


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
    for key, child in place.children():
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
            child.unknown(key, known[place.path])


def _take(place: Place, values: dict[str, Any]) -> None:
    option = BY_PATH[place.path]
    value = place.value(option.parser)
    if not option.target:
        place.warn(option.help)
    elif option.target in values and option.paths[0] != place.path:
        place.warn(f"{option.paths[0]} is given too and wins")
    else:
        values[option.target] = value
