"""Peers that break off, on real sockets: in a handshake, in a body, in an answer, or with bytes that are no HTTP."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import psutil

from kube.testing import eventually
from tests.support.hang import HANG_S

_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: what is closed is reset."""
_HELLO: Final = bytes.fromhex("16030100c8010000c40303")
"""The beginning of a TLS ClientHello."""

_TURNS: Final = 50
"""Of the loop: what a handler still says of a connection that is closed takes two or three."""


@dataclass(frozen=True)
class Target:
    """``get``: a path with a large answer, ``post``: one that takes a body. ``tls``: where the port speaks it."""

    port: int
    get: str
    post: str
    tls: ssl.SSLContext | None = None
    name: str = "localhost"
    headers: str = ""

    def head(self, method: str, path: str, more: str = "") -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{self.headers}{more}\r\n".encode()

    def plain(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), timeout=HANG_S)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return made

    def opened(self) -> socket.socket:
        """Ready for HTTP."""
        return self.plain() if self.tls is None else self.tls.wrap_socket(self.plain(), server_hostname=self.name)


Peer = Callable[[Target], None]


def _sends(*parts: bytes, answered: bool = False) -> Peer:
    """Sends these parts, waits for the first bytes of an answer where it is ``answered``, and resets."""

    def peer(target: Target) -> None:
        with target.opened() as connection, contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
            if answered:
                connection.recv(1)

    return peer


def _raw(data: bytes, *, answered: bool = True) -> Peer:
    def peer(target: Target) -> None:
        with target.plain() as connection, contextlib.suppress(OSError):
            connection.sendall(data)
            if answered:
                connection.recv(1)

    return peer


def _mid_body(target: Target) -> None:
    _sends(target.head("POST", target.post, "Content-Length: 1000\r\n"), b"{")(target)


def _mid_chunk(target: Target) -> None:
    _sends(target.head("POST", target.post, "Transfer-Encoding: chunked\r\n"), b"40\r\n{")(target)


def _bad_chunk(target: Target) -> None:
    head = target.head("POST", target.post, "Transfer-Encoding: chunked\r\n")
    _sends(head, b"nothing\r\n{", answered=True)(target)


def _mid_answer(target: Target) -> None:
    _sends(target.head("GET", target.get), answered=True)(target)


def _before_the_answer(target: Target) -> None:
    _sends(target.head("GET", target.get) * 20)(target)


def _half_closed_mid_body(target: Target) -> None:
    with target.opened() as connection, contextlib.suppress(OSError):
        connection.sendall(target.head("POST", target.post, "Content-Length: 1000\r\n") + b"{")
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)


def _distrusts(target: Target) -> None:
    with contextlib.suppress(OSError), target.plain() as plain:
        ssl.create_default_context().wrap_socket(plain, server_hostname=target.name)


def _corrupts(target: Target) -> None:
    """A record after the handshake that no key opens."""
    with target.plain() as plain, contextlib.suppress(OSError):
        assert target.tls is not None
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = target.tls.wrap_bio(incoming, outgoing, server_hostname=target.name)
        while True:
            try:
                session.do_handshake()
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(2**16))
            else:
                break
        plain.sendall(outgoing.read() + b"\x17\x03\x03\x00\x20" + b"x" * 32)
        while plain.recv(2**16):
            pass


HTTP: Final[Mapping[str, Peer]] = {
    "resets a new connection": _sends(),
    "resets in a head": _sends(b"GET / HTTP/1.1\r\nHo"),
    "resets in a body": _mid_body,
    "resets in a chunk": _mid_chunk,
    "half closes in a body": _half_closed_mid_body,
    "sends a bad chunk": _bad_chunk,
    "resets in an answer": _mid_answer,
    "resets before its answers": _before_the_answer,
    "sends no HTTP": _sends(b"\x00\x01nothing\r\n\r\n", answered=True),
    "sends a bad method": _sends(b"G@T / HTTP/1.1\r\n\r\n", answered=True),
    "sends a bad version": _sends(b"GET / HTTP/9.x\r\n\r\n", answered=True),
    "sends a bad header": _sends(b"GET / HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n", answered=True),
    "sends a bad length": _sends(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", answered=True),
    "sends too long a head": _sends(b"GET / HTTP/1.1\r\nHost: x\r\na: " + b"x" * 2**17 + b"\r\n\r\n", answered=True),
    "asks for a protocol": _sends(
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x00\x01", answered=True
    ),
}
_HEARD: Final = tuple(name for name in HTTP if name.startswith("sends "))
TLS: Final[Mapping[str, Peer]] = {
    "resets in the handshake": _raw(_HELLO, answered=False),
    "speaks no TLS": _raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "distrusts the certificate": _distrusts,
    "sends a record that no key opens": _corrupts,
}
PLAIN: Final[Mapping[str, Peer]] = {"speaks TLS": _raw(_HELLO + b"\r\n\r\n")}


def peers(target: Target) -> Mapping[str, Peer]:
    return {**HTTP, **(PLAIN if target.tls is None else TLS)}


async def visited(target: Target, peer: Peer) -> None:
    """The peer has come and gone, and the server has closed its side."""
    await asyncio.to_thread(peer, target)
    here = psutil.Process(os.getpid())

    def gone() -> bool:
        kept = [each for each in here.net_connections("tcp") if each.laddr and each.laddr.port == target.port]
        return all(each.status == psutil.CONN_LISTEN for each in kept)

    await eventually(gone, what="the server keeps the connection")
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def claim_one_line(target: Target, written: Callable[[], str]) -> None:
    """Assert that each peer is one line of the log at most, at debug, and no traceback. ``written``: the whole log."""
    told = 0
    for name, peer in peers(target).items():
        before = len(written())
        await visited(target, peer)
        lines = [line for line in written()[before:].splitlines() if "logger=aiohttp.access" not in line]
        assert len(lines) <= 1, (name, lines)
        for line in lines:
            assert " level=debug " in line, (name, line)
            assert ' msg="a peer broke off" error=' in line, (name, line)
            assert "exception=" not in line, (name, line)
        told += len(lines)
    assert told >= len(_HEARD), "what is no HTTP is told by aiohttp"
