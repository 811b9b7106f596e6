"""The agent's own kinds of values, beside the general ones of ``yamlfile.parsers``."""

import math
import re
from ipaddress import ip_address

from agent.config.settings import Address
from agent.health.xids import FaultClass
from yamlfile.parsers import NUMBER, STRING, Parser, Unfit, finite, go_duration, mapped, one_of, plain, words_in
from yamlfile.tree import YamlKind

_CENTURIES_S = 1e10
_SHORTEST_S = 1.0


def _duration(text: str) -> float:
    """Seconds, from Go's durations, NVIDIA's ``infinite``, or nanoseconds. Source: NVIDIA's device plugin, its config
    API v1.
    """
    if text == "infinite":
        return math.inf
    if re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", text, re.IGNORECASE):
        value_s = finite(text) / 1e9
    else:
        value_s = go_duration(text)
    if not 0 <= value_s < _CENTURIES_S:
        raise Unfit
    # NVIDIA's zero means to label without a pause.
    return value_s or _SHORTEST_S


DURATION = Parser(
    expected="a duration such as 60s or 1m30s, infinite, or nanoseconds", convert=_duration, kinds=STRING | NUMBER
)


def _interval(text: str) -> float:
    value_s = finite(text) if re.fullmatch(r"[\d.]+", text) else go_duration(text)
    if not 1 <= value_s <= 3600:  # noqa: PLR2004 - an hour
        raise Unfit
    return value_s


INTERVAL = Parser(expected="1s to 1h, or a number of seconds", convert=_interval, kinds=STRING | NUMBER)


def _address(text: str) -> Address | None:
    if text == "none":
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65535 or not re.fullmatch(r"[\w.:%-]*", host):  # noqa: PLR2004 - a port
        raise Unfit
    return Address(host or "0.0.0.0", int(port))  # noqa: S104 - what an empty host means everywhere


ADDRESS = Parser(expected="HOST:PORT or none", convert=_address, kinds=STRING)


def _channels(text: str) -> tuple[int, ...]:
    channels = words_in(text)
    # NVIDIA's plugin knows channel 0 only.
    if any(channel != "0" for channel in channels):
        raise Unfit
    return (0,) if channels else ()


IMEX_CHANNELS = Parser(
    expected="0 or nothing", convert=_channels, kinds=frozenset({YamlKind.INT, YamlKind.STRING}), many=True
)

Xids = frozenset[int] | None
"""A set of XIDs, or None for all of them."""


def xids(*all_words: str) -> Parser:
    """A parser of XIDs, or of one of ``all_words`` for all of them. Capitals do not matter, as in NVIDIA's plugin."""

    def convert(text: str) -> Xids:
        words = [word.lower() for word in words_in(text)]
        if any(word in all_words for word in words):
            return None
        wrong = next((word for word in words if not re.fullmatch(r"\d{1,9}", word)), None)
        if wrong is not None:
            raise Unfit(repr(wrong))
        return frozenset(int(word) for word in words)

    return Parser(
        expected=f"XIDs, or {' or '.join(all_words)}",
        convert=convert,
        kinds=frozenset({YamlKind.INT, YamlKind.STRING}),
        many=True,
    )


def _file_name(text: str) -> str:
    if not text or "/" in text or text in (".", ".."):
        raise Unfit
    return plain(text)


FILE_NAME = Parser(expected="a file's name without a folder", convert=_file_name, kinds=STRING)


_DRIVER_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DRIVER = re.compile(rf"{_DRIVER_LABEL}(\.{_DRIVER_LABEL})*")
LONGEST_DRIVER = 63


def _driver_name(text: str) -> str:
    if len(text) > LONGEST_DRIVER or not _DRIVER.fullmatch(text):
        raise Unfit
    return text


DRIVER_NAME = Parser(
    expected=f"a DNS subdomain of at most {LONGEST_DRIVER} characters", convert=_driver_name, kinds=STRING
)


def sifted_xids(text: str) -> tuple[str, tuple[str, ...]]:
    """The words that are XIDs or mean all, joined by commas, and the others: NVIDIA's plugin passes over those."""
    words = words_in(text)
    bad = tuple(word for word in words if not re.fullmatch(r"\d{1,9}|all|xids", word.lower()))
    return ",".join(word for word in words if word not in bad), bad


DISCOVERY = mapped(
    {"auto": "auto", "nvml": "nvml"}, "auto or nvml (devices without NVML, such as Tegra's, are not supported)"
)

FAULT_CLASS = one_of(FaultClass)


def _patterns(text: str) -> tuple[str, ...]:
    words = words_in(text)
    for word in words:
        try:
            re.compile(word)
        except (re.error, OverflowError, RecursionError):
            raise Unfit(repr(word)) from None
    return words


def _ip_addresses(text: str) -> tuple[str, ...]:
    words = words_in(text)
    for word in words:
        try:
            ip_address(word)
        except ValueError:
            raise Unfit(repr(word)) from None
    return words


IP_ADDRESSES = Parser(expected="IP addresses, separated by commas", convert=_ip_addresses, kinds=STRING, many=True)
PATTERNS = Parser(expected="regular expressions, separated by commas", convert=_patterns, kinds=STRING, many=True)


_MEMORY = re.compile(r"(\d{1,15})(Ki|Mi|Gi|Ti|k|M|G|T)?", re.ASCII)
_BYTES = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9}
_BYTES["T"] = 10**12


def memory_mib(text: str) -> int:
    """A Kubernetes quantity of bytes in whole MiB, rounded down. Raises Unfit."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise Unfit
    mib = int(found[1]) * _BYTES[found[2] or ""] >> 20
    if mib < 1:
        raise Unfit
    return mib


MEMORY_MIB = Parser(
    expected="an amount of memory such as 40Gi, of at least 1Mi",
    convert=memory_mib,
    kinds=frozenset({YamlKind.STRING, YamlKind.INT}),
)
