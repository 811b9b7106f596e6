"""Walks a config file's tree: each key is one of the table's, a section with a reader of its own, or unknown."""

from collections.abc import Callable, Iterable
from typing import Any

from agent.config.table import BY_PATH, OWN_SECTIONS
from yamlfile import Document, Place, YamlKind, YamlNode

Reader = Callable[[Place, dict[str, Any]], None]
"""Reads one special section into the values (by Settings target)."""


def read_tree(root: YamlNode, file: str, special: dict[str, Reader]) -> tuple[dict[str, Any], list[str]]:
    """Values by Settings target, and warnings. ``special`` holds the readers of sections that are not plain settings.

    Raises ConfigError.
    """
    values: dict[str, Any] = {}
    known = _known_paths(special)
    document = Document(file=file, lenient=_nvidias, any_case=_any_case, as_go=_nvidias)
    _walk(Place(document, "", root), "", values, special, known)
    return values, document.warnings


def _nvidias(path: str) -> bool:
    """Whether the section at ``path`` is read as leniently as NVIDIA's plugin reads it: an unknown key is a warning,
    and so is a key given twice or brought by a merge key. In our own sections each is an error.
    """
    return path.partition(".")[0].partition("[")[0] not in OWN_SECTIONS


def _any_case(path: str) -> bool:
    """Whether capitals do not matter at ``path``: so it is in NVIDIA's sections, except where its plugin looks keys up
    by their spelling.
    """
    return _nvidias(path) and not path.lower().startswith(("sharing.timeslicing.", "sharing.mps."))


def _known_paths(special: Iterable[str]) -> dict[str, list[str]]:
    """The keys that each section may hold, by the section's path."""
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


def _walk(
    place: Place, section: str, values: dict[str, Any], special: dict[str, Reader], known: dict[str, list[str]]
) -> None:
    """Read ``place``, the section of that path; its own path is as the file spells it."""
    for key, name, child in place.named(known[section]):
        if name is None:
            child.unknown(key, known[section])
            continue
        path = f"{section}.{name}" if section else name
        if child.is_null and (path in BY_PATH or path in special):
            continue  # a key without a value is as if it were not there
        if path in special:
            special[path](child, values)
        elif path in BY_PATH:
            _take(child, path, values)
        else:
            _walk(child, path, values, special, known)


def _take(place: Place, path: str, values: dict[str, Any]) -> None:
    option = BY_PATH[path]
    if option.empty_is_default and place.is_empty and (option.parser.many or place.node.kind is YamlKind.STRING):
        return
    value = place.value(option.parser)
    if warning := option.warning(value):
        place.warn(warning)
    if option.target in values and option.paths[0] != path:
        place.warn(f"{option.paths[0]} is given too and wins")
    elif option.target:
        values[option.target] = value
