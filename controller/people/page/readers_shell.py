"""One reader of events, and the bytes that all readers hold.

A stream ends if its reader does not take a piece in time; too many bytes end the slowest stream.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from controller.people.page.frames import GZIP, stored

READ_S: Final = 20.0
"""A reader has to take each piece in this time."""
FRAME_S: Final = 30.0
"""A reader has to take the whole of a frame in this time."""
MOST_HELD_BYTES: Final = 64 * 1024 * 1024
_PIECE: Final = 64 * 1024


class Held:
    """The bytes that are being sent. A frame that many readers take counts once. Beyond ``most`` bytes the readers that
    began first are cut.
    """

    def __init__(self, most: int = MOST_HELD_BYTES) -> None:
        self._most = most
        self._raws: dict[Reader, bytes] = {}
        self._takers: dict[int, int] = {}
        self.size = 0

    @contextmanager
    def sending(self, reader: "Reader", raw: bytes) -> Iterator[None]:
        self._raws[reader] = raw
        self._takers[id(raw)] = self._takers.get(id(raw), 0) + 1
        if self._takers[id(raw)] == 1:
            self.size += len(raw)
        while self.size > self._most and len(self._raws) > 1:
            slowest = next(iter(self._raws))
            slowest.cut()
            self._done(slowest)
        try:
            yield
        finally:
            self._done(reader)

    def _done(self, reader: "Reader") -> None:
        raw = self._raws.pop(reader, None)
        if raw is None:
            return
        self._takers[id(raw)] -= 1
        if not self._takers[id(raw)]:
            del self._takers[id(raw)]
            self.size -= len(raw)


class Reader:
    """One connection. Each piece has to be taken in time. Methods raise TimeoutError and ConnectionError."""

    def __init__(self, request: web.Request, response: web.StreamResponse, held: Held, *, packed: bool) -> None:
        self._request = request
        self._response = response
        self._held = held
        self.packed = packed

    @property
    def gone(self) -> bool:
        return self._request.transport is None or self._request.transport.is_closing()

    def cut(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    async def begin(self) -> None:
        if self.packed:
            await self._write(GZIP)

    async def tell(self, event: str, data: Mapping[str, Any]) -> None:
        await self._text(b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data)))

    async def mark(self, text: str) -> None:
        await self._text(b"event: mark\nid: %b\ndata: {}\n\n" % text.encode())

    async def retry(self, after_s: float) -> None:
        """Tells the browser how long to wait before it connects again."""
        await self._text(b"retry: %d\n\n" % round(after_s * 1000))

    async def send(self, raw: bytes) -> None:
        """Sends a frame, encoded as this reader takes it."""
        with self._held.sending(self, raw):
            await self._write(raw)

    async def _text(self, raw: bytes) -> None:
        await self._write(stored(raw) if self.packed else raw)

    async def _write(self, raw: bytes) -> None:
        async with asyncio.timeout(FRAME_S):
            for start in range(0, len(raw), _PIECE):
                async with asyncio.timeout(READ_S):
                    await self._response.write(raw[start : start + _PIECE])
