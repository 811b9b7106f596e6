"""Work in parts of a few milliseconds: whoever asks for it pauses between them, so that decisions get their turn."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Parts = Generator[None, None, T]
"""Each ``next`` does some of the work; the result is what it returns in the end."""


def finished(parts: Parts[T]) -> T:
    """The result, without a pause."""
    while True:
        try:
            next(parts)
        except StopIteration as done:
            result: T = done.value
            return result
