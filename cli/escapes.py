"""Text of objects is anybody's: what of it a terminal would obey is shown as its escape."""

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """The text with every control character but line ends and tabs as its escape: ``\\x1b`` for ESC."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def one_line(text: str) -> str:
    """Visible, with line ends and tabs as their escapes too: what an object says stays in the line it stands in."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")
