"""Many connections to one port of this machine that stand at the same time, from addresses of the loopback network.

Bounded: ``stand`` opens so many and no more, and ``Crowd.leave`` closes them.
"""

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Final

AT_ONCE: Final = 50
HANDSHAKE_S: Final = 30.0


@dataclass
class Crowd:
    """``writers``: those whose handshake was done; the server may have closed them since."""

    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def standing(self) -> int:
        return sum(not writer.transport.is_closing() for writer in self.writers)

    async def leave(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def stand(
    at: tuple[str, int], count: int, *, tls: ssl.SSLContext | None, sources: int, request: bytes = b"", name: str = ""
) -> Crowd:
    """``count`` connections from ``sources`` addresses, each with ``request`` sent on it. ``name``: of the server's
    certificate. A connection that the server refuses is not counted.
    """
    crowd, gate = Crowd(), asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        source = f"127.200.{number % sources // 250}.{1 + number % sources % 250}"
        async with gate:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    _, writer = await asyncio.open_connection(
                        *at, ssl=tls, server_hostname=name or None, local_addr=(source, 0)
                    )
            except (OSError, TimeoutError):
                return
            writer.write(request)
            crowd.writers.append(writer)

    await asyncio.gather(*(one(number) for number in range(count)))
    return crowd
