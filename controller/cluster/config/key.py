"""One key of the configuration file: its parser, and its documentation."""

from typing import Any

from msgspec import Struct

from controller.cluster.config.values import LABEL_VALUE, Read, by, check_label_key, label_selector
from yamlfile.parsers import Parser
from yamlfile.place import Place


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


def labels(path: str, default: str, meaning: str) -> Key:
    """A map of labels: ``path`` ends in ``.*``."""
    above = path.removesuffix("*")

    def read(place: Place) -> str:
        check_label_key(place.path.removeprefix(above), place)
        value: str = place.value(LABEL_VALUE)
        return value

    return Key(path=path, read=read, expected=LABEL_VALUE.expected, default=default, meaning=meaning)


def selector(path: str, default: str, meaning: str, **more: Any) -> Key:
    return Key(path=path, read=label_selector, expected="a label selector", default=default, meaning=meaning, **more)


def unused(path: str, parser: Parser, why: str, **more: Any) -> Key:
    return Key(path=path, read=by(parser), expected=parser.expected, without_effect=why, **more)
