"""One parser under fuzzing: what it is given, and what may come out. Pure, but for what the parser itself does."""

import traceback
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

ROOT: Final = Path(__file__).parents[2]
MOST_MESSAGE: Final = 4_000
"""Characters of an error beside what it repeats of the input."""

HOSTILE: Final = (
    b"",
    b"\0",
    b"\xff\xfe",
    b'"\xe2\x81"',
    b"[" * 5_000,
    b'{"":' * 5_000,
    b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b'{"metadata":{"name":"a"},"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    b"- " * 2_000,
    b"{" * 2_000,
    b"9" * 5_000,
    b"-" + b"9" * 5_000 + b"." + b"9" * 5_000,
    b'{"a":1e999,"a":NaN}',
    b"a: &a [*a]",
    b"&a [&b [*b,*b],*a]",
    "\u202e\u2066{}\ufeff".encode(),
    "\u00b2\u0663".encode(),
)
"""Every target gets these too, once: what is so long is not changed any further."""

DEEP: Final = {
    "json": (
        b"[" * 1_100,
        b'{"":' * 1_100,
        b'{"metadata":{"name":"a"},"a":' + b"[" * 1_100 + b"]" * 1_100 + b"}",
    ),
    "text": (b"[" * 300, b"- " * 300, b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"),
    "bytes": (),
}
"""By shape: deep enough that the stack ends, and no deeper. An execution takes as long as its input is deep."""

Parse = Callable[[bytes], object]


class Shape(StrEnum):
    """What inputs look like, which decides how they are changed."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


class Target(Struct, frozen=True, kw_only=True):
    """``make`` imports the parser and gives it, with the errors that it declares. ``seeds`` reach deep into it.

    ``writer``: the people and programs that can write these bytes. ``each_line``: the beginning of each line of its
    errors, which may then have a line for each problem; empty: an error is one line.
    """

    name: str
    what: str
    writer: str
    make: Callable[[], tuple[Parse, tuple[type[Exception], ...]]]
    seeds: Callable[[], Sequence[bytes]]
    shape: Shape = Shape.JSON
    each_line: str = ""


class Defect(Exception):  # noqa: N818 - what was found, not what went wrong here
    """Something else came out than a value or a declared error. ``key`` is the same for the same defect."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def execute(parse: Parse, declared: tuple[type[Exception], ...], data: bytes, *, each_line: str = "") -> bool:
    """Whether a value came out; False for a declared error. ``each_line`` as in ``Target``. Raises Defect."""
    try:
        parse(data)
    except declared as error:
        _check_message(error, len(data), each_line)
        return False
    except Exception as error:  # noqa: BLE001 - any other error is what is looked for
        key = f"{type(error).__name__} at {_place(error)}"
        raise Defect(key, "".join(traceback.format_exception(error))) from None
    return True


def _check_message(error: Exception, given: int, each_line: str) -> None:
    text = str(error)
    lines = text.splitlines()
    if len(lines) > 1 and not (each_line and all(line.startswith(each_line) for line in lines)):
        raise Defect(f"an error of several lines at {_place(error)}", text)
    if len(text) > given + MOST_MESSAGE:
        raise Defect(f"an error far longer than its input at {_place(error)}", text[:MOST_MESSAGE])


def _place(error: Exception) -> str:
    """The innermost line of our own code, which a library's lines may lie below."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(str(ROOT)) and "/.venv/" not in frame.filename]
    last = (own or frames)[-1]
    return f"{Path(last.filename).relative_to(ROOT) if own else last.filename}:{last.lineno}"
