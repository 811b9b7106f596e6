"""JSON of any depth. A decoder goes down with what it reads, even with what it passes over, and gives up where the
stack ends; the API server keeps far deeper values wherever a kind lets its users write what they like.
"""

import re
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

MOST: Final = 128
"""Levels that are kept of what is too deep. No field that is read lies as deep, nor does a list around it add much."""
_OPENING: Final = b"[{"
_BRACKET: Final = re.compile(
    rb'[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+[\[\]{}]',
    re.DOTALL,
)
"""Up to the next bracket that is in no string."""


def decode(raw: bytes, kind: type[T]) -> T:
    """As msgspec has it; what is too deep for it is read without its depths. Raises msgspec.DecodeError, also for what
    is no UTF-8.
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
    """``raw`` with null for every array and object below ``MOST`` others. What is no JSON is none afterwards."""
    parts: list[bytes] = []
    depth = kept = at = 0
    while (found := _BRACKET.match(raw, at)) is not None:
        at = found.end()
        if raw[at - 1] in _OPENING:
            depth += 1
            if depth == MOST + 1:
                parts.append(raw[kept : at - 1])
        else:
            if depth == MOST + 1:
                parts.append(b"null")
                kept = at
            depth -= 1
    # What never ends is left out too: the decoder must not go down there.
    return b"".join(parts if depth > MOST else [*parts, raw[kept:]])
