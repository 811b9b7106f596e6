"""Escapes the characters that a terminal would obey: text of objects may come from anybody."""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """The text with every control character but line ends and tabs as its escape: ``\\x1b`` for ESC."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def one_line(text: str) -> str:
    """The visible text, with line ends and tabs as their escapes too: an object's text stays in its line."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")
