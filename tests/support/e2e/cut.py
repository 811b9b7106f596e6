"""A TCP relay that a test can cut: how the API server looks to an agent while the network is gone."""

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self

CHUNK = 1 << 16


class Cut:
    """Relays connections from ``port`` on loopback to ``target``. Cut, it ends those there are and refuses others."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = _listen(0)
        self.port = int(self._listener.getsockname()[1])
        self._peers: dict[socket.socket, socket.socket] = {}
        self._stop, self._stopped = socket.socketpair()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._serve()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._stop.close()
        self._stopped.close()

    def cut(self) -> None:
        """End every connection; from now on none is accepted."""
        if self._thread is not None:
            self._stop.send(b"x")
            self._thread.join()
            self._thread = None

    def mend(self) -> None:
        """Relay again, on the same port."""
        self._listener = _listen(self.port)
        self._serve()

    def _serve(self) -> None:
        self._thread = threading.Thread(target=self._run, name="cut", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as ends:
            ends.callback(self._listener.close)
            ends.callback(self._drop_all)
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._stopped:
                        self._stopped.recv(1)
                        return
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                        self._relay(selector, key.fileobj)

    def _drop_all(self) -> None:
        for one in self._peers:
            one.close()
        self._peers.clear()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._peers[one] = other
            selector.register(one, selectors.EVENT_READ)

    def _relay(self, selector: selectors.BaseSelector, source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if data := source.recv(CHUNK):
                self._peers[source].sendall(data)
                return
        other = self._peers.pop(source)
        self._peers.pop(other)
        for one in (source, other):
            selector.unregister(one)
            one.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener
