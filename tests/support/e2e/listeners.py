"""The table of listeners in docs/security.md, and peers that try its rows on running programs.

Nothing here knows the code: what is open comes from the kernel, what may happen from the page.
"""

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

import psutil

from tests.support.e2e import crowd
from tests.support.e2e.lab import ROOT

PAGE: Final = ROOT / "docs" / "security.md"
HEADS: Final = 200
LATE_S: Final = 10.0
"""A busy machine may be so late."""


@dataclass(frozen=True)
class Row:
    """One TCP port of the table. None: the page says that there is no such bound."""

    name: str
    may_connect: str
    connections: int
    of_one_address: int | None
    head_bytes: int
    body_bytes: int
    tls_s: float | None
    headers_s: float
    body_s: float


@dataclass(frozen=True)
class Table:
    ports: dict[str, Row]
    sockets: tuple[re.Pattern[str], ...]

    def has_socket(self, path: str) -> bool:
        return any(each.search(path) for each in self.sockets)


def table() -> Table:
    """What the page says."""
    text = PAGE.read_text().partition("## Listeners")[2]
    lines = [line for line in text.partition("\n\nA connection above")[0].splitlines() if line.startswith("| ")][2:]
    ports: dict[str, Row] = {}
    sockets: list[re.Pattern[str]] = []
    for line in lines:
        cells = [part.strip() for part in line[1:-1].split("|")]
        name, _, may, many, address, _, head, body, tls, headers, body_s, _ = cells
        names = re.findall(r"`([^`]+\.sock)`", name)
        sockets += [re.compile(re.escape(each).replace("N", r"\d+").replace("DRIVER", ".+") + "$") for each in names]
        if name.isdecimal():
            ports[name] = Row(
                name,
                may,
                int(_number(many) or 0),
                None if (most := _number(address)) is None else int(most),
                int(_number(head) or 0),
                int(_number(body) or 0),
                _number(tls),
                _number(headers) or 0.0,
                _number(body_s) or 0.0,
            )
    return Table(ports, tuple(sockets))


def _number(text: str) -> float | None:
    found = re.match(r"\d+", text)
    return float(found.group()) if found else None


def open_ports(pid: int) -> Iterator[tuple[int, str, int]]:
    """Process, address and port of each TCP listener of this process and its children."""
    for process in _family(pid):
        for each in process.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                yield process.pid, each.laddr.ip, each.laddr.port


def open_sockets(pid: int) -> Iterator[str]:
    """The paths of all Unix sockets that this process and its children have bound."""
    for process in _family(pid):
        # A socket that was renamed once it listened keeps its first name in the kernel's table.
        yield from (str(each.laddr).removesuffix(".new") for each in process.net_connections("unix") if each.laddr)


def standing(pid: int, port: int) -> int:
    """Connections that the process holds at this port."""
    held = psutil.Process(pid).net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port == port for each in held)


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@dataclass(frozen=True)
class Target:
    """A row's port on a running program."""

    row: Row
    pid: int
    at: tuple[str, int]
    tls: ssl.SSLContext | None
    server_name: str

    @property
    def name(self) -> str:
        return self.server_name if self.tls is not None else ""

    @contextlib.asynccontextmanager
    async def connected(self, *, tls: bool = True) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        context = self.tls if tls else None
        found = await asyncio.open_connection(
            *self.at, ssl=context, server_hostname=self.server_name if context is not None else None
        )
        try:
            yield found
        finally:
            found[1].transport.abort()

    async def patient(self) -> None:
        """All peers that wait for what the server does with them, at the same time."""
        await asyncio.gather(self.silent(), self.silent_after_tls(), self.slow(), self.slow_body())

    async def greedy(self) -> None:
        """Peers that take much."""
        await self.large()
        await self.endless_heads()
        await self.many()

    async def silent(self) -> None:
        """A peer that says nothing is cut off in the time for TLS, or that for headers."""
        async with self.connected(tls=False) as (reader, _):
            await self._ends(reader, self.row.tls_s or self.row.headers_s)

    async def silent_after_tls(self) -> None:
        async with self.connected() as (reader, _):
            await self._ends(reader, self.row.headers_s)

    async def slow(self) -> None:
        """A peer that sends a byte of its headers each half second is cut off as soon."""
        async with self.connected() as (reader, writer):
            writer.write(b"GET /")
            ends = asyncio.create_task(self._ends(reader, self.row.headers_s))
            while not ends.done():
                writer.write(b"a")
                await asyncio.wait([ends], timeout=0.5)
            await ends

    async def slow_body(self) -> None:
        """A body that does not come is cut off, or was refused before."""
        async with self.connected() as (reader, writer):
            writer.write(b"POST /convert HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
            await self._ends(reader, self.row.body_s)

    async def large(self) -> None:
        """A body above the bound is refused, or its peer cut off, and the process holds little of it."""
        before = psutil.Process(self.pid).memory_info().rss
        size = max(self.row.body_bytes + (8 << 20), 16 << 20)
        async with self.connected() as (reader, writer):
            head = f"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
            writer.write(head.encode())
            with contextlib.suppress(OSError):
                async with asyncio.timeout(self.row.body_s + LATE_S):
                    for _ in range(size >> 16):
                        writer.write(bytes(1 << 16))
                        await writer.drain()
            with contextlib.suppress(OSError):
                async with asyncio.timeout(LATE_S):
                    first = await reader.readline()
                    assert not first or first.split(b" ")[1].startswith((b"4", b"5")), first
        assert psutil.Process(self.pid).memory_info().rss - before < (16 << 20), self.row.name

    async def endless_heads(self) -> None:
        """Peers whose headers have no end are cut off; what they sent is not kept, however often they come again."""
        before, line = psutil.Process(self.pid).memory_info().rss, b"X-A: " + b"a" * 4_000 + b"\r\n"
        for _ in range(HEADS):
            with contextlib.suppress(OSError):
                async with self.connected() as (reader, writer), asyncio.timeout(LATE_S):
                    writer.write(b"GET / HTTP/1.1\r\n" + line * (2 + 2 * self.row.head_bytes // len(line)))
                    await reader.read()
        assert psutil.Process(self.pid).memory_info().rss - before < (32 << 20), self.row.name

    async def many(self) -> None:
        """Of many connections there stand as many as the page says at most; a new peer is answered beside them."""
        most = self.row.connections
        one = await crowd.stand(self.at, most + 50, tls=self.tls, sources=1, name=self.name)
        try:
            bound = self.row.of_one_address or most
            await self._stand(bound + LATE_PEERS, "of one address")
        finally:
            await one.leave()
        all_of = await crowd.stand(self.at, most + 100, tls=self.tls, sources=100, name=self.name)
        try:
            await self._stand(most, "in all")
            begun_s = time.monotonic()
            assert await self.code() >= 200
            assert time.monotonic() - begun_s < LATE_S
        finally:
            await all_of.leave()

    async def _stand(self, most: int, whose: str) -> None:
        """No more stand once those that made room are closed."""
        until_s = time.monotonic() + LATE_S
        while (found := standing(self.pid, self.at[1])) > most:
            assert time.monotonic() < until_s, f"port {self.row.name}: {found} connections {whose}, expected {most}"
            await asyncio.sleep(0.1)

    async def code(self, path: str = "/nowhere") -> int:
        """The status that a peer without credentials gets."""
        async with self.connected() as (reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            async with asyncio.timeout(LATE_S):
                return int((await reader.readline()).split(b" ")[1])

    async def _ends(self, reader: asyncio.StreamReader, within_s: float) -> None:
        begun_s = time.monotonic()
        try:
            async with asyncio.timeout(within_s + LATE_S):
                with contextlib.suppress(OSError):
                    await reader.read()
        except TimeoutError:
            raise AssertionError(f"port {self.row.name}: not cut off within {within_s} s") from None
        assert time.monotonic() - begun_s < within_s + LATE_S


LATE_PEERS: Final = 8
"""Peers of other parts, the API server's say, that may stand beside the crowd."""
