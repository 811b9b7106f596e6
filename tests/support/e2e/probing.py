"""How long a process stands still, seen from outside: it is asked beside a process that has nothing to do.

``python -m tests.support.e2e.probing PORT SECONDS`` asks both every 50 ms, and prints the longest time by which the
answer of the process at PORT came later than the other's: what this machine has no time for holds up both.
"""

import asyncio
import sys
import time
from typing import Final

_EVERY_S: Final = 0.05
_REQUEST: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"


async def asked(port: int) -> float:
    """Seconds until the whole answer was there."""
    begun_s = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_REQUEST)
    found = await reader.read()
    took_s = time.monotonic() - begun_s
    writer.close()
    assert b" 200 " in found, found
    return took_s


async def longest(port: int, idle_port: int, seconds: float) -> float:
    worst_s, until_s = 0.0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        looked_at, beside = await asyncio.gather(asked(port), asked(idle_port))
        worst_s = max(worst_s, looked_at - beside)
        await asyncio.sleep(_EVERY_S)
    return worst_s


async def _idle() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_ANSWER)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


async def _compared(port: int, seconds: float) -> float:
    idle = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.e2e.probing", stdout=asyncio.subprocess.PIPE
    )
    assert idle.stdout is not None
    try:
        return await longest(port, int(await idle.stdout.readline()), seconds)
    finally:
        idle.kill()
        await idle.wait()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        asyncio.run(_idle())
    else:
        sys.stdout.write(f"{asyncio.run(_compared(int(sys.argv[1]), float(sys.argv[2]))):.3f}\n")
