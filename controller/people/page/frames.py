"""Events as they are sent: encoded and compressed once for all readers who lack the same and see the same. Pure.

A compressed stream is a header and blocks that refer to nothing before them, so that one block fits into every stream.
The stream has no end mark: it is cut.
"""

import re
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from controller.people.page.table import Changes, framed

GZIP: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW_DEFLATE: Final = -15
_LEVEL: Final = 1
_STORED: Final = 0xFFFF
_MOST_BYTES: Final = 64 * 1024 * 1024
_NUMBER: Final = re.compile(r"[0-9]{1,15}")


class Place(NamedTuple):
    """What a frame shows. ``since`` is the revision that its readers have; None for readers who have nothing."""

    epoch: str
    visible: str
    topic: str
    since: int | None


class Frame(NamedTuple):
    revision: int
    body: bytes
    packed: bytes

    @classmethod
    def of(cls, topic: str, changes: Changes, raws: Iterator[tuple[str, bytes]]) -> "Frame":
        kind = b"snapshot" if changes.whole else b"delta"
        body = b"event: %b\ndata: %b\n\n" % (kind, framed(topic, changes, raws))
        return cls(changes.revision, body, packed(body))


class Frames:
    """The newest frames, of 64 MiB together."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._found: OrderedDict[Place, Frame] = OrderedDict()
        self.size = 0

    def get(self, at: Place) -> Frame | None:
        return self._found.get(at)

    def put(self, at: Place, frame: Frame) -> None:
        before = self._found.pop(at, None)
        self.size += _size(frame) - (_size(before) if before is not None else 0)
        self._found[at] = frame
        while self.size > self._most:
            _, gone = self._found.popitem(last=False)
            self.size -= _size(gone)


def _size(frame: Frame) -> int:
    return len(frame.body) + len(frame.packed)


def packed(raw: bytes) -> bytes:
    """A block of a compressed stream."""
    made = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
    return made.compress(raw) + made.flush(zlib.Z_FULL_FLUSH)


def stored(raw: bytes) -> bytes:
    """A block of a compressed stream for few bytes, stored without compression; more bytes are packed."""
    if len(raw) > _STORED:
        return packed(raw)
    return b"\x00" + struct.pack("<HH", len(raw), len(raw) ^ _STORED) + raw


def marked(epoch: str, has: Mapping[str, int]) -> str:
    """The event id that says what a reader has: ``EPOCH.VISIBLE.TOPIC=REVISION,...``"""
    return f"{epoch}.{','.join(f'{topic}={revision}' for topic, revision in sorted(has.items()))}"


def read_mark(text: str, epoch: str) -> dict[str, int]:
    """Revisions by topic that an event id holds; empty for an id of another term or other rights, or text that is no
    id.
    """
    of, _, rest = text.rpartition(".")
    pairs = (part.partition("=") for part in rest.split(",")) if of == epoch else ()
    return {topic: int(number) for topic, _, number in pairs if _NUMBER.fullmatch(number)}
