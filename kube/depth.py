"""Decodes JSON of any depth. A decoder goes down with what it reads, even with what it passes over, and gives up where
the stack ends; the API server keeps far deeper values wherever a kind lets its users write what they like.
"""

import re
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

MOST: Final = 128
"""The levels that are kept of a text that is too deep. No field that is read lies as deep, nor does a list around it
add much.
"""
_OPENING: Final = b"[{"
_BRACKET: Final = re.compile(
    rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+[\[\]{}]',
    re.DOTALL,
)
"""The text up to the next bracket that is not in a string."""


def decode(raw: bytes, kind: type[T]) -> T:
    """Decode as msgspec does; a text that is too deep for it is read without its depths. Raises msgspec.DecodeError,
    also for bytes that are not UTF-8.
    """
    try:
        return _decode(raw, kind)
    except RecursionError:
        return _decode(cut(raw), kind)


def _decode(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UnicodeDecodeError as wrong:  # msgspec's own errors do not cover it
        raise msgspec.DecodeError(str(wrong)) from None


def cut(raw: bytes) -> bytes:
    """``raw`` with null for every array and object below ``MOST`` others. A text that is not JSON is not JSON
    afterwards.
    """
    parts: list[bytes] = []
    depth = copied = at = 0
    while (found := _BRACKET.match(raw, at)) is not None:
        at = found.end()
        if raw[at - 1] in _OPENING:
            depth += 1
            if depth == MOST + 1:
                parts.append(raw[copied : at - 1])
        else:
            if depth == MOST + 1:
                parts.append(b"null")
                copied = at
            depth -= 1
    # An array or object that never ends is left out too: the decoder must not go down there.
    return b"".join(parts if depth > MOST else [*parts, raw[copied:]])
