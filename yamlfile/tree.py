"""A config file as a tree of nodes that know their lines, and the error that says what is wrong with it.

YAML and JSON both become this; nothing here parses.
"""

import math
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class ConfigError(Exception):
    """A user's mistake. ``str()`` is the line to show: ``file:line: key.path: found X, expected Y``.

    ``from_file`` tells whether the config file is to blame (then the last good one may stand in) or a flag or an
    environment variable.
    """

    def __init__(self, where: str, key: str, found: str, expected: str, *, from_file: bool = True) -> None:
        self.where = where
        self.key = key
        self.found = found
        self.expected = expected
        self.from_file = from_file
        parts = [where, key, f"found {found}, expected {expected}"]
        super().__init__(": ".join(part for part in parts if part))


class UnreadableError(ConfigError):
    """The file is there, and cannot be read at the moment: nothing is known of what it says, so reading it again may
    do.
    """


MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000
"""Counted with every alias expanded, so that a small file cannot stand for a huge one."""

SHOWN = 60
"""Characters of a user's own text repeated in a message."""


class YamlKind(StrEnum):
    """What a node is, in words fit for messages."""

    NULL = "nothing"
    BOOL = "a boolean"
    INT = "an integer"
    FLOAT = "a number"
    STRING = "a string"
    LIST = "a list"
    MAP = "a section"
    MERGE = "a merge key (<<)"


class YamlNode(Struct, frozen=True, kw_only=True):
    """One value. ``text`` holds a scalar as written, ``items`` a list's values, ``entries`` a section's.

    ``size`` counts the node and all below it.
    """

    kind: YamlKind
    line: int
    text: str = ""
    items: tuple["YamlNode", ...] = ()
    entries: dict[str, "YamlNode"] = {}
    size: int = 1

    def describe(self) -> str:
        """The value in a few words, for messages."""
        if self.kind in (YamlKind.NULL, YamlKind.LIST, YamlKind.MAP, YamlKind.MERGE):
            return self.kind.value
        shown = self.text if len(self.text) <= SHOWN else self.text[:SHOWN] + "..."
        return repr(shown) if self.kind is YamlKind.STRING else shown


def scalar(text: str, line: int) -> YamlNode:
    """A plain (unquoted) scalar, resolved as YAML 1.1 does where it matters here; anything else is a string."""
    return YamlNode(kind=_kind(text), line=line, text=text)


_BOOLS = {
    **dict.fromkeys(("true", "yes", "on"), "true"),
    **dict.fromkeys(("false", "no", "off"), "false"),
}


def as_bool(text: str) -> bool | None:
    """YAML 1.1's booleans, in the three spellings of case it allows."""
    known = _BOOLS.get(text.lower()) if text in (text.lower(), text.upper(), text.capitalize()) else None
    return None if known is None else known == "true"


def _kind(text: str) -> YamlKind:
    if text == "<<":
        return YamlKind.MERGE
    if text in ("", "~", "null", "Null", "NULL"):
        return YamlKind.NULL
    if as_bool(text) is not None:
        return YamlKind.BOOL
    try:
        int(text)
    except ValueError:
        pass
    else:
        return YamlKind.INT if "_" not in text and len(text) < SHOWN else YamlKind.STRING
    try:
        number = float(text)
    except ValueError:
        return YamlKind.STRING
    # `nan`, `inf` and `1_0.0` are Python's, not YAML's.
    return YamlKind.FLOAT if math.isfinite(number) and "_" not in text else YamlKind.STRING


class Builder:
    """Puts nodes together under the limits. Both parsers use it, so both refuse the same things.

    ``forgiving`` is how Go's YAML reader (sigs.k8s.io/yaml) takes a section: merge keys are carried out, and of a key
    that is there twice the last counts, in the order of the file.
    """

    def __init__(self, file: str, *, forgiving: bool = False) -> None:
        self.file = file
        self.forgiving = forgiving

    def error(self, line: int, found: str, expected: str, key: str = "") -> ConfigError:
        return ConfigError(f"{self.file}:{line}", key, found, expected)

    def check_depth(self, depth: int, line: int) -> None:
        if depth > MAX_DEPTH:
            raise self.error(line, f"more than {MAX_DEPTH} levels", "a flatter file")

    def sequence(self, items: list[YamlNode], line: int) -> YamlNode:
        return YamlNode(kind=YamlKind.LIST, line=line, items=tuple(items), size=self._size(items, line))

    def mapping(self, pairs: list[tuple[YamlNode, YamlNode]], line: int) -> YamlNode:
        """A section. Keys are strings, and unique unless forgiven: what a second one means differs between parsers."""
        entries: dict[str, YamlNode] = {}
        for key, value in pairs:
            if key.kind in (YamlKind.LIST, YamlKind.MAP):
                raise self.error(key.line, f"{key.kind} as a key", "a word")
            if key.kind is YamlKind.MERGE and self.forgiving:
                entries.update(self._merged(value, key.line))
                continue
            if key.kind is YamlKind.MERGE:
                raise self.error(key.line, key.kind.value, "the keys themselves")
            if key.text in entries and not self.forgiving:
                raise self.error(key.line, "the key twice", "it once", key.text[:SHOWN])
            # Messages point at the key: a section's own first line is the one below it, an alias's is elsewhere.
            entries[key.text] = value if value.line == key.line else replace(value, line=key.line)
        return YamlNode(kind=YamlKind.MAP, line=line, entries=entries, size=self._size(list(entries.values()), line))

    def _merged(self, value: YamlNode, line: int) -> dict[str, YamlNode]:
        """What a merge key brings: of a list of sections the first that has a key gives it."""
        sections = value.items if value.kind is YamlKind.LIST else (value,)
        if any(section.kind is not YamlKind.MAP for section in sections):
            raise self.error(line, value.describe(), "a section or a list of sections to merge", "<<")
        return {key: node for section in reversed(sections) for key, node in section.entries.items()}

    def _size(self, children: list[YamlNode], line: int) -> int:
        size = 1 + sum(child.size for child in children)
        if size > MAX_NODES:
            raise self.error(line, f"more than {MAX_NODES} values", "a smaller file")
        return size
