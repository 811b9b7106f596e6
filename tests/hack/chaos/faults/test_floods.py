"""A flood reaches every port and socket that a process listens on, as the kernel says them."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

from hack.chaos.faults.floods import BYTES, CONNECTIONS, flooded, listening
from kube.testing import eventually
from tests.support.hang import HANG_S


async def test_a_flood_comes_on_many_connections_with_every_kind_of_bytes(tmp_path: Path) -> None:
    got: list[bytes] = []
    most = now = 0

    async def took(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        with contextlib.suppress(OSError):
            got.append(await reader.read(100_000))
            await asyncio.sleep(0.05)
            writer.close()
            await writer.wait_closed()
        now -= 1

    unix = await asyncio.start_unix_server(took, tmp_path / "a.sock")
    tcp = await asyncio.start_server(took, "127.0.0.1", 0)
    port = tcp.sockets[0].getsockname()[1]
    assert {str(tmp_path / "a.sock"), f"127.0.0.1:{port}"} <= set(listening(os.getpid()))
    flood = asyncio.create_task(flooded([str(tmp_path / "a.sock"), f"127.0.0.1:{port}"]))
    texts = {text[:20] for text in BYTES}
    await eventually(lambda: most >= CONNECTIONS and texts <= {text[:20] for text in got}, within_s=HANG_S, what="all")
    flood.cancel()
    await asyncio.wait([flood])
    await eventually(lambda: now == 0, within_s=HANG_S, what="every connection has ended")
    for server in (unix, tcp):
        server.close()
        await server.wait_closed()


def test_a_socket_that_only_talks_to_somebody_is_not_flooded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        found = listening(os.getpid())
        assert f"127.0.0.1:{server.getsockname()[1]}" in found
        assert f"127.0.0.1:{client.getsockname()[1]}" not in found


def test_a_process_that_is_gone_listens_on_nothing() -> None:
    assert listening(2**22 - 1) == []
