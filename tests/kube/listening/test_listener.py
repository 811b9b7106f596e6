"""Connections over real sockets: what silent, slow, many and refused peers may hold, and for how long."""

import asyncio
import contextlib
import os
import resource
import socket
import ssl
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from aiohttp.web_exceptions import HTTPForbidden
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.webhooks.certificates import new_authority, new_client, new_serving
from controller.cluster.webhooks.tls import load
from controller.people.visibility.tls import calling
from kube.listening.connection import HEAD_BYTES, Head, Times
from kube.listening.listener import Listener
from kube.listening.places import Group, PlaceLimits
from kube.listening.sockets import RESERVED_FILES, raise_file_limit
from tests.support.hang import HANG_S

SHORT_S: Final = 0.1
"""A limit that a test waits for."""
LONG: Final = Times(handshake_s=HANG_S, headers_s=HANG_S, body_s=HANG_S, answer_s=HANG_S, idle_s=HANG_S)
FEW: Final = PlaceLimits(common=8, per_address=4, per_user=2)
GET: Final = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"

Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]


async def fine(_: BaseRequest) -> StreamResponse:
    return Response(text="fine")


class Clients:
    """Connections to one port, all closed at the end."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def open(
        self, source: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = "localhost" if tls is not None else None
        found = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(source, 0), ssl=tls, server_hostname=name
        )
        self._writers.append(found[1])
        return found

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def served(listener: Listener, handler: Handler = fine) -> AsyncIterator[Clients]:
    """``listener`` on a port of its own."""
    server = Server(lambda request: listener.answered(request, handler), access_log=None)
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    listening.setblocking(False)
    listener.serve(server, [listening])
    try:
        clients = Clients(listening.getsockname()[1])
        yield clients
    finally:
        await clients.close()
        await listener.close()
        await server.shutdown(0.1)


def tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server that asks for certificates, and a client that it trusts."""
    authority = new_authority(time.time())
    serving = new_serving(authority, ("localhost",), time.time())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=authority.certificate.decode())
    load(context, serving.certificate, serving.key)
    return context, calling(new_client(authority, "proxy", time.time()), authority.certificate)


async def answer(reader: asyncio.StreamReader) -> bytes:
    """One answer with a Content-Length."""
    async with asyncio.timeout(HANG_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return head + await reader.readexactly(length)


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came before the server closed the connection."""
    async with asyncio.timeout(HANG_S):
        with contextlib.suppress(ConnectionError):
            return await reader.read()
        return b""


async def settled(listener: Listener, count: int) -> None:
    async with asyncio.timeout(HANG_S):
        while len(listener.places) != count:  # noqa: ASYNC110 - its end is the kernel's and aiohttp's
            await asyncio.sleep(0)
    listener.places.validate()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"no HTTP at all\r\n\r\n"])
async def test_no_answer_names_the_versions_of_the_server(sent: bytes) -> None:
    async with served(Listener(FEW, LONG)) as clients:
        reader, writer = await clients.open()
        writer.write(sent)
        head = (await answer(reader)).decode()
        assert "\r\nServer: tessera\r\n" in head
        assert "aiohttp" not in head


async def test_a_silent_peer_is_cut_off() -> None:
    listener = Listener(FEW, msgspec.structs.replace(LONG, headers_s=SHORT_S))
    async with served(listener) as clients:
        reader, _ = await clients.open()
        assert await ended(reader) == b""
        await settled(listener, 0)


async def test_headers_that_come_byte_by_byte_have_one_deadline() -> None:
    listener = Listener(FEW, msgspec.structs.replace(LONG, headers_s=SHORT_S))
    async with served(listener) as clients:
        reader, writer = await clients.open()
        writer.write(GET)
        assert b"fine" in await answer(reader)
        writer.write(b"GET /")
        gone = asyncio.create_task(ended(reader))
        while not gone.done():
            writer.write(b"a")
            await asyncio.sleep(SHORT_S / 10)
        assert await gone == b""


async def test_a_head_without_end_is_cut_off_unread() -> None:
    listener = Listener(FEW, LONG)
    async with served(listener) as clients:
        reader, writer = await clients.open()
        writer.write(b"GET / HTTP/1.1\r\n")
        gone = asyncio.create_task(ended(reader))
        line, sent = b"X-A: " + b"a" * 4_000 + b"\r\n", 0
        while not gone.done():
            writer.write(line)
            sent += len(line)
            await asyncio.wait([gone], timeout=0.001)
            assert sent < 1 << 24, "it is still read"
        assert await gone == b""
        await settled(listener, 0)


async def test_a_head_is_counted_for_each_request_and_a_body_is_no_part_of_it() -> None:
    async def reading(request: BaseRequest) -> StreamResponse:
        return Response(text=str(len(await request.read())))

    listener = Listener(FEW, LONG)
    async with served(listener, reading) as clients:
        reader, writer = await clients.open()
        body = b"a" * (4 * HEAD_BYTES)
        for _ in range(3):
            head = b"POST / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * (HEAD_BYTES // 3) + b"\r\n"
            writer.write(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert (await answer(reader)).endswith(str(len(body)).encode())


@given(st.binary(max_size=60), st.lists(st.integers(1, 5)))
def test_a_head_has_the_same_size_however_it_comes(rest: bytes, sizes: list[int]) -> None:
    whole = b"GET / HTTP/1.1\r\nA: b\r\n\r\n"
    sent, head, at = whole + rest, Head(), 0
    for size in (*sizes, len(sent)):
        head.came(sent[at : at + size])
        at += size
    assert head.bytes == len(whole)


async def test_a_body_has_one_deadline() -> None:
    async def reading(request: BaseRequest) -> StreamResponse:
        return Response(body=await request.read())

    listener = Listener(FEW, msgspec.structs.replace(LONG, body_s=SHORT_S))
    async with served(listener, reading) as clients:
        reader, writer = await clients.open()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab")
        assert await ended(reader) == b""
        reader, writer = await clients.open()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        assert (await answer(reader)).endswith(b"abc")


async def test_an_answer_that_takes_long_to_be_made_is_not_cut_off() -> None:
    made = asyncio.Event()

    async def slow(_: BaseRequest) -> StreamResponse:
        await made.wait()
        return Response(text="late")

    times = msgspec.structs.replace(LONG, headers_s=SHORT_S, body_s=SHORT_S, idle_s=SHORT_S, answer_s=SHORT_S)
    listener = Listener(FEW, times)
    async with served(listener, slow) as clients:
        reader, writer = await clients.open()
        writer.write(GET)
        silent, _ = await clients.open()
        assert await ended(silent) == b""  # so much later
        made.set()
        assert b"late" in await answer(reader)


async def test_a_peer_that_reads_nothing_is_cut_off() -> None:
    async def large(_: BaseRequest) -> StreamResponse:
        return Response(body=bytes(32 << 20))

    listener = Listener(FEW, msgspec.structs.replace(LONG, answer_s=SHORT_S))
    async with served(listener, large) as clients:
        _, writer = await clients.open()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET)
        await settled(listener, 1)
        await settled(listener, 0)


async def test_an_idle_connection_is_closed_and_a_proved_groups_later() -> None:
    server, trusting = tls()
    group = Group("proxy")
    listener = Listener(
        msgspec.structs.replace(FEW, shaking=3, groups={group: 2}),
        msgspec.structs.replace(LONG, idle_s=SHORT_S, idle_by_group={group: HANG_S}),
        tls=server,
        group_of_peer=lambda transport: group if transport.get_extra_info("peercert") else None,
    )
    async with served(listener) as clients:
        proxy = await clients.open(tls=trusting)
        unproved = ssl.create_default_context()
        unproved.check_hostname, unproved.verify_mode = False, ssl.CERT_NONE
        other = await clients.open(tls=unproved)
        for reader, writer in (proxy, other):
            writer.write(GET)
            await answer(reader)
        assert await ended(other[0]) == b""
        proxy[1].write(GET)
        assert b"fine" in await answer(proxy[0])


@pytest.mark.parametrize("code", [401, 403, 429])
async def test_a_refused_peer_is_not_kept(code: int) -> None:
    async def refuses(_: BaseRequest) -> StreamResponse:
        return Response(status=code, text="no")

    listener = Listener(FEW, LONG)
    async with served(listener, refuses) as clients:
        reader, writer = await clients.open()
        writer.write(GET)
        found = await ended(reader)
        assert found.startswith(f"HTTP/1.1 {code}".encode())
        assert found.endswith(b"no")


async def test_a_refusal_that_is_raised_is_one_too() -> None:
    async def refuses(_: BaseRequest) -> StreamResponse:
        raise HTTPForbidden

    listener = Listener(FEW, LONG)
    async with served(listener, refuses) as clients:
        reader, writer = await clients.open()
        writer.write(GET)
        assert (await ended(reader)).startswith(b"HTTP/1.1 403")


async def test_silent_peers_of_one_address_keep_out_nobody_else() -> None:
    listener = Listener(FEW, LONG)
    async with served(listener) as clients:
        for _ in range(30):
            await clients.open()
        reader, writer = await clients.open("127.0.0.3")
        writer.write(GET)
        assert b"fine" in await answer(reader)
        await settled(listener, FEW.per_address + 1)
        writer.write(GET)
        assert b"fine" in await answer(reader)


async def test_a_user_above_the_bound_is_refused() -> None:
    hold = asyncio.Event()
    came = asyncio.Semaphore(0)

    async def known(request: BaseRequest) -> StreamResponse:
        if listener.full(request, "ann"):
            return Response(status=429, text="too many")
        listener.granted(request, "ann")
        came.release()
        await hold.wait()
        return Response(text="hello")

    listener = Listener(FEW, LONG)
    async with served(listener, known) as clients:
        first = [await clients.open() for _ in range(FEW.per_user)]
        for _, writer in first:
            writer.write(GET)
            await came.acquire()
        reader, writer = await clients.open()
        writer.write(GET)
        assert (await ended(reader)).startswith(b"HTTP/1.1 429")
        hold.set()
        for reader, _ in first:
            assert b"hello" in await answer(reader)


async def test_peers_that_are_silent_in_tls_hold_no_place() -> None:
    context, trusting = tls()
    listener = Listener(
        msgspec.structs.replace(FEW, shaking=3), msgspec.structs.replace(LONG, handshake_s=SHORT_S), tls=context
    )
    async with served(listener) as clients:
        silent = [await clients.open(f"127.0.0.{10 + count}") for count in range(20)]
        reader, writer = await clients.open(tls=trusting)
        writer.write(GET)
        assert b"fine" in await answer(reader)
        for each, _ in silent:
            assert await ended(each) == b""
        await settled(listener, 1)


@contextlib.contextmanager
def files_in_a_row() -> Iterator[int]:
    """The number of the next file. All below it are open meanwhile: those that come are numbered one after another."""
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    fillers: list[int] = []
    while not fillers or fillers[-1] <= highest:
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    os.close(fillers[-1])
    try:
        yield fillers.pop()
    finally:
        for each in fillers:
            os.close(each)


async def test_connections_leave_files_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(msgspec.structs.replace(FEW, common=64, per_address=64), LONG)
    async with served(listener) as clients:
        with files_in_a_row() as lowest:
            limit = lowest + RESERVED_FILES + 12
            monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
            refused = [asyncio.create_task(ended((await clients.open())[0])) for _ in range(20)]
            await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
            assert 0 < len(listener.places) < 12
        for task in refused:
            task.cancel()


def test_the_soft_limit_of_files_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_request_whose_connection_is_gone_before_its_turn_is_no_error() -> None:
    listener = Listener(FEW, LONG)
    assert (await listener.answered(make_mocked_request("GET", "/"), fine)).status == 400
    assert len(listener.places) == 0


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("safe", [False, True])
async def test_a_connection_accepted_as_the_listener_closes_is_closed_too(turns: int, safe: bool) -> None:
    listener = Listener(FEW, LONG, tls=tls()[0] if safe else None)
    async with served(listener) as clients:
        await asyncio.sleep(0)
        peer = socket.create_connection(("127.0.0.1", clients.port), timeout=HANG_S)
        for _ in range(turns):
            await asyncio.sleep(0)
    with peer:
        await asyncio.sleep(0)
        assert not files_to(peer.getsockname(), but=peer.fileno())


def files_to(address: tuple[str, int], *, but: int) -> list[int]:
    """Open sockets of this process whose peer is at this address."""
    found: list[int] = []
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        with contextlib.suppress(OSError):
            if number != but and stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as each:
                    if each.family == socket.AF_INET and each.getpeername() == address:
                        found.append(number)
    return found
