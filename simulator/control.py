"""The control socket: orders for a running simulation, one JSON object a line, one answer a line.

One daemon thread serves every connection from a selector. Every line is answered, with an error line at worst: lines
and connections are bounded, and a client that does not read is dropped.
"""

import contextlib
import json
import logging
import selectors
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulator.fleet.orders import Order, parse_order
from simulator.hardware.hardware import OrderError
from simulator.reading import InputError, Reader, ValueSource

log = logging.getLogger(__name__)

SOCKET_FILE = "sim.sock"

LINE_LIMIT = 64 * 1024
MOST_CONNECTIONS = 16
SEND_TIMEOUT_S = 1.0


def read_request(line: bytes | str, gpus: int) -> Order:
    """The order in a line. Raises InputError."""
    source = ValueSource("order")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"order: found no JSON, expected one JSON object on one line ({error})") from None
    return parse_order(value, gpus, Reader(None, source))


class ControlServer:
    """The socket of one simulation, served until ``close``.

    ``obey`` follows the order on a line and answers; it may raise InputError or OrderError.

    ``_buffers`` and the selector belong to the serving thread; ``close`` touches them only after that thread has ended.
    """

    def __init__(self, path: Path, obey: Callable[[bytes], dict[str, Any]]) -> None:
        """Bind (0600, replacing a file at the path) and start serving. Raises OSError."""
        self._path = path
        self._obey = obey
        self._selector = selectors.DefaultSelector()
        self._buffers: dict[socket.socket, bytes] = {}
        self._listener = _listen(path)
        self._inode = path.stat().st_ino
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="simulator-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and remove the socket, unless another server has put its own there."""
        self._wake.close()
        self._thread.join()
        for connection in [*self._buffers, self._listener, self._woken]:
            connection.close()
        self._selector.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    def _run(self) -> None:
        while True:
            # The listener comes last: a connection that has ended makes room for one that came after its end.
            for key, _ in sorted(self._selector.select(), key=lambda event: event[0].fileobj is self._listener):
                peer = key.fileobj
                if peer is self._woken:
                    return
                if peer is self._listener:
                    self._accept()
                elif isinstance(peer, socket.socket):
                    self._receive(peer)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            log.warning("simulator control: %s", error)
            return
        if len(self._buffers) >= MOST_CONNECTIONS:
            connection.close()
            return
        connection.settimeout(SEND_TIMEOUT_S)
        self._buffers[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._buffers[connection]
        connection.close()

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(LINE_LIMIT)
            *lines, rest = (self._buffers[connection] + data).split(b"\n")
            for line in lines:
                connection.sendall(self._answer(line) + b"\n")
            if len(rest) > LINE_LIMIT:
                connection.sendall(b'{"error": "order: found too long a line, expected at most 64 KiB"}\n')
                data = b""
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        self._buffers[connection] = rest

    def _answer(self, line: bytes) -> bytes:
        try:
            answer = self._obey(line)
        except (InputError, OrderError) as error:
            answer = {"error": str(error)}
        except Exception as error:
            log.exception("simulator control")
            answer = {"error": f"order: {type(error).__name__}: {error}"}
        return json.dumps(answer).encode()


def _listen(path: Path) -> socket.socket:
    """A listening socket at the path, 0600 before anyone can find it there."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    try:
        listener.bind(str(new))
        new.chmod(0o600)
        listener.listen(MOST_CONNECTIONS)
        new.replace(path)
    except BaseException:
        listener.close()
        raise
    return listener
