"""What bounds connections: how many, how long they may be silent, how slowly they may read."""

import asyncio
import contextlib
import socket

import aiohttp
import pytest

from controller.visibility import server_shell
from kube.testing import eventually
from tests.controller.visibility.test_server import TOKEN, Scene, served
from tests.support.controller.viewworld import PERSON, SERVED_AS
from tests.support.hang import HANG_S

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(scene: Scene) -> Streams:
    return await asyncio.open_connection(
        "127.0.0.1", scene.server.port, ssl=scene.tls(), server_hostname=SERVED_AS, limit=1024
    )


async def first_line(streams: Streams, more: str = "") -> bytes:
    """Of what is answered on this connection; empty if it was closed."""
    reader, writer = streams
    writer.write(f"GET /apis HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
    with contextlib.suppress(ConnectionError):
        return await reader.readline()
    return b""


async def test_a_slow_reader_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_shell, "READ_S", 0.1)
    async with served() as scene:
        scene.server._documents["/apis"] = b"x" * 30_000_000
        plain = socket.create_connection(("127.0.0.1", scene.server.port))
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        reader, writer = await asyncio.open_connection(
            sock=plain, ssl=scene.tls(), server_hostname=SERVED_AS, limit=1024
        )
        writer.write(b"GET /apis HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret-token\r\n\r\n")
        await writer.drain()
        assert scene.server._runner is not None
        assert scene.server._runner.server is not None
        served_by = scene.server._runner.server
        await eventually(lambda: not served_by.connections, what="it is still served")
        assert not reader.at_eof()
        writer.transport.abort()


async def test_a_connection_that_says_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_shell, "_FIRST_S", 0.1)
    async with served() as scene:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", scene.server.port, ssl=scene.tls(), server_hostname=SERVED_AS
        )
        async with asyncio.timeout(HANG_S):
            assert await reader.read() == b""
        writer.close()


async def test_there_are_so_many_connections_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_shell, "_CONNECTIONS", 1)
    async with served() as scene:
        name = SERVED_AS
        _, writer = await asyncio.open_connection("127.0.0.1", scene.server.port, ssl=scene.tls(), server_hostname=name)
        with pytest.raises((aiohttp.ClientError, OSError)):
            await scene.get(headers=TOKEN)
        writer.close()


async def test_a_stranger_leaves_room_for_other_connections_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an Ingress all people come from one address: connections of those who were let in do not count."""
    monkeypatch.setattr(server_shell, "_STRANGERS", 2)
    async with served() as scene:
        persons = [await opened(scene) for _ in range(2)]
        for each in persons:
            assert b" 200 " in await first_line(each, "Authorization: Bearer secret-token\r\n")
        strangers = [await opened(scene) for _ in range(2)]
        for each in strangers:
            assert b" 401 " in await first_line(each)
        refused = await opened(scene)
        assert await first_line(refused) == b""
        for _, writer in (*persons, *strangers, refused):
            writer.transport.abort()


async def test_a_strangers_place_is_free_once_his_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_shell, "_STRANGERS", 1)
    monkeypatch.setattr(server_shell, "_FIRST_S", 0.1)
    async with served() as scene:
        silent = await opened(scene)
        async with asyncio.timeout(HANG_S):
            assert await silent[0].read() == b"", "it said nothing for so long"
        again = await opened(scene)
        assert b" 401 " in await first_line(again)
        for _, writer in (silent, again):
            writer.transport.abort()


async def test_the_front_proxy_is_no_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_shell, "_STRANGERS", 0)
    async with served() as scene:
        assert (await scene.get(tls=scene.front(), user=PERSON))[0] == 200
        with pytest.raises((aiohttp.ClientError, OSError)):
            await scene.get(headers=TOKEN)
