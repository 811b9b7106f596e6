"""The way of pods to the API server: what kube-proxy would do, for the one Service that in-cluster clients need.

The API server itself listens on loopback, which no pod can reach. The Service ``kubernetes`` has an address that lies
on the cluster's bridge; this process passes on what comes to it, byte for byte, so that pods' service accounts work.
"""

import asyncio
import contextlib
import sys

_CHUNK_BYTES = 65536


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while chunk := await source.read(_CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except OSError:
        # One side is gone: nothing more can be said to the other.
        sink.close()


async def _pass_on(near: tuple[asyncio.StreamReader, asyncio.StreamWriter], host: str, port: int) -> None:
    reader, writer = near
    try:
        far_reader, far_writer = await asyncio.open_connection(host, port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
    for each in (writer, far_writer):
        each.close()
        with contextlib.suppress(OSError):
            await each.wait_closed()


async def serve(listen: tuple[str, int], target: tuple[str, int]) -> None:
    """Pass on connections from ``listen`` to ``target`` until cancelled; OSError if the address is taken."""
    server = await asyncio.start_server(lambda reader, writer: _pass_on((reader, writer), *target), *listen)
    async with server:
        await server.serve_forever()


def main(host: str, port: int, target_port: int) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve((host, port), ("127.0.0.1", target_port)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
