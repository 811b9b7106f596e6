"""A TCP relay that can be made to stall. What a client has sent meanwhile arrives later, even if it has hung up, as in
a network that delays and does not lose.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Final, Self

_PIECE: Final = 1 << 16


class Relay:
    """``port`` leads to ``to_port`` of this host. ``stalled`` is for the user to set."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def stalled(self) -> bool:
        return not self._flows.is_set()

    @stalled.setter
    def stalled(self, stalled: bool) -> None:
        (self._flows.clear if stalled else self._flows.set)()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        back = asyncio.create_task(self._passed(server_reader, writer))
        try:
            await self._passed(reader, server_writer)
            # The server's answer to what came late is waited for, though nobody takes it.
            await asyncio.wait([back], timeout=1.0)
        finally:
            back.cancel()
            for each in (writer, server_writer):
                each.close()

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(_PIECE):
                await self._flows.wait()
                writer.write(piece)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
            await self._flows.wait()
