"""One key of the configuration file: its parser, and its documentation."""

from typing import Any

from msgspec import Struct

from controller.cluster.config.values import Read, by, label_selector
from yamlfile.parsers import Parser


class Key(Struct, frozen=True, kw_only=True):
    """One key. ``default`` and ``meaning`` are shown to users; ``without_effect``: why it has no effect, else empty.

    ``instead`` is set for keys that v1beta1 alone has: the text about what replaces them in v1beta2.
    """

    path: str
    read: Read
    expected: str
    default: str = ""
    meaning: str = ""
    without_effect: str = ""
    instead: str = ""


def key(path: str, parser: Parser, default: str, meaning: str, **more: Any) -> Key:
    return Key(path=path, read=by(parser), expected=parser.expected, default=default, meaning=meaning, **more)


def selector(path: str, default: str, meaning: str, **more: Any) -> Key:
    return Key(path=path, read=label_selector, expected="a label selector", default=default, meaning=meaning, **more)


def unused(path: str, parser: Parser, why: str, **more: Any) -> Key:
    return Key(path=path, read=by(parser), expected=parser.expected, without_effect=why, **more)
