"""Peers that mean no good, for a port of this machine: ``python -m tests.support.e2e.hostilepeers HOST PORT SECONDS``.

500 say nothing at all, 100 post 4 MiB, 12 post a body more slowly than it may come, 12 post conversions of 3.3 MB. Each
comes again when it is cut off. What became of their requests is printed at the end, as JSON.
"""

import asyncio
import json
import os
import resource
import socket
import ssl
import sys
from collections import Counter
from contextlib import suppress
from typing import Final

SILENT: Final = 500
LARGE: Final = 100
SLOW: Final = 12
CONVERTING: Final = 12
LARGE_BYTES: Final = 4 * 1024 * 1024
_PAUSE_S: Final = 1.0
_NICE: Final = 10
"""They stand for other machines, and must not take this one's processors."""


def review(count: int = 7_000) -> bytes:
    """A conversion review of ``count`` ClusterQueues, about 3.3 MB."""
    flavors = [{"name": f"f{index}", "resources": [{"name": "cpu", "nominalQuota": "1"}]} for index in range(4)]
    group = {"coveredResources": ["cpu"], "flavors": flavors}
    objects = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "ClusterQueue",
            "metadata": {"name": f"queue-{index}", "uid": f"uid-{index}"},
            "spec": {"cohort": "c" * 30, "resourceGroups": [group]},
        }
        for index in range(count)
    ]
    request = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": objects}
    whole = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return json.dumps(whole).encode()


class Peers:
    """All of them. ``told`` counts statuses, and connections that were cut off, by what their peers did."""

    def __init__(self, host: str, port: int) -> None:
        self._at = (host, port)
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._review = review()
        self._large = b" " * LARGE_BYTES
        self.told: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        tasks = [asyncio.create_task(self._again(self._silent, "silent")) for _ in range(SILENT)]
        tasks += [
            asyncio.create_task(self._again(self._posts, "large", "/mutate-job", self._large)) for _ in range(LARGE)
        ]
        tasks += [asyncio.create_task(self._again(self._slow, "slow")) for _ in range(SLOW)]
        tasks += [
            asyncio.create_task(self._again(self._posts, "converting", "/convert", self._review))
            for _ in range(CONVERTING)
        ]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _again(self, peer: object, what: str, *args: object) -> None:
        while True:
            try:
                assert callable(peer)
                self.told[f"{what} {await peer(*args)}"] += 1
            except (OSError, asyncio.IncompleteReadError, ValueError):
                self.told[f"{what} cut off"] += 1
            await asyncio.sleep(_PAUSE_S)

    async def _silent(self) -> str:
        reader, writer = await asyncio.open_connection(*self._at)
        try:
            await reader.read(1)
        finally:
            writer.transport.abort()
        return "ended"

    async def _posts(self, path: str, body: bytes) -> str:
        reader, writer = await asyncio.open_connection(*self._at, ssl=self._tls)
        try:
            writer.write(_head(path, len(body)))
            sending = asyncio.ensure_future(_send(writer, body))
            try:
                status = (await reader.readline()).split()[1].decode()
                while await reader.read(64 * 1024) and status == "200" and not reader.at_eof():
                    if sending.done():
                        break
            finally:
                sending.cancel()
        except IndexError:
            return "cut off"
        else:
            return status
        finally:
            writer.transport.abort()

    async def _slow(self) -> str:
        reader, writer = await asyncio.open_connection(*self._at, ssl=self._tls)
        try:
            writer.write(_head("/convert", LARGE_BYTES))
            ended = asyncio.ensure_future(reader.readline())
            while not ended.done():
                writer.write(b" " * 1024)
                await asyncio.wait([ended], timeout=0.5)
            return (ended.result().split() or [b"", b"cut off"])[1].decode()
        finally:
            writer.transport.abort()


def _head(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n".encode()


async def _send(writer: asyncio.StreamWriter, body: bytes) -> None:
    with suppress(OSError):
        for start in range(0, len(body), 256 * 1024):
            writer.write(body[start : start + 256 * 1024])
            await writer.drain()


def main() -> None:
    host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    assert socket.gethostbyname(host).startswith("127."), "this machine's own addresses alone"
    os.nice(_NICE)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    peers = Peers(host, port)
    asyncio.run(peers.run(seconds))
    print(json.dumps(peers.told))  # noqa: T201 - what it is run for


if __name__ == "__main__":
    main()
