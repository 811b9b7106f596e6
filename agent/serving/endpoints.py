"""The agent's two listeners: probes and metrics over TCP, its report on a local socket for people.

They listen from the first moment, and answer once ``serve`` has loaded the handlers: earlier requests wait.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config.settings import Address
from agent.process import heap
from agent.report import Answers
from kube.listening.sockets import listening

if TYPE_CHECKING:
    from agent.serving.handlers import Handlers

log = logging.getLogger(__name__)

SOCKET_NAME = "agent.sock"
BACKLOG = 128


class Endpoints:
    """Starts and stops the listeners. No request is answered before ``serve``; none is refused after ``bind``."""

    def __init__(self, answers: Answers, node_addresses: Sequence[str] = ()) -> None:
        """``node_addresses``: addresses of this node beside those that its routes tell."""
        self._answers = answers
        self._node_addresses = node_addresses
        self._public: list[socket.socket] = []
        self._local: socket.socket | None = None
        self._path: Path | None = None
        self._handlers: Handlers | None = None
        self.port = 0

    @property
    def serving(self) -> bool:
        return self._handlers is not None

    def bind(self, address: Address | None, state_dir: Path) -> None:
        """Listen on both (``address`` None: on the socket alone). Raises OSError where the address cannot be used;
        without a folder that can be written there is no local socket.

        ``port`` is then the TCP port in use; port 0 asks for any.
        """
        if address is not None:
            self._public = listening(address.host, address.port, backlog=BACKLOG)
            self.port = int(self._public[0].getsockname()[1])
        path = state_dir / SOCKET_NAME
        try:
            self._local = _local(path)
        except OSError as failed:
            log.warning("no local socket", extra={"path": str(path), "error": str(failed)})
            return
        self._path = path

    async def serve(self) -> None:
        """Answer requests from now on. The handlers are loaded on a thread: devices are served meanwhile."""
        handlers = await asyncio.to_thread(_handlers, self._answers, self._node_addresses)
        handlers.serve(self._public, self._local)
        self._handlers = handlers

    async def start(self, address: Address | None, state_dir: Path) -> None:
        """Call ``bind``, then ``serve``. Raises OSError."""
        self.bind(address, state_dir)
        await self.serve()

    async def stop(self) -> None:
        if self._handlers is not None:
            await self._handlers.stop()
        for listener in (*self._public, *([] if self._local is None else [self._local])):
            listener.close()
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()


def _local(path: Path) -> socket.socket:
    """A socket that only this user can open. Raises OSError."""
    # The state folder belongs to one agent: a socket there is a dead agent's.
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    _open(listener)
    return listener


def _handlers(answers: Answers, node_addresses: Sequence[str]) -> "Handlers":
    heap.lean_aiohttp()
    from agent.serving.handlers import Handlers

    return Handlers(answers, node_addresses)


def _open(listener: socket.socket) -> None:
    listener.listen(BACKLOG)
    listener.setblocking(False)
