"""Work in parts of a few milliseconds: the caller pauses between them, so that decisions get their turn."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Parts = Generator[None, None, T]
"""A generator that does some of its work at each ``next``, and returns the result in the end."""


def finished(parts: Parts[T]) -> T:
    """The result of the work, without a pause."""
    while True:
        try:
            next(parts)
        except StopIteration as done:
            result: T = done.value
            return result
