"""From text to values: one parser for each kind of setting, the same for flags, environment and config file."""

import math
import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.config.settings import Address
from agent.config.tree import Kind, Node
from agent.health.xids import FaultClass


class Unfit(Exception):  # noqa: N818 - becomes a ConfigError once the place is known
    """A value that is not what was expected. ``found`` where it can be told more exactly than by repeating it."""

    def __init__(self, found: str = "") -> None:
        self.found = found
        super().__init__(found)


class Parser(Struct, frozen=True, kw_only=True):
    """How one kind of setting is read. ``convert`` takes text and raises Unfit; ``kinds`` are what a file may hold.

    With ``many``, a file may also hold a list of such values: it is read as their text, joined by commas.
    """

    expected: str
    convert: Callable[[str], Any]
    kinds: frozenset[Kind]
    many: bool = False

    def from_node(self, node: Node) -> Any:
        """The value of a config file's node. Raises Unfit."""
        if self.many and node.kind is Kind.LIST:
            for item in node.items:
                if item.kind not in self.kinds or "," in item.text:
                    raise Unfit(f"{item.describe()} in the list")
            return self.convert(",".join(item.text for item in node.items))
        if node.kind not in self.kinds:
            raise Unfit(node.describe())
        return self.convert(node.text)


_STRING = frozenset({Kind.STRING})
_NUMBER = frozenset({Kind.INT, Kind.FLOAT})
_GO_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
    # What YAML 1.1 adds.
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), False),
}


def _bool(text: str) -> bool:
    if text not in _GO_BOOLS:
        raise Unfit
    return _GO_BOOLS[text]


def _plain(text: str) -> str:
    if "\0" in text or "\n" in text:
        raise Unfit
    return text


def _path(text: str) -> Path:
    if not text:
        raise Unfit
    return Path(_plain(text))


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in _plain(text).split(",") if word.strip()))


BOOL = Parser(expected="true or false", convert=_bool, kinds=frozenset({Kind.BOOL}))
TEXT = Parser(expected="a string", convert=_plain, kinds=_STRING)
PATH = Parser(expected="a path", convert=_path, kinds=_STRING)
WORDS = Parser(expected="words, separated by commas", convert=_words, kinds=_STRING, many=True)


def one_of(values: type[StrEnum] | tuple[StrEnum, ...]) -> Parser:
    """One member of an enumeration."""
    known = {value.value: value for value in values}

    def convert(text: str) -> StrEnum:
        if text not in known:
            raise Unfit
        return known[text]

    return Parser(expected=_alternatives(known), convert=convert, kinds=_STRING)


def some_of(values: type[StrEnum]) -> Parser:
    """One or more members of an enumeration, each once, in the order given."""
    known = {value.value: value for value in values}

    def convert(text: str) -> tuple[StrEnum, ...]:
        words = _words(text)
        unknown = next((word for word in words if word not in known), None)
        if unknown is not None:
            raise Unfit(repr(unknown))
        if not words:
            raise Unfit
        return tuple(known[word] for word in words)

    return Parser(expected=f"a list of {_alternatives(known, 'and')}", convert=convert, kinds=_STRING, many=True)


def _alternatives(words: dict[str, StrEnum], last: str = "or") -> str:
    *most, final = words
    return f"{', '.join(most)} {last} {final}" if most else final


def integer(low: int, high: int) -> Parser:
    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text) or not low <= int(text) <= high:
            raise Unfit
        return int(text)

    return Parser(expected=f"an integer from {low} to {high}", convert=convert, kinds=frozenset({Kind.INT}))


def seconds(low: float, high: float) -> Parser:
    """A plain number of seconds."""

    def convert(text: str) -> float:
        value = _float(text)
        if not low <= value <= high:
            raise Unfit
        return value

    return Parser(expected=f"a number of seconds from {low:g} to {high:g}", convert=convert, kinds=_NUMBER)


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise Unfit from None
    if not math.isfinite(value):
        raise Unfit
    return value


_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_CENTURIES_S = 1e10
_GO_DURATION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:h|ms|us|µs|ns|m|s)")


def _duration(text: str) -> float:
    """Go's durations, NVIDIA's ``infinite``, or nanoseconds. Source: NVIDIA's device plugin, its config API v1."""
    if text == "infinite":
        return math.inf
    if re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", text, re.IGNORECASE):
        value_s = _float(text) / 1e9
    else:
        parts = _GO_DURATION.findall(text)
        if not parts or "".join(parts) != text:
            raise Unfit
        value_s = sum(_go_part(part) for part in parts)
    if not 0 < value_s < _CENTURIES_S:
        raise Unfit
    return value_s


def _go_part(part: str) -> float:
    number = part.rstrip("hmsunµ")
    return _float(number) * _UNITS_S[part[len(number) :]]


DURATION = Parser(
    expected="a duration such as 60s or 1m30s, infinite, or nanoseconds", convert=_duration, kinds=_STRING | _NUMBER
)


def _address(text: str) -> Address | None:
    if text == "none":
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or not re.fullmatch(r"[\w.:%-]*", host):  # noqa: PLR2004 - a port
        raise Unfit
    return Address(host or "0.0.0.0", int(port))  # noqa: S104 - what an empty host means everywhere


ADDRESS = Parser(expected="HOST:PORT or none", convert=_address, kinds=_STRING)


def _channels(text: str) -> tuple[int, ...]:
    channels = _words(text)
    # NVIDIA's plugin knows channel 0 only.
    if any(channel != "0" for channel in channels):
        raise Unfit
    return (0,) if channels else ()


IMEX_CHANNELS = Parser(expected="0 or nothing", convert=_channels, kinds=frozenset({Kind.INT, Kind.STRING}), many=True)

Xids = frozenset[int] | None
"""A set of XIDs, or None for all of them."""


def xids(*all_words: str) -> Parser:
    """XIDs, or one of ``all_words`` for all. Capitals do not matter, as in NVIDIA's plugin."""

    def convert(text: str) -> Xids:
        words = [word.lower() for word in _words(text)]
        if any(word in all_words for word in words):
            return None
        wrong = next((word for word in words if not re.fullmatch(r"\d{1,9}", word)), None)
        if wrong is not None:
            raise Unfit(repr(wrong))
        return frozenset(int(word) for word in words)

    return Parser(
        expected=f"XIDs, or {' or '.join(all_words)}",
        convert=convert,
        kinds=frozenset({Kind.INT, Kind.STRING}),
        many=True,
    )


FAULT_CLASS = one_of(FaultClass)
