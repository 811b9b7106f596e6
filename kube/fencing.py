"""The fence around a leader's writes: leadership is checked once more when a request is about to leave this process.

Between a decision to write and the request's bytes lies a wait for a connection, and perhaps a loop that stands still.
A leader whose lease ran out meanwhile must not send what it had begun. The check travels with the task's context, so
that it stands at the one place that knows it and holds for whichever connection the request gets.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from kube.errors import UnavailableError
from kube.leanaiohttp import aiohttp

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.client_reqrep import ClientResponse
    from aiohttp.connector import Connection

_MAY_SEND: Final[ContextVar[Callable[[], bool] | None]] = ContextVar("may_send", default=None)


@contextmanager
def fenced(may_send: Callable[[], bool]) -> Iterator[None]:
    """A context whose requests leave only while ``may_send`` is true; else they end with UnavailableError."""
    token = _MAY_SEND.set(may_send)
    try:
        yield
    finally:
        _MAY_SEND.reset(token)


def _may_send() -> bool:
    may_send = _MAY_SEND.get()
    return may_send is None or may_send()


class FencedRequest(aiohttp.ClientRequest):
    """Checks the fence when it has a connection, and again when its bytes are written, which another task does."""

    async def send(self, conn: "Connection") -> "ClientResponse":
        if not _may_send():
            raise UnavailableError("not sent: another process may hold the lease")
        return await super().send(conn)

    async def write_bytes(
        self, writer: "AbstractStreamWriter", conn: "Connection", content_length: int | None = None
    ) -> None:
        if not _may_send():
            conn.close()  # the request keeps its headers; the caller that awaits the answer hears of the end
            return
        await super().write_bytes(writer, conn, content_length)
