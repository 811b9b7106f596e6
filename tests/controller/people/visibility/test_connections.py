"""What bounds connections: how many of whom, how long they may be silent, how slowly they may read."""

import asyncio
import contextlib
import socket
from typing import Final

import msgspec
from aiohttp import ClientSession, TCPConnector

from controller.people.visibility.identity import as_headers
from controller.people.visibility.server_shell import AMONG_US, BURST, LIMITS, PROXY, TIMES
from tests.controller.people.visibility.test_server import PATH, Scene, served
from tests.support.controller.viewworld import PERSON, SERVED_AS
from tests.support.hang import HANG_S

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
KNOWN: Final = "Authorization: Bearer secret-token\r\n"
NOBODY: Final = "Authorization: Bearer forged\r\n"


async def opened(scene: Scene, source: str = "127.0.0.1") -> Streams:
    return await asyncio.open_connection(
        "127.0.0.1",
        scene.server.port,
        ssl=scene.tls(),
        server_hostname=SERVED_AS,
        limit=1 << 20,
        local_addr=(source, 0),
    )


async def code_of(streams: Streams, headers: str = "", path: str = "/apis") -> bytes:
    """The status of an answer, which is read to its end; empty where the connection was closed."""
    reader, writer = streams
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(HANG_S):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            await reader.readexactly(length)
            return head.split(b" ")[1]
    return b""


async def closed(streams: Streams) -> bool:
    """The server closes the connection, sooner or later."""
    async with asyncio.timeout(HANG_S):
        with contextlib.suppress(OSError):
            return await streams[0].read() == b""
    return True


def ended(*all_of: Streams) -> None:
    for _, writer in all_of:
        writer.transport.abort()


async def test_a_slow_reader_is_cut_off() -> None:
    async with served(times=msgspec.structs.replace(TIMES, answer_s=0.1)) as scene:
        scene.server._documents["/apis"] = b"x" * 30_000_000
        plain = socket.create_connection(("127.0.0.1", scene.server.port))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        reader, writer = await asyncio.open_connection(
            sock=plain, ssl=scene.tls(), server_hostname=SERVED_AS, limit=1024
        )
        writer.write(f"GET /apis HTTP/1.1\r\nHost: x\r\n{KNOWN}\r\n".encode())
        await writer.drain()
        places = scene.server.listener.places
        async with asyncio.timeout(HANG_S):
            while len(places):  # noqa: ASYNC110 - its end is the kernel's
                await asyncio.sleep(0.01)
        assert not reader.at_eof()
        writer.transport.abort()


async def test_a_connection_that_says_nothing_is_cut_off() -> None:
    async with served(times=msgspec.structs.replace(TIMES, headers_s=0.1)) as scene:
        silent = await opened(scene)
        assert await closed(silent)
        ended(silent)


async def test_whoever_is_refused_keeps_no_connection_and_is_never_let_in() -> None:
    async with served() as scene:
        scene.api.allows = lambda spec: (
            spec["resourceAttributes"]["resource"] != "queueviews" if "resourceAttributes" in spec else True
        )
        for headers, path, code in ((NOBODY, "/apis", b"401"), ("", "/apis", b"401"), (KNOWN, PATH, b"403")):
            one = await opened(scene)
            assert await code_of(one, headers, path) == code
            assert await closed(one)
            ended(one)


async def test_whoever_asks_too_often_keeps_no_connection() -> None:
    async with served() as scene:
        one = await opened(scene)
        codes = [await code_of(one, KNOWN) for _ in range(BURST + 1)]
        assert (codes[0], codes[-1]) == (b"200", b"429")
        assert await closed(one)
        ended(one)


async def test_strangers_of_one_address_replace_each_other_and_no_person_behind_it() -> None:
    """Behind an Ingress all people come from one address: connections of those who were let in do not count."""
    async with served(limits=msgspec.structs.replace(LIMITS, per_address=2)) as scene:
        persons = [await opened(scene) for _ in range(2)]
        for each in persons:
            assert await code_of(each, KNOWN) == b"200"
        strangers = [await opened(scene) for _ in range(3)]
        assert await closed(strangers[0])
        for each in persons:
            assert await code_of(each, KNOWN) == b"200"
        for each in strangers[1:]:
            assert await code_of(each, KNOWN) == b"200"
        ended(*persons, *strangers)


async def test_a_user_has_so_many_connections_and_the_oldest_idle_one_makes_room() -> None:
    async with served(limits=msgspec.structs.replace(LIMITS, per_user=3)) as scene:
        first, *others = [await opened(scene) for _ in range(4)]
        for each in (first, *others):
            assert await code_of(each, KNOWN) == b"200"
        assert await closed(first)
        for each in others:
            assert await code_of(each, KNOWN) == b"200"
        ended(first, *others)


async def test_with_all_common_places_taken_discovery_and_an_administrator_are_answered() -> None:
    limits = msgspec.structs.replace(LIMITS, common=20, per_address=8, shaking=8)
    async with served(limits=limits) as scene:
        crowd = [await opened(scene, f"127.0.0.{10 + count % 10}") for count in range(60)]
        async with asyncio.timeout(HANG_S):
            while len(scene.server.listener.places) != 20:  # noqa: ASYNC110 - handshakes end in the kernel
                await asyncio.sleep(0.01)
        assert (await scene.get("/apis", tls=scene.front(), user=PERSON))[0] == 200
        person = await opened(scene, "127.0.0.99")
        assert await code_of(person, KNOWN, PATH) == b"200"
        scene.server.listener.places.validate()
        ended(*crowd, person)


async def test_the_front_proxy_has_places_that_nobody_else_takes() -> None:
    limits = msgspec.structs.replace(LIMITS, common=0, groups={PROXY: 2, AMONG_US: 1})
    async with served(limits=limits) as scene:
        person = await opened(scene)
        assert await code_of(person, KNOWN) == b""
        assert (await scene.get(tls=scene.front(), user=PERSON))[0] == 200
        ended(person)


async def test_the_front_proxys_connection_stays_when_one_of_its_users_is_refused() -> None:
    async with served() as scene:
        connector = TCPConnector(ssl=scene.front(), limit=1)
        made = 0
        async with ClientSession(connector=connector) as session:
            url = f"https://127.0.0.1:{scene.server.port}/apis"
            for headers, code in (({}, 401), (as_headers(PERSON), 200), ({}, 401), (as_headers(PERSON), 200)):
                async with session.get(url, headers=headers, server_hostname=SERVED_AS) as answer:
                    assert answer.status == code
                    await answer.read()
                    assert answer.connection is None or answer.connection.transport is not None
                made = max(made, len(scene.server.listener.places))
        assert made == 1
