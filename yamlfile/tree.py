"""A config file as a tree of nodes that know their lines, and the error that names a mistake in it.

YAML and JSON both become this; nothing here parses.
"""

import math
import re
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace


class ConfigError(Exception):
    """A user's mistake. ``str()`` is the line to show: ``file:line: key.path: found X, expected Y. HINT``.

    ``from_file`` tells whether the config file is to blame (then the last good one may stand in) or a flag or an
    environment variable.
    """

    def __init__(
        self, where: str, key: str, found: str, expected: str, *, hint: str = "", from_file: bool = True
    ) -> None:
        self.where = where
        self.key = key
        self.found = found
        self.expected = expected
        self.from_file = from_file
        parts = [where, key, f"found {found}, expected {expected}"]
        super().__init__(": ".join(part for part in parts if part) + (f". {hint}" if hint else ""))


def no_utf8(file: object, content: bytes, start: int) -> ConfigError:
    """The error for a file that is not UTF-8. ``start`` is the offset of the first such byte in ``content``."""
    line = content.count(b"\n", 0, start) + 1
    return ConfigError(f"{file}:{line}", "", "bytes that are no UTF-8", "UTF-8 text")


class UnreadableError(ConfigError):
    """The file exists, and cannot be read at the moment: its content is unknown, so reading it again may succeed."""


MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000
"""The most nodes of a file, counted with every alias expanded, so that a small file cannot stand for a huge one."""

SHOWN = 60
"""The most characters of a user's own text that a message repeats."""


class YamlKind(StrEnum):
    """The kind of a node, in words fit for messages."""

    NULL = "nothing"
    BOOL = "a boolean"
    INT = "an integer"
    FLOAT = "a number"
    STRING = "a string"
    LIST = "a list"
    MAP = "a section"
    MERGE = "a merge key (<<)"


class Oddity(Struct, frozen=True):
    """Legal YAML in a section that not every reader accepts. ``keys`` are the section's keys that it is about.

    ``read_as`` is how it was read, for a warning; empty where no warning is needed.
    """

    line: int
    keys: tuple[str, ...]
    found: str
    expected: str
    read_as: str = ""


class YamlNode(Struct, frozen=True, kw_only=True):
    """One value. ``text`` holds a scalar as written, ``items`` a list's values, ``entries`` a section's.

    ``size`` counts the node and all below it. ``plain``: a string without quotes. ``odd`` are the oddities of a
    section.
    """

    kind: YamlKind
    line: int
    text: str = ""
    items: tuple["YamlNode", ...] = ()
    entries: dict[str, "YamlNode"] = {}
    size: int = 1
    plain: bool = False
    odd: tuple[Oddity, ...] = ()

    @property
    def whole(self) -> str | None:
        """A whole number in decimal digits, however it is written (``4.0``, ``0x4``, ``1e1``, ``010``); else None."""
        if self.kind is YamlKind.INT:
            return str(_go_integer(self.text))
        if self.kind is YamlKind.FLOAT and (number := float(self.text)).is_integer() and abs(number) < _EXACT:
            return str(int(number))
        return None

    def describe(self) -> str:
        """The value in a few words, for messages."""
        if self.kind in (YamlKind.NULL, YamlKind.LIST, YamlKind.MAP, YamlKind.MERGE):
            return self.kind.value
        shown = self.text if len(self.text) <= SHOWN else self.text[:SHOWN] + "..."
        return repr(shown) if self.kind is YamlKind.STRING else shown


def scalar(text: str, line: int) -> YamlNode:
    """A plain (unquoted) scalar, resolved as YAML 1.1 does where it matters here; any other text is a string."""
    kind = _kind(text)
    return YamlNode(kind=kind, line=line, text=text, plain=kind is YamlKind.STRING)


_BOOLS = {
    **dict.fromkeys(("true", "yes", "on"), "true"),
    **dict.fromkeys(("false", "no", "off"), "false"),
}
_INTEGER = re.compile(
    r"[-+]?(0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0[bB]_*[01][01_]*|0[oO]_*[0-7][0-7_]*|0[0-7_]*|[1-9][0-9_]*)"
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_EXACT = 1e18
"""The amount from which a float no longer counts as a whole number: nobody means such an amount."""


def as_bool(text: str) -> bool | None:
    """The value of YAML 1.1's booleans, in the three spellings of case it allows; without ``y`` and ``n``, see
    ``parsers.BOOL``.
    """
    known = _BOOLS.get(text.lower()) if text in (text.lower(), text.upper(), text.capitalize()) else None
    return None if known is None else known == "true"


def _go_integer(text: str) -> int:
    """The integer that Go's ``strconv.ParseInt(text, 0, 64)`` makes, without the bound, as its YAML reader does:
    ``010`` is 8.
    """
    digits = text.replace("_", "")
    return int(re.sub(r"^([-+]?)0(?=[0-7])", r"\g<1>0o", digits), 0)


def _kind(text: str) -> YamlKind:
    if text == "<<":
        return YamlKind.MERGE
    if text in ("", "~", "null", "Null", "NULL"):
        return YamlKind.NULL
    if as_bool(text) is not None:
        return YamlKind.BOOL
    if len(text) < SHOWN and _INTEGER.fullmatch(text):
        return YamlKind.INT
    # Words such as `nan` and `inf` are Python's, not YAML's.
    return YamlKind.FLOAT if _FLOAT.fullmatch(text) and math.isfinite(float(text)) else YamlKind.STRING


class Builder:
    """Puts nodes together under the limits. Both parsers use it, so both refuse the same things.

    ``forgiving`` reads a section as Go's YAML reader (sigs.k8s.io/yaml) does: merge keys are carried out, and the last
    value of a key that is there twice counts, in the order of the file. The section's node keeps both as its ``odd``.
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
        """Make a section. Keys are strings, and unique unless forgiven: the meaning of a second one differs between
        parsers.
        """
        entries: dict[str, YamlNode] = {}
        odd: list[Oddity] = []
        for key, value in pairs:
            if key.kind in (YamlKind.LIST, YamlKind.MAP):
                raise self.error(key.line, f"{key.kind} as a key", "a word")
            if key.kind is YamlKind.MERGE:
                merged = self._merged(value, key.line) if self.forgiving else {}
                odd.append(Oddity(key.line, tuple(merged), key.kind.value, "the keys themselves"))
                entries.update(merged)
                continue
            if key.text in entries and not any(key.text in merge.keys for merge in odd):
                odd.append(
                    Oddity(key.line, (key.text,), "the key twice", "it once", "twice in its section: the last counts")
                )
            # Messages point at the key: a section's own first line is the one below it, an alias's is elsewhere.
            entries[key.text] = value if value.line == key.line else replace(value, line=key.line)
        if odd and not self.forgiving:
            raise self.error(odd[0].line, odd[0].found, odd[0].expected, "".join(odd[0].keys)[:SHOWN])
        size = self._size(list(entries.values()), line)
        return YamlNode(kind=YamlKind.MAP, line=line, entries=entries, size=size, odd=tuple(odd))

    def _merged(self, value: YamlNode, line: int) -> dict[str, YamlNode]:
        """The keys that a merge key brings: in a list of sections the first that has a key gives it."""
        sections = value.items if value.kind is YamlKind.LIST else (value,)
        if any(section.kind is not YamlKind.MAP for section in sections):
            raise self.error(line, value.describe(), "a section or a list of sections to merge", "<<")
        return {key: node for section in reversed(sections) for key, node in section.entries.items()}

    def _size(self, children: list[YamlNode], line: int) -> int:
        size = 1 + sum(child.size for child in children)
        if size > MAX_NODES:
            raise self.error(line, f"more than {MAX_NODES} values", "a smaller file")
        return size
