"""One end of the socket between the two processes: it sends and receives frames."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Self, TypeVar

from controller.cluster.webhooks.apart import messages
from controller.cluster.webhooks.apart.messages import ToDecide, ToServe

T = TypeVar("T")


class Link(Generic[T]):
    """One end of a link. ``receive`` returns the other side's messages, which ``read`` makes from frames of
    ``most_bytes`` at most.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        read: Callable[[bytes], T],
        most_bytes: int,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._read = read
        self._most_bytes = most_bytes

    @classmethod
    async def over(cls, end: socket.socket, read: Callable[[bytes], T], most_bytes: int) -> Self:
        reader, writer = await asyncio.open_connection(sock=end)
        return cls(reader, writer, read, most_bytes)

    async def receive(self) -> T | None:
        """The next message; None at the end. Raises FrameError for bytes that the other side cannot have meant."""
        try:
            header = await self._reader.readexactly(messages.HEADER.size)
            return self._read(await self._reader.readexactly(messages.length(header, self._most_bytes)))
        except (asyncio.IncompleteReadError, OSError):
            return None

    def send(self, message: ToServe | ToDecide) -> None:
        """Sends a message, or nothing once the other side is gone."""
        if not self._writer.is_closing():
            self._writer.write(messages.framed(message))

    async def drain(self) -> None:
        """Returns when the other side has taken most of what was sent, or is gone."""
        with suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()
