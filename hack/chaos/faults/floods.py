"""Floods of every port and socket that a process listens on, by a process of its own: ``python -m
hack.chaos.faults.floods``.

What a process listens on is what the kernel says. A flood is whole requests, halves that never end, bytes that are no
request, headers without an end, and connections that close at once, each in its turn, on many connections.
"""

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from hack.chaos.faults.processes import Heal
from hack.chaos.schedule import Act
from hack.chaos.world import World

CONNECTIONS: Final = 60
"""At a time, of each port or socket."""
PAUSE_S: Final = 0.2
"""The pause of one flooder between two connections: the machine keeps some time for what is flooded."""
HALF_S: Final = 3.0
_ROOT: Final = Path(__file__).parents[3]
_WHOLE: Final = tuple(
    f"GET {path} HTTP/1.1\r\nHost: flood\r\nConnection: close\r\n\r\n".encode()
    for path in ("/metrics", "/healthz", "/v1/node", "/apis", "/" + "a" * 4000)
)
_HTTP2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_OTHER: Final = (
    b"GET /metrics HTTP/1.1\r\nHost: fl",
    b"POST / HTTP/1.1\r\nHost: flood\r\nContent-Length: 1000000\r\n\r\nhalf",
    b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (number, b"y" * 200) for number in range(400)),
    _HTTP2 + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    _HTTP2 + b"\xff" * 512,
    b"\x16\x03\x01\x02\x00" + b"\0" * 64,
    b"\0" * 2048,
    b"",
)
BYTES: Final = _WHOLE + _OTHER


def listening(pid: int) -> list[str]:
    """``HOST:PORT`` and paths of Unix sockets on which the process listens; none where it is gone."""
    addresses: set[str] = set()
    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        for one in process.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN:
                host = one.laddr.ip if one.laddr.ip not in ("0.0.0.0", "::") else "127.0.0.1"
                addresses.add(f"{host}:{one.laddr.port}")
        addresses |= {str(one.laddr) for one in process.net_connections("unix") if one.laddr and "/" in str(one.laddr)}
    return sorted(addresses)


def flood_ports(world: World, _: Act) -> Heal:
    """Flood what the agent and both controllers listen on now."""
    processes = [world.agent.process, *(each.process for each in world.replicas)]
    targets = [target for process in processes if process is not None for target in listening(process.pid)]
    command = [sys.executable, "-m", "hack.chaos.faults.floods", *targets]
    flood = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def heal() -> None:
        flood.kill()
        flood.wait()

    return heal


async def flooded(targets: Sequence[str]) -> None:
    """Until it is cancelled."""
    turns = itertools.cycle(BYTES)
    async with asyncio.TaskGroup() as group:
        for target in targets:
            for _ in range(CONNECTIONS):
                group.create_task(_flooder(target, turns))


async def _flooder(target: str, turns: Iterator[bytes]) -> None:
    while True:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(HALF_S):
                await _once(target, next(turns))
        await asyncio.sleep(PAUSE_S)


async def _once(target: str, text: bytes) -> None:
    """Send ``text``, and read until the other side has enough."""
    if target.startswith("/"):
        reader, writer = await asyncio.open_unix_connection(target)
    else:
        host, _, port = target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(text)
        await writer.drain()
        while text and await reader.read(65536):
            pass
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(flooded(sys.argv[1:]))
