"""Turns text into values: one parser for each kind of setting, wherever it is given (file, flag or environment)."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from yamlfile.tree import YamlKind, YamlNode


class Unfit(Exception):  # noqa: N818 - becomes a ConfigError once the place is known
    """A value that is not of the expected kind. ``found`` is set where it can be described better than by
    repeating it.
    """

    def __init__(self, found: str = "") -> None:
        self.found = found
        super().__init__(found)


class Parser(Struct, frozen=True, kw_only=True):
    """The way to read one kind of setting. ``convert`` takes text and raises Unfit; ``kinds`` are those that a file may
    hold.

    With ``many``, a file may also hold a list of such values: it is read as their text, joined by commas.
    """

    expected: str
    convert: Callable[[str], Any]
    kinds: frozenset[YamlKind]
    many: bool = False

    def from_node(self, node: YamlNode) -> Any:
        """The value of a config file's node. Raises Unfit."""
        if self.many and node.kind is YamlKind.LIST:
            words = [self._text(item) for item in node.items]
            for item, word in zip(node.items, words, strict=True):
                if word is None or "," in word:
                    raise Unfit(f"{item.describe()} in the list")
            return self.convert(",".join(word or "" for word in words))
        text = self._text(node)
        if text is None:
            raise Unfit(node.describe())
        return self.convert(text)

    def _text(self, node: YamlNode) -> str | None:
        """The node as ``convert`` takes it; None where it is of another kind. Whole numbers are in decimal digits, and
        Go's YAML reader takes a bare ``y`` or ``n`` for a boolean where one is wanted.
        """
        if YamlKind.INT in self.kinds and node.whole is not None:
            return node.whole
        if node.kind in self.kinds or (YamlKind.BOOL in self.kinds and node.plain and node.text in _LETTERS):
            return node.text
        return None


STRING = frozenset({YamlKind.STRING})
NUMBER = frozenset({YamlKind.INT, YamlKind.FLOAT})
_LETTERS = ("y", "Y", "n", "N")
_GO_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
    # YAML 1.1 adds these.
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False),
}


def mapped(known: Mapping[str, Any], expected: str, kinds: frozenset[YamlKind] = STRING) -> Parser:
    """A parser of the words that ``known`` has; the value is the word's in ``known``."""

    def convert(text: str) -> Any:
        if text not in known:
            raise Unfit
        return known[text]

    return Parser(expected=expected, convert=convert, kinds=kinds)


def plain(text: str) -> str:
    """``text``, refused when it holds a line break or a zero byte. Raises Unfit."""
    if "\0" in text or "\n" in text:
        raise Unfit
    return text


def _path(text: str) -> Path:
    if not text:
        raise Unfit
    return Path(plain(text))


def words_in(text: str) -> tuple[str, ...]:
    """Words separated by commas, each once, in order. Raises Unfit."""
    return tuple(dict.fromkeys(word.strip() for word in plain(text).split(",") if word.strip()))


BOOL = mapped(_GO_BOOLS, "true or false", frozenset({YamlKind.BOOL}))
TEXT = Parser(expected="a string", convert=plain, kinds=STRING)
PATH = Parser(expected="a path", convert=_path, kinds=STRING)
WORDS = Parser(expected="words, separated by commas", convert=words_in, kinds=STRING, many=True)


def one_of(values: type[StrEnum] | tuple[StrEnum, ...]) -> Parser:
    """A parser of one member of an enumeration."""
    known = {value.value: value for value in values}
    return mapped(known, alternatives(known))


def some_of(values: type[StrEnum]) -> Parser:
    """A parser of one or more members of an enumeration, each once, in the order given."""
    known = {value.value: value for value in values}

    def convert(text: str) -> tuple[StrEnum, ...]:
        words = words_in(text)
        unknown = next((word for word in words if word not in known), None)
        if unknown is not None:
            raise Unfit(repr(unknown))
        if not words:
            raise Unfit
        return tuple(known[word] for word in words)

    return Parser(expected=f"a list of {alternatives(known, 'and')}", convert=convert, kinds=STRING, many=True)


def alternatives(words: Iterable[str], last: str = "or") -> str:
    """The words as ``a, b or c``; ``words`` is not empty."""
    *most, final = words
    return f"{', '.join(most)} {last} {final}" if most else final


def integer(low: int, high: int) -> Parser:
    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text) or not low <= int(text) <= high:
            raise Unfit
        return int(text)

    return Parser(expected=f"an integer from {low} to {high}", convert=convert, kinds=frozenset({YamlKind.INT}))


def seconds(low: float, high: float) -> Parser:
    """A parser of a plain number of seconds from ``low`` to ``high``."""

    def convert(text: str) -> float:
        value = finite(text)
        if not low <= value <= high:
            raise Unfit
        return value

    return Parser(expected=f"a number of seconds from {low:g} to {high:g}", convert=convert, kinds=NUMBER)


def finite(text: str) -> float:
    """A number that is neither infinite nor NaN. Raises Unfit."""
    try:
        value = float(text)
    except ValueError:
        raise Unfit from None
    if not math.isfinite(value):
        raise Unfit
    return value


_HOST = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?|[0-9a-f:.]+(%\w+)?", re.ASCII)
"""A host name, or an address of IPv4 or IPv6."""


def _http_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        usable = parts.scheme in ("http", "https") and _HOST.fullmatch(host) is not None and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text or parts.query or parts.fragment:
        raise Unfit
    return text


HTTP_URL = Parser(expected="http://HOST:PORT or https://HOST", convert=_http_url, kinds=STRING)

_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_GO_DURATION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:h|ms|us|µs|ns|m|s)", re.ASCII)


def go_duration(text: str) -> float:
    """The seconds of a duration as Go writes it (``1h30m``, ``500ms``), without a sign. Raises Unfit."""
    parts = _GO_DURATION.findall(text)
    if not parts or "".join(parts) != text:
        raise Unfit
    return sum(_go_part(part) for part in parts)


def _go_part(part: str) -> float:
    number = part.rstrip("hmsunµ")
    return finite(number) * _UNITS_S[part[len(number) :]]
